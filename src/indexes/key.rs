//! Keys as bytes whose order is the order of the values.
//!
//! The encoding is Arrow's row format: each column's bytes follow the one's before, and the
//! bytes of the first columns are a prefix of the whole. Nulls come before every value. The
//! bytes of one value are never a prefix of those of another, so a prefix of columns is decided
//! before the next column is looked at. A dictionary is encoded as its values are.

use std::ops::Bound;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::ByteArrayType;
use arrow_array::{Array, ArrayRef, GenericByteArray, RecordBatch, new_null_array};
use arrow_buffer::ArrowNativeType;
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use smallvec::SmallVec;

use crate::coerce::value_to_array;
use crate::error::{Error, Result};
use crate::value::{Key, Value};

/// How long a key may be to lie in [`KeyBytes`] itself.
pub(crate) const INLINE_BYTES: usize = 24;

/// An encoded key. Whole numbers and short texts fit in place.
pub(crate) type KeyBytes = SmallVec<[u8; INLINE_BYTES]>;

/// Encodes the key columns of one index, always in the same order.
#[derive(Debug)]
pub(crate) struct KeyEncoder {
    /// Positions in the schema the rows have.
    columns: Vec<usize>,
    names: Vec<String>,
    types: Vec<DataType>,
    whole: RowConverter,
    /// One for each column alone. Their bytes, one after the other, are those of `whole`.
    single: Vec<RowConverter>,
}

impl KeyEncoder {
    /// For these columns of the schema, whose types have an order (O2, O3).
    pub(crate) fn new(schema: &SchemaRef, columns: &[usize]) -> Result<Self, ArrowError> {
        let types: Vec<DataType> = columns.iter().map(|at| schema.field(*at).data_type().clone()).collect();
        let field = |data_type| SortField::new(value_type(data_type).clone());
        let whole = RowConverter::new(types.iter().map(field).collect())?;
        let single = types.iter().map(|of| RowConverter::new(vec![field(of)])).collect::<Result<_, _>>()?;
        let names = columns.iter().map(|at| schema.field(*at).name().clone()).collect();
        Ok(KeyEncoder { columns: columns.to_vec(), names, types, whole, single })
    }

    /// The types of the key columns.
    pub(crate) fn types(&self) -> &[DataType] {
        &self.types
    }

    /// The keys of all rows of a batch in that schema.
    pub(crate) fn encode_rows(&self, batch: &RecordBatch) -> Result<Rows, ArrowError> {
        let columns: Vec<ArrayRef> = self.columns.iter().map(|at| Arc::clone(batch.column(*at))).collect();
        self.encode_columns(&columns)
    }

    /// Keys given as arrays, one per key column. A dictionary column takes arrays of its values'
    /// type too.
    pub(crate) fn encode_columns(&self, columns: &[ArrayRef]) -> Result<Rows, ArrowError> {
        if columns.iter().any(|column| matches!(column.data_type(), DataType::Dictionary(..))) {
            let columns = columns.iter().map(without_dictionary).collect::<Result<Vec<_>, _>>()?;
            return self.whole.convert_columns(&columns);
        }
        self.whole.convert_columns(columns)
    }

    /// One key, as a caller writes it.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a wrong number of values, and for one that the type of its
    /// column cannot hold exactly; a null is no key.
    pub(crate) fn encode_key(&self, key: &Key) -> Result<KeyBytes> {
        if key.0.len() != self.types.len() {
            return Err(Error::invalid(
                "the key",
                format!("{} values {key}", key.0.len()),
                format!("{} ({})", self.types.len(), self.names.join(", ")),
            ));
        }
        let mut bytes = KeyBytes::new();
        for (at, (value, data_type)) in key.0.iter().zip(&self.types).enumerate() {
            if push_plain(&mut bytes, value, data_type) {
                continue;
            }
            let array = value_to_array(value, data_type).filter(|array| array.is_valid(0));
            let pushed = array.and_then(|array| self.push_single(&mut bytes, at, &array).ok());
            pushed.ok_or_else(|| {
                let column = self.names.get(at).map(String::as_str).unwrap_or_default();
                Error::invalid(
                    format!("key column `{column}`"),
                    value.to_string(),
                    format!("a value of type {data_type}"),
                )
            })?;
        }
        Ok(bytes)
    }

    /// Appends the bytes of a one-row array of the column at `at` of the key.
    fn push_single(&self, bytes: &mut impl Extend<u8>, at: usize, value: &ArrayRef) -> Result<(), ArrowError> {
        let Some(converter) = self.single.get(at) else {
            let detail = format!("column {at} of a key of {}", self.single.len());
            return Err(ArrowError::InvalidArgumentError(detail));
        };
        let rows = converter.convert_columns(&[without_dictionary(value)?])?;
        bytes.extend(rows.row(0).data().iter().copied());
        Ok(())
    }
}

/// The bytes of the encoded keys between two bounds.
pub(crate) type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl KeyEncoder {
    /// The bounds of all keys whose first columns equal these values (arrays of one row; a null
    /// is equal to null here, which is how `IS NULL` is asked), and whose next column, if one is
    /// given, lies in the range. A range never holds nulls, as SQL wants it. Floats are ordered
    /// as Arrow's kernels order them: -0.0 below 0.0, and NaN at the ends.
    pub(crate) fn bounds(
        &self,
        equal: &[ArrayRef],
        next: Option<(Bound<ArrayRef>, Bound<ArrayRef>)>,
    ) -> Result<KeyBounds, ArrowError> {
        let prefix = self.encode_prefix(equal)?;
        let end_of_prefix = || successor(prefix.clone()).map_or(Bound::Unbounded, Bound::Excluded);
        let Some((lower, upper)) = next else {
            return Ok((Bound::Included(prefix.clone()), end_of_prefix()));
        };
        let extended = |value: &ArrayRef| -> Result<Vec<u8>, ArrowError> {
            let mut bytes = prefix.clone();
            self.push_single(&mut bytes, equal.len(), value)?;
            Ok(bytes)
        };
        // A value's bytes begin with a marker far below 255, so something always follows them.
        let after = |bytes: Vec<u8>| Bound::Included(successor(bytes).unwrap_or_default());
        let lower = match &lower {
            Bound::Included(value) => Bound::Included(extended(value)?),
            Bound::Excluded(value) => after(extended(value)?),
            Bound::Unbounded => {
                let data_type = self.types.get(equal.len()).unwrap_or(&DataType::Null);
                after(extended(&new_null_array(value_type(data_type), 1))?)
            }
        };
        let upper = match &upper {
            Bound::Included(value) => successor(extended(value)?).map_or(Bound::Unbounded, Bound::Excluded),
            Bound::Excluded(value) => Bound::Excluded(extended(value)?),
            Bound::Unbounded => end_of_prefix(),
        };
        Ok((lower, upper))
    }

    /// The bytes of the first columns, which begin every key that has these values in them.
    fn encode_prefix(&self, values: &[ArrayRef]) -> Result<Vec<u8>, ArrowError> {
        let mut bytes = Vec::new();
        values.iter().enumerate().try_for_each(|(at, value)| self.push_single(&mut bytes, at, value))?;
        Ok(bytes)
    }
}

/// The first bytes after everything that begins with these; `None` if nothing is.
pub(crate) fn successor(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = bytes.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return Some(bytes);
        }
        bytes.pop();
    }
    None
}

/// What a column's keys are encoded as.
fn value_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => value_type(values),
        other => other,
    }
}

/// Encoding a dictionary array encodes its whole dictionary, however few rows use it. The values
/// of the rows alone are as many as there are rows.
fn without_dictionary(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        of @ DataType::Dictionary(..) => arrow_cast::cast(column, value_type(of)),
        _ => Ok(Arc::clone(column)),
    }
}

/// Appends the most common kinds of key without making an array of them, which would take most
/// of a lookup's time. Says whether it did. The tests hold its bytes against the converter's.
fn push_plain(bytes: &mut KeyBytes, value: &Value, data_type: &DataType) -> bool {
    const VALID: u8 = 1;
    match (value, data_type) {
        (Value::Int(value), DataType::Int64) => {
            bytes.push(VALID);
            // Without its sign bit the number sorts as its bytes do.
            bytes.extend_from_slice(&(value ^ i64::MIN).to_be_bytes());
        }
        (Value::Text(value), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View) => {
            push_variable(bytes, value.as_bytes());
        }
        (Value::Binary(value), DataType::Binary | DataType::LargeBinary | DataType::BinaryView) => {
            push_variable(bytes, value);
        }
        _ => return false,
    }
    true
}

/// The blocks of a variable-length value: four of 8 bytes, then of 32.
const SHORT_BLOCK: usize = 8;
const LONG_BLOCK: usize = 32;

/// Appends text or bytes in the row format: a marker, then blocks padded with zeros, each
/// followed by 255 if another comes and by its length if none does.
fn push_variable(bytes: &mut impl Extend<u8>, value: &[u8]) {
    const EMPTY: u8 = 1;
    const NOT_EMPTY: u8 = 2;
    const CONTINUED: u8 = u8::MAX;
    if value.is_empty() {
        bytes.extend([EMPTY]);
        return;
    }
    bytes.extend([NOT_EMPTY]);
    let (short, long) = value.split_at(value.len().min(LONG_BLOCK));
    let short = short.chunks(SHORT_BLOCK).map(|block| (block, SHORT_BLOCK));
    let mut blocks = short.chain(long.chunks(LONG_BLOCK).map(|block| (block, LONG_BLOCK))).peekable();
    while let Some((block, size)) = blocks.next() {
        bytes.extend(block.iter().copied());
        bytes.extend(std::iter::repeat_n(0, size - block.len()));
        bytes.extend([if blocks.peek().is_some() { CONTINUED } else { block.len() as u8 }]);
    }
}

/// The length of [`push_variable`]'s bytes.
fn variable_len(value: usize) -> u64 {
    let encoded = if value <= LONG_BLOCK {
        1 + value.div_ceil(SHORT_BLOCK) * (SHORT_BLOCK + 1)
    } else {
        1 + LONG_BLOCK / SHORT_BLOCK * (SHORT_BLOCK + 1) + (value - LONG_BLOCK).div_ceil(LONG_BLOCK) * (LONG_BLOCK + 1)
    };
    encoded as u64
}

/// The bytes of a column's encoded keys, all rows together. It reads lengths, not values, and is
/// exact but for nulls, which it may take for longer.
pub(crate) fn encoded_bytes(column: &ArrayRef) -> u64 {
    let rows = column.len() as u64;
    match column.data_type() {
        DataType::Utf8 => bytes_of(column.as_string::<i32>()),
        DataType::LargeUtf8 => bytes_of(column.as_string::<i64>()),
        DataType::Binary => bytes_of(column.as_binary::<i32>()),
        DataType::LargeBinary => bytes_of(column.as_binary::<i64>()),
        DataType::Utf8View => column.as_string_view().lengths().map(|len| variable_len(len as usize)).sum(),
        DataType::BinaryView => column.as_binary_view().lengths().map(|len| variable_len(len as usize)).sum(),
        DataType::FixedSizeBinary(width) => rows * (u64::from(width.unsigned_abs()) + 1),
        DataType::Dictionary(..) => without_dictionary(column).map_or(u64::MAX, |column| encoded_bytes(&column)),
        // Booleans take a marker and a byte, as a null type takes two markers.
        other => rows * (other.primitive_width().unwrap_or(1) as u64 + 1),
    }
}

fn bytes_of<T: ByteArrayType>(column: &GenericByteArray<T>) -> u64 {
    column.offsets().windows(2).map(|ends| variable_len((ends[1] - ends[0]).as_usize())).sum()
}

#[cfg(test)]
mod tests;

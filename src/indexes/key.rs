//! Keys as bytes whose order is the order of the values.
//!
//! The encoding is Arrow's row format: each column's bytes follow the one's before, and the
//! bytes of the first columns are a prefix of the whole. Nulls come before every value.

use std::ops::Bound;
use std::sync::Arc;

use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Float64Array, Int64Array, StringArray, UInt64Array, new_null_array,
};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{ArrowError, DataType, SchemaRef};
use smallvec::SmallVec;

use crate::error::{Error, Result};
use crate::value::{Key, Value};

/// An encoded key. Whole numbers and short texts fit in place.
pub(crate) type KeyBytes = SmallVec<[u8; 24]>;

/// Encodes the key columns of one index, always in the same order.
#[derive(Debug)]
pub(crate) struct KeyEncoder {
    /// Positions in the schema the rows have.
    columns: Vec<usize>,
    names: Vec<String>,
    types: Vec<DataType>,
    converter: RowConverter,
}

impl KeyEncoder {
    /// For these columns of the schema, whose types have an order (O2, O3).
    pub(crate) fn new(schema: &SchemaRef, columns: &[usize]) -> Result<Self, ArrowError> {
        let types: Vec<DataType> = columns.iter().map(|at| schema.field(*at).data_type().clone()).collect();
        let converter = RowConverter::new(types.iter().cloned().map(SortField::new).collect())?;
        let names = columns.iter().map(|at| schema.field(*at).name().clone()).collect();
        Ok(KeyEncoder { columns: columns.to_vec(), names, types, converter })
    }

    /// The positions of the key columns in the schema.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// The types of the key columns.
    pub(crate) fn types(&self) -> &[DataType] {
        &self.types
    }

    /// The keys of all rows of a batch in that schema.
    pub(crate) fn encode_rows(&self, batch: &arrow_array::RecordBatch) -> Result<Rows, ArrowError> {
        let columns: Vec<ArrayRef> = self.columns.iter().map(|at| Arc::clone(batch.column(*at))).collect();
        self.converter.convert_columns(&columns)
    }

    /// Keys given as arrays, one per key column.
    pub(crate) fn encode_columns(&self, columns: &[ArrayRef]) -> Result<Rows, ArrowError> {
        self.converter.convert_columns(columns)
    }

    /// One key, as a caller writes it.
    pub(crate) fn encode_key(&self, key: &Key) -> Result<KeyBytes> {
        if key.0.len() != self.types.len() {
            return Err(Error::invalid(
                "the key",
                format!("{} values {key}", key.0.len()),
                format!("{} ({})", self.types.len(), self.names.join(", ")),
            ));
        }
        let mut columns = Vec::with_capacity(key.0.len());
        for ((value, data_type), name) in key.0.iter().zip(&self.types).zip(&self.names) {
            let array = exact_array(value, data_type).ok_or_else(|| {
                Error::invalid(
                    format!("key column `{name}`"),
                    value.to_string(),
                    format!("a value of type {data_type}"),
                )
            })?;
            columns.push(array);
        }
        let rows = self
            .converter
            .convert_columns(&columns)
            .map_err(|error| Error::invalid("the key", error.to_string(), "values of the key columns' types"))?;
        Ok(KeyBytes::from_slice(rows.row(0).as_ref()))
    }
}

/// The bytes of the encoded keys between two bounds.
pub(crate) type KeyBounds = (Bound<Vec<u8>>, Bound<Vec<u8>>);

impl KeyEncoder {
    /// The bounds of all keys whose first columns equal these values (arrays of one row; a null
    /// is equal to null here), and whose next column, if one is given, lies in the range. A range
    /// never holds nulls, as SQL wants it.
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
        let Some(data_type) = self.types.get(equal.len()) else {
            let detail = format!("a range on column {} of a key of {}", equal.len(), self.types.len());
            return Err(ArrowError::InvalidArgumentError(detail));
        };
        let extended = |value: &ArrayRef| self.encode_prefix(&[equal, std::slice::from_ref(value)].concat());
        let after = |bytes: Vec<u8>| successor(bytes).map_or(Bound::Unbounded, Bound::Included);
        let lower = match &lower {
            Bound::Included(value) => Bound::Included(extended(value)?),
            Bound::Excluded(value) => after(extended(value)?),
            Bound::Unbounded => after(extended(&new_null_array(data_type, 1))?),
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
        if values.is_empty() {
            return Ok(Vec::new());
        }
        let types = self.types.iter().take(values.len()).cloned().map(SortField::new);
        let rows = RowConverter::new(types.collect())?.convert_columns(values)?;
        Ok(rows.row(0).as_ref().to_vec())
    }
}

/// The first bytes after everything that begins with these; `None` if nothing is.
fn successor(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = bytes.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return Some(bytes);
        }
        bytes.pop();
    }
    None
}

/// The value as an array of one row, if the type can hold exactly it. A null is no key.
fn exact_array(value: &Value, data_type: &DataType) -> Option<ArrayRef> {
    let array: ArrayRef = match value {
        Value::Null => return None,
        Value::Boolean(value) => Arc::new(BooleanArray::from(vec![*value])),
        Value::Int(value) => Arc::new(Int64Array::from(vec![*value])),
        Value::UInt(value) => Arc::new(UInt64Array::from(vec![*value])),
        Value::Float(value) => Arc::new(Float64Array::from(vec![*value])),
        Value::Text(value) => Arc::new(StringArray::from(vec![value.as_str()])),
        Value::Binary(value) => Arc::new(BinaryArray::from(vec![value.as_slice()])),
    };
    if array.data_type() == data_type {
        return Some(array);
    }
    if !related(value, data_type) {
        return None;
    }
    let cast = |array: &ArrayRef, to: &DataType| {
        cast_with_options(array, to, &CastOptions { safe: true, ..CastOptions::default() }).ok()
    };
    let converted = cast(&array, data_type).filter(|converted| converted.is_valid(0))?;
    // A number that comes back changed did not fit: 300 in a byte, 1.5 in an integer. Text is
    // parsed, and need not come back as it was written.
    let exact = matches!(value, Value::Text(_)) || cast(&converted, array.data_type())?.as_ref() == array.as_ref();
    exact.then_some(converted)
}

/// Whether a value of this kind is ever meant for the type. Casts alone would take `'1'` for a
/// number, and a number for a date.
fn related(value: &Value, data_type: &DataType) -> bool {
    let of = match data_type {
        DataType::Dictionary(_, of) => of.as_ref(),
        other => other,
    };
    match value {
        Value::Null => false,
        Value::Boolean(_) => matches!(of, DataType::Boolean),
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => of.is_numeric(),
        Value::Text(_) => {
            of.is_temporal()
                || matches!(of, DataType::Decimal32(..) | DataType::Decimal64(..))
                || matches!(of, DataType::Decimal128(..) | DataType::Decimal256(..))
                || matches!(of, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
        }
        Value::Binary(_) => {
            matches!(of, DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_))
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow_schema::{Field, Schema, TimeUnit};

    use super::*;

    fn encoder(types: &[DataType]) -> KeyEncoder {
        let fields: Vec<Field> =
            types.iter().enumerate().map(|(at, of)| Field::new(format!("k{at}"), of.clone(), false)).collect();
        let columns: Vec<usize> = (0..types.len()).collect();
        KeyEncoder::new(&Arc::new(Schema::new(fields)), &columns).expect("sortable")
    }

    #[test]
    fn q2_a_key_given_as_values_is_the_key_of_the_row_that_holds_them() {
        let encoder = encoder(&[DataType::Int32, DataType::Utf8]);
        let columns: Vec<ArrayRef> =
            vec![Arc::new(arrow_array::Int32Array::from(vec![-5])), Arc::new(StringArray::from(vec!["x"]))];
        let rows = encoder.encode_columns(&columns).expect("encoded");
        assert_eq!(encoder.encode_key(&Key::from((-5, "x"))).expect("a key").as_slice(), rows.row(0).as_ref());
    }

    #[test]
    fn q2_a_key_that_does_not_fit_is_refused_with_column_value_and_type() {
        let small = encoder(&[DataType::Int8]);
        for value in [Value::Int(300), Value::Float(1.5), Value::from("1"), Value::Null, Value::Boolean(true)] {
            let text = small.encode_key(&Key(vec![value.clone()])).expect_err("does not fit").to_string();
            assert!(text.contains("`k0`") && text.contains(&value.to_string()) && text.contains("Int8"), "{text}");
        }
        let text = small.encode_key(&Key::from((1, 2))).expect_err("too many").to_string();
        assert!(text.contains("2 values") && text.contains("1 (k0)"), "{text}");
        assert!(small.encode_key(&Key::from(5.0)).is_ok(), "a whole float is the whole number");
    }

    #[test]
    fn q2_text_is_parsed_for_dates_and_decimals() {
        let dates = encoder(&[DataType::Date32, DataType::Timestamp(TimeUnit::Millisecond, None)]);
        assert!(dates.encode_key(&Key::from(("2024-02-29", "2024-02-29 12:00:00"))).is_ok());
        assert!(dates.encode_key(&Key::from(("2023-02-29", "2024-02-29 12:00:00"))).is_err());
        assert!(encoder(&[DataType::Decimal128(10, 2)]).encode_key(&Key::from("12.34")).is_ok());
    }
}

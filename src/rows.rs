//! Rows on their way in: checked against the spec, in storage form, counted in bytes.

use std::collections::HashSet;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, UInt32Array, new_null_array};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Schema, SchemaRef};
use arrow_select::take::take_record_batch;

use crate::error::{Error, Result};
use crate::ids::SeqRange;
use crate::spec::ValidatedSpec;

/// Rows in storage form that hold P1 and P9. Only [`ValidatedSpec::check_put`] and
/// [`ValidatedSpec::check_delete`] build them.
#[derive(Clone, Debug)]
pub(crate) struct CheckedRows {
    batches: Vec<RecordBatch>,
    rows: u64,
    bytes: u64,
}

impl CheckedRows {
    /// How many rows.
    pub(crate) fn rows(&self) -> u64 {
        self.rows
    }

    /// The rows.
    pub(crate) fn batches(&self) -> &[RecordBatch] {
        &self.batches
    }

    /// What holding them costs: row windows, and a fixed price for each array.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the spec with this very storage schema checked them; an equal one may be another
    /// shard's.
    pub(crate) fn are_of(&self, storage_schema: &SchemaRef) -> bool {
        self.batches.iter().all(|batch| Arc::ptr_eq(batch.schema_ref(), storage_schema))
    }

    /// Gives them their sequence numbers.
    pub(crate) fn sequenced(self, range: SeqRange) -> SequencedRows {
        debug_assert_eq!(range.rows(), self.rows);
        SequencedRows { range, batches: self.batches.into(), bytes: self.bytes }
    }
}

/// Rows in storage form that have their sequence numbers: one put, never split (S2).
#[derive(Clone, Debug)]
pub(crate) struct SequencedRows {
    pub(crate) range: SeqRange,
    pub(crate) batches: Arc<[RecordBatch]>,
    /// What holding them costs, as [`row_bytes`] counts.
    pub(crate) bytes: u64,
}

impl ValidatedSpec {
    /// Checks the batches of a put and brings them into storage form (P1).
    pub(crate) fn check_put(&self, batches: Vec<RecordBatch>) -> Result<CheckedRows> {
        if batches.is_empty() {
            return Err(Error::invalid("the put", "no batches", "at least one batch"));
        }
        let mut stored = Vec::with_capacity(batches.len());
        for (at, batch) in batches.into_iter().enumerate() {
            if batch.num_rows() == 0 {
                return Err(Error::invalid(format!("batch {at} of the put"), "no rows", "at least one row"));
            }
            check_same_columns(self.schema(), &batch)?;
            stored.push(self.to_storage(owned_window(batch)?)?);
        }
        Ok(checked(stored))
    }

    /// Checks the keys of a delete and brings them into storage form: keys, nulls, and a
    /// tombstone (P9).
    pub(crate) fn check_delete(&self, keys: &RecordBatch) -> Result<CheckedRows> {
        let names = self.table().primary_key_columns();
        if names.is_empty() {
            return Err(Error::invalid(
                "the delete",
                "a shard without a primary key",
                "a shard created with one; rows without a key are append-only",
            ));
        }
        if keys.num_rows() == 0 {
            return Err(Error::invalid("the delete", "no rows", "at least one key"));
        }
        let key_schema = self
            .schema()
            .project(self.primary_key())
            .map_err(|error| Error::invalid("the delete", error.to_string(), "the columns of the primary key"))?;
        check_same_columns(&key_schema, keys)?;
        let keys = owned_window(keys.clone())?;
        let rows = keys.num_rows();
        let mut columns: Vec<ArrayRef> =
            self.storage_schema().fields().iter().map(|field| new_null_array(field.data_type(), rows)).collect();
        for (key, position) in keys.columns().iter().zip(self.primary_key()) {
            columns[*position] = Arc::clone(key);
        }
        columns[self.tombstone_column()] = Arc::new(BooleanArray::from(vec![true; rows]));
        let batch = RecordBatch::try_new(Arc::clone(self.storage_schema()), columns)
            .map_err(|error| Error::invalid("the delete", error.to_string(), "the columns of the primary key"))?;
        Ok(checked(vec![batch]))
    }

    fn to_storage(&self, batch: RecordBatch) -> Result<RecordBatch> {
        let rows = batch.num_rows();
        let (_, mut columns, _) = batch.into_parts();
        columns.push(Arc::new(BooleanArray::from(vec![false; rows])));
        RecordBatch::try_new(Arc::clone(self.storage_schema()), columns)
            .map_err(|error| Error::invalid("the put", error.to_string(), "columns as the schema declares them"))
    }
}

fn checked(batches: Vec<RecordBatch>) -> CheckedRows {
    let rows = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    let bytes = batches.iter().map(row_bytes).sum();
    CheckedRows { batches, rows, bytes }
}

/// Columns are matched by position, and by name and type too: two swapped columns of one type
/// would otherwise be stored under each other's name.
fn check_same_columns(schema: &Schema, batch: &RecordBatch) -> Result<()> {
    let found = batch.schema_ref();
    if found.fields().len() != schema.fields().len() {
        let names = |schema: &Schema| schema.fields().iter().map(|f| f.name().as_str()).collect::<Vec<_>>().join(", ");
        return Err(Error::invalid(
            "the batch",
            format!("{} columns ({})", found.fields().len(), names(found)),
            format!("{} columns ({})", schema.fields().len(), names(schema)),
        ));
    }
    for (at, (want, have)) in schema.fields().iter().zip(found.fields()).enumerate() {
        if want.name() != have.name() {
            return Err(Error::invalid(
                format!("column {at}"),
                format!("`{}`", have.name()),
                format!("`{}`", want.name()),
            ));
        }
        let subject = || format!("column `{}`", want.name());
        // Field names and nullability inside nested types are part of what the log stores.
        if want.data_type() != have.data_type() {
            return Err(Error::invalid(
                subject(),
                format!("type {}", have.data_type()),
                format!("type {}", want.data_type()),
            ));
        }
        let nulls = batch.column(at).logical_null_count();
        if !want.is_nullable() && nulls > 0 {
            return Err(Error::invalid(subject(), format!("{nulls} nulls"), "none: the column is not nullable"));
        }
    }
    Ok(())
}

/// What an array and its buffers cost beside their contents: the structures themselves and the
/// allocator's rounding. A batch of one row costs mostly this.
pub(crate) const ARRAY_BYTES: u64 = 192;

/// The bytes of the rows a batch shows (its windows, not the buffers they lie in), and the fixed
/// price of its arrays. Buffers shared with other batches are counted for this batch's rows only.
pub(crate) fn row_bytes(batch: &RecordBatch) -> u64 {
    batch.columns().iter().map(|column| window_bytes(&column.to_data()) + ARRAY_BYTES).sum()
}

fn window_bytes(data: &ArrayData) -> u64 {
    let windows = |children: &[ArrayData]| children.iter().map(window_bytes).sum::<u64>();
    let shown = |first: Option<usize>, end: Option<usize>| {
        let (first, end) = (first.unwrap_or(0), end.unwrap_or(0));
        windows(
            &data.child_data().iter().map(|child| child.slice(first, end.saturating_sub(first))).collect::<Vec<_>>(),
        )
    };
    let of_children = match data.data_type() {
        // A view array's buffers are reached by view, so its window has no contiguous size.
        DataType::Utf8View | DataType::BinaryView => return buffer_bytes(data),
        // Slicing a list leaves its items alone; only those within the offsets are shown.
        DataType::List(_) | DataType::Map(..) => {
            let ends = data.buffer::<i32>(0);
            shown(ends.first().map(|end| *end as usize), ends.get(data.len()).map(|end| *end as usize))
        }
        DataType::LargeList(_) => {
            let ends = data.buffer::<i64>(0);
            shown(ends.first().map(|end| *end as usize), ends.get(data.len()).map(|end| *end as usize))
        }
        _ => windows(data.child_data()),
    };
    let size = |data: &ArrayData| data.get_slice_memory_size().unwrap_or(0) as u64;
    size(data).saturating_sub(data.child_data().iter().map(size).sum()) + of_children
}

/// The capacity of the distinct buffers an array holds on to.
fn buffer_bytes(data: &ArrayData) -> u64 {
    let mut seen = HashSet::new();
    let mut pending = vec![data];
    let mut bytes = 0;
    while let Some(data) = pending.pop() {
        let nulls = data.nulls().map(|nulls| nulls.buffer());
        for buffer in data.buffers().iter().chain(nulls) {
            if seen.insert(buffer.data_ptr()) {
                bytes += buffer.capacity() as u64;
            }
        }
        pending.extend(data.child_data());
    }
    bytes
}

/// Holding a batch holds its whole buffers. Where they are much larger than the rows shown (a
/// slice of a big batch), the rows are copied, so that what is held is what was counted (B1).
fn owned_window(batch: RecordBatch) -> Result<RecordBatch> {
    const SLACK_BYTES: u64 = 4096;
    let excessive = batch.columns().iter().any(|column| {
        let data = column.to_data();
        let of_views = matches!(data.data_type(), DataType::Utf8View | DataType::BinaryView);
        let window = if of_views { 16 * data.len() as u64 } else { window_bytes(&data) };
        buffer_bytes(&data) > 2 * window + SLACK_BYTES
    });
    if !excessive {
        return Ok(batch);
    }
    let every_row: UInt32Array = (0..batch.num_rows() as u32).collect();
    let copy = take_record_batch(&batch, &every_row)
        .map_err(|error| Error::invalid("the put", error.to_string(), "columns that can be copied"))?;
    // `take` shares the data buffers of views; compaction lets go of what no view reaches.
    let (schema, columns, _) = copy.into_parts();
    let compact = |column: ArrayRef| {
        let mut column = compact_views(column);
        // `take` sets aside as much for the items of lists as the source has.
        column.shrink_to_fit();
        column
    };
    let columns = columns.into_iter().map(compact).collect();
    RecordBatch::try_new(schema, columns)
        .map_err(|error| Error::invalid("the put", error.to_string(), "columns that can be copied"))
}

fn compact_views(column: ArrayRef) -> ArrayRef {
    use arrow_array::cast::AsArray;
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column,
    }
}

#[cfg(test)]
mod tests;

//! The memtable: rows in memory and the indexes over them, as a write half and a read half.
//!
//! The write half lives in the IndexApplier and cannot be cloned. The read half can, and is what
//! views and snapshots hold; every answer of it is bounded by a watermark.

mod row_store;
pub(crate) mod slots;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};

use arrow_array::RecordBatch;

use self::row_store::RowStoreWriter;
pub(crate) use self::row_store::{RowStoreReader, RowWindow};
use crate::config::{CpuPool, Job};
use crate::error::{Error, Failure, Result};
use crate::ids::Seq;
use crate::indexes::ordered::OrderedReader;
use crate::indexes::primary_key::PrimaryKeyReader;
use crate::indexes::{IndexError, IndexWriter, btree, ordered, primary_key};
use crate::invariants::S1;
use crate::rows::{SequencedRows, row_bytes};
use crate::spec::{IndexKind, ValidatedSpec};

/// The write half: there is one.
pub(crate) struct MemtableWriter {
    rows: RowStoreWriter,
    /// The primary key first, where there is one.
    indexes: Vec<Box<dyn IndexWriter>>,
}

/// The read half.
#[derive(Clone)]
pub(crate) struct MemtableReader {
    first: Seq,
    rows: RowStoreReader,
    primary_key: Option<PrimaryKeyReader>,
    /// In the order of the spec's indexes.
    ordered: Arc<[OrderedReader]>,
}

/// What a memtable holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemtableBytes {
    pub(crate) rows: u64,
    pub(crate) indexes: u64,
}

/// What an empty memtable costs at most, above the estimates of the rows put into it: the first
/// buckets and tables of its parts.
pub(crate) const EMPTY_BYTES: u64 = 128 << 10;

/// An empty memtable for rows from `first` on.
pub(crate) fn new(
    spec: &Arc<ValidatedSpec>,
    first: Seq,
    pool: &Arc<dyn CpuPool>,
) -> Result<(MemtableWriter, MemtableReader)> {
    let schema = spec.storage_schema();
    // Validation has asked the same encoder whether it takes the columns.
    let refused = |error: IndexError| Error::invalid("the table spec", error.to_string(), "indexable columns");
    let (rows, row_reader) = row_store::new(schema, first);
    let mut indexes: Vec<Box<dyn IndexWriter>> = Vec::new();
    let mut key_reader = None;
    if !spec.primary_key().is_empty() {
        let (writer, reader) = primary_key::new(schema, spec.primary_key(), first).map_err(refused)?;
        indexes.push(Box::new(writer));
        key_reader = Some(reader);
    }
    let mut readers = Vec::new();
    for index in spec.indexes() {
        match index.spec.kind() {
            IndexKind::Btree => {
                let (writer, reader) =
                    ordered::new(index.spec.name(), schema, &index.columns, first, pool).map_err(refused)?;
                indexes.push(Box::new(writer));
                readers.push(reader);
            }
        }
    }
    let reader = MemtableReader { first, rows: row_reader, primary_key: key_reader, ordered: readers.into() };
    Ok((MemtableWriter { rows, indexes }, reader))
}

/// An upper bound of what indexing the rows of a batch (in storage form) will hold. Cheap: it
/// reads sizes, not values. The rows' memory is reserved by it before they are sent (B1).
pub(crate) fn index_bytes_estimate(spec: &ValidatedSpec, batch: &RecordBatch) -> u64 {
    let rows = batch.num_rows() as u64;
    let key_bytes = |columns: &[usize]| columns.iter().map(|at| encoded_bytes(batch, *at)).sum();
    let mut bytes = 0;
    if !spec.primary_key().is_empty() {
        let schema = spec.storage_schema();
        let types: Vec<_> = spec.primary_key().iter().map(|at| schema.field(*at).data_type().clone()).collect();
        bytes += primary_key::bytes_estimate(rows, key_bytes(spec.primary_key()), &types);
    }
    for index in spec.indexes() {
        match index.spec.kind() {
            IndexKind::Btree => bytes += btree::bytes_estimate(rows, key_bytes(&index.columns)),
        }
    }
    // Row slots: the list's newest bucket may be half empty.
    bytes + 2 * row_store::SLOT_BYTES
}

/// An upper bound of a column's bytes in the row format: fixed widths and a marker, or blocks of
/// 8 bytes up to 32 and of 32 bytes beyond, each with one more, for variable ones.
fn encoded_bytes(batch: &RecordBatch, column: usize) -> u64 {
    let array = batch.column(column);
    let rows = batch.num_rows() as u64;
    if let Some(width) = array.data_type().primitive_width() {
        return rows * (width as u64 + 1);
    }
    let one = RecordBatch::try_from_iter([("", Arc::clone(array))]);
    // Dictionary values may be repeated by any number of rows; text is at most its bytes, each
    // block padded.
    let content = one.map_or(0, |one| row_bytes(&one));
    let repeated = if matches!(array.data_type(), arrow_schema::DataType::Dictionary(..)) { rows } else { 1 };
    rows * 34 + content.saturating_mul(repeated) * 9 / 8
}

impl MemtableWriter {
    /// The first row's `Seq`.
    pub(crate) fn first(&self) -> Seq {
        self.rows.first()
    }

    /// One past the last row.
    pub(crate) fn end(&self) -> Seq {
        self.rows.end()
    }

    /// What it holds.
    pub(crate) fn bytes(&self) -> MemtableBytes {
        MemtableBytes { rows: self.rows.bytes(), indexes: self.indexes.iter().map(|index| index.bytes()).sum() }
    }

    /// Whether the next put, of so many bytes, belongs into a new memtable (F1): the one rule of
    /// sealing, for live writes and for replay. An empty memtable is never sealed.
    pub(crate) fn is_full(&self, bytes_max: u64, next_bytes: u64) -> bool {
        let held = self.bytes();
        self.first() < self.end() && held.rows + held.indexes + next_bytes > bytes_max
    }

    /// Stores the rows, then writes every index, here.
    pub(crate) fn apply(&mut self, rows: &SequencedRows) -> Result<(), Failure> {
        self.store(rows)?;
        self.indexes.iter_mut().try_for_each(|index| apply_batches(index.as_mut(), rows)).map_err(apply_failed)
    }

    /// Stores the rows, then writes every index at once on the pool. The state is the same as
    /// [`MemtableWriter::apply`] leaves (X3).
    pub(crate) fn apply_parallel(&mut self, rows: &SequencedRows, pool: &dyn CpuPool) -> Result<(), Failure> {
        self.store(rows)?;
        let (failed, failures) = mpsc::channel();
        let jobs = self.indexes.iter_mut().map(|index| {
            let failed = failed.clone();
            let job = move || {
                let name = index.name().to_owned();
                let applied = catch_unwind(AssertUnwindSafe(|| apply_batches(index.as_mut(), rows)));
                let panicked = || Err(IndexError::new(&name, rows.range.first(), "it panicked".to_owned()));
                if let Err(error) = applied.unwrap_or_else(|_| panicked()) {
                    // The receiver outlives the jobs.
                    let _ = failed.send(error);
                }
            };
            Box::new(job) as Job<'_>
        });
        pool.run_all(jobs.collect());
        drop(failed);
        failures.recv().map_or(Ok(()), |error| Err(apply_failed(error)))
    }

    fn store(&mut self, rows: &SequencedRows) -> Result<(), Failure> {
        if rows.range.first() != self.end() {
            let detail = format!("rows {} came to a memtable that ends at {}", rows.range, self.end());
            return Err(Failure::Invariant { id: S1, detail });
        }
        self.rows.append(rows).map_err(|reason| Failure::Apply { detail: reason.to_owned() })?;
        if self.end() != rows.range.end() {
            let detail = format!("rows {} hold {} rows", rows.range, self.end().offset_from(rows.range.first()));
            return Err(Failure::Invariant { id: S1, detail });
        }
        Ok(())
    }
}

fn apply_batches(index: &mut dyn IndexWriter, rows: &SequencedRows) -> Result<(), IndexError> {
    let mut first = rows.range.first();
    for batch in rows.batches.iter() {
        index.apply(first, batch)?;
        first = first.plus(batch.num_rows() as u64);
    }
    Ok(())
}

fn apply_failed(error: IndexError) -> Failure {
    Failure::Apply { detail: error.to_string() }
}

impl MemtableReader {
    /// The first row's `Seq`.
    pub(crate) fn first(&self) -> Seq {
        self.first
    }

    /// The rows.
    pub(crate) fn rows(&self) -> &RowStoreReader {
        &self.rows
    }

    /// The primary key, where the shard has one.
    pub(crate) fn primary_key(&self) -> Option<&PrimaryKeyReader> {
        self.primary_key.as_ref()
    }

    /// The B-tree at this place in the spec's indexes.
    pub(crate) fn btree(&self, index: usize) -> Option<&OrderedReader> {
        self.ordered.get(index)
    }
}

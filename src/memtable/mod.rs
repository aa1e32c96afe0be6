//! The memtable: rows in memory and the indexes over them, as a write half and a read half.
//!
//! The write half lives in the IndexApplier and cannot be cloned. The read half can, and is what
//! views and snapshots hold; every answer of it is bounded by a watermark.

mod row_store;
pub(crate) mod slots;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;

use self::row_store::RowStoreWriter;
pub(crate) use self::row_store::{RowStoreReader, RowWindow};
use crate::config::{CpuPool, Job};
use crate::error::{Error, Failure, Result};
use crate::ids::Seq;
use crate::indexes::key::encoded_bytes;
use crate::indexes::ordered::OrderedReader;
use crate::indexes::primary_key::PrimaryKeyReader;
use crate::indexes::{IndexError, IndexWriter, btree, ordered, primary_key};
use crate::invariants::S1;
use crate::rows::SequencedRows;
use crate::spec::{IndexKind, ValidatedSpec};

/// The write half: there is one.
pub(crate) struct MemtableWriter {
    spec: Arc<ValidatedSpec>,
    rows: RowStoreWriter,
    /// The charges of its puts, for the seal rule.
    charged: u64,
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

/// What an empty memtable holds at most, and its lists ahead of the rows in them: a memtable
/// holds no more than the sum of its charges and this.
pub(crate) const EMPTY_BYTES: u64 = primary_key::EMPTY_BYTES + (64 << 10);

/// A memtable with so many rows is full, whatever they weigh. It keeps the distance of a row
/// from the first (the id of a document or a node in an index) within 32 bits, with room for
/// the rows of one more put.
pub(crate) const ROWS_MAX: u64 = 1 << 31;

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
    Ok((MemtableWriter { spec: Arc::clone(spec), rows, charged: 0, indexes }, reader))
}

/// An upper bound of what indexing the rows of a batch (in storage form) will hold. Cheap: it
/// reads sizes, not values. The rows' memory is reserved by it before they are sent (B1).
pub(crate) fn index_bytes_estimate(spec: &ValidatedSpec, batch: &RecordBatch) -> u64 {
    let rows = batch.num_rows() as u64;
    let key_bytes = |columns: &[usize]| columns.iter().map(|at| encoded_bytes(batch.column(*at))).sum();
    let mut bytes = row_store::bytes_per_batch();
    if !spec.primary_key().is_empty() {
        let field = |at: &usize| spec.storage_schema().field(*at).data_type().clone();
        let types: Vec<_> = spec.primary_key().iter().map(field).collect();
        bytes += primary_key::bytes_estimate(rows, key_bytes(spec.primary_key()), &types);
    }
    for index in spec.indexes() {
        match index.spec.kind() {
            IndexKind::Btree => bytes += btree::bytes_estimate(rows, key_bytes(&index.columns)),
        }
    }
    bytes
}

/// What a put is charged: its rows, and an upper bound of what indexing them holds. The same put
/// has the same charge live and in replay.
pub(crate) fn charge(spec: &ValidatedSpec, rows: &SequencedRows) -> u64 {
    rows.bytes + rows.batches.iter().map(|batch| index_bytes_estimate(spec, batch)).sum::<u64>()
}

impl MemtableWriter {
    /// Adds an index behind the others, for tests that look on or break it.
    #[cfg(test)]
    pub(crate) fn add_index(&mut self, index: Box<dyn IndexWriter>) {
        self.indexes.push(index);
    }

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

    /// How many rows it holds.
    pub(crate) fn rows(&self) -> u64 {
        self.end().offset_from(self.first())
    }

    /// Whether the next put, of such a [`charge`], belongs into a new memtable (F1): the one rule
    /// of sealing, for live writes and for replay. An empty memtable is never sealed.
    ///
    /// It goes by charges and not by what is held. Charges depend on the rows alone, so replay
    /// seals where the live shard did, whenever a merge in the background ends. And they are what
    /// the budget counts: a memtable that went by less would wait, not yet full, for puts that
    /// wait for the memory its freezing would release.
    pub(crate) fn is_full(&self, memtable_bytes_max: u64, next_bytes: u64) -> bool {
        let is_heavy = self.charged.saturating_add(next_bytes) > memtable_bytes_max;
        self.rows() > 0 && (is_heavy || self.rows() >= ROWS_MAX)
    }

    /// Stores the rows, then writes every index, here.
    pub(crate) fn apply(&mut self, rows: &SequencedRows) -> Result<(), Failure> {
        self.store(rows)?;
        self.indexes.iter_mut().try_for_each(|index| apply_or_say(index.as_mut(), rows)).map_err(apply_failed)
    }

    /// Stores the rows, then writes every index at once on the pool. The state is the same as
    /// [`MemtableWriter::apply`] leaves (X3).
    pub(crate) fn apply_parallel(&mut self, rows: &SequencedRows, pool: &dyn CpuPool) -> Result<(), Failure> {
        self.store(rows)?;
        let mut outcomes: Vec<Result<(), IndexError>> = vec![Ok(()); self.indexes.len()];
        let jobs = self
            .indexes
            .iter_mut()
            .zip(&mut outcomes)
            .map(|(index, outcome)| Box::new(move || *outcome = apply_or_say(index.as_mut(), rows)) as Job<'_>);
        pool.run_all(jobs.collect());
        outcomes.into_iter().collect::<Result<(), IndexError>>().map_err(apply_failed)
    }

    fn store(&mut self, rows: &SequencedRows) -> Result<(), Failure> {
        if rows.range.first() != self.end() {
            let detail = format!("rows {} came to a memtable that ends at {}", rows.range, self.end());
            return Err(Failure::Invariant { id: S1, detail });
        }
        self.rows.append(rows).map_err(|reason| Failure::Apply { detail: reason.to_owned() })?;
        self.charged += charge(&self.spec, rows);
        if self.end() != rows.range.end() {
            let detail = format!("rows {} hold {} rows", rows.range, self.end().offset_from(rows.range.first()));
            return Err(Failure::Invariant { id: S1, detail });
        }
        Ok(())
    }
}

/// Names the index and the rows of a panic too. An index that it leaves half-written is not used
/// again: the failure ends the shard (X2). On the pool it would take a thread, or the process, with it.
fn apply_or_say(index: &mut dyn IndexWriter, rows: &SequencedRows) -> Result<(), IndexError> {
    let applied = catch_unwind(AssertUnwindSafe(|| apply_batches(index, rows)));
    applied.unwrap_or_else(|payload| {
        let reason = format!("it panicked: {}", panic_text(payload.as_ref()));
        Err(IndexError::new(index.name(), rows.range.first(), reason))
    })
}

fn apply_batches(index: &mut dyn IndexWriter, rows: &SequencedRows) -> Result<(), IndexError> {
    let mut first = rows.range.first();
    for batch in rows.batches.iter() {
        index.apply(first, batch)?;
        first = first.plus(batch.num_rows() as u64);
    }
    Ok(())
}

/// What a panic said, if it said it in words.
fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let literal = payload.downcast_ref::<&str>().copied();
    literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
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

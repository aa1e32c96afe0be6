//! The indexes of a memtable.
//!
//! Each is split in two. The *write half* cannot be cloned and lives in the IndexApplier. The
//! *read half* can, and answers only below a watermark (a `Seq`): it never locks against the
//! writer, never shows a row at or above its watermark, and always shows those below. The safety
//! argument stands above each split.
//!
//! The contract, which `conformance.rs` tests for every index:
//!
//! - `apply` is called with the batches of the shard in `Seq` order, without gaps.
//! - The shard's watermark rises past a row only after every index has applied it (V2).
//! - An index that fails, or panics, ends the shard; opening it again rebuilds the index (X2).

use std::fmt;

use arrow_array::RecordBatch;

use crate::ids::Seq;

pub(crate) mod btree;
#[cfg(test)]
mod conformance;
pub(crate) mod key;
pub(crate) mod ordered;
pub(crate) mod primary_key;

/// The write half of an index.
pub(crate) trait IndexWriter: Send {
    /// Its name, for errors.
    fn name(&self) -> &str;

    /// Takes in the rows of a batch in storage form, of which the first is `first`.
    fn apply(&mut self, first: Seq, batch: &RecordBatch) -> Result<(), IndexError>;

    /// What it holds in memory.
    fn bytes(&self) -> u64;
}

/// Rows an index could not take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IndexError {
    index: String,
    first: Seq,
    reason: String,
}

impl IndexError {
    pub(crate) fn new(index: &str, first: Seq, reason: String) -> Self {
        IndexError { index: index.to_owned(), first, reason }
    }
}

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let IndexError { index, first, reason } = self;
        write!(f, "{index}, at the rows from {first} on: {reason}")
    }
}

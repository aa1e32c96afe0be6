//! What the IndexApplier is told.

use actix::Message;

use crate::admission::Permit;
use crate::error::Failure;
use crate::memtable::MemtableWriter;
use crate::rows::SequencedRows;

/// Store these rows and index them.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Apply {
    pub(crate) rows: SequencedRows,
    /// The memory reserved for them. It stays with the memtable.
    pub(crate) permit: Permit,
}

/// The CPU pool has applied a put that was too large for the actor's thread.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct ApplyFinished {
    /// The memtable's write half, on its way back, or why there is none.
    pub(crate) outcome: Result<MemtableWriter, Failure>,
}

/// Seal the memtable behind everything applied and on its way, if it holds rows.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Seal;

/// Everything sequenced is in the log and on its way here: apply it, then end the shard's life.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct DrainApplied;

//! What the Freezer is told.

use std::sync::Arc;

use actix::Message;

use crate::admission::Permit;
use crate::error::Result;
use crate::generations::{Generation, GenerationMeta, Sealed};
use crate::ids::Seq;
use crate::wal::ledger::LoggedEntry;
use crate::wal::manifest::ManifestAnswer;

/// Write this memtable out as a generation.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Freeze {
    pub(crate) sealed: Sealed,
    /// The memory of its rows. It is released once readers have the generation.
    pub(crate) permit: Permit,
}

/// The log has one more entry.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct EntryWritten(pub(crate) LoggedEntry);

/// An attempt to build a generation has come to an end.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct BuildFinished {
    /// The first row of its memtable.
    pub(crate) first: Seq,
    /// What became of it; `None` if the thread that built it ended without saying.
    pub(crate) outcome: Option<Result<Built>>,
}

/// A generation that is in the store, whole, and in no manifest.
pub(crate) struct Built {
    pub(crate) meta: GenerationMeta,
    pub(crate) generation: Arc<Generation>,
}

/// An attempt to commit the oldest generation has come to an end.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct CommitFinished {
    pub(crate) first: Seq,
    /// What became of it; `None` if the task that committed ended without saying.
    pub(crate) outcome: Option<Result<ManifestAnswer>>,
}

/// The pause after a failed attempt is over.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct RetryDue {
    pub(crate) first: Seq,
}

/// Every row is in a sealed memtable, and those are on their way here: freeze them, then end the
/// shard's life.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct DrainFrozen;

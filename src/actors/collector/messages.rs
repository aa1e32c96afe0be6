//! What the Collector is told.

use std::collections::BTreeSet;

use actix::Message;

use crate::ids::{EntryPosition, Epoch, ManifestVersion};

/// These entries of the log, oldest first, lie wholly in committed generations.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct CollectLog {
    pub(crate) entries: Vec<EntryPosition>,
}

/// Look for files of generations that no manifest will ever name.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct Sweep {
    /// This writer's epoch. What a newer one writes is not ours to judge.
    pub(crate) epoch: Epoch,
    /// The folders that are committed or being built.
    pub(crate) kept: BTreeSet<String>,
    /// The newest manifest: its age is the measure of age.
    pub(crate) newest: ManifestVersion,
}

/// A round of deletions has come to an end.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub(crate) struct RoundFinished {
    /// The entries deleted, from the oldest on.
    pub(crate) deleted: usize,
    /// Whether the store refused one.
    pub(crate) failed: bool,
}

//! The write-ahead log and the shard manifest: everything a shard keeps under its name
//! beside its generations.
//!
//! - [`layout`]: what objects are called. Foreign names are ignored.
//! - [`store`]: the store, with bounded and logged retries.
//! - [`entry`]: the only file that knows the bytes of a log entry.
//! - [`read`]: one entry read until its verdict is settled.
//! - [`append`]: one entry written at its position, or the reason it was not.
//! - [`manifest`]: the shard manifest and its versions.
//! - [`ledger`]: which entries the log has, and which of them a commit releases.
//! - [`fence`]: claiming an epoch, and the sentinel that shuts out its predecessors.
//! - [`replay`]: reading the log back.
//!
//! # Why one sentinel fences
//!
//! No name is ever reused, a sentinel is never deleted, and a writer appends one entry at a time.
//! So the next entry of a stalled predecessor can only go where its successor put the sentinel:
//! it collides, reads a higher epoch, and is fenced, however long it slept (E1). This needs a
//! store whose create-if-absent is atomic and whose objects appear whole. What a crash of the
//! store's own machine may leave behind, a torn object, is dealt with in [`append`].
pub(crate) mod append;
pub(crate) mod entry;
pub(crate) mod fence;
pub(crate) mod layout;
pub(crate) mod ledger;
pub(crate) mod manifest;
pub(crate) mod read;
pub(crate) mod replay;
pub(crate) mod store;

#[cfg(test)]
pub(crate) mod testing;

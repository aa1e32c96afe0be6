//! The actors of a shard, and how they are wired.
//!
//! ```text
//!                        callers (addresses, or the Engine handle over them)
//!                           |                                 |
//!                Append     |                                 |  TakeSnapshot, Get, RunScan
//!                           v                                 v
//!                  +--------+---------+              +--------+---------+
//!                  |   WalAppender    |              |      Reader      |
//!                  | next Seq, entry, |              |  the view, the   |
//!                  | write in flight  |              |  query gate      |
//!                  +---+----------+---+              +--------^---------+
//!           Apply (at  |          | durable                  | snapshots read the cursors
//!           once, in   |          v                          |
//!           Seq order) |      [ cursors ] -------------------+
//!                      v          ^
//!                  +---+----------+---+              +------------------+
//!                  |   IndexApplier   |              |      Herald      |
//!                  | active memtable  |              | subscribers      |
//!                  +------------------+              +------------------+
//! ```
//!
//! Data goes down, facts go up, and nobody awaits another actor inside a handler. A handler is
//! one synchronous step: take the message, ask the pure core, carry out the effects. I/O runs
//! outside and comes back as a message.
//!
//! | from | message | to | why it may be lost |
//! |---|---|---|---|
//! | callers | [`wal_appender::Append`] | WalAppender | never: its answer then says why |
//! | WalAppender | `Apply` | IndexApplier | never: a closed mailbox is the shard's failure |
//! | I/O task | `PutFinished` | WalAppender | after the shard's end |
//! | CPU pool | `ApplyFinished` | IndexApplier | after the shard's end |
//! | Engine | `Drain`, then `DrainApplied` | WalAppender, then IndexApplier | after the shard's end |
//! | callers | [`wal_appender::Flush`], then `Seal` | WalAppender, then IndexApplier | never: the asker sees it |
//! | IndexApplier | `Freeze` | Freezer | never: a closed mailbox is the shard's failure |
//! | WalAppender | `EntryWritten` | Freezer | never: as above |
//! | build and commit tasks, timers | `BuildFinished`, `CommitFinished`, `RetryDue` | Freezer | after the shard's end |
//! | Freezer | `GenerationCommitted` | Reader | never: a closed mailbox is the shard's failure |
//! | Freezer | `CollectLog`, `Sweep` | Collector | after the shard's end: the next open finds what is left |
//! | IndexApplier | `DrainFrozen` | Freezer | after the shard's end |
//! | Herald | `Terminate` | all | the receiver has stopped already |
//! | callers | [`reader::TakeSnapshot`], [`reader::Get`], [`reader::GetMany`], [`reader::RunScan`] | Reader | never: the asker sees it |
//! | callers | [`herald::Subscribe`] | Herald | never: the asker sees it |
//! | Herald | [`herald::ShardEvent`] | subscribers | the subscriber has stopped |

pub(crate) mod bootstrap;
pub(crate) mod collector;
pub(crate) mod edge;
pub(crate) mod freezer;
pub mod herald;
pub(crate) mod host;
pub(crate) mod index_applier;
pub(crate) mod lifecycle;
pub mod reader;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod topology;
pub mod wal_appender;

pub use self::lifecycle::ShardState;

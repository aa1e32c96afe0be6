//! `tidewal`: Arrow record batches made durable in a write-ahead log on an object store and
//! searchable at once.
// Test support is shared with the integration tests, which know the crate by its name.
#[cfg(test)]
extern crate self as tidewal;

pub mod actors;
mod components;
mod config;
mod cursors;
mod error;
mod ids;
mod indexes;
mod invariants;
mod memtable;
mod query;
mod rows;
mod spec;
mod value;
mod wal;

pub use components::InlinePool;
pub use config::{BoxFuture, Clock, Components, CpuPool, Entropy, Job, Settings};
pub use cursors::{Cursors, ReadLevel};
pub use error::{Error, Failure, Operation, Result};
pub use ids::{EntryPosition, Epoch, ManifestVersion, Nonce, Seq, SeqRange};
pub use spec::{IndexKind, IndexSpec, TableSpec, ValidatedSpec};
pub use value::{Key, Value};

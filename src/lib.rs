//! `tidewal`: Arrow record batches made durable in a write-ahead log on an object store and
//! searchable at once.
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
pub use query::{Expr, col, lit};
pub use ids::{EntryPosition, Epoch, ManifestVersion, Nonce, Seq, SeqRange};
pub use spec::{IndexKind, IndexSpec, TableSpec, ValidatedSpec};
pub use value::{Key, Value};

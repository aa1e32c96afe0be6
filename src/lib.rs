//! `tidewal`: Arrow record batches made durable in a write-ahead log on an object store and
//! searchable at once.
// Test support is shared with the integration tests, which know the crate by its name.
#[cfg(test)]
extern crate self as tidewal;

pub mod actors;
mod admission;
mod coerce;
mod components;
mod config;
mod cursors;
mod engine;
mod error;
mod generations;
mod ids;
mod indexes;
mod invariants;
mod memtable;
mod query;
mod rows;
mod spec;
mod stats;
mod store_url;
mod value;
mod wal;

pub use admission::{Admission, Admitted};
pub use components::InlinePool;
pub use config::{BoxFuture, Clock, Components, CpuPool, Entropy, Job, Settings};
pub use cursors::{Cursors, ReadLevel};
pub use engine::{Addresses, Engine, EngineBuilder};
pub use error::{Error, Failure, Operation, Result};
pub use ids::{EntryPosition, Epoch, ManifestVersion, Nonce, Seq, SeqRange};
pub use query::{Expr, Lookup, Lookups, Order, Outcome, RowIter, RowStream, Scan, Snapshot, col, lit};
pub use spec::{IndexKind, IndexSpec, TableSpec, ValidatedSpec};
pub use stats::Stats;
pub use store_url::{Store, StoreKind};
pub use value::{Key, Value};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

//! What the Reader is asked.

use std::sync::Arc;

use actix::Message;

use crate::admission::Permit;
use crate::cursors::ReadLevel;
use crate::error::Result;
use crate::generations::Generation;
use crate::ids::Seq;
use crate::query::{Lookup, Lookups, RowStream, Scan, Snapshot};
use crate::value::Key;

/// Take a snapshot of what is visible now.
///
/// ```no_run
/// # async fn example(engine: tidewal::Engine) -> Result<(), Box<dyn std::error::Error>> {
/// use tidewal::actors::reader::TakeSnapshot;
///
/// let snapshot = engine.addresses().reader.send(TakeSnapshot::default()).await??;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, Message)]
#[rtype(result = "Result<Snapshot>")]
pub struct TakeSnapshot {
    /// What it shall see.
    pub level: ReadLevel,
    /// Take it as of this sequence number instead of the newest: it sees the rows below.
    pub as_of: Option<Seq>,
}

/// Look up one key in a new snapshot.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Lookup>")]
pub struct Get {
    /// The key.
    pub key: Key,
    /// What the snapshot shall see.
    pub level: ReadLevel,
}

impl Get {
    /// The key, as acknowledged writes left it.
    pub fn new(key: impl Into<Key>) -> Self {
        Get { key: key.into(), level: ReadLevel::Visible }
    }
}

/// Look up many keys in one new snapshot.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<Lookups>")]
pub struct GetMany {
    /// The keys; the answers keep their order.
    pub keys: Vec<Key>,
    /// What the snapshot shall see.
    pub level: ReadLevel,
}

/// Scan a new snapshot.
#[derive(Clone, Debug, Message)]
#[rtype(result = "Result<RowStream>")]
pub struct RunScan {
    /// Which rows and columns, and in what order.
    pub scan: Scan,
    /// What the snapshot shall see.
    pub level: ReadLevel,
}

/// These rows are in a committed generation: read them from there (G2).
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct GenerationCommitted {
    pub(crate) generation: Arc<Generation>,
    /// The memory of the memtable it takes the place of.
    pub(crate) permit: Permit,
}

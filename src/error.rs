//! Errors a caller can act on.
//!
//! There is one variant per thing a caller can do about it. Match on the variant, never on the
//! text; every error can be cloned and given to any number of waiters.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Epoch, Seq};

/// What this crate returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call was not carried out, by what the caller can do about it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The call is wrong; nothing was written. Fix the call.
    #[error("invalid input: {subject}: found {found}; expected {expected}")]
    InvalidInput {
        /// The column, index, setting or argument that is wrong.
        subject: String,
        /// What was there.
        found: String,
        /// What would do.
        expected: String,
    },
    /// The memory budget is full and did not drain in time; nothing was written. Try later.
    #[error(
        "backpressure: {bytes_wanted} bytes did not fit beside {bytes_held} of {bytes_max} bytes held, \
         and nothing was released for {waited:?}; nothing was written, try later or raise `unflushed_bytes_max`"
    )]
    Backpressure {
        /// What the put asked for.
        bytes_wanted: u64,
        /// What the shard holds.
        bytes_held: u64,
        /// The setting `unflushed_bytes_max`.
        bytes_max: u64,
        /// How long the put waited without seeing any progress.
        waited: Duration,
    },
    /// Another writer opened the shard; this one is finished. Open again only to take it back.
    #[error(
        "fenced: this writer has epoch {ours}, and epoch {by} has taken the shard over; open it again only to take it back"
    )]
    Fenced {
        /// The epoch this writer claimed.
        ours: Epoch,
        /// The epoch that owns the shard now.
        by: Epoch,
    },
    /// The shard failed and acknowledges and answers nothing more. Open it again.
    #[error("the shard has failed: {0}; open it again to recover")]
    Failed(Failure),
    /// An object of the shard does not hold what it should.
    #[error(
        "corrupt object `{object}`: found {found}; expected {expected}; nothing was changed: restore the object or open a copy of the shard without it"
    )]
    Corrupt {
        /// The object's name in the store.
        object: String,
        /// What was there.
        found: String,
        /// What should be there.
        expected: String,
    },
    /// The store refused an operation, or did not answer, after all its tries.
    #[error("{operation} `{object}` failed after {attempts} {}: {source}", if *attempts == 1 { "attempt" } else { "attempts" })]
    Io {
        /// What was attempted.
        operation: Operation,
        /// The object or folder it concerned.
        object: String,
        /// How many times it was tried.
        attempts: u32,
        /// What the store said last.
        source: Arc<dyn StdError + Send + Sync>,
    },
    /// A snapshot was asked for at a sequence number that is not held.
    #[error("no snapshot at {asked}: sequence numbers {oldest} to {newest} are held")]
    SeqNotHeld {
        /// What was asked for.
        asked: Seq,
        /// The oldest snapshot there is.
        oldest: Seq,
        /// The newest snapshot there is.
        newest: Seq,
    },
    /// A query could not be computed. It fails alone: nothing else is affected.
    #[error(
        "the query could not be computed: {detail}; ask for fewer or smaller rows, and report it if that does not help"
    )]
    Query {
        /// Where and why.
        detail: String,
    },
    /// The shard was closed by its owner.
    #[error("the shard is closed")]
    Closed,
}

impl Error {
    /// `subject: found ..; expected ..`.
    pub(crate) fn invalid(subject: impl Into<String>, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Error::InvalidInput { subject: subject.into(), found: found.into(), expected: expected.into() }
    }

    /// An object that does not hold what it should.
    pub(crate) fn corrupt(object: impl fmt::Display, found: impl Into<String>, expected: impl Into<String>) -> Self {
        Error::Corrupt { object: object.to_string(), found: found.into(), expected: expected.into() }
    }

    /// A store operation that used up its attempts.
    pub(crate) fn io(
        operation: Operation,
        object: impl fmt::Display,
        attempts: u32,
        source: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Error::Io { operation, object: object.to_string(), attempts, source: Arc::new(source) }
    }
}

/// An operation on the store, as it is named to people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Operation {
    /// Turning a URL into a store.
    OpenStore,
    /// Listing the names below a folder.
    List,
    /// Reading a shard manifest.
    ReadManifest,
    /// Creating the next shard manifest.
    CreateManifest,
    /// Reading a log entry.
    ReadEntry,
    /// Creating a log entry.
    CreateEntry,
    /// Reading a part of a generation's file.
    ReadGeneration,
    /// Writing a file of a generation.
    WriteGeneration,
    /// Deleting what no reader needs.
    Delete,
    /// Starting the threads a shard runs on.
    StartThreads,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::OpenStore => "opening the store",
            Operation::List => "listing",
            Operation::ReadManifest => "reading the manifest",
            Operation::CreateManifest => "creating the manifest",
            Operation::ReadEntry => "reading the log entry",
            Operation::CreateEntry => "creating the log entry",
            Operation::ReadGeneration => "reading the generation file",
            Operation::WriteGeneration => "writing the generation file",
            Operation::Delete => "deleting",
            Operation::StartThreads => "starting the threads of",
        })
    }
}

/// The first thing that went wrong in a shard. It is kept with its type and shown by every call.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// A full memtable could not be written out, and the shard was being closed or cannot go on.
    Freeze(Arc<Error>),
    /// A log entry could not be made durable.
    Append(Arc<Error>),
    /// Rows could not be indexed.
    Apply {
        /// Where and why, naming index and row.
        detail: String,
    },
    /// An actor stopped without having been asked to.
    ActorDied {
        /// Its name.
        actor: &'static str,
        /// Whether it was unwinding from a panic.
        panicked: bool,
    },
    /// One of the numbered invariants did not hold.
    Invariant {
        /// Its id in `src/invariants.rs`.
        id: &'static str,
        /// What was seen.
        detail: String,
    },
    /// Another writer took the shard over.
    Fenced {
        /// The epoch this writer claimed.
        ours: Epoch,
        /// The epoch that owns the shard now.
        by: Epoch,
    },
}

impl Failure {
    /// The error every call answers with from now on.
    pub(crate) fn to_error(&self) -> Error {
        match self {
            Failure::Fenced { ours, by } => Error::Fenced { ours: *ours, by: *by },
            other => Error::Failed(other.clone()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Append(error) => write!(f, "the log could not be appended to: {error}"),
            Failure::Freeze(error) => write!(f, "rows in memory could not be written out: {error}"),
            Failure::Apply { detail } => write!(f, "rows could not be indexed: {detail}"),
            Failure::ActorDied { actor, panicked: true } => write!(f, "the actor {actor} panicked"),
            Failure::ActorDied { actor, panicked: false } => write!(f, "the actor {actor} stopped unasked"),
            Failure::Invariant { id, detail } => write!(f, "the invariant {id} does not hold: {detail}"),
            Failure::Fenced { ours, by } => write!(f, "epoch {by} has taken the shard over from epoch {ours}"),
        }
    }
}

impl From<arrow_schema::ArrowError> for Failure {
    fn from(error: arrow_schema::ArrowError) -> Self {
        Failure::Apply { detail: error.to_string() }
    }
}

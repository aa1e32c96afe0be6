//! What a shard has done and holds, as numbers. They are counted where things happen and read
//! without asking any actor, so they answer after a failure too (Z3).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::ids::{Epoch, Seq};

/// The counting half: one word each, added to by the part of the engine that does the thing.
///
/// `Relaxed` throughout: each counter stands for itself, and no decision rests on one.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) puts: AtomicU64,
    pub(crate) rows_put: AtomicU64,
    pub(crate) puts_waited: AtomicU64,
    pub(crate) put_wait_nanos: AtomicU64,
    pub(crate) puts_refused: AtomicU64,
    /// Gauge: puts that have their `Seq` and are not in a finished log entry.
    pub(crate) puts_unlogged: AtomicU64,
    pub(crate) entries_written: AtomicU64,
    pub(crate) entry_bytes: AtomicU64,
    pub(crate) append_nanos: AtomicU64,
    pub(crate) applies: AtomicU64,
    pub(crate) applies_parallel: AtomicU64,
    pub(crate) rows_applied: AtomicU64,
    pub(crate) apply_nanos: AtomicU64,
    /// Gauge: puts that wait for the index apply before them.
    pub(crate) applies_queued: AtomicU64,
    pub(crate) index_bytes: AtomicU64,
    pub(crate) row_bytes: AtomicU64,
    pub(crate) snapshots: AtomicU64,
    pub(crate) lookups: AtomicU64,
    pub(crate) scans: AtomicU64,
    pub(crate) rows_replayed: AtomicU64,
    pub(crate) entries_replayed: AtomicU64,
    pub(crate) replay_nanos: AtomicU64,
    /// Gauge: memtables that are sealed and not yet in a committed generation.
    pub(crate) memtables_sealed: AtomicU64,
    /// Gauge: generations in the manifest.
    pub(crate) generations: AtomicU64,
    pub(crate) generations_committed: AtomicU64,
    pub(crate) generation_bytes: AtomicU64,
    pub(crate) freeze_nanos: AtomicU64,
    pub(crate) freeze_retries: AtomicU64,
    /// Gauge: entries of the log that hold rows no generation has.
    pub(crate) log_entries_held: AtomicU64,
    /// Gauge: released entries not deleted yet.
    pub(crate) log_garbage: AtomicU64,
    pub(crate) entries_deleted: AtomicU64,
    pub(crate) orphans_deleted: AtomicU64,
}

impl Counters {
    /// Adds to a counter.
    pub(crate) fn add(counter: &AtomicU64, amount: u64) {
        counter.fetch_add(amount, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub(crate) fn set(gauge: &AtomicU64, value: u64) {
        gauge.store(value, Ordering::Relaxed);
    }

    /// Reads either.
    pub(crate) fn get(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// What a shard has done since it was opened, and holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// The epoch this opening claimed.
    pub epoch: Epoch,
    /// Exclusive end of the rows in the log.
    pub durable: Seq,
    /// Exclusive end of the rows in every index.
    pub indexed: Seq,
    /// Exclusive end of the rows readers see.
    pub visible: Seq,
    /// Bytes of the memory budget that are reserved.
    pub bytes_held: u64,
    /// The budget: `unflushed_bytes_max`.
    pub bytes_max: u64,
    /// Bytes of rows in the memtable.
    pub row_bytes: u64,
    /// Bytes of its indexes.
    pub index_bytes: u64,
    /// Puts and deletes that were given a `Seq`.
    pub puts: u64,
    /// Their rows.
    pub rows_put: u64,
    /// Puts that had to wait for memory.
    pub puts_waited: u64,
    /// How long they waited, together.
    pub put_wait: Duration,
    /// Puts refused for want of memory.
    pub puts_refused: u64,
    /// Puts that have a `Seq` and are not in the log yet.
    pub puts_unlogged: u64,
    /// Log entries written.
    pub entries_written: u64,
    /// Their bytes.
    pub entry_bytes: u64,
    /// The time from the start of each log write to its answer, together.
    pub append_time: Duration,
    /// Log writes that were tried again.
    pub append_retries: u64,
    /// Log writes whose outcome had to be read back.
    pub appends_resolved: u64,
    /// Puts applied to the indexes.
    pub applies: u64,
    /// Those of them whose indexes were written in parallel.
    pub applies_parallel: u64,
    /// Rows applied.
    pub rows_applied: u64,
    /// The time that took.
    pub apply_time: Duration,
    /// Puts that wait for the index apply before them.
    pub applies_queued: u64,
    /// Snapshots taken.
    pub snapshots: u64,
    /// Keys looked up through the Reader.
    pub lookups: u64,
    /// Scans begun through the Reader.
    pub scans: u64,
    /// Exclusive end of the rows in generations.
    pub flushed: Seq,
    /// Generations of the shard.
    pub generations: u64,
    /// Generations committed since the open.
    pub generations_committed: u64,
    /// The bytes of their files.
    pub generation_bytes: u64,
    /// The time from the start of each build to its commit, together.
    pub freeze_time: Duration,
    /// Attempts to build or commit one that failed and were tried again.
    pub freeze_retries: u64,
    /// Memtables that are sealed and not yet in a committed generation.
    pub memtables_sealed: u64,
    /// Entries of the log that hold rows no generation has.
    pub log_entries_held: u64,
    /// Entries of the log that are released and not deleted yet.
    pub log_garbage: u64,
    /// Log entries deleted.
    pub entries_deleted: u64,
    /// Files deleted that failed attempts had left behind.
    pub orphans_deleted: u64,
    /// Bytes of generations in the cache.
    pub cache_bytes: u64,
    /// Requests to the store for parts of generations.
    pub generation_reads: u64,
    /// Their bytes.
    pub generation_bytes_read: u64,
    /// Zones of generations that filters left unread.
    pub zones_pruned: u64,
    /// Columns of generations whose statistics are missing or unusable, so that no filter on them prunes.
    pub seeds_unusable: u64,
    /// Indexes of generations that could not be read and were built again from the rows.
    pub sections_rebuilt: u64,
    /// Log entries replayed by the open.
    pub entries_replayed: u64,
    /// Their rows.
    pub rows_replayed: u64,
    /// How long replay took.
    pub replay_time: Duration,
    /// The object at the end of the log that a crash left incomplete, if the open found one. It
    /// was never acknowledged, unless the store lost bytes it had reported as stored.
    pub torn_tail: Option<String>,
}

//! How a shard behaves ([`Settings`], plain values) and what it is given to work with
//! ([`Components`]: store, clock, randomness, CPU pool).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Result};

/// Plain values; [`Settings::validate`] checks each and their relations (O4).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Whether a put is acknowledged, and seen by readers, only once it is in the log.
    ///
    /// Default `true`. Read by the cursors. With `false` a put is acknowledged when it is
    /// indexed, and a crash loses what the log had not reached yet.
    pub durable_writes: bool,
    /// The least time between the starts of two log writes.
    ///
    /// Default `None`: zero on local and in-memory stores, 100 ms on remote ones. Read by the
    /// WalAppender. Too small costs requests on a store that bills them; too large delays every
    /// durable acknowledgement by up to as much.
    pub wal_flush_interval: Option<Duration>,
    /// How many bytes of rows one log entry gathers. One put is never split, so an entry with a
    /// larger put is as large as that.
    ///
    /// Default 8 MiB. Read by the WalAppender. Too small spends the time of a write on few rows;
    /// too large holds the encoded entry in memory beside the rows, and delays the first row of it.
    pub wal_entry_bytes_max: u64,
    /// How often one store operation is tried before the shard gives up on it.
    ///
    /// Default 5. Read by the log and the manifest. Too small fails a shard over a hiccup; too
    /// large lets waiters wait through an outage.
    pub store_attempts_max: u32,
    /// The pause before the second attempt; it doubles with each further one, up to 5 s.
    ///
    /// Default 50 ms. Read by the log and the manifest.
    pub store_retry_delay: Duration,
    /// The bytes of rows and indexes at which a memtable is full.
    ///
    /// Default 256 MiB. Read by the seal rule.
    pub memtable_bytes_max: u64,
    /// The bytes of rows and indexes a shard holds in memory before puts wait. At least twice
    /// `memtable_bytes_max`, so that one memtable fills while another is written out. A single
    /// put may take half of it.
    ///
    /// Default 1 GiB. Read by the admission of puts. Too small makes writers wait; too large
    /// is memory another part of the process may need.
    pub unflushed_bytes_max: u64,
    /// How long a put waits for memory while none is being released.
    ///
    /// Default 10 s. Read by the admission of puts.
    pub backpressure_timeout: Duration,
    /// The rows of a put above which its indexes are written in parallel on the CPU pool.
    ///
    /// Default 1024. Read by the IndexApplier. Too small pays a thread hop for less work than
    /// the hop; too large keeps the log's arbiter from its other messages.
    pub inline_apply_rows_max: u64,
    /// How many queries run at once; more wait their turn.
    ///
    /// Default 64. Read by the Reader.
    pub queries_max: usize,
    /// The bytes of generations kept in memory once read: parts of rows, indexes and filters.
    ///
    /// Default 256 MiB. Read by the reads of generations. Too small reads the same parts from the
    /// store again; too large is memory another part of the process may need.
    pub cache_bytes_max: u64,
    /// How many log entries an open reads ahead of the one it applies.
    ///
    /// Default 4. Read by replay. Each holds up to an entry's bytes in memory.
    pub replay_prefetch: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            durable_writes: true,
            wal_flush_interval: None,
            wal_entry_bytes_max: 8 << 20,
            store_attempts_max: 5,
            store_retry_delay: Duration::from_millis(50),
            memtable_bytes_max: 256 << 20,
            unflushed_bytes_max: 1 << 30,
            backpressure_timeout: Duration::from_secs(10),
            inline_apply_rows_max: 1024,
            queries_max: 64,
            cache_bytes_max: 256 << 20,
            replay_prefetch: 4,
        }
    }
}

/// The longest a durable put may be held back on purpose. A larger interval would look like a
/// shard that has stopped acknowledging.
const WAL_FLUSH_INTERVAL_LIMIT: Duration = Duration::from_secs(60 * 60);

impl Settings {
    /// Checks every value and the relations between them.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that names the setting, what it is, and what would do.
    pub fn validate(&self) -> Result<()> {
        let at_least_one: [(&str, u64); 8] = [
            ("wal_entry_bytes_max", self.wal_entry_bytes_max),
            ("store_attempts_max", self.store_attempts_max.into()),
            ("memtable_bytes_max", self.memtable_bytes_max),
            ("unflushed_bytes_max", self.unflushed_bytes_max),
            ("backpressure_timeout", u64::from(!self.backpressure_timeout.is_zero())),
            ("queries_max", self.queries_max as u64),
            ("replay_prefetch", self.replay_prefetch as u64),
            ("store_retry_delay", u64::from(!self.store_retry_delay.is_zero())),
        ];
        for (name, value) in at_least_one {
            if value == 0 {
                return Err(Error::invalid(format!("setting `{name}`"), "0", "a value above 0"));
            }
        }
        if self.unflushed_bytes_max / 2 < self.memtable_bytes_max {
            return Err(Error::invalid(
                "setting `unflushed_bytes_max`",
                self.unflushed_bytes_max.to_string(),
                format!("at least twice `memtable_bytes_max` ({})", self.memtable_bytes_max),
            ));
        }
        // In durable mode a put must become durable without another put arriving. The log is
        // written as soon as the interval allows, so only an endless interval can prevent it.
        if self.wal_flush_interval.is_some_and(|interval| interval > WAL_FLUSH_INTERVAL_LIMIT) {
            return Err(Error::invalid(
                "setting `wal_flush_interval`",
                format!("{:?}", self.wal_flush_interval.unwrap_or_default()),
                format!("at most {WAL_FLUSH_INTERVAL_LIMIT:?}: a durable put is acknowledged only after it"),
            ));
        }
        Ok(())
    }
}

/// A future that owns everything it needs.
pub type BoxFuture<T> = std::pin::Pin<Box<dyn Future<Output = T> + Send>>;

/// Time, as the engine reads it and waits for it.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time since some fixed moment. It never goes backwards.
    fn now(&self) -> Duration;
    /// Resolves once `duration` has passed.
    fn sleep(&self, duration: Duration) -> BoxFuture<()>;
}

/// Random numbers, as the engine draws them: one nonce per opening.
pub trait Entropy: fmt::Debug + Send + Sync + 'static {
    /// 128 random bits.
    fn draw(&self) -> u128;
}

/// Work of one index or one query.
pub type Job<'scope> = Box<dyn FnOnce() + Send + 'scope>;

/// Where work that takes more than a moment runs, off the actors' threads.
pub trait CpuPool: fmt::Debug + Send + Sync + 'static {
    /// Runs the job some time later.
    fn spawn(&self, job: Job<'static>);
    /// Runs all jobs, in any order and at once where it can, and returns when all are done.
    fn run_all(&self, jobs: Vec<Job<'_>>);
}

/// What a shard works with besides its store. Tests give it their own.
#[derive(Clone, Debug)]
pub struct Components {
    /// Time; the machine's by default.
    pub clock: Arc<dyn Clock>,
    /// Randomness; the machine's by default.
    pub entropy: Arc<dyn Entropy>,
    /// Threads for work; one per core by default.
    pub cpu_pool: Arc<dyn CpuPool>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(change: impl FnOnce(&mut Settings)) -> String {
        let mut settings = Settings::default();
        change(&mut settings);
        settings.validate().expect_err("the setting is wrong").to_string()
    }

    #[test]
    fn o4_the_defaults_are_valid() {
        assert!(Settings::default().validate().is_ok());
    }

    #[test]
    fn o4_a_budget_below_two_memtables_is_refused_with_both_figures() {
        let text = refusal(|settings| settings.unflushed_bytes_max = 300 << 20);
        assert!(
            text.contains("unflushed_bytes_max") && text.contains("268435456") && text.contains("314572800"),
            "{text}"
        );
    }

    #[test]
    fn o4_zeros_are_refused_by_name() {
        assert!(refusal(|settings| settings.memtable_bytes_max = 0).contains("`memtable_bytes_max`"));
        assert!(refusal(|settings| settings.wal_entry_bytes_max = 0).contains("`wal_entry_bytes_max`"));
        assert!(refusal(|settings| settings.store_attempts_max = 0).contains("`store_attempts_max`"));
        assert!(refusal(|settings| settings.store_retry_delay = Duration::ZERO).contains("`store_retry_delay`"));
        assert!(refusal(|settings| settings.backpressure_timeout = Duration::ZERO).contains("`backpressure_timeout`"));
        assert!(refusal(|settings| settings.queries_max = 0).contains("`queries_max`"));
        assert!(refusal(|settings| settings.replay_prefetch = 0).contains("`replay_prefetch`"));
    }

    #[test]
    fn o4_an_interval_that_never_ends_is_refused() {
        let text = refusal(|settings| settings.wal_flush_interval = Some(Duration::MAX));
        assert!(text.contains("`wal_flush_interval`"), "{text}");
    }
}

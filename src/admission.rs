//! Who may put: rows are checked, and their bytes reserved from the shard's memory budget,
//! before anything is sent to an actor.
//!
//! actix mailboxes bound nothing, so permits do (B1). A [`Permit`] travels with its rows and is
//! dropped when they leave memory, or when the put is refused.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use futures::future::{Either, select};
use tokio::runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::actors::lifecycle::{ShardState, Status};
use crate::config::{Clock, Settings};
use crate::error::{Error, Result};
use crate::memtable::index_bytes_estimate;
use crate::rows::CheckedRows;
use crate::spec::ValidatedSpec;
use crate::stats::Counters;

/// What one semaphore permit stands for. `tokio` counts a request in `u32`, so with this unit one
/// put may reserve up to 256 GiB.
const UNIT_BYTES: u64 = 64;

/// What a put costs beside its rows and index entries: its place in the queues and its message.
const PUT_BYTES: u64 = 512;

/// The memory budget of one shard.
#[derive(Debug)]
pub(crate) struct Budget {
    units: Arc<Semaphore>,
    bytes_max: u64,
    held: AtomicU64,
    /// Counts releases, so that a waiting put can tell progress from standstill.
    releases: AtomicU64,
}

impl Budget {
    pub(crate) fn new(bytes_max: u64) -> Arc<Self> {
        let units = usize::try_from(bytes_max / UNIT_BYTES).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        Arc::new(Budget {
            units: Arc::new(Semaphore::new(units)),
            bytes_max,
            held: AtomicU64::new(0),
            releases: AtomicU64::new(0),
        })
    }

    /// The bytes reserved now.
    pub(crate) fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Reserves what recovered rows hold. They are in memory whatever the budget says, so this
    /// never waits: where they exceed the budget, it takes all there is and puts wait.
    pub(crate) fn charge_recovered(self: &Arc<Self>, bytes: u64) -> Permit {
        let wanted = units(bytes) as usize;
        let taken = u32::try_from(wanted.min(self.units.available_permits())).unwrap_or(u32::MAX);
        let permits = Arc::clone(&self.units).try_acquire_many_owned(taken).ok();
        self.permit(bytes, permits)
    }

    fn permit(self: &Arc<Self>, bytes: u64, permits: Option<OwnedSemaphorePermit>) -> Permit {
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let units = permits.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        // The permit gives them back by itself: the sum of many does not fit the semaphore's own.
        permits.into_iter().for_each(OwnedSemaphorePermit::forget);
        Permit { bytes, units, budget: Arc::clone(self) }
    }
}

fn units(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT_BYTES)).unwrap_or(u32::MAX)
}

/// Bytes reserved from the budget; dropping it releases them.
#[derive(Debug)]
pub(crate) struct Permit {
    bytes: u64,
    units: usize,
    budget: Arc<Budget>,
}

impl Permit {
    /// Takes over what the other holds, so that a memtable carries one permit however many puts
    /// it took.
    pub(crate) fn absorb(&mut self, mut other: Permit) {
        self.bytes += std::mem::take(&mut other.bytes);
        self.units += std::mem::take(&mut other.units);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.held.fetch_sub(self.bytes, Ordering::Relaxed);
            self.budget.releases.fetch_add(1, Ordering::Relaxed);
        }
        self.budget.units.add_permits(self.units);
    }
}

/// Checks rows and reserves their bytes: what turns a batch into something the WalAppender takes.
///
/// Cloning is cheap. It works from any runtime.
#[derive(Clone, Debug)]
pub struct Admission {
    spec: Arc<ValidatedSpec>,
    budget: Arc<Budget>,
    timeout: Duration,
    clock: Arc<dyn Clock>,
    /// Whose timer measures the wait: the caller's runtime may have none, or not exist.
    io: runtime::Handle,
    status: Arc<Status>,
    counters: Arc<Counters>,
}

/// Checked rows with their memory reserved. Only [`Admission`] makes them, and an
/// [`Append`](crate::actors::wal_appender::Append) takes nothing else.
#[derive(Debug)]
pub struct Admitted {
    pub(crate) rows: CheckedRows,
    pub(crate) permit: Permit,
}

impl Admission {
    pub(crate) fn new(
        spec: Arc<ValidatedSpec>,
        budget: Arc<Budget>,
        settings: &Settings,
        clock: Arc<dyn Clock>,
        io: runtime::Handle,
        status: Arc<Status>,
        counters: Arc<Counters>,
    ) -> Self {
        Admission { spec, budget, timeout: settings.backpressure_timeout, clock, io, status, counters }
    }

    /// Checks the batches of one put against the schema, and waits for memory.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] (P1, P2), [`Error::Backpressure`] when no memory was released for
    /// `backpressure_timeout`, or why the shard takes no more puts.
    pub async fn put(&self, batches: Vec<RecordBatch>) -> Result<Admitted> {
        self.status.check_running()?;
        self.admit(self.spec.check_put(batches)?).await
    }

    /// Checks the keys of one delete (a batch of the primary-key columns), and waits for memory.
    ///
    /// # Errors
    /// As [`Admission::put`].
    pub async fn delete(&self, keys: &RecordBatch) -> Result<Admitted> {
        self.status.check_running()?;
        self.admit(self.spec.check_delete(keys)?).await
    }

    async fn admit(&self, rows: CheckedRows) -> Result<Admitted> {
        let indexes: u64 = rows.batches().iter().map(|batch| index_bytes_estimate(&self.spec, batch)).sum();
        let bytes = rows.bytes() + indexes + PUT_BYTES;
        let largest = self.budget.bytes_max / 2;
        if bytes > largest {
            return Err(Error::invalid(
                "the put",
                format!("{bytes} bytes of rows and index entries"),
                format!("at most {largest}, half of `unflushed_bytes_max`; split it into several puts"),
            ));
        }
        let permits = self.reserve(bytes).await?;
        Ok(Admitted { rows, permit: self.budget.permit(bytes, Some(permits)) })
    }

    async fn reserve(&self, bytes: u64) -> Result<OwnedSemaphorePermit> {
        if let Ok(permits) = Arc::clone(&self.budget.units).try_acquire_many_owned(units(bytes)) {
            return Ok(permits);
        }
        let started = self.clock.now();
        self.counters.puts_waited.fetch_add(1, Ordering::Relaxed);
        let reserved = self.wait_for_units(bytes).await;
        let waited = self.clock.now().saturating_sub(started);
        self.counters.put_wait_nanos.fetch_add(waited.as_nanos() as u64, Ordering::Relaxed);
        reserved
    }

    /// Keeps one place in the queue for as long as memory is being released by others. Dropping
    /// the future gives the place up (P10).
    async fn wait_for_units(&self, bytes: u64) -> Result<OwnedSemaphorePermit> {
        let mut acquire = pin!(Arc::clone(&self.budget.units).acquire_many_owned(units(bytes)));
        let mut state = self.status.subscribe();
        let mut stopped = pin!(state.wait_for(|state| !matches!(state, ShardState::Running)));
        loop {
            let releases = self.budget.releases.load(Ordering::Relaxed);
            // The runtime ends after the shard has, and `stopped` is looked at before the timer.
            let timer = {
                let _io = self.io.enter();
                self.clock.sleep(self.timeout)
            };
            match select(acquire.as_mut(), select(stopped.as_mut(), timer)).await {
                // A shard that fails lets go of its memory: room alone does not mean that it takes puts.
                Either::Left((permits, _)) => {
                    self.status.check_running()?;
                    return permits.map_err(|_| self.status.closed_reason());
                }
                Either::Right((Either::Left(_), _)) => return Err(self.status.closed_reason()),
                Either::Right((Either::Right(_), _)) if self.budget.releases.load(Ordering::Relaxed) != releases => {}
                Either::Right((Either::Right(_), _)) => {
                    self.counters.puts_refused.fetch_add(1, Ordering::Relaxed);
                    return Err(Error::Backpressure {
                        bytes_wanted: bytes,
                        bytes_held: self.budget.held(),
                        bytes_max: self.budget.bytes_max,
                        waited: self.timeout,
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

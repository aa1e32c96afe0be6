//! The store of one shard: bounded, logged, retried reads and lists, and single attempts to
//! create.
//!
//! Creating is a single attempt because what follows from its answer is not "again": an object
//! that exists may be ours. [`super::append`] and [`super::manifest`] decide that.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions};

use crate::config::Clock;
use crate::error::{Error, Operation, Result};

/// The longest pause between two attempts.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(5);

/// The store, below one shard's root, with the patience the settings give it.
#[derive(Clone, Debug)]
pub(crate) struct ShardStore {
    pub(crate) object_store: Arc<dyn ObjectStore>,
    pub(crate) root: Path,
    pub(crate) clock: Arc<dyn Clock>,
    /// How often one operation is tried; at least 1.
    pub(crate) attempts_max: u32,
    /// The pause before the second attempt; it doubles with each further one.
    pub(crate) retry_delay: Duration,
    pub(crate) stats: Arc<WalStats>,
}

/// What the log has done since the shard was opened.
///
/// Each counter stands alone and guards nothing, so `Relaxed` needs no pair.
#[derive(Debug, Default)]
pub(crate) struct WalStats {
    /// Entries whose writing was begun, one for each position tried.
    pub(crate) entry_puts_started: Counter,
    /// Further attempts to write an entry where one had failed.
    pub(crate) entry_puts_retried: Counter,
    /// Writes whose answer was lost or was "already exists", found to be done by reading back.
    pub(crate) ambiguous_outcomes_resolved: Counter,
    /// Positions found taken by an older epoch.
    pub(crate) positions_stepped_past: Counter,
    /// Bytes of entries known to be written.
    pub(crate) bytes_written: Counter,
    /// Objects read, of whatever kind.
    pub(crate) objects_read: Counter,
}

/// A count that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one attempt to create an object came to.
#[derive(Debug)]
pub(crate) enum CreateAnswer {
    /// The object is there and it is ours.
    Created,
    /// The store says that something is there. It may be ours (the answer to an earlier attempt,
    /// also one inside the store's client, was lost) or nothing at all: S3 answers two racing
    /// creates with 409, which arrives here although neither object may exist. The error of a
    /// refused create is `AlreadyExists` on most stores and `Precondition` on Azure.
    Conflict,
    /// Anything else. The object may be there all the same.
    Failed(object_store::Error),
}

impl ShardStore {
    /// The whole object, or `None` where there is none.
    pub(crate) async fn get(&self, path: &Path, operation: Operation) -> Result<Option<Bytes>> {
        let found = self.retried(operation, path, || self.get_once(path)).await?;
        self.stats.objects_read.add(u64::from(found.is_some()));
        Ok(found)
    }

    async fn get_once(&self, path: &Path) -> object_store::Result<Option<Bytes>> {
        match self.object_store.get(path).await {
            Ok(answer) => answer.bytes().await.map(Some),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Parts of an object that is there. The store may join neighbouring ranges.
    pub(crate) async fn get_ranges(
        &self,
        path: &Path,
        ranges: &[std::ops::Range<u64>],
        operation: Operation,
    ) -> Result<Vec<Bytes>> {
        self.retried(operation, path, || self.object_store.get_ranges(path, ranges)).await
    }

    /// The names below a folder, in no order. Stores may answer with what was true a moment ago:
    /// a list is a hint.
    pub(crate) async fn list(&self, folder: &Path) -> Result<Vec<Path>> {
        self.retried(Operation::List, folder, || self.list_once(folder)).await
    }

    async fn list_once(&self, folder: &Path) -> object_store::Result<Vec<Path>> {
        match self.object_store.list(Some(folder)).map_ok(|object| object.location).try_collect().await {
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            answer => answer,
        }
    }

    /// Deletes an object, if it is there.
    pub(crate) async fn delete(&self, path: &Path) -> Result<()> {
        self.retried(Operation::Delete, path, || self.delete_once(path)).await
    }

    async fn delete_once(&self, path: &Path) -> object_store::Result<()> {
        match self.object_store.delete(path).await {
            Err(object_store::Error::NotFound { .. }) => Ok(()),
            answer => answer,
        }
    }

    /// The names below a folder with the times they were written at, by the store's own clock.
    pub(crate) async fn list_dated(&self, folder: &Path) -> Result<Vec<(Path, i64)>> {
        self.retried(Operation::List, folder, || self.list_dated_once(folder)).await
    }

    async fn list_dated_once(&self, folder: &Path) -> object_store::Result<Vec<(Path, i64)>> {
        let dated = |object: object_store::ObjectMeta| (object.location, object.last_modified.timestamp());
        match self.object_store.list(Some(folder)).map_ok(dated).try_collect().await {
            Err(object_store::Error::NotFound { .. }) => Ok(Vec::new()),
            answer => answer,
        }
    }

    /// One attempt to create the object where none is.
    pub(crate) async fn create_once(&self, path: &Path, bytes: Bytes) -> CreateAnswer {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        match self.object_store.put_opts(path, bytes.into(), options).await {
            Ok(_) => CreateAnswer::Created,
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => {
                CreateAnswer::Conflict
            }
            Err(error) => CreateAnswer::Failed(error),
        }
    }

    /// Waits before the attempt after `attempt`, and says why.
    pub(crate) async fn pause(
        &self,
        operation: Operation,
        object: &Path,
        attempt: u32,
        why: &(dyn std::fmt::Display + Sync),
    ) {
        let delay = self.delay_after(attempt);
        tracing::warn!(%operation, %object, attempt, attempts_max = self.attempts_max, ?delay, error = %why,
            "store operation failed, trying again");
        self.clock.sleep(delay).await;
    }

    fn delay_after(&self, attempt: u32) -> Duration {
        let doubled = 2u32.saturating_pow(attempt.saturating_sub(1));
        self.retry_delay.saturating_mul(doubled).min(RETRY_DELAY_MAX)
    }

    async fn retried<T, F>(&self, operation: Operation, object: &Path, once: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = object_store::Result<T>>,
    {
        let mut attempt = 1;
        loop {
            let error = match once().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            if attempt >= self.attempts_max || !is_transient(&error) {
                return Err(Error::io(operation, object, attempt, error));
            }
            self.pause(operation, object, attempt, &error).await;
            attempt += 1;
        }
    }
}

/// Whether another attempt may do better. A store that says we may not, or that it cannot, will
/// say so again; everything else (timeouts, resets, server errors, a full disk) may pass.
pub(crate) fn is_transient(error: &object_store::Error) -> bool {
    !matches!(
        error,
        object_store::Error::InvalidPath { .. }
            | object_store::Error::NotSupported { .. }
            | object_store::Error::NotImplemented { .. }
            | object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. }
            | object_store::Error::UnknownConfigurationKey { .. }
    )
}

#[cfg(test)]
mod tests;

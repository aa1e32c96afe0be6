//! The Reader.
//!
//! *Owns* the current view (which memtables a query reads) and the admission of queries.
//!
//! *Does not own* any write half.
//!
//! *May stop because* the shard failed (it is stopped first, so that no read is served after);
//! it was told to.

mod as_of;
mod messages;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use actix::{Actor, ActorContext, Context, Handler};
use tokio::sync::{Semaphore, oneshot};

use self::as_of::Held;
pub use self::messages::{Get, GetMany, RunScan, TakeSnapshot};
use crate::actors::host::Host;
use crate::actors::lifecycle::{DeathGuard, Status, Terminate};
use crate::config::{CpuPool, Settings};
use crate::cursors::{Cursors, ReadLevel};
use crate::error::{Error, Result};
use crate::ids::Seq;
use crate::query::{Lookup, Lookups, Reading, RowStream, Snapshot, View};
use crate::spec::ValidatedSpec;
use crate::stats::Counters;

/// Keys looked up on the Reader's own thread; more go to the CPU pool. A lookup takes about a
/// microsecond and a hop to the pool and back about forty, and nothing that can take a
/// millisecond may stay.
const INLINE_KEYS_MAX: usize = 64;

/// Takes snapshots and begins queries.
pub struct Reader {
    guard: DeathGuard,
    status: Arc<Status>,
    cursors: Cursors,
    view: Arc<View>,
    reading: Reading,
    cpu_pool: Arc<dyn CpuPool>,
    counters: Arc<Counters>,
    // The threads outlive the actors that run on them.
    _host: Arc<Host>,
}

/// What a Reader is built from.
pub(crate) struct Parts {
    pub(crate) status: Arc<Status>,
    pub(crate) cursors: Cursors,
    pub(crate) view: View,
    pub(crate) spec: Arc<ValidatedSpec>,
    pub(crate) cpu_pool: Arc<dyn CpuPool>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) host: Arc<Host>,
}

impl Reader {
    pub(crate) fn new(parts: Parts, settings: &Settings) -> Self {
        let gate = Arc::new(Semaphore::new(settings.queries_max));
        Reader {
            guard: DeathGuard::armed("Reader", &parts.status),
            cursors: parts.cursors,
            view: Arc::new(parts.view),
            reading: Reading::new(parts.spec, Arc::clone(&parts.status), Arc::clone(&parts.cpu_pool), gate),
            status: parts.status,
            cpu_pool: parts.cpu_pool,
            counters: parts.counters,
            _host: parts.host,
        }
    }

    /// One view and one `Seq`, read in one step and kept (V4).
    fn snapshot(&self, level: ReadLevel, as_of: Option<Seq>) -> Result<Snapshot> {
        self.status.check_readable()?;
        let held = Held { oldest: self.view.oldest_snapshot(), newest: self.cursors.at(level) };
        let seq = held.resolve(as_of)?;
        Counters::add(&self.counters.snapshots, 1);
        Ok(Snapshot::new(Arc::clone(&self.view), seq, self.reading.clone()))
    }
}

impl Actor for Reader {
    type Context = Context<Self>;
}

impl Handler<TakeSnapshot> for Reader {
    type Result = Result<Snapshot>;

    fn handle(&mut self, TakeSnapshot { level, as_of }: TakeSnapshot, _: &mut Self::Context) -> Self::Result {
        self.snapshot(level, as_of)
    }
}

impl Handler<Get> for Reader {
    type Result = Result<Lookup>;

    fn handle(&mut self, Get { key, level }: Get, _: &mut Self::Context) -> Self::Result {
        let _span = tracing::debug_span!("get").entered();
        Counters::add(&self.counters.lookups, 1);
        self.snapshot(level, None)?.get(key)
    }
}

impl Handler<GetMany> for Reader {
    type Result = actix::ResponseFuture<Result<Lookups>>;

    fn handle(&mut self, GetMany { keys, level }: GetMany, _: &mut Self::Context) -> Self::Result {
        let _span = tracing::debug_span!("get_many", keys = keys.len()).entered();
        Counters::add(&self.counters.lookups, keys.len() as u64);
        let snapshot = self.snapshot(level, None);
        if keys.len() <= INLINE_KEYS_MAX {
            let answer = snapshot.and_then(|snapshot| snapshot.get_many(&keys));
            return Box::pin(std::future::ready(answer));
        }
        let (reply, answer) = oneshot::channel();
        self.cpu_pool.spawn(Box::new(move || {
            // Losing the answer is harmless: whoever asked has gone.
            let _ = reply.send(snapshot.and_then(|snapshot| snapshot.get_many(&keys)));
        }));
        let status = Arc::clone(&self.status);
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(query_panicked(&status))) })
    }
}

/// A query that panics fails alone: it holds nothing that others use.
fn query_panicked(status: &Status) -> Error {
    status.check_readable().err().unwrap_or_else(|| {
        Error::corrupt("rows in memory", "a panic while looking up keys", "rows of the stored schema")
    })
}

impl Handler<RunScan> for Reader {
    type Result = Result<RowStream>;

    fn handle(&mut self, RunScan { scan, level }: RunScan, _: &mut Self::Context) -> Self::Result {
        let _span = tracing::debug_span!("scan").entered();
        Counters::add(&self.counters.scans, 1);
        self.snapshot(level, None)?.scan(scan)
    }
}

impl Handler<Terminate> for Reader {
    type Result = ();

    fn handle(&mut self, _: Terminate, ctx: &mut Self::Context) {
        self.guard.disarm();
        ctx.stop();
    }
}

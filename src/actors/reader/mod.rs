//! The Reader.
//!
//! *Owns* the current view (which memtables and generations a query reads) and the admission of queries.
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
use std::sync::mpsc::Receiver;

use actix::{Actor, ActorContext, Context, Handler};
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};

use self::as_of::Held;
pub(crate) use self::messages::GenerationCommitted;
pub use self::messages::{Get, GetMany, RunScan, TakeSnapshot};
use crate::actors::host::Host;
use crate::actors::lifecycle::{DeathGuard, Status, Terminate};
use crate::config::{CpuPool, Settings};
use crate::cursors::{Cursors, ReadLevel};
use crate::error::{Error, Failure, Result};
use crate::ids::Seq;
use crate::invariants::G1;
use crate::memtable::MemtableReader;
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
    /// Memtables begun since the view was last looked at.
    opened: Receiver<MemtableReader>,
    io: runtime::Handle,
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
    pub(crate) opened: Receiver<MemtableReader>,
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
            opened: parts.opened,
            io: parts.host.io(),
            reading: Reading::new(
                parts.spec,
                Arc::clone(&parts.status),
                Arc::clone(&parts.cpu_pool),
                parts.host.io(),
                gate,
            ),
            status: parts.status,
            cpu_pool: parts.cpu_pool,
            counters: parts.counters,
            _host: parts.host,
        }
    }

    /// One view and one `Seq`, read in one step and kept (V4).
    fn snapshot(&mut self, level: ReadLevel, as_of: Option<Seq>) -> Result<Snapshot> {
        self.status.check_readable()?;
        // In this order: a memtable is announced before the cursor reaches a row of it.
        let newest = self.cursors.at(level);
        self.take_note_of_opened();
        let held = Held { oldest: self.view.oldest_snapshot(), newest };
        let seq = held.resolve(as_of)?;
        Counters::add(&self.counters.snapshots, 1);
        Ok(Snapshot::new(Arc::clone(&self.view), seq, self.reading.clone()))
    }

    fn take_note_of_opened(&mut self) {
        while let Ok(memtable) = self.opened.try_recv() {
            self.view = Arc::new(self.view.with_newer(Arc::new(memtable)));
        }
    }

    /// Answers from the CPU pool, or, where the store may have to be waited for, from a thread that
    /// may wait.
    fn answer_elsewhere<T: Send + 'static>(
        &self,
        may_wait: bool,
        query: impl FnOnce() -> Result<T> + Send + 'static,
    ) -> actix::ResponseFuture<Result<T>> {
        let (reply, answer) = oneshot::channel();
        let run = move || {
            // Losing the answer is harmless: whoever asked has gone.
            let _ = reply.send(query());
        };
        if may_wait {
            self.io.spawn_blocking(run);
        } else {
            self.cpu_pool.spawn(Box::new(run));
        }
        let status = Arc::clone(&self.status);
        Box::pin(async move { answer.await.unwrap_or_else(|_| Err(query_panicked(&status))) })
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
    type Result = actix::ResponseFuture<Result<Lookup>>;

    fn handle(&mut self, Get { key, level }: Get, _: &mut Self::Context) -> Self::Result {
        let _span = tracing::debug_span!("get").entered();
        Counters::add(&self.counters.lookups, 1);
        let snapshot = match self.snapshot(level, None) {
            Ok(snapshot) => snapshot,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        match snapshot.get_from_memory(&key) {
            Some(answer) => Box::pin(std::future::ready(answer)),
            None => self.answer_elsewhere(true, move || snapshot.get(key)),
        }
    }
}

impl Handler<GetMany> for Reader {
    type Result = actix::ResponseFuture<Result<Lookups>>;

    fn handle(&mut self, GetMany { keys, level }: GetMany, _: &mut Self::Context) -> Self::Result {
        let _span = tracing::debug_span!("get_many", keys = keys.len()).entered();
        Counters::add(&self.counters.lookups, keys.len() as u64);
        let snapshot = match self.snapshot(level, None) {
            Ok(snapshot) => snapshot,
            Err(error) => return Box::pin(std::future::ready(Err(error))),
        };
        let may_wait = !snapshot.is_in_memory();
        if keys.len() <= INLINE_KEYS_MAX && !may_wait {
            return Box::pin(std::future::ready(snapshot.get_many(&keys)));
        }
        self.answer_elsewhere(may_wait, move || snapshot.get_many(&keys))
    }
}

impl Handler<GenerationCommitted> for Reader {
    type Result = ();

    fn handle(&mut self, GenerationCommitted { generation, permit }: GenerationCommitted, ctx: &mut Self::Context) {
        self.take_note_of_opened();
        let Some((view, memtable)) = self.view.replacing(generation) else {
            let detail = "a generation takes the place of a memtable that no reader has".to_owned();
            self.status.fail(Failure::Invariant { id: G1, detail });
            return ctx.stop();
        };
        self.view = Arc::new(view);
        // Giving a memtable's memory back takes milliseconds. Its budget is free once that is done,
        // unless a snapshot still holds it.
        self.cpu_pool.spawn(Box::new(move || {
            drop(memtable);
            drop(permit);
        }));
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

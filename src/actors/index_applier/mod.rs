//! The IndexApplier.
//!
//! *Owns* the active memtable, the write half of every index, the decision to seal, and the cursor
//! `indexed`.
//!
//! *Does not own* durability, the store, or queries.
//!
//! *May stop because* an index refused a row, a panic, a hole in the ranges it was sent; it was
//! told to.

mod apply_queue;
mod messages;
#[cfg(test)]
mod tests;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler};

use self::apply_queue::{ApplyQueue, Step};
pub(crate) use self::messages::{Apply, ApplyFinished, DrainApplied, Seal};
use crate::actors::edge::Edge;
use crate::actors::freezer::{DrainFrozen, Freeze};
use crate::actors::host::Host;
use crate::actors::lifecycle::{DeathGuard, Status, Terminate};
use crate::admission::{Budget, Permit};
use crate::config::{Clock, CpuPool, Settings};
use crate::cursors::CursorOwner;
use crate::error::Failure;
use crate::generations::Sealed;
use crate::ids::{Seq, SeqRange};
use crate::memtable::{self, MemtableReader, MemtableWriter};
use crate::rows::SequencedRows;
use crate::spec::ValidatedSpec;
use crate::stats::Counters;

/// Puts rows into the memtable and its indexes, in order.
pub(crate) struct IndexApplier {
    // Declared before the cursor: the reason is latched before waiters wake (see lifecycle).
    guard: DeathGuard,
    status: Arc<Status>,
    indexed: CursorOwner,
    /// The active memtable; away while the CPU pool works on it.
    memtable: Option<MemtableWriter>,
    /// Its read half.
    reader: MemtableReader,
    /// The memory of the rows in it (B1).
    held: Permit,
    queue: ApplyQueue,
    /// Readers hear of a new memtable here, before the cursor can reach a row of it.
    opened: Sender<MemtableReader>,
    to_freezer: Edge<Freeze>,
    to_freezer_drain: Edge<DrainFrozen>,
    memtable_bytes_max: u64,
    spec: Arc<ValidatedSpec>,
    budget: Arc<Budget>,
    draining: bool,
    apply_started: Duration,
    cpu_pool: Arc<dyn CpuPool>,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    // The threads outlive the actors that run on them.
    _host: Arc<Host>,
}

/// What an IndexApplier is built from.
pub(crate) struct Parts {
    pub(crate) status: Arc<Status>,
    pub(crate) indexed: CursorOwner,
    pub(crate) memtable: MemtableWriter,
    pub(crate) reader: MemtableReader,
    pub(crate) held: Permit,
    pub(crate) opened: Sender<MemtableReader>,
    pub(crate) to_freezer: Edge<Freeze>,
    pub(crate) to_freezer_drain: Edge<DrainFrozen>,
    pub(crate) spec: Arc<ValidatedSpec>,
    pub(crate) budget: Arc<Budget>,
    pub(crate) cpu_pool: Arc<dyn CpuPool>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) host: Arc<Host>,
}

impl IndexApplier {
    pub(crate) fn new(parts: Parts, settings: &Settings) -> Self {
        IndexApplier {
            guard: DeathGuard::armed("IndexApplier", &parts.status),
            status: parts.status,
            indexed: parts.indexed,
            queue: ApplyQueue::new(parts.memtable.end(), settings.inline_apply_rows_max),
            memtable: Some(parts.memtable),
            reader: parts.reader,
            held: parts.held,
            opened: parts.opened,
            to_freezer: parts.to_freezer,
            to_freezer_drain: parts.to_freezer_drain,
            memtable_bytes_max: settings.memtable_bytes_max,
            spec: parts.spec,
            budget: parts.budget,
            draining: false,
            apply_started: Duration::ZERO,
            cpu_pool: parts.cpu_pool,
            clock: parts.clock,
            counters: parts.counters,
            _host: parts.host,
        }
    }

    /// Applies what can be applied now, sealing the memtable before a put that does not fit (F1).
    fn work(&mut self, ctx: &mut Context<Self>) {
        loop {
            let is_full = match (&self.memtable, self.queue.next_put()) {
                (Some(memtable), Some(next)) => {
                    memtable.is_full(self.memtable_bytes_max, memtable::charge(&self.spec, next))
                }
                _ => false,
            };
            if is_full && let Err(failure) = self.seal() {
                return self.fail(failure, ctx);
            }
            let step = self.queue.next_step();
            Counters::set(&self.counters.applies_queued, self.queue.len() as u64);
            let carried_out = match step {
                Step::Inline(rows, permit) => {
                    self.held.absorb(permit);
                    self.apply_here(&rows)
                }
                Step::Pool(rows, permit) => {
                    self.held.absorb(permit);
                    return self.apply_on_pool(rows, ctx);
                }
                Step::Seal => self.seal(),
                Step::Rest => break,
            };
            if let Err(failure) = carried_out {
                return self.fail(failure, ctx);
            }
        }
        if self.draining && self.queue.is_idle() {
            if let Err(failure) = self.seal() {
                return self.fail(failure, ctx);
            }
            self.to_freezer_drain.tell(DrainFrozen);
        }
    }

    /// Hands the memtable on, if it holds rows, and begins a new one. It stays in the view of
    /// readers until its generation takes its place (F2).
    fn seal(&mut self) -> Result<(), Failure> {
        let Some(full) = self.memtable.take_if(|memtable| memtable.rows() > 0) else { return Ok(()) };
        let range = SeqRange::between(full.first(), full.end());
        let opened = memtable::new(&self.spec, full.end(), &self.cpu_pool);
        let (writer, reader) = opened.map_err(|error| Failure::Apply { detail: error.to_string() })?;
        let sealed = Sealed {
            memtable: std::mem::replace(&mut self.reader, reader.clone()),
            range,
            row_bytes: full.bytes().rows,
        };
        self.memtable = Some(writer);
        let held = std::mem::replace(&mut self.held, self.budget.charge_recovered(memtable::EMPTY_BYTES));
        // Losing it is harmless: the Reader has stopped, and with it the shard.
        let _ = self.opened.send(reader);
        tracing::debug!(%range, "sealed a memtable");
        self.to_freezer.tell(Freeze { sealed, permit: held });
        Ok(())
    }

    fn apply_here(&mut self, rows: &SequencedRows) -> Result<(), Failure> {
        let Some(memtable) = self.memtable.as_mut() else {
            let detail = "the memtable is away while a put is to be applied to it".to_owned();
            return Err(Failure::Invariant { id: crate::invariants::S1, detail });
        };
        let _span = tracing::debug_span!("apply", first = %rows.range.first(), rows = rows.range.rows()).entered();
        self.apply_started = self.clock.now();
        memtable.apply(rows)?;
        self.applied(rows.range.end(), rows.range.rows());
        Ok(())
    }

    fn apply_on_pool(&mut self, rows: SequencedRows, ctx: &mut Context<Self>) {
        let Some(mut memtable) = self.memtable.take() else {
            let detail = "the memtable is away while a put is to be applied to it".to_owned();
            return self.fail(Failure::Invariant { id: crate::invariants::S1, detail }, ctx);
        };
        self.apply_started = self.clock.now();
        let answer = ApplyAnswer { edge: Edge::to(&ctx.address(), "IndexApplier", &self.status), outcome: None };
        let pool = Arc::clone(&self.cpu_pool);
        self.cpu_pool.spawn(Box::new(move || {
            let _span =
                tracing::debug_span!("apply_parallel", first = %rows.range.first(), rows = rows.range.rows()).entered();
            // The memtable is dropped if an index panics; so is its shard.
            let applied = catch_unwind(AssertUnwindSafe(move || {
                memtable.apply_parallel(&rows, pool.as_ref())?;
                Ok(memtable)
            }));
            answer.give(applied.ok());
        }));
    }

    /// Publishes rows that are in every index (V2).
    fn applied(&mut self, end: Seq, rows: u64) {
        let took = self.clock.now().saturating_sub(self.apply_started);
        Counters::add(&self.counters.applies, 1);
        Counters::add(&self.counters.rows_applied, rows);
        Counters::add(&self.counters.apply_nanos, took.as_nanos() as u64);
        if let Some(memtable) = &self.memtable {
            let bytes = memtable.bytes();
            Counters::set(&self.counters.row_bytes, bytes.rows);
            Counters::set(&self.counters.index_bytes, bytes.indexes);
        }
        self.indexed.advance(end);
    }

    fn fail(&mut self, failure: Failure, ctx: &mut Context<Self>) {
        self.status.fail(failure);
        ctx.stop();
    }
}

/// Brings the memtable back to the actor. A pool that panics, or loses the job, has lost the
/// memtable, and the shard says so (Z5).
struct ApplyAnswer {
    edge: Edge<ApplyFinished>,
    outcome: Option<Result<MemtableWriter, Failure>>,
}

impl ApplyAnswer {
    fn give(mut self, outcome: Option<Result<MemtableWriter, Failure>>) {
        self.outcome = outcome;
    }
}

impl Drop for ApplyAnswer {
    fn drop(&mut self) {
        let lost = || Err(Failure::Apply { detail: "the CPU pool lost the memtable, or panicked".to_owned() });
        let outcome = self.outcome.take().unwrap_or_else(lost);
        self.edge.tell(ApplyFinished { outcome });
    }
}

impl Actor for IndexApplier {
    type Context = Context<Self>;
}

impl Handler<Apply> for IndexApplier {
    type Result = ();

    fn handle(&mut self, Apply { rows, permit }: Apply, ctx: &mut Self::Context) {
        match self.queue.accept(rows, permit) {
            Ok(()) => self.work(ctx),
            Err(failure) => self.fail(failure, ctx),
        }
    }
}

impl Handler<ApplyFinished> for IndexApplier {
    type Result = ();

    fn handle(&mut self, ApplyFinished { outcome }: ApplyFinished, ctx: &mut Self::Context) {
        match outcome {
            Ok(memtable) => {
                self.memtable = Some(memtable);
                if let Some(range) = self.queue.returned() {
                    Counters::add(&self.counters.applies_parallel, 1);
                    self.applied(range.end(), range.rows());
                }
                self.work(ctx);
            }
            Err(failure) => self.fail(failure, ctx),
        }
    }
}

impl Handler<Seal> for IndexApplier {
    type Result = ();

    fn handle(&mut self, _: Seal, ctx: &mut Self::Context) {
        self.queue.seal();
        self.work(ctx);
    }
}

impl Handler<DrainApplied> for IndexApplier {
    type Result = ();

    fn handle(&mut self, _: DrainApplied, ctx: &mut Self::Context) {
        self.draining = true;
        self.work(ctx);
    }
}

impl Handler<Terminate> for IndexApplier {
    type Result = ();

    fn handle(&mut self, _: Terminate, ctx: &mut Self::Context) {
        self.guard.disarm();
        ctx.stop();
    }
}

//! The WalAppender.
//!
//! *Owns* the order of writes (`Seq`), the entry being gathered, the log's tip (position and
//! checksum of the last entry), the write in flight, and the cursor `durable`.
//!
//! *Does not own* the rows' meaning, memtables, indexes, or the manifest after the open.
//!
//! *May stop because* a newer epoch fenced it; a log write failed after its retries or cannot be
//! resolved; it was told to.

mod commit_window;
mod messages;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler};
use arrow_schema::SchemaRef;
use tokio::runtime;

use self::commit_window::{CommitWindow, Step};
pub use self::messages::{Append, Flush, Receipt, Sequenced};
pub(crate) use self::messages::{Drain, FlushTick, PutFinished};
use crate::actors::edge::Edge;
use crate::actors::freezer::EntryWritten;
use crate::actors::host::Host;
use crate::actors::index_applier::{Apply, DrainApplied, Seal};
use crate::actors::lifecycle::{DeathGuard, Status, Terminate};
use crate::admission::Admitted;
use crate::config::{Clock, Settings};
use crate::cursors::CursorOwner;
use crate::error::{Error, Failure};
use crate::ids::{EntryPosition, Epoch, Nonce, Seq};
use crate::rows::SequencedRows;
use crate::stats::Counters;
use crate::wal::append::{AppendOutcome, Content, EntryDraft, append_entry};
use crate::wal::ledger::LoggedEntry;
use crate::wal::store::ShardStore;

/// Who this writer is: what every entry of it carries.
#[derive(Clone, Debug)]
pub(crate) struct WriterIdentity {
    pub(crate) shard: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) nonce: Nonce,
    /// The storage schema.
    pub(crate) schema: SchemaRef,
}

/// Where the next entry goes, and the checksum of the one before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LogTip {
    pub(crate) next_position: EntryPosition,
    pub(crate) crc: u32,
}

/// Gives writes their order and makes them durable.
pub struct WalAppender {
    // Declared before the cursor: the reason is latched before waiters wake (see lifecycle).
    guard: DeathGuard,
    status: Arc<Status>,
    durable: CursorOwner,
    to_applier: Edge<Apply>,
    /// Taken when the drain is passed on: that happens once, however many events follow it.
    to_applier_drain: Option<Edge<DrainApplied>>,
    to_applier_seal: Edge<Seal>,
    to_freezer: Edge<EntryWritten>,
    window: CommitWindow,
    tip: LogTip,
    identity: WriterIdentity,
    store: ShardStore,
    clock: Arc<dyn Clock>,
    io: runtime::Handle,
    put_started: Duration,
    draining: bool,
    counters: Arc<Counters>,
    // The threads outlive the actors that run on them.
    _host: Arc<Host>,
}

/// What a WalAppender is built from.
pub(crate) struct Parts {
    pub(crate) status: Arc<Status>,
    pub(crate) durable: CursorOwner,
    pub(crate) to_applier: Edge<Apply>,
    pub(crate) to_applier_drain: Edge<DrainApplied>,
    pub(crate) to_applier_seal: Edge<Seal>,
    pub(crate) to_freezer: Edge<EntryWritten>,
    pub(crate) next: Seq,
    pub(crate) tip: LogTip,
    pub(crate) identity: WriterIdentity,
    pub(crate) store: ShardStore,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) host: Arc<Host>,
}

impl WalAppender {
    pub(crate) fn new(parts: Parts, settings: &Settings, flush_interval: Duration) -> Self {
        WalAppender {
            guard: DeathGuard::armed("WalAppender", &parts.status),
            window: CommitWindow::new(parts.next, flush_interval, settings.wal_entry_bytes_max),
            status: parts.status,
            durable: parts.durable,
            to_applier: parts.to_applier,
            to_applier_drain: Some(parts.to_applier_drain),
            to_applier_seal: parts.to_applier_seal,
            to_freezer: parts.to_freezer,
            tip: parts.tip,
            identity: parts.identity,
            store: parts.store,
            clock: parts.clock,
            io: parts.host.io(),
            put_started: Duration::ZERO,
            draining: false,
            counters: parts.counters,
            _host: parts.host,
        }
    }

    /// Carries out what the commit window decided.
    fn carry_out(&mut self, step: Step, ctx: &mut Context<Self>) {
        match step {
            Step::Write(puts) => self.start_write(puts, ctx),
            Step::Wait(pause) => {
                // The timer of the runtime that waits for it: the arbiter's may end first.
                let rings = {
                    let _io = self.io.enter();
                    self.clock.sleep(pause)
                };
                let me = ctx.address();
                let edge = Edge::to(&me, "WalAppender", &self.status);
                self.io.spawn(async move {
                    rings.await;
                    edge.tell(FlushTick);
                });
            }
            Step::Rest => {}
        }
        Counters::set(&self.counters.puts_unlogged, self.window.puts_gathered() as u64);
        self.pass_on_drain();
    }

    fn start_write(&mut self, puts: Vec<SequencedRows>, ctx: &mut Context<Self>) {
        self.put_started = self.clock.now();
        let draft = EntryDraft {
            shard: Arc::clone(&self.identity.shard),
            epoch: self.identity.epoch,
            nonce: self.identity.nonce,
            position: self.tip.next_position,
            previous_crc: self.tip.crc,
            schema: Arc::clone(&self.identity.schema),
            content: Content::Rows(puts),
        };
        let answer = WriteAnswer { edge: Edge::to(&ctx.address(), "WalAppender", &self.status), outcome: None };
        let store = self.store.clone();
        self.io.spawn(async move {
            let mut answer = answer;
            answer.outcome = Some(append_entry(&store, draft).await);
        });
    }

    /// The last stage to have work hears of the close once the log has none left.
    fn pass_on_drain(&mut self) {
        if self.draining
            && self.window.is_idle()
            && let Some(to_applier) = self.to_applier_drain.take()
        {
            to_applier.tell(DrainApplied);
        }
    }

    /// Why rows are not taken.
    fn refusal(&self, rows: &Admitted) -> Option<Error> {
        if self.draining {
            return Some(Error::Closed);
        }
        if !rows.rows.are_of(&self.identity.schema) {
            // They hold the other shard's memory, and may not be of this one's schema: in the log
            // they would be what no open can replay.
            let expected = "rows admitted by the `admission` of this opening of this shard";
            return Some(Error::invalid("the append", "rows admitted by another shard", expected));
        }
        self.status.check_not_failed().err()
    }

    fn fail(&mut self, failure: Failure, ctx: &mut Context<Self>) {
        self.status.fail(failure);
        ctx.stop();
    }
}

/// Brings the outcome of a write back to the actor, whatever becomes of the task that writes: a
/// store that panics, or a runtime that is torn down, is a failed write and not a silence (Z5).
struct WriteAnswer {
    edge: Edge<PutFinished>,
    outcome: Option<AppendOutcome>,
}

impl Drop for WriteAnswer {
    fn drop(&mut self) {
        self.edge.tell(PutFinished { outcome: self.outcome.take() });
    }
}

impl Actor for WalAppender {
    type Context = Context<Self>;
}

impl Handler<Append> for WalAppender {
    type Result = ();

    fn handle(&mut self, append: Append, ctx: &mut Self::Context) {
        let Some((rows, reply, span)) = append.take() else { return };
        let _entered = tracing::debug_span!(parent: &span, "append", rows = rows.rows.rows()).entered();
        if let Some(error) = self.refusal(&rows) {
            // Losing the answer is harmless: nobody waits for a put that was dropped.
            let _ = reply.send(Err(error));
            return;
        }
        let range = self.window.sequence(rows.rows.rows());
        let sequenced = rows.rows.sequenced(range);
        Counters::add(&self.counters.puts, 1);
        Counters::add(&self.counters.rows_put, range.rows());
        // The apply is not behind the write: a put is visible in well under the time of one.
        self.to_applier.tell(Apply { rows: sequenced.clone(), permit: rows.permit });
        // Losing the answer is harmless: the put happens whether or not anyone waits (P7).
        let _ = reply.send(Ok(range));
        let step = self.window.gather(sequenced, self.clock.now());
        self.carry_out(step, ctx);
    }
}

impl Handler<Flush> for WalAppender {
    type Result = Result<Seq, Error>;

    fn handle(&mut self, _: Flush, _: &mut Self::Context) -> Self::Result {
        self.status.check_running()?;
        self.to_applier_seal.tell(Seal);
        Ok(self.window.next())
    }
}

impl Handler<PutFinished> for WalAppender {
    type Result = ();

    fn handle(&mut self, PutFinished { outcome }: PutFinished, ctx: &mut Self::Context) {
        let now = self.clock.now();
        match outcome {
            Some(AppendOutcome::Written { position, crc, bytes }) => {
                self.tip = LogTip { next_position: position.next(), crc };
                Counters::add(&self.counters.entries_written, 1);
                Counters::add(&self.counters.entry_bytes, bytes);
                let took = now.saturating_sub(self.put_started);
                Counters::add(&self.counters.append_nanos, took.as_nanos() as u64);
                let (durable, step) = self.window.written(now);
                if let Some(end) = durable {
                    tracing::debug!(%end, %position, ?took, "log entry written");
                    self.durable.advance(end);
                    let entry = LoggedEntry { position, crc, end, is_sentinel: false };
                    self.to_freezer.tell(EntryWritten(entry));
                }
                self.carry_out(step, ctx);
            }
            Some(AppendOutcome::Fenced { by }) => self.fail(Failure::Fenced { ours: self.identity.epoch, by }, ctx),
            Some(AppendOutcome::Failed(error)) => self.fail(Failure::Append(Arc::new(error)), ctx),
            None => {
                let detail = "the task that wrote a log entry ended without an outcome".to_owned();
                self.fail(Failure::Invariant { id: crate::invariants::W1, detail }, ctx);
            }
        }
    }
}

impl Handler<FlushTick> for WalAppender {
    type Result = ();

    fn handle(&mut self, _: FlushTick, ctx: &mut Self::Context) {
        let step = self.window.timer_rang(self.clock.now());
        self.carry_out(step, ctx);
    }
}

impl Handler<Drain> for WalAppender {
    type Result = ();

    fn handle(&mut self, _: Drain, ctx: &mut Self::Context) {
        if self.draining {
            return;
        }
        self.draining = true;
        let step = self.window.hurry(self.clock.now());
        self.carry_out(step, ctx);
    }
}

impl Handler<Terminate> for WalAppender {
    type Result = ();

    fn handle(&mut self, _: Terminate, ctx: &mut Self::Context) {
        self.guard.disarm();
        ctx.stop();
    }
}

//! The Freezer.
//!
//! *Owns* the queue of sealed memtables, the generations being built, the shard manifest after the
//! open, what is known of the log's entries, and the cursor `flushed`.
//!
//! *Does not own* the active memtable, or reads.
//!
//! *May stop because* a manifest commit met a newer epoch; an invariant does not hold; a close
//! could not be carried out; it was told to.

mod freeze_queue;
mod messages;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler};
use tokio::runtime;
use tokio::sync::mpsc::UnboundedSender;

use self::freeze_queue::{FreezeQueue, Step};
pub(crate) use self::messages::{BuildFinished, Built, CommitFinished, DrainFrozen, EntryWritten, Freeze, RetryDue};
use crate::actors::collector::{CollectLog, Sweep};
use crate::actors::edge::Edge;
use crate::actors::herald::ShardEvent;
use crate::actors::host::Host;
use crate::actors::lifecycle::{DeathGuard, Status, Terminate};
use crate::actors::reader::GenerationCommitted;
use crate::admission::Permit;
use crate::config::{Clock, CpuPool, Entropy, Settings};
use crate::cursors::CursorOwner;
use crate::error::{Error, Failure};
use crate::generations::{FileAccess, Generation, Indexes, Sealed, folder_name, write_generation};
use crate::ids::{Nonce, Seq};
use crate::invariants::{G2, G4};
use crate::spec::ValidatedSpec;
use crate::stats::Counters;
use crate::wal::ledger::LogLedger;
use crate::wal::manifest::{Manifest, ManifestAnswer, ManifestStore, Release};

/// Commits between two looks for files that failed attempts left behind.
const SWEEP_COMMITS: u64 = 16;

/// Writes sealed memtables out as generations, in order.
pub(crate) struct Freezer {
    // Declared before the cursor: the reason is latched before waiters wake (see lifecycle).
    guard: DeathGuard,
    status: Arc<Status>,
    flushed: CursorOwner,
    to_reader: Edge<GenerationCommitted>,
    to_collector: Edge<CollectLog>,
    to_sweeper: Edge<Sweep>,
    events: UnboundedSender<ShardEvent>,
    queue: FreezeQueue,
    /// The memtables of the queue, by their first row.
    frozen: BTreeMap<Seq, Frozen>,
    /// The newest manifest that is known to be committed, and the one on its way.
    manifest: Manifest,
    committing: Option<(Manifest, Release)>,
    ledger: LogLedger,
    draining: bool,
    writing: Writing,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    io: runtime::Handle,
    attempts_max: u32,
    counters: Arc<Counters>,
    // The threads outlive the actors that run on them.
    _host: Arc<Host>,
}

/// One memtable on its way into a generation.
struct Frozen {
    sealed: Sealed,
    permit: Permit,
    built: Option<Built>,
    started: Duration,
    folder: String,
}

/// What a build is done with.
#[derive(Clone)]
pub(crate) struct Writing {
    pub(crate) spec: Arc<ValidatedSpec>,
    pub(crate) indexes: Arc<Indexes>,
    pub(crate) access: FileAccess,
    pub(crate) cpu_pool: Arc<dyn CpuPool>,
}

impl Writing {
    /// Writes a generation and opens it, which shows that the store has what it was given. Blocks
    /// the thread.
    pub(crate) fn write(&self, sealed: &Sealed, folder: String) -> Result<Built, Error> {
        let FileAccess { store, io, .. } = &self.access;
        let meta = write_generation(sealed, &self.spec, &self.indexes, folder, store, io, self.cpu_pool.as_ref())?;
        let generation = Generation::open(&meta, &self.spec, &self.indexes, &self.access)?;
        Ok(Built { meta, generation: Arc::new(generation) })
    }
}

/// What a Freezer is built from.
pub(crate) struct Parts {
    pub(crate) status: Arc<Status>,
    pub(crate) flushed: CursorOwner,
    pub(crate) to_reader: Edge<GenerationCommitted>,
    pub(crate) to_collector: Edge<CollectLog>,
    pub(crate) to_sweeper: Edge<Sweep>,
    pub(crate) events: UnboundedSender<ShardEvent>,
    pub(crate) manifest: Manifest,
    pub(crate) ledger: LogLedger,
    pub(crate) durable: Seq,
    pub(crate) writing: Writing,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) host: Arc<Host>,
}

impl Freezer {
    pub(crate) fn new(parts: Parts, settings: &Settings) -> Self {
        Freezer {
            guard: DeathGuard::armed("Freezer", &parts.status),
            status: parts.status,
            flushed: parts.flushed,
            to_reader: parts.to_reader,
            to_collector: parts.to_collector,
            to_sweeper: parts.to_sweeper,
            events: parts.events,
            queue: FreezeQueue::new(parts.manifest.flushed, parts.durable),
            frozen: BTreeMap::new(),
            manifest: parts.manifest,
            committing: None,
            ledger: parts.ledger,
            draining: false,
            writing: parts.writing,
            clock: parts.clock,
            entropy: parts.entropy,
            io: parts.host.io(),
            attempts_max: settings.store_attempts_max,
            counters: parts.counters,
            _host: parts.host,
        }
    }

    /// Carries out what the queue decides.
    fn work(&mut self, ctx: &mut Context<Self>) {
        loop {
            match self.queue.next_step() {
                Step::Build { first, attempt } => self.start_build(first, attempt, ctx),
                Step::Commit { first, attempt } => self.start_commit(first, attempt, ctx),
                Step::Rest => break,
            }
        }
        self.set_gauges();
        if self.draining && self.queue.len() == 0 {
            // Nothing is left to do and nothing new is taken: this is the end of the shard.
            self.status.drained();
        }
    }

    fn set_gauges(&self) {
        Counters::set(&self.counters.memtables_sealed, self.queue.len() as u64);
        Counters::set(&self.counters.log_entries_held, self.ledger.len() as u64);
        Counters::set(&self.counters.generations, self.manifest.generations.len() as u64);
    }

    fn start_build(&mut self, first: Seq, attempt: u32, ctx: &mut Context<Self>) {
        let nonce = Nonce::new(self.entropy.draw());
        let Some(frozen) = self.frozen.get_mut(&first) else { return };
        frozen.folder = folder_name(frozen.sealed.range, self.manifest.epoch, nonce);
        frozen.started = self.clock.now();
        let (sealed, folder) = (frozen.sealed.clone(), frozen.folder.clone());
        tracing::info!(range = %sealed.range, attempt, folder, "freezing a memtable");
        let answer = BuildAnswer { edge: Edge::to(&ctx.address(), "Freezer", &self.status), first, outcome: None };
        let writing = self.writing.clone();
        self.io.spawn_blocking(move || {
            let mut answer = answer;
            answer.outcome = Some(writing.write(&sealed, folder));
        });
    }

    fn start_commit(&mut self, first: Seq, attempt: u32, ctx: &mut Context<Self>) {
        let Some(built) = self.frozen.get(&first).and_then(|frozen| frozen.built.as_ref()) else { return };
        if built.meta.first != self.manifest.flushed {
            let detail = format!("rows {} to be committed behind row {}", built.meta.range(), self.manifest.flushed);
            return self.fail(Failure::Invariant { id: G4, detail }, ctx);
        }
        // Tried again, it is the same manifest to the byte, so that an answer that was lost is known
        // by what is found in the store (F4).
        let (manifest, _) = self.committing.get_or_insert_with(|| {
            let release = self.ledger.released_by(built.meta.end);
            (self.manifest.with_generation(built.meta.clone(), &release), release)
        });
        tracing::debug!(version = %manifest.version, attempt, "committing a generation");
        let manifest = manifest.clone();
        let answer = CommitAnswer { edge: Edge::to(&ctx.address(), "Freezer", &self.status), first, outcome: None };
        let manifests = ManifestStore(self.writing.access.store.clone());
        self.io.spawn(async move {
            let mut answer = answer;
            answer.outcome = Some(manifests.create(&manifest).await);
        });
    }

    /// A generation is in the manifest: readers get it, the memory and the log are let go (G2).
    fn committed(&mut self, first: Seq, ctx: &mut Context<Self>) {
        let taken = (self.queue.committed(first), self.frozen.remove(&first), self.committing.take());
        let (Some(range), Some(Frozen { permit, built: Some(built), started, .. }), Some((manifest, release))) = taken
        else {
            let detail = format!("a commit of rows from {first} that nobody began");
            return self.fail(Failure::Invariant { id: G2, detail }, ctx);
        };
        self.manifest = manifest;
        self.ledger.drop_released(range.end());
        let took = self.clock.now().saturating_sub(started);
        Counters::add(&self.counters.generations_committed, 1);
        Counters::add(&self.counters.generation_bytes, built.meta.rows.bytes + built.meta.indexes.bytes);
        Counters::add(&self.counters.freeze_nanos, took.as_nanos() as u64);
        // Before the cursor: whoever waited for it finds the figures of what it waited for.
        self.set_gauges();
        tracing::info!(%range, version = %self.manifest.version, ?took, "committed a generation");
        self.to_reader.tell(GenerationCommitted { generation: built.generation, permit });
        // Losing it is harmless: the Herald outlives everyone who listens.
        let _ = self.events.send(ShardEvent::Committed { range });
        self.flushed.advance(range.end());
        self.to_collector.tell(CollectLog { entries: release.entries });
        if Counters::get(&self.counters.generations_committed).is_multiple_of(SWEEP_COMMITS) {
            self.sweep();
        }
        self.work(ctx);
    }

    fn sweep(&self) {
        let committed = self.manifest.generations.iter().map(|generation| generation.folder.clone());
        let being_built = self.frozen.values().map(|frozen| frozen.folder.clone());
        self.to_sweeper.tell(Sweep {
            epoch: self.manifest.epoch,
            kept: committed.chain(being_built).collect(),
            newest: self.manifest.version,
        });
    }

    /// Waits and tries again; a close that cannot be carried out ends with the reason.
    fn try_again(&mut self, first: Seq, pause: Duration, error: Error, ctx: &mut Context<Self>) {
        let attempts = self.queue.attempts(first);
        Counters::add(&self.counters.freeze_retries, 1);
        tracing::warn!(%first, attempts, ?pause, %error, "freezing a memtable failed, trying again");
        if self.draining && attempts >= self.attempts_max {
            return self.fail(Failure::Freeze(Arc::new(error)), ctx);
        }
        let rings = {
            let _io = self.io.enter();
            self.clock.sleep(pause)
        };
        let edge = Edge::to(&ctx.address(), "Freezer", &self.status);
        self.io.spawn(async move {
            rings.await;
            edge.tell(RetryDue { first });
        });
    }

    fn fail(&mut self, failure: Failure, ctx: &mut Context<Self>) {
        self.status.fail(failure);
        ctx.stop();
    }
}

/// Brings the outcome of a build back, whatever becomes of the thread it runs on (Z5).
struct BuildAnswer {
    edge: Edge<BuildFinished>,
    first: Seq,
    outcome: Option<Result<Built, Error>>,
}

impl Drop for BuildAnswer {
    fn drop(&mut self) {
        self.edge.tell(BuildFinished { first: self.first, outcome: self.outcome.take() });
    }
}

/// Brings the outcome of a commit back, whatever becomes of its task (Z5).
struct CommitAnswer {
    edge: Edge<CommitFinished>,
    first: Seq,
    outcome: Option<Result<ManifestAnswer, Error>>,
}

impl Drop for CommitAnswer {
    fn drop(&mut self) {
        self.edge.tell(CommitFinished { first: self.first, outcome: self.outcome.take() });
    }
}

impl Actor for Freezer {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        self.sweep();
    }
}

impl Handler<Freeze> for Freezer {
    type Result = ();

    fn handle(&mut self, Freeze { sealed, permit }: Freeze, ctx: &mut Self::Context) {
        let range = sealed.range;
        if let Err(failure) = self.queue.push(range) {
            return self.fail(failure, ctx);
        }
        let frozen = Frozen { sealed, permit, built: None, started: Duration::ZERO, folder: String::new() };
        self.frozen.insert(range.first(), frozen);
        // Losing it is harmless: the Herald outlives everyone who listens.
        let _ = self.events.send(ShardEvent::Sealed { range });
        self.work(ctx);
    }
}

impl Handler<EntryWritten> for Freezer {
    type Result = ();

    fn handle(&mut self, EntryWritten(entry): EntryWritten, ctx: &mut Self::Context) {
        self.ledger.push(entry);
        self.queue.logged(entry.end);
        self.work(ctx);
    }
}

impl Handler<BuildFinished> for Freezer {
    type Result = ();

    fn handle(&mut self, BuildFinished { first, outcome }: BuildFinished, ctx: &mut Self::Context) {
        let lost = || Err(Error::Query { detail: "a panic while a generation was written".to_owned() });
        match outcome.unwrap_or_else(lost) {
            Ok(built) => {
                if let Some(frozen) = self.frozen.get_mut(&first) {
                    frozen.built = Some(built);
                }
                self.queue.built(first);
                self.work(ctx);
            }
            Err(error) => {
                let pause = self.queue.build_failed(first);
                self.try_again(first, pause, error, ctx);
            }
        }
    }
}

impl Handler<CommitFinished> for Freezer {
    type Result = ();

    fn handle(&mut self, CommitFinished { first, outcome }: CommitFinished, ctx: &mut Self::Context) {
        let ours = self.manifest.epoch;
        match outcome {
            Some(Ok(ManifestAnswer::Created)) => self.committed(first, ctx),
            Some(Ok(ManifestAnswer::AlreadyExists(theirs))) if theirs.epoch > ours => {
                self.fail(Failure::Fenced { ours, by: theirs.epoch }, ctx);
            }
            Some(Ok(ManifestAnswer::AlreadyExists(theirs))) => {
                let detail = format!("manifest {} of our epoch {ours} is not the one committed", theirs.version);
                self.fail(Failure::Invariant { id: G4, detail }, ctx);
            }
            Some(Err(error @ (Error::Corrupt { .. } | Error::InvalidInput { .. }))) => {
                self.fail(Failure::Freeze(Arc::new(error)), ctx);
            }
            Some(Err(error)) => {
                let pause = self.queue.commit_failed(first);
                self.try_again(first, pause, error, ctx);
            }
            None => {
                let detail = "the task that committed a generation ended without an outcome".to_owned();
                self.fail(Failure::Invariant { id: G2, detail }, ctx);
            }
        }
    }
}

impl Handler<RetryDue> for Freezer {
    type Result = ();

    fn handle(&mut self, RetryDue { first }: RetryDue, ctx: &mut Self::Context) {
        self.queue.retry(first);
        self.work(ctx);
    }
}

impl Handler<DrainFrozen> for Freezer {
    type Result = ();

    fn handle(&mut self, _: DrainFrozen, ctx: &mut Self::Context) {
        self.draining = true;
        self.work(ctx);
    }
}

impl Handler<Terminate> for Freezer {
    type Result = ();

    fn handle(&mut self, _: Terminate, ctx: &mut Self::Context) {
        self.guard.disarm();
        ctx.stop();
    }
}

use actix::Addr;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;

use super::*;
use crate::actors::testing::probe;
use crate::admission::Budget;
use crate::components::InlinePool;
use crate::config::Components;
use crate::generations::{BlockCache, ReadStats};
use crate::ids::{EntryPosition, SeqRange};
use crate::memtable;
use crate::wal::ledger::LoggedEntry;
use crate::wal::testing::fault_store::{Fault, Op};
use crate::wal::testing::{Process, put, spec};

/// The real Freezer of a shard that was just created, between probes.
struct Stage {
    process: Process,
    status: Arc<Status>,
    budget: Arc<Budget>,
    flushed: watch::Receiver<Seq>,
    commits: UnboundedReceiver<GenerationCommitted>,
    garbage: UnboundedReceiver<CollectLog>,
    events: UnboundedReceiver<ShardEvent>,
    freezer: Addr<Freezer>,
    _host: Arc<Host>,
}

impl Stage {
    async fn set() -> Self {
        let process = Process::first();
        let manifest = process.claim(1).await.expect("it claims").manifest;
        let (host, status, budget) = (Host::start().expect("threads"), Status::running(), Budget::new(1 << 20));
        let (flushed_owner, flushed) = CursorOwner::new(Seq::ZERO);
        let (reader, commits) = probe(&host.read_arbiter());
        let (collector, garbage) = probe(&host.read_arbiter());
        let (sweeper, _) = probe(&host.read_arbiter());
        let (telling, events) = unbounded_channel();
        let spec = Arc::new(spec());
        let access = FileAccess {
            store: process.store.0.clone(),
            io: host.io(),
            cache: BlockCache::new(1 << 20),
            stats: Arc::new(ReadStats::default()),
        };
        let indexes = Arc::new(Indexes::of(&spec).expect("the spec is valid"));
        let parts = Parts {
            status: Arc::clone(&status),
            flushed: flushed_owner,
            to_reader: Edge::to(&reader, "Reader", &status),
            to_collector: Edge::to(&collector, "Collector", &status),
            to_sweeper: Edge::to(&sweeper, "Collector", &status),
            events: telling,
            manifest,
            ledger: LogLedger::default(),
            durable: Seq::ZERO,
            writing: Writing { spec, indexes, access, cpu_pool: Arc::new(InlinePool) },
            clock: Arc::new(process.clock.clone()),
            entropy: Components::default().entropy,
            counters: Arc::default(),
            host: Arc::clone(&host),
        };
        let actor = Freezer::new(parts, &Settings { store_attempts_max: 3, ..Settings::default() });
        let freezer = Freezer::start_in_arbiter(&host.read_arbiter(), |_| actor);
        Stage { process, status, budget, flushed, commits, garbage, events, freezer, _host: host }
    }

    /// A memtable of ten rows is sealed.
    async fn freeze(&self, first: u64) {
        let pool: Arc<dyn CpuPool> = Arc::new(InlinePool);
        let (mut writer, reader) = memtable::new(&Arc::new(spec()), Seq::new(first), &pool).expect("a memtable");
        writer.apply(&put(first, 10)).expect("applied");
        let range = SeqRange::starting_at(Seq::new(first), 10);
        let sealed = Sealed { memtable: reader, range, row_bytes: 1000 };
        let permit = self.budget.charge_recovered(1000);
        self.freezer.send(Freeze { sealed, permit }).await.expect("the actor lives");
    }

    async fn logged(&self, position: u64, end: u64) {
        let (position, end) = (EntryPosition::new(position), Seq::new(end));
        let entry = LoggedEntry { position, crc: 7, end, is_sentinel: false };
        self.freezer.send(EntryWritten(entry)).await.expect("the actor lives");
    }

    async fn failure(&self) -> Error {
        self.status.ended().await.expect_err("it fails")
    }
}

#[tokio::test]
async fn g2_g4_memtables_are_committed_in_order_and_then_told_to_reader_collector_and_subscribers() {
    let mut stage = Stage::set().await;
    stage.freeze(0).await;
    stage.freeze(10).await;
    assert!(stage.commits.try_recv().is_err(), "W3: the log does not have their rows");
    stage.logged(1, 15).await;
    stage.logged(2, 20).await;
    for (first, released) in [(0, vec![]), (10, vec![1, 2])] {
        let committed = stage.commits.recv().await.expect("the actor lives");
        let source: &dyn crate::query::Source = &*committed.generation;
        assert_eq!(source.first(), Seq::new(first));
        let entries = stage.garbage.recv().await.expect("the actor lives").entries;
        assert_eq!(entries, released.into_iter().map(EntryPosition::new).collect::<Vec<_>>());
    }
    stage.flushed.wait_for(|at| at.get() == 20).await.expect("the actor lives");
    let manifest = stage.process.store.latest().await.expect("it reads").expect("it is there");
    assert_eq!((manifest.flushed, manifest.generations.len(), manifest.version.get()), (Seq::new(20), 2, 3));
    assert_eq!((manifest.replay_from.get(), manifest.released.map(|of| of.position.get())), (3, Some(2)));
    let mut told = Vec::new();
    while let Ok(event) = stage.events.try_recv() {
        told.push(format!("{event:?}").split(' ').next().unwrap_or_default().to_owned());
    }
    assert_eq!(told, ["Sealed", "Sealed", "Committed", "Committed"]);
}

#[tokio::test]
async fn b1_the_memory_of_a_memtable_is_held_until_readers_have_let_it_go() {
    let mut stage = Stage::set().await;
    stage.logged(1, 10).await;
    stage.freeze(0).await;
    let committed = stage.commits.recv().await.expect("the actor lives");
    assert_eq!(stage.budget.held(), 1000);
    drop(committed);
    assert_eq!(stage.budget.held(), 0);
}

#[tokio::test]
async fn f3_a_build_that_panics_or_fails_is_tried_again_under_another_name() {
    for fault in [Fault::Panic, Fault::FailBefore, Fault::FailAfter] {
        let mut stage = Stage::set().await;
        stage.process.faults.on(Op::Put, "gen/").times(2, fault.clone());
        stage.logged(1, 10).await;
        stage.freeze(0).await;
        stage.commits.recv().await.expect("the actor lives");
        let manifest = stage.process.store.latest().await.expect("it reads").expect("it is there");
        let names = stage.process.faults.names("root/gen").await;
        let committed = names.iter().filter(|name| name.as_ref().contains(&manifest.generations[0].folder)).count();
        assert_eq!(committed, 2, "{fault:?}: both files of the attempt that was committed");
        assert!(matches!(stage.status.state(), crate::actors::lifecycle::ShardState::Running), "{fault:?}");
    }
}

#[tokio::test]
async fn e2_a_commit_that_meets_a_newer_epoch_is_fenced_and_committed_nowhere() {
    let mut stage = Stage::set().await;
    let successor = stage.process.claim(2).await.expect("it claims");
    stage.logged(1, 10).await;
    stage.freeze(0).await;
    let error = stage.failure().await;
    assert!(matches!(error, Error::Fenced { ours, by } if ours.get() == 1 && by == successor.epoch), "{error}");
    assert!(stage.commits.recv().await.is_none());
    let manifest = stage.process.store.latest().await.expect("it reads").expect("it is there");
    assert_eq!(manifest, successor.manifest);
}

#[tokio::test]
async fn g1_a_memtable_that_leaves_a_hole_fails_the_shard() {
    let stage = Stage::set().await;
    stage.freeze(20).await;
    let error = stage.failure().await;
    assert!(error.to_string().contains("where 0 was next"), "{error}");
}

#[tokio::test]
async fn c1_a_drain_ends_the_shard_when_the_last_memtable_is_committed_or_says_why_it_cannot() {
    let stage = Stage::set().await;
    stage.freeze(0).await;
    stage.freezer.send(DrainFrozen).await.expect("the actor lives");
    assert!(matches!(stage.status.state(), crate::actors::lifecycle::ShardState::Running));
    stage.logged(1, 10).await;
    stage.status.ended().await.expect("it closes without a failure");
    let stuck = Stage::set().await;
    stuck.process.faults.on(Op::Put, "gen/").always(Fault::FailBefore);
    stuck.freezer.send(DrainFrozen).await.expect("the actor lives");
    stuck.status.ended().await.expect("an idle one ends at once");
}

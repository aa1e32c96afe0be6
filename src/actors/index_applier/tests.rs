use std::sync::Mutex;

use actix::Addr;
use arrow_array::RecordBatch;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use super::*;
use crate::actors::lifecycle::ShardState;
use crate::actors::testing::{FuseClock, Sleeper, gone, probe};
use crate::admission::Budget;
use crate::components::InlinePool;
use crate::config::Job;
use crate::error::{Error, Result};
use crate::indexes::{IndexError, IndexWriter};
use crate::memtable;
use crate::wal::testing::{put, spec};

/// A pool whose jobs start when the test says so.
#[derive(Debug, Default)]
struct HeldPool(Mutex<Held>);

#[derive(Default)]
struct Held {
    holds: bool,
    jobs: Vec<Job<'static>>,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} jobs", self.jobs.len())
    }
}

impl HeldPool {
    fn hold(&self) {
        self.0.lock().expect("no job panics").holds = true;
    }

    /// Starts what is held, and holds no more. Gives how many jobs that were.
    fn release(&self) -> usize {
        let jobs = std::mem::take(&mut *self.0.lock().expect("no job panics")).jobs;
        jobs.into_iter().map(|job| job()).count()
    }
}

impl CpuPool for HeldPool {
    fn spawn(&self, job: Job<'static>) {
        let mut held = self.0.lock().expect("no job panics");
        if held.holds {
            return held.jobs.push(job);
        }
        drop(held);
        job();
    }

    fn run_all(&self, jobs: Vec<Job<'_>>) {
        InlinePool.run_all(jobs);
    }
}

/// An index that notes what it is given and where the cursor is meanwhile, and refuses one row.
struct Watcher {
    indexed: watch::Receiver<Seq>,
    seen: Arc<Mutex<Vec<(u64, u64)>>>,
    refuses: Option<Seq>,
}

impl IndexWriter for Watcher {
    fn name(&self) -> &str {
        "the watcher"
    }

    fn apply(&mut self, first: Seq, _: &RecordBatch) -> Result<(), IndexError> {
        self.seen.lock().expect("no test panics here").push((first.get(), self.indexed.borrow().get()));
        if self.refuses == Some(first) {
            return Err(IndexError::new(self.name(), first, "it is full".to_owned()));
        }
        Ok(())
    }

    fn bytes(&self) -> u64 {
        0
    }
}

/// The real IndexApplier over a real memtable, with an index that looks on.
struct Stage {
    status: Arc<Status>,
    budget: Arc<Budget>,
    indexed: watch::Receiver<Seq>,
    reader: memtable::MemtableReader,
    seen: Arc<Mutex<Vec<(u64, u64)>>>,
    pool: Arc<HeldPool>,
    clock: Arc<FuseClock>,
    counters: Arc<Counters>,
    applier: Addr<IndexApplier>,
    opened: std::sync::Mutex<std::sync::mpsc::Receiver<memtable::MemtableReader>>,
    freezes: UnboundedReceiver<Freeze>,
    drains: UnboundedReceiver<DrainFrozen>,
    _host: Arc<Host>,
}

impl Stage {
    fn set(inline_apply_rows_max: u64, refuses: Option<u64>) -> Self {
        Self::with(Settings { inline_apply_rows_max, ..Settings::default() }, refuses)
    }

    fn with(settings: Settings, refuses: Option<u64>) -> Self {
        let host = Host::start().expect("threads");
        let (status, budget) = (Status::running(), Budget::new(1 << 20));
        let (owner, indexed) = CursorOwner::new(Seq::ZERO);
        let (pool, clock) = (Arc::new(HeldPool::default()), Arc::new(FuseClock::default()));
        let cpu_pool = Arc::clone(&pool) as Arc<dyn CpuPool>;
        let (mut memtable, reader) = memtable::new(&Arc::new(spec()), Seq::ZERO, &cpu_pool).expect("a memtable");
        let seen = Arc::default();
        let watcher = Watcher { indexed: indexed.clone(), seen: Arc::clone(&seen), refuses: refuses.map(Seq::new) };
        memtable.add_index(Box::new(watcher));
        let counters: Arc<Counters> = Arc::default();
        let (freeze_probe, freezes) = probe(&host.write_arbiter());
        let (drain_probe, drains) = probe(&host.write_arbiter());
        let (opening, opened) = std::sync::mpsc::channel();
        let parts = Parts {
            status: Arc::clone(&status),
            indexed: owner,
            memtable,
            reader: reader.clone(),
            opened: opening,
            to_freezer: Edge::to(&freeze_probe, "Freezer", &status),
            to_freezer_drain: Edge::to(&drain_probe, "Freezer", &status),
            spec: Arc::new(spec()),
            budget: Arc::clone(&budget),
            held: budget.charge_recovered(1000),
            cpu_pool,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            counters: Arc::clone(&counters),
            host: Arc::clone(&host),
        };
        let actor = IndexApplier::new(parts, &settings);
        let applier = IndexApplier::start_in_arbiter(&host.write_arbiter(), |_| actor);
        Stage {
            status,
            budget,
            indexed,
            reader,
            seen,
            pool,
            clock,
            counters,
            applier,
            opened: opened.into(),
            freezes,
            drains,
            _host: host,
        }
    }

    /// Tells the actor of a put, and waits until it has taken it in.
    async fn apply(&self, first: u64, rows: u64) {
        let apply = Apply { rows: put(first, rows), permit: self.budget.charge_recovered(10) };
        self.applier.send(apply).await.expect("the actor lives");
    }

    fn indexed(&self) -> u64 {
        self.indexed.borrow().get()
    }

    /// The first row of each put the index was given, and where the cursor was then.
    fn seen(&self) -> Vec<(u64, u64)> {
        self.seen.lock().expect("no test panics here").clone()
    }

    async fn failure(&self) -> Failure {
        match self.status.ended().await {
            Err(Error::Failed(failure)) => failure,
            other => panic!("expected a failure, got {other:?}"),
        }
    }
}

#[tokio::test]
async fn x1_b07_a_hole_is_a_failure_that_names_both_places_and_nothing_behind_it_is_seen() {
    for first in [3, 1] {
        let stage = Stage::set(100, None);
        stage.apply(0, 2).await;
        stage.apply(first, 2).await;
        let failure = stage.failure().await;
        assert!(matches!(&failure, Failure::Invariant { id: "S1", .. }), "{failure}");
        assert!(failure.to_string().contains(&format!("[{first}, ")) && failure.to_string().contains("where 2 was"));
        gone(stage.indexed.clone()).await;
        assert_eq!((stage.indexed(), stage.seen()), (2, vec![(0, 0)]));
    }
}

#[tokio::test]
async fn v2_x3_the_cursor_moves_when_the_last_index_has_the_rows_inline_and_on_the_pool() {
    for inline_rows_max in [100, 0] {
        let stage = Stage::set(inline_rows_max, None);
        for first in [0, 3, 6] {
            stage.apply(first, 3).await;
            let mut indexed = stage.indexed.clone();
            indexed.wait_for(|at| at.get() == first + 3).await.expect("the actor lives");
        }
        assert_eq!(stage.seen(), [(0, 0), (3, 3), (6, 6)], "the watcher comes last, and the cursor after it");
        assert_eq!((0..10).filter(|at| stage.reader.rows().row(Seq::new(*at)).is_some()).count(), 9);
        let parallel = if inline_rows_max == 0 { 3 } else { 0 };
        let counted = [&stage.counters.applies, &stage.counters.rows_applied, &stage.counters.applies_parallel];
        assert_eq!(counted.map(Counters::get), [3, 9, parallel], "X4");
    }
}

#[tokio::test]
async fn v2_nothing_overtakes_the_put_that_took_the_memtable_away() {
    let stage = Stage::set(2, None);
    stage.pool.hold();
    stage.apply(0, 5).await;
    for first in [5, 6, 7] {
        stage.apply(first, 1).await;
    }
    assert_eq!((stage.indexed(), stage.seen()), (0, vec![]));
    assert_eq!(Counters::get(&stage.counters.applies_queued), 3);
    assert_eq!(stage.pool.release(), 1);
    let mut indexed = stage.indexed.clone();
    indexed.wait_for(|at| at.get() == 8).await.expect("the actor lives");
    assert_eq!(stage.seen(), [(0, 0), (5, 5), (6, 6), (7, 7)]);
    assert_eq!(Counters::get(&stage.counters.applies_queued), 0);
}

#[tokio::test]
async fn c1_a_drain_seals_the_last_memtable_and_passes_on_only_when_the_last_put_is_indexed() {
    let mut stage = Stage::set(2, None);
    stage.pool.hold();
    stage.apply(0, 5).await;
    stage.apply(5, 1).await;
    stage.applier.send(DrainApplied).await.expect("the actor lives");
    assert!(stage.drains.try_recv().is_err(), "six rows are not indexed yet");
    stage.pool.release();
    let frozen = stage.freezes.recv().await.expect("the actor lives");
    assert_eq!(frozen.sealed.range, SeqRange::starting_at(Seq::ZERO, 6));
    stage.drains.recv().await.expect("the actor lives");
    assert_eq!(stage.indexed(), 6);
    let mut idle = Stage::set(2, None);
    idle.applier.send(DrainApplied).await.expect("the actor lives");
    idle.drains.recv().await.expect("an idle one passes on at once");
    assert!(idle.freezes.try_recv().is_err(), "F1: an empty memtable is never sealed");
}

#[tokio::test]
async fn f1_f2_a_put_that_does_not_fit_goes_into_a_new_memtable_that_readers_hear_of_before_its_rows() {
    let charge = memtable::charge(&spec(), &put(0, 3));
    for inline_apply_rows_max in [100, 0] {
        let settings =
            Settings { inline_apply_rows_max, memtable_bytes_max: 2 * charge + charge / 2, ..Settings::default() };
        let mut stage = Stage::with(settings, None);
        for first in [0, 3, 6, 9, 12] {
            stage.apply(first, 3).await;
            let mut indexed = stage.indexed.clone();
            indexed.wait_for(|at| at.get() == first + 3).await.expect("the actor lives");
            let opened: Vec<u64> =
                stage.opened.lock().expect("no test panics here").try_iter().map(|of| of.first().get()).collect();
            let expected = if first == 6 || first == 12 { vec![first] } else { vec![] };
            assert_eq!(opened, expected);
        }
        for first in [0, 6] {
            let frozen = stage.freezes.recv().await.expect("the actor lives");
            assert_eq!(frozen.sealed.range, SeqRange::starting_at(Seq::new(first), 6));
            assert_eq!(frozen.sealed.memtable.rows().batches(frozen.sealed.range).count(), 2);
        }
        assert!(stage.freezes.try_recv().is_err());
    }
}

#[tokio::test]
async fn b1_the_memory_of_a_put_goes_with_the_memtable_that_holds_it() {
    let charge = memtable::charge(&spec(), &put(0, 3));
    let mut stage = Stage::with(Settings { memtable_bytes_max: charge, ..Settings::default() }, None);
    stage.apply(0, 3).await;
    stage.apply(3, 3).await;
    let held = stage.budget.held();
    let frozen = stage.freezes.recv().await.expect("the actor lives");
    drop(frozen);
    // What the first memtable was given (1000 as it began and 10 for its put), and nothing of the second's.
    assert_eq!(held - stage.budget.held(), 1010);
}

#[tokio::test]
async fn x2_b05_rows_an_index_refuses_end_the_shard_and_are_never_seen() {
    for inline_rows_max in [100, 0] {
        let stage = Stage::set(inline_rows_max, Some(2));
        stage.apply(0, 2).await;
        stage.apply(2, 3).await;
        let failure = stage.failure().await;
        let text = failure.to_string();
        assert!(
            matches!(failure, Failure::Apply { .. }) && text.contains("the watcher") && text.contains('2'),
            "{text}"
        );
        gone(stage.indexed.clone()).await;
        assert_eq!(stage.indexed(), 2);
    }
}

#[tokio::test]
async fn z5_a_pool_that_drops_its_job_has_lost_the_memtable_and_the_shard_says_so() {
    let stage = Stage::set(0, None);
    stage.pool.hold();
    stage.apply(0, 1).await;
    stage.pool.0.lock().expect("no job panics").jobs.clear();
    let failure = stage.failure().await;
    assert!(matches!(&failure, Failure::Apply { detail } if detail.contains("lost the memtable")), "{failure}");
    assert_eq!(stage.indexed(), 0);
}

#[tokio::test]
async fn b1_the_memory_of_every_put_is_held_until_the_actor_goes() {
    let stage = Stage::set(100, None);
    for first in 0..5 {
        stage.apply(first, 1).await;
        assert_eq!(stage.budget.held(), 1000 + 10 * (first + 1));
    }
    stage.applier.send(Terminate).await.expect("the actor lives");
    gone(stage.indexed.clone()).await;
    // The cursor is dropped before the permit: an arbiter's next task runs after both are gone.
    let (done, over) = tokio::sync::oneshot::channel();
    stage._host.write_arbiter().spawn_fn(move || done.send(()).expect("the test waits"));
    over.await.expect("the arbiter runs");
    assert_eq!(stage.budget.held(), 0);
}

#[tokio::test]
async fn z1_an_actor_that_was_told_to_stop_latches_nothing() {
    let stage = Stage::set(100, None);
    stage.applier.send(Terminate).await.expect("the actor lives");
    gone(stage.indexed.clone()).await;
    assert!(matches!(stage.status.state(), ShardState::Running));
}

#[tokio::test]
async fn z1_whoever_the_death_of_the_applier_wakes_finds_the_reason() {
    let stage = Stage::set(100, None);
    let sleeper = Sleeper::on(stage.indexed.clone(), &stage.status);
    stage.clock.light();
    let apply = Apply { rows: put(0, 1), permit: stage.budget.charge_recovered(10) };
    stage.applier.send(apply).await.expect_err("the handler panics");
    let state = sleeper.woken().await;
    let expected = Failure::ActorDied { actor: "IndexApplier", panicked: true }.to_string();
    assert!(matches!(&state, ShardState::Failed(reason) if reason.to_string() == expected), "{state:?}");
}

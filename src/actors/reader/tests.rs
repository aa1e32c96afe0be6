use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use actix::Addr;

use super::*;
use crate::actors::lifecycle::ShardState;
use crate::components::InlinePool;
use crate::config::Job;
use crate::cursors::CursorOwner;
use crate::error::Failure;
use crate::memtable;
use crate::query::{Outcome, Scan};
use crate::value::Key;
use crate::wal::testing::{put, spec};

/// How many rows the memtable holds.
const ROWS: u64 = 200;

/// A pool that counts its jobs, and loses them on request.
#[derive(Debug, Default)]
struct CountingPool {
    spawned: AtomicUsize,
    loses: Mutex<bool>,
}

impl CpuPool for CountingPool {
    fn spawn(&self, job: Job<'static>) {
        self.spawned.fetch_add(1, Ordering::SeqCst);
        if !*self.loses.lock().expect("no job panics") {
            job();
        }
    }

    fn run_all(&self, jobs: Vec<Job<'_>>) {
        InlinePool.run_all(jobs);
    }
}

/// The real Reader over [`ROWS`] rows whose ids are their sequence numbers; the test moves the
/// cursors.
struct Stage {
    status: Arc<Status>,
    durable: CursorOwner,
    indexed: CursorOwner,
    pool: Arc<CountingPool>,
    reader: Addr<Reader>,
    opening: std::sync::mpsc::Sender<memtable::MemtableReader>,
    _host: Arc<Host>,
}

impl Stage {
    /// A shard whose memtable begins at `first`.
    fn from(first: u64) -> Self {
        let host = Host::start().expect("threads");
        let (status, spec) = (Status::running(), Arc::new(spec()));
        let pool = Arc::new(CountingPool::default());
        let cpu_pool = Arc::clone(&pool) as Arc<dyn CpuPool>;
        let (mut writer, rows) = memtable::new(&spec, Seq::new(first), &cpu_pool).expect("a memtable");
        writer.apply(&put(first, ROWS)).expect("applied");
        let (durable, durable_seen) = CursorOwner::new(Seq::new(first));
        let (indexed, indexed_seen) = CursorOwner::new(Seq::new(first));
        let (_, flushed_seen) = CursorOwner::new(Seq::ZERO);
        let (opening, opened) = std::sync::mpsc::channel();
        let parts = Parts {
            status: Arc::clone(&status),
            cursors: Cursors::new(durable_seen, indexed_seen, flushed_seen, true, Arc::clone(&status)),
            view: View::of_memtables(vec![rows]),
            opened,
            spec,
            cpu_pool,
            counters: Arc::default(),
            host: Arc::clone(&host),
        };
        let actor = Reader::new(parts, &Settings::default());
        let reader = Reader::start_in_arbiter(&host.read_arbiter(), |_| actor);
        Stage { status, durable, indexed, pool, reader, opening, _host: host }
    }

    /// With every row visible.
    fn full() -> Self {
        let stage = Self::from(0);
        stage.durable.advance(Seq::new(ROWS));
        stage.indexed.advance(Seq::new(ROWS));
        stage
    }

    async fn snapshot(&self, level: ReadLevel, as_of: Option<u64>) -> Result<Snapshot> {
        self.reader.send(TakeSnapshot { level, as_of: as_of.map(Seq::new) }).await.expect("the actor lives")
    }

    async fn get_many(&self, ids: impl IntoIterator<Item = i64>) -> Result<Lookups> {
        let keys = ids.into_iter().map(Key::from).collect();
        self.reader.send(GetMany { keys, level: ReadLevel::Visible }).await.expect("the actor lives")
    }

    /// What each kind of question is answered with.
    async fn errors(&self) -> Vec<Option<Error>> {
        let scan = RunScan { scan: Scan::new(), level: ReadLevel::Visible };
        vec![
            self.snapshot(ReadLevel::Visible, None).await.err(),
            self.snapshot(ReadLevel::Indexed, Some(1)).await.err(),
            self.reader.send(Get::new(1)).await.expect("the actor lives").err(),
            self.get_many([1]).await.err(),
            self.get_many(0..100).await.err(),
            self.reader.send(scan).await.expect("the actor lives").err(),
        ]
    }
}

#[tokio::test]
async fn l1_b18_after_a_failure_every_question_is_answered_with_its_reason() {
    let stage = Stage::full();
    assert!(stage.errors().await.iter().all(Option::is_none));
    let before = stage.snapshot(ReadLevel::Visible, None).await.expect("it runs");
    stage.status.fail(Failure::Apply { detail: "the test".to_owned() });
    for error in stage.errors().await.into_iter().chain([before.get(1).err()]) {
        assert!(matches!(&error, Some(Error::Failed(Failure::Apply { .. }))), "{error:?}");
    }
}

#[tokio::test]
async fn c1_a_closing_shard_still_answers_and_a_closed_one_does_not() {
    let stage = Stage::full();
    assert!(stage.status.begin_closing());
    assert!(stage.errors().await.iter().all(Option::is_none));
    stage.status.closed();
    for error in stage.errors().await {
        assert!(matches!(&error, Some(Error::Closed)), "{error:?}");
    }
}

#[tokio::test]
async fn q5_a_snapshot_as_of_a_seq_sees_the_rows_below_it_and_none_is_taken_outside() {
    let stage = Stage::from(10);
    stage.durable.advance(Seq::new(15));
    stage.indexed.advance(Seq::new(20));
    for (level, newest) in [(ReadLevel::Visible, 15), (ReadLevel::Indexed, 20)] {
        for as_of in 10..=newest {
            let snapshot = stage.snapshot(level, Some(as_of)).await.expect("held");
            assert_eq!(snapshot.seq(), Seq::new(as_of));
            assert_eq!(snapshot.count(None).await.expect("counted"), as_of - 10);
        }
        for as_of in [0, 9, newest + 1, u64::MAX] {
            let error = stage.snapshot(level, Some(as_of)).await.expect_err("not held");
            let expected = (Seq::new(as_of), Seq::new(10), Seq::new(newest));
            assert!(
                matches!(error, Error::SeqNotHeld { asked, oldest, newest } if (asked, oldest, newest) == expected),
                "{error}"
            );
        }
    }
}

#[tokio::test]
async fn v5_b15_rows_that_are_not_durable_are_seen_at_the_level_indexed_and_at_no_other() {
    let stage = Stage::from(0);
    stage.indexed.advance(Seq::new(3));
    stage.durable.advance(Seq::new(1));
    for (level, rows) in [(ReadLevel::Visible, 1), (ReadLevel::Indexed, 3)] {
        assert_eq!(stage.snapshot(level, None).await.expect("it runs").seq(), Seq::new(rows));
        let row = |id: i64| stage.reader.send(Get { key: Key::from(id), level });
        let found = [row(0).await, row(2).await].map(|answer| answer.expect("the actor lives").expect("it runs"));
        assert_eq!(found.map(|lookup| lookup.row().is_some()), [true, rows > 2]);
        let scan = RunScan { scan: Scan::new(), level };
        let mut stream = stage.reader.send(scan).await.expect("the actor lives").expect("it runs");
        let mut read = 0;
        while let Some(batch) = stream.next().await {
            read += batch.expect("read").num_rows() as u64;
        }
        assert_eq!(read, rows);
    }
}

#[tokio::test]
async fn q2_many_keys_are_answered_alike_inline_and_on_the_pool() {
    let stage = Stage::full();
    let keys: Vec<i64> = (0..130).map(|at| (at * 7) % 260).collect();
    let on_pool = stage.get_many(keys.clone()).await.expect("it runs");
    assert_eq!(stage.pool.spawned.load(Ordering::SeqCst), 1);
    assert!(on_pool.outcomes.contains(&Outcome::Missing), "the keys reach above the rows");
    let mut at = 0;
    for few in keys.chunks(INLINE_KEYS_MAX) {
        let inline = stage.get_many(few.iter().copied()).await.expect("it runs");
        for (place, id) in few.iter().enumerate() {
            assert_eq!(inline.row(place), on_pool.row(at), "key {id}");
            assert_eq!(inline.row(place).is_some(), *id < ROWS as i64, "key {id}");
            at += 1;
        }
    }
    assert_eq!((at, stage.pool.spawned.load(Ordering::SeqCst)), (130, 1), "few keys do not hop");
}

#[tokio::test]
async fn z5_a_lookup_the_pool_loses_fails_alone() {
    let stage = Stage::full();
    *stage.pool.loses.lock().expect("no job panics") = true;
    stage.get_many(0..100).await.expect_err("its answer is lost");
    *stage.pool.loses.lock().expect("no job panics") = false;
    assert!(matches!(stage.status.state(), ShardState::Running));
    assert_eq!(stage.get_many(0..100).await.expect("the next one works").rows.num_rows(), 100);
}

#[tokio::test]
async fn z1_a_reader_that_was_told_to_stop_latches_nothing() {
    let stage = Stage::full();
    stage.reader.send(Terminate).await.expect("the actor lives");
    while stage.reader.send(TakeSnapshot::default()).await.is_ok() {}
    let (done, over) = oneshot::channel();
    stage._host.read_arbiter().spawn_fn(move || done.send(()).expect("the test waits"));
    over.await.expect("the arbiter runs");
    assert!(matches!(stage.status.state(), ShardState::Running));
}

#[tokio::test]
async fn p5_rows_of_a_memtable_begun_meanwhile_are_in_the_first_snapshot_that_may_see_them() {
    let stage = Stage::full();
    let cpu_pool = Arc::clone(&stage.pool) as Arc<dyn CpuPool>;
    let (mut writer, rows) = memtable::new(&Arc::new(spec()), Seq::new(ROWS), &cpu_pool).expect("a memtable");
    stage.opening.send(rows).expect("the actor lives");
    writer.apply(&put(ROWS, 5)).expect("applied");
    stage.indexed.advance(Seq::new(ROWS + 5));
    stage.durable.advance(Seq::new(ROWS + 5));
    let found = stage.get_many([0, ROWS as i64 + 4]).await.expect("the shard answers");
    assert_eq!(found.rows.num_rows(), 2);
}

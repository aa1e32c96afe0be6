//! How a shard fails: once, loudly, for everyone (Z1 to Z5, W6, W7, L1).

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use support::clock::TestClock;
use support::fault_store::{Fault, Gate, Op};
use support::shard::{builder, faulty, in_time, keys, logged_ids, open, reopen, rows, settings, text};
use tidewal::actors::ShardState;
use tidewal::{
    BoxFuture, Clock, Components, CpuPool, Engine, Error, Failure, InlinePool, Job, Key, Result, Seq, Settings,
};

fn is_append_failure<T: std::fmt::Debug>(answer: Result<T>) -> bool {
    matches!(answer, Err(Error::Failed(Failure::Append(_))))
}

/// Every call answers with the reason, and the figures still answer.
async fn assert_failed(engine: &Engine, is_reason: impl Fn(&Error) -> bool) {
    let shown = [
        engine.put(rows(90..91, "late")).await.expect_err("failed"),
        engine.delete(&keys(0..1)).await.expect_err("failed"),
        engine.get(0).await.expect_err("failed"),
        engine.get_many(vec![Key::from(0)]).await.expect_err("failed"),
        engine.snapshot().await.expect_err("failed"),
        engine.cursors().wait_visible(Seq::ZERO).await.expect_err("failed"),
        engine.close().await.expect_err("failed"),
    ];
    for error in shown {
        assert!(is_reason(&error), "{error:?}");
    }
    assert!(matches!(engine.state(), ShardState::Failed(_)));
    assert!(engine.stats().bytes_max > 0, "Z3");
    engine.abort();
    assert!(matches!(engine.state(), ShardState::Failed(_)), "the first state stays");
}

#[tokio::test]
async fn w7_b04_an_append_that_fails_while_its_apply_succeeds_is_never_visible() {
    let (inner, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    engine.put(rows(0..1, "kept")).await.expect("written");
    let before = engine.snapshot().await.expect("a snapshot");
    faults.on(Op::Put, "wal/").always(Fault::FailBefore);
    let receipt = engine.put_no_wait(vec![rows(1..2, "lost")]).await.expect("sequenced");
    assert!(is_append_failure(in_time(receipt.visible()).await));
    assert!(is_append_failure(in_time(receipt.durable()).await), "B12: every waiter wakes");
    assert_eq!(engine.cursors().indexed(), Seq::new(2), "its apply succeeded");
    assert_eq!(engine.cursors().visible(), Seq::new(1), "V1");
    assert!(is_append_failure(before.get(0)), "Z2, B18: handles fail too");
    assert_failed(&engine, |error| is_append_failure::<()>(Err(error.clone()))).await;
    let attempts = faults.count(Op::Put, "wal/") - 1;
    assert_eq!(attempts, settings().store_attempts_max as usize, "W6: bounded");

    let engine = reopen(&inner).await;
    assert_eq!((text(&engine, 0).await.is_some(), text(&engine, 1).await), (true, None));
}

#[tokio::test]
async fn w6_a_passing_error_is_retried_at_the_same_place_and_counted() {
    let (inner, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    faults.on(Op::Put, "wal/").times(3, Fault::FailBefore);
    in_time(engine.put(rows(0..1, "a"))).await.expect("the fourth attempt succeeds");
    assert_eq!(engine.stats().append_retries, 3);
    assert_eq!(logged_ids(&inner).await, [0]);
}

#[tokio::test]
async fn w6_the_number_of_attempts_is_the_setting_store_attempts_max() {
    let (_, faults) = faulty();
    let few = Settings { store_attempts_max: 2, ..settings() };
    let engine = builder(Arc::new(faults.clone())).settings(few).open().await.expect("opens");
    faults.on(Op::Put, "wal/").times(2, Fault::FailBefore);
    assert!(is_append_failure(in_time(engine.put(rows(0..1, "a"))).await));
    assert_eq!(faults.count(Op::Put, "wal/"), 2);
}

#[tokio::test]
async fn z1_a_store_that_says_no_is_named_with_operation_object_and_attempts() {
    for (fault, attempts) in [(Fault::PermissionDenied, "1 attempt"), (Fault::DiskFull, "5 attempts")] {
        let (_, faults) = faulty();
        let engine = open(&faults).await.expect("opens");
        faults.on(Op::Put, "wal/").always(fault);
        let text = in_time(engine.put(rows(0..1, "a"))).await.expect_err("refused").to_string();
        for part in ["creating the log entry", "shard/wal/", attempts, "open it again"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}

#[tokio::test]
async fn z5_a_store_that_panics_fails_the_shard_and_hangs_nobody() {
    let (inner, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    faults.on(Op::Put, "wal/").once(Fault::Panic);
    let error = in_time(engine.put(rows(0..1, "a"))).await.expect_err("failed");
    assert!(matches!(error, Error::Failed(Failure::Invariant { id: "W1", .. })), "{error:?}");
    in_time(reopen(&inner).await.put(rows(0..1, "a"))).await.expect("the way back");
}

#[tokio::test]
async fn z1_b19_the_first_reason_wins_and_waiters_of_every_kind_get_it() {
    let (_, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    let gate = Gate::default();
    faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    let first = engine.put_no_wait(vec![rows(0..1, "a")]).await.expect("sequenced");
    in_time(gate.reached(1)).await;
    let second = engine.put_no_wait(vec![rows(1..2, "a")]).await.expect("sequenced");
    let waiters: Vec<_> = (0..20)
        .map(|_| {
            let second = second.clone();
            tokio::spawn(async move { second.visible().await })
        })
        .collect();
    faults.on(Op::Put, "wal/").always(Fault::PermissionDenied);
    let seen = tokio::spawn(async move { first.visible().await });
    gate.open();
    // L1: once the failure is latched, even the first is not acknowledged any more.
    let seen = in_time(seen).await.expect("the waiter ended");
    assert!(seen.is_ok() || is_append_failure(seen));
    for waiter in waiters {
        assert!(is_append_failure(in_time(waiter).await.expect("the waiter ended")));
    }
}

/// A clock whose owner can make the next readings on the write thread panic.
#[derive(Debug)]
struct PanickyClock {
    inner: TestClock,
    /// Panics when it reaches zero; negative does nothing.
    fuse: AtomicI64,
}

impl Clock for PanickyClock {
    fn now(&self) -> Duration {
        let on_write_thread = std::thread::current().name() == Some("tidewal-write");
        if on_write_thread && self.fuse.load(Ordering::SeqCst) >= 0 && self.fuse.fetch_sub(1, Ordering::SeqCst) == 0 {
            panic!("the clock panics, as the test wants");
        }
        self.inner.now()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        self.inner.sleep(duration)
    }
}

#[tokio::test]
async fn z4_a_panic_in_the_wal_appender_fails_the_shard() {
    let (inner, _) = faulty();
    let clock = Arc::new(PanickyClock { inner: TestClock::automatic(), fuse: AtomicI64::new(-1) });
    let components = Components { clock: Arc::clone(&clock) as Arc<dyn Clock>, ..Components::default() };
    let engine = builder(Arc::clone(&inner)).components(components).open().await.expect("opens");
    engine.put(rows(0..1, "kept")).await.expect("written");
    // The next to read the clock is the handler of `Append`.
    clock.fuse.store(0, Ordering::SeqCst);
    let error = in_time(engine.put(rows(1..2, "a"))).await.expect_err("the actor died");
    let of_appender = |error: &Error| died(error, "WalAppender");
    assert!(of_appender(&error), "{error:?}");
    assert_failed(&engine, of_appender).await;
    drop(engine);
    assert!(text(&reopen(&inner).await, 0).await.is_some(), "R1");
}

fn died(error: &Error, name: &str) -> bool {
    matches!(error, Error::Failed(Failure::ActorDied { actor, panicked: true }) if *actor == name)
}

/// A pool that panics on request, on its caller's thread.
#[derive(Debug, Default)]
struct PanickyPool(AtomicBool);

impl CpuPool for PanickyPool {
    fn spawn(&self, job: Job<'static>) {
        assert!(!self.0.load(Ordering::SeqCst), "the pool panics, as the test wants");
        InlinePool.spawn(job);
    }

    fn run_all(&self, jobs: Vec<Job<'_>>) {
        InlinePool.run_all(jobs);
    }
}

async fn with_pool(pool: Arc<dyn CpuPool>, settings: Settings) -> Engine {
    let components = Components { cpu_pool: pool, clock: Arc::new(TestClock::automatic()), ..Components::default() };
    builder(faulty().0).settings(settings).components(components).open().await.expect("opens")
}

#[tokio::test]
async fn z4_a_panic_in_the_reader_fails_the_shard() {
    let pool = Arc::new(PanickyPool::default());
    let engine = with_pool(Arc::clone(&pool) as Arc<dyn CpuPool>, settings()).await;
    engine.put(rows(0..1, "a")).await.expect("written");
    pool.0.store(true, Ordering::SeqCst);
    let many = (0..1000).map(Key::from).collect();
    let error = in_time(engine.get_many(many)).await.expect_err("the reader died");
    assert!(died(&error, "Reader"), "{error:?}");
    in_time(assert_failed(&engine, |error| died(error, "Reader"))).await;
}

#[tokio::test]
async fn z4_a_panic_in_the_index_applier_fails_the_shard() {
    let pool = Arc::new(PanickyPool::default());
    let settings = Settings { inline_apply_rows_max: 1, ..settings() };
    let engine = with_pool(Arc::clone(&pool) as Arc<dyn CpuPool>, settings).await;
    engine.put(rows(0..1, "a")).await.expect("written");
    pool.0.store(true, Ordering::SeqCst);
    let error = in_time(engine.put(rows(1..9, "a"))).await.expect_err("the actor died");
    assert!(died(&error, "IndexApplier"), "{error:?}");
    in_time(assert_failed(&engine, |error| died(error, "IndexApplier"))).await;
}

/// A pool that loses its jobs.
#[derive(Debug)]
struct LossyPool;

impl CpuPool for LossyPool {
    fn spawn(&self, job: Job<'static>) {
        drop(job);
    }

    fn run_all(&self, jobs: Vec<Job<'_>>) {
        InlinePool.run_all(jobs);
    }
}

#[tokio::test]
async fn z5_a_pool_that_loses_the_memtable_fails_the_shard_and_hangs_nobody() {
    let engine = with_pool(Arc::new(LossyPool), Settings { inline_apply_rows_max: 1, ..settings() }).await;
    let error = in_time(engine.put(rows(0..10, "a"))).await.expect_err("lost");
    assert!(matches!(error, Error::Failed(Failure::Apply { .. })), "{error:?}");
}

#[tokio::test]
async fn p10_a_put_that_waits_for_memory_hears_of_the_failure() {
    let (_, faults) = faulty();
    let settings = Settings {
        memtable_bytes_max: 1 << 20,
        unflushed_bytes_max: 2 << 20,
        backpressure_timeout: Duration::from_secs(3600),
        ..settings()
    };
    let components = Components { clock: Arc::new(TestClock::manual()), ..Components::default() };
    let engine =
        builder(Arc::new(faults.clone())).settings(settings).components(components).open().await.expect("opens");
    let gate = Gate::default();
    faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    faults.on(Op::Put, "wal/").always(Fault::PermissionDenied);
    let admission = engine.addresses().admission;
    let mut held = Vec::new();
    let mut waiting = loop {
        let mut put = Box::pin(admission.put(vec![rows(0..1000, "a")]));
        match futures::poll!(&mut put) {
            std::task::Poll::Ready(admitted) => held.push(admitted.expect("room")),
            std::task::Poll::Pending => break put,
        }
    };
    assert!(futures::poll!(&mut waiting).is_pending());
    let (append, _) = tidewal::actors::wal_appender::Append::new(held.pop().expect("at least one"));
    engine.addresses().wal_appender.send(append).await.expect("taken");
    let (append, _) = tidewal::actors::wal_appender::Append::new(held.pop().expect("at least two"));
    engine.addresses().wal_appender.send(append).await.expect("taken");
    gate.open();
    assert!(is_append_failure(in_time(waiting).await));
}

//! How a shard ends when nothing is wrong (C1 to C3).

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use support::fault_store::{Fault, Gate, Op};
use support::shard::{builder, faulty, found_ids, in_time, open, reopen, rows, settings, text};
use tidewal::actors::ShardState;
use tidewal::actors::herald::{ShardEvent, Subscribe};
use tidewal::{Error, Settings};

#[tokio::test]
async fn c1_b41_close_makes_durable_what_was_taken_in_either_mode() {
    for durable_writes in [true, false] {
        let (inner, faults) = faulty();
        let store = Arc::new(faults.clone());
        let engine = builder(store).settings(Settings { durable_writes, ..settings() }).open().await.expect("opens");
        let gate = Gate::default();
        faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
        for id in 0..100 {
            engine.put_no_wait(vec![rows(id..id + 1, "a")]).await.expect("sequenced");
        }
        let closing = tokio::spawn({
            let engine = engine.clone();
            async move { engine.close().await }
        });
        in_time(gate.reached(1)).await;
        gate.open();
        in_time(closing).await.expect("the task ended").expect("closed");
        assert_eq!(found_ids(&inner).await, (0..100).collect::<Vec<_>>());
        assert!(matches!(engine.state(), ShardState::Closed));
        assert!(matches!(engine.put(rows(0..1, "late")).await, Err(Error::Closed)));
        assert!(matches!(engine.get(0).await, Err(Error::Closed)));
        in_time(engine.close()).await.expect("C1: twice is fine");
        assert_eq!(engine.stats().puts, 100, "Z3");
    }
}

#[tokio::test]
async fn c1_b42_close_returns_the_first_error() {
    let (_, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    let gate = Gate::default();
    faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    faults.on(Op::Put, "wal/").always(Fault::PermissionDenied);
    engine.put_no_wait(vec![rows(0..1, "a")]).await.expect("sequenced");
    in_time(gate.reached(1)).await;
    engine.put_no_wait(vec![rows(1..2, "a")]).await.expect("sequenced");
    let closes: Vec<_> = (0..3)
        .map(|_| {
            let engine = engine.clone();
            tokio::spawn(async move { engine.close().await })
        })
        .collect();
    gate.open();
    for close in closes {
        let error = in_time(close).await.expect("the task ended").expect_err("the second write failed");
        assert!(error.to_string().contains("403"), "{error}");
    }
}

#[tokio::test]
async fn c2_abort_leaves_the_store_alone_and_keeps_what_was_acknowledged() {
    let (inner, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    engine.put(rows(0..5, "a")).await.expect("written");
    faults.clear_log();
    engine.abort();
    engine.abort();
    in_time(engine.close()).await.expect("an aborted shard is closed");
    assert!(matches!(engine.put(rows(0..1, "late")).await, Err(Error::Closed)));
    assert_eq!(faults.log(), [], "no I/O");
    let engine = reopen(&inner).await;
    assert!(text(&engine, 4).await.is_some());
}

#[tokio::test]
async fn c1_a_close_that_an_abort_overtakes_does_not_claim_to_have_drained() {
    let (_, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    let gate = Gate::default();
    faults.on(Op::Put, "wal/").always(Fault::Hold(gate.clone()));
    engine.put_no_wait(vec![rows(0..1, "a")]).await.expect("sequenced");
    in_time(gate.reached(1)).await;
    let mut closing = Box::pin(engine.close());
    assert!(futures::poll!(&mut closing).is_pending());
    engine.abort();
    assert!(matches!(in_time(closing).await, Err(Error::Closed)));
    in_time(engine.close()).await.expect("it has ended");
}

#[tokio::test]
async fn c2_whoever_waits_during_an_abort_hears_closed() {
    let (_, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    let gate = Gate::default();
    faults.on(Op::Put, "wal/").always(Fault::Hold(gate.clone()));
    let receipt = engine.put_no_wait(vec![rows(0..1, "a")]).await.expect("sequenced");
    let waiter = tokio::spawn(async move { receipt.visible().await });
    in_time(gate.reached(1)).await;
    engine.abort();
    let answer = in_time(waiter).await.expect("the task ended");
    assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
}

#[tokio::test]
async fn c3_dropping_the_last_handle_in_the_middle_of_writes_loses_nothing_taken() {
    for durable_writes in [true, false] {
        let (inner, faults) = faulty();
        let store = Arc::new(faults.clone());
        let engine = builder(store).settings(Settings { durable_writes, ..settings() }).open().await.expect("opens");
        let gate = Gate::default();
        faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
        let mut events = subscribe(&engine).await;
        for id in 0..50 {
            engine.put_no_wait(vec![rows(id..id + 1, "a")]).await.expect("sequenced");
        }
        drop(engine);
        gate.open();
        while !matches!(in_time(events.recv()).await.expect("the end is told"), ShardEvent::Closed) {}
        assert_eq!(found_ids(&inner).await, (0..50).collect::<Vec<_>>());
    }
}

/// An embedder's actor on a system of its own, and what it hears.
async fn subscribe(engine: &tidewal::Engine) -> tokio::sync::mpsc::UnboundedReceiver<ShardEvent> {
    use actix::{Actor, Context, Handler};
    struct Listener(tokio::sync::mpsc::UnboundedSender<ShardEvent>);
    impl Actor for Listener {
        type Context = Context<Self>;
    }
    impl Handler<ShardEvent> for Listener {
        type Result = ();
        fn handle(&mut self, event: ShardEvent, _: &mut Self::Context) {
            // The test has heard enough.
            let _ = self.0.send(event);
        }
    }
    let (heard, events) = tokio::sync::mpsc::unbounded_channel();
    let (started, address) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        actix_rt::System::new().block_on(async {
            let address = Listener(heard).start();
            assert!(started.send(address.recipient()).is_ok(), "the test waits");
            std::future::pending::<()>().await;
        });
    });
    let listener = address.await.expect("it started");
    engine.addresses().herald.send(Subscribe(listener)).await.expect("subscribed");
    events
}

#[tokio::test]
async fn z1_subscribers_hear_of_opening_and_end_and_late_ones_too() {
    let (_, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    let mut early = subscribe(&engine).await;
    assert!(matches!(in_time(early.recv()).await, Some(ShardEvent::Opened { .. })));
    faults.on(Op::Put, "wal/").always(Fault::PermissionDenied);
    in_time(engine.put(rows(0..1, "a"))).await.expect_err("refused");
    assert!(matches!(in_time(early.recv()).await, Some(ShardEvent::Failed(_))));
    let mut late = subscribe(&engine).await;
    assert!(matches!(in_time(late.recv()).await, Some(ShardEvent::Opened { .. })));
    assert!(matches!(in_time(late.recv()).await, Some(ShardEvent::Failed(_))));
}

//! Two writers of one shard (E1 to E3, O5 to O7).

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use support::fault_store::{Fault, Gate, Op};
use support::shard::{builder, faulty, in_time, keys, logged_ids, open, reopen, rows, text};
use tidewal::{Engine, Error, IndexSpec, Settings, TableSpec};

#[tokio::test]
async fn o5_b28_a_doomed_open_writes_nothing_and_leaves_the_incumbent_writing() {
    let (inner, faults) = faulty();
    let incumbent = reopen(&inner).await;
    incumbent.put(rows(0..1, "a")).await.expect("written");
    let schema = support::shard::schema();
    let none: [&str; 0] = [];
    let doomed = [
        TableSpec::new(Arc::clone(&schema)).primary_key(["missing"]),
        TableSpec::new(Arc::clone(&schema)).primary_key(["text"]),
        TableSpec::new(Arc::clone(&schema)).primary_key(["id"]).index(IndexSpec::btree("i", none)),
        TableSpec::new(Arc::clone(&schema)),
    ];
    for spec in doomed {
        let error = builder(Arc::new(faults.clone())).spec(spec).open().await.expect_err("doomed");
        assert!(matches!(error, Error::InvalidInput { .. }), "{error}");
    }
    let settings = Settings { replay_prefetch: 0, ..Settings::default() };
    builder(Arc::new(faults.clone())).settings(settings).open().await.expect_err("doomed");
    assert_eq!(faults.count(Op::Put, ""), 0);
    incumbent.put(rows(1..2, "a")).await.expect("still the writer");
}

#[tokio::test]
async fn e2_a_fenced_writer_acknowledges_and_reads_nothing_more() {
    let (inner, faults) = faulty();
    let first = open(&faults).await.expect("opens");
    first.put(rows(0..1, "a")).await.expect("written");
    let gate = Gate::default();
    faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    let receipt = first.put_no_wait(vec![rows(1..2, "a")]).await.expect("sequenced");
    in_time(gate.reached(1)).await;
    let second = reopen(&inner).await;
    let waiter = tokio::spawn(async move { receipt.visible().await });
    gate.open();
    let fenced = |error: &Error| matches!(error, Error::Fenced { ours, by } if ours.get() == 1 && by.get() == 2);
    let error = in_time(waiter).await.expect("the waiter ended").expect_err("B12");
    assert!(fenced(&error), "{error}");
    for error in [
        first.put(rows(2..3, "a")).await.expect_err("fenced"),
        first.get(0).await.expect_err("fenced"),
        first.close().await.expect_err("fenced"),
    ] {
        assert!(fenced(&error), "{error}");
    }
    second.put(rows(1..2, "b")).await.expect("written");
    assert_eq!(text(&second, 1).await.as_deref(), Some("b 1"));
}

#[tokio::test]
async fn e3_what_a_zombie_got_in_before_the_sentinel_is_kept_and_its_acknowledgement_was_honest() {
    let (inner, faults) = faulty();
    let zombie = open(&faults).await.expect("opens");
    zombie.put(rows(0..1, "a")).await.expect("written");
    // The successor has claimed its epoch and is about to write its sentinel.
    let (_, slow) = (Arc::clone(&inner), support::fault_store::FaultStore::new(Arc::clone(&inner)));
    let gate = Gate::default();
    slow.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    let opening = tokio::spawn({
        let slow = slow.clone();
        async move { open(&slow).await }
    });
    in_time(gate.reached(1)).await;
    in_time(zombie.put(rows(1..2, "a"))).await.expect("B36: acknowledged before the sentinel");
    gate.open();
    let successor = in_time(opening).await.expect("the task ended").expect("opens");
    assert!(text(&successor, 1).await.is_some());
    assert!(matches!(in_time(zombie.put(rows(2..3, "a"))).await, Err(Error::Fenced { .. })));
}

/// A writer that is paused before (or after) its n-th store operation while another opens,
/// writes, and is itself opened over, and is then resumed.
async fn zombie_paused_at(operation: u64, op: Op, after: bool) -> bool {
    let (inner, faults) = faulty();
    let zombie = open(&faults).await.expect("opens");
    let gate = Gate::default();
    let fault = if after { Fault::HoldAnswer(gate.clone()) } else { Fault::Hold(gate.clone()) };
    faults.on(op, "").skip(operation).once(fault);
    // A conflict now and then makes the zombie read, so that its reads can be paused too.
    faults.on(Op::Put, "wal/").skip(2).once(Fault::FailAfter);

    let writing = tokio::spawn({
        let zombie = zombie.clone();
        async move {
            let mut acknowledged = BTreeMap::new();
            for id in 0..20 {
                match zombie.put(rows(id..id + 1, "zombie")).await {
                    Ok(range) => acknowledged.insert(id, range),
                    Err(_) => break,
                };
            }
            acknowledged
        }
    });
    let paused = tokio::select! {
        () = gate.reached(1) => true,
        () = async { while !writing.is_finished() { tokio::task::yield_now().await } } => false,
    };
    let successor = reopen(&inner).await;
    successor.put(rows(100..103, "successor")).await.expect("written");
    let third = reopen(&inner).await;
    third.put(rows(200..201, "third")).await.expect("written");
    gate.open();
    let acknowledged = in_time(writing).await.expect("the zombie ended");

    let last = reopen(&inner).await;
    for id in acknowledged.keys() {
        assert_eq!(text(&last, *id).await.as_deref(), Some(format!("zombie {id}").as_str()), "E1: {op:?} {operation}");
    }
    for id in [100, 101, 102, 200] {
        assert!(text(&last, id).await.is_some(), "{id} after {op:?} {operation}");
    }
    let mut logged = logged_ids(&inner).await;
    let rows_logged = logged.len();
    logged.sort_unstable();
    logged.dedup();
    assert_eq!(logged.len(), rows_logged, "no row twice");
    if paused {
        assert!(acknowledged.len() < 20, "after the fence nothing is acknowledged: {op:?} {operation}");
        assert!(matches!(zombie.get(0).await, Err(Error::Fenced { .. })), "{op:?} {operation}");
    }
    paused
}

#[tokio::test]
async fn e1_b36_b38_a_zombie_resumed_at_any_store_operation_acknowledges_nothing_that_a_reopen_does_not_show() {
    let mut paused = 0;
    for op in [Op::Put, Op::Get] {
        for operation in 0..8 {
            for after in [false, true] {
                paused += u32::from(zombie_paused_at(operation, op, after).await);
            }
        }
    }
    assert!(paused >= 10, "the zombie was paused {paused} times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn o6_of_racing_openers_exactly_one_owns_the_shard_and_none_hangs() {
    for round in 0..10 {
        let (inner, _) = faulty();
        reopen(&inner).await.close().await.expect("closed");
        let openers: Vec<_> = (0..8)
            .map(|_| {
                let inner = Arc::clone(&inner);
                tokio::spawn(async move { builder(inner).open().await })
            })
            .collect();
        let mut opened = Vec::new();
        for opener in openers {
            match in_time(opener).await.expect("the opener ended") {
                Ok(engine) => opened.push(engine),
                Err(error) => assert!(matches!(error, Error::Fenced { .. }), "round {round}: {error}"),
            }
        }
        let mut owners = 0;
        for (id, engine) in opened.iter().enumerate() {
            let id = id as i64;
            match in_time(engine.put(rows(id..id + 1, "a"))).await {
                Ok(_) => owners += 1,
                Err(error) => assert!(matches!(error, Error::Fenced { .. }), "round {round}: {error}"),
            }
        }
        assert_eq!(owners, 1, "round {round}");
    }
}

#[tokio::test]
async fn w4_b91_an_answer_lost_after_success_neither_doubles_rows_nor_fences_the_writer() {
    let (inner, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    for id in 0..20 {
        faults.on(Op::Put, "wal/").once(if id % 2 == 0 { Fault::FailAfter } else { Fault::AlreadyExists });
        in_time(engine.put(rows(id..id + 1, "a"))).await.expect("resolved by reading back");
    }
    in_time(engine.delete(&keys(0..1))).await.expect("deleted");
    assert_eq!(logged_ids(&inner).await.len(), 21);
    assert!(engine.stats().appends_resolved >= 10);
    let engine: Engine = reopen(&inner).await;
    assert_eq!(engine.cursors().visible().get(), 21);
}

#[tokio::test]
async fn w5_a_conflict_without_an_object_is_tried_again_whatever_the_store_calls_it() {
    for fault in [Fault::AlreadyExists, Fault::Precondition] {
        let (inner, faults) = faulty();
        let engine = open(&faults).await.expect("opens");
        faults.on(Op::Put, "wal/").times(3, fault);
        in_time(engine.put(rows(0..1, "a"))).await.expect("tried again");
        assert_eq!(logged_ids(&inner).await, [0]);
    }
}

//! What an open finds after a crash (R1 to R4, F5 as far as the log goes).

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use support::fault_store::{Fault, Op, Remains};
use support::shard::{builder, faulty, in_time, keys, logged_ids, open, reopen, rows, settings, text};
use tidewal::{Engine, Error, Lookup, Seq, Settings};

/// What a shard answers for ten keys.
async fn answers(engine: &Engine) -> Vec<Option<String>> {
    let mut answers = Vec::new();
    for id in 0..10 {
        answers.push(text(engine, id).await);
    }
    answers
}

#[tokio::test]
async fn r1_b29_a_crash_keeps_every_acknowledged_row_once() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    engine.put(rows(0..8, "a")).await.expect("written");
    engine.put(rows(3..5, "b")).await.expect("written");
    engine.delete(&keys(7..8)).await.expect("deleted");
    let before = answers(&engine).await;
    let logged = logged_ids(&inner).await;
    // A drop would close it, and a close writes generations.
    engine.abort();
    for round in 0..10 {
        // No close: each open finds a log that ended without warning.
        let engine = reopen(&inner).await;
        assert_eq!(answers(&engine).await, before, "R2, round {round}");
        assert!(matches!(engine.get(7).await.expect("a lookup"), Lookup::Deleted));
        assert_eq!(logged_ids(&inner).await, logged, "W4: nothing is appended again");
        assert_eq!(engine.cursors().visible(), Seq::new(11));
        assert_eq!(engine.stats().rows_replayed, 11);
        engine.abort();
    }
}

#[tokio::test]
async fn r2_b01_a_reopen_then_one_put_of_2_rows_on_8_leaves_10_rows_in_the_log() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    engine.put(rows(0..8, "a")).await.expect("written");
    engine.abort();
    let engine = reopen(&inner).await;
    engine.put(rows(8..10, "a")).await.expect("written");
    assert_eq!(logged_ids(&inner).await.len(), 10);
    assert_eq!(engine.cursors().durable(), Seq::new(10));
    assert_eq!(engine.stats().rows_applied, 2, "replayed rows are not indexed again");
}

#[tokio::test]
async fn r3_b5_a_read_error_during_replay_fails_the_open_and_never_shortens_the_log() {
    let (inner, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    for id in 0..5 {
        engine.put(rows(id..id + 1, "a")).await.expect("written");
    }
    engine.abort();
    for skip in 0..5 {
        for fault in [Fault::FailBefore, Fault::PermissionDenied] {
            faults.heal();
            faults.on(Op::Get, "wal/").skip(skip).always(fault.clone());
            let error = open(&faults).await.expect_err("cannot be read");
            assert!(matches!(error, Error::Io { .. }), "{fault:?} after {skip}: {error}");
        }
        faults.heal();
        faults.on(Op::Get, "wal/").skip(skip).times(2, Fault::FailBefore);
        let engine = open(&faults).await.expect("an error that passes is retried");
        assert_eq!(engine.cursors().visible(), Seq::new(5));
        engine.abort();
    }
    assert_eq!(logged_ids(&inner).await.len(), 5);
}

#[tokio::test]
async fn r4_a_torn_last_entry_ends_the_log_and_is_said_and_later_opens_agree() {
    let (inner, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    engine.put(rows(0..3, "a")).await.expect("written");
    faults.stop_syncing();
    engine.put(rows(3..6, "a")).await.expect("the store lies");
    engine.abort();
    let torn = faults.crash(Remains::Prefix(100)).await;
    assert_eq!(torn.len(), 1);
    let engine = open(&faults).await.expect("opens");
    assert_eq!(engine.stats().torn_tail.as_deref(), Some(torn[0].as_ref()));
    assert_eq!(engine.cursors().visible(), Seq::new(3));
    engine.put(rows(6..8, "a")).await.expect("written");
    for _ in 0..3 {
        let engine = reopen(&inner).await;
        assert_eq!(engine.cursors().visible(), Seq::new(5));
        engine.abort();
        let engine = reopen(&inner).await;
        assert!(text(&engine, 7).await.is_some());
    }
}

#[tokio::test]
async fn r4_w8_damage_in_the_middle_of_the_log_is_corrupt_and_named() {
    let (_, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    for id in 0..4 {
        engine.put(rows(id..id + 1, "a")).await.expect("written");
    }
    engine.abort();
    let names = faults.names("shard/wal").await;
    for name in &names {
        let whole = faults.read(name).await;
        for (what, remains) in
            [("lost", Remains::Nothing), ("cut", Remains::Prefix(whole.len() / 2)), ("zeroed", Remains::Zeros(64))]
        {
            faults.damage(name, remains).await;
            match open(&faults).await {
                Err(Error::Corrupt { object, .. }) => assert!(object.contains("wal/"), "{object}"),
                // The last entry of the writer before may have been torn by a crash.
                Ok(engine) => {
                    assert!(engine.stats().torn_tail.is_some() || what == "lost", "{what} {name}");
                    assert_eq!(engine.cursors().visible(), Seq::new(3), "an exact prefix");
                    // A close would write generations of it.
                    engine.abort();
                }
                Err(other) => panic!("{what} {name}: {other}"),
            }
            // Undo the damage, and the sentinel that may have been written meanwhile.
            faults.overwrite(name, whole.clone()).await;
            for later in faults.names("shard/wal").await {
                if !names.contains(&later) {
                    faults.damage(&later, Remains::Nothing).await;
                }
            }
        }
    }
}

#[tokio::test]
async fn o9_an_open_that_fails_after_the_claim_leaves_a_shard_that_opens() {
    let (inner, faults) = faulty();
    reopen(&inner).await.put(rows(0..3, "a")).await.expect("written");
    faults.on(Op::Put, "wal/").always(Fault::PermissionDenied);
    let error = open(&faults).await.expect_err("no sentinel");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    let engine = reopen(&inner).await;
    assert_eq!(engine.stats().epoch.get(), 3);
    assert!(text(&engine, 2).await.is_some());
}

#[tokio::test]
async fn f6_a_log_larger_than_the_budget_still_opens_and_reads() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    for put in 0..30 {
        engine.put(rows(put * 1000..(put + 1) * 1000, "a")).await.expect("written");
    }
    engine.abort();
    let small = Settings { memtable_bytes_max: 1 << 20, unflushed_bytes_max: 2 << 20, ..settings() };
    let engine = in_time(builder(Arc::clone(&inner)).settings(small).open()).await.expect("opens");
    assert!(text(&engine, 29_999).await.is_some());
    in_time(engine.put(rows(0..1, "a"))).await.expect("there is room: what was replayed is frozen");
}

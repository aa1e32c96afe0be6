//! What a put and a delete promise (P1 to P11, V1 to V6).

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use support::fault_store::{Fault, Gate, Op};
use support::shard::{builder, faulty, in_time, keys, logged_ids, open, reopen, rows, settings, spec, text};
use tidewal::actors::reader::TakeSnapshot;
use tidewal::{Components, Error, ReadLevel, Seq, SeqRange, Settings, TableSpec};

fn range(first: u64, end: u64) -> SeqRange {
    SeqRange::between(Seq::new(first), Seq::new(end))
}

#[tokio::test]
async fn p4_a_durable_put_resolves_when_its_rows_are_in_the_log_and_indexed() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    assert_eq!(engine.put(rows(0..3, "a")).await.expect("written"), range(0, 3));
    assert_eq!(logged_ids(&inner).await, [0, 1, 2], "B11: acknowledged after the write, not before");
    assert_eq!(engine.cursors().visible(), Seq::new(3));
    assert_eq!(text(&engine, 2).await.as_deref(), Some("a 2"));
}

#[tokio::test]
async fn p4_v2_b04_in_durable_mode_nothing_is_visible_before_it_is_in_the_log() {
    let (_, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    let gate = Gate::default();
    faults.on(Op::Put, "wal/").always(Fault::Hold(gate.clone()));
    let receipt = engine.put_no_wait(vec![rows(0..2, "a")]).await.expect("sequenced");
    assert_eq!(receipt.range(), range(0, 2));
    in_time(engine.cursors().wait_indexed(Seq::new(2))).await.expect("indexed");
    in_time(gate.reached(1)).await;
    assert_eq!(engine.cursors().visible(), Seq::ZERO);
    assert_eq!(text(&engine, 0).await, None);

    // V5, B15: whoever asks for it sees what is indexed.
    let request = TakeSnapshot { level: ReadLevel::Indexed, as_of: None };
    let early = engine.snapshot_with(request).await.expect("a snapshot");
    assert!(early.get(0).expect("a lookup").row().is_some());

    gate.open();
    in_time(receipt.visible()).await.expect("visible");
    assert_eq!(text(&engine, 0).await.as_deref(), Some("a 0"));
}

#[tokio::test]
async fn p5_b06_without_durability_a_put_is_read_while_no_log_write_has_finished() {
    let (_, faults) = faulty();
    let engine = builder(Arc::new(faults.clone()))
        .settings(Settings { durable_writes: false, ..settings() })
        .open()
        .await
        .expect("opens");
    let gate = Gate::default();
    faults.on(Op::Put, "wal/").always(Fault::Hold(gate.clone()));
    for id in 0..50 {
        in_time(engine.put(rows(id..id + 1, "a"))).await.expect("indexed");
        assert!(text(&engine, id).await.is_some());
    }
    assert_eq!(engine.cursors().durable(), Seq::ZERO);
    gate.open();
    in_time(engine.cursors().wait_durable(Seq::new(50))).await.expect("durable in the end");
}

#[tokio::test]
async fn w3_everything_that_arrives_during_a_write_goes_into_the_next_entry() {
    let (inner, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    let gate = Gate::default();
    faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    let mut receipts = vec![engine.put_no_wait(vec![rows(0..1, "a")]).await.expect("sequenced")];
    in_time(gate.reached(1)).await;
    for id in 1..100 {
        receipts.push(engine.put_no_wait(vec![rows(id..id + 1, "a")]).await.expect("sequenced"));
    }
    gate.open();
    for receipt in receipts {
        in_time(receipt.durable()).await.expect("durable");
    }
    assert_eq!(faults.count(Op::Put, "wal/"), 2, "group commit");
    assert_eq!(logged_ids(&inner).await, (0..100).collect::<Vec<_>>());
    assert_eq!(engine.stats().entries_written, 2);
}

#[tokio::test]
async fn w3_the_size_of_an_entry_is_the_setting_wal_entry_bytes_max() {
    let (inner, faults) = faulty();
    let store = Arc::new(faults.clone());
    let engine =
        builder(store).settings(Settings { wal_entry_bytes_max: 1, ..settings() }).open().await.expect("opens");
    let gate = Gate::default();
    faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    for id in 0..5 {
        engine.put_no_wait(vec![rows(id..id + 1, "a")]).await.expect("sequenced");
    }
    gate.open();
    in_time(engine.cursors().wait_durable(Seq::new(5))).await.expect("durable");
    assert_eq!(engine.stats().entries_written, 5);
    assert_eq!(logged_ids(&inner).await, [0, 1, 2, 3, 4]);
}

#[tokio::test]
async fn p11_b16_the_flush_interval_delays_a_later_row_and_then_lets_it_go_without_another_put() {
    let (_, faults) = faulty();
    let clock = support::clock::TestClock::manual();
    let interval = Duration::from_millis(100);
    let engine = builder(Arc::new(faults))
        .settings(Settings { wal_flush_interval: Some(interval), ..settings() })
        .components(Components { clock: Arc::new(clock.clone()), ..Components::default() })
        .open()
        .await
        .expect("opens");
    in_time(engine.put(rows(0..1, "a"))).await.expect("an idle log writes at once");
    let second = engine.put_no_wait(vec![rows(1..2, "a")]).await.expect("sequenced");
    in_time(engine.cursors().wait_indexed(Seq::new(2))).await.expect("indexed");
    assert_eq!(clock.sleeping(), 1, "it waits for the interval");
    assert_eq!(engine.cursors().durable(), Seq::new(1));
    clock.advance(interval);
    in_time(second.durable()).await.expect("and then for nothing else");
}

#[tokio::test]
async fn p7_a_put_whose_future_is_dropped_after_its_seq_still_happens_once() {
    let (inner, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    let gate = Gate::default();
    faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    {
        let put = engine.put(rows(0..3, "a"));
        tokio::pin!(put);
        tokio::select! {
            biased;
            () = gate.reached(1) => {}
            _ = &mut put => panic!("the write is held"),
        }
        // The future is dropped here, in the middle.
    }
    let polled = futures::poll!(Box::pin(engine.put(rows(3..4, "a"))));
    assert!(polled.is_pending(), "dropped after its first poll");
    gate.open();
    in_time(engine.put(rows(4..5, "a"))).await.expect("written");
    let mut logged = logged_ids(&inner).await;
    logged.dedup();
    assert_eq!(logged, [0, 1, 2, 3, 4]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p8_sixty_four_tasks_of_two_hundred_puts_leave_exactly_their_rows() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    let tasks: Vec<_> = (0..64)
        .map(|task| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let mut ranges = Vec::new();
                for put in 0..200 {
                    let id = task * 200 + put;
                    ranges.push(engine.put(rows(id..id + 1, "a")).await.expect("written"));
                    assert!(engine.get(id).await.expect("a lookup").row().is_some(), "P5");
                }
                ranges
            })
        })
        .collect();
    let mut ranges = Vec::new();
    for task in tasks {
        ranges.extend(in_time(task).await.expect("the task ended"));
    }
    ranges.sort_by_key(|range| range.first());
    for (at, range) in ranges.iter().enumerate() {
        assert_eq!((range.first(), range.rows()), (Seq::new(at as u64), 1), "S1");
    }
    let mut logged = logged_ids(&inner).await;
    logged.sort_unstable();
    assert_eq!(logged, (0..64 * 200).collect::<Vec<_>>());
}

#[tokio::test]
async fn p9_deletes_are_writes_like_any_other_and_a_put_revives_a_key() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    engine.put(rows(0..3, "a")).await.expect("written");
    assert_eq!(engine.delete(&keys(1..2)).await.expect("deleted"), range(3, 4));
    assert!(matches!(engine.get(1).await.expect("a lookup"), tidewal::Lookup::Deleted));
    engine.delete(&keys(77..78)).await.expect("an absent key is no error");
    engine.put(rows(1..2, "b")).await.expect("written");
    assert_eq!(text(&engine, 1).await.as_deref(), Some("b 1"));
    engine.delete(&keys(0..1)).await.expect("deleted");

    drop(engine);
    let engine = reopen(&inner).await;
    assert!(matches!(engine.get(0).await.expect("a lookup"), tidewal::Lookup::Deleted));
    assert!(matches!(engine.get(5).await.expect("a lookup"), tidewal::Lookup::Missing), "B60: told apart");
    assert_eq!(text(&engine, 1).await.as_deref(), Some("b 1"));
}

#[tokio::test]
async fn p9_a_delete_needs_a_primary_key_and_takes_its_columns_only() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    let error = engine.delete(&rows(0..1, "a")).await.expect_err("too many columns");
    assert!(error.to_string().contains("1 columns (id)"), "{error}");
    let error = engine.delete(&keys(0..0)).await.expect_err("no rows");
    assert!(error.to_string().contains("no rows"), "{error}");
    assert_eq!(engine.stats().puts, 0, "nothing was written");
}

#[tokio::test]
async fn p1_bad_input_is_refused_before_it_gets_a_seq_and_writes_nothing() {
    let (_, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    faults.clear_log();
    let other = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
    let other = RecordBatch::try_new(Arc::new(other), vec![Arc::new(Int64Array::from(vec![1]))]).expect("a batch");
    for batches in [vec![], vec![rows(0..0, "a")], vec![rows(0..1, "a"), other]] {
        let error = engine.put_all(batches).await.expect_err("bad input");
        assert!(matches!(error, Error::InvalidInput { .. }), "{error}");
    }
    assert_eq!(faults.log(), []);
    assert_eq!(engine.put(rows(0..1, "a")).await.expect("written"), range(0, 1));
}

/// A budget that a handful of puts fills.
fn small_budget() -> Settings {
    Settings {
        memtable_bytes_max: 1 << 20,
        unflushed_bytes_max: 4 << 20,
        backpressure_timeout: Duration::from_millis(20),
        ..settings()
    }
}

#[tokio::test]
async fn p2_a_put_above_half_the_budget_is_refused_with_both_figures() {
    let (inner, _) = faulty();
    let engine = builder(inner).settings(small_budget()).open().await.expect("opens");
    let error = engine.put(rows(0..100_000, &"x".repeat(30))).await.expect_err("too large");
    assert!(matches!(error, Error::InvalidInput { .. }), "{error}");
    assert!(error.to_string().contains("at most 2097152") && error.to_string().contains("split it"), "{error}");
}

#[tokio::test]
async fn p10_b1_a_full_budget_answers_backpressure_and_never_holds_more_than_it_may() {
    let (inner, faults) = faulty();
    // Nothing can be frozen, so nothing is released.
    faults.on(Op::Put, "gen/").always(Fault::Hold(Gate::default()));
    let engine = builder(Arc::new(faults)).settings(small_budget()).open().await.expect("opens");
    let mut written = 0;
    let error = loop {
        match engine.put(rows(written..written + 1000, "a")).await {
            Ok(_) => written += 1000,
            Err(error) => break error,
        }
        let stats = engine.stats();
        assert!(stats.bytes_held <= stats.bytes_max, "{stats:?}");
        assert!(stats.row_bytes + stats.index_bytes <= stats.bytes_held, "what is held was reserved: {stats:?}");
    };
    assert!(matches!(error, Error::Backpressure { .. }), "{error}");
    assert!(error.to_string().contains("unflushed_bytes_max"), "{error}");
    assert_eq!(logged_ids(&inner).await.len() as i64, written, "nothing was written");
    let stats = engine.stats();
    assert_eq!((stats.puts_refused, stats.puts_waited), (1, 1));
    assert!(text(&engine, 0).await.is_some(), "reads go on");
}

#[tokio::test]
async fn p10_dropping_a_waiting_put_frees_its_place() {
    let (inner, _) = faulty();
    let settings = Settings { backpressure_timeout: Duration::from_secs(3600), ..small_budget() };
    let clock = support::clock::TestClock::manual();
    let components = Components { clock: Arc::new(clock), ..Components::default() };
    let engine = builder(inner).settings(settings).components(components).open().await.expect("opens");
    let admission = engine.addresses().admission;
    let empty = engine.stats().bytes_held;
    let held = admission.put(vec![rows(0..7_000, "a")]).await.expect("room");
    let mut second = Box::pin(admission.put(vec![rows(0..7_000, "a")]));
    let mut waiting = Vec::new();
    while let std::task::Poll::Ready(more) = futures::poll!(&mut second) {
        waiting.push(more.expect("room"));
        second = Box::pin(admission.put(vec![rows(0..7_000, "a")]));
    }
    // A small put stands in line behind the one that does not fit.
    let mut small = Box::pin(admission.put(vec![rows(0..1, "a")]));
    assert!(futures::poll!(&mut small).is_pending());
    drop(second);
    assert!(in_time(small).await.is_ok());
    drop((held, waiting));
    assert_eq!(engine.stats().bytes_held, empty);
}

#[tokio::test]
async fn v6_b13_rows_become_visible_without_any_index() {
    let (inner, _) = faulty();
    let plain = TableSpec::new(support::shard::schema());
    let engine = builder(inner).spec(plain).open().await.expect("opens");
    engine.put(rows(0..3, "a")).await.expect("written");
    assert_eq!(engine.cursors().visible(), Seq::new(3));
    let error = engine.delete(&keys(0..1)).await.expect_err("no key");
    assert!(error.to_string().contains("without a primary key"), "{error}");
}

#[tokio::test]
async fn v1_b03_before_the_first_apply_row_0_is_not_there() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    assert_eq!(engine.cursors().visible(), Seq::ZERO);
    assert_eq!(text(&engine, 0).await, None);
    engine.put(rows(0..1, "a")).await.expect("written");
    assert_eq!(engine.cursors().visible(), Seq::new(1));
    assert!(text(&engine, 0).await.is_some());
}

#[tokio::test]
async fn q5_a_snapshot_can_be_taken_at_any_seq_held_and_never_changes() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    let first = engine.put(rows(0..2, "a")).await.expect("written");
    let old = engine.snapshot().await.expect("a snapshot");
    engine.put(rows(0..1, "b")).await.expect("written");
    engine.delete(&keys(1..2)).await.expect("deleted");
    for snapshot in [old, engine.snapshot_as_of(first.end()).await.expect("held")] {
        assert_eq!(snapshot.seq(), Seq::new(2));
        assert!(snapshot.get(1).expect("a lookup").row().is_some(), "V4");
    }
    let error = engine.snapshot_as_of(Seq::new(99)).await.expect_err("not held");
    assert!(matches!(error, Error::SeqNotHeld { .. }), "{error}");
}

#[tokio::test]
async fn x3_large_puts_are_indexed_in_parallel_and_seen_in_order() {
    let (inner, _) = faulty();
    let engine =
        builder(inner).settings(Settings { inline_apply_rows_max: 10, ..settings() }).open().await.expect("opens");
    for put in 0..20 {
        let rows_of_put = if put % 2 == 0 { 100 } else { 1 };
        engine.put_no_wait(vec![rows(0..rows_of_put, &format!("put{put}"))]).await.expect("sequenced");
    }
    in_time(engine.cursors().wait_visible(Seq::new(10 * 100 + 10))).await.expect("visible");
    let stats = engine.stats();
    assert_eq!((stats.applies, stats.applies_parallel), (20, 10), "X4: statistics count what was done");
    assert_eq!(stats.rows_applied, 1010);
    assert_eq!(text(&engine, 0).await.as_deref(), Some("put19 0"));
    assert_eq!(text(&engine, 99).await.as_deref(), Some("put18 99"));
}

#[tokio::test]
async fn o8_an_open_without_a_spec_uses_the_stored_one_and_a_different_one_is_refused() {
    let (inner, _) = faulty();
    let first = reopen(&inner).await;
    first.put(rows(0..1, "a")).await.expect("written");
    let other = spec().index(tidewal::IndexSpec::btree("more", ["id"]));
    let error = builder(Arc::clone(&inner)).spec(other).open().await.expect_err("disagrees");
    assert!(error.to_string().contains("`more`") && error.to_string().contains("`by_text`"), "{error}");
    first.put(rows(1..2, "a")).await.expect("O5: the refused open fenced nobody");
    let store = tidewal::Store::new(inner, "shard");
    let second = tidewal::Engine::builder(store).open().await.expect("opens");
    assert_eq!(second.spec().table(), &spec());
    assert!(text(&second, 1).await.is_some());
}

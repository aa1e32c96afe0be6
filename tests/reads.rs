//! Reads through the engine: every arm sees what was acknowledged, and one snapshot (P3, P5, Q1 to Q5, V4).

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use support::shard::{builder, faulty, in_time, keys, reopen, rows, settings, text};
use tidewal::{Engine, Error, Key, Order, Outcome, Scan, Settings, col};

fn ids(batch: &RecordBatch) -> Vec<i64> {
    batch.column_by_name("id").expect("the column").as_primitive::<Int64Type>().values().to_vec()
}

async fn scan(engine: &Engine, scan: Scan) -> RecordBatch {
    in_time(engine.scan(scan).await.expect("the scan fits").collect_all()).await.expect("it reads")
}

#[tokio::test]
async fn p5_after_a_put_every_arm_of_a_new_snapshot_sees_its_rows() {
    for durable_writes in [true, false] {
        let (inner, _) = faulty();
        let engine = builder(inner).settings(Settings { durable_writes, ..settings() }).open().await.expect("opens");
        for id in 0..40 {
            engine.put(rows(id..id + 1, "a")).await.expect("written");
            let snapshot = engine.snapshot().await.expect("a snapshot");
            let word = format!("a {id}");
            assert!(snapshot.get(id).expect("a lookup").row().is_some(), "get");
            assert!(matches!(snapshot.get_many(&[Key::from(id)]).expect("lookups").outcomes[..], [Outcome::Found(0)]));
            let all = snapshot.scan(Scan::new()).expect("fits").collect_all().await.expect("it reads");
            assert_eq!(all.num_rows() as i64, id + 1, "scan");
            let found = scan(&engine, Scan::new().filter(col("text").eq(word.as_str()))).await;
            assert_eq!(ids(&found), [id], "B-tree");
            assert_eq!(snapshot.count(None).await.expect("counts") as i64, id + 1);
        }
    }
}

#[tokio::test]
async fn q1_b57_a_key_whose_newest_row_does_not_match_is_not_found_by_an_older_one() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    engine.put(rows(0..5, "old")).await.expect("written");
    engine.put(rows(1..3, "new")).await.expect("written");
    engine.delete(&keys(4..5)).await.expect("deleted");
    let old = Scan::new().filter(col("text").starts_with("old"));
    assert_eq!(ids(&scan(&engine, old.clone()).await), [0, 3]);
    assert_eq!(ids(&scan(&engine, old.limit(1).offset(1)).await), [3], "B59: the limit comes last");
    let by_text = Scan::new().order_by(Order::column_descending("text")).limit(3);
    assert_eq!(ids(&scan(&engine, by_text).await), [3, 0, 2]);
}

#[tokio::test]
async fn q3_sql_and_expressions_say_the_same_and_bad_ones_say_where() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    engine.put(rows(0..100, "row")).await.expect("written");
    let sql = Scan::new().filter_sql("id BETWEEN 10 AND 12 OR text = 'row 50'").expect("parses");
    let expr = Scan::new().filter(col("id").between(10, 12).or(col("text").eq("row 50")));
    assert_eq!(ids(&scan(&engine, sql).await), ids(&scan(&engine, expr).await));
    let error = Scan::new().filter_sql("id = ").expect_err("unfinished");
    assert!(matches!(error, Error::InvalidInput { .. }), "{error}");
    let error = engine.scan(Scan::new().filter(col("size").gt(1))).await.expect_err("no such column");
    assert!(error.to_string().contains("`size`") && error.to_string().contains("id, text"), "{error}");
    let error = engine.get("ten").await.expect_err("not a number");
    assert!(error.to_string().contains("`id`") && error.to_string().contains("Int64"), "{error}");
}

#[tokio::test]
async fn q4_projection_limit_and_seq_come_back_as_asked() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    engine.put(rows(0..10, "row")).await.expect("written");
    let found = scan(&engine, Scan::new().columns(["text"]).with_seq(true).offset(4).limit(2)).await;
    assert_eq!(found.schema().fields().iter().map(|field| field.name().as_str()).collect::<Vec<_>>(), ["text", "_seq"]);
    assert_eq!(found.column(1).as_primitive::<arrow_array::types::UInt64Type>().values(), &[4, 5]);
    let mut stream = engine.scan(Scan::new().batch_rows(3)).await.expect("fits");
    let mut sizes = Vec::new();
    while let Some(batch) = in_time(stream.next()).await {
        sizes.push(batch.expect("rows").num_rows());
    }
    assert_eq!(sizes, [3, 3, 3, 1]);
}

#[tokio::test]
async fn v4_b14_a_snapshot_reads_the_same_whatever_is_written_meanwhile() {
    let (inner, _) = faulty();
    let engine = reopen(&inner).await;
    engine.put(rows(0..50, "a")).await.expect("written");
    let snapshot = engine.snapshot().await.expect("a snapshot");
    let first = snapshot.scan(Scan::new()).expect("fits").collect_all().await.expect("it reads");
    for round in 0..20 {
        engine.put(rows(round..round + 30, "b")).await.expect("written");
        engine.delete(&keys(round..round + 5)).await.expect("deleted");
        let again = snapshot.scan(Scan::new()).expect("fits").collect_all().await.expect("it reads");
        assert_eq!(first, again);
    }
    let as_of = engine.snapshot_as_of(snapshot.seq()).await.expect("held");
    assert_eq!(first, as_of.scan(Scan::new()).expect("fits").collect_all().await.expect("it reads"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn p3_v2_readers_see_all_rows_of_a_put_or_none_in_every_arm() {
    const ROWS: i64 = 7;
    let (inner, _) = faulty();
    let engine =
        builder(inner).settings(Settings { inline_apply_rows_max: 3, ..settings() }).open().await.expect("opens");
    let done = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let (engine, done) = (engine.clone(), Arc::clone(&done));
            tokio::spawn(async move {
                let mut seen = 0;
                while !done.load(Ordering::Acquire) {
                    let snapshot = engine.snapshot().await.expect("a snapshot");
                    let count = snapshot.count(None).await.expect("counts") as i64;
                    assert_eq!(count % ROWS, 0, "a put is seen whole");
                    assert!(count >= seen, "V3: it only grows");
                    seen = count;
                    let put = count / ROWS;
                    if put > 0 {
                        let newest = format!("put{} ", put - 1);
                        let found = snapshot.count(Some(col("text").starts_with(newest))).await.expect("counts");
                        assert_eq!(found as i64, ROWS, "the B-tree has what the rows have");
                    }
                    assert!(snapshot.get(count).expect("a lookup").row().is_none());
                }
                seen
            })
        })
        .collect();
    for put in 0..150 {
        engine.put(rows(put * ROWS..(put + 1) * ROWS, &format!("put{put}"))).await.expect("written");
    }
    done.store(true, Ordering::Release);
    for reader in readers {
        in_time(reader).await.expect("the reader ended");
    }
    assert!(text(&engine, 0).await.is_some());
}

#[tokio::test]
async fn z2_streams_and_snapshots_of_a_failed_shard_fail_too() {
    let (inner, faults) = faulty();
    let engine = support::shard::open(&faults).await.expect("opens");
    engine.put(rows(0..100, "a")).await.expect("written");
    let snapshot = engine.snapshot().await.expect("a snapshot");
    let mut stream = snapshot.scan(Scan::new().batch_rows(10)).expect("fits");
    in_time(stream.next()).await.expect("a batch").expect("rows");
    let _successor = reopen(&inner).await;
    in_time(engine.put(rows(0..1, "b"))).await.expect_err("fenced");
    let fenced = |error: Error| assert!(matches!(error, Error::Fenced { .. }), "{error}");
    fenced(snapshot.get(1).expect_err("Z2"));
    fenced(snapshot.scan(Scan::new()).expect_err("Z2"));
    fenced(snapshot.count(None).await.expect_err("Z2"));
    // The batch that was computed ahead may still come; what follows may not.
    let mut last = None;
    while let Some(batch) = in_time(stream.next()).await {
        last = Some(batch);
    }
    fenced(last.expect("the stream says why it ended").expect_err("Z2"));
}

#[tokio::test]
async fn a_query_beyond_queries_max_waits_for_its_turn_and_the_setting_is_heeded() {
    let (inner, _) = faulty();
    let engine = builder(inner).settings(Settings { queries_max: 1, ..settings() }).open().await.expect("opens");
    engine.put(rows(0..1000, "a")).await.expect("written");
    let scans = (0..20).map(|_| {
        let engine = engine.clone();
        tokio::spawn(async move { scan(&engine, Scan::new().batch_rows(100)).await.num_rows() })
    });
    for scan in scans.collect::<Vec<_>>() {
        assert_eq!(in_time(scan).await.expect("it ended"), 1000);
    }
}

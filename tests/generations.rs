//! Memtables that become generations, and reads over all tiers (F1 to F8, P6, Q1, W9, C1).

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use object_store::ObjectStore;
use support::fault_store::{Fault, Op};
use support::shard::{builder, faulty, in_time, keys, logged_ids, rows, settings, text};
use tidewal::{Engine, Error, Key, Lookup, Order, Outcome, Scan, Seq, Settings, col};

/// Memtables that a few hundred rows fill.
fn small() -> Settings {
    Settings { memtable_bytes_max: 64 << 10, unflushed_bytes_max: 64 << 20, ..settings() }
}

async fn open(store: &Arc<dyn ObjectStore>) -> Engine {
    builder(Arc::clone(store)).settings(small()).open().await.expect("the shard opens")
}

/// What a shard must answer: the text of each live key, and what was ever deleted.
#[derive(Default)]
struct Model {
    live: BTreeMap<i64, String>,
    deleted: BTreeMap<i64, ()>,
    end: u64,
}

impl Model {
    async fn put(&mut self, engine: &Engine, first: i64, count: i64, tag: &str) {
        engine.put(rows(first..first + count, tag)).await.expect("written");
        for id in first..first + count {
            self.live.insert(id, format!("{tag} {id}"));
            self.deleted.remove(&id);
        }
        self.end += count as u64;
    }

    async fn delete(&mut self, engine: &Engine, first: i64, count: i64) {
        engine.delete(&keys(first..first + count)).await.expect("deleted");
        for id in first..first + count {
            self.live.remove(&id);
            self.deleted.insert(id, ());
        }
        self.end += count as u64;
    }

    async fn check(&self, engine: &Engine, what: &str) {
        assert_eq!(engine.cursors().visible(), Seq::new(self.end), "{what}");
        let found = engine.scan(Scan::new()).await.expect("a scan").collect_all().await.expect("rows");
        let ids = found.column(0).as_primitive::<Int64Type>().values().iter().copied();
        let texts = found.column(1).as_string::<i32>().iter().map(|text| text.unwrap_or_default().to_owned());
        let mut scanned: Vec<(i64, String)> = ids.zip(texts).collect();
        scanned.sort();
        assert!(scanned.into_iter().eq(self.live.clone()), "{what}: every live row once, in its newest version");
        let ids: Vec<i64> = (0..400).step_by(7).collect();
        let found = engine.get_many(ids.iter().map(|id| Key::from(*id)).collect()).await.expect("lookups");
        for (id, outcome) in ids.iter().zip(&found.outcomes) {
            let expected = match (self.live.get(id), self.deleted.get(id)) {
                (Some(text), _) => {
                    assert_eq!(support::shard::text(engine, *id).await.as_ref(), Some(text), "{what}");
                    "found"
                }
                (None, Some(())) => "deleted",
                (None, None) => "missing",
            };
            let answered = match outcome {
                Outcome::Found(_) => "found",
                Outcome::Deleted => "deleted",
                Outcome::Missing => "missing",
            };
            assert_eq!(answered, expected, "{what}: key {id}");
        }
        // By the B-tree: equality, a range in its order, and a version that left the filter (B57).
        if let Some((id, text)) = self.live.iter().nth(self.live.len() / 2) {
            let scan = Scan::new().filter(col("text").eq(text.as_str()));
            let found = engine.scan(scan).await.expect("a scan").collect_all().await.expect("rows");
            assert_eq!(found.column(0).as_primitive::<Int64Type>().values(), &[*id], "{what}: {text}");
        }
        let scan = Scan::new().order_by(Order::column("text")).limit(5);
        let found = engine.scan(scan).await.expect("a scan").collect_all().await.expect("rows");
        let texts: Vec<&str> = found.column(1).as_string::<i32>().iter().flatten().collect();
        let mut expected: Vec<&str> = self.live.values().map(String::as_str).collect();
        expected.sort_unstable();
        assert_eq!(texts, expected[..expected.len().min(5)], "{what}: B59, no limit below deduplication");
        let count = engine.snapshot().await.expect("a snapshot").count(None).await.expect("a count");
        assert_eq!(count, self.live.len() as u64, "{what}");
    }
}

/// A small generator: the seed is in the message of whatever fails.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

#[tokio::test]
async fn q1_f7_reads_over_memtables_and_generations_equal_a_model_through_freezes_crashes_and_closes() {
    for seed in 0..4 {
        let mut random = Random(seed);
        let (inner, _) = faulty();
        let mut model = Model::default();
        let mut engine = open(&inner).await;
        for step in 0..60 {
            let what = format!("seed {seed}, step {step}");
            let (first, count) = (random.below(300) as i64, 1 + random.below(80) as i64);
            match random.below(10) {
                0 => model.delete(&engine, first, count).await,
                1 => {
                    let end = in_time(engine.flush()).await.expect("flushed");
                    assert_eq!(end, Seq::new(model.end), "{what}");
                }
                2 => {
                    engine.close().await.expect("closed");
                    engine = open(&inner).await;
                    assert_eq!(engine.stats().rows_replayed, 0, "F5, {what}");
                }
                // A crash: the old engine is left as it is and fenced by the next.
                3 => engine = open(&inner).await,
                _ => model.put(&engine, first, count, &format!("v{step}")).await,
            }
            if step % 5 == 4 {
                in_time(model.check(&engine, &what)).await;
            }
        }
        assert!(engine.stats().generations > 3, "seed {seed}: {:?}", engine.stats());
        in_time(engine.close()).await.expect("closed");
        let engine = open(&inner).await;
        in_time(model.check(&engine, &format!("seed {seed}, at the end"))).await;
        assert_eq!(engine.stats().sections_rebuilt, 0);
    }
}

#[tokio::test]
async fn p6_b02_a_put_acknowledged_after_a_rotation_has_its_own_bytes_in_the_log() {
    let (inner, faults) = faulty();
    let store: Arc<dyn ObjectStore> = Arc::new(faults.clone());
    // Nothing is frozen, so nothing is released.
    faults.on(Op::Put, "gen/").always(Fault::FailBefore);
    let engine = open(&store).await;
    for first in (0..2000).step_by(100) {
        engine.put(rows(first..first + 100, "a")).await.expect("written");
    }
    assert!(engine.stats().memtables_sealed >= 2, "{:?}", engine.stats());
    assert_eq!(logged_ids(&inner).await.len(), 2000);
    faults.heal();
    in_time(engine.flush()).await.expect("flushed");
    assert_eq!(engine.stats().memtables_sealed, 0);
}

#[tokio::test]
async fn f3_b40_b44_rows_stay_readable_while_their_generation_cannot_be_written() {
    let (inner, faults) = faulty();
    let store: Arc<dyn ObjectStore> = Arc::new(faults.clone());
    let engine = open(&store).await;
    faults.on(Op::Put, "gen/").times(7, Fault::FailBefore);
    let mut model = Model::default();
    for first in 0..20 {
        model.put(&engine, first * 20, 60, "a").await;
        if first % 6 == 0 {
            in_time(model.check(&engine, "while it fails")).await;
        }
    }
    in_time(engine.flush()).await.expect("flushed in the end");
    in_time(model.check(&engine, "after")).await;
    assert!(engine.stats().freeze_retries >= 7, "{:?}", engine.stats());
    in_time(engine.close()).await.expect("closed");
    let engine = open(&inner).await;
    assert_eq!(engine.stats().rows_replayed, 0);
    in_time(model.check(&engine, "after the reopen")).await;
}

#[tokio::test]
async fn f4_a_commit_whose_answer_was_lost_is_recognised_as_done() {
    for fault in [Fault::FailAfter, Fault::AlreadyExists] {
        let (inner, faults) = faulty();
        let store: Arc<dyn ObjectStore> = Arc::new(faults.clone());
        let engine = open(&store).await;
        let mut model = Model::default();
        model.put(&engine, 0, 50, "a").await;
        faults.on(Op::Put, "manifest").times(2, fault.clone());
        in_time(engine.flush()).await.expect("flushed");
        model.put(&engine, 20, 50, "b").await;
        in_time(engine.flush()).await.expect("flushed");
        assert_eq!(engine.stats().generations, 2, "{fault:?}");
        let engine = open(&inner).await;
        in_time(model.check(&engine, "after the reopen")).await;
    }
}

#[tokio::test]
async fn w9_the_log_is_deleted_behind_committed_generations_and_sentinels_stay() {
    let (inner, faults) = faulty();
    let mut model = Model::default();
    for opening in 0..4 {
        let engine = open(&inner).await;
        for first in 0..30 {
            model.put(&engine, first * 10, 60, &format!("v{opening}")).await;
        }
        in_time(engine.flush()).await.expect("flushed");
        // All entries of this opening are released; the newest of them is kept.
        in_time(async {
            while faults.names("shard/wal").await.len() > 1 + opening {
                tokio::task::yield_now().await;
            }
        })
        .await;
        in_time(model.check(&engine, "with a short log")).await;
    }
    let engine = open(&inner).await;
    in_time(model.check(&engine, "at the end")).await;
    assert_eq!(engine.stats().rows_replayed, 0);
}

#[tokio::test]
async fn f6_a_log_far_longer_than_a_memtable_opens_freezing_as_it_goes_and_a_second_open_replays_the_tail() {
    let (inner, faults) = faulty();
    let store: Arc<dyn ObjectStore> = Arc::new(faults.clone());
    faults.on(Op::Put, "gen/").always(Fault::FailBefore);
    let engine = open(&store).await;
    let mut model = Model::default();
    for first in 0..40 {
        model.put(&engine, first * 7, 100, "a").await;
    }
    let sealed = engine.stats().memtables_sealed;
    assert!(sealed >= 4, "{sealed}");
    drop(engine);
    let engine = open(&inner).await;
    let stats = engine.stats();
    assert_eq!(stats.rows_replayed, 4000);
    assert!(stats.generations >= sealed && stats.bytes_held < 3 * (64 << 10) + (1 << 20), "{stats:?}");
    in_time(model.check(&engine, "after a long replay")).await;
    let engine = open(&inner).await;
    assert!(engine.stats().rows_replayed < 2000, "{:?}", engine.stats());
    in_time(model.check(&engine, "after a short one")).await;
}

#[tokio::test]
async fn c1_f5_after_a_close_nothing_is_replayed_and_one_that_cannot_freeze_says_why() {
    let (inner, faults) = faulty();
    let store: Arc<dyn ObjectStore> = Arc::new(faults.clone());
    let engine = open(&store).await;
    let mut model = Model::default();
    model.put(&engine, 0, 10, "a").await;
    model.delete(&engine, 3, 2).await;
    in_time(engine.close()).await.expect("closed");
    let engine = open(&store).await;
    assert_eq!((engine.stats().rows_replayed, engine.stats().generations), (0, 1));
    in_time(model.check(&engine, "after a close")).await;
    model.put(&engine, 5, 10, "b").await;
    faults.on(Op::Put, "gen/").always(Fault::FailBefore);
    let error = in_time(engine.close()).await.expect_err("the store takes no generation");
    assert!(matches!(&error, Error::Failed(_)) && error.to_string().contains("written out"), "{error}");
    let engine = open(&inner).await;
    in_time(model.check(&engine, "after a close that failed")).await;
}

#[tokio::test]
async fn f7_b50_a_generation_of_tombstones_only_hides_what_older_ones_have() {
    let (inner, _) = faulty();
    let engine = open(&inner).await;
    let mut model = Model::default();
    model.put(&engine, 0, 50, "a").await;
    in_time(engine.flush()).await.expect("flushed");
    model.delete(&engine, 10, 20).await;
    in_time(engine.flush()).await.expect("flushed");
    in_time(model.check(&engine, "two generations")).await;
    assert!(matches!(engine.get(15).await.expect("a lookup"), Lookup::Deleted));
    let as_of = engine.snapshot_as_of(Seq::new(50)).await.expect("held");
    assert!(matches!(as_of.get(15).expect("a lookup"), Lookup::Found(_)), "Q5: all versions are held");
    assert_eq!(text(&engine, 5).await.as_deref(), Some("a 5"));
}

#[tokio::test]
async fn v3_a_snapshot_is_the_same_before_and_after_its_memtable_became_a_generation() {
    let (inner, _) = faulty();
    let engine = open(&inner).await;
    engine.put(rows(0..300, "a")).await.expect("written");
    let snapshot = engine.snapshot().await.expect("a snapshot");
    let before = snapshot.scan(Scan::new()).expect("a scan").collect_all().await.expect("rows");
    in_time(engine.flush()).await.expect("flushed");
    engine.put(rows(0..300, "b")).await.expect("written");
    in_time(engine.flush()).await.expect("flushed");
    let after = snapshot.scan(Scan::new()).expect("a scan").collect_all().await.expect("rows");
    let fresh = engine.snapshot_as_of(Seq::new(300)).await.expect("held");
    let frozen = fresh.scan(Scan::new()).expect("a scan").collect_all().await.expect("rows");
    assert_eq!((&before, &before), (&after, &frozen));
}

#[tokio::test]
async fn e1_a_zombie_that_freezes_after_its_successor_commits_nothing() {
    let (inner, _) = faulty();
    let zombie = open(&inner).await;
    let mut model = Model::default();
    model.put(&zombie, 0, 50, "a").await;
    let successor = open(&inner).await;
    let error = in_time(zombie.flush()).await.expect_err("fenced");
    assert!(matches!(error, Error::Fenced { .. }), "{error}");
    model.put(&successor, 20, 50, "b").await;
    in_time(successor.flush()).await.expect("flushed");
    in_time(model.check(&successor, "the successor")).await;
}

#[tokio::test]
async fn f2_an_index_file_that_cannot_be_read_is_built_again_and_rows_that_cannot_are_corrupt() {
    let (inner, faults) = faulty();
    let engine = open(&inner).await;
    let mut model = Model::default();
    model.put(&engine, 0, 200, "a").await;
    in_time(engine.close()).await.expect("closed");
    let files = faults.names("shard/gen").await;
    let path = files.iter().find(|name| name.as_ref().ends_with("indexes.tw")).expect("it is written");
    let whole = faults.read(path).await;
    for at in [0, whole.len() / 3, whole.len() - 1] {
        let mut bytes = whole.to_vec();
        for byte in bytes.iter_mut().skip(at).take(40) {
            *byte ^= 0x55;
        }
        faults.overwrite(path, bytes).await;
        let engine = open(&inner).await;
        in_time(model.check(&engine, "with a damaged index")).await;
        in_time(engine.close()).await.expect("closed");
    }
    faults.overwrite(path, whole).await;
    let path = files.iter().find(|name| name.as_ref().ends_with("rows.arrow")).expect("it is written");
    let mut bytes = faults.read(path).await.to_vec();
    bytes[2000] ^= 1;
    faults.overwrite(path, bytes).await;
    let engine = open(&inner).await;
    let error = engine.scan(Scan::new()).await.expect("a scan").collect_all().await.expect_err("a flipped bit");
    assert!(matches!(&error, Error::Corrupt { object, .. } if object.ends_with("rows.arrow")), "{error}");
}

#[tokio::test]
async fn q3_a_filter_that_few_zones_can_match_reads_few_of_them_and_answers_as_a_full_scan_does() {
    let (inner, _) = faulty();
    let engine = builder(Arc::clone(&inner)).open().await.expect("opens");
    for first in (0..200_000).step_by(20_000) {
        engine.put(rows(first..first + 20_000, "a")).await.expect("written");
    }
    in_time(engine.close()).await.expect("closed");
    let engine = builder(Arc::clone(&inner)).open().await.expect("opens");
    let opened = engine.stats().generation_bytes_read;
    let filter = || Scan::new().filter(col("id").gt_eq(100_000).and(col("id").lt(100_010)));
    let found = engine.scan(filter()).await.expect("a scan").collect_all().await.expect("rows");
    assert_eq!(found.column(0).as_primitive::<Int64Type>().values(), (100_000..100_010).collect::<Vec<_>>().as_slice());
    let pruned = engine.stats();
    assert_eq!((pruned.zones_pruned, pruned.seeds_unusable), (24, 0), "one of 25 zones is left");
    let all = engine.scan(Scan::new()).await.expect("a scan").collect_all().await.expect("rows");
    assert_eq!(all.num_rows(), 200_000);
    let (few, all) = (pruned.generation_bytes_read - opened, engine.stats().generation_bytes_read - opened);
    assert!(few * 10 < all, "{few} of {all} bytes");
}

#[tokio::test]
async fn the_cache_holds_no_more_than_it_may_and_reads_again_what_it_let_go() {
    let (inner, _) = faulty();
    let engine = builder(Arc::clone(&inner)).open().await.expect("opens");
    engine.put(rows(0..100_000, &"x".repeat(50))).await.expect("written");
    in_time(engine.close()).await.expect("closed");
    let tight = Settings { cache_bytes_max: 1 << 20, ..settings() };
    let engine = builder(Arc::clone(&inner)).settings(tight).open().await.expect("opens");
    for _ in 0..2 {
        let all = engine.scan(Scan::new()).await.expect("a scan").collect_all().await.expect("rows");
        assert_eq!(all.num_rows(), 100_000);
        assert!(engine.stats().cache_bytes <= 1 << 20, "{:?}", engine.stats());
    }
    assert!(text(&engine, 77_777).await.is_some());
}

//! How fast does an open replay the log, and how soon does it answer?
//!
//! Rows of about 180 bytes with a primary key; the log lies in memory, so that the figure is the
//! engine's and not a disk's. The baseline decodes the same objects with Arrow alone.
//!
//! `cargo bench --bench replay`

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot run shall say so")]

mod support;

use std::sync::Arc;

use arrow_ipc::reader::StreamReader;
use futures::TryStreamExt;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use support::{median, now, rows, schema, verdict};
use tidewal::{Engine, Settings, Store, TableSpec};

const ROWS: i64 = 2_000_000;
const ROUNDS: usize = 5;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let rates = rounds(ROWS).await;
    let rate = median(rates);
    verdict(">= 2,000,000 rows/s", rate >= 2_000_000.0);
    // A log of 64 MiB, opened and asked.
    let store = log_of((64 << 20) / 190).await;
    let start = now();
    let engine = open(&store).await;
    assert!(engine.get(1).await.expect("an answer").row().is_some());
    let took = start.elapsed();
    println!("a log of 64 MiB: first answer {took:.1?} after the open began");
    verdict("first answer within 1 s", took.as_secs_f64() <= 1.0);
}

async fn open(store: &Arc<dyn ObjectStore>) -> Engine {
    let spec = TableSpec::new(schema()).primary_key(["id"]);
    let settings = Settings { unflushed_bytes_max: 4 << 30, ..Settings::default() };
    Engine::builder(Store::new(Arc::clone(store), "shard")).spec(spec).settings(settings).open().await.expect("opens")
}

async fn log_of(count: i64) -> Arc<dyn ObjectStore> {
    let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let engine = open(&store).await;
    for first in (0..count).step_by(1000) {
        engine.put_no_wait(vec![rows(first, 1000, 160)]).await.expect("sequenced");
    }
    engine.close().await.expect("closed");
    store
}

async fn rounds(count: i64) -> Vec<f64> {
    let store = log_of(count).await;
    let mut rates = Vec::new();
    for round in 0..ROUNDS {
        let bare = decode(&store).await;
        let start = now();
        let engine = open(&store).await;
        let took = start.elapsed();
        let stats = engine.stats();
        assert_eq!(stats.rows_replayed, count as u64);
        engine.abort();
        drop(engine);
        let rate = count as f64 / took.as_secs_f64();
        println!(
            "round {round}: {} entries replayed in {took:.1?}: {rate:.0} rows/s; Arrow alone decodes {:.0} rows/s",
            stats.entries_replayed,
            count as f64 / bare
        );
        rates.push(rate);
    }
    rates
}

/// The same objects through Arrow's reader and no further.
async fn decode(store: &Arc<dyn ObjectStore>) -> f64 {
    let start = now();
    let objects: Vec<_> = store.list(Some(&"shard/wal".into())).try_collect().await.expect("it lists");
    for object in objects {
        let bytes = store.get(&object.location).await.expect("there").bytes().await.expect("read");
        let reader = StreamReader::try_new(bytes.as_ref(), None).expect("a stream");
        reader.for_each(|batch| drop(std::hint::black_box(batch.expect("rows"))));
    }
    start.elapsed().as_secs_f64()
}

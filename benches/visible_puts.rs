//! How soon is a put visible that does not wait for the log, and how many rows a second are that?
//!
//! The same on an in-memory store and on one whose PUT takes 100 ms: the apply is not behind the
//! write. The baseline is one round trip between a tokio task and a thread of its own.
//!
//! `cargo bench --bench visible_puts`

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot run shall say so")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use support::{Latencies, Summary, median, now, rows, schema, verdict};
use tidewal::{Engine, IndexSpec, Settings, Store, TableSpec};

const PUTS: i64 = 50_000;
const ROUNDS: usize = 3;

fn stores() -> [(&'static str, Arc<dyn ObjectStore>); 2] {
    let slow = ThrottleConfig { wait_put_per_call: Duration::from_millis(100), ..ThrottleConfig::default() };
    [
        ("in memory", Arc::new(InMemory::new())),
        ("PUT takes 100 ms", Arc::new(ThrottledStore::new(InMemory::new(), slow))),
    ]
}

async fn open(store: Arc<dyn ObjectStore>, spec: TableSpec) -> Engine {
    let settings = Settings {
        durable_writes: false,
        wal_flush_interval: Some(Duration::ZERO),
        unflushed_bytes_max: 8 << 30,
        ..Settings::default()
    };
    Engine::builder(Store::new(store, "shard")).spec(spec).settings(settings).open().await.expect("opens")
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let mut worst = (Duration::ZERO, Duration::ZERO);
    for round in 0..ROUNDS {
        println!("round {round}: one hop to a thread and back  {}", support::hops().await);
        for (name, store) in stores() {
            let one = one_row_puts(store).await;
            println!("round {round}: one row, {name:<17} visible {one}");
            worst = (worst.0.max(one.p50), worst.1.max(one.p99));
        }
    }
    verdict("one row visible p50 <= 60 us", worst.0 <= Duration::from_micros(60));
    verdict("one row visible p99 <= 1 ms", worst.1 <= Duration::from_millis(1));
    let mut all = Vec::new();
    for (name, _) in stores() {
        let mut rates = Vec::new();
        for _ in 0..ROUNDS {
            let (_, store) = stores().into_iter().find(|(of, _)| *of == name).expect("it is there");
            rates.push(hundred_row_puts(store).await);
        }
        println!(
            "100 rows a put, primary key and one B-tree, {name}: {:.0} rows/s (median of {rates:.0?})",
            median(rates.clone())
        );
        all.push(median(rates));
    }
    verdict(">= 1,000,000 rows/s on both", all.iter().all(|rate| *rate >= 1_000_000.0));
}

async fn one_row_puts(store: Arc<dyn ObjectStore>) -> Summary {
    let spec = TableSpec::new(schema()).primary_key(["id"]).index(IndexSpec::btree("by_group", ["group"]));
    let engine = open(store, spec).await;
    let mut latencies = Latencies::default();
    for id in 0..PUTS {
        let row = rows(id, 1, 100);
        let start = now();
        engine.put(row).await.expect("visible");
        latencies.add(start.elapsed());
    }
    engine.abort();
    latencies.summary()
}

async fn hundred_row_puts(store: Arc<dyn ObjectStore>) -> f64 {
    let spec = TableSpec::new(schema()).primary_key(["id"]).index(IndexSpec::btree("by_group", ["group"]));
    let engine = open(store, spec).await;
    let batches: Vec<_> = (0..10_000).map(|put| rows(put * 100, 100, 50)).collect();
    let start = now();
    let mut last = None;
    for batch in batches {
        last = Some(engine.put_no_wait(vec![batch]).await.expect("sequenced"));
    }
    last.expect("a receipt").visible().await.expect("visible");
    let rate = 1_000_000.0 / start.elapsed().as_secs_f64();
    engine.abort();
    rate
}

//! How long does a lookup by key take: through the Reader, from a held snapshot, and in bulk?
//!
//! 1,000,000 rows with a primary key. The baselines of the same run: one round trip between a
//! tokio task and a thread, and a lookup in a plain `HashMap`.
//!
//! `cargo bench --bench lookups`

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot run shall say so")]

mod support;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use support::{Latencies, median, now, rows, schema, verdict};
use tidewal::{Engine, Key, Settings, Store, TableSpec};

const ROWS: i64 = 1_000_000;
const LOOKUPS: i64 = 100_000;

/// Keys in no order.
fn key(at: i64) -> i64 {
    ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % ROWS as u64) as i64
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let spec = TableSpec::new(schema()).primary_key(["id"]);
    let settings = Settings {
        durable_writes: false,
        memtable_bytes_max: 2 << 30,
        unflushed_bytes_max: 4 << 30,
        ..Settings::default()
    };
    let store = Store::new(Arc::new(InMemory::new()), "shard");
    let engine = Engine::builder(store).spec(spec).settings(settings).open().await.expect("opens");
    for first in (0..ROWS).step_by(1000) {
        engine.put_no_wait(vec![rows(first, 1000, 100)]).await.expect("sequenced");
    }
    engine.cursors().wait_durable(tidewal::Seq::new(ROWS as u64)).await.expect("written");

    println!("one hop to a thread and back     {}", support::hops().await);
    let mut reader = Latencies::default();
    for at in 0..LOOKUPS {
        let start = now();
        assert!(engine.get(key(at)).await.expect("an answer").row().is_some());
        reader.add(start.elapsed());
    }
    let reader = reader.summary();
    println!("get through the Reader           {reader}");

    let map: HashMap<i64, i64> = (0..ROWS).map(|id| (id, id)).collect();
    let mut bare = Latencies::default();
    for at in 0..LOOKUPS {
        let start = now();
        std::hint::black_box(map.get(&key(at)));
        bare.add(start.elapsed());
    }
    println!("a plain HashMap                  {}", bare.summary());
    let snapshot = engine.snapshot().await.expect("a snapshot");
    let mut held = Latencies::default();
    for at in 0..LOOKUPS {
        let start = now();
        assert!(snapshot.get(key(at)).expect("an answer").row().is_some());
        held.add(start.elapsed());
    }
    let held = held.summary();
    println!("get from a held snapshot         {held}");

    let mut rates = Vec::new();
    for round in 0..200 {
        let keys: Vec<Key> = (0..1000).map(|at| Key::from(key(round * 1000 + at))).collect();
        let start = now();
        assert_eq!(engine.get_many(keys).await.expect("an answer").rows.num_rows(), 1000);
        rates.push(1000.0 / start.elapsed().as_secs_f64());
    }
    let rate = median(rates);
    println!("1,000 keys at once               {rate:.0} keys/s (median of 200)");
    verdict("through the Reader p50 <= 30 us", reader.p50 <= Duration::from_micros(30));
    verdict("from a held snapshot p50 <= 2 us", held.p50 <= Duration::from_micros(2));
    verdict("1,000 keys at once >= 500,000 keys/s", rate >= 500_000.0);
}

//! How fast is a full memtable written out, what do puts feel of it, and what does it cost to read
//! generations?
//!
//! Freezing: 256 MiB of rows with a primary key and two B-trees, on a local folder; a task that puts
//! one row after the other, without waiting for the log, is timed before and meanwhile. The baseline
//! is one file of the same size, written and synced. Reading: 20 generations of 50,000 rows each.
//!
//! `cargo bench --bench generations`

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot run shall say so")]

mod support;

use std::io::Write;
use std::time::Duration;

use support::{Latencies, now, rows, schema, verdict};
use tidewal::{Engine, IndexSpec, Scan, Settings, Store, TableSpec, col};

const GENERATIONS: i64 = 20;
const GENERATION_ROWS: i64 = 50_000;

fn spec() -> TableSpec {
    TableSpec::new(schema())
        .primary_key(["id"])
        .index(IndexSpec::btree("by_group", ["group"]))
        .index(IndexSpec::btree("by_group_and_id", ["group", "id"]))
}

fn settings() -> Settings {
    Settings { durable_writes: false, memtable_bytes_max: 2 << 30, unflushed_bytes_max: 4 << 30, ..Settings::default() }
}

async fn freezing(folder: &std::path::Path) {
    let store = Store::from_url(folder.join("freeze").to_str().expect("a plain name")).expect("a store");
    let engine = Engine::builder(store).spec(spec()).settings(settings()).open().await.expect("opens");
    let mut next = 0;
    let mut bytes = 0;
    while bytes < 256 << 20 {
        engine.put(rows(next, 1000, 150)).await.expect("written");
        next += 1000;
        bytes = engine.stats().row_bytes;
    }
    engine.cursors().wait_durable(engine.cursors().indexed()).await.expect("written");
    let put = |id: i64| {
        let engine = engine.clone();
        async move {
            let start = now();
            engine.put(rows(id, 1, 150)).await.expect("written");
            start.elapsed()
        }
    };
    let mut quiet = Latencies::default();
    for id in 0..20_000 {
        quiet.add(put(next + id).await);
    }
    let mut meanwhile = Latencies::default();
    let start = now();
    let mut flush = Box::pin(engine.flush());
    let mut id = next + 20_000;
    let flushed = loop {
        match futures::poll!(&mut flush) {
            std::task::Poll::Ready(end) => break end.map(|_| start.elapsed()),
            std::task::Poll::Pending => {
                meanwhile.add(put(id).await);
                id += 1;
            }
        }
    };
    let took = flushed.expect("flushed");
    let written = engine.stats().generation_bytes;
    let plain = {
        let data = vec![7_u8; written as usize];
        let start = now();
        let mut file = std::fs::File::create(folder.join("plain")).expect("a file");
        file.write_all(&data).and_then(|()| file.sync_all()).expect("written");
        start.elapsed()
    };
    let (quiet, meanwhile) = (quiet.summary(), meanwhile.summary());
    let rate = bytes as f64 / took.as_secs_f64() / f64::from(1 << 20);
    println!("freezing {} MiB of rows took {took:.2?}: {rate:.0} MiB/s; {} MiB of files", bytes >> 20, written >> 20);
    println!("a plain file of that size, synced: {plain:.2?}");
    println!("one-row puts, quiet:     {quiet}");
    println!("one-row puts, meanwhile: {meanwhile}");
    verdict(">= 150 MiB/s", rate >= 150.0);
    verdict("puts meanwhile p99 <= 3 x their quiet p99", meanwhile.p99 <= 3 * quiet.p99);
    engine.abort();
}

async fn reading(folder: &std::path::Path) {
    let place = folder.join("read");
    let store = || Store::from_url(place.to_str().expect("a plain name")).expect("a store");
    let engine = Engine::builder(store()).spec(spec()).settings(settings()).open().await.expect("opens");
    for generation in 0..GENERATIONS {
        for first in (0..GENERATION_ROWS).step_by(5000) {
            engine.put(rows(generation * GENERATION_ROWS + first, 5000, 100)).await.expect("written");
        }
        engine.flush().await.expect("flushed");
    }
    engine.close().await.expect("closed");

    let mut opens = Latencies::default();
    for _ in 0..5 {
        let start = now();
        let engine = Engine::builder(store()).settings(settings()).open().await.expect("opens");
        opens.add(start.elapsed());
        engine.abort();
    }
    let opens = opens.summary();
    println!("opening {} rows in {GENERATIONS} generations: {opens}", GENERATIONS * GENERATION_ROWS);
    verdict("an open takes <= 100 ms", opens.p50 <= Duration::from_millis(100));

    let big_cache = Settings { cache_bytes_max: 2 << 30, ..settings() };
    let engine = Engine::builder(store()).settings(big_cache).open().await.expect("opens");
    println!("bytes read by the open: {}", engine.stats().generation_bytes_read);
    let snapshot = engine.snapshot().await.expect("a snapshot");
    let all = GENERATIONS * GENERATION_ROWS;
    let key = move |at: i64| ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) % all as u64) as i64;
    let (mut hits, mut misses) = (Latencies::default(), Latencies::default());
    let timed = tokio::task::spawn_blocking(move || {
        for round in 0..2 {
            for at in 0..100_000 {
                let start = now();
                assert!(snapshot.get(key(at)).expect("an answer").row().is_some());
                let hit = start.elapsed();
                let start = now();
                assert!(snapshot.get(all + key(at)).expect("an answer").row().is_none());
                let miss = start.elapsed();
                // The first round warms the cache.
                if round == 1 {
                    hits.add(hit);
                    misses.add(miss);
                }
            }
        }
        (hits.summary(), misses.summary())
    });
    let (hits, misses) = timed.await.expect("no lookup panics");
    println!("get over {GENERATIONS} generations, hit:  {hits}");
    println!("get over {GENERATIONS} generations, miss: {misses}");
    verdict("hit p50 <= 10 us", hits.p50 <= Duration::from_micros(10));
    verdict("miss p50 <= 5 us", misses.p50 <= Duration::from_micros(5));
    engine.abort();

    let engine = Engine::builder(store()).settings(settings()).open().await.expect("opens");
    let opened = engine.stats().generation_bytes_read;
    let filter = Scan::new().filter(col("id").gt_eq(77_777).and(col("id").lt(77_787)));
    let found = engine.scan(filter).await.expect("a scan").collect_all().await.expect("rows");
    assert_eq!(found.num_rows(), 10);
    let few = engine.stats().generation_bytes_read - opened;
    let mut stream = engine.scan(Scan::new()).await.expect("a scan");
    let start = now();
    let mut counted = 0;
    while let Some(batch) = stream.next().await {
        counted += batch.expect("rows").num_rows();
    }
    let took = start.elapsed();
    let full = engine.stats().generation_bytes_read - opened;
    println!(
        "a filter for 10 neighbours read {few} bytes, a full scan {full}; the scan gave {counted} rows in {took:.2?}"
    );
    engine.abort();
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let folder = tempfile::tempdir().expect("a folder");
    freezing(folder.path()).await;
    reading(folder.path()).await;
}

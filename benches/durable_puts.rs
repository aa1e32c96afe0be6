//! How fast are durable puts on a local folder, next to a bare synced object write?
//!
//! 64 putters, each waiting for its put; 100 rows of about 400 bytes a put. The baselines write
//! bare objects through the same store client, one after the other: of the size of one put, and
//! of the size of the entries that group commit makes of them.
//!
//! `cargo bench --bench durable_puts`

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot run shall say so")]

mod support;

use std::time::Duration;

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, PutMode, PutOptions};
use support::{Latencies, Summary, median, now, rows, schema, verdict};
use tidewal::{Engine, Store, TableSpec};

const PUTTERS: i64 = 64;
const ROWS: usize = 100;
const TEXT_BYTES: usize = 384;
const ROUND: Duration = Duration::from_secs(4);
const ROUNDS: usize = 5;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let folder = tempfile::tempdir_in(std::env::current_dir().expect("a folder")).expect("a folder");
    let (mut bare, mut large, mut durable, mut rates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    // Taking turns, so that a slow minute of the machine slows both.
    for round in 0..ROUNDS {
        let (latency, rate, entry_bytes) = puts(&folder.path().join(format!("shard{round}"))).await;
        bare.push(bare_writes(&folder.path().join(format!("bare{round}")), ROWS * 400).await);
        large.push(bare_writes(&folder.path().join(format!("large{round}")), entry_bytes).await);
        println!("round {round}: bare, one put's size      {}", bare[round]);
        println!("round {round}: bare, an entry's {entry_bytes:>7} {}", large[round]);
        println!("round {round}: durable puts               {latency}  {rate:.0} rows/s");
        durable.push(latency);
        rates.push(rate);
    }
    let p50 = |rounds: &[Summary]| median(rounds.iter().map(|round| round.p50.as_secs_f64() * 1e3).collect());
    let (bare, large, durable, rate) = (p50(&bare), p50(&large), p50(&durable), median(rates));
    println!(
        "medians: bare synced write p50 {bare:.2} ms, of an entry's size {large:.2} ms; durable put p50 {durable:.2} ms; \
         {rate:.0} rows/s"
    );
    verdict("durable p50 <= 2 x a bare write of one put's size", durable <= 2.0 * bare);
    verdict("durable p50 <= 2 x a bare write of an entry's size", durable <= 2.0 * large);
    verdict(">= 100,000 rows/s", rate >= 100_000.0);
}

async fn bare_writes(folder: &std::path::Path, size: usize) -> Summary {
    std::fs::create_dir_all(folder).expect("a folder");
    let store = LocalFileSystem::new_with_prefix(folder).expect("a store").with_fsync(true);
    let bytes = bytes::Bytes::from(vec![7u8; size]);
    let mut latencies = Latencies::default();
    for at in 0..200 {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let start = now();
        store.put_opts(&Path::from(format!("{at}")), bytes.clone().into(), options).await.expect("written");
        latencies.add(start.elapsed());
    }
    latencies.summary()
}

async fn puts(folder: &std::path::Path) -> (Summary, f64, usize) {
    let store = Store::from_url(folder.to_str().expect("a path")).expect("a store");
    let spec = TableSpec::new(schema()).primary_key(["id"]);
    let engine = Engine::builder(store).spec(spec).open().await.expect("opens");
    let start = now();
    let tasks: Vec<_> = (0..PUTTERS)
        .map(|putter| {
            let engine = engine.clone();
            tokio::spawn(async move {
                let mut latencies = Latencies::default();
                let mut id = putter << 32;
                while start.elapsed() < ROUND {
                    let rows = rows(id, ROWS, TEXT_BYTES);
                    id += ROWS as i64;
                    let put = now();
                    engine.put(rows).await.expect("written");
                    latencies.add(put.elapsed());
                }
                latencies
            })
        })
        .collect();
    let mut all = Latencies::default();
    for task in tasks {
        all.extend(task.await.expect("the putter ended"));
    }
    let took = start.elapsed().as_secs_f64();
    let rows = engine.stats().rows_put as f64;
    let entries = engine.stats().entries_written;
    let entry_bytes = (engine.stats().entry_bytes / entries.max(1)) as usize;
    println!("  {entries} entries, {:.0} rows an entry", rows / entries as f64);
    engine.close().await.expect("closed");
    (all.summary(), rows / took, entry_bytes)
}

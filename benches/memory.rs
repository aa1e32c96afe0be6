//! Does a shard keep to its memory budget when nobody waits?
//!
//! 100,000 puts of one, ten and a hundred rows, none awaited, against a budget of 64 MiB, each
//! case in a process of its own. The baseline is the process before the first put.
//!
//! `cargo bench --bench memory`

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot run shall say so")]

mod support;

use std::time::Duration;

use support::{now, resident, rows, schema, verdict};
use tidewal::{Engine, Error, IndexSpec, Settings, Store, TableSpec};

const BUDGET: u64 = 64 << 20;
const PUTS: i64 = 100_000;

/// Names the case to a process of its own: what one case leaves in the allocator is not the next's.
const CASE: &str = "TIDEWAL_MEMORY_BENCH_ROWS";

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let case = std::env::var(CASE).ok().and_then(|rows| rows.parse().ok());
    let Some(rows_a_put) = case else {
        for rows in ["1", "10", "100"] {
            let this = std::env::current_exe().expect("this program");
            let status = std::process::Command::new(this).env(CASE, rows).status().expect("it starts");
            assert!(status.success(), "the case of {rows} rows failed");
        }
        return;
    };
    // A folder, because an in-memory store would be counted as memory of the engine's.
    let folder = tempfile::tempdir_in(std::env::current_dir().expect("a folder")).expect("a folder");
    let store = Store::from_url(folder.path().to_str().expect("a path")).expect("a store");
    run(store, rows_a_put).await;
}

async fn run(store: Store, rows_a_put: usize) {
    let settings = Settings {
        memtable_bytes_max: BUDGET / 4,
        unflushed_bytes_max: BUDGET,
        backpressure_timeout: Duration::from_millis(50),
        ..Settings::default()
    };
    let spec = TableSpec::new(schema()).primary_key(["id"]).index(IndexSpec::btree("by_group", ["group"]));
    let engine = Engine::builder(store).spec(spec).settings(settings).open().await.expect("opens");
    let (before, _) = resident();
    let start = now();
    let (mut held_max, mut resident_max, mut taken) = (0, before, 0u64);
    for put in 0..PUTS {
        match engine.put_no_wait(vec![rows(put * rows_a_put as i64, rows_a_put, 100)]).await {
            Ok(_) => taken += 1,
            Err(Error::Backpressure { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        if put % 500 == 0 {
            held_max = held_max.max(engine.stats().bytes_held);
            resident_max = resident_max.max(resident().0);
        }
    }
    held_max = held_max.max(engine.stats().bytes_held);
    resident_max = resident_max.max(resident().0);
    let stats = engine.stats();
    println!(
        "{rows_a_put} rows a put: {taken} puts taken in {:.1?}, then backpressure; held {held_max} of {BUDGET}; rows {} and \
         indexes {} bytes; resident {before} before, {resident_max} at most ({:.2} x budget)",
        start.elapsed(),
        stats.row_bytes,
        stats.index_bytes,
        resident_max as f64 / BUDGET as f64,
    );
    verdict("bytes held never exceed the budget", held_max <= BUDGET);
    verdict("resident memory <= 1.3 x budget", resident_max as f64 <= 1.3 * BUDGET as f64);
    engine.close().await.expect("closed");
}

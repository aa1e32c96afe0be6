//! Does a shard keep to its memory budget when nobody waits?
//!
//! 100,000 puts of one row and of ten rows, none awaited, against a budget of 64 MiB. The
//! baseline is the process before the first put.
//!
//! `cargo bench --bench memory`

#![allow(clippy::expect_used, clippy::panic, reason = "a bench that cannot run shall say so")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use object_store::memory::InMemory;
use support::{now, resident, rows, schema, verdict};
use tidewal::{Engine, Error, IndexSpec, Settings, Store, TableSpec};

const BUDGET: u64 = 64 << 20;
const PUTS: i64 = 100_000;

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    let folder = tempfile::tempdir_in(std::env::current_dir().expect("a folder")).expect("a folder");
    for rows_a_put in [1, 10] {
        let store = Store::from_url(folder.path().join(format!("{rows_a_put}")).to_str().expect("a path"));
        run(store.expect("a store"), rows_a_put).await;
    }
    // An in-memory store would be counted as memory of the engine's.
    drop(Arc::new(InMemory::new()));
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

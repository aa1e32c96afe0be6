//! The engine works from plain threads, and leaves nothing behind.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::fault_store::{Fault, Gate, Op};
use support::shard::{builder, faulty, in_time, rows, settings};
use tidewal::{Components, Error, Settings};

/// Threads of this process that belong to a shard.
fn threads() -> usize {
    let tasks =
        std::fs::read_dir("/proc/self/task").map(|tasks| tasks.flatten().collect()).unwrap_or_else(|_| Vec::new());
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks
        .into_iter()
        .map(name)
        .filter(|name| !name.starts_with("tidewal-cpu") && (name.starts_with("tidewal-") || name.starts_with("actix")))
        .count()
}

#[test]
fn p10_a_put_waits_for_memory_on_a_plain_thread_without_a_runtime() {
    let (_, faults) = faulty();
    let gate = Gate::default();
    faults.on(Op::Put, "gen/").always(Fault::Hold(gate.clone()));
    let settings = Settings {
        memtable_bytes_max: 1 << 20,
        unflushed_bytes_max: 2 << 20,
        backpressure_timeout: Duration::from_millis(50),
        ..settings()
    };
    let open = builder(Arc::new(faults)).settings(settings).components(Components::default()).open();
    let engine = futures::executor::block_on(open).expect("opens");
    let error = loop {
        if let Err(error) = futures::executor::block_on(engine.put_no_wait(vec![rows(0..1000, "a")])) {
            break error;
        }
    };
    assert!(matches!(error, Error::Backpressure { .. }), "{error}");
    gate.open();
    futures::executor::block_on(engine.close()).expect("closes");
}

#[tokio::test]
async fn c3_no_thread_outlives_its_shard() {
    let before = threads();
    for round in 0..60 {
        let (_, faults) = faulty();
        let gate = Gate::default();
        match round % 6 {
            0 => {
                let engine = builder(Arc::new(faults)).open().await.expect("opens");
                engine.put(rows(0..1, "a")).await.expect("written");
                engine.close().await.expect("closed");
            }
            1 => builder(Arc::new(faults)).open().await.expect("opens").abort(),
            2 => drop(builder(Arc::new(faults)).open().await.expect("opens")),
            3 => {
                faults.on(Op::Put, "manifest/").always(Fault::PermissionDenied);
                builder(Arc::new(faults)).open().await.expect_err("refused");
            }
            4 => {
                faults.on(Op::Put, "manifest/").always(Fault::Hold(gate.clone()));
                let mut open = Box::pin(builder(Arc::new(faults)).open());
                assert!(futures::poll!(&mut open).is_pending());
                in_time(gate.reached(1)).await;
            }
            _ => {
                let engine = builder(Arc::new(faults.clone())).open().await.expect("opens");
                faults.on(Op::Put, "wal/").always(Fault::Panic);
                in_time(engine.put(rows(0..1, "a"))).await.expect_err("failed");
                assert!(threads() > before);
            }
        }
    }
    let gone = async {
        while threads() > before {
            tokio::task::yield_now().await;
        }
    };
    in_time(gone).await;
}

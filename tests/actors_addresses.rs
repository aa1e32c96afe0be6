//! The actors together through their public addresses, from wherever an embedder stands.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use support::shard::{faulty, in_time, reopen, rows};
use tidewal::actors::reader::{Get, GetMany, RunScan, TakeSnapshot};
use tidewal::actors::wal_appender::Append;
use tidewal::{Addresses, Engine, Key, ReadLevel, Scan, Seq};

/// Writes and reads with messages alone.
async fn by_messages(addresses: &Addresses, id: i64) {
    let admitted = addresses.admission.put(vec![rows(id..id + 3, "m")]).await.expect("room");
    let (append, sequenced) = Append::new(admitted);
    addresses.wal_appender.send(append).await.expect("taken");
    let receipt = sequenced.receipt(&addresses.cursors).await.expect("sequenced");
    receipt.durable().await.expect("durable");
    let range = receipt.visible().await.expect("visible");
    assert_eq!(range.rows(), 3);

    let snapshot = addresses.reader.send(TakeSnapshot::default()).await.expect("asked").expect("a snapshot");
    assert!(snapshot.seq() >= range.end());
    assert!(addresses.reader.send(Get::new(id)).await.expect("asked").expect("a lookup").row().is_some());
    let keys = (id..id + 200).map(Key::from).collect();
    let found = addresses.reader.send(GetMany { keys, level: ReadLevel::Visible }).await.expect("asked");
    assert!(found.expect("lookups").rows.num_rows() >= 3);
    let scan = Scan::new().filter_sql(&format!("id >= {id} AND id < {}", id + 3)).expect("parses");
    let rows = addresses.reader.send(RunScan { scan, level: ReadLevel::Visible }).await.expect("asked");
    assert_eq!(rows.expect("a stream").collect_all().await.expect("it reads").num_rows(), 3);
}

async fn shard() -> Engine {
    reopen(&faulty().0).await
}

#[tokio::test]
async fn addresses_work_from_a_single_threaded_runtime() {
    let engine = shard().await;
    in_time(by_messages(&engine.addresses(), 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn addresses_work_from_many_tasks_of_a_multi_threaded_runtime() {
    let engine = shard().await;
    let tasks = (0..16).map(|task| {
        let addresses = engine.addresses();
        tokio::spawn(async move { by_messages(&addresses, task * 10).await })
    });
    for task in tasks.collect::<Vec<_>>() {
        in_time(task).await.expect("it ended");
    }
    assert_eq!(engine.cursors().visible(), Seq::new(16 * 3));
}

#[tokio::test]
async fn addresses_work_from_an_actix_system_of_the_embedders() {
    let engine = shard().await;
    let addresses = engine.addresses();
    let system = std::thread::spawn(move || {
        actix_rt::System::new().block_on(async move { by_messages(&addresses, 0).await });
    });
    system.join().expect("the embedder's system ended");
    engine.close().await.expect("closed");
}

#[test]
fn a_shard_opens_and_answers_on_plain_threads_without_any_runtime() {
    let engine = futures::executor::block_on(shard());
    let threads: Vec<_> = (0..4)
        .map(|thread| {
            let addresses = engine.addresses();
            std::thread::spawn(move || futures::executor::block_on(by_messages(&addresses, thread * 10)))
        })
        .collect();
    for thread in threads {
        thread.join().expect("it ended");
    }
    futures::executor::block_on(engine.close()).expect("closed");
}

#[tokio::test]
async fn e1_a_burst_of_ten_thousand_messages_is_counted_in_and_out() {
    let engine = shard().await;
    let addresses = engine.addresses();
    let asked: Vec<_> = (0..10_000).map(|id: i64| addresses.reader.send(Get::new(id))).collect();
    let answered = in_time(futures::future::join_all(asked)).await;
    assert_eq!(answered.iter().filter(|answer| matches!(answer, Ok(Ok(_)))).count(), 10_000);
    assert_eq!(engine.stats().lookups, 10_000);
}

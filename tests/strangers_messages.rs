//! Messages that come to the wrong place, or nowhere.

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use support::shard::{faulty, in_time, open, reopen, rows, text};
use tidewal::Error;
use tidewal::actors::wal_appender::Append;

#[tokio::test]
async fn p1_rows_admitted_by_another_shard_are_refused_and_harm_nobody() {
    let ((_, one), (inner, other)) = (faulty(), faulty());
    let (one, other) = (open(&one).await.expect("opens"), open(&other).await.expect("opens"));
    let admitted = one.addresses().admission.put(vec![rows(0..1, "a")]).await.expect("room");
    let held = one.stats().bytes_held;
    let (append, sequenced) = Append::new(admitted);
    other.addresses().wal_appender.send(append).await.expect("taken");
    let answer = match in_time(sequenced.receipt(other.cursors())).await {
        Ok(receipt) => in_time(receipt.visible()).await.map(|_| ()),
        Err(error) => Err(error),
    };
    assert!(matches!(answer, Err(Error::InvalidInput { .. })), "{answer:?}");
    assert!(one.stats().bytes_held < held, "B1");
    in_time(other.put(rows(1..2, "b"))).await.expect("the other shard goes on");
    other.close().await.expect("closes");
    let other = reopen(&(Arc::clone(&inner))).await;
    assert_eq!((text(&other, 0).await, text(&other, 1).await), (None, Some("b 1".to_owned())));
}

#[tokio::test]
async fn z5_a_put_that_is_dropped_before_it_is_sent_hangs_nobody() {
    let (_, faults) = faulty();
    let engine = open(&faults).await.expect("opens");
    let before = engine.stats().bytes_held;
    let admitted = engine.addresses().admission.put(vec![rows(0..1, "a")]).await.expect("room");
    let (append, sequenced) = Append::new(admitted);
    drop(append);
    let answer = in_time(sequenced.receipt(engine.cursors())).await;
    assert!(matches!(answer, Err(Error::InvalidInput { .. })), "{answer:?}");
    assert_eq!(engine.stats().bytes_held, before, "B1");
}

//! Q4, Z5: streams compute as far as they are asked, stop when dropped, and never hang.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use arrow_array::RecordBatch;
use futures::Stream;

use super::super::run::Run;
use super::super::{RowStream, Scan};
use super::scans::{block_on, ids, row};
use super::shard::Shard;
use crate::config::{CpuPool, Job};
use crate::error::{Error, Result};

/// Runs a job when it is told to, and can lose one.
#[derive(Debug, Default)]
struct HeldPool(Mutex<Vec<HeldJob>>);

struct HeldJob(Job<'static>);

impl std::fmt::Debug for HeldJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a job")
    }
}

impl HeldPool {
    fn jobs(&self) -> usize {
        self.0.lock().expect("not poisoned").len()
    }

    fn take(&self) -> Job<'static> {
        self.0.lock().expect("not poisoned").remove(0).0
    }
}

impl CpuPool for HeldPool {
    fn spawn(&self, job: Job<'static>) {
        self.0.lock().expect("not poisoned").push(HeldJob(job));
    }

    fn run_all(&self, jobs: Vec<Job<'_>>) {
        jobs.into_iter().for_each(|job| job());
    }
}

fn held() -> (Shard, Arc<HeldPool>) {
    let pool = Arc::new(HeldPool::default());
    let mut shard = Shard::new(true, false);
    shard.write((0..10).map(|id| row(id, id)).collect());
    shard.pool = pool.clone();
    (shard, pool)
}

/// Polls once.
fn poll(stream: &mut RowStream) -> Poll<Option<Result<RecordBatch>>> {
    let mut cx = Context::from_waker(Waker::noop());
    Pin::new(stream).poll_next(&mut cx)
}

#[test]
fn q4_a_stream_computes_one_batch_ahead_and_no_further() {
    let (shard, pool) = held();
    let mut stream = shard.snapshot(shard.end()).scan(Scan::new().batch_rows(2)).expect("a scan");
    assert_eq!(pool.jobs(), 0, "nothing before it is asked");
    for _ in 0..4 {
        assert!(poll(&mut stream).is_pending() || pool.jobs() > 0);
        assert_eq!(pool.jobs(), 1);
        pool.take()();
        assert!(matches!(poll(&mut stream), Poll::Ready(Some(Ok(_)))));
        assert_eq!(pool.jobs(), 1, "the next one, and only it");
    }
}

#[test]
fn q4_a_dropped_stream_stops_and_frees_its_turn() {
    let (shard, pool) = held();
    let mut stream = shard.snapshot(shard.end()).scan(Scan::new()).expect("a scan");
    assert!(poll(&mut stream).is_pending());
    assert_eq!(shard.gate.available_permits(), 3);
    drop(stream);
    pool.take()();
    assert_eq!(pool.jobs(), 0);
    assert_eq!(shard.gate.available_permits(), 4);
}

#[test]
fn z5_a_job_that_is_lost_is_an_error_and_not_a_hang() {
    let (shard, pool) = held();
    let mut stream = shard.snapshot(shard.end()).scan(Scan::new()).expect("a scan");
    assert!(poll(&mut stream).is_pending());
    drop(pool.take());
    assert!(matches!(poll(&mut stream), Poll::Ready(Some(Err(Error::Query { .. })))));
    assert!(matches!(poll(&mut stream), Poll::Ready(None)));
}

#[test]
fn z5_a_panic_in_a_query_is_an_error_of_that_query_alone() {
    let mut shard = Shard::new(true, false);
    shard.write((0..10).map(|id| row(id, id)).collect());
    let snapshot = shard.snapshot(shard.end());
    let scan = Scan::new().check(&shard.spec).expect("valid");
    let schema = Arc::clone(&scan.schema);
    let mut run = Run::new(&snapshot.view, snapshot.seq, &shard.spec, scan).expect("a run");
    run.panic_for_test();
    let stream = RowStream::new(schema, snapshot.reading.clone(), run);
    let error = block_on(stream.collect_all()).expect_err("a panic");
    assert!(matches!(&error, Error::Query { detail } if detail.contains("panic")), "{error}");
    assert_eq!(ids(&snapshot, Scan::new()).len(), 10);
    assert_eq!(shard.gate.available_permits(), 4);
}

#[test]
fn q4_more_scans_than_may_run_at_once_all_end() {
    let mut shard = Shard::new(true, false);
    shard.write((0..100).map(|id| row(id, id)).collect());
    let snapshot = shard.snapshot(shard.end());
    let streams: Vec<_> =
        (0..20).map(|_| snapshot.scan(Scan::new().batch_rows(7)).expect("a scan").collect_all()).collect();
    let all = block_on(futures::future::join_all(streams));
    assert!(all.into_iter().all(|rows| rows.expect("rows").num_rows() == 100));
}

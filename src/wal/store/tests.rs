use std::time::Duration;

use object_store::path::Path;

use super::*;
use crate::wal::testing::fault_store::{Fault, Op};
use crate::wal::testing::{ATTEMPTS, Process};

#[tokio::test]
async fn w6_a_read_is_retried_with_doubling_pauses_up_to_five_seconds() {
    let mut process = Process::first();
    process.store.0.attempts_max = 10;
    process.faults.on(Op::Get, "").always(Fault::FailBefore);
    let error = process.store.get(&Path::from("root/x"), Operation::ReadEntry).await.expect_err("it always fails");
    assert!(matches!(&error, Error::Io { attempts: 10, object, .. } if object == "root/x"), "{error}");
    let seconds: Vec<_> = process.clock.slept().iter().map(Duration::as_millis).collect();
    assert_eq!(seconds, [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]);
}

#[tokio::test]
async fn w6_a_read_that_works_at_the_last_attempt_is_a_read() {
    let process = Process::first();
    process.faults.overwrite(&Path::from("root/x"), "here").await;
    process.faults.on(Op::Get, "").times(u64::from(ATTEMPTS) - 1, Fault::FailAfter);
    let bytes = process.store.get(&Path::from("root/x"), Operation::ReadEntry).await.expect("it is read");
    assert_eq!(bytes.as_deref(), Some(&b"here"[..]));
    assert_eq!(process.store.stats.objects_read.get(), 1);
}

#[tokio::test]
async fn what_is_not_there_is_no_error_and_not_asked_for_twice() {
    let process = Process::first();
    assert_eq!(process.store.get(&Path::from("root/x"), Operation::ReadEntry).await.expect("it answers"), None);
    assert_eq!(process.faults.count(Op::Get, "root/x"), 1);
    assert!(process.store.list(&Path::from("root/none")).await.expect("it answers").is_empty());
}

#[tokio::test]
async fn w6_a_store_that_refuses_is_asked_once() {
    let process = Process::first();
    process.faults.on(Op::List, "").always(Fault::PermissionDenied);
    let error = process.store.list(&Path::from("root")).await.expect_err("it is denied");
    assert!(matches!(error, Error::Io { operation: Operation::List, attempts: 1, .. }), "{error}");
}

#[tokio::test]
async fn w5_both_ways_to_say_that_an_object_exists_are_one_answer() {
    let process = Process::first();
    process.faults.on(Op::Put, "a").once(Fault::Precondition);
    process.faults.on(Op::Put, "b").once(Fault::AlreadyExists);
    for name in ["a", "b"] {
        let answer = process.store.create_once(&Path::from(name), Bytes::from_static(b"x")).await;
        assert!(matches!(answer, CreateAnswer::Conflict), "{answer:?}");
        let answer = process.store.create_once(&Path::from(name), Bytes::from_static(b"x")).await;
        assert!(matches!(answer, CreateAnswer::Created), "{answer:?}");
    }
}

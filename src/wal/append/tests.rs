use std::time::Duration;

use super::*;
use crate::wal::testing::fault_store::{Fault, Gate, Op, Remains};
use crate::wal::testing::{ATTEMPTS, Process, SHARD, corrupt_object, put, spec};

const OURS: Nonce = Nonce::new(1);
const THEIRS: Nonce = Nonce::new(2);
const CRC: u32 = 77;

fn attempt(opening: bool) -> AppendAttempt {
    let header = EntryHeader {
        shard: SHARD.into(),
        epoch: Epoch::new(5),
        nonce: OURS,
        position: EntryPosition::new(9),
        first: Seq::ZERO,
        puts: if opening { vec![] } else { vec![1] },
        previous_crc: 0,
        torn_before: false,
    };
    AppendAttempt::new(&header, CRC, 3)
}

fn found(epoch: u64, nonce: Nonce, sentinel: bool) -> ReadBack {
    ReadBack::Found { epoch: Epoch::new(epoch), nonce, position: EntryPosition::new(9), crc: CRC, sentinel }
}

#[test]
fn w4_our_own_entry_read_back_is_success() {
    let mut core = attempt(false);
    assert_eq!(core.start(), Step::Put { attempt: 1 });
    assert_eq!(core.on_put(PutAnswer::Conflict), Step::ReadBack);
    assert_eq!(core.on_read_back(found(5, OURS, false)), Step::Written);
}

#[test]
fn w4_something_else_of_ours_is_not_success() {
    for other in [
        ReadBack::Found { epoch: Epoch::new(5), nonce: OURS, position: EntryPosition::new(9), crc: 1, sentinel: false },
        ReadBack::Found {
            epoch: Epoch::new(5),
            nonce: OURS,
            position: EntryPosition::new(8),
            crc: CRC,
            sentinel: false,
        },
        found(5, THEIRS, false),
    ] {
        let step = attempt(false).on_read_back(other);
        assert!(matches!(step, Step::Fail(Cause::Misplaced { .. })), "{step:?}");
    }
}

#[test]
fn w5_a_higher_epoch_fences_and_a_lower_one_is_stepped_past() {
    for opening in [true, false] {
        assert_eq!(attempt(opening).on_read_back(found(6, THEIRS, false)), Step::Fenced { by: Epoch::new(6) });
        assert_eq!(attempt(opening).on_read_back(found(6, THEIRS, true)), Step::Fenced { by: Epoch::new(6) });
        let past = Step::Past { previous_crc: CRC, torn: false };
        assert_eq!(attempt(opening).on_read_back(found(4, THEIRS, true)), past);
    }
    let past = Step::Past { previous_crc: CRC, torn: false };
    assert_eq!(attempt(true).on_read_back(found(4, THEIRS, false)), past);
    let step = attempt(false).on_read_back(found(4, THEIRS, false));
    assert!(matches!(step, Step::Fail(Cause::Misplaced { .. })), "our rows and theirs have the same numbers: {step:?}");
}

#[test]
fn w5_a_conflict_without_an_object_is_tried_again_and_not_for_ever() {
    let mut core = attempt(false);
    for next in [2, 3] {
        assert_eq!(core.on_put(PutAnswer::Conflict), Step::ReadBack);
        assert_eq!(core.on_read_back(ReadBack::Nothing), Step::Put { attempt: next });
    }
    assert_eq!(core.on_put(PutAnswer::Conflict), Step::ReadBack);
    assert_eq!(core.on_read_back(ReadBack::Nothing), Step::Fail(Cause::Refused));
}

#[test]
fn w6_the_last_attempt_is_followed_by_a_read_back_that_decides() {
    let failed = PutAnswer::Failed { transient: true };
    let exhausted = || {
        let mut core = attempt(false);
        assert_eq!(core.on_put(failed), Step::Put { attempt: 2 });
        assert_eq!(core.on_put(failed), Step::Put { attempt: 3 });
        assert_eq!(core.on_put(failed), Step::ReadBack);
        core
    };
    assert_eq!(exhausted().on_read_back(ReadBack::Nothing), Step::Fail(Cause::Refused));
    assert_eq!(exhausted().on_read_back(found(5, OURS, false)), Step::Written);
    assert_eq!(exhausted().on_read_back(found(6, THEIRS, false)), Step::Fenced { by: Epoch::new(6) });
    let mut refused = attempt(false);
    assert_eq!(refused.on_put(PutAnswer::Failed { transient: false }), Step::ReadBack);
    assert_eq!(refused.on_read_back(ReadBack::Nothing), Step::Fail(Cause::Refused));
}

#[test]
fn r4_only_an_opening_steps_past_a_torn_object() {
    let torn = ReadBack::Torn { crc: 4 };
    assert_eq!(attempt(true).on_read_back(torn), Step::Past { previous_crc: 4, torn: true });
    assert_eq!(attempt(false).on_read_back(torn), Step::Fail(Cause::Unreadable));
    assert_eq!(attempt(true).on_read_back(ReadBack::Corrupt), Step::Fail(Cause::Unreadable));
}

fn one_row() -> Content {
    Content::Rows(vec![put(0, 1)])
}

fn written(outcome: &AppendOutcome) -> u64 {
    match outcome {
        AppendOutcome::Written { position, .. } => position.get(),
        other => panic!("not written: {other:?}"),
    }
}

fn failed(outcome: AppendOutcome) -> Error {
    match outcome {
        AppendOutcome::Failed(error) => error,
        other => panic!("not failed: {other:?}"),
    }
}

#[tokio::test]
async fn w4_an_answer_lost_after_success_leaves_one_entry_and_no_self_fence() {
    for fault in [Fault::FailAfter, Fault::AlreadyExists, Fault::Precondition] {
        let process = Process::first();
        let mut writer = process.open(1).await.expect("it opens");
        process.faults.on(Op::Put, "wal/").once(fault.clone());
        assert_eq!(written(&writer.outcome(one_row()).await), 1, "{fault:?}");
        writer.position = EntryPosition::new(2);
        assert_eq!(process.log_objects().await, 1, "{fault:?}");
        let reopened = process.beside().open(2).await.expect("it opens");
        assert_eq!(reopened.rows, [0], "{fault:?}");
    }
}

#[tokio::test]
async fn w4_every_answer_lost_is_still_success_when_the_entry_is_there() {
    let process = Process::first();
    let writer = process.open(1).await.expect("it opens");
    process.faults.on(Op::Put, "wal/").once(Fault::FailAfter);
    process.faults.on(Op::Put, "wal/").always(Fault::FailBefore);
    assert_eq!(written(&writer.outcome(one_row()).await), 1);
    assert_eq!(process.store.stats.ambiguous_outcomes_resolved.get(), 1);
    assert_eq!(process.store.stats.entry_puts_retried.get(), u64::from(ATTEMPTS) - 1);
}

#[tokio::test]
async fn w6_any_other_error_is_retried_with_doubling_pauses_and_then_fails() {
    let process = Process::first();
    let writer = process.open(1).await.expect("it opens");
    process.faults.on(Op::Put, "wal/").always(Fault::DiskFull);
    let error = failed(writer.outcome(one_row()).await);
    assert!(matches!(error, Error::Io { operation: Operation::CreateEntry, attempts: ATTEMPTS, .. }), "{error}");
    assert!(error.to_string().contains("no space left"), "{error}");
    assert_eq!(process.clock.slept(), [50, 100, 200].map(Duration::from_millis));
    assert_eq!(process.log_objects().await, 0);
}

#[tokio::test]
async fn w6_a_denied_write_is_not_repeated() {
    let process = Process::first();
    let writer = process.open(1).await.expect("it opens");
    process.faults.on(Op::Put, "wal/").always(Fault::PermissionDenied);
    let error = failed(writer.outcome(one_row()).await);
    assert!(matches!(error, Error::Io { attempts: 1, .. }), "{error}");
    assert_eq!(process.faults.count(Op::Put, "wal/"), 1);
}

#[tokio::test]
async fn w6_an_outcome_that_cannot_be_read_back_is_failure_and_not_a_guess() {
    let process = Process::first();
    let writer = process.open(1).await.expect("it opens");
    process.faults.on(Op::Put, "wal/").always(Fault::FailAfter);
    process.faults.on(Op::Get, "wal/").always(Fault::FailBefore);
    let error = failed(writer.outcome(one_row()).await);
    assert!(matches!(error, Error::Io { operation: Operation::ReadEntry, .. }), "{error}");
}

#[tokio::test]
async fn w5_a_409_without_an_object_is_tried_again() {
    let process = Process::first();
    let writer = process.open(1).await.expect("it opens");
    process.faults.on(Op::Put, "wal/").times(2, Fault::AlreadyExists);
    assert_eq!(written(&writer.outcome(one_row()).await), 1);
    assert_eq!(process.faults.count(Op::Put, "wal/"), 3);
}

#[tokio::test]
async fn w7_a_late_write_of_a_failed_append_is_settled_by_the_next_sentinel() {
    let process = Process::first();
    let writer = process.open(1).await.expect("it opens");
    process.faults.on(Op::Put, "wal/").always(Fault::Late);
    failed(writer.outcome(one_row()).await);
    let reopened = process.beside().open(2).await.expect("it opens");
    assert_eq!(reopened.rows, [0i64; 0]);
    assert_eq!(process.faults.apply_late_puts().await, 0, "the sentinel has their place");
}

#[tokio::test]
async fn w8_a_read_back_that_is_cut_short_is_read_again() {
    let process = Process::first();
    let writer = process.open(1).await.expect("it opens");
    process.faults.on(Op::Put, "wal/").once(Fault::FailAfter);
    process.faults.on(Op::Get, "wal/").once(Fault::ShortRead(100));
    process.faults.on(Op::Get, "wal/").once(Fault::BitFlip { byte: 300, bit: 2 });
    assert_eq!(written(&writer.outcome(one_row()).await), 1);
}

#[tokio::test]
async fn r4_a_running_writer_that_meets_a_torn_object_fails_and_names_it() {
    let process = Process::first();
    let writer = process.open(1).await.expect("it opens");
    process.faults.overwrite(&process.entry(1), vec![0; 5000]).await;
    let error = failed(writer.outcome(one_row()).await);
    assert_eq!(corrupt_object(&error), Some(process.entry(1).as_ref()), "{error}");
}

#[tokio::test]
async fn w2_a_running_writer_does_not_acknowledge_above_rows_of_an_older_epoch() {
    let process = Process::first();
    let old = process.open(1).await.expect("it opens");
    let mut new = process.beside().open(2).await.expect("it opens");
    // Something no zombie can do: an entry of the old epoch above the new one's sentinel.
    let mut draft = old.draft(one_row());
    (draft.position, draft.previous_crc) = (new.position, new.previous_crc);
    let intruder = append_entry(&process.store, draft).await;
    assert_eq!(written(&intruder), 2);
    let error = new.append(&[1]).await.expect_err("two rows with the number 0");
    assert_eq!(corrupt_object(&error), Some(process.entry(2).as_ref()), "{error}");
}

#[tokio::test]
async fn e1_a_zombie_resumed_in_the_middle_of_its_put_is_fenced() {
    let process = Process::first();
    let writer = process.open(1).await.expect("it opens");
    let gate = Gate::default();
    process.faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    let asleep = tokio::spawn(async move { writer.outcome(one_row()).await });
    gate.reached(1).await;
    let successor = process.beside().open(2).await.expect("it opens");
    assert_eq!(successor.rows, [0i64; 0]);
    gate.open();
    let outcome = asleep.await.expect("it does not panic");
    assert!(matches!(outcome, AppendOutcome::Fenced { by } if by == Epoch::new(2)), "{outcome:?}");
}

#[tokio::test]
async fn e3_a_zombie_whose_put_got_in_first_was_honest() {
    let process = Process::first();
    let mut writer = process.open(1).await.expect("it opens");
    let gate = Gate::default();
    process.faults.on(Op::Put, "wal/").once(Fault::HoldAnswer(gate.clone()));
    let asleep = tokio::spawn(async move {
        let first = writer.append(&[2]).await;
        (first, writer.append(&[1]).await)
    });
    gate.reached(1).await;
    let successor = process.beside().open(2).await.expect("it opens");
    assert_eq!(successor.rows, [0, 1]);
    gate.open();
    let (first, second) = asleep.await.expect("it does not panic");
    first.expect("its rows are in the log");
    assert_eq!(second.as_ref().err().and_then(crate::wal::testing::fenced_by), Some(Epoch::new(2)), "{second:?}");
}

#[tokio::test]
async fn s1_puts_with_a_hole_or_none_are_refused_before_anything_is_written() {
    let process = Process::first();
    let writer = process.open(1).await.expect("it opens");
    for puts in [vec![], vec![put(0, 2), put(3, 1)], vec![put(0, 2), put(1, 1)]] {
        let error = failed(writer.outcome(Content::Rows(puts)).await);
        assert!(matches!(error, Error::Failed(Failure::Invariant { id: "S1", .. })), "{error}");
    }
    assert_eq!(process.faults.count(Op::Put, "wal/"), 0);
    assert_eq!(writer.claim.spec, spec());
}

#[tokio::test]
async fn w8_a_sentinel_steps_past_a_torn_tail_and_stops_at_a_corrupt_one() {
    let process = Process::first();
    let mut writer = process.open(1).await.expect("it opens");
    writer.append(&[3]).await.expect("it appends");
    writer.append(&[3]).await.expect("it appends");
    process.faults.damage(&process.entry(2), Remains::Prefix(500)).await;
    let reopened = process.beside().open(2).await.expect("it opens");
    assert_eq!(reopened.rows, [0, 1, 2]);
    assert_eq!(reopened.report.torn_tail.as_deref(), Some(process.entry(2).as_ref()));
    let mut corrupt = process.faults.read(&process.entry(3)).await.to_vec();
    corrupt[200] ^= 1;
    process.faults.overwrite(&process.entry(3), corrupt).await;
    let error = process.beside().open(3).await.expect_err("a sentinel is corrupt");
    assert_eq!(corrupt_object(&error), Some(process.entry(3).as_ref()), "{error}");
}

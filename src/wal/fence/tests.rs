use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema};
use object_store::ObjectStore;
use object_store::memory::InMemory;

use super::*;
use crate::ids::ManifestVersion;
use crate::spec::TableSpec;
use crate::wal::manifest::Released;
use crate::wal::testing::fault_store::{Fault, Gate, Op};
use crate::wal::testing::{Process, SHARD, corrupt_object, fenced_by, generation_meta, spec};

fn other_spec() -> ValidatedSpec {
    let schema = Schema::new(vec![Field::new("other", DataType::Utf8, true)]);
    TableSpec::new(Arc::new(schema)).validate().expect("the spec is valid")
}

#[tokio::test]
async fn o8_a_spec_that_disagrees_is_refused_with_both_shown_and_fences_nobody() {
    let process = Process::first();
    let mut incumbent = process.open(1).await.expect("it opens");
    let objects = process.faults.names("root").await;
    let error = claim(&process.store, Some(&other_spec()), SHARD, Nonce::new(2)).await.expect_err("they disagree");
    let text = error.to_string();
    assert!(matches!(error, Error::InvalidInput { .. }) && text.contains("other: Utf8") && text.contains("id: Int64"));
    assert_eq!(process.faults.names("root").await, objects, "a doomed open writes nothing (O5)");
    incumbent.append(&[1]).await.expect("nobody fenced it");
}

#[tokio::test]
async fn o8_no_spec_uses_the_stored_one_and_needs_one() {
    let process = Process::first();
    let error = claim(&process.store, None, SHARD, Nonce::new(1)).await.expect_err("nothing is stored");
    assert!(matches!(&error, Error::InvalidInput { subject, .. } if subject == "the table spec"), "{error}");
    assert!(process.faults.names("root").await.is_empty());
    process.claim(1).await.expect("it is created");
    let claim = claim(&process.store, None, SHARD, Nonce::new(2)).await.expect("it is stored");
    assert_eq!((claim.epoch, claim.spec), (Epoch::new(2), spec()));
}

#[tokio::test]
async fn o8_a_stored_shard_keeps_the_name_it_was_created_with() {
    let process = Process::first();
    process.claim(1).await.expect("it is created");
    let claim = claim(&process.store, None, "another", Nonce::new(2)).await.expect("it is stored");
    assert_eq!(claim.manifest.shard, SHARD);
}

#[tokio::test]
async fn o7_epoch_one_writes_no_sentinel_and_every_later_one_does() {
    let process = Process::first();
    for epoch in 1..=4 {
        let opened = process.open(u128::from(epoch)).await.expect("it opens");
        assert_eq!(opened.claim.epoch, Epoch::new(epoch));
        assert_eq!(process.log_objects().await as u64, epoch - 1);
    }
}

/// Claims at once from several processes; how many won.
async fn race(process: &Process, claimers: u64, nonce: u128) -> usize {
    let gate = Gate::default();
    let mut tasks = Vec::new();
    for at in 0..claimers {
        let claimer = process.beside();
        claimer.faults.on(Op::Put, "manifest").once(Fault::Hold(gate.clone()));
        tasks.push(tokio::spawn(async move { claimer.claim(nonce + u128::from(at)).await }));
    }
    // All have read the same manifest before one of them writes.
    gate.reached(claimers).await;
    gate.open();
    let mut won = 0;
    for task in tasks {
        match task.await.expect("it does not panic") {
            Ok(_) => won += 1,
            Err(error) => assert!(fenced_by(&error).is_some(), "{error}"),
        }
    }
    won
}

#[tokio::test]
async fn o6_of_two_and_of_eight_claimers_exactly_one_has_the_epoch() {
    for claimers in [2, 8] {
        let process = Process::first();
        for round in 0..20 {
            assert_eq!(race(&process, claimers, 1 + 100 * round).await, 1);
        }
        let newest = process.store.latest().await.expect("it reads").expect("it exists");
        assert_eq!((newest.epoch, newest.version), (Epoch::new(20), ManifestVersion::new(20)));
    }
}

#[tokio::test]
async fn o6_a_ping_pong_of_a_thousand_rounds_ends_with_one_owner() {
    let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let processes = [Process::over(Arc::clone(&inner)), Process::over(inner)];
    let mut loser = None;
    for round in 0..1_000 {
        let (process, nonce) = (&processes[round % 2], 1 + round as u128);
        // Each replay reads all sentinels so far; every hundredth is enough.
        if round % 100 > 0 {
            let claim = process.claim(nonce).await.expect("it claims");
            assert_eq!(claim.epoch, Epoch::new(round as u64 + 1));
            write_sentinel(&process.store, &claim).await.expect("it owns the shard").expect("it is written");
        } else {
            let mut winner = process.open(nonce).await.expect("it opens");
            winner.append(&[1]).await.expect("it owns the shard");
            if let Some(mut loser) = loser.replace(winner) {
                let error = crate::wal::testing::Writer::append(&mut loser, &[1]).await.expect_err("it is fenced");
                assert!(fenced_by(&error).is_some(), "{error}");
            }
        }
    }
    let last = processes[0].open(5_000).await.expect("it opens");
    assert_eq!(last.rows, (0..10).collect::<Vec<i64>>());
}

#[tokio::test]
async fn o6_commits_of_the_incumbent_do_not_take_the_epoch_from_a_claimer() {
    let process = Process::first();
    let incumbent = process.open(1).await.expect("it opens");
    let claimer = process.beside();
    let mut manifest = incumbent.claim.manifest.clone();
    // Between each read and write of the claimer, the incumbent commits once.
    let mut task = None;
    for commit in 0..50 {
        let gate = Gate::default();
        claimer.faults.on(Op::Put, "manifest").once(Fault::Hold(gate.clone()));
        let claimer = claimer.clone();
        task.get_or_insert_with(|| tokio::spawn(async move { claimer.claim(2).await }));
        gate.reached(1).await;
        manifest.version = manifest.version.next();
        let first = manifest.flushed.get();
        manifest.flushed = manifest.flushed.plus(1);
        manifest.generations.push(generation_meta(first, first + 1));
        process.store.create(&manifest).await.unwrap_or_else(|error| panic!("commit {commit}: {error}"));
        // The next rule stands before the claimer goes on: rules of used-up gates are skipped.
        claimer_next(&task);
        gate.open();
    }
    let claim = task.expect("it was started").await.expect("it does not panic").expect("it claims");
    assert_eq!((claim.epoch, claim.manifest.version), (Epoch::new(2), ManifestVersion::new(52)));
    assert_eq!(claim.manifest.flushed.get(), 50, "the claim carries on what the incumbent committed");
}

/// On one thread the claimer runs only while the test awaits, so the rule for its next write is
/// in place in time.
fn claimer_next<T>(task: &Option<tokio::task::JoinHandle<T>>) {
    assert!(task.as_ref().is_some_and(|task| !task.is_finished()));
}

#[tokio::test]
async fn w4_a_claim_whose_answer_was_lost_is_ours() {
    let process = Process::first();
    process.faults.on(Op::Put, "manifest").once(Fault::FailAfter);
    assert_eq!(process.claim(1).await.expect("it claims").epoch, Epoch::new(1));
    process.faults.on(Op::Put, "manifest").once(Fault::AlreadyExists);
    assert_eq!(process.claim(2).await.expect("it claims").epoch, Epoch::new(2));
    process.faults.on(Op::Put, "wal").once(Fault::FailAfter);
    let opened = process.open(3).await.expect("it opens");
    assert_eq!((opened.claim.epoch, process.log_objects().await), (Epoch::new(3), 1));
}

#[tokio::test]
async fn o9_an_open_that_fails_after_the_claim_leaves_a_shard_that_opens() {
    let process = Process::first();
    process.open(1).await.expect("it opens").append(&[4]).await.expect("it appends");
    process.faults.on(Op::Put, "wal/").always(Fault::FailBefore);
    let error = process.open(2).await.expect_err("it cannot write its sentinel");
    assert!(matches!(error, Error::Io { .. }), "{error}");
    process.faults.heal();
    let opened = process.open(3).await.expect("it opens");
    assert_eq!((opened.claim.epoch, opened.rows), (Epoch::new(3), vec![0, 1, 2, 3]));
}

#[tokio::test]
async fn o7_a_stale_list_costs_steps_and_not_the_fence() {
    let process = Process::first();
    let mut writer = process.open(1).await.expect("it opens");
    for _ in 0..5 {
        writer.append(&[1]).await.expect("it appends");
    }
    let late = process.beside();
    late.faults.on(Op::List, "wal").always(Fault::HideFromList(vec!["wal/".to_owned()]));
    let opened = late.open(2).await.expect("it opens");
    assert_eq!(opened.rows, [0, 1, 2, 3, 4]);
    assert_eq!(late.store.stats.positions_stepped_past.get(), 5);
    assert_eq!(writer.append(&[1]).await.as_ref().err().and_then(fenced_by), Some(Epoch::new(2)));
}

#[tokio::test]
async fn o7_a_claimer_that_slept_before_its_sentinel_is_fenced_wherever_it_wakes() {
    // Its place is taken by the successor's sentinel.
    let process = Process::first();
    process.open(1).await.expect("it opens").append(&[1]).await.expect("it appends");
    let sleeper = process.beside();
    let gate = Gate::default();
    sleeper.faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    let asleep = tokio::spawn(async move { sleeper.open(2).await.map(|_| ()) });
    gate.reached(1).await;
    let mut successor = process.open(3).await.expect("it opens");
    successor.append(&[1]).await.expect("it appends");
    gate.open();
    let error = asleep.await.expect("it does not panic").expect_err("it lost the shard");
    assert_eq!(fenced_by(&error), Some(Epoch::new(3)), "{error}");
    successor.append(&[1]).await.expect("it still owns the shard");
    assert_eq!(process.open(4).await.expect("it opens").rows, [0, 1, 2]);
}

#[tokio::test]
async fn o7_a_sentinel_in_a_gap_of_released_entries_is_found_out_by_the_manifest() {
    let process = Process::first();
    process.open(1).await.expect("it opens").append(&[1]).await.expect("it appends");
    let sleeper = process.beside();
    let gate = Gate::default();
    sleeper.faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    let asleep = tokio::spawn(async move { sleeper.open(2).await.map(|_| ()) });
    gate.reached(1).await;
    // The successor appends, commits what covers the log so far, and its garbage goes, for once
    // the sentinel at the sleeper's place too.
    let successor = process.open(3).await.expect("it opens");
    let mut manifest = successor.claim.manifest.clone();
    manifest.version = manifest.version.next();
    manifest.flushed = successor.next;
    manifest.generations = vec![generation_meta(0, successor.next.get())];
    manifest.replay_from = successor.position;
    manifest.released = Some(Released { position: EntryPosition::new(2), crc: successor.previous_crc });
    process.store.create(&manifest).await.expect("it commits");
    for entry in [1, 2] {
        process.faults.damage(&process.entry(entry), crate::wal::testing::fault_store::Remains::Nothing).await;
    }
    gate.open();
    let error = asleep.await.expect("it does not panic").expect_err("it lost the shard");
    assert_eq!(fenced_by(&error), Some(Epoch::new(3)), "{error}");
    assert!(process.open(4).await.expect("it opens").rows.is_empty());
}

#[tokio::test]
async fn o7_a_name_the_store_lists_and_does_not_find_fails_the_open() {
    let process = Process::first();
    process.open(1).await.expect("it opens").append(&[1]).await.expect("it appends");
    process.faults.on(Op::Get, "wal/").always(Fault::NotFound);
    let error = process.open(2).await.expect_err("the tip is gone");
    assert_eq!(corrupt_object(&error), Some(process.entry(1).as_ref()), "{error}");
    assert_eq!(process.log_objects().await, 1, "no sentinel was written over a hole");
}

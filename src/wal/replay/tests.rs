use super::*;
use crate::wal::append::{AppendOutcome, Content, EntryDraft, append_entry};
use crate::wal::entry;
use crate::wal::manifest::Released;
use crate::wal::testing::fault_store::{Fault, Odds, Op, Remains};
use crate::wal::testing::{Process, SHARD, Sink, Writer, corrupt_object, fenced_by, generation_meta, ids, put};

/// A log of `entries` entries of two puts each, three rows an entry.
async fn written(entries: u64) -> (Process, Writer) {
    let process = Process::first();
    let mut writer = process.open(1).await.expect("it opens");
    for _ in 0..entries {
        writer.append(&[1, 2]).await.expect("it appends");
    }
    (process, writer)
}

/// Commits that rows below `flushed` are in generations and the log begins at `replay_from`.
async fn release(process: &Process, writer: &Writer, flushed: u64, replay_from: u64, crc: u32) {
    let mut manifest = writer.claim.manifest.clone();
    manifest.version = manifest.version.next();
    manifest.flushed = Seq::new(flushed);
    manifest.generations = (flushed > 0).then(|| generation_meta(0, flushed)).into_iter().collect();
    manifest.replay_from = EntryPosition::new(replay_from);
    manifest.released = replay_from
        .checked_sub(1)
        .filter(|position| *position > 0)
        .map(|position| Released { position: EntryPosition::new(position), crc });
    process.store.create(&manifest).await.expect("it commits");
}

async fn crc_of(process: &Process, position: u64) -> u32 {
    entry::decode(&process.faults.read(&process.entry(position)).await).expect("it is whole").crc
}

fn rows(count: i64) -> Vec<i64> {
    (0..count).collect()
}

#[tokio::test]
async fn r1_ten_rows_stay_ten_rows_over_ten_reopens() {
    let process = Process::first();
    let mut writer = process.open(1).await.expect("it opens");
    writer.append(&[3, 5]).await.expect("it appends");
    let mut reopened = process.open(2).await.expect("it opens");
    assert_eq!(reopened.rows, rows(8));
    reopened.append(&[2]).await.expect("it appends");
    for reopen in 3..13 {
        let opened = process.open(reopen).await.expect("it opens");
        assert_eq!(opened.rows, rows(10), "R2: eight replayed rows and two new ones are ten");
        assert_eq!((opened.next, opened.report.rows, opened.report.entries), (Seq::new(10), 10, 2));
        // Two entries of rows; the rest are sentinels, one for each takeover.
        assert_eq!(process.log_objects().await as u128, 2 + reopen - 1);
    }
}

#[tokio::test]
async fn r1_every_prefetch_gives_the_same_rows_in_order() {
    let (process, _) = written(9).await;
    let claim = process.claim(2).await.expect("it claims");
    let sentinel = crate::wal::fence::write_sentinel(&process.store, &claim).await.expect("it is written");
    for prefetch in [0, 1, 2, 100] {
        let mut seen = Vec::new();
        let sink = |entry: ReplayedEntry| {
            assert_eq!(entry.puts, [1, 2]);
            seen.extend(ids(&entry.batches));
            Ok(())
        };
        let report = replay(&process.store, &claim, sentinel, prefetch, &mut Sink(sink)).await.expect("it replays");
        assert_eq!(seen, rows(27), "prefetch {prefetch}");
        assert_eq!((report.entries, report.rows, report.next_seq), (9, 27, Seq::new(27)));
        assert_eq!(report.next_position, EntryPosition::new(11));
        assert!(report.bytes > 0 && report.torn_tail.is_none());
    }
}

#[tokio::test]
async fn s2_a_replayed_entry_gives_its_puts_back_whole() {
    let (process, _) = written(2).await;
    let claim = process.claim(2).await.expect("it claims");
    let sentinel = crate::wal::fence::write_sentinel(&process.store, &claim).await.expect("it is written");
    let (_, entries) = process.replay(&claim, sentinel).await.expect("it replays");
    let puts: Vec<_> = entries.into_iter().flat_map(ReplayedEntry::into_puts).collect();
    let ranges: Vec<_> = puts.iter().map(|put| (put.range.first().get(), ids(&put.batches))).collect();
    assert_eq!(ranges, [(0, vec![0]), (1, vec![1, 2]), (3, vec![3]), (4, vec![4, 5])]);
    for put in &puts {
        assert!(put.bytes > 0);
        assert!(put.batches.iter().all(|batch| batch.schema_ref() == claim.spec.storage_schema()));
    }
}

#[tokio::test]
async fn f5_rows_below_the_flushed_seq_are_skipped_also_within_an_entry() {
    // Replay from entry 2 (rows 3, 4 and 5), whose first put is flushed.
    let (process, writer) = written(3).await;
    release(&process, &writer, 4, 2, crc_of(&process, 1).await).await;
    process.faults.damage(&process.entry(1), Remains::Nothing).await;
    let opened = process.open(2).await.expect("it opens");
    assert_eq!(opened.rows, [4, 5, 6, 7, 8]);
    assert_eq!((opened.report.rows, opened.next), (5, Seq::new(9)));
}

#[tokio::test]
async fn f5_a_log_that_is_wholly_flushed_replays_nothing_and_goes_on_behind() {
    let (process, writer) = written(3).await;
    release(&process, &writer, 9, 4, writer.previous_crc).await;
    for entry in 1..=3 {
        process.faults.damage(&process.entry(entry), Remains::Nothing).await;
    }
    let mut opened = process.open(2).await.expect("it opens");
    assert_eq!((opened.rows.len(), opened.next), (0, Seq::new(9)));
    opened.append(&[2]).await.expect("it appends");
    assert_eq!(process.open(3).await.expect("it opens").rows, [9, 10]);
}

#[tokio::test]
async fn f5_rows_that_generations_hold_and_the_log_never_did_are_no_hole() {
    // Without durable writes a generation may be ahead of the log when the process dies.
    let (process, writer) = written(1).await;
    release(&process, &writer, 7, 2, writer.previous_crc).await;
    let mut opened = process.open(2).await.expect("it opens");
    assert_eq!(opened.next, Seq::new(7));
    opened.append(&[1]).await.expect("it appends");
    assert_eq!(process.open(3).await.expect("it opens").rows, [7]);
}

#[tokio::test]
async fn s2_a_put_across_the_flushed_seq_is_corrupt() {
    let (process, writer) = written(2).await;
    release(&process, &writer, 5, 2, crc_of(&process, 1).await).await;
    let error = process.open(2).await.expect_err("rows 4 and 5 are one put");
    assert_eq!(corrupt_object(&error), Some(process.entry(2).as_ref()), "{error}");
}

#[tokio::test]
async fn r3_a_read_error_is_retried_and_then_fails_the_open_and_never_shortens_the_log() {
    let (process, _) = written(4).await;
    let name = process.entry(3).to_string();
    process.faults.on(Op::Get, name.as_str()).times(3, Fault::FailBefore);
    assert_eq!(process.open(2).await.expect("the fourth read works").rows, rows(12));
    process.faults.on(Op::Get, name.as_str()).always(Fault::FailAfter);
    let error = process.open(3).await.expect_err("no read works");
    assert!(matches!(&error, Error::Io { attempts: 4, object, .. } if *object == name), "{error}");
}

#[tokio::test]
async fn r3_a_transfer_cut_short_is_not_a_torn_tail() {
    // Both where the sentinel's writer looks at the tip, and in the replay itself.
    for skip in [0, 1] {
        let (process, _) = written(3).await;
        let name = process.entry(3).to_string();
        process.faults.on(Op::Get, name.as_str()).skip(skip).once(Fault::ShortRead(200));
        let opened = process.open(2).await.expect("it opens");
        assert_eq!((opened.rows, opened.report.torn_tail), (rows(9), None));
    }
}

#[tokio::test]
async fn r3_a_store_that_does_not_find_an_entry_for_a_moment_does_not_lose_it() {
    let (process, _) = written(3).await;
    let name = process.entry(2).to_string();
    process.faults.on(Op::Get, name.as_str()).times(3, Fault::NotFound);
    assert_eq!(process.open(2).await.expect("it opens").rows, rows(9));
}

#[tokio::test]
async fn r4_a_torn_tail_ends_the_log_and_later_opens_accept_it() {
    for remains in [Remains::Prefix(0), Remains::Prefix(700), Remains::Zeros(700), Remains::Zeros(0)] {
        let (process, mut writer) = written(2).await;
        process.faults.stop_syncing();
        writer.append(&[1, 2]).await.expect("the store says so");
        assert_eq!(process.faults.crash(remains).await, [process.entry(3)]);
        process.faults.sync();
        let mut reopened = process.open(2).await.expect("it opens");
        assert_eq!(reopened.rows, rows(6), "{remains:?}");
        assert_eq!(reopened.report.torn_tail.as_deref(), Some(process.entry(3).as_ref()));
        reopened.append(&[4]).await.expect("it appends");
        for nonce in 3..6 {
            let later = process.open(nonce).await.expect("the sentinel vouches for the torn entry");
            assert_eq!((later.rows, later.report.torn_tail), (rows(10), None), "{remains:?}");
        }
    }
}

#[tokio::test]
async fn r4_a_torn_sentinel_is_a_torn_tail_too() {
    let (process, _) = written(2).await;
    process.open(2).await.expect("it opens");
    process.faults.damage(&process.entry(3), Remains::Prefix(90)).await;
    let mut opened = process.open(3).await.expect("it opens");
    assert_eq!(opened.rows, rows(6));
    opened.append(&[1]).await.expect("it appends");
    assert_eq!(process.open(4).await.expect("it opens").rows, rows(7));
}

#[tokio::test]
async fn r4_a_missing_or_torn_middle_entry_is_corrupt_and_named() {
    for remains in [Remains::Nothing, Remains::Prefix(100), Remains::Zeros(100)] {
        for middle in [1, 2, 3] {
            let (process, _) = written(4).await;
            process.faults.damage(&process.entry(middle), remains).await;
            let error = process.open(2).await.expect_err("an entry is gone");
            let expected = process.entry(middle);
            assert_eq!(corrupt_object(&error), Some(expected.as_ref()), "{remains:?} {middle}: {error}");
        }
    }
}

#[tokio::test]
async fn r4_a_torn_entry_that_changes_after_it_was_vouched_for_is_corrupt() {
    let (process, _) = written(3).await;
    let whole = process.faults.read(&process.entry(3)).await;
    process.faults.damage(&process.entry(3), Remains::Prefix(700)).await;
    process.open(2).await.expect("it opens");
    for bytes in [whole.slice(..699), whole] {
        process.faults.overwrite(&process.entry(3), bytes).await;
        let error = process.open(3).await.expect_err("the sentinel vouched for other bytes");
        assert!(corrupt_object(&error).is_some(), "{error}");
    }
}

#[tokio::test]
async fn w8_a_flipped_byte_in_any_entry_is_corrupt_and_named() {
    for position in 1..=4 {
        let (process, _) = written(4).await;
        let bytes = process.faults.read(&process.entry(position)).await;
        for at in (0..bytes.len()).step_by(211).chain(bytes.len() - 20..bytes.len()) {
            let mut flipped = bytes.to_vec();
            flipped[at] ^= 0x10;
            process.faults.overwrite(&process.entry(position), flipped).await;
            let error = process.open(2).await.expect_err("a bit is flipped");
            assert_eq!(corrupt_object(&error), Some(process.entry(position).as_ref()), "byte {at}: {error}");
        }
        process.faults.overwrite(&process.entry(position), bytes).await;
        assert_eq!(process.open(3).await.expect("it is whole again").rows, rows(12));
    }
}

#[tokio::test]
async fn w8_two_entries_swapped_or_an_entry_of_another_shard_are_corrupt() {
    let (process, _) = written(4).await;
    let (second, third) = (process.faults.read(&process.entry(2)).await, process.faults.read(&process.entry(3)).await);
    process.faults.overwrite(&process.entry(2), third).await;
    process.faults.overwrite(&process.entry(3), second).await;
    let error = process.open(2).await.expect_err("they are swapped");
    assert_eq!(corrupt_object(&error), Some(process.entry(2).as_ref()), "{error}");
}

/// Writes an entry past all checks of an honest writer.
async fn forge(process: &Process, change: impl FnOnce(&mut EntryDraft), writer: &Writer, content: Content) {
    let mut draft = writer.draft(content);
    change(&mut draft);
    let outcome = append_entry(&process.store, draft).await;
    assert!(matches!(outcome, AppendOutcome::Written { .. }), "{outcome:?}");
}

#[tokio::test]
async fn s1_a_hole_a_repetition_and_a_stranger_are_corrupt_and_named() {
    let rows = |first| Content::Rows(vec![put(first, 1)]);
    type Change = fn(&mut EntryDraft);
    let none: Change = |_| ();
    let cases: [(&str, Change, Content); 5] = [
        ("a hole", none, rows(7)),
        ("a repetition", none, rows(5)),
        ("another shard", |draft| draft.shard = "another".into(), rows(6)),
        ("another chain", |draft| draft.previous_crc ^= 1, rows(6)),
        ("another writer of this epoch", |draft| draft.nonce = Nonce::new(99), rows(6)),
    ];
    for (what, change, content) in cases {
        let (process, writer) = written(2).await;
        forge(&process, change, &writer, content).await;
        let error = process.open(2).await.expect_err(what);
        assert_eq!(corrupt_object(&error), Some(process.entry(3).as_ref()), "{what}: {error}");
    }
}

#[tokio::test]
async fn w2_rows_of_an_older_epoch_behind_a_newer_one_are_corrupt() {
    let (process, old) = written(1).await;
    let new = process.open(2).await.expect("it opens");
    let behind = |draft: &mut EntryDraft| (draft.position, draft.previous_crc) = (new.position, new.previous_crc);
    forge(&process, behind, &old, Content::Rows(vec![put(3, 1)])).await;
    let error = process.open(3).await.expect_err("a zombie wrote behind the sentinel");
    assert_eq!(corrupt_object(&error), Some(process.entry(3).as_ref()), "{error}");
}

#[tokio::test]
async fn e1_a_newer_epoch_in_the_log_fences_the_replay() {
    let (process, _) = written(1).await;
    let slow = process.claim(2).await.expect("it claims");
    let sentinel = crate::wal::fence::write_sentinel(&process.store, &slow).await.expect("it is written");
    process.open(3).await.expect("it opens");
    let further = sentinel.map(|sentinel| Sentinel { position: sentinel.position.next(), ..sentinel });
    let error = process.replay(&slow, further).await.expect_err("epoch 3 is in the log");
    assert_eq!(fenced_by(&error), Some(Epoch::new(3)), "{error}");
}

#[tokio::test]
async fn what_the_sink_refuses_fails_the_replay() {
    let (process, _) = written(2).await;
    let claim = process.claim(2).await.expect("it claims");
    let sentinel = crate::wal::fence::write_sentinel(&process.store, &claim).await.expect("it is written");
    let mut calls = 0;
    let sink = |_| {
        calls += 1;
        Err(Error::Closed)
    };
    let error = replay(&process.store, &claim, sentinel, 2, &mut Sink(sink)).await.expect_err("the sink refuses");
    assert!(matches!(error, Error::Closed));
    assert_eq!(calls, 1);
}

#[tokio::test]
async fn r4_epoch_one_refuses_a_log_it_did_not_write() {
    // The manifests are gone, and with them what says which rows are whose.
    let (process, _) = written(2).await;
    for name in process.faults.names("root/manifest").await {
        process.faults.damage(&name, Remains::Nothing).await;
    }
    let error = process.open(9).await.expect_err("entries without a manifest");
    assert_eq!(corrupt_object(&error), Some(process.entry(1).as_ref()), "{error}");
}

#[tokio::test]
async fn foreign_objects_beside_the_log_are_ignored() {
    let (process, _) = written(2).await;
    for name in ["root/wal/readme.txt", "root/wal/0101.arrow", "root/wal/deeper/x.arrow"] {
        process.faults.overwrite(&Path::from(name), "hello").await;
    }
    assert_eq!(process.open(2).await.expect("it opens").rows, rows(6));
}

/// Writers that come and go over a store that loses requests and answers: what was acknowledged
/// is there once, in order; what was not is there once or not at all.
#[tokio::test]
async fn r1_acknowledged_rows_survive_any_mixture_of_faults() {
    let seed: u64 = std::env::var("TIDEWAL_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    for seed in seed..seed + 40 {
        println!("TIDEWAL_SEED={seed}");
        let process = Process::first();
        let odds = Odds {
            fail_before: 60,
            fail_after: 80,
            late: 30,
            conflict_without_object: 40,
            not_found: 0,
            short_read: 40,
            bit_flip: 40,
        };
        process.faults.set_odds(seed, odds);
        let mut acknowledged = 0;
        for nonce in 1..12 {
            let Ok(mut writer) = process.open(nonce).await else { continue };
            let found = writer.rows.len() as i64;
            assert!(found >= acknowledged, "seed {seed}: {acknowledged} rows acknowledged, {found} found");
            assert_eq!(writer.rows, rows(found), "seed {seed}");
            acknowledged = found;
            for size in 1..6 {
                match writer.append(&[size]).await {
                    Ok(()) => acknowledged += size as i64,
                    Err(error) => {
                        assert!(matches!(error, Error::Io { .. }), "seed {seed}: {error}");
                        break;
                    }
                }
            }
            process.faults.apply_late_puts().await;
        }
        process.faults.heal();
        let found = process.open(99).await.expect("it opens").rows;
        assert!(found.len() as i64 >= acknowledged, "seed {seed}");
        assert_eq!(found, rows(found.len() as i64), "seed {seed}");
    }
}

/// A fresh network for each epoch, and every older one a zombie that goes on writing.
#[tokio::test]
async fn e1_zombies_that_go_on_writing_acknowledge_nothing_that_a_reopen_does_not_show() {
    let process = Process::first();
    let mut writers: Vec<Writer> = Vec::new();
    let mut acknowledged = 0;
    for nonce in 1..30 {
        let mut newest = process.beside().open(nonce).await.expect("it opens");
        assert_eq!(newest.rows, rows(acknowledged));
        for zombie in &mut writers {
            let error = zombie.append(&[1]).await.expect_err("it was fenced");
            assert!(fenced_by(&error).is_some_and(|by| by > zombie.claim.epoch), "{error}");
        }
        newest.append(&[2, 1]).await.expect("it owns the shard");
        acknowledged += 3;
        writers.push(newest);
    }
    assert!(writers.iter().all(|writer| writer.claim.manifest.shard == SHARD));
}

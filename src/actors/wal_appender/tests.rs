use actix::Addr;
use arrow_array::{Int64Array, RecordBatch, StringArray};
use object_store::memory::InMemory;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;

use super::*;
use crate::actors::lifecycle::ShardState;
use crate::actors::testing::{FuseClock, Probe, Sleeper, gone, probe};
use crate::admission::{Admitted, Budget};
use crate::cursors::Cursors;
use crate::error::Operation;
use crate::ids::SeqRange;
use crate::spec::ValidatedSpec;
use crate::wal::testing::fault_store::{Fault, Gate, Op};
use crate::wal::testing::{Process, SHARD, spec};

/// The real WalAppender over a real log, with a probe where the IndexApplier would be.
struct Stage {
    process: Process,
    status: Arc<Status>,
    budget: Arc<Budget>,
    spec: ValidatedSpec,
    cursors: Cursors,
    durable: watch::Receiver<Seq>,
    applies: UnboundedReceiver<Apply>,
    drain_probe: Addr<Probe<DrainApplied>>,
    seals: UnboundedReceiver<Seal>,
    entries: UnboundedReceiver<EntryWritten>,
    drains: UnboundedReceiver<DrainApplied>,
    appender: Addr<WalAppender>,
    _host: Arc<Host>,
}

impl Stage {
    async fn set(interval: Duration, clock: Arc<dyn Clock>) -> Self {
        let process = Process::over(Arc::new(InMemory::new()));
        let writer = process.open(1).await.expect("it opens");
        let spec = writer.claim.spec.clone();
        let host = Host::start().expect("threads");
        let (applier, applies) = probe(&host.write_arbiter());
        let (drain_probe, drains) = probe(&host.write_arbiter());
        let (seal_probe, seals) = probe(&host.write_arbiter());
        let (entry_probe, entries) = probe(&host.write_arbiter());
        let status = Status::running();
        let (owner, durable) = CursorOwner::new(Seq::ZERO);
        let (_, indexed) = CursorOwner::new(Seq::MAX);
        let parts = Parts {
            status: Arc::clone(&status),
            durable: owner,
            to_applier: Edge::to(&applier, "IndexApplier", &status),
            to_applier_drain: Edge::to(&drain_probe, "IndexApplier", &status),
            to_applier_seal: Edge::to(&seal_probe, "IndexApplier", &status),
            to_freezer: Edge::to(&entry_probe, "Freezer", &status),
            next: Seq::ZERO,
            tip: LogTip { next_position: writer.position, crc: writer.previous_crc },
            identity: WriterIdentity {
                shard: SHARD.into(),
                epoch: writer.claim.epoch,
                nonce: writer.claim.nonce,
                schema: Arc::clone(spec.storage_schema()),
            },
            store: process.store.0.clone(),
            clock,
            counters: Arc::default(),
            host: Arc::clone(&host),
        };
        let actor = WalAppender::new(parts, &Settings::default(), interval);
        let appender = WalAppender::start_in_arbiter(&host.write_arbiter(), |_| actor);
        let (_, flushed) = CursorOwner::new(Seq::ZERO);
        let cursors = Cursors::new(durable.clone(), indexed, flushed, true, Arc::clone(&status));
        let budget = Budget::new(1 << 20);
        Stage {
            process,
            status,
            budget,
            spec,
            cursors,
            durable,
            applies,
            drain_probe,
            seals,
            entries,
            drains,
            appender,
            _host: host,
        }
    }

    async fn plain() -> Self {
        Self::set(Duration::ZERO, Arc::new(FuseClock::default())).await
    }

    fn append(&self, rows: i64) -> (Append, Sequenced) {
        self.append_checked_by(&self.spec, rows)
    }

    fn append_checked_by(&self, spec: &ValidatedSpec, rows: i64) -> (Append, Sequenced) {
        let ids = Arc::new(Int64Array::from_iter_values(0..rows));
        let texts = Arc::new(StringArray::from_iter_values((0..rows).map(|at| at.to_string())));
        let batch = RecordBatch::try_new(Arc::clone(spec.schema()), vec![ids, texts]).expect("a batch");
        let rows = spec.check_put(vec![batch]).expect("a put");
        Append::new(Admitted { permit: self.budget.charge_recovered(100), rows })
    }

    /// Puts and waits until the actor has taken it in.
    async fn put(&self, rows: i64) -> Result<SeqRange, Error> {
        let (append, sequenced) = self.append(rows);
        self.appender.send(append).await.expect("the actor lives");
        sequenced.receipt(&self.cursors).await.map(|receipt| receipt.range())
    }

    /// How often the drain was passed on so far.
    async fn drains(&mut self) -> usize {
        // Its mailbox keeps the order: this one comes after whatever the actor has sent.
        self.drain_probe.send(DrainApplied).await.expect("the probe lives");
        std::iter::from_fn(|| self.drains.try_recv().ok()).count() - 1
    }

    fn durable(&self) -> u64 {
        self.durable.borrow().get()
    }
}

fn range(first: u64, end: u64) -> SeqRange {
    SeqRange::between(Seq::new(first), Seq::new(end))
}

#[tokio::test]
async fn p5_b06_rows_go_to_the_indexes_while_their_log_write_is_held() {
    let mut stage = Stage::plain().await;
    let gate = Gate::default();
    stage.process.faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    for (rows, expected) in [(2, range(0, 2)), (3, range(2, 5))] {
        assert_eq!(stage.put(rows).await.expect("sequenced"), expected);
        let apply = stage.applies.recv().await.expect("the probe lives");
        assert_eq!(apply.rows.range, expected);
    }
    gate.reached(1).await;
    assert_eq!((stage.durable(), stage.process.log_objects().await), (0, 0));
    gate.open();
    stage.cursors.wait_durable(Seq::new(5)).await.expect("written");
    assert_eq!(stage.process.log_objects().await, 2, "the second put was gathered behind the first");
}

#[tokio::test]
async fn w7_a_write_that_fails_moves_no_cursor_and_its_reason_is_latched() {
    let mut stage = Stage::plain().await;
    stage.process.faults.on(Op::Put, "wal/").always(Fault::PermissionDenied);
    stage.put(2).await.expect("sequenced");
    let error = stage.cursors.wait_durable(Seq::new(1)).await.expect_err("it is not in the log");
    let Error::Failed(Failure::Append(reason)) = &error else { panic!("{error}") };
    assert!(matches!(reason.as_ref(), Error::Io { operation: Operation::CreateEntry, .. }), "{reason}");
    assert_eq!(stage.applies.recv().await.expect("the apply was not behind the write").rows.range, range(0, 2));
    gone(stage.durable.clone()).await;
    assert_eq!(stage.durable(), 0);
}

#[tokio::test]
async fn s1_ranges_are_dense_and_given_in_the_order_of_arrival() {
    let mut stage = Stage::plain().await;
    let mut sent = Vec::new();
    for rows in [3, 1, 7, 1, 1, 40, 2] {
        let (append, sequenced) = stage.append(rows);
        sent.push((rows as u64, sequenced));
        stage.appender.try_send(append).expect("the mailbox has room");
    }
    let mut next = Seq::ZERO;
    for (rows, sequenced) in sent {
        let expected = SeqRange::starting_at(next, rows);
        assert_eq!(sequenced.receipt(&stage.cursors).await.expect("sequenced").range(), expected);
        let apply = stage.applies.recv().await.expect("the probe lives");
        assert_eq!(apply.rows.range, expected);
        assert_eq!(apply.rows.batches.iter().map(|batch| batch.num_rows() as u64).sum::<u64>(), rows);
        next = expected.end();
    }
    stage.cursors.wait_durable(next).await.expect("written");
}

#[tokio::test]
async fn c1_a_put_after_the_drain_is_refused_with_closed_and_gives_its_memory_back() {
    let mut stage = Stage::plain().await;
    stage.put(2).await.expect("sequenced");
    stage.appender.send(Drain).await.expect("the actor lives");
    drop(stage.applies.recv().await);
    let error = stage.put(2).await.expect_err("the shard closes");
    assert!(matches!(error, Error::Closed), "{error}");
    stage.drains.recv().await.expect("the log is idle");
    // The permit of a put that was passed on all the same would be in a mailbox now.
    assert_eq!((stage.budget.held(), stage.durable(), stage.process.log_objects().await), (0, 2, 1));
}

#[tokio::test]
async fn c1_the_drain_is_passed_on_once_and_only_when_everything_is_in_the_log() {
    // The clock stands still: without a drain the second put would wait for its interval for ever.
    let mut stage = Stage::set(Duration::from_secs(60), Arc::new(FuseClock::default())).await;
    let gate = Gate::default();
    stage.process.faults.on(Op::Put, "wal/").skip(1).once(Fault::Hold(gate.clone()));
    stage.put(1).await.expect("sequenced");
    stage.cursors.wait_durable(Seq::new(1)).await.expect("an idle log writes at once");
    stage.put(4).await.expect("sequenced");
    for _ in 0..2 {
        stage.appender.send(Drain).await.expect("the actor lives");
    }
    gate.reached(1).await;
    assert_eq!(stage.drains().await, 0, "rows are not in the log yet");
    gate.open();
    stage.drains.recv().await.expect("the probe lives");
    assert_eq!(stage.durable(), 5, "all that was taken is durable before the next stage hears of the end");
    // The interval's timer rings late.
    for _ in 0..2 {
        stage.appender.send(FlushTick).await.expect("the actor lives");
    }
    stage.appender.send(Drain).await.expect("the actor lives");
    assert_eq!(stage.drains().await, 0, "once is enough");
}

#[tokio::test]
async fn w1_a_write_that_ends_without_saying_how_is_a_failure() {
    let stage = Stage::plain().await;
    let gate = Gate::default();
    stage.process.faults.on(Op::Put, "wal/").once(Fault::Hold(gate.clone()));
    stage.put(1).await.expect("sequenced");
    gate.reached(1).await;
    stage.appender.send(PutFinished { outcome: None }).await.expect("the actor lives");
    let error = stage.cursors.wait_durable(Seq::new(1)).await.expect_err("nobody knows");
    assert!(matches!(error, Error::Failed(Failure::Invariant { id: "W1", .. })), "{error}");
    gate.open();
    gone(stage.durable.clone()).await;
    assert_eq!(stage.durable(), 0, "what arrives later is not acknowledged");
}

#[tokio::test]
async fn e2_b12_a_newer_epoch_is_latched_as_such_and_wakes_who_waits() {
    let stage = Stage::plain().await;
    let successor = stage.process.beside().open(2).await.expect("it opens");
    stage.put(1).await.expect("sequenced");
    let error = stage.cursors.wait_durable(Seq::new(1)).await.expect_err("the log has another owner");
    assert!(matches!(error, Error::Fenced { ours, by } if ours.next() == by && by == successor.claim.epoch), "{error}");
    assert!(matches!(stage.status.state(), ShardState::Failed(Failure::Fenced { .. })));
}

#[tokio::test]
async fn l1_a_put_after_a_failure_of_another_actor_gets_its_reason_and_no_seq() {
    let stage = Stage::plain().await;
    stage.status.fail(Failure::Apply { detail: "elsewhere".to_owned() });
    let error = stage.put(1).await.expect_err("the shard has failed");
    assert!(matches!(&error, Error::Failed(Failure::Apply { .. })), "{error}");
    // The permit of a put that was passed on all the same would be in a mailbox now.
    assert_eq!(stage.budget.held(), 0);
}

#[tokio::test]
async fn p1_rows_that_another_opening_admitted_are_refused_and_the_next_put_gets_their_seq() {
    let stage = Stage::plain().await;
    let (append, sequenced) = stage.append_checked_by(&spec(), 3);
    stage.appender.send(append).await.expect("the actor lives");
    let error = sequenced.receipt(&stage.cursors).await.expect_err("they hold another shard's memory");
    assert!(matches!(error, Error::InvalidInput { .. }), "{error}");
    assert_eq!(stage.budget.held(), 0);
    assert_eq!(stage.put(1).await.expect("sequenced"), range(0, 1));
}

#[tokio::test]
async fn z1_an_actor_that_was_told_to_stop_latches_nothing() {
    let stage = Stage::plain().await;
    stage.appender.send(Terminate).await.expect("the actor lives");
    gone(stage.durable.clone()).await;
    assert!(matches!(stage.status.state(), ShardState::Running));
}

#[tokio::test]
async fn z1_whoever_the_death_of_the_appender_wakes_finds_the_reason() {
    let clock = Arc::new(FuseClock::default());
    let stage = Stage::set(Duration::ZERO, Arc::clone(&clock) as Arc<dyn Clock>).await;
    let sleeper = Sleeper::on(stage.durable.clone(), &stage.status);
    clock.light();
    let (append, _) = stage.append(1);
    stage.appender.send(append).await.expect_err("the handler panics");
    let state = sleeper.woken().await;
    let expected = Failure::ActorDied { actor: "WalAppender", panicked: true }.to_string();
    assert!(matches!(&state, ShardState::Failed(reason) if reason.to_string() == expected), "{state:?}");
}

#[tokio::test]
async fn w3_the_freezer_hears_of_each_entry_with_its_place_its_checksum_and_its_end() {
    let mut stage = Stage::plain().await;
    for rows in [2, 3] {
        stage.put(rows).await.expect("sequenced");
        let EntryWritten(entry) = stage.entries.recv().await.expect("the actor lives");
        let object = stage.process.faults.read(&stage.process.entry(entry.position.get())).await;
        let crc = crate::wal::entry::decode(&object).expect("it is whole").crc;
        assert_eq!((entry.end.get(), entry.crc, entry.is_sentinel), (if rows == 2 { 2 } else { 5 }, crc, false));
    }
}

#[tokio::test]
async fn f1_a_flush_asks_for_a_seal_and_answers_with_the_end_of_what_was_sequenced() {
    let mut stage = Stage::plain().await;
    stage.put(3).await.expect("sequenced");
    let end = stage.appender.send(Flush).await.expect("the actor lives").expect("it runs");
    assert_eq!(end, Seq::new(3));
    stage.seals.recv().await.expect("the actor lives");
    stage.status.fail(Failure::Apply { detail: "the test".to_owned() });
    assert!(stage.appender.send(Flush).await.is_ok_and(|answer| answer.is_err()));
}

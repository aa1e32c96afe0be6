use std::task::Poll;

use arrow_array::{ArrayRef, Int64Array};
use arrow_schema::{DataType, Field, Schema};
use futures::future::BoxFuture;
use futures::{FutureExt, poll};

use super::*;
use crate::error::Failure;
use crate::spec::TableSpec;
use crate::wal::testing::clock::TestClock;

const TIMEOUT: Duration = Duration::from_secs(10);
const BUDGET: u64 = 1 << 20;

struct Gate {
    admission: Admission,
    budget: Arc<Budget>,
    clock: TestClock,
    status: Arc<Status>,
    counters: Arc<Counters>,
}

fn gate() -> Gate {
    let schema = Schema::new(vec![Field::new("id", DataType::Int64, false)]);
    let spec = Arc::new(TableSpec::new(Arc::new(schema)).validate().expect("valid"));
    let (budget, clock, status) = (Budget::new(BUDGET), TestClock::manual(), Status::running());
    let counters: Arc<Counters> = Arc::default();
    let settings = Settings { backpressure_timeout: TIMEOUT, ..Settings::default() };
    let shared = Arc::new(clock.clone());
    let io = runtime::Handle::current();
    let admission =
        Admission::new(spec, Arc::clone(&budget), &settings, shared, io, Arc::clone(&status), Arc::clone(&counters));
    Gate { admission, budget, clock, status, counters }
}

impl Gate {
    /// A put of so many rows of 8 bytes.
    fn put(&self, rows: i64) -> BoxFuture<'static, Result<Admitted>> {
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..rows));
        let batch = RecordBatch::try_new(Arc::clone(self.admission.spec.schema()), vec![ids]).expect("a batch");
        let admission = self.admission.clone();
        async move { admission.put(vec![batch]).await }.boxed()
    }

    /// Takes all memory that is left but this.
    fn fill_but(&self, bytes: u64) -> Permit {
        self.budget.charge_recovered(BUDGET - self.budget.held() - bytes)
    }

    fn counted(&self) -> (u64, u64) {
        (Counters::get(&self.counters.puts_waited), Counters::get(&self.counters.puts_refused))
    }
}

fn waits(poll: &Poll<Result<Admitted>>) -> bool {
    poll.is_pending()
}

#[tokio::test]
async fn p10_without_progress_a_put_fails_with_all_figures_when_the_timeout_is_over() {
    let gate = gate();
    let filled = gate.fill_but(100);
    let mut put = gate.put(1000);
    assert!(waits(&poll!(&mut put)));
    gate.clock.advance(TIMEOUT - Duration::from_millis(1));
    assert!(waits(&poll!(&mut put)), "it has a millisecond left");
    gate.clock.advance(Duration::from_millis(1));
    let Poll::Ready(Err(error)) = poll!(&mut put) else { panic!("its time is over") };
    let Error::Backpressure { bytes_wanted, bytes_held, bytes_max, waited } = error else { panic!("{error}") };
    assert!(bytes_wanted > 8000, "{bytes_wanted}");
    assert_eq!((bytes_held, bytes_max, waited), (BUDGET - 100, BUDGET, TIMEOUT));
    assert_eq!(gate.counted(), (1, 1));
    drop(filled);
    assert_eq!(gate.budget.held(), 0, "a refused put holds nothing");
    assert!(gate.put(1000).now_or_never().is_some_and(|put| put.is_ok()), "its place is free");
}

#[tokio::test]
async fn p10_progress_of_others_begins_the_timeout_anew() {
    let gate = gate();
    let small: Vec<Permit> = (0..5).map(|_| gate.budget.charge_recovered(64)).collect();
    let filled = gate.fill_but(0);
    let mut put = gate.put(1000);
    assert!(waits(&poll!(&mut put)));
    for released in small {
        gate.clock.advance(TIMEOUT / 2);
        assert!(waits(&poll!(&mut put)));
        // Too little for the put, but somebody moves.
        drop(released);
        gate.clock.advance(TIMEOUT / 2);
        assert!(waits(&poll!(&mut put)), "memory was released since its timer began");
    }
    gate.clock.advance(TIMEOUT);
    assert!(matches!(poll!(&mut put), Poll::Ready(Err(Error::Backpressure { .. }))), "nobody moved this time");
    drop(filled);
    assert_eq!(gate.budget.held(), 0);
}

#[tokio::test]
async fn p10_memory_is_given_in_the_order_of_asking_and_a_small_put_does_not_overtake() {
    let gate = gate();
    let first_part = gate.budget.charge_recovered(20_000);
    let rest = gate.fill_but(0);
    let (mut large, mut small) = (gate.put(4000), gate.put(1));
    assert!(waits(&poll!(&mut large)) && waits(&poll!(&mut small)));
    drop(first_part);
    assert!(waits(&poll!(&mut small)), "it would fit, and the large one would starve");
    assert!(waits(&poll!(&mut large)));
    drop(rest);
    let Poll::Ready(Ok(large)) = poll!(&mut large) else { panic!("there is room") };
    let Poll::Ready(Ok(small)) = poll!(&mut small) else { panic!("there is room") };
    assert_eq!(gate.budget.held(), large.permit.bytes + small.permit.bytes);
    drop((large, small));
    assert_eq!((gate.budget.held(), gate.counted()), (0, (2, 0)));
}

#[tokio::test]
async fn p10_a_waiting_put_that_is_dropped_makes_room_for_the_one_behind_it() {
    let gate = gate();
    let first_part = gate.budget.charge_recovered(20_000);
    let rest = gate.fill_but(0);
    let (mut large, mut small) = (gate.put(4000), gate.put(1));
    assert!(waits(&poll!(&mut large)) && waits(&poll!(&mut small)));
    drop(first_part);
    assert!(waits(&poll!(&mut large)) && waits(&poll!(&mut small)));
    drop(large);
    let Poll::Ready(Ok(small)) = poll!(&mut small) else { panic!("what the large one had gathered is free") };
    drop((small, rest));
    assert_eq!(gate.budget.held(), 0);
    assert_eq!(gate.clock.sleeping(), 0, "no timer is left behind");
}

#[tokio::test]
async fn z1_a_waiting_put_hears_how_the_shard_ended_without_waiting_for_its_timeout() {
    for (fails, frees) in [(true, false), (true, true), (false, false), (false, true)] {
        let gate = gate();
        let filled = gate.fill_but(0);
        let mut put = gate.put(1);
        assert!(waits(&poll!(&mut put)));
        if fails {
            gate.status.fail(Failure::Apply { detail: "the test".to_owned() });
        } else {
            gate.status.begin_closing();
        }
        // The actors of a shard that ends let go of their memory: that is no reason to take a put.
        let filled = (!frees).then_some(filled);
        let answer = poll!(&mut put);
        let expected = match &answer {
            Poll::Ready(Err(Error::Failed(Failure::Apply { .. }))) => fails,
            Poll::Ready(Err(Error::Closed)) => !fails,
            _ => false,
        };
        assert!(expected, "{answer:?}");
        assert_eq!(gate.counted(), (1, 0), "it was not refused for lack of memory");
        drop((put, filled));
        assert_eq!(gate.budget.held(), 0);
    }
}

#[tokio::test]
async fn b1_recovered_rows_above_the_budget_take_all_of_it_and_give_it_back() {
    let gate = gate();
    let mut recovered = gate.budget.charge_recovered(BUDGET - 1000);
    recovered.absorb(gate.budget.charge_recovered(3 * BUDGET));
    assert_eq!(gate.budget.held(), 4 * BUDGET - 1000, "what is in memory is told as it is");
    let mut put = gate.put(1);
    assert!(waits(&poll!(&mut put)));
    drop(recovered);
    let Poll::Ready(Ok(put)) = poll!(&mut put) else { panic!("there is room") };
    drop(put);
    assert_eq!(gate.budget.held(), 0);
    // All of it came back, and no more than all of it.
    let unit = usize::try_from(BUDGET / UNIT_BYTES).expect("small");
    assert_eq!(gate.budget.units.available_permits(), unit);
}

#[tokio::test]
async fn b1_bytes_held_return_to_nothing_whatever_became_of_the_puts() {
    let gate = gate();
    let mut kept: Option<Permit> = None;
    for rows in 1..40 {
        let admitted = gate.put(rows).await.expect("there is room");
        assert!(admitted.permit.bytes >= admitted.rows.bytes() + PUT_BYTES);
        match &mut kept {
            // Two of three are taken over by the memtable's permit, one is refused further on.
            Some(kept) if rows % 3 != 0 => kept.absorb(admitted.permit),
            Some(_) => drop(admitted),
            None => kept = Some(admitted.permit),
        }
    }
    assert_eq!(gate.budget.held(), kept.as_ref().map_or(0, |permit| permit.bytes));
    assert_eq!(gate.budget.releases.load(Ordering::Relaxed), 13, "being taken over is no release");
    drop(kept);
    assert_eq!(gate.budget.held(), 0);
    assert_eq!(gate.budget.units.available_permits() as u64, BUDGET / UNIT_BYTES);
}

#[tokio::test]
async fn p2_a_put_above_half_the_budget_is_refused_and_never_waits() {
    let gate = gate();
    let _filled = gate.fill_but(0);
    let answer = gate.put((BUDGET / 16) as i64).now_or_never().expect("it does not wait");
    assert!(matches!(&answer, Err(Error::InvalidInput { .. })), "{answer:?}");
    assert_eq!(gate.counted(), (0, 0));
}

#[test]
fn b1_a_permit_takes_over_more_than_256_gib_and_gives_all_of_it_back() {
    const GIB: u64 = 1 << 30;
    let budget = Budget::new(1000 * GIB);
    let units_free = budget.units.available_permits();
    let mut memtable = budget.charge_recovered(200 * GIB);
    memtable.absorb(budget.charge_recovered(200 * GIB));
    assert_eq!(budget.held(), 400 * GIB);
    assert_eq!((units_free - budget.units.available_permits()) as u64 * UNIT_BYTES, 400 * GIB);
    drop(memtable);
    assert_eq!((budget.held(), budget.units.available_permits()), (0, units_free));
}

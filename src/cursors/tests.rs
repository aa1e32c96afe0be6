use std::sync::atomic::{AtomicU64, Ordering};
use std::{hint, thread};

use futures::FutureExt;
use futures::executor::block_on;
use proptest::prelude::*;

use super::*;
use crate::actors::lifecycle::DeathGuard;
use crate::error::{Error, Failure};

struct Shard {
    status: Arc<Status>,
    durable: CursorOwner,
    indexed: CursorOwner,
    cursors: Cursors,
}

fn shard(durable_writes: bool) -> Shard {
    let status = Status::running();
    let (durable, durable_seen) = CursorOwner::new(Seq::ZERO);
    let (indexed, indexed_seen) = CursorOwner::new(Seq::ZERO);
    let (_, flushed_seen) = CursorOwner::new(Seq::ZERO);
    let cursors = Cursors::new(durable_seen, indexed_seen, flushed_seen, durable_writes, Arc::clone(&status));
    Shard { status, durable, indexed, cursors }
}

fn is_apply_failure(answer: &Result<()>) -> bool {
    matches!(answer, Err(Error::Failed(Failure::Apply { .. })))
}

fn apply_failure() -> Failure {
    Failure::Apply { detail: "the test".to_owned() }
}

proptest! {
    /// Whatever order the two owners move in, also backwards and twice to one place.
    #[test]
    fn v2_v3_visible_is_the_smaller_cursor_in_durable_mode_and_nothing_runs_backwards(
        durable_writes: bool,
        moves in prop::collection::vec((any::<bool>(), 0u64..20), 1..40),
    ) {
        let shard = shard(durable_writes);
        let (mut durable, mut indexed) = (0, 0);
        for (of_durable, end) in moves {
            if of_durable {
                shard.durable.advance(Seq::new(end));
                durable = durable.max(end);
            } else {
                shard.indexed.advance(Seq::new(end));
                indexed = indexed.max(end);
            }
            let cursors = &shard.cursors;
            prop_assert_eq!((cursors.durable().get(), cursors.indexed().get()), (durable, indexed));
            let visible = if durable_writes { indexed.min(durable) } else { indexed };
            prop_assert_eq!(cursors.at(ReadLevel::Visible).get(), visible);
            prop_assert_eq!(cursors.at(ReadLevel::Indexed).get(), indexed);
            for end in [visible, visible + 1] {
                let answer = cursors.wait_visible(Seq::new(end)).now_or_never();
                prop_assert_eq!(answer.is_some(), end <= visible, "a wait ends if and only if the rows are seen");
            }
        }
    }
}

#[test]
fn v1_nothing_is_visible_before_the_first_move_and_nobody_waits_for_nothing() {
    for durable_writes in [true, false] {
        let shard = shard(durable_writes);
        assert_eq!(shard.cursors.visible(), Seq::ZERO);
        assert!(matches!(shard.cursors.wait_visible(Seq::ZERO).now_or_never(), Some(Ok(()))));
        assert!(shard.cursors.wait_visible(Seq::new(1)).now_or_never().is_none());
    }
}

/// Two owners and a waiter on three threads. In each round the owners move while the wait begins,
/// a little later than in the round before, so that moves fall before, into and behind every step
/// of the wait. A wake-up that is lost hangs the test.
#[test]
fn v3_no_wake_up_is_lost_between_owners_and_a_waiter_on_threads_of_their_own() {
    const ROUNDS: u64 = 20_000;
    /// Steps of a spin: the longest outlasts the beginning of a wait.
    const DELAYS: u64 = 200;
    let Shard { durable, indexed, cursors, status: _status } = shard(true);
    let round = AtomicU64::new(0);
    let moves = |owner: CursorOwner, stride: u64| {
        for end in 1..=ROUNDS {
            while round.load(Ordering::Acquire) < end {
                thread::yield_now();
            }
            (0..end * stride % DELAYS).for_each(|_| hint::spin_loop());
            owner.advance(Seq::new(end));
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| moves(durable, 1));
        scope.spawn(|| moves(indexed, 7));
        for end in 1..=ROUNDS {
            // `Acquire` above pairs with it: the owners set out now.
            round.store(end, Ordering::Release);
            block_on(cursors.wait_visible(Seq::new(end))).expect("the shard runs");
            assert!(cursors.visible() >= Seq::new(end));
        }
    });
}

/// Many waiters, each for its own row: one move past all of them wakes all.
#[test]
fn v3_a_move_past_many_waiters_wakes_them_all() {
    let shard = shard(true);
    let waiters: Vec<_> = (1..=64)
        .map(|end| {
            let cursors = shard.cursors.clone();
            thread::spawn(move || block_on(cursors.wait_visible(Seq::new(end))))
        })
        .collect();
    shard.durable.advance(Seq::new(64));
    shard.indexed.advance(Seq::new(64));
    for waiter in waiters {
        waiter.join().expect("it does not panic").expect("the shard runs");
    }
}

#[test]
fn z1_b12_the_death_of_either_owner_wakes_every_waiter_with_the_first_reason() {
    for dies_first in [true, false] {
        let Shard { status, durable, indexed, cursors } = shard(true);
        let ends = (1..=8).map(Seq::new);
        let waiters: Vec<_> = ends
            .map(|end| {
                let cursors = cursors.clone();
                thread::spawn(move || [block_on(cursors.wait_indexed(end)), block_on(cursors.wait_visible(end))])
            })
            .collect();
        status.fail(apply_failure());
        status.fail(Failure::ActorDied { actor: "the second", panicked: true });
        let (first, second) = if dies_first { (durable, indexed) } else { (indexed, durable) };
        drop(first);
        drop(second);
        for waiter in waiters {
            let answers = waiter.join().expect("it does not panic");
            assert!(answers.iter().all(is_apply_failure), "{answers:?}");
        }
    }
}

#[test]
fn l1_rows_that_got_there_are_not_acknowledged_after_a_failure() {
    let shard = shard(true);
    shard.durable.advance(Seq::new(5));
    shard.indexed.advance(Seq::new(5));
    shard.status.fail(apply_failure());
    for end in [1, 5, 6] {
        // The owners of a failed shard die; here they are still about to.
        let end = Seq::new(end);
        let answers = [
            shard.cursors.wait_durable(end).now_or_never(),
            shard.cursors.wait_indexed(end).now_or_never(),
            shard.cursors.wait_visible(end).now_or_never(),
        ];
        let reached = end <= Seq::new(5);
        for answer in answers {
            assert_eq!(answer.as_ref().is_some_and(is_apply_failure), reached, "{answer:?}");
        }
    }
}

#[test]
fn c2_owners_that_go_without_a_failure_leave_closed_behind() {
    let Shard { status, durable, indexed, cursors } = shard(true);
    durable.advance(Seq::new(3));
    indexed.advance(Seq::new(3));
    status.closed();
    drop((durable, indexed));
    block_on(cursors.wait_visible(Seq::new(3))).expect("what was acknowledged stays so");
    for answer in [block_on(cursors.wait_durable(Seq::new(4))), block_on(cursors.wait_visible(Seq::new(4)))] {
        assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    }
    assert_eq!(cursors.visible(), Seq::new(3), "how far it got is still told");
}

#[test]
fn z1_an_actor_that_dies_without_a_word_still_gives_its_waiters_a_reason() {
    let Shard { status, durable, indexed: _indexed, cursors } = shard(true);
    // The order in which an actor's fields are dropped.
    let guard = DeathGuard::armed("WalAppender", &status);
    let waiter = thread::spawn(move || block_on(cursors.wait_durable(Seq::new(1))));
    drop(guard);
    drop(durable);
    let answer = waiter.join().expect("it does not panic");
    let named = |error: &Error| matches!(error, Error::Failed(Failure::ActorDied { actor: "WalAppender", .. }));
    assert!(answer.as_ref().is_err_and(named), "{answer:?}");
}

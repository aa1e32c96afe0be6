//! How a shard dies: one latch, one way back.
//!
//! `Running -> Failed(reason) | Closing -> Closed`. The first reason wins and keeps its type
//! (Z1). Each actor carries an armed [`DeathGuard`]; however the actor goes, the guard latches a
//! reason before the actor's cursor drops, so whoever wakes finds it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

use crate::error::{Error, Failure, Result};

/// Where in its life a shard is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ShardState {
    /// It takes puts and answers queries.
    Running,
    /// Its owner closes it: what was taken is being made durable, nothing new is taken.
    Closing,
    /// It failed; every call answers with the reason.
    Failed(Failure),
    /// It was closed.
    Closed,
}

/// The state of one shard, shared by its actors and handles.
#[derive(Debug)]
pub(crate) struct Status {
    state: watch::Sender<ShardState>,
    /// Set before the state `Closed` by the last stage to have work, and by nobody else: an abort
    /// ends a shard too, and keeps no promise of a close.
    drained: AtomicBool,
}

impl Status {
    pub(crate) fn running() -> Arc<Self> {
        Arc::new(Status { state: watch::Sender::new(ShardState::Running), drained: AtomicBool::new(false) })
    }

    /// The state now.
    pub(crate) fn state(&self) -> ShardState {
        self.state.borrow().clone()
    }

    /// Follows the state.
    pub(crate) fn subscribe(&self) -> watch::Receiver<ShardState> {
        self.state.subscribe()
    }

    /// Latches the failure, unless the shard has failed or is closed already.
    pub(crate) fn fail(&self, failure: Failure) {
        let mut failure = Some(failure);
        self.state.send_if_modified(|state| match (&*state, failure.take()) {
            (ShardState::Running | ShardState::Closing, Some(first)) => {
                tracing::error!(reason = %first, "shard failed");
                *state = ShardState::Failed(first);
                true
            }
            _ => false,
        });
    }

    /// Takes no more puts from here on. Says whether this call began the closing.
    pub(crate) fn begin_closing(&self) -> bool {
        self.state.send_if_modified(|state| {
            let begins = matches!(state, ShardState::Running);
            if begins {
                *state = ShardState::Closing;
            }
            begins
        })
    }

    /// Ends the life of a shard that has made everything it took durable and indexed.
    pub(crate) fn drained(&self) {
        // Pairs with the load in `check_drained`; the state's own lock would order them as well.
        self.drained.store(true, Ordering::Release);
        self.closed();
    }

    /// Whether the shard ended by draining (C1).
    pub(crate) fn check_drained(&self) -> Result<()> {
        if self.drained.load(Ordering::Acquire) { Ok(()) } else { Err(Error::Closed) }
    }

    /// Ends the life of a shard that has not failed.
    pub(crate) fn closed(&self) {
        self.state.send_if_modified(|state| {
            let ends = matches!(state, ShardState::Running | ShardState::Closing);
            if ends {
                *state = ShardState::Closed;
            }
            ends
        });
    }

    /// Whether something new may be taken.
    pub(crate) fn check_running(&self) -> Result<()> {
        match &*self.state.borrow() {
            ShardState::Running => Ok(()),
            ShardState::Failed(failure) => Err(failure.to_error()),
            ShardState::Closing | ShardState::Closed => Err(Error::Closed),
        }
    }

    /// Whether something may still be read: closing shards answer, failed and closed ones do not (L1).
    pub(crate) fn check_readable(&self) -> Result<()> {
        match &*self.state.borrow() {
            ShardState::Running | ShardState::Closing => Ok(()),
            ShardState::Failed(failure) => Err(failure.to_error()),
            ShardState::Closed => Err(Error::Closed),
        }
    }

    /// Whether something may still be acknowledged (L1).
    pub(crate) fn check_not_failed(&self) -> Result<()> {
        match &*self.state.borrow() {
            ShardState::Failed(failure) => Err(failure.to_error()),
            _ => Ok(()),
        }
    }

    /// Why a cursor's owner is gone, or a put is no longer taken.
    pub(crate) fn closed_reason(&self) -> Error {
        self.check_not_failed().err().unwrap_or(Error::Closed)
    }

    /// Resolves when the shard's life has ended, with the failure if it failed.
    pub(crate) async fn ended(&self) -> Result<()> {
        let mut state = self.state.subscribe();
        // The sender is `self`: it outlives the wait.
        let _ = state.wait_for(|state| matches!(state, ShardState::Failed(_) | ShardState::Closed)).await;
        self.check_not_failed()
    }

    /// Why an actor did not answer. An answer is dropped a moment before the death of its actor
    /// is latched, so this waits for the latch.
    pub(crate) async fn reason_for_silence(&self) -> Error {
        self.ended().await.err().unwrap_or(Error::Closed)
    }
}

/// The shard's life has ended: stop. No reason is latched for it.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub(crate) struct Terminate;

/// Reports the death of the actor that holds it. A clean stop disarms it.
#[derive(Debug)]
pub(crate) struct DeathGuard {
    actor: &'static str,
    status: Option<Arc<Status>>,
}

impl DeathGuard {
    pub(crate) fn armed(actor: &'static str, status: &Arc<Status>) -> Self {
        DeathGuard { actor, status: Some(Arc::clone(status)) }
    }

    /// The actor stops because it was asked to.
    pub(crate) fn disarm(&mut self) {
        self.status = None;
    }
}

impl Drop for DeathGuard {
    fn drop(&mut self) {
        if let Some(status) = self.status.take() {
            status.fail(Failure::ActorDied { actor: self.actor, panicked: std::thread::panicking() });
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn failure(name: &str) -> Failure {
        Failure::Apply { detail: name.to_owned() }
    }

    /// The reason every kind of question is answered with, if all agree.
    fn reason(status: &Status) -> Option<String> {
        let answers = [status.check_running(), status.check_readable(), status.check_not_failed()];
        let texts = answers.map(|answer| answer.err().map(|error| error.to_string()));
        let closed_reason = Some(status.closed_reason().to_string());
        assert!(texts.iter().all(|text| *text == closed_reason), "{texts:?} and {closed_reason:?}");
        closed_reason
    }

    #[test]
    fn z1_the_first_failure_wins_and_keeps_its_type() {
        for closing in [false, true] {
            let status = Status::running();
            assert!(!closing || status.begin_closing());
            status.fail(failure("the first"));
            status.fail(Failure::ActorDied { actor: "the second", panicked: true });
            status.closed();
            assert!(!status.begin_closing());
            assert!(matches!(status.state(), ShardState::Failed(Failure::Apply { detail }) if detail == "the first"));
            assert!(reason(&status).is_some_and(|text| text.contains("the first")));
            assert!(status.ended().now_or_never().is_some_and(|ended| ended.is_err()));
        }
    }

    /// Racing on threads, exactly one of two reasons is latched, and everyone is shown that one.
    #[test]
    fn z1_of_failures_that_race_one_wins_for_everyone() {
        for _ in 0..200 {
            let status = Status::running();
            let mut seen = status.subscribe();
            std::thread::scope(|scope| {
                for name in ["one", "other"] {
                    let status = &status;
                    scope.spawn(move || status.fail(failure(name)));
                }
            });
            let latched = reason(&status);
            let ShardState::Failed(shown) = seen.borrow_and_update().clone() else { panic!("it has failed") };
            assert_eq!(latched, Some(shown.to_error().to_string()));
            status.fail(failure("late"));
            assert!(!seen.has_changed().expect("the latch lives"), "nobody is woken for a reason that came second");
        }
    }

    #[test]
    fn c2_a_failure_after_the_close_changes_nothing() {
        for closing_first in [true, false] {
            let status = Status::running();
            assert!(!closing_first || status.begin_closing());
            assert!(status.ended().now_or_never().is_none(), "its life goes on while it closes");
            status.closed();
            status.fail(failure("late"));
            assert!(matches!(status.state(), ShardState::Closed));
            assert!(!status.begin_closing());
            assert!(matches!(status.check_running(), Err(Error::Closed)));
            assert!(matches!(status.check_readable(), Err(Error::Closed)));
            assert!(status.check_not_failed().is_ok());
            assert!(matches!(status.closed_reason(), Error::Closed));
            assert!(status.ended().now_or_never().is_some_and(|ended| ended.is_ok()));
        }
    }

    #[test]
    fn c1_a_closing_shard_takes_nothing_new_and_still_answers_and_one_call_began_it() {
        let status = Status::running();
        assert!(status.begin_closing());
        assert!(!status.begin_closing());
        assert!(matches!(status.check_running(), Err(Error::Closed)));
        assert!(status.check_readable().is_ok() && status.check_not_failed().is_ok());
    }

    #[test]
    fn z1_a_guard_names_its_actor_and_whether_it_panicked() {
        for panics in [false, true] {
            let status = Status::running();
            let guard = DeathGuard::armed("Reader", &status);
            let died = std::thread::spawn(move || {
                let _guard = guard;
                assert!(!panics, "the test wants it");
            });
            assert_eq!(died.join().is_err(), panics);
            let state = status.state();
            assert!(
                matches!(state, ShardState::Failed(Failure::ActorDied { actor: "Reader", panicked }) if panicked == panics),
                "{state:?}"
            );
        }
    }

    #[test]
    fn z1_a_disarmed_guard_says_nothing_and_a_late_one_replaces_nothing() {
        let status = Status::running();
        let mut guard = DeathGuard::armed("Reader", &status);
        guard.disarm();
        drop(guard);
        assert!(matches!(status.state(), ShardState::Running));
        let late = DeathGuard::armed("Reader", &status);
        status.fail(failure("the first"));
        drop(late);
        assert!(reason(&status).is_some_and(|text| text.contains("the first")));
    }

    #[test]
    fn z5_whoever_got_no_answer_waits_for_the_reason() {
        let status = Status::running();
        let mut silence = Box::pin(status.reason_for_silence());
        assert!(silence.as_mut().now_or_never().is_none(), "an answer may be dropped before the death is latched");
        status.fail(failure("the first"));
        let error = silence.now_or_never().expect("the life has ended");
        assert!(error.to_string().contains("the first"), "{error}");
    }
}

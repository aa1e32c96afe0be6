//! How a shard dies: one latch, one way back.
//!
//! `Running -> Failed(reason) | Closing -> Closed`. The first reason wins and keeps its type
//! (Z1). Each actor carries an armed [`DeathGuard`]; however the actor goes, the guard latches a
//! reason before the actor's cursor drops, so whoever wakes finds it.

use std::sync::Arc;

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
}

impl Status {
    pub(crate) fn running() -> Arc<Self> {
        Arc::new(Status { state: watch::Sender::new(ShardState::Running) })
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

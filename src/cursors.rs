//! The cursor notify channel: how far the shard is, and waiting for it.
//!
//! `durable` has one writer, the WalAppender, `indexed` has one, the IndexApplier, and `flushed` has
//! one, the Freezer. Each
//! holds the only sending half of its watch channel, so a cursor cannot be moved by anyone else,
//! and the death of its owner wakes every waiter. `visible` is derived at each read and stored
//! nowhere (V2).

use std::sync::Arc;

use tokio::sync::watch;

use crate::actors::lifecycle::Status;
use crate::error::Result;
use crate::ids::Seq;

/// What a reader asks to see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReadLevel {
    /// What is acknowledged: indexed, and durable too in durable mode.
    #[default]
    Visible,
    /// Everything that is indexed, durable or not. A crash may take back what it shows.
    Indexed,
}

/// The sending half of one cursor. It cannot be cloned and only moves forward.
#[derive(Debug)]
pub(crate) struct CursorOwner(watch::Sender<Seq>);

impl CursorOwner {
    pub(crate) fn new(at: Seq) -> (Self, watch::Receiver<Seq>) {
        let (sender, receiver) = watch::channel(at);
        (CursorOwner(sender), receiver)
    }

    /// Moves the cursor to `end` and wakes who waits for it. Never moves it back (V3).
    pub(crate) fn advance(&self, end: Seq) {
        self.0.send_if_modified(|at| {
            let forward = *at < end;
            if forward {
                *at = end;
            }
            forward
        });
    }
}

/// The receiving halves: what readers and waiters hold.
#[derive(Clone, Debug)]
pub struct Cursors {
    durable: watch::Receiver<Seq>,
    indexed: watch::Receiver<Seq>,
    flushed: watch::Receiver<Seq>,
    durable_writes: bool,
    status: Arc<Status>,
}

impl Cursors {
    pub(crate) fn new(
        durable: watch::Receiver<Seq>,
        indexed: watch::Receiver<Seq>,
        flushed: watch::Receiver<Seq>,
        durable_writes: bool,
        status: Arc<Status>,
    ) -> Self {
        Cursors { durable, indexed, flushed, durable_writes, status }
    }

    /// The exclusive end of the rows that are in the log.
    pub fn durable(&self) -> Seq {
        *self.durable.borrow()
    }

    /// The exclusive end of the rows that are in every index.
    pub fn indexed(&self) -> Seq {
        *self.indexed.borrow()
    }

    /// The exclusive end of the rows that are in committed generations: an open replays what is
    /// above, and no more.
    pub fn flushed(&self) -> Seq {
        *self.flushed.borrow()
    }

    /// The exclusive end of the rows a reader sees: `min(indexed, durable)` in durable mode,
    /// `indexed` otherwise (V1, V2).
    pub fn visible(&self) -> Seq {
        if self.durable_writes { self.indexed().min(self.durable()) } else { self.indexed() }
    }

    /// The exclusive end at a read level.
    pub fn at(&self, level: ReadLevel) -> Seq {
        match level {
            ReadLevel::Visible => self.visible(),
            ReadLevel::Indexed => self.indexed(),
        }
    }

    /// Why an actor did not answer.
    pub(crate) async fn reason_for_silence(&self) -> crate::Error {
        self.status.reason_for_silence().await
    }

    /// Why the shard takes nothing, if it takes nothing.
    pub(crate) fn reason_to_refuse(&self) -> Option<crate::Error> {
        self.status.check_running().err()
    }

    /// Waits until the rows below `end` are durable.
    ///
    /// # Errors
    /// What the shard failed with, or [`crate::Error::Closed`].
    pub async fn wait_durable(&self, end: Seq) -> Result<()> {
        reach(self.durable.clone(), end, &self.status).await
    }

    /// Waits until the rows below `end` are visible.
    ///
    /// # Errors
    /// What the shard failed with, or [`crate::Error::Closed`].
    pub async fn wait_visible(&self, end: Seq) -> Result<()> {
        self.wait_indexed(end).await?;
        // Both cursors only grow, so waiting for one after the other waits for the smaller.
        if self.durable_writes { self.wait_durable(end).await } else { Ok(()) }
    }

    /// Waits until the rows below `end` are in every index.
    ///
    /// # Errors
    /// What the shard failed with, or [`crate::Error::Closed`].
    pub async fn wait_indexed(&self, end: Seq) -> Result<()> {
        reach(self.indexed.clone(), end, &self.status).await
    }
}

impl Cursors {
    /// Waits until the rows below `end` are in committed generations.
    ///
    /// # Errors
    /// What the shard failed with, or [`crate::Error::Closed`].
    pub async fn wait_flushed(&self, end: Seq) -> Result<()> {
        reach(self.flushed.clone(), end, &self.status).await
    }
}

/// `wait_for` marks the value as seen before it tests it, so no wake-up is lost. The sending
/// half drops after its owner's death has been latched, so the latch is there to be read.
async fn reach(mut cursor: watch::Receiver<Seq>, end: Seq, status: &Status) -> Result<()> {
    let reached = cursor.wait_for(|at| *at >= end).await.is_ok();
    // L1: after the first failure nothing is acknowledged, even where the cursor got there.
    status.check_not_failed()?;
    if reached { Ok(()) } else { Err(status.closed_reason()) }
}

#[cfg(test)]
mod tests;

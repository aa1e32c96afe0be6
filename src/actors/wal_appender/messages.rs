//! What the WalAppender is told.

use actix::Message;
use tokio::sync::oneshot;

use crate::admission::Admitted;
use crate::cursors::Cursors;
use crate::error::{Error, Result};
use crate::ids::{Seq, SeqRange};
use crate::wal::append::AppendOutcome;

/// Give these rows their sequence numbers, and log and index them.
///
/// One way: once it is sent the rows are written, whether or not anyone waits (P7). The answer
/// comes through the [`Sequenced`] made with it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Append {
    /// Until the WalAppender takes it.
    content: Option<Content>,
}

type Content = (Admitted, oneshot::Sender<Result<SeqRange>>, tracing::Span);

impl Append {
    /// The message, and the future that resolves when the rows have their sequence numbers.
    pub fn new(rows: Admitted) -> (Self, Sequenced) {
        let (reply, answer) = oneshot::channel();
        let span = tracing::Span::current();
        (Append { content: Some((rows, reply, span)) }, Sequenced { answer })
    }

    pub(super) fn take(mut self) -> Option<Content> {
        self.content.take()
    }
}

impl Drop for Append {
    /// Not taken: it was never sent, or the shard's end left it in the mailbox. An end is latched
    /// before its mailbox drops, so whoever waits finds it, and needs not wait for one that may
    /// never come.
    fn drop(&mut self) {
        if let Some((_, reply, _)) = self.content.take() {
            let expected = "an `Append` that is sent to the WalAppender; nothing was written";
            let unsent = Error::invalid("the append", "an `Append` dropped before it was taken", expected);
            // Losing the answer is harmless: nobody waits.
            let _ = reply.send(Err(unsent));
        }
    }
}

/// Resolves when an [`Append`] has been given its place in the order of writes.
#[derive(Debug)]
pub struct Sequenced {
    answer: oneshot::Receiver<Result<SeqRange>>,
}

impl Sequenced {
    /// Waits for the rows' sequence numbers; `cursors` are the shard's
    /// ([`Engine::cursors`](crate::Engine::cursors)).
    ///
    /// # Errors
    /// Why the shard did not take the rows; they were then not written.
    pub async fn receipt(self, cursors: &Cursors) -> Result<Receipt> {
        match self.answer.await {
            Ok(Ok(range)) => Ok(Receipt { range, cursors: cursors.clone() }),
            Ok(Err(error)) => Err(cursors.reason_to_refuse().unwrap_or(error)),
            Err(_) => Err(cursors.reason_for_silence().await),
        }
    }
}

/// Proof that rows have their place in the order of writes, and the means to wait for more.
#[derive(Clone, Debug)]
pub struct Receipt {
    range: SeqRange,
    cursors: Cursors,
}

impl Receipt {
    /// The rows' sequence numbers.
    pub fn range(&self) -> SeqRange {
        self.range
    }

    /// Waits until readers see the rows: indexed, and durable too in durable mode.
    ///
    /// # Errors
    /// What the shard failed with, or [`crate::Error::Closed`].
    pub async fn visible(&self) -> Result<SeqRange> {
        self.cursors.wait_visible(self.range.end()).await.map(|()| self.range)
    }

    /// Waits until the rows are in the log.
    ///
    /// # Errors
    /// What the shard failed with, or [`crate::Error::Closed`].
    pub async fn durable(&self) -> Result<SeqRange> {
        self.cursors.wait_durable(self.range.end()).await.map(|()| self.range)
    }
}

/// The log write in flight has come to an end.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct PutFinished {
    /// What became of it; `None` if the task that wrote it ended without saying.
    pub(crate) outcome: Option<AppendOutcome>,
}

/// The flush interval has passed.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct FlushTick;

/// Write out as generations every row that has its sequence number, and answer with the end of
/// them. It does not wait: [`Cursors::wait_flushed`] does.
#[derive(Clone, Copy, Debug, Message)]
#[rtype(result = "Result<Seq>")]
pub struct Flush;

/// Make durable what was taken, take no more, and pass it on. Ends in the state `Closed`.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) struct Drain;

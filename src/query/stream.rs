//! The rows of a scan, handed out batch by batch.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::failed;
use super::run::Run;
use super::snapshot::Reading;
use crate::config::BoxFuture;
use crate::error::{Error, Result};

type Step = (Box<Run>, Result<Option<RecordBatch>>);

/// The batches of a scan, in order.
///
/// Each batch is computed on the shard's CPU pool when it is asked for, and the one after it while
/// it is being looked at; no more is held. Dropping the stream ends the scan. After an error the
/// stream ends.
///
/// It is a [`Stream`] of `Result<RecordBatch>`; [`RowStream::next`] and [`RowStream::collect_all`] serve callers who do
/// not want to name that trait.
pub struct RowStream {
    schema: SchemaRef,
    reading: Reading,
    state: State,
    /// Tells a step that nobody waits for it any more.
    stop: Arc<AtomicBool>,
}

enum State {
    /// The next step has not been asked for.
    Idle(Box<Run>),
    /// It waits for its turn among the queries of the shard.
    Queued(Box<Run>, BoxFuture<Option<OwnedSemaphorePermit>>),
    /// It is on the CPU pool.
    Running(oneshot::Receiver<Step>),
    Ended,
}

impl RowStream {
    pub(crate) fn new(schema: SchemaRef, reading: Reading, run: Run) -> Self {
        RowStream { schema, reading, state: State::Idle(Box::new(run)), stop: Arc::default() }
    }

    /// The schema of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<RecordBatch>> {
        StreamExt::next(self).await
    }

    /// All rows as one batch. They are held in memory twice for a moment.
    ///
    /// # Errors
    /// The first error of the stream.
    pub async fn collect_all(mut self) -> Result<RecordBatch> {
        let mut batches = Vec::new();
        while let Some(batch) = self.next().await {
            batches.push(batch?);
        }
        concat_batches(&self.schema, &batches).map_err(failed)
    }

    fn queue(&self, run: Box<Run>) -> State {
        let gate = Arc::clone(&self.reading.gate);
        // The gate is never closed; were it, queries would run unbounded rather than never.
        State::Queued(run, Box::pin(async move { gate.acquire_owned().await.ok() }))
    }

    fn start(&self, run: Box<Run>, permit: Option<OwnedSemaphorePermit>) -> State {
        let (reply, answer) = oneshot::channel();
        let stop = Arc::clone(&self.stop);
        self.reading.spawn(!run.is_in_memory(), move || {
            let mut run = run;
            // Caught here, because a pool may run jobs on the thread that polls.
            let stepped = catch_unwind(AssertUnwindSafe(|| run.next_batch(&stop)));
            let stepped = stepped.unwrap_or_else(|panic| Err(panicked(&*panic)));
            drop(permit);
            // Losing the answer is harmless: the stream was dropped.
            let _ = reply.send((run, stepped));
        });
        State::Running(answer)
    }

    fn end(&mut self, error: Option<Error>) -> Poll<Option<Result<RecordBatch>>> {
        self.state = State::Ended;
        Poll::Ready(error.map(Err))
    }
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::Query { detail: format!("a panic: {}", text.unwrap_or("without a message")) }
}

impl Stream for RowStream {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            // What was computed before the shard failed is not handed out after it (L1).
            if !matches!(self.state, State::Ended)
                && let Err(error) = self.reading.status.check_readable()
            {
                return self.end(Some(error));
            }
            self.state = match std::mem::replace(&mut self.state, State::Ended) {
                State::Idle(run) => self.queue(run),
                State::Queued(run, mut permit) => match permit.poll_unpin(cx) {
                    Poll::Ready(permit) => self.start(run, permit),
                    Poll::Pending => {
                        self.state = State::Queued(run, permit);
                        return Poll::Pending;
                    }
                },
                State::Running(mut answer) => {
                    let Poll::Ready(step) = answer.poll_unpin(cx) else {
                        self.state = State::Running(answer);
                        return Poll::Pending;
                    };
                    return match step {
                        Ok((run, Ok(Some(batch)))) => {
                            self.state = self.queue(run);
                            self.start_if_free(cx);
                            Poll::Ready(Some(Ok(batch)))
                        }
                        Ok((_, Ok(None))) => self.end(None),
                        Ok((_, Err(error))) => self.end(Some(error)),
                        // The pool dropped the job: its process is ending.
                        Err(_) => self.end(Some(Error::Query { detail: "the CPU pool dropped it".into() })),
                    };
                }
                State::Ended => return Poll::Ready(None),
            };
        }
    }
}

impl RowStream {
    /// Computes the next batch while the caller looks at this one, if the shard is not busy.
    fn start_if_free(&mut self, cx: &mut Context<'_>) {
        if let State::Queued(run, mut permit) = std::mem::replace(&mut self.state, State::Ended) {
            self.state = match permit.poll_unpin(cx) {
                Poll::Ready(permit) => self.start(run, permit),
                // Dropping the place in the queue lets others go first until this one is asked again.
                Poll::Pending => State::Idle(run),
            };
        }
    }
}

impl Drop for RowStream {
    fn drop(&mut self) {
        // Read between the pieces of a step; nothing else depends on it.
        self.stop.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for RowStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowStream").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// The batches of a scan, computed on the caller's own thread as they are asked for.
pub struct RowIter {
    schema: SchemaRef,
    reading: Reading,
    run: Option<Run>,
}

impl RowIter {
    pub(crate) fn new(schema: SchemaRef, reading: Reading, run: Run) -> Self {
        RowIter { schema, reading, run: Some(run) }
    }

    /// The schema of every batch.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }
}

impl Iterator for RowIter {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let run = self.run.as_mut()?;
        let readable = self.reading.status.check_readable();
        let batch = readable.and_then(|()| run.next_batch(&AtomicBool::new(false))).transpose();
        if !matches!(batch, Some(Ok(_))) {
            self.run = None;
        }
        batch
    }
}

impl fmt::Debug for RowIter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowIter").field("schema", &self.schema).finish_non_exhaustive()
    }
}

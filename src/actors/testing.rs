//! What tests of one actor put around it: probes in place of its neighbours, and parts that a
//! test can stop, break and look through.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use actix::{Actor, Addr, Handler, Message};
use actix_rt::ArbiterHandle;
use tokio::sync::{mpsc, watch};

use crate::actors::lifecycle::{ShardState, Status};
use crate::config::{BoxFuture, Clock};
use crate::ids::Seq;

/// An actor that hands on whatever it is told.
pub(crate) struct Probe<M>(mpsc::UnboundedSender<M>);

impl<M: Message + Unpin + 'static> Actor for Probe<M> {
    type Context = actix::Context<Self>;
}

impl<M: Message<Result = ()> + Send + Unpin + 'static> Handler<M> for Probe<M> {
    type Result = ();

    fn handle(&mut self, message: M, _: &mut Self::Context) {
        // A test that no longer listens loses nothing.
        let _ = self.0.send(message);
    }
}

/// A probe, and what it is told.
pub(crate) fn probe<M>(arbiter: &ArbiterHandle) -> (Addr<Probe<M>>, mpsc::UnboundedReceiver<M>)
where
    M: Message<Result = ()> + Send + Unpin + 'static,
{
    let (told, heard) = mpsc::unbounded_channel();
    (Probe::start_in_arbiter(arbiter, |_| Probe(told)), heard)
}

/// A clock that stands still, and panics once its fuse is lit: the way to make a handler panic.
#[derive(Debug, Default)]
pub(crate) struct FuseClock(AtomicBool);

impl FuseClock {
    pub(crate) fn light(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Clock for FuseClock {
    fn now(&self) -> Duration {
        assert!(!self.0.load(Ordering::SeqCst), "the test lit the fuse");
        Duration::ZERO
    }

    fn sleep(&self, _: Duration) -> BoxFuture<()> {
        Box::pin(std::future::pending())
    }
}

/// Waits until the owner of a cursor is gone.
pub(crate) async fn gone(mut cursor: watch::Receiver<Seq>) {
    while cursor.changed().await.is_ok() {}
}

/// A waiter for a cursor that says what the latch held at the very moment it was woken, on the
/// thread that woke it. A waiter on a thread of its own would look too late to find anything out.
pub(crate) struct Sleeper {
    heard: mpsc::UnboundedReceiver<ShardState>,
    // Dropping it would end the wait.
    _wait: Pin<Box<dyn Future<Output = ()> + Send>>,
}

struct Alarm {
    status: Arc<Status>,
    told: mpsc::UnboundedSender<ShardState>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        // A test that no longer listens loses nothing.
        let _ = self.told.send(self.status.state());
    }
}

impl Sleeper {
    pub(crate) fn on(mut cursor: watch::Receiver<Seq>, status: &Arc<Status>) -> Self {
        let (told, heard) = mpsc::unbounded_channel();
        let waker = Waker::from(Arc::new(Alarm { status: Arc::clone(status), told }));
        let mut wait: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
            cursor.borrow_and_update();
            // Whether it moved or closed is the same to a waiter that is woken.
            let _ = cursor.changed().await;
        });
        assert!(matches!(wait.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Pending));
        Sleeper { heard, _wait: wait }
    }

    /// The latch at the moment of the wake-up.
    pub(crate) async fn woken(mut self) -> ShardState {
        self.heard.recv().await.expect("the alarm is held by the wait")
    }
}

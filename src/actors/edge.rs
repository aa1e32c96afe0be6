//! Sending from one actor to the next.
//!
//! Every message between actors goes through an [`Edge`]. It turns a closed mailbox into the
//! shard's failure, where a bare `do_send` would turn it into silence.

use std::sync::Arc;

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message, Recipient};

use crate::actors::lifecycle::Status;
use crate::error::Failure;

/// The way to one actor, for one message type.
pub(crate) struct Edge<M>
where
    M: Message + Send,
    M::Result: Send,
{
    to: Recipient<M>,
    receiver: &'static str,
    status: Arc<Status>,
}

impl<M> Edge<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    pub(crate) fn to<A>(addr: &Addr<A>, receiver: &'static str, status: &Arc<Status>) -> Self
    where
        A: Actor + Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        Edge { to: addr.clone().recipient(), receiver, status: Arc::clone(status) }
    }

    /// Sends one way. Where the receiver is gone, the shard has failed.
    ///
    /// `do_send` ignores the mailbox's capacity, which is meant: what is in flight is bounded by
    /// permits. A receiver that dies between the test and the send reports its own death.
    #[expect(clippy::disallowed_methods, reason = "the one place that may: it has tested for the receiver")]
    pub(crate) fn tell(&self, message: M) {
        if self.to.connected() {
            self.to.do_send(message);
        } else {
            self.status.fail(Failure::ActorDied { actor: self.receiver, panicked: false });
        }
    }
}

impl<M> Clone for Edge<M>
where
    M: Message + Send + 'static,
    M::Result: Send,
{
    fn clone(&self) -> Self {
        Edge { to: self.to.clone(), receiver: self.receiver, status: Arc::clone(&self.status) }
    }
}

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

#[cfg(test)]
mod tests {
    use actix::{ActorContext, Context};

    use super::*;
    use crate::actors::host::Host;
    use crate::actors::lifecycle::{ShardState, Terminate};
    use crate::actors::testing::probe;

    /// Stops as soon as it has started.
    struct Brief;

    impl Actor for Brief {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Self::Context) {
            ctx.stop();
        }
    }

    impl Handler<Terminate> for Brief {
        type Result = ();

        fn handle(&mut self, _: Terminate, _: &mut Self::Context) {}
    }

    #[tokio::test]
    async fn z5_a_message_to_an_actor_that_is_gone_is_a_failure_and_not_silence() {
        let (host, status) = (Host::start().expect("threads"), Status::running());
        let brief = Brief::start_in_arbiter(&host.write_arbiter(), |_| Brief);
        let edge: Edge<Terminate> = Edge::to(&brief, "Brief", &status);
        while brief.connected() {
            // Refused or not taken: either way its mailbox closes.
            let _ = brief.send(Terminate).await;
        }
        assert!(matches!(status.state(), ShardState::Running), "it has no guard that could have said so");
        edge.clone().tell(Terminate);
        let state = status.state();
        let expected = Failure::ActorDied { actor: "Brief", panicked: false }.to_string();
        assert!(matches!(&state, ShardState::Failed(reason) if reason.to_string() == expected), "{state:?}");
    }

    #[tokio::test]
    async fn a_burst_through_an_edge_arrives_whole_and_in_order() {
        // More than a mailbox holds: the edge heeds permits, not capacities.
        const BURST: u64 = 1000;
        #[derive(actix::Message)]
        #[rtype(result = "()")]
        struct Numbered(u64);

        let (host, status) = (Host::start().expect("threads"), Status::running());
        let (addr, mut heard) = probe::<Numbered>(&host.write_arbiter());
        let edge: Edge<Numbered> = Edge::to(&addr, "the probe", &status);
        (0..BURST).for_each(|number| edge.tell(Numbered(number)));
        for number in 0..BURST {
            assert_eq!(heard.recv().await.map(|Numbered(number)| number), Some(number));
        }
    }
}

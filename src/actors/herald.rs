//! The Herald: tells whoever subscribed how the shard's life goes, and stops the actors when it
//! ends.
//!
//! *Owns* the list of subscribers, and what they have been told.
//!
//! *Does not own* the state: it follows the latch.
//!
//! *May stop because* the shard's life has ended and nobody has its address any more. Until then
//! a late subscriber still learns how it ended.

use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient};

use crate::actors::edge::Edge;
use crate::actors::host::Host;
use crate::actors::lifecycle::{DeathGuard, ShardState, Status, Terminate};
use crate::error::Failure;
use crate::ids::{Epoch, Seq};

/// A turn in a shard's life.
#[derive(Clone, Debug, Message)]
#[rtype(result = "()")]
#[non_exhaustive]
pub enum ShardEvent {
    /// The shard is open. Every subscriber gets this first.
    Opened {
        /// The epoch this opening claimed.
        epoch: Epoch,
        /// The exclusive end of the rows recovered from the log.
        recovered: Seq,
    },
    /// The shard failed: nothing is acknowledged or read any more. Open it again to recover.
    Failed(Failure),
    /// Its owner closes it; what was taken is being made durable.
    Closing,
    /// It was closed.
    Closed,
}

/// Send this recipient every [`ShardEvent`] from now on, beginning with where the shard is.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Subscribe(pub Recipient<ShardEvent>);

/// The latch has moved.
#[derive(Message)]
#[rtype(result = "()")]
struct StateChanged(ShardState);

/// Tells subscribers of a shard's events.
pub struct Herald {
    guard: DeathGuard,
    status: Arc<Status>,
    opened: ShardEvent,
    /// What subscribers were told last, beside `opened`.
    told: Option<ShardEvent>,
    subscribers: Vec<Recipient<ShardEvent>>,
    /// In the order they are stopped: the Reader first, so that nothing is read after (L1).
    actors: Vec<Edge<Terminate>>,
    host: Arc<Host>,
}

impl Herald {
    pub(crate) fn new(
        status: Arc<Status>,
        epoch: Epoch,
        recovered: Seq,
        actors: Vec<Edge<Terminate>>,
        host: Arc<Host>,
    ) -> Self {
        Herald {
            guard: DeathGuard::armed("Herald", &status),
            status,
            opened: ShardEvent::Opened { epoch, recovered },
            told: None,
            subscribers: Vec::new(),
            actors,
            host,
        }
    }
}

/// What subscribers are told of a state.
fn event_of(state: &ShardState) -> Option<ShardEvent> {
    match state {
        ShardState::Running => None,
        ShardState::Closing => Some(ShardEvent::Closing),
        ShardState::Failed(failure) => Some(ShardEvent::Failed(failure.clone())),
        ShardState::Closed => Some(ShardEvent::Closed),
    }
}

/// An embedder's actor that has stopped no longer cares, and is no failure of the shard.
#[expect(clippy::disallowed_methods, reason = "a subscriber that is gone must not fail the shard")]
fn tell(subscriber: &Recipient<ShardEvent>, event: ShardEvent) {
    subscriber.do_send(event);
}

impl Actor for Herald {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let edge: Edge<StateChanged> = Edge::to(&ctx.address(), "Herald", &self.status);
        let mut states = self.status.subscribe();
        // The watch keeps the latest state only. A `Closing` that is over before it was seen may
        // be skipped; how the life ended never is.
        self.host.io().spawn(async move {
            loop {
                let state = states.borrow_and_update().clone();
                let ended = matches!(state, ShardState::Failed(_) | ShardState::Closed);
                if !matches!(state, ShardState::Running) {
                    edge.tell(StateChanged(state));
                }
                if ended || states.changed().await.is_err() {
                    break;
                }
            }
        });
    }
}

impl Handler<Subscribe> for Herald {
    type Result = ();

    fn handle(&mut self, Subscribe(subscriber): Subscribe, _: &mut Self::Context) {
        tell(&subscriber, self.opened.clone());
        if let Some(event) = self.told.clone() {
            tell(&subscriber, event);
        }
        self.subscribers.retain(Recipient::connected);
        self.subscribers.push(subscriber);
    }
}

impl Handler<StateChanged> for Herald {
    type Result = ();

    fn handle(&mut self, StateChanged(state): StateChanged, _: &mut Self::Context) {
        if matches!(state, ShardState::Failed(_) | ShardState::Closed) {
            self.actors.drain(..).for_each(|actor| actor.tell(Terminate));
            self.guard.disarm();
        }
        self.told = event_of(&state);
        if let Some(event) = &self.told {
            self.subscribers.iter().for_each(|subscriber| tell(subscriber, event.clone()));
        }
    }
}

//! The Herald: tells whoever subscribed how the shard's life goes, and stops the actors when it
//! ends.
//!
//! *Owns* the list of subscribers, and what they have been told.
//!
//! *Does not own* the state: it follows the latch.
//!
//! *May stop because* the shard's life has ended and nobody has its address any more. Until then
//! a late subscriber still learns how it ended.

use std::pin::pin;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient};

use futures::future::{Either, select};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::actors::edge::Edge;
use crate::actors::host::Host;
use crate::actors::lifecycle::{DeathGuard, ShardState, Status, Terminate};
use crate::error::Failure;
use crate::ids::{Epoch, Seq, SeqRange};

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
    /// A memtable is full, or was asked to be written out. Its rows stay readable.
    Sealed {
        /// Its rows.
        range: SeqRange,
    },
    /// These rows are in a committed generation.
    Committed {
        /// Its rows.
        range: SeqRange,
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

/// The Freezer reports.
#[derive(Message)]
#[rtype(result = "()")]
struct Happened(ShardEvent);

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
    /// What the Freezer reports, until the task that listens to it has it.
    events: Option<UnboundedReceiver<ShardEvent>>,
    host: Arc<Host>,
}

impl Herald {
    pub(crate) fn new(
        status: Arc<Status>,
        epoch: Epoch,
        recovered: Seq,
        actors: Vec<Edge<Terminate>>,
        events: UnboundedReceiver<ShardEvent>,
        host: Arc<Host>,
    ) -> Self {
        Herald {
            guard: DeathGuard::armed("Herald", &status),
            status,
            opened: ShardEvent::Opened { epoch, recovered },
            told: None,
            subscribers: Vec::new(),
            actors,
            events: Some(events),
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
        let happened: Edge<Happened> = Edge::to(&ctx.address(), "Herald", &self.status);
        let mut states = self.status.subscribe();
        let Some(mut events) = self.events.take() else { return };
        // The watch keeps the latest state only. A `Closing` that is over before it was seen may
        // be skipped; how the life ended never is. Events come first: what is committed while the
        // shard is closed is told before the end is.
        self.host.io().spawn(async move {
            loop {
                while let Ok(event) = events.try_recv() {
                    happened.tell(Happened(event));
                }
                let state = states.borrow_and_update().clone();
                while let Ok(event) = events.try_recv() {
                    happened.tell(Happened(event));
                }
                let ended = matches!(state, ShardState::Failed(_) | ShardState::Closed);
                if !matches!(state, ShardState::Running) {
                    edge.tell(StateChanged(state));
                }
                if ended {
                    break;
                }
                let (next_event, changed) = (pin!(events.recv()), pin!(states.changed()));
                match select(next_event, changed).await {
                    Either::Left((Some(event), _)) => happened.tell(Happened(event)),
                    // The Freezer has stopped: its guard has latched why, or the end has.
                    Either::Left((None, changed)) => drop(changed.await),
                    Either::Right(_) => {}
                }
            }
        });
    }
}

impl Handler<Happened> for Herald {
    type Result = ();

    fn handle(&mut self, Happened(event): Happened, _: &mut Self::Context) {
        self.subscribers.iter().for_each(|subscriber| tell(subscriber, event.clone()));
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
        let event = event_of(&state);
        // An event between two looks at the state shows the same state again.
        let is_new = std::mem::discriminant(&event) != std::mem::discriminant(&self.told)
            || event.as_ref().map(std::mem::discriminant) != self.told.as_ref().map(std::mem::discriminant);
        self.told = event;
        if let Some(event) = &self.told
            && is_new
        {
            self.subscribers.iter().for_each(|subscriber| tell(subscriber, event.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use actix::{ActorContext, Addr};
    use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

    use super::*;
    use crate::actors::testing::probe;

    /// An actor that says its name when it is told to stop.
    struct Named(&'static str, UnboundedSender<&'static str>);

    impl Actor for Named {
        type Context = Context<Self>;
    }

    impl Handler<Terminate> for Named {
        type Result = ();

        fn handle(&mut self, _: Terminate, ctx: &mut Self::Context) {
            self.1.send(self.0).expect("the test listens");
            ctx.stop();
        }
    }

    /// A subscriber that stops before it is told anything.
    struct Brief;

    impl Actor for Brief {
        type Context = Context<Self>;

        fn started(&mut self, ctx: &mut Self::Context) {
            ctx.stop();
        }
    }

    impl Handler<ShardEvent> for Brief {
        type Result = ();

        fn handle(&mut self, _: ShardEvent, _: &mut Self::Context) {}
    }

    /// The real Herald, and actors that say in which order they are stopped.
    struct Stage {
        status: Arc<Status>,
        herald: Addr<Herald>,
        stopped: UnboundedReceiver<&'static str>,
        events: UnboundedSender<ShardEvent>,
        host: Arc<Host>,
    }

    impl Stage {
        fn set() -> Self {
            let (host, status) = (Host::start().expect("threads"), Status::running());
            let (told, stopped) = mpsc::unbounded_channel();
            let (events, happened) = mpsc::unbounded_channel();
            // On one arbiter, which takes actors' turns in the order of their messages.
            let actors = ["Reader", "IndexApplier", "WalAppender"].map(|name| {
                let told = told.clone();
                let addr = Named::start_in_arbiter(&host.read_arbiter(), move |_| Named(name, told));
                Edge::to(&addr, name, &status)
            });
            let herald = Herald::new(
                Arc::clone(&status),
                Epoch::new(3),
                Seq::new(7),
                actors.into(),
                happened,
                Arc::clone(&host),
            );
            let herald = Herald::start_in_arbiter(&host.read_arbiter(), |_| herald);
            Stage { status, herald, stopped, events, host }
        }

        async fn subscribe(&self) -> UnboundedReceiver<ShardEvent> {
            let (addr, heard) = probe(&self.host.read_arbiter());
            self.herald.send(Subscribe(addr.recipient())).await.expect("the Herald lives");
            heard
        }
    }

    async fn hears(heard: &mut UnboundedReceiver<ShardEvent>) -> String {
        format!("{:?}", heard.recv().await.expect("the probe lives"))
    }

    fn failure() -> Failure {
        Failure::Apply { detail: "the test".to_owned() }
    }

    const OPENED: &str = "Opened { epoch: Epoch(3), recovered: Seq(7) }";
    const FAILED: &str = "Failed(Apply { detail: \"the test\" })";

    #[tokio::test]
    async fn l1_at_the_end_the_reader_is_stopped_before_the_others_and_not_before_the_end() {
        for fails in [true, false] {
            let mut stage = Stage::set();
            let mut heard = stage.subscribe().await;
            stage.status.begin_closing();
            assert_eq!([hears(&mut heard).await, hears(&mut heard).await], [OPENED, "Closing"]);
            assert!(stage.stopped.try_recv().is_err(), "a closing shard still has work");
            if fails {
                stage.status.fail(failure());
            } else {
                stage.status.closed();
            }
            for name in ["Reader", "IndexApplier", "WalAppender"] {
                assert_eq!(stage.stopped.recv().await, Some(name));
            }
            assert_eq!(hears(&mut heard).await, if fails { FAILED } else { "Closed" });
            assert_eq!(stage.stopped.recv().await, None, "each is told once");
        }
    }

    #[tokio::test]
    async fn z1_a_late_subscriber_still_learns_how_it_ended_and_with_which_reason() {
        let stage = Stage::set();
        let mut early = stage.subscribe().await;
        stage.status.fail(failure());
        assert_eq!([hears(&mut early).await, hears(&mut early).await], [OPENED, FAILED]);
        for _ in 0..2 {
            let mut late = stage.subscribe().await;
            assert_eq!([hears(&mut late).await, hears(&mut late).await], [OPENED, FAILED]);
        }
        drop(stage.subscribe().await);
        assert!(early.try_recv().is_err(), "nobody is told twice");
    }

    #[tokio::test]
    async fn z1_a_subscriber_that_is_gone_fails_nothing_and_costs_the_others_nothing() {
        let stage = Stage::set();
        let brief = Brief::start_in_arbiter(&stage.host.read_arbiter(), |_| Brief);
        while brief.connected() {
            // Refused or not taken: either way its mailbox closes.
            let _ = brief.send(ShardEvent::Closed).await;
        }
        stage.herald.send(Subscribe(brief.recipient())).await.expect("the Herald lives");
        let mut other = stage.subscribe().await;
        stage.status.closed();
        assert_eq!([hears(&mut other).await, hears(&mut other).await], [OPENED, "Closed"]);
        assert!(matches!(stage.status.state(), ShardState::Closed));
    }

    #[tokio::test]
    async fn f2_subscribers_hear_of_sealed_and_committed_rows_and_of_those_of_a_close_before_its_end() {
        let stage = Stage::set();
        let mut heard = stage.subscribe().await;
        let range = SeqRange::starting_at(Seq::new(7), 3);
        stage.events.send(ShardEvent::Sealed { range }).expect("the Herald listens");
        assert_eq!(
            [hears(&mut heard).await, hears(&mut heard).await],
            [OPENED.to_owned(), format!("{:?}", ShardEvent::Sealed { range })]
        );
        stage.events.send(ShardEvent::Committed { range }).expect("the Herald listens");
        stage.status.closed();
        assert_eq!(
            [hears(&mut heard).await, hears(&mut heard).await],
            [format!("{:?}", ShardEvent::Committed { range }), "Closed".to_owned()]
        );
    }
}

//! What the engine relies on in actix 0.13.5: one fact, one test, named as the sentence.
//!
//! These are facts of the framework, some of them documented nowhere. An upgrade that changes one
//! fails here, by name, rather than in an engine that hangs.
//!
//! Within one [`System`] everything runs on one thread and nothing runs until the test awaits, so
//! "not taken yet" and "queued behind" need no luck.
#![expect(clippy::disallowed_methods, reason = "the raw calls are what is examined")]
#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context as TaskContext, Poll, Wake, Waker};
use std::thread;

use actix::dev::SendError;
use actix::prelude::*;
use futures::future::join_all;
use tokio::sync::oneshot;

/// An actor that does what its messages say, and reports its end.
#[derive(Default)]
struct Probe {
    /// What [`note`] wrote, in order.
    notes: Vec<usize>,
    end: End,
}

/// Sends word when it is called and when it is dropped.
#[derive(Default)]
struct End(Option<mpsc::Sender<(&'static str, bool)>>);

impl End {
    fn say(&self, what: &'static str) {
        if let Some(listener) = &self.0 {
            listener.send((what, thread::panicking())).expect("the test listens to the end");
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.say("dropped");
    }
}

impl Actor for Probe {
    type Context = Context<Self>;

    fn stopped(&mut self, _: &mut Context<Self>) {
        self.end.say("stopped");
    }
}

type Work = Box<dyn FnOnce(&mut Probe, &mut Context<Probe>) + Send>;

/// Runs in the handler.
#[derive(Message)]
#[rtype(result = "()")]
struct Run(Work);

impl Handler<Run> for Probe {
    type Result = ();

    fn handle(&mut self, Run(work): Run, ctx: &mut Context<Self>) {
        work(self, ctx);
    }
}

fn run(work: impl FnOnce(&mut Probe, &mut Context<Probe>) + Send + 'static) -> Run {
    Run(Box::new(work))
}

fn note(what: usize) -> Run {
    run(move |probe, _| probe.notes.push(what))
}

fn stop() -> Run {
    run(|_, ctx| ctx.stop())
}

fn fall() -> Run {
    run(|_, _| panic!("on purpose"))
}

/// What was noted so far.
#[derive(Message)]
#[rtype(result = "Vec<usize>")]
struct Notes;

impl Handler<Notes> for Probe {
    type Result = Vec<usize>;

    fn handle(&mut self, Notes: Notes, _: &mut Context<Self>) -> Vec<usize> {
        self.notes.clone()
    }
}

/// The thread the actor runs on.
#[derive(Message)]
#[rtype(result = "String")]
struct WhichThread;

impl Handler<WhichThread> for Probe {
    type Result = String;

    fn handle(&mut self, _: WhichThread, _: &mut Context<Self>) -> String {
        format!("{:?}", thread::current().id())
    }
}

/// Answers from a `ResponseFuture`: says that it began, waits for the gate, says that it ended.
#[derive(Message)]
#[rtype(result = "()")]
struct Gated {
    began: oneshot::Sender<()>,
    gate: oneshot::Receiver<()>,
    ended: oneshot::Sender<()>,
}

/// The other ends of a [`Gated`].
struct Gate {
    began: oneshot::Receiver<()>,
    open: oneshot::Sender<()>,
    ended: oneshot::Receiver<()>,
}

fn gated() -> (Gated, Gate) {
    let (began_tx, began) = oneshot::channel();
    let (open, gate) = oneshot::channel();
    let (ended_tx, ended) = oneshot::channel();
    (Gated { began: began_tx, gate, ended: ended_tx }, Gate { began, open, ended })
}

impl Handler<Gated> for Probe {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, message: Gated, _: &mut Context<Self>) -> ResponseFuture<()> {
        Box::pin(async move {
            message.began.send(()).expect("the test waits for the beginning");
            message.gate.await.expect("the gate opens");
            message.ended.send(()).expect("the test waits for the end");
        })
    }
}

fn in_system<T>(work: impl Future<Output = T>) -> T {
    System::new().block_on(work)
}

/// A probe on a thread of its own, started from this one, inside no system but its arbiter's.
fn elsewhere(system: &System) -> (Arbiter, Addr<Probe>) {
    System::set_current(system.clone());
    let arbiter = Arbiter::new();
    let probe = Probe::start_in_arbiter(&arbiter.handle(), |_| Probe::default());
    (arbiter, probe)
}

/// A System on its own thread, as an engine without one makes it.
struct Owned {
    system: System,
    thread: thread::JoinHandle<()>,
}

fn owned_system() -> Owned {
    let (tx, rx) = mpsc::channel();
    let thread = thread::spawn(move || {
        let runner = System::new();
        tx.send(System::current()).expect("the test waits for the system");
        runner.run().expect("the system ends well");
    });
    Owned { system: rx.recv().expect("a system"), thread }
}

impl Owned {
    fn end(self) {
        self.system.stop();
        self.thread.join().expect("the system's thread ends well");
    }
}

/// Waits for a future on a thread that has no runtime.
fn block_on_plain_thread<T>(work: impl Future<Output = T>) -> T {
    struct Unpark(thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut work = std::pin::pin!(work);
    loop {
        match work.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

// ---- the mailbox's capacity

#[test]
fn one_address_is_refused_after_sixteen_messages_and_each_clone_adds_a_place() {
    in_system(async {
        let probe = Probe::default().start();
        let accepted = (0..100).take_while(|what| probe.try_send(note(*what)).is_ok()).count();
        assert_eq!(accepted, 16);
        assert!(matches!(probe.try_send(note(0)), Err(SendError::Full(_))));

        let clones: Vec<_> = (0..1_000).map(|_| probe.clone()).collect();
        assert!(clones.iter().all(|clone| clone.try_send(note(0)).is_ok()));
        assert_eq!(probe.send(Notes).await.expect("an answer").len(), accepted + 1_000);
    });
}

#[test]
fn five_hundred_requests_get_into_a_mailbox_of_sixteen() {
    in_system(async {
        let probe = Probe::default().start();
        let answers = join_all((0..500).map(|what| probe.send(note(what)))).await;
        assert!(answers.iter().all(Result::is_ok));
        assert_eq!(probe.send(Notes).await.expect("an answer").len(), 500);
    });
}

#[test]
fn do_send_ignores_the_limit() {
    in_system(async {
        let probe = Probe::default().start();
        (0..10_000).for_each(|what| probe.do_send(note(what)));
        assert_eq!(probe.send(Notes).await.expect("an answer"), (0..10_000).collect::<Vec<_>>());
    });
}

#[test]
fn do_send_is_silent_when_the_receiver_is_gone() {
    in_system(async {
        let probe = Probe::default().start();
        probe.send(stop()).await.expect("an answer");
        assert_eq!(probe.send(Notes).await, Err(MailboxError::Closed));
        let (kept, dropped) = oneshot::channel::<()>();
        probe.do_send(run(move |_, _| kept.send(()).expect("the test waits")));
        dropped.await.expect_err("the message is dropped unread");
    });
}

// ---- requests that are given up

#[test]
fn a_request_dropped_before_it_is_taken_is_skipped() {
    in_system(async {
        let probe = Probe::default().start();
        drop(probe.send(note(1)));
        probe.do_send(note(2));
        assert_eq!(probe.send(Notes).await, Ok(vec![2]));
    });
}

#[test]
fn a_request_dropped_after_it_was_taken_runs_to_its_end() {
    in_system(async {
        let probe = Probe::default().start();
        let (message, gate) = gated();
        let request = probe.send(message);
        gate.began.await.expect("the message is taken");
        drop(request);
        gate.open.send(()).expect("the work still waits");
        gate.ended.await.expect("the work ends");
    });
}

#[test]
fn two_response_futures_of_one_actor_interleave() {
    in_system(async {
        let probe = Probe::default().start();
        let (first, first_gate) = gated();
        let (second, second_gate) = gated();
        let first = probe.send(first);
        let second = probe.send(second);
        first_gate.began.await.expect("the first began");
        second_gate.began.await.expect("the second began before the first ended");
        second_gate.open.send(()).expect("the second waits");
        second.await.expect("the second is answered while the first still waits");
        first_gate.open.send(()).expect("the first waits");
        first.await.expect("the first is answered");
    });
}

// ---- order

#[test]
fn a_message_enqueued_after_another_was_enqueued_is_handled_after_it() {
    let owned = owned_system();
    let (_arbiter, probe) = elsewhere(&owned.system);
    // Two threads hand the turn to each other: each send begins when the other's has returned.
    const TURNS: usize = 2_000;
    let (to_even, even_turn) = mpsc::channel();
    let (to_odd, odd_turn) = mpsc::channel();
    let player = |turn: mpsc::Receiver<usize>, other: mpsc::Sender<usize>, probe: Addr<Probe>| {
        thread::spawn(move || {
            while let Ok(what) = turn.recv() {
                probe.do_send(note(what));
                if what + 1 == TURNS || other.send(what + 1).is_err() {
                    break;
                }
            }
        })
    };
    to_even.send(0).expect("the even thread waits");
    let even = player(even_turn, to_odd, probe.clone());
    let odd = player(odd_turn, to_even, probe.clone());
    even.join().expect("the even thread ends well");
    odd.join().expect("the odd thread ends well");
    let notes = block_on_plain_thread(probe.send(Notes)).expect("an answer");
    assert_eq!(notes, (0..TURNS).collect::<Vec<_>>());
    owned.end();
}

// ---- death by panic

#[test]
fn a_panic_in_a_handler_answers_closed_to_the_asker_and_to_those_behind() {
    in_system(async {
        let probe = Probe::default().start();
        let before = probe.send(note(1));
        let asker = probe.send(fall());
        let behind = probe.send(note(2));
        assert_eq!(before.await, Ok(()));
        assert_eq!(asker.await, Err(MailboxError::Closed));
        assert_eq!(behind.await, Err(MailboxError::Closed));
        assert!(!probe.connected());
        assert_eq!(probe.send(Notes).await, Err(MailboxError::Closed));
    });
}

#[test]
fn the_other_actors_of_an_arbiter_outlive_a_panic() {
    let owned = owned_system();
    let (arbiter, falls) = elsewhere(&owned.system);
    let lives = Probe::start_in_arbiter(&arbiter.handle(), |_| Probe::default());
    block_on_plain_thread(async {
        let before = lives.send(WhichThread).await.expect("an answer");
        assert_eq!(falls.send(WhichThread).await.expect("an answer"), before);
        assert_eq!(falls.send(fall()).await, Err(MailboxError::Closed));
        assert_eq!(lives.send(WhichThread).await.expect("an answer"), before);
    });
    let new = Probe::start_in_arbiter(&arbiter.handle(), |_| Probe::default());
    assert_eq!(block_on_plain_thread(new.send(Notes)), Ok(vec![]));
    owned.end();
}

#[test]
fn an_actor_that_panicked_is_stopped_and_dropped_while_its_thread_is_panicking() {
    let (tx, end) = mpsc::channel();
    in_system(async {
        let probe = Probe { end: End(Some(tx)), ..Probe::default() }.start();
        assert_eq!(probe.send(fall()).await, Err(MailboxError::Closed));
        assert_eq!(end.try_iter().collect::<Vec<_>>(), [("stopped", true), ("dropped", true)]);
    });
}

#[test]
fn an_actor_that_was_stopped_is_dropped_while_its_thread_is_not_panicking() {
    let (tx, end) = mpsc::channel();
    in_system(async {
        let probe = Probe { end: End(Some(tx)), ..Probe::default() }.start();
        probe.send(stop()).await.expect("an answer");
        assert_eq!(probe.send(Notes).await, Err(MailboxError::Closed));
        assert_eq!(end.try_iter().collect::<Vec<_>>(), [("stopped", false), ("dropped", false)]);
    });
}

/// Answers from a `ResponseFuture` that panics.
#[derive(Message)]
#[rtype(result = "()")]
struct FallLater;

impl Handler<FallLater> for Probe {
    type Result = ResponseFuture<()>;

    fn handle(&mut self, FallLater: FallLater, _: &mut Context<Self>) -> ResponseFuture<()> {
        Box::pin(async { panic!("on purpose") })
    }
}

#[test]
fn a_panic_in_a_response_future_costs_that_answer_and_not_the_actor() {
    in_system(async {
        let probe = Probe::default().start();
        assert_eq!(probe.send(FallLater).await, Err(MailboxError::Closed));
        assert!(probe.connected());
        assert_eq!(probe.send(Notes).await, Ok(vec![]));
    });
}

/// Counts how often its supervisor started it again.
struct Supervisee(Arc<AtomicUsize>);

impl Actor for Supervisee {
    type Context = Context<Self>;
}

impl Supervised for Supervisee {
    fn restarting(&mut self, _: &mut Context<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// How the actor is to end.
#[derive(Message)]
#[rtype(result = "()")]
enum EndBy {
    Stop,
    Panic,
}

impl Handler<EndBy> for Supervisee {
    type Result = ();

    fn handle(&mut self, how: EndBy, ctx: &mut Context<Self>) {
        match how {
            EndBy::Stop => ctx.stop(),
            EndBy::Panic => panic!("on purpose"),
        }
    }
}

#[test]
fn a_supervisor_restarts_on_a_stop_and_not_on_a_panic() {
    in_system(async {
        let restarts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&restarts);
        let supervised = Supervisor::start(move |_| Supervisee(counted));
        supervised.send(EndBy::Stop).await.expect("an answer");
        supervised.send(EndBy::Stop).await.expect("an answer after a restart");
        assert!(restarts.load(Ordering::SeqCst) >= 1);
        assert_eq!(supervised.send(EndBy::Panic).await, Err(MailboxError::Closed));
        let restarts_before = restarts.load(Ordering::SeqCst);
        assert_eq!(supervised.send(EndBy::Stop).await, Err(MailboxError::Closed));
        assert_eq!(restarts.load(Ordering::SeqCst), restarts_before);
        assert_eq!(Arc::strong_count(&restarts), 1, "the actor is gone");
    });
}

// ---- the ordinary ends

#[test]
fn stopping_drops_what_is_queued() {
    in_system(async {
        let probe = Probe::default().start();
        let (ran, dropped) = oneshot::channel();
        probe.do_send(stop());
        probe.do_send(run(move |_, _| ran.send(()).expect("the test waits")));
        dropped.await.expect_err("the message behind the stop is dropped unread");
    });
}

#[test]
fn dropping_the_last_address_drains_the_mailbox_first() {
    let (tx, end) = mpsc::channel();
    let handled = Arc::new(AtomicUsize::new(0));
    in_system(async {
        let probe = Probe { end: End(Some(tx)), ..Probe::default() }.start();
        let (last, last_ran) = oneshot::channel();
        for _ in 0..100 {
            let handled = Arc::clone(&handled);
            probe.do_send(run(move |_, _| {
                handled.fetch_add(1, Ordering::SeqCst);
            }));
        }
        probe.do_send(run(move |_, _| last.send(()).expect("the test waits")));
        drop(probe);
        last_ran.await.expect("the last message is handled");
        assert_eq!(handled.load(Ordering::SeqCst), 100);
        // The probe ends in the same turn, which began before this task was woken.
        assert_eq!(end.try_iter().collect::<Vec<_>>(), [("stopped", false), ("dropped", false)]);
    });
}

/// Writes its name when it is dropped.
struct Named(&'static str, Arc<Mutex<Vec<&'static str>>>);

impl Drop for Named {
    fn drop(&mut self) {
        self.1.lock().expect("the list of drops").push(self.0);
    }
}

/// Its fields are dropped in the order they are declared in, by the rules of the language; that
/// nothing of the framework takes one out earlier is what is examined.
struct Fields {
    _first: Named,
    _second: Named,
}

impl Actor for Fields {
    type Context = Context<Self>;
}

impl Handler<EndBy> for Fields {
    type Result = ();

    fn handle(&mut self, how: EndBy, ctx: &mut Context<Self>) {
        match how {
            EndBy::Stop => ctx.stop(),
            EndBy::Panic => panic!("on purpose"),
        }
    }
}

/// Carries something that shows when it is dropped.
#[derive(Message)]
#[rtype(result = "()")]
struct Carry(#[expect(dead_code, reason = "held until it is dropped")] Named);

impl Handler<Carry> for Fields {
    type Result = ();

    fn handle(&mut self, _: Carry, _: &mut Context<Self>) {}
}

#[test]
fn the_field_declared_first_drops_first_and_what_is_queued_after_the_actor() {
    for how in [EndBy::Stop, EndBy::Panic] {
        let drops = Arc::new(Mutex::new(Vec::new()));
        in_system(async {
            let named = |name| Named(name, Arc::clone(&drops));
            let actor = Fields { _first: named("first"), _second: named("second") }.start();
            actor.do_send(how);
            let queued = actor.send(Carry(named("queued")));
            assert_eq!(queued.await, Err(MailboxError::Closed));
        });
        assert_eq!(*drops.lock().expect("the list of drops"), ["first", "second", "queued"]);
    }
}

// ---- threads, runtimes, systems

#[test]
fn start_in_arbiter_from_another_thread_runs_on_the_arbiters_thread() {
    let owned = owned_system();
    let (arbiter, probe) = elsewhere(&owned.system);
    let (tx, thread_of_arbiter) = mpsc::channel();
    arbiter.spawn_fn(move || tx.send(format!("{:?}", thread::current().id())).expect("the test waits"));
    let thread_of_arbiter = thread_of_arbiter.recv().expect("the arbiter's thread");
    assert_eq!(block_on_plain_thread(probe.send(WhichThread)).expect("an answer"), thread_of_arbiter);
    assert_ne!(thread_of_arbiter, format!("{:?}", thread::current().id()));
    owned.end();
}

#[test]
fn an_address_works_from_a_plain_thread() {
    let owned = owned_system();
    let (_arbiter, probe) = elsewhere(&owned.system);
    let asker = thread::spawn(move || {
        probe.do_send(note(1));
        block_on_plain_thread(probe.send(Notes))
    });
    assert_eq!(asker.join().expect("the asker ends well"), Ok(vec![1]));
    owned.end();
}

#[test]
fn an_address_works_from_the_threads_of_another_runtime() {
    let owned = owned_system();
    let (_arbiter, probe) = elsewhere(&owned.system);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("a runtime");
    runtime.block_on(async {
        let tasks = (0..64).map(|what| {
            let probe = probe.clone();
            tokio::spawn(async move { probe.send(note(what)).await })
        });
        for answer in join_all(tasks).await {
            assert_eq!(answer.expect("the task ends well"), Ok(()));
        }
        let mut notes = probe.send(Notes).await.expect("an answer");
        notes.sort_unstable();
        assert_eq!(notes, (0..64).collect::<Vec<_>>());
    });
    owned.end();
}

#[test]
fn an_address_works_from_another_system() {
    let owned = owned_system();
    let (_arbiter, probe) = elsewhere(&owned.system);
    let other = thread::spawn(move || {
        in_system(async {
            assert_eq!(probe.send(note(1)).await, Ok(()));
            probe.send(Notes).await
        })
    });
    assert_eq!(other.join().expect("the other system ends well"), Ok(vec![1]));
    owned.end();
}

#[test]
fn a_system_cannot_be_made_inside_a_running_runtime() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let made = runtime.block_on(async { catch_unwind(AssertUnwindSafe(|| drop(System::new()))) });
    assert!(made.is_err());
}

#[test]
fn an_arbiter_needs_a_system_on_the_thread_that_makes_it() {
    let made = thread::spawn(|| drop(Arbiter::new())).join();
    assert!(made.is_err());
}

//! A clock that moves when the test says so.
#![allow(clippy::expect_used, dead_code, unreachable_pub, reason = "tests may panic, and each uses its own part")]

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidewal::{BoxFuture, Clock};
use tokio::sync::oneshot;

/// Time as data. [`TestClock::automatic`] passes each sleep at once, [`TestClock::manual`] when
/// [`TestClock::advance`] reaches its end.
#[derive(Clone, Debug)]
pub struct TestClock(Arc<Mutex<Hands>>);

#[derive(Debug)]
struct Hands {
    now: Duration,
    automatic: bool,
    slept: Vec<Duration>,
    sleepers: Vec<(Duration, oneshot::Sender<()>)>,
}

impl TestClock {
    /// Every sleep moves the clock by its length and is over at once.
    pub fn automatic() -> Self {
        Self::new(true)
    }

    /// Sleeps end when [`TestClock::advance`] reaches them.
    pub fn manual() -> Self {
        Self::new(false)
    }

    fn new(automatic: bool) -> Self {
        let hands = Hands { now: Duration::ZERO, automatic, slept: Vec::new(), sleepers: Vec::new() };
        TestClock(Arc::new(Mutex::new(hands)))
    }

    /// Moves the clock and wakes whose sleep is over, in the order of their ends.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.hands();
        hands.now += by;
        let now = hands.now;
        let mut over: Vec<_> = hands.sleepers.extract_if(.., |(end, _)| *end <= now).collect();
        drop(hands);
        over.sort_by_key(|(end, _)| *end);
        for (_, wake) in over {
            // A sleeper that was dropped has nobody to wake.
            let _ = wake.send(());
        }
    }

    /// The lengths of all sleeps begun so far.
    pub fn slept(&self) -> Vec<Duration> {
        self.hands().slept.clone()
    }

    /// How many sleeps have begun and are not over (or were dropped since).
    pub fn sleeping(&self) -> usize {
        self.hands().sleepers.iter().filter(|(_, wake)| !wake.is_closed()).count()
    }

    fn hands(&self) -> MutexGuard<'_, Hands> {
        self.0.lock().expect("no test panics while it holds the clock")
    }
}

impl Clock for TestClock {
    fn now(&self) -> Duration {
        self.hands().now
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<()> {
        let mut hands = self.hands();
        hands.slept.push(duration);
        let end = hands.now + duration;
        if hands.automatic {
            hands.now = end;
            // Others get their turn, as they would during a real sleep.
            return Box::pin(tokio::task::yield_now());
        }
        if duration.is_zero() {
            return Box::pin(std::future::ready(()));
        }
        let (wake, woken) = oneshot::channel();
        hands.sleepers.push((end, wake));
        Box::pin(async move {
            // The clock itself went away: the test is over.
            let _ = woken.await;
        })
    }
}

//! Decides what is built, what is committed, and when something is tried again.

use std::collections::VecDeque;
use std::time::Duration;

use crate::error::Failure;
use crate::ids::{Seq, SeqRange};
use crate::invariants::G1;

/// Generations built at once. One is bound by the store while another is by the cores; more hold
/// more rows twice, as memtable and as bytes on their way.
const BUILDS_MAX: usize = 2;
/// The pause after the first failed attempt; it doubles with each further one.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// The longest pause. Puts wait for memory meanwhile, so an outage must not outlast itself by much.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(30);

/// The sealed memtables, oldest first, and how far each is. No actor, no store.
#[derive(Debug)]
pub(crate) struct FreezeQueue {
    items: VecDeque<Item>,
    /// One past the last row frozen or queued: the next memtable begins here (G1).
    end: Seq,
    /// One past the last row in the log.
    durable: Seq,
}

#[derive(Debug)]
struct Item {
    range: SeqRange,
    stage: Stage,
    /// Attempts to build it that were begun, and then to commit it.
    builds: u32,
    commits: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Waiting,
    Building,
    Built,
    Committing,
    /// Until its timer rings; then it is what it was before the attempt.
    PausingBuild,
    PausingCommit,
}

/// What to do next. Memtables are known by the `Seq` of their first row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Build and upload it.
    Build { first: Seq, attempt: u32 },
    /// Commit it: it is the oldest (G4), and its rows are in the log.
    Commit { first: Seq, attempt: u32 },
    /// Nothing can be done now.
    Rest,
}

impl FreezeQueue {
    /// For a shard whose rows below `flushed` are in generations, and below `durable` in the log.
    pub(crate) fn new(flushed: Seq, durable: Seq) -> Self {
        FreezeQueue { items: VecDeque::new(), end: flushed, durable }
    }

    /// A memtable was sealed.
    pub(crate) fn push(&mut self, range: SeqRange) -> Result<(), Failure> {
        if range.first() != self.end || range.is_empty() {
            let detail = format!("a memtable of rows {range} was sealed where {} was next", self.end);
            return Err(Failure::Invariant { id: G1, detail });
        }
        self.end = range.end();
        self.items.push_back(Item { range, stage: Stage::Waiting, builds: 0, commits: 0 });
        Ok(())
    }

    /// The log has every row below `end`. A generation whose rows it lacks is not committed: the
    /// flushed `Seq` would be ahead of what a reopen finds in the log.
    pub(crate) fn logged(&mut self, end: Seq) {
        self.durable = self.durable.max(end);
    }

    /// The next thing to do; asked until it says `Rest`.
    pub(crate) fn next_step(&mut self) -> Step {
        let durable = self.durable;
        if let Some(oldest) = self.items.front_mut().filter(|item| item.stage == Stage::Built)
            && oldest.range.end() <= durable
        {
            oldest.stage = Stage::Committing;
            oldest.commits += 1;
            return Step::Commit { first: oldest.range.first(), attempt: oldest.commits };
        }
        let building = self.items.iter().filter(|item| item.stage == Stage::Building).count();
        match self.items.iter_mut().find(|item| item.stage == Stage::Waiting) {
            Some(item) if building < BUILDS_MAX => {
                item.stage = Stage::Building;
                item.builds += 1;
                Step::Build { first: item.range.first(), attempt: item.builds }
            }
            _ => Step::Rest,
        }
    }

    /// Its files are in the store.
    pub(crate) fn built(&mut self, first: Seq) {
        self.turn(first, Stage::Building, Stage::Built);
    }

    /// The attempt failed. Gives the pause before the next one.
    pub(crate) fn build_failed(&mut self, first: Seq) -> Duration {
        self.turn(first, Stage::Building, Stage::PausingBuild);
        delay_after(self.item(first).map_or(1, |item| item.builds))
    }

    /// It is not known to be committed. Gives the pause before the next attempt.
    pub(crate) fn commit_failed(&mut self, first: Seq) -> Duration {
        self.turn(first, Stage::Committing, Stage::PausingCommit);
        delay_after(self.item(first).map_or(1, |item| item.commits))
    }

    /// The pause is over.
    pub(crate) fn retry(&mut self, first: Seq) {
        self.turn(first, Stage::PausingBuild, Stage::Waiting);
        self.turn(first, Stage::PausingCommit, Stage::Built);
    }

    /// The oldest is committed and leaves. Gives its rows.
    pub(crate) fn committed(&mut self, first: Seq) -> Option<SeqRange> {
        let oldest = self.items.front()?;
        let is_it = oldest.range.first() == first && oldest.stage == Stage::Committing;
        is_it.then(|| self.items.pop_front()).flatten().map(|item| item.range)
    }

    /// The attempts at its build or commit that were begun.
    pub(crate) fn attempts(&self, first: Seq) -> u32 {
        self.item(first).map_or(0, |item| item.builds.max(item.commits))
    }

    /// How many memtables wait to be committed.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    fn item(&self, first: Seq) -> Option<&Item> {
        self.items.iter().find(|item| item.range.first() == first)
    }

    fn turn(&mut self, first: Seq, from: Stage, to: Stage) {
        let item = self.items.iter_mut().find(|item| item.range.first() == first && item.stage == from);
        item.into_iter().for_each(|item| item.stage = to);
    }
}

fn delay_after(attempts: u32) -> Duration {
    let doubled = 2u32.saturating_pow(attempts.saturating_sub(1));
    RETRY_DELAY.saturating_mul(doubled).min(RETRY_DELAY_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Memtables of ten rows each, all in the log.
    fn queue(memtables: u64) -> FreezeQueue {
        let mut queue = FreezeQueue::new(Seq::ZERO, Seq::new(10 * memtables));
        for first in 0..memtables {
            queue.push(SeqRange::starting_at(Seq::new(10 * first), 10)).expect("it tiles");
        }
        queue
    }

    fn seq(at: u64) -> Seq {
        Seq::new(at)
    }

    fn steps(queue: &mut FreezeQueue) -> Vec<Step> {
        std::iter::from_fn(|| Some(queue.next_step()).filter(|step| *step != Step::Rest)).collect()
    }

    fn build(first: u64, attempt: u32) -> Step {
        Step::Build { first: seq(first), attempt }
    }

    fn commit(first: u64, attempt: u32) -> Step {
        Step::Commit { first: seq(first), attempt }
    }

    #[test]
    fn f3_a_later_generation_that_is_ready_first_waits_for_the_earlier() {
        let mut queue = queue(3);
        assert_eq!(steps(&mut queue), [build(0, 1), build(10, 1)], "several at once, and no more than that");
        queue.built(seq(10));
        assert_eq!(steps(&mut queue), [build(20, 1)]);
        queue.built(seq(20));
        assert_eq!(steps(&mut queue), [], "B32: not before the first");
        queue.built(seq(0));
        assert_eq!(steps(&mut queue), [commit(0, 1)], "one commit at a time");
        assert_eq!(queue.committed(seq(10)), None);
        assert_eq!(queue.committed(seq(0)), Some(SeqRange::starting_at(seq(0), 10)));
        assert_eq!(steps(&mut queue), [commit(10, 1)]);
    }

    #[test]
    fn f3_a_failed_build_is_tried_again_after_a_pause_that_doubles_to_a_cap() {
        let mut queue = queue(1);
        for (attempt, seconds) in [(1, 0.5), (2, 1.0), (3, 2.0), (4, 4.0), (5, 8.0), (6, 16.0), (7, 30.0), (8, 30.0)] {
            assert_eq!(steps(&mut queue), [build(0, attempt)]);
            assert_eq!(queue.build_failed(seq(0)).as_secs_f64(), seconds);
            assert_eq!(steps(&mut queue), [], "it pauses");
            queue.retry(seq(0));
        }
        assert_eq!((queue.len(), queue.attempts(seq(0))), (1, 8), "its rows stay");
    }

    #[test]
    fn f4_a_commit_that_failed_is_tried_again_without_building_again() {
        let mut queue = queue(2);
        steps(&mut queue);
        queue.built(seq(0));
        assert_eq!(steps(&mut queue), [commit(0, 1)]);
        queue.commit_failed(seq(0));
        queue.built(seq(10));
        assert_eq!(steps(&mut queue), [], "nothing overtakes it");
        queue.retry(seq(0));
        assert_eq!(steps(&mut queue), [commit(0, 2)]);
    }

    #[test]
    fn w3_a_generation_is_not_committed_before_the_log_has_its_rows() {
        let mut queue = FreezeQueue::new(Seq::ZERO, Seq::ZERO);
        queue.push(SeqRange::starting_at(seq(0), 10)).expect("it tiles");
        assert_eq!(steps(&mut queue), [build(0, 1)]);
        queue.built(seq(0));
        queue.logged(seq(9));
        assert_eq!(steps(&mut queue), []);
        queue.logged(seq(10));
        assert_eq!(steps(&mut queue), [commit(0, 1)]);
    }

    #[test]
    fn g1_a_hole_and_an_empty_memtable_are_refused() {
        for (first, rows) in [(20, 5), (5, 5), (10, 0)] {
            let mut queue = queue(1);
            let refused = queue.push(SeqRange::starting_at(seq(first), rows)).expect_err("it does not tile");
            assert!(refused.to_string().contains("where 10 was next"), "{refused}");
        }
    }
}

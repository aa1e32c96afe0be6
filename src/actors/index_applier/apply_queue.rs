//! Decides which put is applied next, and where.

use std::collections::VecDeque;

use crate::admission::Permit;
use crate::error::Failure;
use crate::ids::{Seq, SeqRange};
use crate::invariants::S1;
use crate::rows::SequencedRows;

/// Where a put's rows stand in the order of things to do.
#[derive(Debug)]
enum Item {
    Put(SequencedRows, Permit),
    /// Seal the memtable here, on request.
    Seal,
}

/// The puts that wait for the one being applied. No actor, no pool.
#[derive(Debug)]
pub(crate) struct ApplyQueue {
    /// The end of what was accepted: the next range begins here (X1).
    accepted: Seq,
    waiting: VecDeque<Item>,
    /// The put the CPU pool works on. Its memtable is away, so nothing else can be applied.
    away: Option<SeqRange>,
    inline_rows_max: u64,
}

/// What to do with a put.
#[derive(Debug)]
pub(crate) enum Step {
    /// Apply it here and now.
    Inline(SequencedRows, Permit),
    /// Send it and the memtable's write half to the CPU pool.
    Pool(SequencedRows, Permit),
    /// Seal the memtable, if it holds rows.
    Seal,
    /// Nothing can be applied now.
    Rest,
}

impl ApplyQueue {
    pub(crate) fn new(accepted: Seq, inline_rows_max: u64) -> Self {
        ApplyQueue { accepted, waiting: VecDeque::new(), away: None, inline_rows_max }
    }

    /// A put arrived. A hole or an overlap ends the shard: a row that is skipped would be
    /// acknowledged and never found.
    pub(crate) fn accept(&mut self, rows: SequencedRows, permit: Permit) -> Result<(), Failure> {
        if rows.range.first() != self.accepted {
            let detail = format!("rows {} arrived where {} was next", rows.range, self.accepted);
            return Err(Failure::Invariant { id: S1, detail });
        }
        self.accepted = rows.range.end();
        self.waiting.push_back(Item::Put(rows, permit));
        Ok(())
    }

    /// Seal behind everything accepted.
    pub(crate) fn seal(&mut self) {
        self.waiting.push_back(Item::Seal);
    }

    /// The next put, if one can be applied now.
    pub(crate) fn next_put(&self) -> Option<&SequencedRows> {
        match (self.away, self.waiting.front()) {
            (None, Some(Item::Put(rows, _))) => Some(rows),
            _ => None,
        }
    }

    /// The next put to apply, if the memtable is here.
    pub(crate) fn next_step(&mut self) -> Step {
        if self.away.is_some() {
            return Step::Rest;
        }
        match self.waiting.pop_front() {
            None => Step::Rest,
            Some(Item::Seal) => Step::Seal,
            Some(Item::Put(rows, permit)) if rows.range.rows() <= self.inline_rows_max => Step::Inline(rows, permit),
            Some(Item::Put(rows, permit)) => {
                self.away = Some(rows.range);
                Step::Pool(rows, permit)
            }
        }
    }

    /// The memtable came back. Gives the rows it was away for.
    pub(crate) fn returned(&mut self) -> Option<SeqRange> {
        self.away.take()
    }

    /// The puts that wait.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether everything accepted is applied.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.away.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Budget;

    fn rows(first: u64, rows: u64) -> SequencedRows {
        SequencedRows { range: SeqRange::starting_at(Seq::new(first), rows), batches: Vec::new().into(), bytes: 0 }
    }

    fn permit() -> Permit {
        Budget::new(1 << 20).charge_recovered(0)
    }

    #[test]
    fn f1_a_seal_on_request_comes_behind_what_was_accepted_and_before_what_comes_later() {
        let mut queue = ApplyQueue::new(Seq::ZERO, 10);
        queue.accept(rows(0, 11), permit()).expect("contiguous");
        queue.seal();
        queue.accept(rows(11, 1), permit()).expect("contiguous");
        assert!(matches!(queue.next_step(), Step::Pool(..)));
        assert!(queue.next_put().is_none() && matches!(queue.next_step(), Step::Rest), "the memtable is away");
        queue.returned();
        assert!(queue.next_put().is_none() && matches!(queue.next_step(), Step::Seal));
        assert!(queue.next_put().is_some() && matches!(queue.next_step(), Step::Inline(..)));
    }

    #[test]
    fn x1_a_hole_and_an_overlap_are_refused_with_both_places() {
        for first in [1, 7] {
            let mut queue = ApplyQueue::new(Seq::ZERO, 100);
            queue.accept(rows(0, 5), permit()).expect("contiguous");
            let failure = queue.accept(rows(first, 2), permit()).expect_err("a hole or an overlap");
            assert!(matches!(failure, Failure::Invariant { id: "S1", .. }));
            assert!(failure.to_string().contains("where 5 was next"), "{failure}");
        }
    }

    #[test]
    fn x3_small_puts_stay_and_large_ones_go_to_the_pool() {
        let mut queue = ApplyQueue::new(Seq::ZERO, 10);
        queue.accept(rows(0, 10), permit()).expect("contiguous");
        queue.accept(rows(10, 11), permit()).expect("contiguous");
        assert!(matches!(queue.next_step(), Step::Inline(..)));
        assert!(matches!(queue.next_step(), Step::Pool(..)));
    }

    #[test]
    fn v2_nothing_overtakes_the_put_the_pool_works_on() {
        let mut queue = ApplyQueue::new(Seq::ZERO, 10);
        queue.accept(rows(0, 11), permit()).expect("contiguous");
        queue.accept(rows(11, 1), permit()).expect("contiguous");
        assert!(matches!(queue.next_step(), Step::Pool(..)));
        assert!(matches!(queue.next_step(), Step::Rest));
        assert!(!queue.is_idle());
        assert_eq!(queue.returned(), Some(SeqRange::starting_at(Seq::ZERO, 11)));
        assert!(matches!(queue.next_step(), Step::Inline(next, _) if next.range.first() == Seq::new(11)));
        assert!(queue.is_idle());
    }
}

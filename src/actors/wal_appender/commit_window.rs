//! Decides which rows go into the next log entry, and when its write starts.
//!
//! Group commit: while a write is in flight everything that arrives is gathered for the next
//! one; when none is, a put starts one at once. The flush interval only spaces the starts.

use std::collections::VecDeque;
use std::time::Duration;

use crate::ids::{Seq, SeqRange};
use crate::rows::SequencedRows;

/// The order of writes and the log entry being gathered. No clock, no I/O: `now` is given.
#[derive(Debug)]
pub(crate) struct CommitWindow {
    /// The `Seq` of the next row (S1).
    next: Seq,
    gathered: VecDeque<SequencedRows>,
    /// The rows of the write in flight. There is at most one, which is what lets one sentinel
    /// fence a predecessor (W2).
    in_flight: Option<SeqRange>,
    /// The earliest moment the next write may start.
    open_at: Duration,
    timer_armed: bool,
    interval: Duration,
    entry_bytes_max: u64,
}

/// What follows from an event.
#[derive(Debug)]
pub(crate) enum Step {
    /// Write these puts as one entry.
    Write(Vec<SequencedRows>),
    /// Ask again after this long.
    Wait(Duration),
    /// Nothing; a later event decides.
    Rest,
}

impl CommitWindow {
    pub(crate) fn new(next: Seq, interval: Duration, entry_bytes_max: u64) -> Self {
        CommitWindow {
            next,
            gathered: VecDeque::new(),
            in_flight: None,
            open_at: Duration::ZERO,
            timer_armed: false,
            interval,
            entry_bytes_max,
        }
    }

    /// Gives the next `rows` rows their sequence numbers.
    pub(crate) fn next(&self) -> Seq {
        self.next
    }

    /// Gives rows their place.
    pub(crate) fn sequence(&mut self, rows: u64) -> SeqRange {
        let range = SeqRange::starting_at(self.next, rows);
        self.next = range.end();
        range
    }

    /// A put arrived.
    pub(crate) fn gather(&mut self, rows: SequencedRows, now: Duration) -> Step {
        self.gathered.push_back(rows);
        self.next_step(now)
    }

    /// The write in flight is in the store. Gives the end of what it made durable.
    pub(crate) fn written(&mut self, now: Duration) -> (Option<Seq>, Step) {
        let end = self.in_flight.take().map(SeqRange::end);
        (end, self.next_step(now))
    }

    /// The timer asked for by [`Step::Wait`] rang.
    pub(crate) fn timer_rang(&mut self, now: Duration) -> Step {
        self.timer_armed = false;
        self.next_step(now)
    }

    /// Stops spacing: what is gathered is written as fast as the store takes it.
    pub(crate) fn hurry(&mut self, now: Duration) -> Step {
        self.interval = Duration::ZERO;
        self.open_at = Duration::ZERO;
        self.next_step(now)
    }

    /// Whether everything that was sequenced is in the store.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.gathered.is_empty()
    }

    /// The puts that wait for the write in flight.
    pub(crate) fn puts_gathered(&self) -> usize {
        self.gathered.len()
    }

    fn next_step(&mut self, now: Duration) -> Step {
        if self.in_flight.is_some() || self.gathered.is_empty() {
            return Step::Rest;
        }
        if now < self.open_at {
            if self.timer_armed {
                return Step::Rest;
            }
            self.timer_armed = true;
            return Step::Wait(self.open_at - now);
        }
        self.open_at = now + self.interval;
        let puts = self.take_entry();
        let range = puts.iter().map(|rows| rows.range).reduce(|all, put| SeqRange::between(all.first(), put.end()));
        self.in_flight = range;
        Step::Write(puts)
    }

    /// Whole puts in order, at least one, up to the entry's size (S2).
    fn take_entry(&mut self) -> Vec<SequencedRows> {
        let mut bytes = 0;
        let mut puts = Vec::new();
        while let Some(next) = self.gathered.front() {
            bytes += next.bytes;
            if bytes > self.entry_bytes_max && !puts.is_empty() {
                break;
            }
            puts.extend(self.gathered.pop_front());
        }
        puts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn put(window: &mut CommitWindow, rows: u64, bytes: u64) -> SequencedRows {
        let range = window.sequence(rows);
        SequencedRows { range, batches: Vec::new().into(), bytes }
    }

    fn written_rows(step: Step) -> SeqRange {
        match step {
            Step::Write(puts) => SeqRange::between(puts[0].range.first(), puts[puts.len() - 1].range.end()),
            other => panic!("expected a write, got {other:?}"),
        }
    }

    #[test]
    fn w3_an_idle_log_starts_a_put_at_once_and_gathers_while_one_is_in_flight() {
        let mut window = CommitWindow::new(Seq::ZERO, Duration::ZERO, 1000);
        let first = put(&mut window, 2, 10);
        assert_eq!(written_rows(window.gather(first, MS)).rows(), 2);
        for _ in 0..5 {
            let more = put(&mut window, 1, 10);
            assert!(matches!(window.gather(more, MS), Step::Rest));
        }
        let (durable, step) = window.written(2 * MS);
        assert_eq!(durable, Some(Seq::new(2)));
        assert_eq!(written_rows(step), SeqRange::between(Seq::new(2), Seq::new(7)));
        let (durable, step) = window.written(3 * MS);
        assert_eq!(durable, Some(Seq::new(7)));
        assert!(matches!(step, Step::Rest) && window.is_idle());
    }

    #[test]
    fn w2_an_entry_holds_whole_puts_up_to_its_size_and_at_least_one() {
        let mut window = CommitWindow::new(Seq::ZERO, Duration::ZERO, 100);
        let huge = put(&mut window, 1, 5000);
        assert_eq!(written_rows(window.gather(huge, MS)).rows(), 1);
        for _ in 0..3 {
            let next = put(&mut window, 1, 60);
            window.gather(next, MS);
        }
        for end in [2, 3, 4] {
            let (_, step) = window.written(MS);
            assert_eq!(written_rows(step), SeqRange::between(Seq::new(end - 1), Seq::new(end)));
        }
    }

    #[test]
    fn p11_the_interval_spaces_starts_and_one_timer_is_armed() {
        let mut window = CommitWindow::new(Seq::ZERO, 100 * MS, 1000);
        let first = put(&mut window, 1, 1);
        assert!(matches!(window.gather(first, MS), Step::Write(_)), "an idle log does not wait for the interval");
        assert!(matches!(window.written(5 * MS).1, Step::Rest));
        let second = put(&mut window, 1, 1);
        match window.gather(second, 11 * MS) {
            Step::Wait(pause) => assert_eq!(pause, 90 * MS),
            other => panic!("expected a pause, got {other:?}"),
        }
        let third = put(&mut window, 1, 1);
        assert!(matches!(window.gather(third, 12 * MS), Step::Rest), "one timer is enough");
        assert_eq!(written_rows(window.timer_rang(101 * MS)).rows(), 2);
    }

    #[test]
    fn c1_a_closing_log_does_not_wait_for_the_interval() {
        let mut window = CommitWindow::new(Seq::ZERO, 100 * MS, 1000);
        let first = put(&mut window, 1, 1);
        window.gather(first, MS);
        window.written(MS);
        let second = put(&mut window, 1, 1);
        assert!(matches!(window.gather(second, MS), Step::Wait(_)));
        assert!(matches!(window.hurry(MS), Step::Write(_)));
        assert!(!window.is_idle());
    }

    #[test]
    fn s1_sequence_numbers_are_dense_from_where_the_log_ended() {
        let mut window = CommitWindow::new(Seq::new(10), Duration::ZERO, 1000);
        assert_eq!(window.sequence(3), SeqRange::between(Seq::new(10), Seq::new(13)));
        assert_eq!(window.sequence(1), SeqRange::between(Seq::new(13), Seq::new(14)));
    }
}

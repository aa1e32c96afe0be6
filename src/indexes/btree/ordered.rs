//! The walk over all runs in key order.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::ops::{Bound, Range};
use std::sync::Arc;

use super::Runs;
use super::run::Run;
use crate::ids::Seq;

/// The rows of [`BTreeReader::ordered`](super::BTreeReader::ordered), one at a time.
///
/// It holds the runs it began with, so what it gives does not depend on when it is asked (V3).
pub(crate) struct Ordered {
    cursors: BinaryHeap<Cursor>,
}

impl Ordered {
    pub(super) fn over(
        runs: &Arc<Runs>,
        (lower, upper): (Bound<&[u8]>, Bound<&[u8]>),
        reverse: bool,
        watermark: Seq,
    ) -> Self {
        let start = |(number, run): (usize, &Run)| {
            let rest = run.within(lower, upper);
            if rest.is_empty() {
                return None;
            }
            let runs = Arc::clone(runs);
            let mut cursor = Cursor { runs, number, at: 0, group: 0..0, rest, reverse, watermark };
            cursor.advance().then_some(cursor)
        };
        Ordered { cursors: runs.iter().enumerate().filter_map(start).collect() }
    }
}

impl Iterator for Ordered {
    type Item = Seq;

    fn next(&mut self) -> Option<Seq> {
        let mut first = self.cursors.peek_mut()?;
        let seq = first.run().seq(first.at);
        if !first.advance() {
            PeekMut::pop(first);
        }
        Some(seq)
    }
}

/// A run at its next entry below the watermark. The greatest cursor is the next to give.
struct Cursor {
    runs: Arc<Runs>,
    number: usize,
    at: usize,
    /// Entries to walk upwards before `rest`: all of them or, in reverse, those of one key,
    /// since rows of one key come by ascending `Seq` in both directions.
    group: Range<usize>,
    rest: Range<usize>,
    reverse: bool,
    watermark: Seq,
}

impl Cursor {
    fn run(&self) -> &Run {
        self.runs.get(self.number)
    }

    fn advance(&mut self) -> bool {
        loop {
            let Some(at) = self.group.next() else {
                if self.rest.is_empty() {
                    return false;
                }
                let start =
                    if self.reverse { self.run().start_of_last_key(self.rest.clone()) } else { self.rest.start };
                self.group = start..self.rest.end;
                self.rest.end = start;
                continue;
            };
            if self.run().seq(at) < self.watermark {
                self.at = at;
                return true;
            }
        }
    }
}

impl Ord for Cursor {
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = self.run().compare_keys(self.at, other.run(), other.at);
        let keys = if self.reverse { keys } else { keys.reverse() };
        keys.then_with(|| other.run().seq(other.at).cmp(&self.run().seq(self.at)))
    }
}

impl PartialOrd for Cursor {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Cursor {}

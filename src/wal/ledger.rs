//! Which entries the log has, and which of them a commit releases. No I/O.

use std::collections::VecDeque;

use crate::ids::{EntryPosition, Seq};
use crate::wal::manifest::{Release, Released};

/// One entry of the log, without its rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoggedEntry {
    pub(crate) position: EntryPosition,
    pub(crate) crc: u32,
    /// One past the last row of the log up to and with this entry.
    pub(crate) end: Seq,
    pub(crate) is_sentinel: bool,
}

/// The entries behind the released part of the log, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct LogLedger {
    entries: VecDeque<LoggedEntry>,
}

impl LogLedger {
    /// Takes note of the entry behind the last one.
    pub(crate) fn push(&mut self, entry: LoggedEntry) {
        self.entries.push_back(entry);
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// What a commit of the rows below `flushed` releases (W3): entries from the oldest on, as long as
    /// all their rows lie below it.
    pub(crate) fn released_by(&self, flushed: Seq) -> Release {
        let mut release = Release::default();
        for entry in self.entries.iter().take_while(|entry| entry.end <= flushed) {
            release.through = Some(Released { position: entry.position, crc: entry.crc });
            if entry.is_sentinel {
                release.sentinels.push(entry.position);
            } else {
                release.entries.push(entry.position);
            }
        }
        release
    }

    /// Forgets what is released.
    pub(crate) fn drop_released(&mut self, flushed: Seq) {
        while self.entries.front().is_some_and(|entry| entry.end <= flushed) {
            self.entries.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(position: u64, end: u64, is_sentinel: bool) -> LoggedEntry {
        LoggedEntry { position: EntryPosition::new(position), crc: position as u32, end: Seq::new(end), is_sentinel }
    }

    fn ledger() -> LogLedger {
        let mut ledger = LogLedger::default();
        for (position, end, is_sentinel) in [(3, 10, false), (4, 10, true), (5, 25, false), (6, 40, false)] {
            ledger.push(entry(position, end, is_sentinel));
        }
        ledger
    }

    #[test]
    fn w3_an_entry_is_released_only_when_all_its_rows_are_in_generations() {
        let through = |flushed| ledger().released_by(Seq::new(flushed)).through.map(|released| released.position.get());
        assert_eq!(through(9), None);
        assert_eq!(through(10), Some(4), "a sentinel holds no rows");
        assert_eq!(through(24), Some(4), "an entry across the flushed row stays");
        assert_eq!(through(40), Some(6));
    }

    #[test]
    fn e1_a_sentinel_is_not_among_the_entries_to_delete() {
        let release = ledger().released_by(Seq::new(25));
        assert_eq!(release.sentinels, [EntryPosition::new(4)]);
        assert_eq!(release.entries, [3, 5].map(EntryPosition::new));
        assert_eq!(release.through, Some(Released { position: EntryPosition::new(5), crc: 5 }));
    }

    #[test]
    fn w9_what_is_released_is_forgotten_and_nothing_else() {
        let mut ledger = ledger();
        ledger.drop_released(Seq::new(25));
        assert_eq!(ledger.len(), 1);
        assert_eq!(ledger.released_by(Seq::new(25)), Release::default());
    }
}

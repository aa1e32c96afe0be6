//! A run: entries of an ordered index in key order, never changed once made.

use std::cmp::Ordering;
use std::mem;
use std::ops::{Bound, Range};

use arrow_row::Rows;
use smallvec::SmallVec;

use super::FAN_OUT;
use crate::ids::Seq;

/// How many bytes of a key its [`Head`] holds.
const HEAD_BYTES: usize = 15;

/// The first 15 bytes of a key, padded with zeros, and then its length, where 16 stands for
/// every length above 15.
///
/// Heads compare as their keys do: where the bytes agree although one key has padding in
/// them, that key is a prefix of the other and has the smaller last byte. A key of at most 15
/// bytes is all in its head, so most keys need no other memory. Two halves and not one `u128`,
/// whose alignment would grow an [`Entry`] from 24 to 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Head {
    high: u64,
    low: u64,
}

impl Head {
    fn of(key: &[u8]) -> Self {
        let mut bytes = [0; HEAD_BYTES + 1];
        let held = key.len().min(HEAD_BYTES);
        bytes[..held].copy_from_slice(&key[..held]);
        bytes[HEAD_BYTES] = key.len().min(HEAD_BYTES + 1) as u8;
        let whole = u128::from_be_bytes(bytes);
        Head { high: (whole >> 64) as u64, low: whole as u64 }
    }

    const fn whole(self) -> u128 {
        (self.high as u128) << 64 | self.low as u128
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> Ordering {
        self.whole().cmp(&other.whole())
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The bytes of a key behind its head.
fn tail_of(key: &[u8]) -> &[u8] {
    key.get(HEAD_BYTES..).unwrap_or_default()
}

/// A key in the form it is compared in.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct SplitKey<'a> {
    head: Head,
    // Decides only between equal heads; derived order compares it second.
    tail: &'a [u8],
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    head: Head,
    seq: Seq,
}

/// Entries by key and, under one key, by `Seq`. Every allocation is as large as what it holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Run {
    entries: Box<[Entry]>,
    /// Where the tail of each entry ends in `tails`; empty where no key has a tail.
    tail_ends: Box<[u64]>,
    tails: Box<[u8]>,
}

impl Run {
    /// What an entry takes besides its key's tail.
    pub(super) const ENTRY_BYTES: u64 = (mem::size_of::<Entry>() + mem::size_of::<u64>()) as u64;

    /// The run of one batch: `keys[i]` is the key of row `first + i`.
    pub(super) fn of_batch(first: Seq, keys: &Rows) -> Self {
        let mut entries = Vec::with_capacity(keys.num_rows());
        let mut tail_bytes = 0;
        for (key, at) in keys.iter().zip(0..) {
            tail_bytes += tail_of(key.data()).len();
            entries.push(Entry { head: Head::of(key.data()), seq: first.plus(at) });
        }
        let tail = |entry: &Entry| tail_of(keys.row(entry.seq.index_from(first)).data());
        let order = |a: &Entry, b: &Entry| {
            a.head.cmp(&b.head).then_with(|| tail(a).cmp(tail(b))).then_with(|| a.seq.cmp(&b.seq))
        };
        if !entries.is_sorted_by(|a, b| order(a, b).is_lt()) {
            entries.sort_unstable_by(order);
        }
        if tail_bytes == 0 {
            return Run { entries: entries.into_boxed_slice(), ..Run::default() };
        }
        let mut run = RunBuilder::with_capacity(entries.len(), tail_bytes);
        entries.iter().for_each(|entry| run.push(*entry, tail(entry)));
        run.finish()
    }

    /// One run of all entries of the inputs. It allocates what the result holds and nothing else.
    pub(super) fn merge<'a>(inputs: impl IntoIterator<Item = &'a Run> + Clone) -> Self {
        let rows = inputs.clone().into_iter().map(Run::len).sum();
        let tail_bytes = inputs.clone().into_iter().map(|run| run.tails.len()).sum();
        let mut merged = RunBuilder::with_capacity(rows, tail_bytes);
        let mut sources: SmallVec<[MergeSource<'a>; FAN_OUT]> =
            inputs.into_iter().filter_map(MergeSource::start).collect();
        // The sources by their next entry. A stretch that comes from one of them, as with keys
        // that only grow, costs one comparison an entry.
        let mut order: SmallVec<[usize; FAN_OUT]> = (0..sources.len()).collect();
        order.sort_unstable_by(|a, b| sources[*a].order(&sources[*b]));
        while let Some(first) = order.first().copied() {
            merged.push(sources[first].entry, sources[first].tail);
            if !sources[first].advance() {
                order.remove(0);
                continue;
            }
            let mut place = 0;
            while let Some(next) = order.get(place + 1).copied()
                && sources[next].order(&sources[first]).is_lt()
            {
                order[place] = next;
                place += 1;
            }
            order[place] = first;
        }
        merged.finish()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The bytes of its entries and keys.
    pub(super) fn data_bytes(&self) -> u64 {
        (mem::size_of_val(&*self.entries) + mem::size_of_val(&*self.tail_ends) + self.tails.len()) as u64
    }

    /// The [`Run::data_bytes`] of what [`Run::merge`] would make.
    pub(super) fn merged_data_bytes<'a>(inputs: impl IntoIterator<Item = &'a Run>) -> u64 {
        let (mut rows, mut tail_bytes) = (0, 0);
        for run in inputs {
            rows += run.len();
            tail_bytes += run.tails.len();
        }
        let entry_bytes = mem::size_of::<Entry>() + if tail_bytes == 0 { 0 } else { mem::size_of::<u64>() };
        (rows * entry_bytes + tail_bytes) as u64
    }

    pub(super) fn seq(&self, at: usize) -> Seq {
        self.entries[at].seq
    }

    pub(super) fn seqs(&self, range: Range<usize>) -> impl Iterator<Item = Seq> {
        self.entries[range].iter().map(|entry| entry.seq)
    }

    fn tail(&self, at: usize) -> &[u8] {
        let Some(end) = self.tail_ends.get(at) else { return &[] };
        let start = at.checked_sub(1).map_or(0, |before| self.tail_ends[before]);
        &self.tails[start as usize..*end as usize]
    }

    fn key(&self, at: usize) -> SplitKey<'_> {
        SplitKey { head: self.entries[at].head, tail: self.tail(at) }
    }

    /// How the key at `at` compares with the key at `other_at` of the other run.
    pub(super) fn compare_keys(&self, at: usize, other: &Run, other_at: usize) -> Ordering {
        let (mine, theirs) = (self.entries[at].head, other.entries[other_at].head);
        mine.cmp(&theirs).then_with(|| self.tail(at).cmp(other.tail(other_at)))
    }

    /// Where the entries stand whose keys lie in the bounds.
    pub(super) fn within(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Range<usize> {
        let start = match lower {
            Bound::Unbounded => 0,
            Bound::Included(key) => self.first_not(|mine, bound| mine < bound, key),
            Bound::Excluded(key) => self.first_not(|mine, bound| mine <= bound, key),
        };
        let end = match upper {
            Bound::Unbounded => self.len(),
            Bound::Included(key) => self.first_not(|mine, bound| mine <= bound, key),
            Bound::Excluded(key) => self.first_not(|mine, bound| mine < bound, key),
        };
        // Bounds that cross hold nothing.
        start..end.max(start)
    }

    fn first_not(&self, below: impl Fn(SplitKey<'_>, SplitKey<'_>) -> bool, key: &[u8]) -> usize {
        let bound = SplitKey { head: Head::of(key), tail: tail_of(key) };
        self.partition(0..self.len(), |at| below(self.key(at), bound))
    }

    /// Where the entries with the key of the last entry of a range that is not empty begin.
    pub(super) fn start_of_last_key(&self, range: Range<usize>) -> usize {
        let last = range.end - 1;
        // Most keys are there once.
        if last == range.start || self.key(last - 1) < self.key(last) {
            return last;
        }
        self.partition(range, |at| self.key(at) < self.key(last))
    }

    fn partition(&self, range: Range<usize>, below: impl Fn(usize) -> bool) -> usize {
        let Range { mut start, mut end } = range;
        while start < end {
            let middle = start + (end - start) / 2;
            if below(middle) {
                start = middle + 1;
            } else {
                end = middle;
            }
        }
        start
    }
}

struct RunBuilder {
    entries: Vec<Entry>,
    tail_ends: Vec<u64>,
    tails: Vec<u8>,
    has_tails: bool,
}

impl RunBuilder {
    fn with_capacity(rows: usize, tail_bytes: usize) -> Self {
        let has_tails = tail_bytes > 0;
        RunBuilder {
            entries: Vec::with_capacity(rows),
            tail_ends: Vec::with_capacity(if has_tails { rows } else { 0 }),
            tails: Vec::with_capacity(tail_bytes),
            has_tails,
        }
    }

    fn push(&mut self, entry: Entry, tail: &[u8]) {
        self.entries.push(entry);
        if self.has_tails {
            self.tails.extend_from_slice(tail);
            self.tail_ends.push(self.tails.len() as u64);
        }
    }

    /// Moves nothing: the capacities were exact.
    fn finish(self) -> Run {
        Run {
            entries: self.entries.into_boxed_slice(),
            tail_ends: self.tail_ends.into_boxed_slice(),
            tails: self.tails.into_boxed_slice(),
        }
    }
}

/// A run that is being merged, at its next entry.
struct MergeSource<'a> {
    run: &'a Run,
    at: usize,
    entry: Entry,
    tail: &'a [u8],
}

impl<'a> MergeSource<'a> {
    fn start(run: &'a Run) -> Option<Self> {
        let entry = *run.entries.first()?;
        Some(MergeSource { run, at: 0, entry, tail: run.tail(0) })
    }

    fn advance(&mut self) -> bool {
        self.at += 1;
        let Some(entry) = self.run.entries.get(self.at) else { return false };
        self.entry = *entry;
        self.tail = self.run.tail(self.at);
        true
    }

    fn order(&self, other: &Self) -> Ordering {
        self.entry
            .head
            .cmp(&other.entry.head)
            .then_with(|| self.tail.cmp(other.tail))
            .then_with(|| self.entry.seq.cmp(&other.entry.seq))
    }
}

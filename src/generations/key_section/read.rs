//! Asking an open section. Nothing is copied out of a block but the rows that are asked for.

use std::collections::VecDeque;
use std::ops::{Bound, Range};
use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use bytes::Bytes;
use xorf::{BinaryFuse8Ref, Filter, FilterRef};

use super::build::DESCRIPTOR_BYTES;
use super::{MAGIC, hash_of};
use crate::error::{Error, Result};
use crate::generations::blocks::{Block, Blocks};

/// An open section: its root. Blocks are read as they are needed.
pub(crate) struct KeySection {
    blocks: Arc<dyn Blocks>,
    root: Bytes,
    entries: u64,
    entry_blocks: Vec<EntryBlock>,
    /// With the first row of each.
    superseded: Vec<(Block, u32)>,
    filter: Option<Block>,
    /// Where the last key lies in the root.
    last_key: Range<usize>,
}

struct EntryBlock {
    block: Block,
    /// Entries in the blocks before it.
    before: u64,
    /// Where its first key lies in the root.
    first_key: Range<usize>,
}

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at.checked_add(8)?)?.try_into().ok().map(u64::from_le_bytes)
}

/// Reads a root from front to back.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn u32(&mut self) -> Option<u32> {
        let value = u32_at(self.bytes, self.at)?;
        self.at += 4;
        Some(value)
    }

    fn u64(&mut self) -> Option<u64> {
        let value = u64_at(self.bytes, self.at)?;
        self.at += 8;
        Some(value)
    }

    /// A block, and the number that is kept beside it.
    fn block(&mut self) -> Option<(Block, u64)> {
        let block = Block { offset: self.u64()?, length: self.u32()?, crc: self.u32()? };
        Some((block, self.u64()?))
    }

    /// Where a key lies.
    fn key(&mut self) -> Option<Range<usize>> {
        let length = self.u32()? as usize;
        let key = self.at..self.at.checked_add(length)?;
        self.bytes.get(key.clone())?;
        self.at = key.end;
        Some(key)
    }

    fn entry_block(&mut self) -> Option<EntryBlock> {
        let (block, before) = self.block()?;
        Some(EntryBlock { block, before, first_key: self.key()? })
    }
}

impl KeySection {
    /// Reads the root and checks it.
    pub(crate) fn open(root: Block, blocks: Arc<dyn Blocks>) -> Result<Self> {
        let bytes = blocks.read(root)?;
        let unreadable = || Error::corrupt(blocks.object(), "an unreadable root", "the root of a section of keys");
        Self::parse(bytes, &blocks).ok_or_else(unreadable)
    }

    fn parse(root: Bytes, blocks: &Arc<dyn Blocks>) -> Option<Self> {
        let mut cursor = Cursor { bytes: &root, at: MAGIC.len() };
        if root.get(..MAGIC.len())? != MAGIC {
            return None;
        }
        let (entries, blocks_count) = (cursor.u64()?, cursor.u32()?);
        let (superseded_count, filters) = (cursor.u32()?, cursor.u32()?);
        let last_key = cursor.key()?;
        // Collecting stops where the bytes do, whatever a count says.
        let entry_blocks = (0..blocks_count).map(|_| cursor.entry_block()).collect::<Option<Vec<_>>>()?;
        let superseded = (0..superseded_count).map(|_| {
            let (block, row) = cursor.block()?;
            Some((block, u32::try_from(row).ok()?))
        });
        let superseded = superseded.collect::<Option<Vec<_>>>()?;
        let filter = if filters > 0 { Some(cursor.block()?.0) } else { None };
        Some(KeySection { blocks: Arc::clone(blocks), entries, entry_blocks, superseded, filter, last_key, root })
    }

    /// How many rows have keys: all of them.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> u64 {
        self.entries
    }

    /// The greatest row below `row_end` with exactly this key.
    pub(crate) fn newest(&self, key: &[u8], row_end: u32) -> Result<Option<u32>> {
        if !self.is_within(key) || !self.may_contain(key)? {
            return Ok(None);
        }
        self.newest_in_blocks(key, row_end)
    }

    /// Which of the keys have a row below `row_end`. The filter is fetched once for all of them.
    pub(crate) fn contained(&self, keys: &[&[u8]], row_end: u32) -> Result<Vec<bool>> {
        let mut filter = None;
        let mut contained = Vec::with_capacity(keys.len());
        for key in keys {
            let mut may = self.is_within(key);
            if may && let Some(block) = self.filter {
                let bytes = match &filter {
                    Some(bytes) => bytes,
                    None => filter.insert(self.blocks.read(block)?),
                };
                may = self.filter_of(bytes)?.contains(&hash_of(key));
            }
            contained.push(may && self.newest_in_blocks(key, row_end)?.is_some());
        }
        Ok(contained)
    }

    /// Whether the key lies between the first and the last: ids that grow are decided by this alone.
    fn is_within(&self, key: &[u8]) -> bool {
        let first = self.entry_blocks.first().map(|block| self.first_key(block));
        first.is_some_and(|first| first <= key) && key <= self.root.get(self.last_key.clone()).unwrap_or_default()
    }

    fn newest_in_blocks(&self, key: &[u8], row_end: u32) -> Result<Option<u32>> {
        let mut at = self.blocks_from(|first| first <= key);
        while at > 0 {
            at -= 1;
            let Some(entry_block) = self.entry_blocks.get(at) else { break };
            let entries = self.entries_of(entry_block.block)?;
            let end = entries.partition_point(|of, row| (of, row) < (key, row_end));
            if let Some(last) = end.checked_sub(1) {
                let row = entries.row(last).filter(|_| entries.key(last) == Some(key));
                return Ok(row);
            }
            // Every version here is too new: older ones may end the block before.
        }
        Ok(None)
    }

    fn may_contain(&self, key: &[u8]) -> Result<bool> {
        let Some(block) = self.filter else { return Ok(self.entries > 0) };
        Ok(self.filter_of(&self.blocks.read(block)?)?.contains(&hash_of(key)))
    }

    fn filter_of<'a>(&self, bytes: &'a [u8]) -> Result<BinaryFuse8Ref<'a>> {
        let (descriptor, fingerprints) = bytes
            .split_at_checked(DESCRIPTOR_BYTES)
            .filter(|(descriptor, fingerprints)| is_filter(descriptor, fingerprints.len()))
            .ok_or_else(|| self.corrupt("a filter whose parts do not fit"))?;
        Ok(BinaryFuse8Ref::from_dma(descriptor, fingerprints))
    }

    fn corrupt(&self, found: &str) -> Error {
        Error::corrupt(self.blocks.object(), found, "a section of keys as its root says")
    }

    /// How many blocks, from the first on, begin with such a key.
    fn blocks_from(&self, is_before: impl Fn(&[u8]) -> bool) -> usize {
        self.entry_blocks.partition_point(|block| is_before(self.first_key(block)))
    }

    fn first_key(&self, block: &EntryBlock) -> &[u8] {
        self.root.get(block.first_key.clone()).unwrap_or_default()
    }

    fn entries_of(&self, block: Block) -> Result<Entries> {
        Entries::of(self.blocks.read(block)?).ok_or_else(|| self.corrupt("a block of entries that ends early"))
    }

    /// The blocks that may have keys in the bounds.
    fn span(&self, (lower, upper): Bounds<'_>) -> Range<usize> {
        let first = match lower {
            // Entries at the bound may end the block before the first that begins with it.
            Bound::Included(key) => self.blocks_from(|first| first < key).saturating_sub(1),
            Bound::Excluded(key) => self.blocks_from(|first| first <= key).saturating_sub(1),
            Bound::Unbounded => 0,
        };
        let end = match upper {
            Bound::Included(key) => self.blocks_from(|first| first <= key),
            Bound::Excluded(key) => self.blocks_from(|first| first < key),
            Bound::Unbounded => self.entry_blocks.len(),
        };
        first..end.max(first)
    }

    /// The rows below `row_end` whose keys lie in the bounds, ascending.
    pub(crate) fn range(&self, bounds: Bounds<'_>, row_end: u32) -> Result<Vec<u32>> {
        let blocks: Vec<Block> =
            self.entry_blocks.get(self.span(bounds)).unwrap_or_default().iter().map(|block| block.block).collect();
        let mut rows = Vec::new();
        for bytes in self.blocks.read_all(&blocks)? {
            let entries = Entries::of(bytes).ok_or_else(|| self.corrupt("a block of entries that ends early"))?;
            let within = entries.within(bounds);
            rows.extend(within.filter_map(|at| entries.row(at)).filter(|row| *row < row_end));
        }
        rows.sort_unstable();
        Ok(rows)
    }

    /// About how many rows have keys in the bounds. Reads nothing.
    pub(crate) fn estimate(&self, bounds: Bounds<'_>) -> u64 {
        let span = self.span(bounds);
        let before = |at: usize| self.entry_blocks.get(at).map_or(self.entries, |block| block.before);
        let most = before(span.end).saturating_sub(before(span.start));
        // The first and the last block are in the range with some part, and nobody knows which.
        match span.len() {
            0 => 0,
            1 => most.div_ceil(8),
            2 => most.div_ceil(4),
            blocks => most.saturating_sub(most / blocks as u64),
        }
    }

    /// The rows by ascending or descending key; rows of one key ascend in both. Reads no further
    /// than it is asked.
    pub(crate) fn ordered(
        self: &Arc<Self>,
        bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        reverse: bool,
        row_end: u32,
    ) -> impl Iterator<Item = Result<u32>> + Send + use<> {
        let span = self.span((bounds.0.as_ref().map(Vec::as_slice), bounds.1.as_ref().map(Vec::as_slice)));
        let walk = Walk { section: Arc::clone(self), bounds, reverse, span, open: VecDeque::new(), failed: false };
        let rows = Versions { walk, reverse, group: VecDeque::new(), next: None, ended: false };
        rows.filter(move |row| row.as_ref().map_or(true, |row| *row < row_end))
    }

    /// Which of the rows no row below `row_end` supersedes; `None` where that is all.
    pub(crate) fn live(&self, rows: Range<u32>, row_end: u32) -> Result<Option<BooleanBuffer>> {
        let first = self.superseded.partition_point(|(_, first)| *first <= rows.start).saturating_sub(1);
        let blocks: Vec<Block> = self
            .superseded
            .iter()
            .skip(first)
            .take_while(|(_, first)| *first < rows.end)
            .map(|(block, _)| *block)
            .collect();
        let mut dead = Vec::new();
        for bytes in self.blocks.read_all(&blocks)? {
            let pairs = Pairs::of(&bytes).ok_or_else(|| self.corrupt("a block of superseded rows that ends early"))?;
            let from = pairs.partition_point(|row| row < rows.start);
            let within = (from..pairs.count).map_while(|at| pairs.pair(at)).take_while(|(row, _)| *row < rows.end);
            dead.extend(within.filter(|(_, by)| *by < row_end).map(|(row, _)| row));
        }
        if dead.is_empty() {
            return Ok(None);
        }
        let mut live = BooleanBufferBuilder::new(rows.len());
        live.append_n(rows.len(), true);
        dead.into_iter().for_each(|row| live.set_bit((row - rows.start) as usize, false));
        Ok(Some(live.finish()))
    }

    /// Whether no row below `row_end` supersedes the row.
    pub(crate) fn is_live(&self, row: u32, row_end: u32) -> Result<bool> {
        let at = self.superseded.partition_point(|(_, first)| *first <= row);
        let Some((block, _)) = at.checked_sub(1).and_then(|at| self.superseded.get(at)) else { return Ok(true) };
        let bytes = self.blocks.read(*block)?;
        let pairs = Pairs::of(&bytes).ok_or_else(|| self.corrupt("a block of superseded rows that ends early"))?;
        let found = pairs.pair(pairs.partition_point(|of| of < row)).filter(|(of, _)| *of == row);
        Ok(found.is_none_or(|(_, by)| by >= row_end))
    }
}

/// Whether the parts fit each other, so that no hash leads outside the fingerprints: three
/// neighbouring segments, the first of them among the counted.
fn is_filter(descriptor: &[u8], fingerprints: usize) -> bool {
    let number = |at| u32_at(descriptor, at).map(u64::from);
    let (Some(length), Some(mask), Some(counted)) = (number(8), number(12), number(16)) else { return false };
    length.is_power_of_two()
        && mask == length - 1
        && counted % length == 0
        && counted + 2 * length <= fingerprints as u64
}

/// A block of entries.
struct Entries {
    bytes: Bytes,
    count: usize,
    /// Where the key bytes begin.
    keys: usize,
}

impl Entries {
    fn of(bytes: Bytes) -> Option<Self> {
        let count = u32_at(&bytes, 0)? as usize;
        let keys = count.checked_mul(8)?.checked_add(4)?;
        (keys <= bytes.len()).then_some(Entries { bytes, count, keys })
    }

    fn row(&self, at: usize) -> Option<u32> {
        (at < self.count).then(|| u32_at(&self.bytes, 4 + 4 * at)).flatten()
    }

    fn key_end(&self, at: usize) -> Option<usize> {
        (at < self.count).then(|| u32_at(&self.bytes, 4 + 4 * (self.count + at))).flatten().map(|end| end as usize)
    }

    fn key(&self, at: usize) -> Option<&[u8]> {
        let start = if at == 0 { 0 } else { self.key_end(at - 1)? };
        self.bytes.get(self.keys.checked_add(start)?..self.keys.checked_add(self.key_end(at)?)?)
    }

    /// How many entries, from the first on, are such.
    fn partition_point(&self, is_before: impl Fn(&[u8], u32) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let before = self.key(middle).zip(self.row(middle)).is_some_and(|(key, row)| is_before(key, row));
            if before { low = middle + 1 } else { high = middle }
        }
        low
    }

    fn within(&self, (lower, upper): Bounds<'_>) -> Range<usize> {
        let start = match lower {
            Bound::Included(key) => self.partition_point(|of, _| of < key),
            Bound::Excluded(key) => self.partition_point(|of, _| of <= key),
            Bound::Unbounded => 0,
        };
        let end = match upper {
            Bound::Included(key) => self.partition_point(|of, _| of <= key),
            Bound::Excluded(key) => self.partition_point(|of, _| of < key),
            Bound::Unbounded => self.count,
        };
        start..end.max(start)
    }
}

/// A block of superseded rows, each with the row that supersedes it.
struct Pairs<'a> {
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Pairs<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let count = u32_at(bytes, 0)? as usize;
        (count.checked_mul(8)?.checked_add(4)? <= bytes.len()).then_some(Pairs { bytes, count })
    }

    fn pair(&self, at: usize) -> Option<(u32, u32)> {
        let at = (at < self.count).then_some(4 + 8 * at)?;
        Some((u32_at(self.bytes, at)?, u32_at(self.bytes, at + 4)?))
    }

    fn partition_point(&self, is_before: impl Fn(u32) -> bool) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.pair(middle).is_some_and(|(row, _)| is_before(row)) { low = middle + 1 } else { high = middle }
        }
        low
    }
}

/// The entries of a range, block by block, from either end.
struct Walk {
    section: Arc<KeySection>,
    bounds: (Bound<Vec<u8>>, Bound<Vec<u8>>),
    reverse: bool,
    /// The blocks not yet opened.
    span: Range<usize>,
    /// Entries of the open block.
    open: VecDeque<(Vec<u8>, u32)>,
    failed: bool,
}

impl Walk {
    fn fill(&mut self) -> Result<()> {
        while self.open.is_empty() && !self.span.is_empty() {
            let at = if self.reverse { self.span.next_back() } else { self.span.next() };
            let Some(block) = at.and_then(|at| self.section.entry_blocks.get(at)) else { return Ok(()) };
            let entries = self.section.entries_of(block.block)?;
            let within =
                entries.within((self.bounds.0.as_ref().map(Vec::as_slice), self.bounds.1.as_ref().map(Vec::as_slice)));
            self.open = within.filter_map(|at| Some((entries.key(at)?.to_vec(), entries.row(at)?))).collect();
        }
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<(Vec<u8>, u32)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        if let Err(error) = self.fill() {
            self.failed = true;
            return Some(Err(error));
        }
        let next = if self.reverse { self.open.pop_back() } else { self.open.pop_front() };
        next.map(Ok)
    }
}

/// Turns the rows of each key round where the walk goes backwards.
struct Versions {
    walk: Walk,
    reverse: bool,
    /// The rows of one key, ascending.
    group: VecDeque<u32>,
    /// The first entry of the next key.
    next: Option<(Vec<u8>, u32)>,
    ended: bool,
}

impl Versions {
    fn gather(&mut self) -> Result<()> {
        let first = match self.next.take() {
            Some(entry) => Some(entry),
            None => self.walk.next().transpose()?,
        };
        let Some((key, row)) = first else {
            self.ended = true;
            return Ok(());
        };
        self.group.push_front(row);
        loop {
            match self.walk.next().transpose()? {
                Some((other, row)) if other == key => self.group.push_front(row),
                other => {
                    self.next = other;
                    return Ok(());
                }
            }
        }
    }
}

impl Iterator for Versions {
    type Item = Result<u32>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.reverse {
            return self.walk.next().map(|entry| entry.map(|(_, row)| row));
        }
        if self.group.is_empty()
            && !self.ended
            && let Err(error) = self.gather()
        {
            self.ended = true;
            return Some(Err(error));
        }
        self.group.pop_front().map(Ok)
    }
}

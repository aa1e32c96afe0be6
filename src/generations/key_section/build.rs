//! Building the section from rows.

use arrow_array::RecordBatch;
use arrow_row::Rows;
use arrow_schema::ArrowError;
use xorf::{BinaryFuse8, DmaSerializable};

use super::{KeyKind, MAGIC, hash_of};
use crate::generations::blocks::Block;
use crate::generations::section::SectionBytes;
use crate::indexes::key::KeyEncoder;

/// The bytes at which a block of entries is full. A lookup reads one.
const BLOCK_BYTES: usize = 16 << 10;
/// The pairs of one block of superseded rows.
const SUPERSEDED_PAIRS: usize = 8192;
/// The bytes of a filter's descriptor.
pub(super) const DESCRIPTOR_BYTES: usize = BinaryFuse8::DESCRIPTOR_LEN;

/// One entry while it is sorted: the first bytes of its key as a number, and its row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    prefix: u64,
    row: u32,
}

/// The keys of rows that are numbered from 0 on.
pub(crate) fn build_keys(
    kind: KeyKind,
    encoder: &KeyEncoder,
    batches: &[RecordBatch],
) -> Result<SectionBytes, ArrowError> {
    let keys = Keys::encode(encoder, batches)?;
    let order = keys.sorted();
    let mut section = SectionBuilder::new(kind);
    for row in order {
        section.push(keys.key(row), row);
    }
    Ok(section.finish())
}

/// The encoded keys of all rows, batch by batch.
struct Keys {
    encoded: Vec<Rows>,
    /// Where each row's batch is, and the row before its first. One lookup for each key that is
    /// asked for, whatever the sizes of batches.
    places: Vec<(u32, u32)>,
}

impl Keys {
    fn encode(encoder: &KeyEncoder, batches: &[RecordBatch]) -> Result<Self, ArrowError> {
        let encoded = batches.iter().map(|batch| encoder.encode_rows(batch)).collect::<Result<Vec<_>, _>>()?;
        let mut places = Vec::with_capacity(batches.iter().map(RecordBatch::num_rows).sum());
        for (batch, rows) in encoded.iter().enumerate() {
            places.extend((0..rows.num_rows()).map(|row| (batch as u32, row as u32)));
        }
        Ok(Keys { encoded, places })
    }

    fn key(&self, row: u32) -> &[u8] {
        let Some((batch, at)) = self.places.get(row as usize) else { return &[] };
        self.encoded.get(*batch as usize).map_or(&[], |rows| rows.row(*at as usize).data())
    }

    /// The rows by (key, row).
    fn sorted(&self) -> impl Iterator<Item = u32> + use<> {
        let mut entries: Vec<Entry> =
            (0..self.places.len() as u32).map(|row| Entry { prefix: prefix_of(self.key(row)), row }).collect();
        // A stable sort finds runs: keys that came in order cost one pass.
        entries.sort_by(|a, b| {
            // Only keys that agree in their first bytes are looked at whole.
            a.prefix.cmp(&b.prefix).then_with(|| self.key(a.row).cmp(self.key(b.row))).then(a.row.cmp(&b.row))
        });
        entries.into_iter().map(|entry| entry.row)
    }
}

/// Eight bytes of the key in their order. The first byte of a key only says that a value follows
/// (or that none does), so it is left as two bits.
fn prefix_of(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let (marker, rest) = key.split_first().map_or((0, key), |(first, rest)| (*first, rest));
    let length = rest.len().min(8);
    if let (Some(into), Some(from)) = (bytes.get_mut(..length), rest.get(..length)) {
        into.copy_from_slice(from);
    }
    let value = u64::from_be_bytes(bytes) >> 2;
    // Markers in use are 0, 1 and 2; another sorts behind them, and whole keys decide.
    u64::from(marker.min(3)) << 62 | value
}

/// Writes a section entry by entry.
pub(super) struct SectionBuilder {
    kind: KeyKind,
    bytes: Vec<u8>,
    blocks: Vec<Vec<u8>>,
    entries: u64,
    /// The block being filled.
    rows: Vec<u32>,
    ends: Vec<u32>,
    keys: Vec<u8>,
    first_key: Vec<u8>,
    last_key: Vec<u8>,
    last: Option<(Vec<u8>, u32)>,
    hashes: Vec<u64>,
    superseded: Vec<(u32, u32)>,
}

impl SectionBuilder {
    pub(super) fn new(kind: KeyKind) -> Self {
        SectionBuilder {
            kind,
            bytes: Vec::new(),
            blocks: Vec::new(),
            entries: 0,
            rows: Vec::new(),
            ends: Vec::new(),
            keys: Vec::new(),
            first_key: Vec::new(),
            last_key: Vec::new(),
            last: None,
            hashes: Vec::new(),
            superseded: Vec::new(),
        }
    }

    /// Entries ascend by (key, row).
    pub(super) fn push(&mut self, key: &[u8], row: u32) {
        if self.kind == KeyKind::PrimaryKey {
            self.note_version(key, row);
        }
        let size = 4 + 8 * (self.rows.len() + 1) + self.keys.len() + key.len();
        if size > BLOCK_BYTES && !self.rows.is_empty() {
            self.end_block();
        }
        if self.rows.is_empty() {
            self.first_key.clear();
            self.first_key.extend_from_slice(key);
        }
        self.rows.push(row);
        self.keys.extend_from_slice(key);
        self.ends.push(self.keys.len() as u32);
    }

    /// Rows of one key follow each other, so the one before is the version it replaces.
    fn note_version(&mut self, key: &[u8], row: u32) {
        match &mut self.last {
            Some((last, version)) if last.as_slice() == key => {
                self.superseded.push((*version, row));
                *version = row;
            }
            Some((last, version)) => {
                last.clear();
                last.extend_from_slice(key);
                *version = row;
                self.hashes.push(hash_of(key));
            }
            None => {
                self.last = Some((key.to_vec(), row));
                self.hashes.push(hash_of(key));
            }
        }
    }

    fn end_block(&mut self) {
        if self.rows.is_empty() {
            return;
        }
        let last = self.ends.len().checked_sub(2).and_then(|at| self.ends.get(at)).map_or(0, |end| *end as usize);
        self.last_key = self.keys.get(last..).unwrap_or_default().to_vec();
        let start = self.bytes.len();
        let numbers =
            [self.rows.len() as u32].into_iter().chain(self.rows.iter().copied()).chain(self.ends.iter().copied());
        numbers.for_each(|number| self.bytes.extend_from_slice(&number.to_le_bytes()));
        self.bytes.extend_from_slice(&self.keys);
        let first_key = std::mem::take(&mut self.first_key);
        let entry = self.block_entry(start, self.entries, Some(&first_key));
        self.blocks.push(entry);
        self.first_key = first_key;
        self.entries += self.rows.len() as u64;
        self.rows.clear();
        self.ends.clear();
        self.keys.clear();
    }

    fn block_entry(&self, start: usize, number: u64, first_key: Option<&[u8]>) -> Vec<u8> {
        let block = Block::of(start as u64, self.bytes.get(start..).unwrap_or_default());
        let mut entry = Vec::with_capacity(28 + first_key.map_or(0, <[u8]>::len));
        entry.extend_from_slice(&block.offset.to_le_bytes());
        entry.extend_from_slice(&block.length.to_le_bytes());
        entry.extend_from_slice(&block.crc.to_le_bytes());
        entry.extend_from_slice(&number.to_le_bytes());
        if let Some(key) = first_key {
            entry.extend_from_slice(&(key.len() as u32).to_le_bytes());
            entry.extend_from_slice(key);
        }
        entry
    }

    fn superseded_blocks(&mut self) -> Vec<Vec<u8>> {
        let mut pairs = std::mem::take(&mut self.superseded);
        pairs.sort_unstable();
        let blocks = pairs.chunks(SUPERSEDED_PAIRS).map(|pairs| {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(&(pairs.len() as u32).to_le_bytes());
            for (row, by) in pairs {
                self.bytes.extend_from_slice(&row.to_le_bytes());
                self.bytes.extend_from_slice(&by.to_le_bytes());
            }
            self.block_entry(start, pairs.first().map_or(0, |(row, _)| u64::from(*row)), None)
        });
        blocks.collect()
    }

    fn filter_block(&mut self) -> Option<Vec<u8>> {
        let mut hashes = std::mem::take(&mut self.hashes);
        // Two keys of one hash are one to the filter, and two of one are what it cannot be built of.
        hashes.sort_unstable();
        hashes.dedup();
        if hashes.is_empty() {
            return None;
        }
        let filter = BinaryFuse8::try_from(hashes.as_slice()).ok()?;
        let start = self.bytes.len();
        let mut descriptor = [0; DESCRIPTOR_BYTES];
        filter.dma_copy_descriptor_to(&mut descriptor);
        self.bytes.extend_from_slice(&descriptor);
        self.bytes.extend_from_slice(filter.dma_fingerprints());
        Some(self.block_entry(start, 0, None))
    }

    pub(super) fn finish(mut self) -> SectionBytes {
        self.end_block();
        let superseded = self.superseded_blocks();
        let filter = self.filter_block();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(MAGIC);
        self.bytes.extend_from_slice(&self.entries.to_le_bytes());
        let counts = [self.blocks.len(), superseded.len(), usize::from(filter.is_some())];
        counts.into_iter().for_each(|count| self.bytes.extend_from_slice(&(count as u32).to_le_bytes()));
        self.bytes.extend_from_slice(&(self.last_key.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&self.last_key);
        let entries = self.blocks.iter().chain(&superseded).chain(&filter);
        for entry in entries {
            self.bytes.extend_from_slice(entry);
        }
        let root = Block::of(start as u64, self.bytes.get(start..).unwrap_or_default());
        SectionBytes { bytes: self.bytes, root }
    }
}

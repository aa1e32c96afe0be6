//! The primary-key index: the newest version of a key below a watermark, and which rows a newer
//! one has superseded.
//!
//! A map takes a key to its newest row. Per row there are two words: the row of the same key
//! before it, and the row that superseded it. A lookup starts at the newest and walks back until
//! it is below the watermark, so an overwritten key costs two words and no reader ever waits.
//! Keys are compared whole; no hash decides.
//!
//! # Why readers may go on while the writer writes
//!
//! For each row the writer first links it to its predecessor (`previous`), then marks the
//! predecessor (`superseded_by`), then moves the map's entry; and only when the rows of the put
//! are in every index does the shard's watermark rise past them. A reader with watermark `w` uses
//! nothing at or above `w`: from the map it walks back to below `w` over links that were written
//! before the entry it started from (the map's shard lock orders the two), and it takes a mark at
//! or above `w` for none. What lies below `w` was complete before `w` was published.

use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use arrow_row::Rows;
use arrow_schema::{DataType, SchemaRef};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::ids::{Seq, SeqRange};
use crate::indexes::key::{INLINE_BYTES, KeyBytes, KeyEncoder};
use crate::indexes::{IndexError, IndexWriter};
use crate::memtable::slots::{CHUNK_SLOTS, Slots};

/// Rows per mark of "something here is superseded".
const BLOCK_ROWS: usize = 1024;

/// A row's neighbours in the chain of its key's versions, each as `Seq + 1`; 0 is none.
///
/// Pairs: `Release` where the writer stores, `Acquire` where readers load.
#[derive(Debug, Default)]
struct Links {
    previous: AtomicU64,
    superseded_by: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    first: Seq,
    encoder: KeyEncoder,
    newest: KeyMap,
    links: Slots<Links>,
    /// Superseded rows per block. A shard that only appends reads one zero per block.
    superseded: Slots<AtomicU32>,
}

/// Encoded keys to their newest row.
#[derive(Debug)]
enum KeyMap {
    /// Keys of one fixed-width column of up to eight bytes: the encoding is a marker byte that is
    /// the same for all, and the value.
    Short(DashMap<u64, u64, ahash::RandomState>),
    /// All other keys.
    Long(DashMap<KeyBytes, u64, ahash::RandomState>),
}

impl KeyMap {
    fn for_types(types: &[DataType]) -> Self {
        if is_short(types) { KeyMap::Short(sharded()) } else { KeyMap::Long(sharded()) }
    }

    /// Makes the row the newest of its key. `link` is told which row was, if one was, before any
    /// reader can find the new one.
    fn replace(&self, key: &[u8], seq: u64, link: impl FnOnce(u64)) -> Replaced {
        match self {
            KeyMap::Short(map) => replace(map.entry(short(key)), seq, link),
            KeyMap::Long(map) => replace(map.entry(KeyBytes::from_slice(key)), seq, link),
        }
    }

    fn get(&self, key: &[u8]) -> Option<u64> {
        match self {
            KeyMap::Short(map) => map.get(&short(key)).map(|seq| *seq),
            KeyMap::Long(map) => map.get(key).map(|seq| *seq),
        }
    }

    fn bytes(&self) -> u64 {
        let slots = match self {
            KeyMap::Short(map) => map.capacity() * SHORT_SLOT_BYTES,
            KeyMap::Long(map) => map.capacity() * LONG_SLOT_BYTES,
        };
        slots as u64
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Replaced {
    NewKey,
    OlderRow,
}

fn is_short(types: &[DataType]) -> bool {
    matches!(types, [only] if only.primitive_width().is_some_and(|width| width <= 8))
}

/// A shard doubles all at once, under the one put that fills it. With this many, doubling a
/// shard of a map of a million keys takes some tens of microseconds.
const SHARDS: usize = 128;

fn sharded<K: Eq + Hash>() -> DashMap<K, u64, ahash::RandomState> {
    // Room for a few entries in each from the start: the first steps of growth are the steepest,
    // and would make a small map's share of a key's price too large for an estimate.
    let capacity = SHARDS * FIRST_SHARD_SLOTS;
    DashMap::with_capacity_and_hasher_and_shard_amount(capacity, ahash::RandomState::default(), SHARDS)
}

const FIRST_SHARD_SLOTS: usize = 7;

/// What an empty map takes.
const EMPTY_MAP_BYTES: u64 = (SHARDS * (FIRST_SHARD_SLOTS + 1) * LONG_SLOT_BYTES) as u64;

/// The entry is locked meanwhile, so the map must not be touched by `link`.
fn replace<K: Eq + Hash>(entry: Entry<'_, K, u64>, seq: u64, link: impl FnOnce(u64)) -> Replaced {
    match entry {
        Entry::Occupied(mut entry) => {
            link(*entry.get());
            entry.insert(seq);
            Replaced::OlderRow
        }
        Entry::Vacant(entry) => {
            entry.insert(seq);
            Replaced::NewKey
        }
    }
}

/// A slot of the map: key, row, and the map's own byte, with the empty eighth it keeps.
const SHORT_SLOT_BYTES: usize = ((size_of::<(u64, u64)>() + 1) * 8).div_ceil(7);
const LONG_SLOT_BYTES: usize = ((size_of::<(KeyBytes, u64)>() + 1) * 8).div_ceil(7);
/// What the allocator adds to a key that does not fit in place.
const SPILL_BYTES: u64 = 16;

/// The value behind the marker byte, at most eight bytes.
fn short(key: &[u8]) -> u64 {
    key.iter().skip(1).fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// The write half: there is one.
#[derive(Debug)]
pub(crate) struct PrimaryKeyWriter {
    shared: Arc<Shared>,
    /// Bytes of keys too long to lie in the map itself.
    spilled_bytes: u64,
}

/// The read half.
#[derive(Clone, Debug)]
pub(crate) struct PrimaryKeyReader(Arc<Shared>);

/// An empty index over these columns of the schema, for rows from `first` on.
pub(crate) fn new(
    schema: &SchemaRef,
    columns: &[usize],
    first: Seq,
) -> Result<(PrimaryKeyWriter, PrimaryKeyReader), IndexError> {
    let encoder = KeyEncoder::new(schema, columns).map_err(|error| IndexError::new(NAME, first, error.to_string()))?;
    let newest = KeyMap::for_types(encoder.types());
    let shared = Arc::new(Shared { first, encoder, newest, links: Slots::default(), superseded: Slots::default() });
    Ok((PrimaryKeyWriter { shared: Arc::clone(&shared), spilled_bytes: 0 }, PrimaryKeyReader(shared)))
}

const NAME: &str = "the primary key";

/// What an empty index takes, and what its lists take ahead of the rows in them: at most this
/// much beyond the estimates of the rows put into it.
pub(crate) const EMPTY_BYTES: u64 =
    EMPTY_MAP_BYTES + 2 * (CHUNK_SLOTS * (size_of::<Links>() + size_of::<AtomicU32>())) as u64;

/// What indexing so many rows with so many bytes of encoded keys adds at most to
/// [`PrimaryKeyWriter::bytes`], beside [`EMPTY_BYTES`]. A shard of the map that has just doubled
/// holds its entries in 16/7 times the slots, 2 of them as capacity; while it doubles, the old
/// half is there too, of this one shard.
pub(crate) fn bytes_estimate(rows: u64, key_bytes: u64, types: &[DataType]) -> u64 {
    let slot = if is_short(types) { SHORT_SLOT_BYTES } else { LONG_SLOT_BYTES } as u64;
    let entry = 2 * slot + Slots::<Links>::bytes_per_slot() + 1;
    let spilled = match types.iter().map(|of| of.primitive_width()).sum::<Option<usize>>() {
        Some(width) if width + types.len() <= INLINE_BYTES => 0,
        // However the bytes are spread over the keys, so many can be too long for their place.
        _ => key_bytes + rows.min(key_bytes / (INLINE_BYTES as u64 + 1)) * SPILL_BYTES,
    };
    rows * entry + spilled
}

impl PrimaryKeyWriter {
    fn insert_all(&mut self, first: Seq, keys: &Rows) -> Option<()> {
        let shared = &*self.shared;
        let at = first.index_from(shared.first);
        for ((row, key), seq) in keys.iter().enumerate().zip(first.get()..) {
            let key = key.data();
            let links = shared.links.get_or_grow(at + row)?;
            let link = |previous: u64| {
                links.previous.store(previous + 1, Ordering::Release);
                let before = Seq::new(previous).index_from(shared.first);
                // A row that is in the map has its links, and its block a mark.
                if let (Some(older), Some(block)) =
                    (shared.links.get(before), shared.superseded.get_or_grow(before / BLOCK_ROWS))
                {
                    older.superseded_by.store(seq + 1, Ordering::Release);
                    block.fetch_add(1, Ordering::Release);
                }
            };
            let replaced = shared.newest.replace(key, seq, link);
            if replaced == Replaced::NewKey && key.len() > INLINE_BYTES {
                self.spilled_bytes += key.len() as u64 + SPILL_BYTES;
            }
        }
        // So that a reader of any block finds a mark.
        shared.superseded.get_or_grow((at + keys.num_rows()) / BLOCK_ROWS)?;
        Some(())
    }
}

impl IndexWriter for PrimaryKeyWriter {
    fn name(&self) -> &str {
        NAME
    }

    fn apply(&mut self, first: Seq, batch: &RecordBatch) -> Result<(), IndexError> {
        let failed = |reason: String| IndexError::new(NAME, first, reason);
        let keys = self.shared.encoder.encode_rows(batch).map_err(|error| failed(error.to_string()))?;
        self.insert_all(first, &keys).ok_or_else(|| failed("no room is left in the index".to_owned()))
    }

    fn bytes(&self) -> u64 {
        let shared = &self.shared;
        shared.newest.bytes() + shared.links.bytes() + shared.superseded.bytes() + self.spilled_bytes
    }
}

impl PrimaryKeyReader {
    /// How keys are encoded.
    pub(crate) fn encoder(&self) -> &KeyEncoder {
        &self.0.encoder
    }

    /// The newest row with this key below the watermark.
    pub(crate) fn newest(&self, key: &[u8], watermark: Seq) -> Option<Seq> {
        let mut seq = Seq::new(self.0.newest.get(key)?);
        while seq >= watermark {
            let links = self.0.links.get(seq.index_from(self.0.first))?;
            seq = Seq::new(links.previous.load(Ordering::Acquire).checked_sub(1)?);
        }
        Some(seq)
    }

    /// Whether no row below the watermark has superseded this one.
    pub(crate) fn is_live(&self, seq: Seq, watermark: Seq) -> bool {
        let Some(links) = self.0.links.get(seq.index_from(self.0.first)) else { return true };
        match links.superseded_by.load(Ordering::Acquire).checked_sub(1) {
            None => true,
            Some(by) => Seq::new(by) >= watermark,
        }
    }

    /// Which rows of the range are live; `None` means all.
    pub(crate) fn live(&self, range: SeqRange, watermark: Seq) -> Option<BooleanBuffer> {
        if range.is_empty() {
            return None;
        }
        let from = range.first().index_from(self.0.first) / BLOCK_ROWS;
        let to = (range.end().index_from(self.0.first) - 1) / BLOCK_ROWS;
        let marked = |block| self.0.superseded.get(block).is_some_and(|count| count.load(Ordering::Acquire) > 0);
        (from..=to).any(marked).then(|| {
            BooleanBuffer::collect_bool(range.rows() as usize, |at| {
                self.is_live(range.first().plus(at as u64), watermark)
            })
        })
    }
}

#[cfg(test)]
mod tests;

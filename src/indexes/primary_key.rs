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

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use arrow_row::Rows;
use arrow_schema::{DataType, SchemaRef};
use dashmap::DashMap;

use crate::ids::{Seq, SeqRange};
use crate::indexes::key::{KeyBytes, KeyEncoder};
use crate::indexes::{IndexError, IndexWriter};
use crate::memtable::slots::Slots;

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
        let short = matches!(types, [only] if only.primitive_width().is_some_and(|width| width <= 8));
        if short { KeyMap::Short(DashMap::default()) } else { KeyMap::Long(DashMap::default()) }
    }

    /// Puts the row in; gives the one that was there.
    fn insert(&self, key: &[u8], seq: u64) -> Option<u64> {
        match self {
            KeyMap::Short(map) => map.insert(short(key), seq),
            KeyMap::Long(map) => map.insert(KeyBytes::from_slice(key), seq),
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

/// A slot of the map: key, row, and the map's own byte, with the empty eighth it keeps.
const SHORT_SLOT_BYTES: usize = (size_of::<(u64, u64)>() + 1) * 8 / 7;
const LONG_SLOT_BYTES: usize = (size_of::<(KeyBytes, u64)>() + 1) * 8 / 7;

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

/// What indexing so many rows with so many bytes of encoded keys adds at most to
/// [`PrimaryKeyWriter::bytes`]: a map that has just doubled is half empty, and so are the
/// newest buckets of the links.
pub(crate) fn bytes_estimate(rows: u64, key_bytes: u64, types: &[DataType]) -> u64 {
    let slot = match KeyMap::for_types(types) {
        KeyMap::Short(_) => SHORT_SLOT_BYTES,
        KeyMap::Long(_) => LONG_SLOT_BYTES,
    };
    let spilled = if key_bytes > rows * 24 { key_bytes + rows * 16 } else { 0 };
    rows * (5 * slot as u64 / 2 + 2 * size_of::<Links>() as u64 + 1) + spilled
}

impl PrimaryKeyWriter {
    fn insert_all(&mut self, first: Seq, keys: &Rows) -> Option<()> {
        let shared = &*self.shared;
        let at = first.index_from(shared.first);
        for (row, key) in keys.iter().enumerate() {
            let key = key.as_ref();
            let index = at + row;
            let seq = first.get() + row as u64;
            let links = shared.links.get_or_grow(index)?;
            // The newest row is the only one another can be put in front of, and there is one writer:
            // reading before inserting sees what the insert will replace.
            match shared.newest.get(key) {
                None => {
                    if key.len() > 24 {
                        self.spilled_bytes += key.len() as u64 + 16;
                    }
                }
                Some(previous) => {
                    links.previous.store(previous + 1, Ordering::Release);
                    let before = Seq::new(previous).index_from(shared.first);
                    shared.links.get(before)?.superseded_by.store(seq + 1, Ordering::Release);
                    shared.superseded.get_or_grow(before / BLOCK_ROWS)?.fetch_add(1, Ordering::Release);
                }
            }
            shared.newest.insert(key, seq);
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

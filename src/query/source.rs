//! What a query reads from: the memtables of a view, newest first, each bounded by a watermark.
//!
//! Everything that finds rows goes through [`Source`], so that what is frozen to the store is
//! read by the same code as what is in memory.

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::interleave::interleave;
use std::collections::HashMap;
use std::ops::Bound;
use std::sync::Arc;

use super::bind::Predicate;
use crate::ids::{Seq, SeqRange};
use crate::indexes::key::{KeyBounds, KeyEncoder};
use crate::memtable::{MemtableReader, RowWindow};

/// A run of rows with their indexes. Rows are in storage form; every answer is about rows below
/// the watermark given.
pub(crate) trait Source: Send + Sync {
    /// The `Seq` of its first row.
    fn first(&self) -> Seq;
    /// Whether it answers without reading the store.
    fn is_in_memory(&self) -> bool;
    /// The parts of the range that may hold a row for which the filter is true, in order.
    fn matching(&self, range: SeqRange, _filter: &Predicate) -> Vec<SeqRange> {
        vec![range]
    }
    /// The rows of the range, in order.
    fn windows(&self, range: SeqRange) -> Result<Vec<RowWindow>, ArrowError>;
    /// One row.
    fn row(&self, seq: Seq) -> Result<Option<RecordBatch>, ArrowError>;
    /// These columns of these rows, in the order given.
    fn take(&self, seqs: &[Seq], columns: &[usize]) -> Result<RecordBatch, ArrowError>;
    /// How primary keys are encoded, where there are any.
    fn key_encoder(&self) -> Option<&KeyEncoder>;
    /// The newest row of a key.
    fn newest(&self, key: &[u8], watermark: Seq) -> Result<Option<Seq>, ArrowError>;
    /// Which of the keys have a row.
    fn contained(&self, keys: &[&[u8]], watermark: Seq) -> Result<Vec<bool>, ArrowError> {
        keys.iter().map(|key| Ok(self.newest(key, watermark)?.is_some())).collect()
    }
    /// Whether this source holds no newer row of the row's key.
    fn is_live(&self, seq: Seq, watermark: Seq) -> Result<bool, ArrowError>;
    /// [`Source::is_live`] for a range; `None` where all are.
    fn live(&self, range: SeqRange, watermark: Seq) -> Result<Option<BooleanBuffer>, ArrowError>;
    /// How the keys of the index at this place in the spec are encoded.
    fn index_encoder(&self, index: usize) -> Option<&KeyEncoder>;
    /// The rows whose index keys lie in the bounds, by `Seq`.
    fn index_range(&self, index: usize, bounds: &KeyBounds, watermark: Seq) -> Result<Vec<Seq>, ArrowError>;
    /// About how many [`Source::index_range`] gives.
    fn index_estimate(&self, index: usize, bounds: &KeyBounds) -> u64;
    /// The same rows by ascending or descending index key; rows of one key by ascending `Seq`.
    fn index_ordered(&self, index: usize, bounds: &KeyBounds, reverse: bool, watermark: Seq) -> OrderedRows;
}

/// Rows as an index gives them, one at a time.
pub(crate) type OrderedRows = Box<dyn Iterator<Item = Result<Seq, ArrowError>> + Send>;

pub(crate) fn as_slices((lower, upper): &KeyBounds) -> (Bound<&[u8]>, Bound<&[u8]>) {
    (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice))
}

impl Source for MemtableReader {
    fn first(&self) -> Seq {
        MemtableReader::first(self)
    }

    fn is_in_memory(&self) -> bool {
        true
    }

    fn windows(&self, range: SeqRange) -> Result<Vec<RowWindow>, ArrowError> {
        Ok(self.rows().batches(range).collect())
    }

    fn row(&self, seq: Seq) -> Result<Option<RecordBatch>, ArrowError> {
        Ok(self.rows().row(seq))
    }

    fn take(&self, seqs: &[Seq], columns: &[usize]) -> Result<RecordBatch, ArrowError> {
        self.rows().take(seqs, Some(columns))
    }

    fn key_encoder(&self) -> Option<&KeyEncoder> {
        self.primary_key().map(|keys| keys.encoder())
    }

    fn newest(&self, key: &[u8], watermark: Seq) -> Result<Option<Seq>, ArrowError> {
        Ok(self.primary_key().and_then(|keys| keys.newest(key, watermark)))
    }

    fn is_live(&self, seq: Seq, watermark: Seq) -> Result<bool, ArrowError> {
        Ok(self.primary_key().is_none_or(|keys| keys.is_live(seq, watermark)))
    }

    fn live(&self, range: SeqRange, watermark: Seq) -> Result<Option<BooleanBuffer>, ArrowError> {
        Ok(self.primary_key().and_then(|keys| keys.live(range, watermark)))
    }

    fn index_encoder(&self, index: usize) -> Option<&KeyEncoder> {
        self.btree(index).map(|index| index.encoder())
    }

    fn index_range(&self, index: usize, bounds: &KeyBounds, watermark: Seq) -> Result<Vec<Seq>, ArrowError> {
        let (lower, upper) = as_slices(bounds);
        Ok(self.btree(index).map(|index| index.tree().range(lower, upper, watermark)).unwrap_or_default())
    }

    fn index_estimate(&self, index: usize, bounds: &KeyBounds) -> u64 {
        let (lower, upper) = as_slices(bounds);
        self.btree(index).map_or(u64::MAX, |index| index.tree().estimate(lower, upper))
    }

    fn index_ordered(&self, index: usize, bounds: &KeyBounds, reverse: bool, watermark: Seq) -> OrderedRows {
        let (lower, upper) = as_slices(bounds);
        match self.btree(index) {
            Some(index) => Box::new(index.tree().ordered(lower, upper, reverse, watermark).map(Ok)),
            None => Box::new(std::iter::empty()),
        }
    }
}

/// The sources of a shard at one moment. It never changes (V3).
pub(crate) struct View {
    /// Newest first; their ranges tile the shard.
    sources: Vec<Arc<dyn Source>>,
}

/// A source and the rows of it that lie below a snapshot's `Seq`.
#[derive(Clone)]
pub(crate) struct Bounded {
    pub(crate) source: Arc<dyn Source>,
    pub(crate) range: SeqRange,
}

impl View {
    /// Of sources whose ranges tile the shard, newest first.
    pub(crate) fn of(sources: Vec<Arc<dyn Source>>) -> Self {
        View { sources }
    }

    /// Of memtables, newest first.
    #[cfg(test)]
    pub(crate) fn of_memtables(memtables: Vec<MemtableReader>) -> Self {
        View { sources: memtables.into_iter().map(|memtable| Arc::new(memtable) as _).collect() }
    }

    /// The same with one more source, newer than all.
    pub(crate) fn with_newer(&self, source: Arc<dyn Source>) -> Self {
        let sources = std::iter::once(source).chain(self.sources.iter().cloned()).collect();
        View { sources }
    }

    /// The same with another source in the place of the one that begins at the same row: one step
    /// takes both turns, so a query finds one of them and never both or neither. Gives what left.
    pub(crate) fn replacing(&self, source: Arc<dyn Source>) -> Option<(Self, Arc<dyn Source>)> {
        let at = self.sources.iter().position(|held| held.first() == source.first() && held.is_in_memory())?;
        let mut sources = self.sources.clone();
        let left = std::mem::replace(sources.get_mut(at)?, source);
        Some((View { sources }, left))
    }

    /// The oldest `Seq` a snapshot can be taken at: every version of a row since is held.
    pub(crate) fn oldest_snapshot(&self) -> Seq {
        self.sources.last().map(|source| source.first()).unwrap_or_default()
    }

    /// The sources with rows below `seq`, newest first.
    pub(crate) fn below(&self, seq: Seq) -> Vec<Bounded> {
        let mut end = seq;
        let mut bounded = Vec::with_capacity(self.sources.len());
        for source in &self.sources {
            let range = SeqRange::between(source.first(), end);
            if !range.is_empty() {
                end = range.first();
                bounded.push(Bounded { source: Arc::clone(source), range });
            }
        }
        bounded
    }
}

/// A row: its source among those of the query, and its `Seq`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) source: usize,
    pub(crate) seq: Seq,
}

/// These columns of these rows, in the order given, whatever sources they lie in.
pub(crate) fn fetch(
    sources: &[Bounded],
    places: &[Place],
    columns: &[usize],
    schema: &SchemaRef,
) -> Result<RecordBatch, ArrowError> {
    let mut by_source: Vec<Vec<Seq>> = vec![Vec::new(); sources.len()];
    let mut positions = Vec::with_capacity(places.len());
    for place in places {
        if let Some(seqs) = by_source.get_mut(place.source) {
            positions.push((place.source, seqs.len()));
            seqs.push(place.seq);
        }
    }
    let mut parts = Vec::new();
    let mut part_of = HashMap::new();
    for (at, (bounded, seqs)) in sources.iter().zip(&by_source).enumerate() {
        if !seqs.is_empty() {
            part_of.insert(at, parts.len());
            parts.push(bounded.source.take(seqs, columns)?);
        }
    }
    let [only] = parts.as_slice() else {
        let positions: Vec<_> =
            positions.iter().filter_map(|(source, at)| Some((*part_of.get(source)?, *at))).collect();
        let gathered = (0..columns.len()).map(|column| {
            let arrays: Vec<_> = parts.iter().map(|part| part.column(column).as_ref()).collect();
            match arrays.is_empty() {
                true => Ok(arrow_array::new_empty_array(schema.field(column).data_type())),
                false => interleave(&arrays, &positions),
            }
        });
        return batch(schema, gathered.collect::<Result<Vec<_>, _>>()?, places.len());
    };
    batch(schema, only.columns().to_vec(), places.len())
}

/// A batch whose schema may have no columns.
pub(crate) fn batch(schema: &SchemaRef, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch, ArrowError> {
    let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
}

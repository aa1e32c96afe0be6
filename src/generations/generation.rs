//! An open generation: rows and indexes that are read from the store as queries need them.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use arrow_schema::ArrowError;

use super::blocks::{BlockFile, Blocks, FileAccess};
use super::keys::{Indexes, KeyIndex};
use super::meta::GenerationMeta;
use super::rows_file::RowsFile;
use super::section::{SectionHandle, sections};
use super::seeds::ZONE_ROWS;
use crate::error::{Error, Result};
use crate::ids::{Seq, SeqRange};
use crate::indexes::key::{KeyBounds, KeyEncoder};
use crate::memtable::RowWindow;
use crate::query::{OrderedRows, Predicate, Source, as_slices};
use crate::spec::ValidatedSpec;

/// One generation. Its files stay open for as long as it lives.
#[derive(Debug)]
pub(crate) struct Generation {
    range: SeqRange,
    rows: Arc<RowsFile>,
    primary_key: Option<SectionHandle<KeyIndex>>,
    /// In the order of the spec's indexes.
    ordered: Vec<Arc<SectionHandle<KeyIndex>>>,
    access: FileAccess,
}

impl Generation {
    /// Opens it, reading the end part of each of its files. Blocks the thread.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a format this release does not read; [`Error::Corrupt`] and
    /// [`Error::Io`] for rows that cannot be read. Indexes that cannot be are built again when
    /// they are asked.
    pub(crate) fn open(
        meta: &GenerationMeta,
        spec: &ValidatedSpec,
        indexes: &Indexes,
        access: &FileAccess,
    ) -> Result<Self> {
        let root = &access.store.root;
        let range = meta.range();
        if let Some(found) = meta.unreadable() {
            let subject = format!("generation `{}`", meta.folder);
            return Err(Error::invalid(subject, found, "a format this release reads; open the shard with a newer one"));
        }
        if u32::try_from(range.rows()).is_err() {
            let found = format!("a generation of rows {range}");
            return Err(Error::corrupt(meta.rows_path(root), found, "at most 2^32 rows"));
        }
        let file = Arc::new(BlockFile::new(meta.rows_path(root), access));
        let tail = file.read(meta.rows.tail())?;
        let rows = Arc::new(RowsFile::open(file, spec.storage_schema(), range.rows(), &tail)?);
        access.stats.seeds_unusable.fetch_add(rows.seeds.damaged() as u64, Ordering::Relaxed);
        let file = Arc::new(BlockFile::new(meta.indexes_path(root), access));
        let entries = match file.read(meta.indexes.tail()).and_then(|tail| sections(file.object(), &tail)) {
            Ok(entries) => entries,
            Err(error @ Error::Closed) => return Err(error),
            Err(error) => {
                tracing::warn!(object = file.object(), %error, "the indexes of a generation cannot be read");
                Vec::new()
            }
        };
        let handle =
            |index: &Arc<KeyIndex>| SectionHandle::new(Arc::clone(index), &file, &entries, &rows, range.rows());
        let primary_key = indexes.primary_key.as_ref().map(handle);
        let ordered = indexes.ordered.iter().map(|index| Arc::new(handle(index))).collect();
        Ok(Generation { range, rows, primary_key, ordered, access: access.clone() })
    }

    fn row_of(&self, seq: Seq) -> u64 {
        seq.offset_from(self.range.first())
    }

    /// The rows below a watermark. A generation has fewer than 2^32, which `open` checks.
    fn row_end(&self, watermark: Seq) -> u32 {
        u32::try_from(self.row_of(watermark.min(self.range.end()))).unwrap_or(u32::MAX)
    }

    fn seq_of(&self, row: u32) -> Seq {
        self.range.first().plus(row.into())
    }
}

impl Source for Generation {
    fn first(&self) -> Seq {
        self.range.first()
    }

    fn is_in_memory(&self) -> bool {
        false
    }

    fn matching(&self, range: SeqRange, filter: &Predicate) -> Vec<SeqRange> {
        let zones = self.rows.seeds.zones(filter);
        let mut kept: Vec<SeqRange> = Vec::new();
        let mut pruned = 0;
        for (zone, may_match) in zones.into_iter().enumerate() {
            let first = self.range.first().plus((zone * ZONE_ROWS) as u64);
            let part = SeqRange::starting_at(first, ZONE_ROWS as u64).intersect(range);
            match kept.last_mut() {
                _ if part.is_empty() => {}
                _ if !may_match => pruned += 1,
                Some(last) if last.end() == part.first() => *last = SeqRange::between(last.first(), part.end()),
                _ => kept.push(part),
            }
        }
        self.access.stats.zones_pruned.fetch_add(pruned, Ordering::Relaxed);
        kept
    }

    fn windows(&self, range: SeqRange) -> Result<Vec<RowWindow>, ArrowError> {
        let range = range.intersect(self.range);
        let batches = self.rows.batches(self.row_of(range.first()), self.row_of(range.end()))?;
        let windows = batches.into_iter().map(|(row, batch)| {
            let held = SeqRange::starting_at(self.range.first().plus(row), batch.num_rows() as u64);
            let wanted = held.intersect(range);
            let offset = wanted.first().index_from(held.first());
            RowWindow { first: wanted.first(), batch: batch.slice(offset, wanted.rows() as usize) }
        });
        Ok(windows.collect())
    }

    fn row(&self, seq: Seq) -> Result<Option<RecordBatch>, ArrowError> {
        if !self.range.contains(seq) {
            return Ok(None);
        }
        Ok(self.rows.row(self.row_of(seq))?)
    }

    fn take(&self, seqs: &[Seq], columns: &[usize]) -> Result<RecordBatch, ArrowError> {
        let rows: Vec<u64> = seqs.iter().map(|seq| self.row_of(*seq)).collect();
        self.rows.take(&rows, columns)
    }

    fn key_encoder(&self) -> Option<&KeyEncoder> {
        self.primary_key.as_ref().map(|handle| &handle.kind.encoder)
    }

    fn newest(&self, key: &[u8], watermark: Seq) -> Result<Option<Seq>, ArrowError> {
        let Some(handle) = &self.primary_key else { return Ok(None) };
        let row = handle.ask(|section| section.newest(key, self.row_end(watermark)))?;
        Ok(row.map(|row| self.seq_of(row)))
    }

    fn contained(&self, keys: &[&[u8]], watermark: Seq) -> Result<Vec<bool>, ArrowError> {
        let Some(handle) = &self.primary_key else { return Ok(vec![false; keys.len()]) };
        Ok(handle.ask(|section| section.contained(keys, self.row_end(watermark)))?)
    }

    fn is_live(&self, seq: Seq, watermark: Seq) -> Result<bool, ArrowError> {
        let Some(handle) = &self.primary_key else { return Ok(true) };
        let row = u32::try_from(self.row_of(seq)).unwrap_or(u32::MAX);
        Ok(handle.ask(|section| section.is_live(row, self.row_end(watermark)))?)
    }

    fn live(&self, range: SeqRange, watermark: Seq) -> Result<Option<BooleanBuffer>, ArrowError> {
        let Some(handle) = &self.primary_key else { return Ok(None) };
        let rows = self.row_end(range.first())..self.row_end(range.end());
        Ok(handle.ask(|section| section.live(rows.clone(), self.row_end(watermark)))?)
    }

    fn index_encoder(&self, index: usize) -> Option<&KeyEncoder> {
        self.ordered.get(index).map(|handle| &handle.kind.encoder)
    }

    fn index_range(&self, index: usize, bounds: &KeyBounds, watermark: Seq) -> Result<Vec<Seq>, ArrowError> {
        let Some(handle) = self.ordered.get(index) else { return Ok(Vec::new()) };
        let rows = handle.ask(|section| section.range(as_slices(bounds), self.row_end(watermark)))?;
        Ok(rows.into_iter().map(|row| self.seq_of(row)).collect())
    }

    fn index_estimate(&self, index: usize, bounds: &KeyBounds) -> u64 {
        let estimate =
            |handle: &Arc<SectionHandle<KeyIndex>>| handle.ask(|section| Ok(section.estimate(as_slices(bounds))));
        // An index that cannot be asked is not chosen.
        self.ordered.get(index).map(estimate).and_then(Result::ok).unwrap_or(u64::MAX)
    }

    fn index_ordered(&self, index: usize, bounds: &KeyBounds, reverse: bool, watermark: Seq) -> OrderedRows {
        let Some(handle) = self.ordered.get(index) else { return Box::new(std::iter::empty()) };
        let (first, row_end) = (self.range.first(), self.row_end(watermark));
        let (lower, upper): (Bound<Vec<u8>>, Bound<Vec<u8>>) = bounds.clone();
        let ordered = handle.ask(|section| Ok(section.ordered((lower.clone(), upper.clone()), reverse, row_end)));
        match ordered {
            Ok(rows) => Box::new(rows.map(move |row| Ok(first.plus(row?.into())))),
            Err(error) => Box::new(std::iter::once(Err(error.into()))),
        }
    }
}

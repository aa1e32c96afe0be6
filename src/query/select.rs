//! Which rows of a piece are in the result (Q1).
//!
//! A row is, if it is the newest of its key below the snapshot's `Seq` across all sources, passes the
//! filter, and is no tombstone. Each of these is decided from the row's own place and values, so the cheap
//! ones may come first; none of them is decided from what an earlier one let through.

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, UInt64Array};
use arrow_buffer::{BooleanBuffer, BooleanBufferBuilder};
use arrow_schema::ArrowError;
use arrow_select::filter::filter;

use super::bind::Predicate;
use super::source::Bounded;
use crate::ids::{Seq, SeqRange};

/// The rows of a piece: neighbours, or any rows of one source.
#[derive(Clone, Debug)]
pub(crate) enum Seqs {
    Range(SeqRange),
    List(Vec<Seq>),
}

impl Seqs {
    pub(crate) fn to_array(&self) -> UInt64Array {
        match self {
            Seqs::Range(range) => (range.first().get()..range.end().get()).collect::<Vec<_>>().into(),
            Seqs::List(seqs) => seqs.iter().map(|seq| seq.get()).collect::<Vec<_>>().into(),
        }
    }
}

/// Rows of one source, with the columns the query needs.
pub(crate) struct Piece {
    pub(crate) source: usize,
    pub(crate) seqs: Seqs,
    pub(crate) batch: RecordBatch,
}

/// The rule, with columns as positions in a piece.
pub(crate) struct Selection {
    /// The snapshot's `Seq`.
    pub(crate) watermark: Seq,
    pub(crate) filter: Option<Predicate>,
    /// Where the shard has a primary key.
    pub(crate) keys: Option<KeyColumns>,
}

pub(crate) struct KeyColumns {
    pub(crate) tombstone: usize,
    pub(crate) columns: Vec<usize>,
}

impl Selection {
    /// The rows of the piece that are in the result; `None` for all of them.
    pub(crate) fn select(&self, sources: &[Bounded], piece: &Piece) -> Result<Option<BooleanBuffer>, ArrowError> {
        let mut mask: Option<BooleanBuffer> = None;
        let mut keep = |more: BooleanBuffer| mask = Some(mask.take().map_or(more.clone(), |mask| &mask & &more));
        if let Some(keys) = &self.keys {
            let tombstones = piece.batch.column(keys.tombstone).as_boolean();
            if tombstones.true_count() > 0 {
                keep(!tombstones.values());
            }
            if let Some(live) = self.live(sources, piece)? {
                keep(live);
            }
        }
        if let Some(filter) = &self.filter {
            keep(filter.evaluate(&piece.batch)?.passes());
        }
        match &self.keys {
            Some(keys) if piece.source > 0 => self.without_hidden(sources, piece, keys, mask),
            _ => Ok(mask),
        }
    }

    /// The rows no newer row of the same source supersedes.
    fn live(&self, sources: &[Bounded], piece: &Piece) -> Result<Option<BooleanBuffer>, ArrowError> {
        let Some(Bounded { source, .. }) = sources.get(piece.source) else { return Ok(None) };
        match &piece.seqs {
            Seqs::Range(range) => source.live(*range, self.watermark),
            Seqs::List(seqs) => {
                let live: Result<Vec<bool>, _> = seqs.iter().map(|seq| source.is_live(*seq, self.watermark)).collect();
                Ok(Some(live?.into()))
            }
        }
    }

    /// Takes out the rows whose key has a row in a newer source.
    fn without_hidden(
        &self,
        sources: &[Bounded],
        piece: &Piece,
        keys: &KeyColumns,
        mask: Option<BooleanBuffer>,
    ) -> Result<Option<BooleanBuffer>, ArrowError> {
        let newer = sources.get(..piece.source).unwrap_or_default();
        let Some(encoder) = newer.first().and_then(|bounded| bounded.source.key_encoder()) else { return Ok(mask) };
        let rows = piece.batch.num_rows();
        let mask = mask.unwrap_or_else(|| BooleanBuffer::new_set(rows));
        if mask.count_set_bits() == 0 {
            return Ok(Some(mask));
        }
        // Only the keys of rows that are still in the result are encoded and looked up.
        let kept = BooleanArray::new(mask.clone(), None);
        let columns = keys
            .columns
            .iter()
            .map(|column| filter(piece.batch.column(*column), &kept))
            .collect::<Result<Vec<ArrayRef>, _>>()?;
        let encoded = encoder.encode_columns(&columns)?;
        // The rows not yet hidden: their places in the piece, and their keys.
        let mut places: Vec<usize> = mask.set_indices().collect();
        let mut keys: Vec<&[u8]> = encoded.iter().map(|key| key.data()).collect();
        for bounded in newer {
            if keys.is_empty() {
                break;
            }
            let mut hidden = bounded.source.contained(&keys, self.watermark)?.into_iter();
            let mut hidden_too = hidden.clone();
            places.retain(|_| !hidden.next().unwrap_or(false));
            keys.retain(|_| !hidden_too.next().unwrap_or(false));
        }
        let mut shown = BooleanBufferBuilder::new(rows);
        shown.append_n(rows, false);
        places.into_iter().for_each(|at| shown.set_bit(at, true));
        Ok(Some(shown.finish()))
    }
}

//! Results ordered by a column.
//!
//! What is held is a key and a place for each matching row (with a limit, for that many rows);
//! the rows themselves are fetched batch by batch once their order is known.

use std::collections::{BinaryHeap, VecDeque};

use arrow_array::{Array, BooleanArray};
use arrow_buffer::BooleanBuffer;
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, DataType, SortOptions};
use arrow_select::filter::filter;

use super::eval::{plain_values, plain_zeros};
use super::literal::value_type;
use super::select::{Piece, Selection, Seqs};
use super::source::{Bounded, OrderedRows, Place};
use crate::ids::Seq;

/// A row with its sort key. Rows of one key come by ascending `Seq`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Keyed {
    key: Box<[u8]>,
    seq: Seq,
    source: usize,
}

/// Encodes the sort keys of pieces.
pub(crate) struct SortKeys {
    /// The position of the column in pieces.
    column: usize,
    converter: RowConverter,
}

impl SortKeys {
    pub(crate) fn new(column: usize, data_type: &DataType, options: SortOptions) -> Result<Self, ArrowError> {
        let converter = RowConverter::new(vec![SortField::new_with_options(value_type(data_type).clone(), options)])?;
        Ok(SortKeys { column, converter })
    }

    /// The selected rows of the piece with their keys, in the piece's order.
    fn keyed(&self, piece: &Piece, mask: Option<&BooleanBuffer>) -> Result<Vec<Keyed>, ArrowError> {
        // The two zeros are one value, so they must be one key. Dictionaries sort by their values.
        let column = plain_zeros(&plain_values(piece.batch.column(self.column))?)?;
        let seqs = piece.seqs.to_array();
        let (column, seqs) = match mask {
            None => (column, seqs),
            Some(mask) => {
                let mask = BooleanArray::new(mask.clone(), None);
                (filter(&column, &mask)?, filter(&seqs, &mask)?.to_data().into())
            }
        };
        let keys = self.converter.convert_columns(&[column])?;
        let keyed = keys.iter().zip(seqs.values()).map(|(key, seq)| Keyed {
            key: key.as_ref().into(),
            seq: Seq::new(*seq),
            source: piece.source,
        });
        Ok(keyed.collect())
    }
}

/// The first rows of an order, of all that were pushed.
pub(crate) struct FirstRows {
    keys: SortKeys,
    /// How many can be in the result.
    kept: usize,
    /// The last one kept is on top.
    heap: BinaryHeap<Keyed>,
    /// Without a limit nothing is ever dropped, and sorting once is quicker than a heap.
    all: Vec<Keyed>,
}

impl FirstRows {
    pub(crate) fn new(keys: SortKeys, kept: u64) -> Self {
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        FirstRows { keys, kept, heap: BinaryHeap::new(), all: Vec::new() }
    }

    pub(crate) fn push(&mut self, piece: &Piece, mask: Option<&BooleanBuffer>) -> Result<(), ArrowError> {
        let keyed = self.keys.keyed(piece, mask)?;
        if self.kept == usize::MAX {
            self.all.extend(keyed);
            return Ok(());
        }
        for row in keyed {
            if self.heap.len() < self.kept {
                self.heap.push(row);
            } else if let Some(mut last) = self.heap.peek_mut()
                && row < *last
            {
                *last = row;
            }
        }
        Ok(())
    }

    /// Their places, in order.
    pub(crate) fn into_places(mut self) -> VecDeque<Place> {
        self.all.extend(self.heap);
        self.all.sort_unstable();
        self.all.into_iter().map(|row| Place { source: row.source, seq: row.seq }).collect()
    }
}

/// The selected rows of all sources in the order of an index, read no further than asked for.
pub(crate) struct Merge {
    keys: SortKeys,
    /// The columns of pieces, as positions in the storage schema.
    columns: Vec<usize>,
    block_rows: usize,
    runs: Vec<MergeRun>,
}

struct MergeRun {
    rows: OrderedRows,
    ready: VecDeque<Keyed>,
    ended: bool,
}

impl Merge {
    pub(crate) fn new(keys: SortKeys, columns: Vec<usize>, block_rows: usize, rows: Vec<OrderedRows>) -> Self {
        let runs = rows.into_iter().map(|rows| MergeRun { rows, ready: VecDeque::new(), ended: false }).collect();
        Merge { keys, columns, block_rows, runs }
    }

    /// The next rows, at most `count`; none at the end.
    pub(crate) fn next(
        &mut self,
        count: usize,
        sources: &[Bounded],
        selection: &Selection,
        go_on: impl Fn() -> bool,
    ) -> Result<VecDeque<Place>, ArrowError> {
        let mut places = VecDeque::with_capacity(count);
        while places.len() < count {
            for at in 0..self.runs.len() {
                self.fill(at, sources, selection, &go_on)?;
            }
            // Every run that has not ended shows its first row, so the least of them is the next.
            let first = self
                .runs
                .iter_mut()
                .filter(|run| !run.ready.is_empty())
                .min_by(|a, b| a.ready.front().cmp(&b.ready.front()));
            let Some(row) = first.and_then(|run| run.ready.pop_front()) else { break };
            places.push_back(Place { source: row.source, seq: row.seq });
        }
        Ok(places)
    }

    fn fill(
        &mut self,
        at: usize,
        sources: &[Bounded],
        selection: &Selection,
        go_on: &impl Fn() -> bool,
    ) -> Result<(), ArrowError> {
        let (Some(run), Some(bounded)) = (self.runs.get_mut(at), sources.get(at)) else { return Ok(()) };
        while run.ready.is_empty() && !run.ended && go_on() {
            let seqs: Vec<Seq> = run.rows.by_ref().take(self.block_rows).collect::<Result<_, _>>()?;
            run.ended = seqs.len() < self.block_rows;
            let seqs: Vec<Seq> = seqs.into_iter().filter(|seq| bounded.range.contains(*seq)).collect();
            if seqs.is_empty() {
                continue;
            }
            let batch = bounded.source.take(&seqs, &self.columns)?;
            let piece = Piece { source: at, seqs: Seqs::List(seqs), batch };
            let mask = selection.select(sources, &piece)?;
            run.ready.extend(self.keys.keyed(&piece, mask.as_ref())?);
        }
        Ok(())
    }
}

//! Walking over the candidates of a query in `Seq` order, piece by piece.

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use std::collections::VecDeque;
use std::sync::Arc;

use super::bind::Predicate;
use super::plan::Access;
use super::select::{Piece, Seqs};
use super::source::{Bounded, batch};
use crate::ids::{Seq, SeqRange};
use crate::memtable::RowWindow;

/// Windows at least this long are read where they lie; shorter neighbours are joined first, or
/// rows put one by one would each pay for a filter's whole evaluation.
const WINDOW_ROWS_MIN: usize = 1024;

/// The candidates not yet walked over.
pub(crate) struct Walk {
    access: Access,
    descending: bool,
    /// The columns of the storage schema that pieces have, and the schema they make.
    columns: Vec<usize>,
    schema: SchemaRef,
    piece_rows: usize,
    /// The sources still to walk, in walking order, and where in the front one the walk is.
    pending: VecDeque<usize>,
    current: Option<Current>,
}

struct Current {
    source: usize,
    rest: Rest,
}

enum Rest {
    /// Neighbours not yet read, in `Seq` order.
    Ranges(VecDeque<SeqRange>),
    /// Candidates not yet read, by ascending `Seq`.
    List(VecDeque<Seq>),
}

impl Walk {
    pub(crate) fn new(
        access: Access,
        descending: bool,
        columns: Vec<usize>,
        schema: SchemaRef,
        piece_rows: usize,
        sources: usize,
    ) -> Self {
        let nothing = matches!(access, Access::Nothing);
        let newest_first = 0..if nothing { 0 } else { sources };
        let pending = if descending { newest_first.collect() } else { newest_first.rev().collect() };
        Walk { access, descending, columns, schema, piece_rows, pending, current: None }
    }

    /// The next few pieces, in walking order (rows within a piece ascend); none at the end.
    ///
    /// Rows for which the filter (with columns as positions in the storage schema) cannot be true may
    /// be left out.
    pub(crate) fn next(
        &mut self,
        sources: &[Bounded],
        watermark: Seq,
        filter: Option<&Predicate>,
    ) -> Result<Vec<Piece>, ArrowError> {
        loop {
            let Some(current) = &mut self.current else {
                let Some(source) = self.pending.pop_front() else { return Ok(Vec::new()) };
                let Some(bounded) = sources.get(source) else { continue };
                let rest = candidates(&self.access, bounded, watermark, filter)?;
                self.current = Some(Current { source, rest });
                continue;
            };
            let Some(bounded) = sources.get(current.source) else { return Ok(Vec::new()) };
            let pieces = match &mut current.rest {
                Rest::Ranges(rest) => {
                    let next = if self.descending { rest.back_mut() } else { rest.front_mut() };
                    let Some(range) = next.filter(|range| !range.is_empty()) else {
                        if rest.is_empty() {
                            self.current = None;
                        } else if self.descending {
                            rest.pop_back();
                        } else {
                            rest.pop_front();
                        }
                        continue;
                    };
                    let part = cut(range, self.piece_rows as u64, self.descending);
                    let windows = bounded.source.windows(part)?;
                    neighbours(windows, current.source, &self.columns, &self.schema)?
                }
                Rest::List(seqs) => {
                    let count = seqs.len().min(self.piece_rows);
                    let part: Vec<Seq> =
                        if self.descending { seqs.drain(seqs.len() - count..) } else { seqs.drain(..count) }.collect();
                    match part.is_empty() {
                        true => Vec::new(),
                        false => {
                            let batch = bounded.source.take(&part, &self.columns)?;
                            vec![Piece { source: current.source, seqs: Seqs::List(part), batch }]
                        }
                    }
                }
            };
            if pieces.is_empty() {
                self.current = None;
                continue;
            }
            return Ok(if self.descending { pieces.into_iter().rev().collect() } else { pieces });
        }
    }
}

fn candidates(
    access: &Access,
    bounded: &Bounded,
    watermark: Seq,
    filter: Option<&Predicate>,
) -> Result<Rest, ArrowError> {
    let Access::Index { index, ranges } = access else {
        let all = bounded.range;
        return Ok(Rest::Ranges(filter.map_or(vec![all], |filter| bounded.source.matching(all, filter)).into()));
    };
    let mut seqs: Vec<Seq> = Vec::new();
    for range in ranges {
        seqs.extend(bounded.source.index_range(*index, range, watermark.min(bounded.range.end()))?);
    }
    seqs.sort_unstable();
    seqs.dedup();
    Ok(Rest::List(seqs.into()))
}

/// Takes up to `rows` rows off the end of the range that is walked first.
fn cut(rest: &mut SeqRange, rows: u64, descending: bool) -> SeqRange {
    let rows = rows.min(rest.rows());
    let at = if descending { rest.first().plus(rest.rows() - rows) } else { rest.first().plus(rows) };
    let (low, high) = (SeqRange::between(rest.first(), at), SeqRange::between(at, rest.end()));
    let (part, left) = if descending { (high, low) } else { (low, high) };
    *rest = left;
    part
}

fn neighbours(
    windows: Vec<RowWindow>,
    source: usize,
    columns: &[usize],
    schema: &SchemaRef,
) -> Result<Vec<Piece>, ArrowError> {
    let mut pieces = Vec::new();
    let mut short: Vec<RecordBatch> = Vec::new();
    let mut short_first = Seq::ZERO;
    let join = |short: &mut Vec<RecordBatch>, first: Seq, pieces: &mut Vec<Piece>| {
        if !short.is_empty() {
            let batch = concat_batches(schema, short.iter())?;
            pieces.push(piece(source, first, batch));
            short.clear();
        }
        Ok::<(), ArrowError>(())
    };
    for window in windows {
        let arrays = columns.iter().map(|column| Arc::clone(window.batch.column(*column))).collect();
        let narrow = batch(schema, arrays, window.batch.num_rows())?;
        if narrow.num_rows() >= WINDOW_ROWS_MIN {
            join(&mut short, short_first, &mut pieces)?;
            pieces.push(piece(source, window.first, narrow));
        } else {
            if short.is_empty() {
                short_first = window.first;
            }
            short.push(narrow);
        }
    }
    join(&mut short, short_first, &mut pieces)?;
    Ok(pieces)
}

fn piece(source: usize, first: Seq, batch: RecordBatch) -> Piece {
    Piece { source, seqs: Seqs::Range(SeqRange::starting_at(first, batch.num_rows() as u64)), batch }
}

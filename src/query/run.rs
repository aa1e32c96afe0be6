//! A query being carried out: one batch of the result at a time, no further than asked for.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arrow_array::{ArrayRef, BooleanArray, RecordBatch, UInt64Array};
use arrow_schema::{ArrowError, SchemaRef, SortOptions};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter;
use arrow_select::take::take;

use super::failed;
use super::literal::{is_float, value_type};
use super::order::{FirstRows, Merge, SortKeys};
use super::plan::{Access, Candidate, plan, ranges_of};
use super::scan::{CheckedOrder, CheckedScan};
use super::select::{KeyColumns, Piece, Selection};
use super::source::{Bounded, Place, View, batch, fetch};
use super::walk::Walk;
use crate::error::Result;
use crate::ids::Seq;
use crate::indexes::key::KeyBounds;
use crate::spec::ValidatedSpec;

/// How many candidates are looked at in one step.
const PIECE_ROWS: (usize, usize) = (1024, 65_536);
/// The rows an ordered index is asked for at once. Fewer than these cost as much as these.
const BLOCK_ROWS: (usize, usize) = (64, 8192);
/// An index gives rows in an order the row store does not have, one by one. Up to this share of
/// the rows that is quicker than reading them all and keeping the first.
const ORDERED_PER_ROWS: (u64, u64) = (1, 16);

/// A query over the sources of one snapshot.
pub(crate) struct Run {
    spec: Arc<ValidatedSpec>,
    sources: Vec<Bounded>,
    scan: CheckedScan,
    selection: Selection,
    /// The columns of pieces, as positions in the storage schema, ascending.
    columns: Vec<usize>,
    /// The schema pieces have.
    piece_schema: SchemaRef,
    stage: Stage,
    ready: Ready,
}

enum Stage {
    Planned,
    InOrder(Walk),
    Gathering(Walk, Box<FirstRows>),
    Merging(Box<Merge>),
    /// The order is known; rows are fetched as they are asked for.
    Fetching(VecDeque<Place>),
    Ended,
}

impl Run {
    /// Of a scan whose rows lie below `seq`.
    pub(crate) fn new(view: &View, seq: Seq, spec: &Arc<ValidatedSpec>, scan: CheckedScan) -> Result<Self> {
        let in_order = matches!(scan.order, CheckedOrder::Seq { .. });
        let mut columns: BTreeSet<usize> = scan.examined();
        if in_order {
            columns.extend(&scan.output);
        }
        let keyed = !spec.primary_key().is_empty();
        if keyed {
            columns.extend(spec.primary_key());
            columns.insert(spec.tombstone_column());
        }
        let columns: Vec<usize> = columns.into_iter().collect();
        let at = |column: usize| columns.iter().position(|kept| *kept == column).unwrap_or(usize::MAX);
        let selection = Selection {
            watermark: seq,
            filter: scan.filter.as_ref().map(|filter| filter.on_columns(&columns)),
            keys: keyed.then(|| KeyColumns {
                tombstone: at(spec.tombstone_column()),
                columns: spec.primary_key().iter().map(|column| at(*column)).collect(),
            }),
        };
        let piece_schema = spec.storage_schema().project(&columns).map_err(failed)?;
        let ready = Ready { batches: VecDeque::new(), rows: 0, skip: scan.offset, left: scan.limit };
        Ok(Run {
            spec: Arc::clone(spec),
            sources: view.below(seq),
            scan,
            selection,
            columns,
            piece_schema: Arc::new(piece_schema),
            stage: Stage::Planned,
            ready,
        })
    }

    /// The next batch of the result; none at the end, or once `stop` is set.
    pub(crate) fn next_batch(&mut self, stop: &AtomicBool) -> Result<Option<RecordBatch>> {
        self.advance(stop).map_err(|error| {
            self.stage = Stage::Ended;
            failed(error)
        })
    }

    fn advance(&mut self, stop: &AtomicBool) -> Result<Option<RecordBatch>, ArrowError> {
        // Pairs with the store of whoever drops the stream; seeing it late costs one more step.
        let stopped = || stop.load(Ordering::Relaxed);
        while !stopped() {
            if self.ready.rows >= self.scan.batch_rows || matches!(self.stage, Stage::Ended) {
                return self.ready.pop(self.scan.batch_rows, &self.scan.schema);
            }
            self.stage = match std::mem::replace(&mut self.stage, Stage::Ended) {
                Stage::Planned => self.begin()?,
                Stage::InOrder(walk) => self.step_in_order(walk)?,
                Stage::Gathering(walk, first) => self.step_gathering(walk, first)?,
                Stage::Merging(mut merge) => {
                    let count = self.ready.wanted(self.scan.batch_rows);
                    let go_on = || !stopped();
                    let places = merge.next(count, &self.sources, &self.selection, go_on)?;
                    let ended = places.len() < count;
                    self.push_places(places.into_iter().collect())?;
                    if ended || self.ready.left == 0 { Stage::Ended } else { Stage::Merging(merge) }
                }
                Stage::Fetching(mut places) => {
                    let count = self.ready.wanted(self.scan.batch_rows).min(places.len());
                    let next: Vec<Place> = places.drain(..count).collect();
                    self.push_places(next)?;
                    if places.is_empty() || self.ready.left == 0 { Stage::Ended } else { Stage::Fetching(places) }
                }
                Stage::Ended => Stage::Ended,
            };
        }
        self.stage = Stage::Ended;
        Ok(None)
    }

    /// How many rows match, whatever the limit.
    pub(crate) fn count(&mut self, stop: &AtomicBool) -> Result<u64> {
        self.count_matches(stop).map_err(failed)
    }

    fn count_matches(&mut self, stop: &AtomicBool) -> Result<u64, ArrowError> {
        let Stage::InOrder(mut walk) = self.begin()? else { return Ok(0) };
        let mut count = 0;
        while !stop.load(Ordering::Relaxed) {
            let pieces = walk.next(&self.sources, self.selection.watermark, self.scan.filter.as_ref())?;
            if pieces.is_empty() {
                break;
            }
            for piece in pieces {
                let mask = self.selection.select(&self.sources, &piece)?;
                count += mask.map_or(piece.batch.num_rows(), |mask| mask.count_set_bits()) as u64;
            }
        }
        Ok(count)
    }

    /// Makes the next step panic.
    #[cfg(test)]
    pub(super) fn panic_for_test(&mut self) {
        self.scan.output = vec![usize::MAX];
    }

    /// Whether it never has to wait for the store.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.sources.iter().all(|bounded| bounded.source.is_in_memory())
    }

    fn rows(&self) -> u64 {
        self.sources.iter().map(|bounded| bounded.range.rows()).sum()
    }

    /// Plans, and sets out.
    fn begin(&self) -> Result<Stage, ArrowError> {
        if self.scan.limit == 0 {
            return Ok(Stage::Ended);
        }
        let (least, most) = PIECE_ROWS;
        let walk = |access, descending| {
            let piece_rows = self.scan.batch_rows.clamp(least, most);
            let schema = Arc::clone(&self.piece_schema);
            Walk::new(access, descending, self.columns.clone(), schema, piece_rows, self.sources.len())
        };
        match self.scan.order {
            CheckedOrder::Seq { descending } => Ok(Stage::InOrder(walk(self.access()?, descending))),
            CheckedOrder::Column { column, options } => {
                if let Some((index, bounds)) = self.ordering_index(column, options)? {
                    return self.merge(index, &bounds, column, options).map(|merge| Stage::Merging(Box::new(merge)));
                }
                let kept = self.scan.offset.saturating_add(self.scan.limit);
                let first = FirstRows::new(self.sort_keys(column, options)?, kept);
                Ok(Stage::Gathering(walk(self.access()?, false), Box::new(first)))
            }
        }
    }

    fn sort_keys(&self, column: usize, options: SortOptions) -> Result<SortKeys, ArrowError> {
        let at = self.columns.iter().position(|kept| *kept == column).unwrap_or(usize::MAX);
        SortKeys::new(at, self.spec.schema().field(column).data_type(), options)
    }

    /// The indexes that every source of the query has.
    fn candidates(&self) -> Vec<Candidate<'_>> {
        let Some(newest) = self.sources.first() else { return Vec::new() };
        let indexes = self.spec.indexes().iter().enumerate();
        indexes
            .filter_map(|(index, bound)| {
                let encoder = newest.source.index_encoder(index)?;
                Some(Candidate { index, columns: &bound.columns, encoder })
            })
            .collect()
    }

    pub(super) fn access(&self) -> Result<Access, ArrowError> {
        let Some(filter) = &self.scan.filter else { return Ok(Access::All) };
        let estimate = |index: usize, bounds: &KeyBounds| {
            let each = self.sources.iter().map(|bounded| bounded.source.index_estimate(index, bounds));
            each.fold(0, u64::saturating_add)
        };
        plan(filter, self.spec.schema(), &self.candidates(), self.rows(), estimate)
    }

    /// An index whose order is the one asked for, if following it reads far fewer rows than there
    /// are, and the part of it that holds every match.
    fn ordering_index(&self, column: usize, options: SortOptions) -> Result<Option<(usize, KeyBounds)>, ArrowError> {
        let (share, of) = ORDERED_PER_ROWS;
        let wanted = self.scan.offset.saturating_add(self.scan.limit);
        if wanted > self.rows().saturating_mul(share) / of {
            return Ok(None);
        }
        let field = self.spec.schema().field(column);
        // Index keys have nulls before values when ascending, so behind them when descending; and
        // two keys for the two zeros.
        let nulls_agree = !field.is_nullable() || options.nulls_first != options.descending;
        if !nulls_agree || is_float(value_type(field.data_type())) {
            return Ok(None);
        }
        let candidates = self.candidates();
        let Some(candidate) = candidates.iter().find(|candidate| candidate.columns == [column]) else {
            return Ok(None);
        };
        let Some(filter) = &self.scan.filter else {
            return Ok(Some((candidate.index, (Bound::Unbounded, Bound::Unbounded))));
        };
        // A filter on other columns could make the walk go through every row one by one.
        let mut examined = BTreeSet::new();
        filter.add_columns(&mut examined);
        if examined != BTreeSet::from([column]) {
            return Ok(None);
        }
        let ranges = ranges_of(filter, self.spec.schema(), candidate)?.unwrap_or_default();
        Ok(<[KeyBounds; 1]>::try_from(ranges).ok().map(|[bounds]| (candidate.index, bounds)))
    }

    fn merge(
        &self,
        index: usize,
        bounds: &KeyBounds,
        column: usize,
        options: SortOptions,
    ) -> Result<Merge, ArrowError> {
        let (least, most) = BLOCK_ROWS;
        let wanted = usize::try_from(self.scan.offset.saturating_add(self.scan.limit)).unwrap_or(usize::MAX);
        let watermark = self.selection.watermark;
        let ordered = |bounded: &Bounded| bounded.source.index_ordered(index, bounds, options.descending, watermark);
        let runs = self.sources.iter().map(ordered).collect();
        Ok(Merge::new(self.sort_keys(column, options)?, self.columns.clone(), wanted.clamp(least, most), runs))
    }

    fn step_in_order(&mut self, mut walk: Walk) -> Result<Stage, ArrowError> {
        let pieces = walk.next(&self.sources, self.selection.watermark, self.scan.filter.as_ref())?;
        let ended = pieces.is_empty();
        for piece in pieces {
            let mask = self.selection.select(&self.sources, &piece)?;
            let rows = self.result_rows(&piece, mask)?;
            self.ready.push(rows);
            if self.ready.left == 0 {
                return Ok(Stage::Ended);
            }
        }
        Ok(if ended { Stage::Ended } else { Stage::InOrder(walk) })
    }

    /// The selected rows of a piece as the result has them.
    fn result_rows(&self, piece: &Piece, mask: Option<arrow_buffer::BooleanBuffer>) -> Result<RecordBatch, ArrowError> {
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.scan.schema.fields().len());
        for output in &self.scan.output {
            let at = self.columns.iter().position(|column| column == output).unwrap_or(usize::MAX);
            columns.push(Arc::clone(piece.batch.column(at)));
        }
        if self.scan.with_seq {
            columns.push(Arc::new(piece.seqs.to_array()));
        }
        let mut rows = piece.batch.num_rows();
        if let Some(mask) = mask {
            rows = mask.count_set_bits();
            let mask = BooleanArray::new(mask, None);
            columns = columns.iter().map(|column| filter(column, &mask)).collect::<Result<_, _>>()?;
        }
        if matches!(self.scan.order, CheckedOrder::Seq { descending: true }) {
            let backwards: UInt64Array = (0..rows as u64).rev().collect::<Vec<_>>().into();
            columns = columns.iter().map(|column| take(column, &backwards, None)).collect::<Result<_, _>>()?;
        }
        batch(&self.scan.schema, columns, rows)
    }

    fn step_gathering(&mut self, mut walk: Walk, mut first: Box<FirstRows>) -> Result<Stage, ArrowError> {
        let pieces = walk.next(&self.sources, self.selection.watermark, self.scan.filter.as_ref())?;
        if pieces.is_empty() {
            return Ok(Stage::Fetching(first.into_places()));
        }
        for piece in pieces {
            let mask = self.selection.select(&self.sources, &piece)?;
            first.push(&piece, mask.as_ref())?;
        }
        Ok(Stage::Gathering(walk, first))
    }

    fn push_places(&mut self, places: Vec<Place>) -> Result<(), ArrowError> {
        let skipped = usize::try_from(self.ready.skip).unwrap_or(usize::MAX).min(places.len());
        self.ready.skip -= skipped as u64;
        let kept = places.get(skipped..).unwrap_or_default();
        if kept.is_empty() {
            return Ok(());
        }
        let schema = Arc::new(self.spec.storage_schema().project(&self.scan.output)?);
        let rows = fetch(&self.sources, kept, &self.scan.output, &schema)?;
        let mut columns = rows.columns().to_vec();
        if self.scan.with_seq {
            columns.push(Arc::new(kept.iter().map(|place| place.seq.get()).collect::<UInt64Array>()));
        }
        self.ready.push(batch(&self.scan.schema, columns, kept.len())?);
        Ok(())
    }
}

/// Rows of the result that wait to make a batch.
struct Ready {
    batches: VecDeque<RecordBatch>,
    rows: usize,
    /// What is left of the offset.
    skip: u64,
    /// What is left of the limit.
    left: u64,
}

impl Ready {
    /// How many rows the next batch still lacks, those the offset takes included.
    fn wanted(&self, batch_rows: usize) -> usize {
        let lacking = (batch_rows - self.rows.min(batch_rows)) as u64;
        let wanted = lacking.min(self.left).saturating_add(self.skip);
        usize::try_from(wanted).unwrap_or(usize::MAX).min(BLOCK_ROWS.1.max(batch_rows))
    }

    fn push(&mut self, rows: RecordBatch) {
        let skipped = self.skip.min(rows.num_rows() as u64);
        let kept = (rows.num_rows() as u64 - skipped).min(self.left);
        self.skip -= skipped;
        self.left -= kept;
        if kept > 0 {
            self.rows += kept as usize;
            self.batches.push_back(rows.slice(skipped as usize, kept as usize));
        }
    }

    /// Up to `batch_rows` of the rows, in one batch.
    fn pop(&mut self, batch_rows: usize, schema: &SchemaRef) -> Result<Option<RecordBatch>, ArrowError> {
        let mut parts = Vec::new();
        let mut rows = 0;
        while rows < batch_rows
            && let Some(part) = self.batches.pop_front()
        {
            let taken = part.num_rows().min(batch_rows - rows);
            if taken < part.num_rows() {
                self.batches.push_front(part.slice(taken, part.num_rows() - taken));
            }
            rows += taken;
            parts.push(part.slice(0, taken));
        }
        self.rows -= rows;
        match parts.len() {
            0 => Ok(None),
            1 => Ok(parts.pop()),
            _ => concat_batches(schema, parts.iter()).map(Some),
        }
    }
}

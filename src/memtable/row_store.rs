//! The rows of a memtable: the Arrow batches as they came, in `Seq` order.
//!
//! # Why readers need no lock
//!
//! A batch is put into its slot, a `OnceLock`, before the count of batches is raised past it
//! (`Release`), and a reader looks at slots below the count it loaded (`Acquire`). A filled slot
//! never changes. So a reader sees whole batches or none, and a `Seq` below the shard's watermark, which
//! is raised later still, is always found.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use ahash::HashMap;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::interleave::interleave;

use crate::ids::{Seq, SeqRange};
use crate::memtable::slots::Slots;
use crate::rows::SequencedRows;

/// A batch and the `Seq` of its first row.
#[derive(Debug)]
struct Stored {
    first: Seq,
    batch: RecordBatch,
}

/// What a batch takes beside its rows.
pub(super) const fn bytes_per_batch() -> u64 {
    Slots::<OnceLock<Stored>>::bytes_per_slot()
}

#[derive(Debug)]
struct Shared {
    first: Seq,
    schema: SchemaRef,
    batches: Slots<OnceLock<Stored>>,
    /// How many slots are filled. Pairs: `Release` in `append`, `Acquire` in `len`.
    filled: AtomicUsize,
}

/// The write half: there is one.
#[derive(Debug)]
pub(crate) struct RowStoreWriter {
    shared: Arc<Shared>,
    end: Seq,
    bytes: u64,
}

/// The read half.
#[derive(Clone, Debug)]
pub(crate) struct RowStoreReader(Arc<Shared>);

/// Rows of one batch.
#[derive(Clone, Debug)]
pub(crate) struct RowWindow {
    /// The `Seq` of the first row.
    pub(crate) first: Seq,
    /// The rows, in storage form.
    pub(crate) batch: RecordBatch,
}

/// An empty store for rows of the schema, beginning at `first`.
pub(crate) fn new(schema: &SchemaRef, first: Seq) -> (RowStoreWriter, RowStoreReader) {
    let shared =
        Arc::new(Shared { first, schema: Arc::clone(schema), batches: Slots::default(), filled: AtomicUsize::new(0) });
    (RowStoreWriter { shared: Arc::clone(&shared), end: first, bytes: 0 }, RowStoreReader(shared))
}

impl RowStoreWriter {
    /// One past the last row.
    pub(crate) fn end(&self) -> Seq {
        self.end
    }

    /// The first row's `Seq`.
    pub(crate) fn first(&self) -> Seq {
        self.shared.first
    }

    /// What holding the rows costs, and the slots they lie in.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.shared.batches.bytes()
    }

    /// Appends rows that begin at [`RowStoreWriter::end`]. `Err` only where the store is out of slots.
    pub(crate) fn append(&mut self, rows: &SequencedRows) -> Result<(), &'static str> {
        for batch in rows.batches.iter() {
            let at = self.shared.filled.load(Ordering::Relaxed);
            let slot = self.shared.batches.get_or_grow(at).ok_or("the row store has no slot left")?;
            let stored = Stored { first: self.end, batch: batch.clone() };
            slot.set(stored).map_err(|_| "a slot of the row store is filled twice")?;
            self.end = self.end.plus(batch.num_rows() as u64);
            self.shared.filled.store(at + 1, Ordering::Release);
        }
        self.bytes += rows.bytes;
        Ok(())
    }
}

impl RowStoreReader {
    fn len(&self) -> usize {
        self.0.filled.load(Ordering::Acquire)
    }

    fn stored(&self, at: usize) -> Option<&Stored> {
        self.0.batches.get(at)?.get()
    }

    /// The slot of the batch that holds the row, among the first `len`.
    fn slot_of(&self, seq: Seq, len: usize) -> Option<usize> {
        let (mut low, mut high) = (0, len);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.stored(middle).is_some_and(|stored| stored.first <= seq) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low.checked_sub(1)
    }

    /// The batch that holds the row, and the row's place in it.
    fn locate(&self, seq: Seq, len: usize) -> Option<(usize, &Stored, usize)> {
        let at = self.slot_of(seq, len)?;
        let stored = self.stored(at)?;
        let row = seq.index_from(stored.first);
        (seq >= self.0.first && row < stored.batch.num_rows()).then_some((at, stored, row))
    }

    /// The rows of the range that are there, batch by batch in `Seq` order.
    pub(crate) fn batches(&self, range: SeqRange) -> impl Iterator<Item = RowWindow> + '_ {
        let len = self.len();
        let start = self.slot_of(range.first().max(self.0.first), len).unwrap_or(0);
        let windows = (start..len).map_while(move |at| {
            let stored = self.stored(at)?;
            let held = SeqRange::starting_at(stored.first, stored.batch.num_rows() as u64);
            let wanted = held.intersect(range);
            (stored.first < range.end()).then(|| {
                let offset = wanted.first().index_from(stored.first);
                let batch = if wanted == held {
                    stored.batch.clone()
                } else {
                    stored.batch.slice(offset.min(stored.batch.num_rows()), wanted.rows() as usize)
                };
                RowWindow { first: wanted.first(), batch }
            })
        });
        windows.filter(|window| window.batch.num_rows() > 0)
    }

    /// One row, without a copy.
    pub(crate) fn row(&self, seq: Seq) -> Option<RecordBatch> {
        let (_, stored, row) = self.locate(seq, self.len())?;
        Some(stored.batch.slice(row, 1))
    }

    /// The rows in the order given, with the columns given (all of them for `None`).
    pub(crate) fn take(&self, seqs: &[Seq], columns: Option<&[usize]>) -> Result<RecordBatch, ArrowError> {
        let schema = match columns {
            Some(columns) => Arc::new(self.0.schema.project(columns)?),
            None => Arc::clone(&self.0.schema),
        };
        let (batches, places) = self.places(seqs)?;
        let gathered = |column: usize| -> Result<ArrayRef, ArrowError> {
            let arrays: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(column).as_ref()).collect();
            if arrays.is_empty() {
                return Ok(arrow_array::new_empty_array(self.0.schema.field(column).data_type()));
            }
            interleave(&arrays, &places)
        };
        let arrays = match columns {
            Some(columns) => columns.iter().map(|column| gathered(*column)).collect::<Result<Vec<_>, _>>()?,
            None => (0..self.0.schema.fields().len()).map(gathered).collect::<Result<Vec<_>, _>>()?,
        };
        let options = RecordBatchOptions::new().with_row_count(Some(seqs.len()));
        RecordBatch::try_new_with_options(schema, arrays, &options)
    }

    /// The distinct batches that hold the rows, and for each row its batch and place.
    #[expect(clippy::type_complexity, reason = "what `interleave` takes")]
    fn places(&self, seqs: &[Seq]) -> Result<(Vec<&RecordBatch>, Vec<(usize, usize)>), ArrowError> {
        let len = self.len();
        let mut batches = Vec::new();
        let mut numbers = HashMap::default();
        let mut places = Vec::with_capacity(seqs.len());
        // Neighbours mostly share a batch: the last one is looked at first.
        let mut last: Option<(SeqRange, usize, Seq)> = None;
        for seq in seqs {
            if let Some((range, number, first)) = last
                && range.contains(*seq)
            {
                places.push((number, seq.index_from(first)));
                continue;
            }
            let Some((slot, stored, row)) = self.locate(*seq, len) else {
                return Err(ArrowError::InvalidArgumentError(format!("row {seq} is not in this memtable")));
            };
            let number = *numbers.entry(slot).or_insert_with(|| {
                batches.push(&stored.batch);
                batches.len() - 1
            });
            last = Some((SeqRange::starting_at(stored.first, stored.batch.num_rows() as u64), number, stored.first));
            places.push((number, row));
        }
        Ok((batches, places))
    }
}

#[cfg(test)]
mod tests {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int64Type;
    use arrow_array::{Int64Array, StringArray};
    use arrow_schema::{DataType, Field, Schema};

    use super::*;

    fn store(sizes: &[u64], first: u64) -> (RowStoreWriter, RowStoreReader) {
        let fields = vec![Field::new("v", DataType::Int64, false), Field::new("s", DataType::Utf8, true)];
        let schema = Arc::new(Schema::new(fields));
        let (mut writer, reader) = new(&schema, Seq::new(first));
        for rows in sizes {
            let range = SeqRange::starting_at(writer.end(), *rows);
            let values = range.first().get() as i64..range.end().get() as i64;
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from_iter_values(values.clone())),
                Arc::new(StringArray::from_iter_values(values.map(|value| format!("row {value}")))),
            ];
            let batch = RecordBatch::try_new(Arc::clone(&schema), columns).expect("a batch");
            writer.append(&SequencedRows { range, batches: vec![batch].into(), bytes: 1 }).expect("a slot");
        }
        (writer, reader)
    }

    fn values(batch: &RecordBatch) -> Vec<i64> {
        batch.column(0).as_primitive::<Int64Type>().values().to_vec()
    }

    #[test]
    fn v4_a_range_gives_its_rows_and_no_others() {
        let (_, reader) = store(&[3, 1, 4, 2], 10);
        for first in 5..22 {
            for end in first..22 {
                let range = SeqRange::between(Seq::new(first), Seq::new(end));
                let found: Vec<i64> = reader.batches(range).flat_map(|window| values(&window.batch)).collect();
                let wanted: Vec<i64> = (first.max(10)..end.min(20)).map(|value| value as i64).collect();
                assert_eq!(found, wanted, "{range}");
            }
        }
    }

    #[test]
    fn v1_a_row_that_is_not_there_is_not_found() {
        let (_, reader) = store(&[3, 2], 10);
        for seq in [0, 9, 15, u64::MAX] {
            assert!(reader.row(Seq::new(seq)).is_none(), "{seq}");
        }
        for seq in 10..15 {
            assert_eq!(values(&reader.row(Seq::new(seq)).expect("there")), [seq as i64]);
        }
        let (_, empty) = store(&[], 0);
        assert!(empty.row(Seq::ZERO).is_none());
        assert_eq!(empty.batches(SeqRange::between(Seq::ZERO, Seq::MAX)).count(), 0);
    }

    #[test]
    fn q2_rows_are_taken_in_the_order_asked_for() {
        let (_, reader) = store(&[3, 1, 4, 2], 0);
        let wanted = [9, 0, 3, 3, 7, 1, 4];
        let seqs: Vec<Seq> = wanted.iter().map(|seq| Seq::new(*seq)).collect();
        let taken = reader.take(&seqs, Some(&[1, 0])).expect("there");
        let order: Vec<i64> = taken.column(1).as_primitive::<Int64Type>().values().to_vec();
        assert_eq!(order, wanted.map(|seq| seq as i64));
        assert_eq!(taken.schema().field(0).name(), "s");
        assert_eq!(reader.take(&[], None).expect("nothing").num_rows(), 0);
        assert_eq!(reader.take(&seqs, Some(&[])).expect("no columns").num_rows(), 7);
        let text = reader.take(&[Seq::new(10)], None).expect_err("not there").to_string();
        assert!(text.contains("row 10"), "{text}");
    }
}

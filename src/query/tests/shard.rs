//! A shard of real memtables and the list of its rows, for tests that compare the two.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, UInt64Type};
use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use tokio::sync::Semaphore;

use super::super::{Reading, Snapshot, View};
use super::oracle::{COLUMNS, Model, Row};
use crate::actors::lifecycle::Status;
use crate::components::InlinePool;
use crate::config::CpuPool;
use crate::ids::{Seq, SeqRange};
use crate::memtable::{self, MemtableReader, MemtableWriter};
use crate::spec::{IndexSpec, TableSpec, ValidatedSpec};

/// Threads that may wait for a store.
static IO: LazyLock<tokio::runtime::Runtime> = LazyLock::new(|| tokio::runtime::Runtime::new().expect("threads"));

/// One version of a row, as it was written.
#[derive(Clone, Debug)]
pub(crate) struct Version {
    pub(crate) id: i64,
    pub(crate) big: Option<i64>,
    pub(crate) text: Option<String>,
    pub(crate) double: Option<f64>,
    pub(crate) deleted: bool,
}

impl Version {
    /// As the oracle of filters sees it.
    pub(crate) fn row(&self) -> Row {
        let value = |name: &str| match name {
            "big" => self.big.map(|value| Model::Number(i128::from(value) * 10_000)),
            "text" => self.text.clone().map(Model::Text),
            "double" => self.double.map(Model::Float),
            _ => None,
        };
        COLUMNS.iter().map(|(name, _)| value(name)).collect()
    }
}

pub(crate) struct Shard {
    pub(crate) spec: Arc<ValidatedSpec>,
    pub(crate) status: Arc<Status>,
    pub(crate) pool: Arc<dyn CpuPool>,
    pub(crate) gate: Arc<Semaphore>,
    /// At the place of their `Seq`.
    pub(crate) versions: Vec<Version>,
    writer: MemtableWriter,
    /// Newest first.
    readers: Vec<MemtableReader>,
}

impl Shard {
    pub(crate) fn new(keyed: bool, indexed: bool) -> Self {
        let schema = Schema::new(vec![
            Field::new("id", DataType::Int64, false),
            Field::new("big", DataType::Int64, true),
            Field::new("text", DataType::Utf8, true),
            Field::new("double", DataType::Float64, true),
        ]);
        let mut spec = TableSpec::new(Arc::new(schema));
        if keyed {
            spec = spec.primary_key(["id"]);
        }
        if indexed {
            spec = spec
                .index(IndexSpec::btree("by_big", ["big"]))
                .index(IndexSpec::btree("by_text_and_big", ["text", "big"]))
                .index(IndexSpec::btree("by_double", ["double"]));
        }
        let spec = Arc::new(spec.validate().expect("valid"));
        let pool: Arc<dyn CpuPool> = Arc::new(InlinePool);
        let (writer, reader) = memtable::new(&spec, Seq::ZERO, &pool).expect("a memtable");
        Shard {
            spec,
            status: Status::running(),
            pool,
            gate: Arc::new(Semaphore::new(4)),
            versions: Vec::new(),
            writer,
            readers: vec![reader],
        }
    }

    pub(crate) fn end(&self) -> Seq {
        Seq::new(self.versions.len() as u64)
    }

    /// Rows from here on go to a new memtable.
    pub(crate) fn seal(&mut self) {
        let (writer, reader) = memtable::new(&self.spec, self.end(), &self.pool).expect("a memtable");
        self.writer = writer;
        self.readers.insert(0, reader);
    }

    /// One put, or one delete, of all these versions.
    pub(crate) fn write(&mut self, versions: Vec<Version>) {
        let ids: ArrayRef = Arc::new(versions.iter().map(|v| Some(v.id)).collect::<Int64Array>());
        let checked = if versions[0].deleted {
            let schema = Arc::new(self.spec.schema().project(&[0]).expect("the key"));
            self.spec.check_delete(&RecordBatch::try_new(schema, vec![ids]).expect("keys"))
        } else {
            let columns: Vec<ArrayRef> = vec![
                ids,
                Arc::new(versions.iter().map(|v| v.big).collect::<Int64Array>()),
                Arc::new(versions.iter().map(|v| v.text.as_deref()).collect::<StringArray>()),
                Arc::new(versions.iter().map(|v| v.double).collect::<Float64Array>()),
            ];
            let batch = RecordBatch::try_new(Arc::clone(self.spec.schema()), columns).expect("a batch");
            self.spec.check_put(vec![batch])
        };
        let range = SeqRange::starting_at(self.end(), versions.len() as u64);
        self.writer.apply(&checked.expect("rows").sequenced(range)).expect("applied");
        self.versions.extend(versions);
    }

    pub(crate) fn snapshot(&self, seq: Seq) -> Snapshot {
        let reading = Reading::new(
            Arc::clone(&self.spec),
            Arc::clone(&self.status),
            Arc::clone(&self.pool),
            IO.handle().clone(),
            Arc::clone(&self.gate),
        );
        Snapshot::new(Arc::new(View::of_memtables(self.readers.clone())), seq, reading)
    }

    /// The `Seq`s of the rows there are below `seq`, ascending: with a primary key, the newest version of each
    /// key that does not delete it.
    pub(crate) fn rows_below(&self, seq: Seq) -> Vec<usize> {
        let below = seq.get().min(self.versions.len() as u64) as usize;
        if self.spec.primary_key().is_empty() {
            return (0..below).collect();
        }
        let newest: HashMap<i64, usize> = (0..below).map(|at| (self.versions[at].id, at)).collect();
        let mut rows: Vec<usize> = newest.into_values().filter(|at| !self.versions[*at].deleted).collect();
        rows.sort_unstable();
        rows
    }

    /// Says that the batch (all columns, then `_seq`) holds these rows in this order.
    pub(crate) fn check_rows(&self, found: &RecordBatch, rows: &[usize]) -> Result<(), String> {
        let seqs: Vec<usize> = found
            .column(found.num_columns() - 1)
            .as_primitive::<UInt64Type>()
            .values()
            .iter()
            .map(|seq| *seq as usize)
            .collect();
        if seqs != rows {
            return Err(format!("found rows {seqs:?}, expected {rows:?}"));
        }
        let Some(ids) = found.column_by_name("id") else { return Ok(()) };
        for (at, row) in rows.iter().enumerate() {
            let version = &self.versions[*row];
            let same = ids.as_primitive::<Int64Type>().value(at) == version.id
                && found
                    .column_by_name("text")
                    .is_none_or(|text| text.as_string::<i32>().iter().nth(at) == Some(version.text.as_deref()));
            if !same {
                return Err(format!("row {row} does not hold {version:?}"));
            }
        }
        Ok(())
    }
}

//! A snapshot: one view and one `Seq`, and everything that can be asked of them.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use arrow_array::cast::AsArray;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_schema::{ArrowError, SchemaRef};
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot};

use super::failed;
use super::filter::Expr;
use super::run::Run;
use super::scan::{CheckedScan, Scan};
use super::source::{Bounded, Place, View, batch, fetch};
use super::stream::{RowIter, RowStream};
use crate::actors::lifecycle::Status;
use crate::config::CpuPool;
use crate::error::{Error, Result};
use crate::ids::Seq;
use crate::indexes::key::KeyEncoder;
use crate::spec::ValidatedSpec;
use crate::value::Key;

/// What all queries of a shard share.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) spec: Arc<ValidatedSpec>,
    pub(crate) status: Arc<Status>,
    pub(crate) cpu_pool: Arc<dyn CpuPool>,
    /// Whose threads may wait for the store.
    io: runtime::Handle,
    /// How many may compute at once.
    pub(crate) gate: Arc<Semaphore>,
}

impl Reading {
    pub(crate) fn new(
        spec: Arc<ValidatedSpec>,
        status: Arc<Status>,
        cpu_pool: Arc<dyn CpuPool>,
        io: runtime::Handle,
        gate: Arc<Semaphore>,
    ) -> Self {
        Reading { spec, status, cpu_pool, io, gate }
    }

    /// Runs a step of a query: on the CPU pool, or on a thread that may wait for the store.
    pub(crate) fn spawn(&self, may_wait: bool, step: impl FnOnce() + Send + 'static) {
        if may_wait {
            self.io.spawn_blocking(step);
        } else {
            self.cpu_pool.spawn(Box::new(step));
        }
    }
}

/// The rows of a shard below one sequence number: a value that never changes, whatever is
/// written meanwhile (V3, V4). Clones are cheap.
///
/// It keeps the memory of its rows in use until it and its streams are dropped. After the
/// shard has failed or was closed, it answers with that.
#[derive(Clone)]
pub struct Snapshot {
    sources: Arc<[Bounded]>,
    pub(super) view: Arc<View>,
    pub(super) seq: Seq,
    pub(super) reading: Reading,
}

/// What was found under a key.
#[derive(Clone, Debug, PartialEq)]
pub enum Lookup {
    /// One row, in the caller's schema.
    Found(RecordBatch),
    /// The key was deleted, and not written since.
    Deleted,
    /// The key was never written.
    Missing,
}

impl Lookup {
    /// The row, if there is one.
    pub fn row(&self) -> Option<&RecordBatch> {
        match self {
            Lookup::Found(row) => Some(row),
            Lookup::Deleted | Lookup::Missing => None,
        }
    }
}

/// The row as `{column: value, ..}`, or `deleted` or `missing`.
impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let row = match self {
            Lookup::Found(row) => row,
            Lookup::Deleted => return f.write_str("deleted"),
            Lookup::Missing => return f.write_str("missing"),
        };
        let options = FormatOptions::new().with_null("null");
        f.write_str("{")?;
        for (at, (field, column)) in row.schema_ref().fields().iter().zip(row.columns()).enumerate() {
            let formatter = ArrayFormatter::try_new(column, &options).map_err(|_| fmt::Error)?;
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{}: {}", field.name(), formatter.value(0))?;
        }
        f.write_str("}")
    }
}

/// What was found under many keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Lookups {
    /// One for each key, in the order of the keys.
    pub outcomes: Vec<Outcome>,
    /// The rows found, in the order of their keys and in the caller's schema.
    pub rows: RecordBatch,
}

/// What was found under one of many keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// This row of [`Lookups::rows`].
    Found(usize),
    /// The key was deleted, and not written since.
    Deleted,
    /// The key was never written.
    Missing,
}

impl Lookups {
    /// The row under the key at this place, as a batch of one row.
    pub fn row(&self, at: usize) -> Option<RecordBatch> {
        match self.outcomes.get(at)? {
            Outcome::Found(row) => Some(self.rows.slice(*row, 1)),
            Outcome::Deleted | Outcome::Missing => None,
        }
    }
}

impl Snapshot {
    pub(crate) fn new(view: Arc<View>, seq: Seq, reading: Reading) -> Self {
        Snapshot { sources: view.below(seq).into(), view, seq, reading }
    }

    /// The rows below this sequence number are seen.
    pub fn seq(&self) -> Seq {
        self.seq
    }

    /// The schema of the rows.
    pub fn schema(&self) -> &SchemaRef {
        self.reading.spec.schema()
    }

    /// Looks up one key. It takes about a microsecond and may be called on any thread.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the shard has no primary key, or the key does not fit it; the
    /// shard's failure if it has failed.
    pub fn get(&self, key: impl Into<Key>) -> Result<Lookup> {
        self.reading.status.check_readable()?;
        let Some(encoder) = self.key_encoder()? else { return Ok(Lookup::Missing) };
        let key = encoder.encode_key(&key.into())?;
        let Some(place) = self.newest(&key).map_err(failed)? else { return Ok(Lookup::Missing) };
        let row = self.sources.get(place.source).map(|bounded| bounded.source.row(place.seq)).transpose();
        let Some(row) = row.map_err(failed)?.flatten() else { return Err(lost(place.seq)) };
        let columns = self.reading.spec.tombstone_column();
        if row.column(columns).as_boolean().value(0) {
            return Ok(Lookup::Deleted);
        }
        let columns: Vec<ArrayRef> = row.columns().iter().take(columns).cloned().collect();
        batch(self.schema(), columns, 1).map(Lookup::Found).map_err(failed)
    }

    /// [`Snapshot::get`], if rows in memory decide it.
    pub(crate) fn get_from_memory(&self, key: &Key) -> Option<Result<Lookup>> {
        let Some(frozen) = self.sources.iter().position(|bounded| !bounded.source.is_in_memory()) else {
            return Some(self.get(key.clone()));
        };
        let newer = Snapshot { sources: self.sources.get(..frozen).unwrap_or_default().into(), ..self.clone() };
        match newer.get(key.clone()) {
            Ok(Lookup::Missing) => None,
            decided => Some(decided),
        }
    }

    /// Whether it can be asked without reading the store.
    pub(crate) fn is_in_memory(&self) -> bool {
        self.sources.iter().all(|bounded| bounded.source.is_in_memory())
    }

    /// Looks up many keys. The answers keep the order of the keys, and a key may come twice.
    ///
    /// # Errors
    /// As [`Snapshot::get`]; one key that does not fit refuses the call.
    pub fn get_many(&self, keys: &[Key]) -> Result<Lookups> {
        self.reading.status.check_readable()?;
        let Some(encoder) = self.key_encoder()? else { return self.look_up(std::iter::repeat_n(None, keys.len())) };
        let mut places = Vec::with_capacity(keys.len());
        for key in keys {
            places.push(self.newest(&encoder.encode_key(key)?).map_err(failed)?);
        }
        self.look_up(places.into_iter())
    }

    /// [`Snapshot::get_many`] with the keys as a batch of the primary key's columns, in the
    /// order the key was declared.
    ///
    /// # Errors
    /// As [`Snapshot::get`]; also for columns of other names or types.
    pub fn get_batch(&self, keys: &RecordBatch) -> Result<Lookups> {
        self.reading.status.check_readable()?;
        let encoder = self.key_encoder()?;
        self.check_key_columns(keys)?;
        let Some(encoder) = encoder else { return self.look_up(std::iter::repeat_n(None, keys.num_rows())) };
        let encoded = encoder.encode_columns(keys.columns()).map_err(failed)?;
        let places: Result<Vec<_>, _> = encoded.iter().map(|key| self.newest(key.as_ref())).collect();
        self.look_up(places.map_err(failed)?.into_iter())
    }

    /// Reads rows. Nothing is read before the stream is asked for its first batch.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the scan does not fit the schema; the shard's failure if it has
    /// failed.
    pub fn scan(&self, scan: Scan) -> Result<RowStream> {
        let (schema, run) = self.run(&scan)?;
        Ok(RowStream::new(schema, self.reading.clone(), run))
    }

    /// [`Snapshot::scan`] on the caller's thread, for callers that may block it.
    ///
    /// # Errors
    /// As [`Snapshot::scan`].
    pub fn scan_blocking(&self, scan: Scan) -> Result<RowIter> {
        let (schema, run) = self.run(&scan)?;
        Ok(RowIter::new(schema, self.reading.clone(), run))
    }

    /// How many rows there are, or for how many the filter is true.
    ///
    /// # Errors
    /// As [`Snapshot::scan`].
    pub async fn count(&self, filter: Option<Expr>) -> Result<u64> {
        self.reading.status.check_readable()?;
        let scan = CheckedScan::counting(filter.as_ref(), &self.reading.spec)?;
        let mut run = Run::new(&self.view, self.seq, &self.reading.spec, scan)?;
        let permit = Arc::clone(&self.reading.gate).acquire_owned().await;
        let (reply, answer) = oneshot::channel();
        self.reading.spawn(!self.is_in_memory(), move || {
            let counted = catch_unwind(AssertUnwindSafe(|| run.count(&AtomicBool::new(false))));
            drop(permit);
            // Losing the answer is harmless: whoever asked has gone.
            let _ = reply.send(counted);
        });
        let counted = answer.await;
        self.reading.status.check_readable()?;
        match counted {
            Ok(Ok(count)) => count,
            Ok(Err(_)) | Err(_) => Err(Error::Query { detail: "a panic while counting rows".into() }),
        }
    }

    fn run(&self, scan: &Scan) -> Result<(SchemaRef, Run)> {
        self.reading.status.check_readable()?;
        let checked = scan.check(&self.reading.spec)?;
        let schema = Arc::clone(&checked.schema);
        Ok((schema, Run::new(&self.view, self.seq, &self.reading.spec, checked)?))
    }

    /// How keys are encoded; `None` while nothing was written.
    fn key_encoder(&self) -> Result<Option<&KeyEncoder>> {
        if self.reading.spec.primary_key().is_empty() {
            return Err(Error::invalid(
                "the lookup by key",
                "a shard without a primary key",
                "a shard created with one; a scan with a filter finds rows without",
            ));
        }
        Ok(self.sources.first().and_then(|bounded| bounded.source.key_encoder()))
    }

    fn newest(&self, key: &[u8]) -> Result<Option<Place>, ArrowError> {
        for (source, bounded) in self.sources.iter().enumerate() {
            if let Some(seq) = bounded.source.newest(key, self.seq)? {
                return Ok(Some(Place { source, seq }));
            }
        }
        Ok(None)
    }

    fn check_key_columns(&self, keys: &RecordBatch) -> Result<()> {
        let spec = &self.reading.spec;
        let wanted: Vec<_> = spec.primary_key().iter().filter_map(|at| spec.schema().fields().get(*at)).collect();
        let found = keys.schema_ref().fields();
        let same = wanted.len() == found.len()
            && wanted
                .iter()
                .zip(found)
                .all(|(want, have)| want.name() == have.name() && want.data_type() == have.data_type());
        let describe = |fields: &mut dyn Iterator<Item = &arrow_schema::FieldRef>| {
            fields.map(|field| format!("{} {}", field.name(), field.data_type())).collect::<Vec<_>>().join(", ")
        };
        if same {
            return Ok(());
        }
        let (found, wanted) = (describe(&mut found.iter()), describe(&mut wanted.into_iter()));
        Err(Error::invalid("the keys", format!("columns ({found})"), format!("columns ({wanted})")))
    }

    fn look_up(&self, places: impl Iterator<Item = Option<Place>>) -> Result<Lookups> {
        let places: Vec<Option<Place>> = places.collect();
        let deleted = self.deleted(&places).map_err(failed)?;
        let mut outcomes = Vec::with_capacity(places.len());
        let mut found = Vec::with_capacity(places.len());
        for place in places {
            outcomes.push(match place {
                None => Outcome::Missing,
                Some(place) if deleted.contains(&place.seq) => Outcome::Deleted,
                Some(place) => {
                    found.push(place);
                    Outcome::Found(found.len() - 1)
                }
            });
        }
        let columns: Vec<usize> = (0..self.schema().fields().len()).collect();
        let rows = fetch(&self.sources, &found, &columns, self.schema()).map_err(failed)?;
        Ok(Lookups { outcomes, rows })
    }

    /// Which of the rows are tombstones.
    fn deleted(&self, places: &[Option<Place>]) -> Result<HashSet<Seq>, ArrowError> {
        let places: Vec<Place> = places.iter().flatten().copied().collect();
        let column = [self.reading.spec.tombstone_column()];
        let schema = Arc::new(self.reading.spec.storage_schema().project(&column)?);
        let tombstones = fetch(&self.sources, &places, &column, &schema)?;
        let flags = tombstones.column(0).as_boolean();
        Ok(places.iter().enumerate().filter(|(at, _)| flags.value(*at)).map(|(_, place)| place.seq).collect())
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").field("seq", &self.seq).finish_non_exhaustive()
    }
}

/// The index knows a row that the rows do not have.
fn lost(seq: Seq) -> Error {
    Error::corrupt("rows in memory", format!("no row {seq}"), "the row that the primary key points to")
}

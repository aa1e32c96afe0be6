//! A shard of a few rows over a store with faults, for the tests of the log.

#[path = "../../tests/support/clock.rs"]
pub(crate) mod clock;
#[path = "../../tests/support/fault_store.rs"]
pub(crate) mod fault_store;

use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema};
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;

use crate::error::{Error, Result};
use crate::generations::GenerationMeta;
use crate::ids::{EntryPosition, Epoch, Nonce, Seq, SeqRange};
use crate::rows::SequencedRows;
use crate::spec::{TableSpec, ValidatedSpec};
use crate::wal::append::{AppendOutcome, Content, EntryDraft, append_entry};
use crate::wal::fence::{Claim, Sentinel, claim, write_sentinel};
use crate::wal::layout;
use crate::wal::ledger::LoggedEntry;
use crate::wal::manifest::ManifestStore;
use crate::wal::replay::{ReplayReport, ReplaySink, ReplayedEntry, replay};
use crate::wal::store::{ShardStore, WalStats};
use clock::TestClock;
use fault_store::FaultStore;

pub(crate) const SHARD: &str = "events";
pub(crate) const ATTEMPTS: u32 = 4;

/// `id: Int64 not null` as the key, `text: Utf8`.
pub(crate) fn spec() -> ValidatedSpec {
    let fields = vec![Field::new("id", DataType::Int64, false), Field::new("text", DataType::Utf8, true)];
    TableSpec::new(Arc::new(Schema::new(fields))).primary_key(["id"]).validate().expect("the spec is valid")
}

/// One put of `rows` rows whose ids are their sequence numbers.
pub(crate) fn put(first: u64, rows: u64) -> SequencedRows {
    let ids = Int64Array::from_iter_values((first..first + rows).map(|id| id as i64));
    let texts = StringArray::from_iter_values((first..first + rows).map(|id| format!("row {id}")));
    let spec = spec();
    let batch = RecordBatch::try_new(Arc::clone(spec.schema()), vec![Arc::new(ids), Arc::new(texts)]);
    let checked = spec.check_put(vec![batch.expect("the columns fit")]).expect("the put is valid");
    checked.sequenced(SeqRange::starting_at(Seq::new(first), rows))
}

/// The ids in batches of [`spec`].
pub(crate) fn ids(batches: &[RecordBatch]) -> Vec<i64> {
    batches.iter().flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

/// One process's access to the shard.
#[derive(Clone, Debug)]
pub(crate) struct Process {
    pub(crate) faults: FaultStore,
    pub(crate) clock: TestClock,
    pub(crate) store: ManifestStore,
}

impl Process {
    /// A process with a network of its own.
    pub(crate) fn over(inner: Arc<dyn ObjectStore>) -> Self {
        let faults = FaultStore::new(inner);
        let clock = TestClock::automatic();
        let store = ShardStore {
            object_store: Arc::new(faults.clone()),
            root: Path::from("root"),
            clock: Arc::new(clock.clone()),
            attempts_max: ATTEMPTS,
            retry_delay: Duration::from_millis(50),
            stats: Arc::new(WalStats::default()),
        };
        Process { faults, clock, store: ManifestStore(store) }
    }

    /// The first process of a new store.
    pub(crate) fn first() -> Self {
        Self::over(Arc::new(InMemory::new()))
    }

    /// Another process over the same store.
    pub(crate) fn beside(&self) -> Self {
        Self::over(Arc::clone(self.faults.inner()))
    }

    pub(crate) fn entry(&self, position: u64) -> Path {
        layout::entry_path(&self.store.root, EntryPosition::new(position))
    }

    pub(crate) async fn log_objects(&self) -> usize {
        self.faults.names("root/wal").await.len()
    }

    pub(crate) async fn claim(&self, nonce: u128) -> Result<Claim> {
        claim(&self.store, Some(&spec()), SHARD, Nonce::new(nonce)).await
    }

    pub(crate) async fn replay(
        &self,
        claim: &Claim,
        upto: Option<Sentinel>,
    ) -> Result<(ReplayReport, Vec<ReplayedEntry>)> {
        let mut entries = Vec::new();
        let sink = |entry| {
            entries.push(entry);
            Ok(())
        };
        let report = replay(&self.store, claim, upto, 3, &mut Sink(sink)).await?;
        Ok((report, entries))
    }

    /// Claim, sentinel, replay.
    pub(crate) async fn open(&self, nonce: u128) -> Result<Writer> {
        let claim = self.claim(nonce).await?;
        let sentinel = write_sentinel(&self.store, &claim).await?;
        let (report, entries) = self.replay(&claim, sentinel).await?;
        Ok(Writer {
            process: self.clone(),
            position: report.next_position,
            previous_crc: report.last_crc,
            next: report.next_seq,
            rows: entries.iter().flat_map(|entry| ids(&entry.batches)).collect(),
            claim,
            report,
        })
    }
}

/// An open shard that appends.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) process: Process,
    pub(crate) claim: Claim,
    pub(crate) report: ReplayReport,
    /// The ids that were replayed.
    pub(crate) rows: Vec<i64>,
    pub(crate) position: EntryPosition,
    pub(crate) previous_crc: u32,
    pub(crate) next: Seq,
}

impl Writer {
    pub(crate) fn draft(&self, content: Content) -> EntryDraft {
        EntryDraft {
            shard: SHARD.into(),
            epoch: self.claim.epoch,
            nonce: self.claim.nonce,
            position: self.position,
            previous_crc: self.previous_crc,
            schema: Arc::clone(self.claim.spec.storage_schema()),
            content,
        }
    }

    pub(crate) async fn outcome(&self, content: Content) -> AppendOutcome {
        append_entry(&self.process.store, self.draft(content)).await
    }

    /// Appends one entry with puts of these sizes and keeps up.
    pub(crate) async fn append(&mut self, sizes: &[u64]) -> Result<()> {
        let mut next = self.next;
        let puts = sizes.iter().map(|rows| {
            let first = next;
            next = next.plus(*rows);
            put(first.get(), *rows)
        });
        let content = Content::Rows(puts.collect());
        match self.outcome(content).await {
            AppendOutcome::Written { position, crc, .. } => {
                (self.position, self.previous_crc, self.next) = (position.next(), crc, next);
                Ok(())
            }
            AppendOutcome::Fenced { by } => Err(Error::Fenced { ours: self.claim.epoch, by }),
            AppendOutcome::Failed(error) => Err(error),
        }
    }
}

/// The epoch an error says has taken over.
pub(crate) fn fenced_by(error: &Error) -> Option<Epoch> {
    match error {
        Error::Fenced { by, .. } => Some(*by),
        _ => None,
    }
}

/// The object an error calls corrupt.
pub(crate) fn corrupt_object(error: &Error) -> Option<&str> {
    match error {
        Error::Corrupt { object, .. } => Some(object),
        _ => None,
    }
}

/// A replay's sink that only looks at rows.
pub(crate) struct Sink<F>(pub(crate) F);

impl<F: FnMut(ReplayedEntry) -> Result<()> + Send> ReplaySink for Sink<F> {
    fn logged(&mut self, _: LoggedEntry) {}

    async fn apply(&mut self, entry: ReplayedEntry) -> Result<()> {
        (self.0)(entry)
    }
}

/// A generation of these rows, as a manifest has it. Its files are nowhere.
pub(crate) fn generation_meta(first: u64, end: u64) -> GenerationMeta {
    GenerationMeta {
        format_version: 1,
        capabilities: Vec::new(),
        folder: format!("{first}-{end}"),
        first: Seq::new(first),
        end: Seq::new(end),
        rows: Default::default(),
        indexes: Default::default(),
    }
}

//! [`Engine`]: the handle most callers use. It holds addresses and receiving halves, and no
//! state of its own.

use std::sync::Arc;
use std::time::Duration;

use actix::{Addr, Handler, Message};
use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::actors::bootstrap;
use crate::actors::herald::Herald;
use crate::actors::lifecycle::ShardState;
use crate::actors::reader::{Get, GetMany, Reader, RunScan, TakeSnapshot};
use crate::actors::topology::Shard;
use crate::actors::wal_appender::{Append, Drain, Flush, Receipt, WalAppender};
use crate::admission::{Admission, Admitted};
use crate::config::{Components, Settings};
use crate::cursors::{Cursors, ReadLevel};
use crate::error::Result;
use crate::ids::{Seq, SeqRange};
use crate::query::{Lookup, Lookups, RowStream, Scan, Snapshot};
use crate::spec::{TableSpec, ValidatedSpec};
use crate::stats::Stats;
use crate::store_url::Store;
use crate::value::Key;

/// An open shard.
///
/// Cloning is cheap, and every clone may be used from any runtime or plain thread: the shard's
/// actors run on threads of their own. Dropping the last clone without [`Engine::close`] loses
/// nothing that was acknowledged (C3).
///
/// ```
/// use std::sync::Arc;
/// use arrow_array::{Int64Array, RecordBatch, StringArray};
/// use arrow_schema::{DataType, Field, Schema};
/// use tidewal::{Engine, Scan, Store, TableSpec};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> tidewal::Result<()> {
/// let schema = Arc::new(Schema::new(vec![
///     Field::new("id", DataType::Int64, false),
///     Field::new("text", DataType::Utf8, true),
/// ]));
/// let spec = TableSpec::new(Arc::clone(&schema)).primary_key(["id"]);
/// let engine = Engine::builder(Store::memory()).spec(spec).open().await?;
///
/// let rows = RecordBatch::try_new(
///     schema,
///     vec![Arc::new(Int64Array::from(vec![1, 2])), Arc::new(StringArray::from(vec!["one", "two"]))],
/// ).expect("columns as the schema declares them");
/// engine.put(rows).await?; // durable, indexed and visible from here on
///
/// assert!(engine.get(2).await?.row().is_some());
/// let found = engine.scan(Scan::new().filter_sql("text LIKE 'o%'")?).await?.collect_all().await?;
/// assert_eq!(found.num_rows(), 1);
/// engine.close().await
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Engine {
    shard: Arc<Handle>,
}

/// What the clones of an engine share. Its drop is the last one's.
#[derive(Debug)]
struct Handle(Shard);

impl Drop for Handle {
    fn drop(&mut self) {
        // C3: what was taken is made durable behind the caller's back. Later closes find it done.
        if self.0.status.begin_closing() {
            self.0.drain.tell(Drain);
        }
    }
}

/// The addresses of a shard's actors, for embedders that speak messages.
///
/// Whoever holds them keeps the shard's threads, also after the shard has ended: let go of them
/// with the last engine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Addresses {
    /// Checks rows and reserves memory for them: makes what [`Append`] takes.
    pub admission: Admission,
    /// Takes [`Append`].
    pub wal_appender: Addr<WalAppender>,
    /// Takes [`TakeSnapshot`], [`Get`], [`GetMany`] and [`RunScan`].
    pub reader: Addr<Reader>,
    /// Takes [`Subscribe`](crate::actors::herald::Subscribe).
    pub herald: Addr<Herald>,
    /// How far the shard is.
    pub cursors: Cursors,
}

/// What a shard is opened with.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    pub(crate) store: Store,
    pub(crate) spec: Option<TableSpec>,
    pub(crate) settings: Settings,
    pub(crate) components: Components,
}

impl EngineBuilder {
    /// The shard's schema, key and indexes. Needed to create a shard; an existing one opens
    /// without, and refuses one that disagrees (O8).
    #[must_use]
    pub fn spec(mut self, spec: TableSpec) -> Self {
        self.spec = Some(spec);
        self
    }

    /// How the shard behaves.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Clock, randomness and CPU pool other than the machine's.
    #[must_use]
    pub fn components(mut self, components: Components) -> Self {
        self.components = components;
        self
    }

    /// Opens the shard: claims it for this writer, fences whoever had it, and replays the log.
    ///
    /// # Errors
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) before anything is touched; [`Error::Fenced`](crate::Error::Fenced) if another opener
    /// was faster; [`Error::Corrupt`](crate::Error::Corrupt) and [`Error::Io`](crate::Error::Io) from reading the store. A failed open
    /// leaves a shard that the next open opens (O9).
    pub async fn open(self) -> Result<Engine> {
        let shard = bootstrap::open(self).await?;
        Ok(Engine { shard: Arc::new(Handle(shard)) })
    }
}

impl Engine {
    /// Begins opening the shard that lives in this store.
    pub fn builder(store: Store) -> EngineBuilder {
        EngineBuilder { store, spec: None, settings: Settings::default(), components: Components::default() }
    }

    /// Writes rows, and resolves when they are acknowledged: indexed, and durable too in durable
    /// mode (P4). Every read begun after that sees them (P5).
    ///
    /// All rows of the batch become visible in one step. Dropping the future does not undo a
    /// put that has its `Seq` (P7).
    ///
    /// # Errors
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) and [`Error::Backpressure`](crate::Error::Backpressure): nothing was written. Anything else:
    /// the shard is finished, and the rows may or may not be found when it is opened again.
    pub async fn put(&self, rows: RecordBatch) -> Result<SeqRange> {
        self.put_all(vec![rows]).await
    }

    /// [`Engine::put`] for several batches, which become visible in one step.
    ///
    /// # Errors
    /// As [`Engine::put`].
    pub async fn put_all(&self, rows: Vec<RecordBatch>) -> Result<SeqRange> {
        self.put_no_wait(rows).await?.visible().await
    }

    /// Writes rows, and resolves when their place in the order of writes is known. The receipt
    /// waits for more.
    ///
    /// # Errors
    /// As [`Engine::put`].
    #[tracing::instrument(level = "debug", name = "put", skip_all)]
    pub async fn put_no_wait(&self, rows: Vec<RecordBatch>) -> Result<Receipt> {
        let admitted = self.shard.0.admission.put(rows).await?;
        self.append(admitted).await
    }

    /// Deletes the rows with these keys (a batch of the primary-key columns), and resolves as
    /// [`Engine::put`] does. Keys that do not exist are no error.
    ///
    /// # Errors
    /// As [`Engine::put`]; a shard without a primary key has no deletes.
    pub async fn delete(&self, keys: &RecordBatch) -> Result<SeqRange> {
        self.delete_no_wait(keys).await?.visible().await
    }

    /// [`Engine::delete`] that does not wait, as [`Engine::put_no_wait`].
    ///
    /// # Errors
    /// As [`Engine::delete`].
    #[tracing::instrument(level = "debug", name = "delete", skip_all)]
    pub async fn delete_no_wait(&self, keys: &RecordBatch) -> Result<Receipt> {
        let admitted = self.shard.0.admission.delete(keys).await?;
        self.append(admitted).await
    }

    async fn append(&self, rows: Admitted) -> Result<Receipt> {
        let (message, sequenced) = Append::new(rows);
        self.shard.0.append.tell(message);
        sequenced.receipt(&self.shard.0.cursors).await
    }

    /// Writes out as generations every row that has its sequence number, and resolves when they are
    /// committed: an open replays only what came after. Gives the end of these rows.
    ///
    /// A shard does this by itself when a memtable is full, and when it is closed.
    ///
    /// # Errors
    /// What the shard failed with, or [`Error::Closed`](crate::Error::Closed).
    pub async fn flush(&self) -> Result<Seq> {
        let end = match self.shard.0.wal_appender.send(Flush).await {
            Ok(end) => end?,
            Err(_) => return Err(self.shard.0.status.reason_for_silence().await),
        };
        self.cursors().wait_flushed(end).await.map(|()| end)
    }

    /// Looks up one key among the rows acknowledged so far.
    ///
    /// # Errors
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) for a key that does not fit the primary key, or a shard without
    /// one; why the shard does not answer.
    pub async fn get(&self, key: impl Into<Key>) -> Result<Lookup> {
        self.ask(Get::new(key)).await
    }

    /// Looks up many keys in one snapshot; the answers keep the order of the keys.
    ///
    /// # Errors
    /// As [`Engine::get`].
    pub async fn get_many(&self, keys: Vec<Key>) -> Result<Lookups> {
        self.ask(GetMany { keys, level: ReadLevel::Visible }).await
    }

    /// Scans the rows acknowledged so far.
    ///
    /// # Errors
    /// [`Error::InvalidInput`](crate::Error::InvalidInput) for a scan that does not fit the schema; why the shard does not
    /// answer.
    pub async fn scan(&self, scan: Scan) -> Result<RowStream> {
        self.ask(RunScan { scan, level: ReadLevel::Visible }).await
    }

    /// Takes a snapshot of the rows acknowledged so far: a value that never changes (V4).
    ///
    /// # Errors
    /// Why the shard does not answer.
    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.snapshot_with(TakeSnapshot::default()).await
    }

    /// Takes a snapshot as of a sequence number: it sees the rows below (Q5). The end of a
    /// put's range shows the whole put; a number inside the range shows a part of it.
    ///
    /// # Errors
    /// [`Error::SeqNotHeld`](crate::Error::SeqNotHeld); why the shard does not answer.
    pub async fn snapshot_as_of(&self, seq: Seq) -> Result<Snapshot> {
        self.snapshot_with(TakeSnapshot { as_of: Some(seq), ..TakeSnapshot::default() }).await
    }

    /// Takes a snapshot at a read level, newest or as of a sequence number.
    ///
    /// # Errors
    /// As [`Engine::snapshot_as_of`].
    pub async fn snapshot_with(&self, request: TakeSnapshot) -> Result<Snapshot> {
        self.ask(request).await
    }

    /// A Reader that is gone has a reason, and the reason is the answer.
    async fn ask<M, T>(&self, message: M) -> Result<T>
    where
        M: Message<Result = Result<T>> + Send + 'static,
        T: Send + 'static,
        Reader: Handler<M>,
    {
        match self.shard.0.reader.send(message).await {
            Ok(answer) => answer,
            Err(_) => Err(self.shard.0.status.reason_for_silence().await),
        }
    }

    /// How far the shard is, and the means to wait for more.
    pub fn cursors(&self) -> &Cursors {
        &self.shard.0.cursors
    }

    /// What the shard stores.
    pub fn spec(&self) -> &Arc<ValidatedSpec> {
        &self.shard.0.spec
    }

    /// The caller's schema.
    pub fn schema(&self) -> &SchemaRef {
        self.spec().schema()
    }

    /// Where in its life the shard is. Answers always.
    pub fn state(&self) -> ShardState {
        self.shard.0.status.state()
    }

    /// What the shard has done and holds. Answers always, after a failure too (Z3).
    pub fn stats(&self) -> Stats {
        self.shard.0.stats()
    }

    /// The actors' addresses.
    pub fn addresses(&self) -> Addresses {
        let shard = &self.shard.0;
        Addresses {
            admission: shard.admission.clone(),
            wal_appender: shard.wal_appender.clone(),
            reader: shard.reader.clone(),
            herald: shard.herald.clone(),
            cursors: shard.cursors.clone(),
        }
    }

    /// Takes no more puts, makes everything taken durable and indexed, and ends the shard's
    /// life. May be called again, also at once by several (C1, C2).
    ///
    /// # Errors
    /// The first failure, if the shard failed before or while it was closed;
    /// [`Error::Closed`](crate::Error::Closed) if it was aborted while it was being closed, so that
    /// what was taken and not acknowledged may be lost.
    pub async fn close(&self) -> Result<()> {
        let shard = &self.shard.0;
        let has_ended = matches!(shard.status.state(), ShardState::Failed(_) | ShardState::Closed);
        if shard.status.begin_closing() {
            shard.drain.tell(Drain);
        }
        shard.status.ended().await?;
        if has_ended { Ok(()) } else { shard.status.check_drained() }
    }

    /// Ends the shard's life at once, without I/O. What was acknowledged as durable is in the
    /// log; whoever still waits gets [`Error::Closed`](crate::Error::Closed) (C2).
    pub fn abort(&self) {
        self.shard.0.status.closed();
    }
}

impl Shard {
    fn stats(&self) -> Stats {
        use crate::stats::Counters;
        let counters = &self.counters;
        let nanos = |counter| Duration::from_nanos(Counters::get(counter));
        Stats {
            epoch: self.epoch,
            durable: self.cursors.durable(),
            indexed: self.cursors.indexed(),
            visible: self.cursors.visible(),
            bytes_held: self.budget.held(),
            bytes_max: self.budget.bytes_max(),
            row_bytes: Counters::get(&counters.row_bytes),
            index_bytes: Counters::get(&counters.index_bytes),
            puts: Counters::get(&counters.puts),
            rows_put: Counters::get(&counters.rows_put),
            puts_waited: Counters::get(&counters.puts_waited),
            put_wait: nanos(&counters.put_wait_nanos),
            puts_refused: Counters::get(&counters.puts_refused),
            puts_unlogged: Counters::get(&counters.puts_unlogged),
            entries_written: Counters::get(&counters.entries_written),
            entry_bytes: Counters::get(&counters.entry_bytes),
            append_time: nanos(&counters.append_nanos),
            append_retries: self.wal_stats.entry_puts_retried.get(),
            appends_resolved: self.wal_stats.ambiguous_outcomes_resolved.get(),
            applies: Counters::get(&counters.applies),
            applies_parallel: Counters::get(&counters.applies_parallel),
            rows_applied: Counters::get(&counters.rows_applied),
            apply_time: nanos(&counters.apply_nanos),
            applies_queued: Counters::get(&counters.applies_queued),
            snapshots: Counters::get(&counters.snapshots),
            lookups: Counters::get(&counters.lookups),
            scans: Counters::get(&counters.scans),
            flushed: self.cursors.flushed(),
            generations: Counters::get(&counters.generations),
            generations_committed: Counters::get(&counters.generations_committed),
            generation_bytes: Counters::get(&counters.generation_bytes),
            freeze_time: nanos(&counters.freeze_nanos),
            freeze_retries: Counters::get(&counters.freeze_retries),
            memtables_sealed: Counters::get(&counters.memtables_sealed),
            log_entries_held: Counters::get(&counters.log_entries_held),
            log_garbage: Counters::get(&counters.log_garbage),
            entries_deleted: Counters::get(&counters.entries_deleted),
            orphans_deleted: Counters::get(&counters.orphans_deleted),
            cache_bytes: self.cache.bytes(),
            generation_reads: Counters::get(&self.read_stats.reads),
            generation_bytes_read: Counters::get(&self.read_stats.bytes_read),
            zones_pruned: Counters::get(&self.read_stats.zones_pruned),
            seeds_unusable: Counters::get(&self.read_stats.seeds_unusable),
            sections_rebuilt: Counters::get(&self.read_stats.sections_rebuilt),
            entries_replayed: Counters::get(&counters.entries_replayed),
            rows_replayed: Counters::get(&counters.rows_replayed),
            replay_time: nanos(&counters.replay_nanos),
            torn_tail: self.torn_tail.clone(),
        }
    }
}

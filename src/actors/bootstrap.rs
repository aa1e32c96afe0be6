//! How a shard is born: validate, claim, fence, replay, and only then start the actors, in that
//! order (`ARCHITECTURE.md`, "the life of an open").

use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use tokio::runtime;

use crate::actors::freezer::{Built, Writing};
use crate::actors::host::Host;
use crate::actors::topology::{Shard, start_shard};
use crate::actors::wal_appender::{LogTip, WriterIdentity};
use crate::admission::{Budget, Permit};
use crate::config::{Components, Entropy, Settings};
use crate::engine::EngineBuilder;
use crate::error::{Error, Failure, Operation, Result};
use crate::generations::{BlockCache, FileAccess, Generation, Indexes, ReadStats, Sealed, folder_name};
use crate::ids::{Epoch, Nonce, Seq, SeqRange};
use crate::memtable::{self, MemtableReader, MemtableWriter};
use crate::rows::SequencedRows;
use crate::spec::ValidatedSpec;
use crate::stats::Counters;
use crate::store_url::Store;
use crate::wal::fence;
use crate::wal::ledger::{LogLedger, LoggedEntry};
use crate::wal::manifest::{Manifest, ManifestAnswer, ManifestStore};
use crate::wal::replay::{ReplayReport, ReplaySink, ReplayedEntry, replay};
use crate::wal::store::{ShardStore, WalStats};

/// What the open found in the store, ready for the actors to go on from.
pub(crate) struct Recovered {
    pub(crate) spec: Arc<ValidatedSpec>,
    pub(crate) identity: WriterIdentity,
    pub(crate) shard_store: ShardStore,
    pub(crate) memtable: MemtableWriter,
    pub(crate) reader: MemtableReader,
    pub(crate) tip: LogTip,
    /// The `Seq` of the next row. Everything below is durable and indexed already, and is
    /// neither appended nor indexed again (W4).
    pub(crate) next: Seq,
    pub(crate) budget: Arc<Budget>,
    pub(crate) held: Permit,
    pub(crate) counters: Arc<Counters>,
    pub(crate) torn_tail: Option<String>,
    /// The manifest as of the last commit, and what it lists, oldest first.
    pub(crate) manifest: Manifest,
    pub(crate) generations: Vec<Arc<Generation>>,
    /// The log's entries that are not released.
    pub(crate) ledger: LogLedger,
    pub(crate) writing: Writing,
}

/// Opens a shard.
pub(crate) async fn open(builder: EngineBuilder) -> Result<Shard> {
    let EngineBuilder { store, spec, settings, components } = builder;
    // An open that cannot succeed touches nothing and fences nobody (O5).
    settings.validate()?;
    let wanted = spec.map(|spec| spec.validate()).transpose()?;
    let host = Host::start()?;
    let recovery = Recovery {
        store: store.clone(),
        wanted,
        settings: settings.clone(),
        components: components.clone(),
        io: host.io(),
    };
    // On the shard's own I/O threads, so that it goes on whatever runtime the caller has.
    let recovered = host.io().spawn(recovery.run()).await;
    let recovered = recovered
        .map_err(|error| Error::Failed(Failure::ActorDied { actor: "opening", panicked: error.is_panic() }))??;
    Ok(start_shard(recovered, &settings, &components, &store, host))
}

struct Recovery {
    store: Store,
    wanted: Option<ValidatedSpec>,
    settings: Settings,
    components: Components,
    io: runtime::Handle,
}

impl Recovery {
    async fn run(self) -> Result<Recovered> {
        let shard_store = self.shard_store();
        let manifests = ManifestStore(shard_store.clone());
        let nonce = Nonce::new(self.components.entropy.draw());
        // The name a new shard gets; an existing one keeps its own.
        let new_name = Nonce::new(self.components.entropy.draw()).to_string();
        let claim = fence::claim(&manifests, self.wanted.as_ref(), &new_name, nonce).await?;
        let sentinel = fence::write_sentinel(&manifests, &claim).await?;

        let spec = Arc::new(claim.spec.clone());
        let writing = self.writing(&spec, &shard_store)?;
        let generations = open_generations(&claim.manifest, &writing).await?;
        let first = claim.manifest.flushed;
        let (memtable, reader) = memtable::new(&spec, first, &self.components.cpu_pool)?;
        let budget = Budget::new(self.settings.unflushed_bytes_max);
        let mut replayed = Replayed {
            held: budget.charge_recovered(memtable::EMPTY_BYTES),
            memtable,
            reader,
            budget: Arc::clone(&budget),
            settings: self.settings.clone(),
            components: self.components.clone(),
            manifests,
            manifest: claim.manifest.clone(),
            generations,
            ledger: LogLedger::default(),
            writing,
        };
        let started = self.components.clock.now();
        let report = replay(&shard_store, &claim, sentinel, self.settings.replay_prefetch, &mut replayed).await?;
        let counters = Arc::new(Counters::default());
        let took = self.components.clock.now().saturating_sub(started);
        self.report(&report, took, &counters);

        let bytes = replayed.memtable.bytes();
        Counters::set(&counters.row_bytes, bytes.rows);
        Counters::set(&counters.index_bytes, bytes.indexes);
        Counters::set(&counters.generations, replayed.generations.len() as u64);
        Ok(Recovered {
            identity: WriterIdentity {
                shard: Arc::from(claim.manifest.shard.as_str()),
                epoch: claim.epoch,
                nonce: claim.nonce,
                schema: Arc::clone(spec.storage_schema()),
            },
            spec,
            shard_store,
            memtable: replayed.memtable,
            reader: replayed.reader,
            tip: LogTip { next_position: report.next_position, crc: report.last_crc },
            next: report.next_seq,
            budget,
            held: replayed.held,
            counters,
            torn_tail: report.torn_tail,
            manifest: replayed.manifest,
            generations: replayed.generations,
            ledger: replayed.ledger,
            writing: replayed.writing,
        })
    }

    fn writing(&self, spec: &Arc<ValidatedSpec>, store: &ShardStore) -> Result<Writing> {
        let access = FileAccess {
            store: store.clone(),
            io: self.io.clone(),
            cache: BlockCache::new(self.settings.cache_bytes_max),
            stats: Arc::new(ReadStats::default()),
        };
        let indexes = Arc::new(Indexes::of(spec)?);
        Ok(Writing { spec: Arc::clone(spec), indexes, access, cpu_pool: Arc::clone(&self.components.cpu_pool) })
    }

    fn shard_store(&self) -> ShardStore {
        ShardStore {
            object_store: Arc::clone(self.store.object_store()),
            root: self.store.root().clone(),
            clock: Arc::clone(&self.components.clock),
            attempts_max: self.settings.store_attempts_max,
            retry_delay: self.settings.store_retry_delay,
            stats: Arc::new(WalStats::default()),
        }
    }

    fn report(&self, report: &ReplayReport, took: std::time::Duration, counters: &Counters) {
        Counters::set(&counters.entries_replayed, report.entries);
        Counters::set(&counters.rows_replayed, report.rows);
        Counters::set(&counters.replay_nanos, took.as_nanos() as u64);
        tracing::info!(entries = report.entries, rows = report.rows, bytes = report.bytes, ?took, "replayed the log");
    }
}

/// What a put may be charged beside its rows and keys when it is charged alone: an upper bound.
const PUT_BYTES: u64 = 1024;
/// Generations opened at once.
const OPENS_MAX: usize = 16;

/// Opens what the manifest lists, several at once.
async fn open_generations(manifest: &Manifest, writing: &Writing) -> Result<Vec<Arc<Generation>>> {
    let opened = futures::stream::iter(manifest.generations.clone()).map(|meta| {
        let Writing { spec, indexes, access, .. } = writing.clone();
        elsewhere(&writing.access.io, move || Generation::open(&meta, &spec, &indexes, &access).map(Arc::new))
    });
    opened.buffered(OPENS_MAX).try_collect().await
}

/// Runs what waits for the store on a thread that may.
async fn elsewhere<T: Send + 'static>(
    io: &runtime::Handle,
    run: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let died = |error: tokio::task::JoinError| {
        Error::Failed(Failure::ActorDied { actor: "opening", panicked: error.is_panic() })
    };
    io.spawn_blocking(run).await.map_err(died)?
}

/// The memtable that replay fills, and the generations it becomes where the log is longer than one
/// (F6): with the rule of sealing that live writes have.
struct Replayed {
    memtable: MemtableWriter,
    reader: MemtableReader,
    held: Permit,
    budget: Arc<Budget>,
    settings: Settings,
    components: Components,
    manifests: ManifestStore,
    manifest: Manifest,
    generations: Vec<Arc<Generation>>,
    ledger: LogLedger,
    writing: Writing,
}

impl ReplaySink for Replayed {
    fn logged(&mut self, entry: LoggedEntry) {
        self.ledger.push(entry);
    }

    async fn apply(&mut self, entry: ReplayedEntry) -> Result<()> {
        // An entry that fits as a whole need not be taken apart into its puts.
        let puts = entry.puts.len() as u64;
        let rows = entry.clone().into_rows();
        let charge = memtable::charge(&self.writing.spec, &rows).saturating_add(puts * PUT_BYTES);
        if !self.memtable.is_full(self.settings.memtable_bytes_max, charge) {
            return self.apply_rows(&rows);
        }
        for put in entry.into_puts() {
            let charge = memtable::charge(&self.writing.spec, &put);
            if self.memtable.is_full(self.settings.memtable_bytes_max, charge) {
                self.freeze().await?;
            }
            self.apply_rows(&put)?;
        }
        Ok(())
    }
}

impl Replayed {
    fn apply_rows(&mut self, rows: &SequencedRows) -> Result<()> {
        let charge = memtable::charge(&self.writing.spec, rows);
        self.held.absorb(self.budget.charge_recovered(charge));
        let applied = if rows.range.rows() <= self.settings.inline_apply_rows_max {
            self.memtable.apply(rows)
        } else {
            self.memtable.apply_parallel(rows, self.components.cpu_pool.as_ref())
        };
        applied.map_err(|failure| failure.to_error())
    }

    /// Writes the memtable out and begins a new one. Replay waits for it, so that memory stays near
    /// one memtable however long the log is.
    async fn freeze(&mut self) -> Result<()> {
        let range = SeqRange::between(self.memtable.first(), self.memtable.end());
        let (writer, reader) = memtable::new(&self.writing.spec, range.end(), &self.components.cpu_pool)?;
        let row_bytes = self.memtable.bytes().rows;
        self.memtable = writer;
        let sealed = Sealed { memtable: std::mem::replace(&mut self.reader, reader), range, row_bytes };
        let naming = Naming { epoch: self.manifest.epoch, entropy: Arc::clone(&self.components.entropy) };
        let built = build(self.writing.clone(), naming, &sealed).await?;
        drop(sealed);
        let release = self.ledger.released_by(range.end());
        let next = self.manifest.with_generation(built.meta, &release);
        match self.manifests.create(&next).await? {
            ManifestAnswer::Created => {}
            ManifestAnswer::AlreadyExists(theirs) => {
                return Err(Error::Fenced { ours: self.manifest.epoch, by: theirs.epoch });
            }
        }
        tracing::info!(%range, version = %next.version, "committed a generation while replaying the log");
        self.manifest = next;
        self.ledger.drop_released(range.end());
        self.generations.push(built.generation);
        self.held = self.budget.charge_recovered(memtable::EMPTY_BYTES);
        Ok(())
    }
}

/// What the folders of attempts are named by.
struct Naming {
    epoch: Epoch,
    entropy: Arc<dyn Entropy>,
}

async fn build(writing: Writing, naming: Naming, sealed: &Sealed) -> Result<Built> {
    let store = writing.access.store.clone();
    let mut attempt = 1;
    loop {
        let folder = folder_name(sealed.range, naming.epoch, Nonce::new(naming.entropy.draw()));
        let object = folder.clone();
        let (writer, sealed) = (writing.clone(), sealed.clone());
        let error = match elsewhere(&writing.access.io, move || writer.write(&sealed, folder)).await {
            Ok(built) => return Ok(built),
            Err(error) if attempt >= store.attempts_max => return Err(error),
            Err(error) => error,
        };
        store.pause(Operation::WriteGeneration, &object.into(), attempt, &error).await;
        attempt += 1;
    }
}

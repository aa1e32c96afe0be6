//! How a shard is born: validate, claim, fence, replay, and only then start the actors, in that
//! order (`ARCHITECTURE.md`, "the life of an open").

use std::sync::Arc;

use crate::actors::host::Host;
use crate::actors::topology::{Shard, start_shard};
use crate::actors::wal_appender::{LogTip, WriterIdentity};
use crate::admission::{Budget, Permit};
use crate::config::{Components, Settings};
use crate::engine::EngineBuilder;
use crate::error::{Error, Failure, Result};
use crate::ids::{Nonce, Seq};
use crate::memtable::{self, MemtableReader, MemtableWriter};
use crate::rows::SequencedRows;
use crate::spec::ValidatedSpec;
use crate::stats::Counters;
use crate::store_url::Store;
use crate::wal::fence;
use crate::wal::manifest::ManifestStore;
use crate::wal::replay::{ReplayReport, replay};
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
}

/// Opens a shard.
pub(crate) async fn open(builder: EngineBuilder) -> Result<Shard> {
    let EngineBuilder { store, spec, settings, components } = builder;
    // An open that cannot succeed touches nothing and fences nobody (O5).
    settings.validate()?;
    let wanted = spec.map(|spec| spec.validate()).transpose()?;
    let host = Host::start()?;
    let recovery =
        Recovery { store: store.clone(), wanted, settings: settings.clone(), components: components.clone() };
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
        let first = claim.manifest.flushed;
        let (memtable, reader) = memtable::new(&spec, first, &self.components.cpu_pool)?;
        let budget = Budget::new(self.settings.unflushed_bytes_max);
        let mut replayed = Replayed {
            held: budget.charge_recovered(memtable::EMPTY_BYTES),
            memtable,
            spec: Arc::clone(&spec),
            budget: Arc::clone(&budget),
            settings: self.settings.clone(),
            components: self.components.clone(),
        };
        let started = self.components.clock.now();
        let report = replay(&shard_store, &claim, sentinel, self.settings.replay_prefetch, |entry| {
            replayed.apply(&entry.into_rows())
        })
        .await?;
        let counters = Arc::new(Counters::default());
        let took = self.components.clock.now().saturating_sub(started);
        self.report(&report, took, &counters);

        let bytes = replayed.memtable.bytes();
        Counters::set(&counters.row_bytes, bytes.rows);
        Counters::set(&counters.index_bytes, bytes.indexes);
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
            reader,
            tip: LogTip { next_position: report.next_position, crc: report.last_crc },
            next: report.next_seq,
            budget,
            held: replayed.held,
            counters,
            torn_tail: report.torn_tail,
        })
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

/// The memtable that replay fills.
struct Replayed {
    memtable: MemtableWriter,
    held: Permit,
    spec: Arc<ValidatedSpec>,
    budget: Arc<Budget>,
    settings: Settings,
    components: Components,
}

impl Replayed {
    fn apply(&mut self, rows: &SequencedRows) -> Result<()> {
        self.held.absorb(self.budget.charge_recovered(memtable::charge(&self.spec, rows)));
        let applied = if rows.range.rows() <= self.settings.inline_apply_rows_max {
            self.memtable.apply(rows)
        } else {
            self.memtable.apply_parallel(rows, self.components.cpu_pool.as_ref())
        };
        applied.map_err(|failure| failure.to_error())
    }
}

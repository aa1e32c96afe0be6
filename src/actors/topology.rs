//! Wires the actors of one shard, last stage first: each is built only from addresses that
//! exist.

use std::sync::Arc;

use actix::{Actor, Addr, Context};
use actix_rt::ArbiterHandle;

use crate::actors::bootstrap::Recovered;
use crate::actors::collector::Collector;
use crate::actors::edge::Edge;
use crate::actors::freezer::{self, Freezer};
use crate::actors::herald::Herald;
use crate::actors::host::Host;
use crate::actors::index_applier::{self, IndexApplier};
use crate::actors::lifecycle::Status;
use crate::actors::reader::{self, Reader};
use crate::actors::wal_appender::{self, Append, Drain, WalAppender};
use crate::admission::{Admission, Budget};
use crate::config::{Components, Settings};
use crate::cursors::{CursorOwner, Cursors};
use crate::generations::{BlockCache, ReadStats};
use crate::ids::Epoch;
use crate::query::{Source, View};
use crate::spec::ValidatedSpec;
use crate::stats::Counters;
use crate::store_url::Store;
use crate::wal::store::WalStats;

/// The running actors of one shard, and what its handles share.
pub(crate) struct Shard {
    pub(crate) epoch: Epoch,
    pub(crate) spec: Arc<ValidatedSpec>,
    pub(crate) status: Arc<Status>,
    pub(crate) cursors: Cursors,
    pub(crate) admission: Admission,
    pub(crate) budget: Arc<Budget>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) wal_stats: Arc<WalStats>,
    pub(crate) cache: BlockCache,
    pub(crate) read_stats: Arc<ReadStats>,
    pub(crate) torn_tail: Option<String>,
    pub(crate) append: Edge<Append>,
    pub(crate) drain: Edge<Drain>,
    pub(crate) wal_appender: Addr<WalAppender>,
    pub(crate) reader: Addr<Reader>,
    pub(crate) herald: Addr<Herald>,
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (epoch, state) = (self.epoch, self.status.state());
        f.debug_struct("Shard").field("epoch", &epoch).field("state", &state).finish_non_exhaustive()
    }
}

/// Starts an actor on an arbiter of the host.
fn start<A: Actor<Context = Context<A>> + Send>(actor: A, arbiter: &ArbiterHandle) -> Addr<A> {
    A::start_in_arbiter(arbiter, |_| actor)
}

/// Starts the actors from what the open recovered.
///
/// WalAppender and IndexApplier share an arbiter: a hop between threads costs about 18 us, one
/// within an arbiter 0.4, and every put takes it. Queries have an arbiter of their own.
pub(crate) fn start_shard(
    recovered: Recovered,
    settings: &Settings,
    components: &Components,
    store: &Store,
    host: Arc<Host>,
) -> Shard {
    let Recovered {
        spec, identity, shard_store, memtable, reader, tip, next, budget, held, counters, torn_tail, ..
    } = recovered;
    let Recovered { generations, manifest, ledger, writing, .. } = recovered;
    let (cache, read_stats) = (writing.access.cache.clone(), Arc::clone(&writing.access.stats));
    let status = Status::running();
    let (durable, durable_seen) = CursorOwner::new(next);
    let (indexed, indexed_seen) = CursorOwner::new(next);
    let (flushed, flushed_seen) = CursorOwner::new(manifest.flushed);
    let cursors = Cursors::new(durable_seen, indexed_seen, flushed_seen, settings.durable_writes, Arc::clone(&status));
    let (memtable_opened, opened) = std::sync::mpsc::channel();
    let memory: Arc<dyn Source> = Arc::new(reader.clone());
    let stored = generations.into_iter().rev().map(|generation| generation as Arc<dyn Source>);

    let active = reader;
    let reader = reader::Parts {
        status: Arc::clone(&status),
        cursors: cursors.clone(),
        view: View::of(std::iter::once(memory).chain(stored).collect()),
        opened,
        spec: Arc::clone(&spec),
        cpu_pool: Arc::clone(&components.cpu_pool),
        counters: Arc::clone(&counters),
        host: Arc::clone(&host),
    };
    let reader = start(Reader::new(reader, settings), &host.read_arbiter());

    let collector =
        Collector::new(&status, shard_store.clone(), manifest.clone(), Arc::clone(&counters), Arc::clone(&host));
    let collector = start(collector, &host.read_arbiter());

    let (events, happened) = tokio::sync::mpsc::unbounded_channel();
    let freezer = freezer::Parts {
        status: Arc::clone(&status),
        flushed,
        to_reader: Edge::to(&reader, "Reader", &status),
        to_collector: Edge::to(&collector, "Collector", &status),
        to_sweeper: Edge::to(&collector, "Collector", &status),
        events,
        manifest,
        ledger,
        durable: next,
        writing,
        clock: Arc::clone(&components.clock),
        entropy: Arc::clone(&components.entropy),
        counters: Arc::clone(&counters),
        host: Arc::clone(&host),
    };
    let freezer = start(Freezer::new(freezer, settings), &host.read_arbiter());

    let applier = index_applier::Parts {
        status: Arc::clone(&status),
        indexed,
        memtable,
        reader: active,
        held,
        opened: memtable_opened,
        to_freezer: Edge::to(&freezer, "Freezer", &status),
        to_freezer_drain: Edge::to(&freezer, "Freezer", &status),
        spec: Arc::clone(&spec),
        budget: Arc::clone(&budget),
        cpu_pool: Arc::clone(&components.cpu_pool),
        clock: Arc::clone(&components.clock),
        counters: Arc::clone(&counters),
        host: Arc::clone(&host),
    };
    let applier = start(IndexApplier::new(applier, settings), &host.write_arbiter());

    let (epoch, wal_stats) = (identity.epoch, Arc::clone(&shard_store.stats));
    let appender = wal_appender::Parts {
        status: Arc::clone(&status),
        durable,
        to_applier: Edge::to(&applier, "IndexApplier", &status),
        to_applier_drain: Edge::to(&applier, "IndexApplier", &status),
        to_applier_seal: Edge::to(&applier, "IndexApplier", &status),
        to_freezer: Edge::to(&freezer, "Freezer", &status),
        next,
        tip,
        identity,
        store: shard_store,
        clock: Arc::clone(&components.clock),
        counters: Arc::clone(&counters),
        host: Arc::clone(&host),
    };
    let flush_interval = settings.wal_flush_interval.unwrap_or_else(|| store.kind().default_flush_interval());
    let wal_appender = start(WalAppender::new(appender, settings, flush_interval), &host.write_arbiter());

    let terminate = vec![
        Edge::to(&reader, "Reader", &status),
        Edge::to(&applier, "IndexApplier", &status),
        Edge::to(&wal_appender, "WalAppender", &status),
        Edge::to(&freezer, "Freezer", &status),
        Edge::to(&collector, "Collector", &status),
    ];
    let io = host.io();
    let herald = Herald::new(Arc::clone(&status), epoch, next, terminate, happened, Arc::clone(&host));
    let herald = start(herald, &host.read_arbiter());

    let admission = Admission::new(
        Arc::clone(&spec),
        Arc::clone(&budget),
        settings,
        Arc::clone(&components.clock),
        io,
        Arc::clone(&status),
        Arc::clone(&counters),
    );
    Shard {
        epoch,
        spec,
        cursors,
        admission,
        budget,
        counters,
        wal_stats,
        cache,
        read_stats,
        torn_tail,
        append: Edge::to(&wal_appender, "WalAppender", &status),
        drain: Edge::to(&wal_appender, "WalAppender", &status),
        wal_appender,
        reader,
        herald,
        status,
    }
}

//! The Collector.
//!
//! *Owns* the list of log entries that are released and not yet deleted.
//!
//! *Does not own* the decision what is released: that is a commit's (W3).
//!
//! *May stop because* it was told to. What it could not delete it tries again later: garbage
//! that stays costs space and nothing else.

mod garbage;
mod messages;

use std::sync::Arc;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler};
use tokio::runtime;

use self::garbage::{LogGarbage, orphans};
pub(crate) use self::messages::{CollectLog, RoundFinished, Sweep};
use crate::actors::edge::Edge;
use crate::actors::host::Host;
use crate::actors::lifecycle::{DeathGuard, Status, Terminate};
use crate::error::Result;
use crate::generations;
use crate::ids::EntryPosition;
use crate::stats::Counters;
use crate::wal::layout;
use crate::wal::manifest::Manifest;
use crate::wal::store::ShardStore;

/// Deletes what no reader needs.
pub(crate) struct Collector {
    guard: DeathGuard,
    status: Arc<Status>,
    garbage: LogGarbage,
    is_deleting: bool,
    /// What the log had released when the shard was opened, and may not have deleted.
    left_behind: Option<Manifest>,
    store: ShardStore,
    io: runtime::Handle,
    counters: Arc<Counters>,
    // The threads outlive the actors that run on them.
    _host: Arc<Host>,
}

impl Collector {
    pub(crate) fn new(
        status: &Arc<Status>,
        store: ShardStore,
        opened_with: Manifest,
        counters: Arc<Counters>,
        host: Arc<Host>,
    ) -> Self {
        Collector {
            guard: DeathGuard::armed("Collector", status),
            status: Arc::clone(status),
            garbage: LogGarbage::default(),
            is_deleting: false,
            left_behind: Some(opened_with),
            store,
            io: host.io(),
            counters,
            _host: host,
        }
    }

    fn work(&mut self, ctx: &mut Context<Self>) {
        Counters::set(&self.counters.log_garbage, self.garbage.len() as u64);
        let round = self.garbage.round();
        if self.is_deleting || round.is_empty() {
            return;
        }
        self.is_deleting = true;
        let store = self.store.clone();
        let answer =
            RoundAnswer { edge: Edge::to(&ctx.address(), "Collector", &self.status), deleted: 0, failed: true };
        self.io.spawn(async move {
            let mut answer = answer;
            for position in round {
                if let Err(error) = store.delete(&layout::entry_path(&store.root, position)).await {
                    tracing::warn!(%position, %error, "a released log entry could not be deleted");
                    return;
                }
                answer.deleted += 1;
            }
            answer.failed = false;
        });
    }
}

/// Brings the outcome of a round back, whatever becomes of its task.
struct RoundAnswer {
    edge: Edge<RoundFinished>,
    deleted: usize,
    failed: bool,
}

impl Drop for RoundAnswer {
    fn drop(&mut self) {
        self.edge.tell(RoundFinished { deleted: self.deleted, failed: self.failed });
    }
}

/// What an earlier opening released and did not delete, oldest first.
async fn left_behind(store: &ShardStore, manifest: &Manifest) -> Result<Vec<EntryPosition>> {
    let Some(released) = manifest.released else { return Ok(Vec::new()) };
    let names = store.list(&layout::entry_folder(&store.root)).await?;
    let positions = names.iter().filter_map(|name| layout::entry_position(&store.root, name));
    let mut garbage: Vec<EntryPosition> =
        positions.filter(|position| *position <= released.position && !manifest.sentinels.contains(position)).collect();
    garbage.sort_unstable();
    Ok(garbage)
}

impl Actor for Collector {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let Some(manifest) = self.left_behind.take() else { return };
        let store = self.store.clone();
        let edge = Edge::to(&ctx.address(), "Collector", &self.status);
        self.io.spawn(async move {
            match left_behind(&store, &manifest).await {
                Ok(entries) => edge.tell(CollectLog { entries }),
                Err(error) => tracing::warn!(%error, "what is left of the released log could not be listed"),
            }
        });
    }
}

impl Handler<CollectLog> for Collector {
    type Result = ();

    fn handle(&mut self, CollectLog { entries }: CollectLog, ctx: &mut Self::Context) {
        self.garbage.add(entries);
        self.work(ctx);
    }
}

impl Handler<RoundFinished> for Collector {
    type Result = ();

    fn handle(&mut self, RoundFinished { deleted, failed }: RoundFinished, ctx: &mut Self::Context) {
        self.is_deleting = false;
        self.garbage.deleted(deleted);
        Counters::add(&self.counters.entries_deleted, deleted as u64);
        // A store that refuses is asked again with the next commit.
        if !failed {
            self.work(ctx);
        }
    }
}

impl Handler<Sweep> for Collector {
    type Result = ();

    fn handle(&mut self, Sweep { epoch, kept, newest }: Sweep, _: &mut Self::Context) {
        let (store, counters) = (self.store.clone(), Arc::clone(&self.counters));
        self.io.spawn(async move {
            let swept = async {
                let manifest = layout::manifest_path(&store.root, newest);
                let dated = store.list_dated(&layout::manifest_folder(&store.root)).await?;
                let Some((_, now)) = dated.into_iter().find(|(path, _)| *path == manifest) else { return Ok(()) };
                let listed = store.list_dated(&generations::folder(&store.root)).await?;
                for orphan in orphans(&store.root, listed, epoch, &kept, now) {
                    tracing::info!(object = %orphan, "deleting what a failed attempt left behind");
                    store.delete(&orphan).await?;
                    Counters::add(&counters.orphans_deleted, 1);
                }
                Ok::<(), crate::error::Error>(())
            };
            if let Err(error) = swept.await {
                tracing::warn!(%error, "files that failed attempts left behind could not be deleted");
            }
        });
    }
}

impl Handler<Terminate> for Collector {
    type Result = ();

    fn handle(&mut self, _: Terminate, ctx: &mut Self::Context) {
        self.guard.disarm();
        ctx.stop();
    }
}

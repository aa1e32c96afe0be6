//! Claiming an epoch, and shutting out who had the shard before.
//!
//! [`claim`] is steps 2 and 3 of an open, [`write_sentinel`] step 4. Between the two a
//! predecessor may still append; what it gets in before the sentinel is replayed, and its
//! acknowledgement was honest (E3).

use std::sync::Arc;

use object_store::path::Path;

use crate::error::{Error, Operation, Result};
use crate::ids::{EntryPosition, Epoch, Nonce};
use crate::spec::ValidatedSpec;
use crate::wal::append::{AppendOutcome, Content, EntryDraft, append_entry};
use crate::wal::layout;
use crate::wal::manifest::{Manifest, ManifestAnswer, ManifestStore};
use crate::wal::read::{Found, read_entry};

/// How often a claim is beaten to the next version by the incumbent's own commits before it
/// gives up. Each round the incumbent has to build and commit a generation (O6).
const CLAIM_ROUNDS_MAX: u32 = 1_000;

/// An epoch that is ours.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    /// The manifest that claims it.
    pub(crate) manifest: Manifest,
    pub(crate) spec: ValidatedSpec,
    pub(crate) epoch: Epoch,
    pub(crate) nonce: Nonce,
}

/// The entry that starts an epoch in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sentinel {
    pub(crate) position: EntryPosition,
    pub(crate) crc: u32,
}

/// Claims the next epoch of the shard, which gets `new_name` if it does not exist yet. Nothing is written before the spec is known to agree with
/// the stored one (O5, O8).
///
/// # Errors
/// [`Error::InvalidInput`] where the spec disagrees with what is stored, or there is none; [`Error::Fenced`] where another opening claimed the epoch first.
pub(crate) async fn claim(
    store: &ManifestStore,
    wanted: Option<&ValidatedSpec>,
    new_name: &str,
    nonce: Nonce,
) -> Result<Claim> {
    let mut latest = store.latest().await?;
    let epoch = latest.as_ref().map_or(Epoch::default(), |manifest| manifest.epoch).next();
    for round in 1..=CLAIM_ROUNDS_MAX {
        let spec = agreed_spec(&store.root, latest.as_ref(), wanted)?;
        let manifest = match &latest {
            Some(latest) if latest.epoch >= epoch => return Err(Error::Fenced { ours: epoch, by: latest.epoch }),
            Some(latest) => latest.claimed_by(epoch, nonce).with_spec(&spec)?,
            None => Manifest::first(new_name, &spec, nonce)?,
        };
        match store.create(&manifest).await? {
            ManifestAnswer::Created => {
                tracing::info!(shard = manifest.shard, %epoch, version = %manifest.version, "claimed the shard");
                return Ok(Claim { manifest, spec, epoch, nonce });
            }
            ManifestAnswer::AlreadyExists(theirs) => {
                tracing::info!(shard = manifest.shard, %epoch, version = %theirs.version, by = %theirs.epoch, round,
                    "the manifest version was taken, reading again");
                // The version that beat us is as new as what a list may show, or newer.
                let listed = store.latest().await?;
                latest = listed.filter(|listed| listed.version > theirs.version).or(Some(*theirs));
            }
        }
    }
    let outrun = std::io::Error::other("the shard's writer committed a manifest in each round");
    Err(Error::io(Operation::CreateManifest, layout::manifest_folder(&store.root), CLAIM_ROUNDS_MAX, outrun))
}

fn agreed_spec(root: &Path, latest: Option<&Manifest>, wanted: Option<&ValidatedSpec>) -> Result<ValidatedSpec> {
    let Some(latest) = latest else {
        return wanted.cloned().ok_or_else(|| {
            Error::invalid(
                "the table spec",
                format!("none given, and no shard stored at `{root}` to take it from"),
                "a table spec for a new shard, or the place of an existing one",
            )
        });
    };
    let stored = latest.validated_spec(root)?;
    match wanted {
        Some(wanted) => wanted.check_agrees_with_stored(&stored).map(|()| wanted.clone()),
        None => Ok(stored),
    }
}

/// Writes the sentinel of the claimed epoch at the log's tip; `None` for epoch 1, which has
/// nobody to shut out (O7).
///
/// # Errors
/// [`Error::Fenced`] where a newer epoch is in the log or the manifest, before or after the write.
pub(crate) async fn write_sentinel(store: &ManifestStore, claim: &Claim) -> Result<Option<Sentinel>> {
    if claim.epoch <= Epoch::new(1) {
        return Ok(None);
    }
    let tip = tip(store, claim).await?;
    let draft = EntryDraft {
        shard: Arc::from(claim.manifest.shard.as_str()),
        epoch: claim.epoch,
        nonce: claim.nonce,
        position: tip.position,
        previous_crc: tip.previous_crc,
        schema: Arc::clone(claim.spec.storage_schema()),
        content: Content::Sentinel { torn_before: tip.torn_before },
    };
    let sentinel = match append_entry(store, draft).await {
        AppendOutcome::Written { position, crc, .. } => Sentinel { position, crc },
        AppendOutcome::Fenced { by } => return Err(Error::Fenced { ours: claim.epoch, by }),
        AppendOutcome::Failed(error) => return Err(error),
    };
    check_still_ours(store, claim, sentinel).await?;
    tracing::info!(shard = claim.manifest.shard, epoch = %claim.epoch, position = %sentinel.position,
        "wrote the sentinel");
    Ok(Some(sentinel))
}

/// Where the next entry goes.
struct Tip {
    position: EntryPosition,
    previous_crc: u32,
    torn_before: bool,
}

/// The first place behind what a list shows. A list that is behind costs steps, not safety: the
/// place is then taken, and the append goes on from there.
async fn tip(store: &ManifestStore, claim: &Claim) -> Result<Tip> {
    let names = store.list(&layout::entry_folder(&store.root)).await?;
    let from = claim.manifest.replay_from;
    let listed = names.iter().filter_map(|name| layout::entry_position(&store.root, name));
    let Some(last) = listed.filter(|position| *position >= from).max() else {
        let previous_crc = claim.manifest.released.map_or(0, |released| released.crc);
        return Ok(Tip { position: from, previous_crc, torn_before: false });
    };
    let object = layout::entry_path(&store.root, last);
    for attempt in 1..=store.attempts_max {
        match read_entry(store, last).await? {
            Found::Whole(entry) if entry.header.epoch > claim.epoch => {
                return Err(Error::Fenced { ours: claim.epoch, by: entry.header.epoch });
            }
            Found::Whole(entry) => {
                return Ok(Tip { position: last.next(), previous_crc: entry.crc, torn_before: false });
            }
            Found::Damaged { damage, crc } if damage.is_torn() => {
                return Ok(Tip { position: last.next(), previous_crc: crc, torn_before: true });
            }
            Found::Damaged { damage, .. } => return Err(damage.into_error(&object)),
            Found::Nothing if attempt < store.attempts_max => {
                store.pause(Operation::ReadEntry, &object, attempt, &"the store lists it and does not find it").await;
            }
            Found::Nothing => {}
        }
    }
    Err(Error::corrupt(object, "a name the store lists and does not find", "the last entry of the log"))
}

/// A claimer that slept between claim and sentinel may have written its sentinel into a gap that
/// a successor's garbage collection left. The manifest knows (O7).
async fn check_still_ours(store: &ManifestStore, claim: &Claim, sentinel: Sentinel) -> Result<()> {
    let object = layout::manifest_path(&store.root, claim.manifest.version);
    let Some(latest) = store.latest().await? else {
        return Err(Error::corrupt(object, "no manifest", "the manifest this opening has just created"));
    };
    if latest.epoch > claim.epoch {
        return Err(Error::Fenced { ours: claim.epoch, by: latest.epoch });
    }
    if latest.epoch != claim.epoch || latest.nonce != claim.nonce {
        return Err(Error::corrupt(
            layout::manifest_path(&store.root, latest.version),
            format!("epoch {} of writer {}", latest.epoch, latest.nonce),
            format!("epoch {} of writer {}, which claimed it", claim.epoch, claim.nonce),
        ));
    }
    if sentinel.position < latest.replay_from {
        return Err(Error::corrupt(
            layout::entry_path(&store.root, sentinel.position),
            format!("the sentinel of epoch {} below entry {}", claim.epoch, latest.replay_from),
            "a sentinel above the released part of the log",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

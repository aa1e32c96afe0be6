//! The crash: many writers in the middle of their puts lose the shard from under them. What
//! was acknowledged until then is counted in the shard that is opened after.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use futures::StreamExt;
use tidewal::{Engine, Error, Key, Outcome, Scan, Value};

use super::corpus::{self, Piece};
use crate::{Result, complaint};

/// Puts in flight at once.
const WRITERS: usize = 16;
/// Rows of each.
const ROWS: usize = 25;

/// A row's key.
pub(super) type PieceKey = (String, i32);

pub(super) fn key_of(piece: &Piece) -> PieceKey {
    (piece.path.clone(), piece.line)
}

/// Writes the pieces with many writers at once, ends the shard without closing it once about
/// half of them are acknowledged, and gives the keys that were. Writers still have puts in
/// flight at that moment; whether those survive, nobody was promised.
pub(super) async fn write_until_crash(engine: Engine, pieces: Vec<Piece>) -> Result<Vec<PieceKey>> {
    let enough = pieces.len() / 2;
    let acknowledged = Arc::new(AtomicUsize::new(0));
    let mut puts = Vec::new();
    let mut pieces = pieces.into_iter().peekable();
    while pieces.peek().is_some() {
        puts.push(pieces.by_ref().take(ROWS).collect::<Vec<_>>());
    }
    let writes = puts.into_iter().map(|put| {
        let (engine, acknowledged) = (engine.clone(), Arc::clone(&acknowledged));
        async move {
            match engine.put(corpus::batch(&put)?).await {
                Ok(_) => {
                    // The crash comes while the other writers are in the middle of theirs.
                    if acknowledged.fetch_add(put.len(), Ordering::Relaxed) + put.len() >= enough {
                        engine.abort();
                    }
                    Ok(put.iter().map(key_of).collect())
                }
                Err(Error::Closed) => Ok(Vec::new()),
                Err(error) => Err(error.into()),
            }
        }
    });
    let outcomes: Vec<Result<Vec<PieceKey>>> = futures::stream::iter(writes).buffer_unordered(WRITERS).collect().await;
    let mut keys = Vec::new();
    for outcome in outcomes {
        keys.extend(outcome?);
    }
    Ok(keys)
}

/// What a shard holds of what was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Survival {
    pub(super) acknowledged: usize,
    pub(super) found: usize,
    pub(super) lost: usize,
    pub(super) doubled: usize,
    /// Rows of puts that were in the log though their answer never arrived.
    pub(super) unannounced: usize,
}

/// Looks up every acknowledged key, and scans all rows for keys that are there twice.
pub(super) async fn count_survivors(engine: &Engine, acknowledged: &[PieceKey]) -> Result<Survival> {
    let mut found = 0;
    for keys in acknowledged.chunks(10_000) {
        let keys = keys.iter().map(|(path, line)| Key::from([Value::from(path.as_str()), Value::from(*line)]));
        let lookups = engine.get_many(keys.collect()).await?;
        found += lookups.outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Found(_))).count();
    }
    let mut seen: HashMap<PieceKey, u32> = HashMap::new();
    let mut rows = engine.scan(Scan::new().columns(["path", "line"])).await?;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        let paths = batch.column(0).as_string::<i32>();
        let lines = batch.column(1).as_primitive::<Int32Type>();
        for (path, line) in paths.iter().zip(lines) {
            let (Some(path), Some(line)) = (path, line) else { return Err(complaint("a row without its key")) };
            *seen.entry((path.to_owned(), line)).or_default() += 1;
        }
    }
    let promised: HashSet<&PieceKey> = acknowledged.iter().collect();
    Ok(Survival {
        acknowledged: promised.len(),
        found: found.min(promised.len()),
        lost: promised.len().saturating_sub(found),
        doubled: seen.values().filter(|times| **times > 1).count(),
        unannounced: seen.keys().filter(|key| !promised.contains(key)).count(),
    })
}

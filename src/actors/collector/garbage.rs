//! Decides what may be deleted. No actor, no store.

use std::collections::{BTreeSet, VecDeque};

use object_store::path::Path;

use crate::generations::{folder, folder_epoch};
use crate::ids::{EntryPosition, Epoch};

/// How long a file that no manifest names is left alone: an upload may still be under way, and
/// people may be looking at what a failure left.
const GRACE_SECONDS: i64 = 60 * 60;
/// Entries deleted in one round; a longer one would hold up what has become garbage since.
const ROUND_ENTRIES: usize = 64;

/// The released entries of the log, oldest first.
#[derive(Debug, Default)]
pub(crate) struct LogGarbage {
    entries: VecDeque<EntryPosition>,
}

impl LogGarbage {
    pub(crate) fn add(&mut self, entries: Vec<EntryPosition>) {
        self.entries.extend(entries);
    }

    /// The next round. The newest released entry stays: the log then never looks empty, and the
    /// entry behind it can be checked against it.
    pub(crate) fn round(&self) -> Vec<EntryPosition> {
        let deletable = self.entries.len().saturating_sub(1);
        self.entries.iter().take(deletable.min(ROUND_ENTRIES)).copied().collect()
    }

    /// The oldest so many are gone.
    pub(crate) fn deleted(&mut self, count: usize) {
        self.entries.drain(..count.min(self.entries.len()));
    }

    /// How many are left.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }
}

/// The files that failed attempts left behind, of those listed with their times: not kept, not of a
/// newer epoch, and older than the grace period at `now` (seconds by the store's own clock).
pub(crate) fn orphans(
    root: &Path,
    listed: Vec<(Path, i64)>,
    epoch: Epoch,
    kept: &BTreeSet<String>,
    now: i64,
) -> Vec<Path> {
    let generations = folder(root);
    let is_orphan = |path: &Path, written: i64| {
        let Some(mut parts) = path.prefix_match(&generations) else { return false };
        let (Some(name), Some(_), None) = (parts.next(), parts.next(), parts.next()) else { return false };
        let name = name.as_ref();
        // A name that is not one of ours is somebody's, and not ours to delete.
        let is_ours = folder_epoch(name).is_some_and(|of| of <= epoch);
        is_ours && !kept.contains(name) && now.saturating_sub(written) > GRACE_SECONDS
    };
    listed.into_iter().filter(|(path, written)| is_orphan(path, *written)).map(|(path, _)| path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generations::folder_name;
    use crate::ids::{Nonce, Seq, SeqRange};

    #[test]
    fn w9_garbage_is_deleted_oldest_first_in_bounded_rounds_and_the_newest_stays() {
        let mut garbage = LogGarbage::default();
        assert_eq!(garbage.round(), []);
        garbage.add((1..=100).map(EntryPosition::new).collect());
        let round = garbage.round();
        assert_eq!((round.first().map(|at| at.get()), round.len()), (Some(1), ROUND_ENTRIES));
        garbage.deleted(ROUND_ENTRIES);
        assert_eq!(garbage.round().first().map(|at| at.get()), Some(65));
        garbage.deleted(garbage.round().len());
        assert_eq!((garbage.len(), garbage.round().len()), (1, 0), "the newest released entry stays");
        garbage.add(vec![EntryPosition::new(101)]);
        assert_eq!(garbage.round(), [EntryPosition::new(100)]);
    }

    #[test]
    fn f8_only_old_files_of_failed_attempts_of_ours_are_orphans() {
        let root = Path::from("a/b");
        let name =
            |epoch, nonce| folder_name(SeqRange::starting_at(Seq::new(5), 7), Epoch::new(epoch), Nonce::new(nonce));
        let (failed, older, kept, newer) = (name(3, 1), name(2, 2), name(3, 3), name(4, 4));
        let file = |folder: &str| Path::from(format!("a/b/gen/{folder}/rows.arrow"));
        let old = 1_000_000;
        let now = old + GRACE_SECONDS + 1;
        let listed = vec![
            (file(&failed), old),
            (file(&older), old),
            (file(&kept), old),
            (file(&newer), old),
            (file("notes"), old),
            (Path::from("a/b/gen/readme"), old),
            (Path::from(format!("a/b/wal/{failed}/rows.arrow")), old),
            (file(&name(3, 9)), old + 2),
        ];
        let found = orphans(&root, listed, Epoch::new(3), &[kept].into(), now);
        assert_eq!(found, [file(&failed), file(&older)]);
    }
}

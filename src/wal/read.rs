//! One entry, read until its verdict is settled.

use bytes::Bytes;

use crate::error::{Operation, Result};
use crate::ids::EntryPosition;
use crate::wal::entry::{self, Damage, Entry};
use crate::wal::layout;
use crate::wal::store::ShardStore;

/// What is at a position of the log.
#[derive(Debug)]
pub(crate) enum Found {
    /// Nothing, at the last look.
    Nothing,
    /// A whole entry.
    Whole(Entry),
    /// An object that is no entry, and the checksum of its bytes.
    Damaged { damage: Damage, crc: u32 },
}

/// Reads the object at a position.
///
/// A transfer that is cut short looks like a torn object, and calling the log's last entry torn
/// ends the log there (R3). So a damaged object is read again until two reads in a row agree;
/// reads that never agree are a read error's job to report, and the last verdict stands as
/// corruption, which nothing steps past.
pub(crate) async fn read_entry(store: &ShardStore, position: EntryPosition) -> Result<Found> {
    let path = layout::entry_path(&store.root, position);
    let mut previous: Option<Bytes> = None;
    let mut attempt = 1;
    loop {
        let Some(bytes) = store.get(&path, Operation::ReadEntry).await? else { return Ok(Found::Nothing) };
        let damage = match entry::decode(&bytes) {
            Ok(entry) => return Ok(Found::Whole(entry)),
            Err(damage) => damage,
        };
        let crc = crc32c::crc32c(&bytes);
        if previous.as_ref() == Some(&bytes) {
            return Ok(Found::Damaged { damage, crc });
        }
        // At least three reads, whatever the settings: fewer cannot outvote one bad transfer.
        if attempt >= store.attempts_max.max(3) {
            return Ok(Found::Damaged { damage: unsettled(damage, attempt), crc });
        }
        store.pause(Operation::ReadEntry, &path, attempt, &damage).await;
        attempt += 1;
        previous = Some(bytes);
    }
}

fn unsettled(damage: Damage, reads: u32) -> Damage {
    Damage::Corrupt {
        found: format!("other bytes at each of {reads} reads, at last {damage}"),
        expected: "the same log entry at each read".to_owned(),
    }
}

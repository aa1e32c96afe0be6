//! One entry written at its position, or the reason it was not.
//!
//! [`AppendAttempt`] is the pure core: it is told what the store answered and says what follows.
//! [`append_entry`] carries that out.
//!
//! # What follows from an answer
//!
//! | answer to the create | next |
//! |---|---|
//! | created | written |
//! | something is there | read it back |
//! | an error that may pass | pause, create again at the same position (the outcome is unknown: if it had succeeded, the next answer is "something is there") |
//! | any other error, or the last attempt's | read back: an earlier attempt may have succeeded |
//!
//! | read back | next |
//! |---|---|
//! | our own entry | written (W4) |
//! | a higher epoch's | fenced (E1) |
//! | a lower epoch's | an opening steps past it and will replay it (E3); a running writer only past a sentinel |
//! | a torn object | an opening steps past it and vouches for it; a running writer fails |
//! | nothing | pause, create again (a 409 without an object, W5); after the last attempt fail (W6) |
//! | anything else | fail |
//!
//! *A running writer and rows of a lower epoch.* Above a writer's own sentinel no predecessor can
//! write (see [`super`]). If one did, its rows took the sequence numbers ours have: stepping past
//! would acknowledge rows into a log that no open can replay. The writer stops instead (W2).
//!
//! *A torn object.* It is unfinished work of unknown epoch whose writer's machine died, so nobody
//! was told that it is written. An opening writes its sentinel behind it, with the checksum of
//! exactly these bytes: a later open accepts the torn object because the sentinel vouches for
//! it, and only in that form. A running writer cannot tell whether what it meets is a higher
//! epoch's, so it may neither step past nor go on.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::error::{Error, Failure, Operation, Result};
use crate::ids::{EntryPosition, Epoch, Nonce, Seq};
use crate::invariants;
use crate::rows::SequencedRows;
use crate::wal::entry::{self, EncodedEntry, Entry, EntryHeader};
use crate::wal::layout;
use crate::wal::read::{Found, read_entry};
use crate::wal::store::{CreateAnswer, ShardStore, is_transient};

/// How many positions one append steps past. An opening steps once for each entry its
/// predecessor gets in between two looks; one that is outrun for longer than this reports it.
const STEPS_MAX: u32 = 10_000;

/// An entry to write.
#[derive(Clone, Debug)]
pub(crate) struct EntryDraft {
    pub(crate) shard: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) nonce: Nonce,
    pub(crate) position: EntryPosition,
    pub(crate) previous_crc: u32,
    /// The storage schema.
    pub(crate) schema: SchemaRef,
    pub(crate) content: Content,
}

/// What an entry holds.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// Whole puts (S2), at least one, in `Seq` order without gaps (S1).
    Rows(Vec<SequencedRows>),
    /// Nothing: the entry marks the start of an epoch.
    Sentinel {
        /// Whether the object before is torn; the sentinel then vouches for it.
        torn_before: bool,
    },
}

/// What became of a draft.
#[derive(Clone, Debug)]
pub(crate) enum AppendOutcome {
    /// It is in the store.
    Written {
        /// Where; not below the draft's position.
        position: EntryPosition,
        /// What the next entry carries as `previous_crc`.
        crc: u32,
        /// The object's size.
        bytes: u64,
    },
    /// A newer epoch owns the log. The entry is not in the store.
    Fenced {
        /// That epoch.
        by: Epoch,
    },
    /// The entry is not known to be in the store. The writer must append nothing further.
    Failed(Error),
}

/// What a create came to, as the core sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutAnswer {
    Created,
    Conflict,
    Failed { transient: bool },
}

/// What a read back came to, as the core sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadBack {
    Nothing,
    Found { epoch: Epoch, nonce: Nonce, position: EntryPosition, crc: u32, sentinel: bool },
    Torn { crc: u32 },
    Corrupt,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Create, after a pause if this is not the first attempt.
    Put { attempt: u32 },
    /// Read the object at the position.
    ReadBack,
    /// Done.
    Written,
    /// Shut out.
    Fenced { by: Epoch },
    /// Go on at the next position, behind an object with this checksum.
    Past { previous_crc: u32, torn: bool },
    /// Give up.
    Fail(Cause),
}

/// Why an append gives up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The store did not take the entry in all its attempts.
    Refused,
    /// The object at the position cannot be read as an entry.
    Unreadable,
    /// The object at the position is an entry that cannot be there.
    Misplaced { reason: &'static str },
}

/// The decisions of one append at one position. No clock, no I/O.
#[derive(Debug)]
pub(crate) struct AppendAttempt {
    epoch: Epoch,
    nonce: Nonce,
    position: EntryPosition,
    crc: u32,
    /// A sentinel is written by an opening, anything else by a running writer.
    opening: bool,
    attempts_max: u32,
    attempt: u32,
    /// No further create follows: the read back decides.
    last: bool,
}

impl AppendAttempt {
    pub(crate) fn new(header: &EntryHeader, crc: u32, attempts_max: u32) -> Self {
        AppendAttempt {
            epoch: header.epoch,
            nonce: header.nonce,
            position: header.position,
            crc,
            opening: header.is_sentinel(),
            attempts_max,
            attempt: 1,
            last: false,
        }
    }

    pub(crate) fn start(&self) -> Step {
        Step::Put { attempt: self.attempt }
    }

    pub(crate) fn on_put(&mut self, answer: PutAnswer) -> Step {
        match answer {
            PutAnswer::Created => Step::Written,
            PutAnswer::Conflict => Step::ReadBack,
            PutAnswer::Failed { transient: true } if self.attempt < self.attempts_max => self.again(),
            PutAnswer::Failed { .. } => {
                self.last = true;
                Step::ReadBack
            }
        }
    }

    pub(crate) fn on_read_back(&mut self, found: ReadBack) -> Step {
        match found {
            ReadBack::Nothing if self.last || self.attempt >= self.attempts_max => Step::Fail(Cause::Refused),
            ReadBack::Nothing => self.again(),
            ReadBack::Torn { crc } if self.opening => Step::Past { previous_crc: crc, torn: true },
            ReadBack::Torn { .. } | ReadBack::Corrupt => Step::Fail(Cause::Unreadable),
            ReadBack::Found { position, .. } if position != self.position => {
                misplaced("an entry whose header says another position")
            }
            ReadBack::Found { epoch, .. } if epoch > self.epoch => Step::Fenced { by: epoch },
            ReadBack::Found { epoch, crc, sentinel, .. } if epoch < self.epoch => {
                if self.opening || sentinel {
                    Step::Past { previous_crc: crc, torn: false }
                } else {
                    misplaced("rows of an older epoch behind this epoch's sentinel")
                }
            }
            ReadBack::Found { nonce, .. } if nonce != self.nonce => {
                misplaced("an entry of another writer with the same epoch")
            }
            // Acknowledging these rows because *something* of ours is there would be a lie.
            ReadBack::Found { crc, .. } if crc != self.crc => misplaced("an entry of this writer with other content"),
            ReadBack::Found { .. } => Step::Written,
        }
    }

    fn again(&mut self) -> Step {
        self.attempt += 1;
        Step::Put { attempt: self.attempt }
    }
}

fn misplaced(reason: &'static str) -> Step {
    Step::Fail(Cause::Misplaced { reason })
}

/// Writes the draft at its position, or at the first one behind what older epochs left there.
///
/// Encoding, which takes the time of a copy, runs where this future is polled.
pub(crate) async fn append_entry(store: &ShardStore, draft: EntryDraft) -> AppendOutcome {
    append(store, draft).await.unwrap_or_else(AppendOutcome::Failed)
}

async fn append(store: &ShardStore, draft: EntryDraft) -> Result<AppendOutcome> {
    let (mut header, batches) = header_and_batches(&draft)?;
    for _ in 0..STEPS_MAX {
        let encoded = entry::encode(&header, &draft.schema, &batches)?;
        match put_at(store, &header, &encoded).await? {
            Settled::Written => {
                let bytes = encoded.bytes.len() as u64;
                store.stats.bytes_written.add(bytes);
                return Ok(AppendOutcome::Written { position: header.position, crc: encoded.crc, bytes });
            }
            Settled::Fenced { by } => return Ok(AppendOutcome::Fenced { by }),
            Settled::StepPast { previous_crc, torn } => {
                store.stats.positions_stepped_past.add(1);
                tracing::info!(position = %header.position, epoch = %header.epoch, torn,
                    "stepping past an object an older epoch left in the log");
                header.position = header.position.next();
                header.previous_crc = previous_crc;
                header.torn_before = torn;
            }
        }
    }
    let object = layout::entry_path(&store.root, header.position);
    let outrun = std::io::Error::other("an older epoch's writer kept taking the next position of the log");
    Err(Error::io(Operation::CreateEntry, object, STEPS_MAX, outrun))
}

fn header_and_batches(draft: &EntryDraft) -> Result<(EntryHeader, Vec<RecordBatch>)> {
    let mut header = EntryHeader {
        shard: Arc::clone(&draft.shard),
        epoch: draft.epoch,
        nonce: draft.nonce,
        position: draft.position,
        first: Seq::ZERO,
        puts: Vec::new(),
        previous_crc: draft.previous_crc,
        torn_before: false,
    };
    let puts = match &draft.content {
        Content::Rows(puts) => puts,
        Content::Sentinel { torn_before } => {
            header.torn_before = *torn_before;
            return Ok((header, Vec::new()));
        }
    };
    let mut next = puts.first().map_or(Seq::ZERO, |put| put.range.first());
    header.first = next;
    for put in puts {
        if put.range.first() != next || put.range.is_empty() {
            return Err(broken(invariants::S1, format!("a put of rows {} where {next} was next", put.range)));
        }
        next = put.range.end();
        header.puts.push(put.range.rows());
    }
    if header.is_sentinel() {
        return Err(broken(invariants::S1, "an entry of rows without a put".to_owned()));
    }
    Ok((header, puts.iter().flat_map(|put| put.batches.iter().cloned()).collect()))
}

fn broken(id: &'static str, detail: String) -> Error {
    Error::Failed(Failure::Invariant { id, detail })
}

/// How an append at one position ends.
enum Settled {
    Written,
    Fenced { by: Epoch },
    StepPast { previous_crc: u32, torn: bool },
}

async fn put_at(store: &ShardStore, header: &EntryHeader, encoded: &EncodedEntry) -> Result<Settled> {
    let path = layout::entry_path(&store.root, header.position);
    let mut core = AppendAttempt::new(header, encoded.crc, store.attempts_max);
    let mut step = core.start();
    // Why the latest attempt did not settle it, and the error for an object that must not be there.
    let mut refusal = object_store::Error::Generic { store: "log", source: "not attempted".into() };
    let mut unreadable = None;
    let mut attempts = 0;
    let mut read_back = false;
    store.stats.entry_puts_started.add(1);
    loop {
        step = match step {
            Step::Put { attempt } => {
                if attempt > 1 {
                    store.pause(Operation::CreateEntry, &path, attempt - 1, &refusal).await;
                    store.stats.entry_puts_retried.add(1);
                }
                attempts = attempt;
                read_back = false;
                let answer = match store.create_once(&path, encoded.bytes.clone()).await {
                    CreateAnswer::Created => PutAnswer::Created,
                    CreateAnswer::Conflict => {
                        refusal = conflict_without_object();
                        PutAnswer::Conflict
                    }
                    CreateAnswer::Failed(error) => {
                        let transient = is_transient(&error);
                        refusal = error;
                        PutAnswer::Failed { transient }
                    }
                };
                core.on_put(answer)
            }
            Step::ReadBack => {
                read_back = true;
                let found = match read_entry(store, header.position).await? {
                    Found::Nothing => ReadBack::Nothing,
                    Found::Whole(entry) => of_entry(&entry),
                    Found::Damaged { damage, crc } => {
                        let torn = damage.is_torn();
                        unreadable = Some(damage.into_error(&path));
                        if torn { ReadBack::Torn { crc } } else { ReadBack::Corrupt }
                    }
                };
                core.on_read_back(found)
            }
            Step::Written => {
                store.stats.ambiguous_outcomes_resolved.add(u64::from(read_back));
                return Ok(Settled::Written);
            }
            Step::Fenced { by } => return Ok(Settled::Fenced { by }),
            Step::Past { previous_crc, torn } => return Ok(Settled::StepPast { previous_crc, torn }),
            Step::Fail(Cause::Misplaced { reason }) => {
                return Err(Error::corrupt(path, reason, format!("the entry of epoch {} or nothing", header.epoch)));
            }
            Step::Fail(Cause::Unreadable) if unreadable.is_some() => return Err(unreadable.unwrap_or(Error::Closed)),
            Step::Fail(_) => return Err(Error::io(Operation::CreateEntry, path, attempts, refusal)),
        };
    }
}

fn of_entry(entry: &Entry) -> ReadBack {
    ReadBack::Found {
        epoch: entry.header.epoch,
        nonce: entry.header.nonce,
        position: entry.header.position,
        crc: entry.crc,
        sentinel: entry.header.is_sentinel(),
    }
}

fn conflict_without_object() -> object_store::Error {
    let source = "the store says that the object exists, and that it does not".into();
    object_store::Error::Generic { store: "log", source }
}

#[cfg(test)]
mod tests;

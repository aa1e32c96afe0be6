//! Reading the log back: step 5 of an open.
//!
//! Every position from the manifest's `replay_from` to our sentinel must hold an entry. The
//! entries are read by name, so a list that is behind cannot shorten the log (R3), and checked
//! against each other: the chain of checksums, the sequence numbers (S1), the epochs (W2).
//!
//! The one object that need not be whole is a torn one for which the sentinel behind it vouches
//! (R4, and [`super::append`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{RecordBatch, RecordBatchOptions, new_null_array};
use arrow_schema::{FieldRef, SchemaRef};
use futures::StreamExt;
use object_store::path::Path;

use crate::error::{Error, Operation, Result};
use crate::ids::{EntryPosition, Epoch, Nonce, Seq, SeqRange};
use crate::rows::{SequencedRows, row_bytes};
use crate::spec::position_of;
use crate::wal::entry::Entry;
use crate::wal::fence::{Claim, Sentinel};
use crate::wal::layout;
use crate::wal::ledger::LoggedEntry;
use crate::wal::read::{Found, read_entry};
use crate::wal::store::ShardStore;

/// The rows of one log entry, in storage form; those below the flushed `Seq` are left out.
#[derive(Clone, Debug)]
pub(crate) struct ReplayedEntry {
    pub(crate) range: SeqRange,
    /// The rows of `range`, in order. Their boundaries are not those of the puts.
    pub(crate) batches: Vec<RecordBatch>,
    /// The rows of each put, in order.
    pub(crate) puts: Vec<u64>,
}

impl ReplayedEntry {
    /// All rows as one unit. It may be sealed before or behind, not within.
    pub(crate) fn into_rows(self) -> SequencedRows {
        let bytes = self.batches.iter().map(row_bytes).sum();
        SequencedRows { range: self.range, batches: self.batches.into(), bytes }
    }

    /// The puts as they were made (S2). Nothing is copied.
    pub(crate) fn into_puts(self) -> Vec<SequencedRows> {
        let mut cut = BatchCut { batches: &self.batches, at: 0 };
        let mut next = self.range.first();
        let puts = self.puts.iter().map(|rows| {
            let range = SeqRange::starting_at(next, *rows);
            next = range.end();
            let batches = cut.take(*rows as usize);
            let bytes = batches.iter().map(row_bytes).sum();
            SequencedRows { range, batches: batches.into(), bytes }
        });
        puts.collect()
    }
}

/// Takes rows off the front of a run of batches.
struct BatchCut<'a> {
    batches: &'a [RecordBatch],
    /// Rows of the first batch that are taken.
    at: usize,
}

impl BatchCut<'_> {
    fn take(&mut self, rows: usize) -> Vec<RecordBatch> {
        let mut taken = Vec::with_capacity(1);
        let mut wanted = rows;
        while let ([first, rest @ ..], true) = (self.batches, wanted > 0) {
            let length = wanted.min(first.num_rows() - self.at);
            if length > 0 {
                taken.push(first.slice(self.at, length));
            }
            wanted -= length;
            self.at += length;
            if self.at == first.num_rows() {
                (self.batches, self.at) = (rest, 0);
            }
        }
        taken
    }
}

/// What a replay came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ReplayReport {
    /// Where the next entry goes.
    pub(crate) next_position: EntryPosition,
    /// What it carries as `previous_crc`.
    pub(crate) last_crc: u32,
    /// The next row's sequence number.
    pub(crate) next_seq: Seq,
    /// Entries that gave rows.
    pub(crate) entries: u64,
    /// Rows given.
    pub(crate) rows: u64,
    /// Bytes of rows given, as [`row_bytes`] counts.
    pub(crate) bytes: u64,
    /// The torn object at which the log ended before this epoch.
    pub(crate) torn_tail: Option<String>,
}

/// What a replay is given to.
pub(crate) trait ReplaySink: Send {
    /// An entry is there and fits. Its rows, if it has any to give, follow at once.
    fn logged(&mut self, entry: LoggedEntry);
    /// Its rows. The next entry waits for this.
    fn apply(&mut self, entry: ReplayedEntry) -> impl Future<Output = Result<()>> + Send;
}

/// Gives the rows at and above the flushed `Seq` to `sink`, entry by entry in order.
///
/// Up to `prefetch` entries are read ahead. Without a sentinel (epoch 1) the log ends at the
/// first position that holds nothing.
///
/// # Errors
/// [`Error::Corrupt`] that names the first object that does not fit; [`Error::Fenced`] for an
/// entry of a newer epoch; [`Error::Io`] for a read that failed after its attempts; and what
/// `sink` returns.
#[tracing::instrument(level = "info", skip_all, fields(shard = claim.manifest.shard, epoch = %claim.epoch))]
pub(crate) async fn replay(
    store: &ShardStore,
    claim: &Claim,
    upto: Option<Sentinel>,
    prefetch: usize,
    sink: &mut impl ReplaySink,
) -> Result<ReplayReport> {
    let from = claim.manifest.replay_from;
    let last = match upto {
        Some(sentinel) => Some(sentinel.position),
        None => last_listed(store, from).await?,
    };
    let mut log = LogCheck::new(store, claim, upto);
    let mut report = Totals::default();
    if let Some(last) = last {
        let positions = (from.get()..=last.get()).map(EntryPosition::new);
        let mut reads = futures::stream::iter(positions)
            .map(|position| async move { (position, read_present(store, position).await) })
            .buffered(prefetch.max(1));
        while let Some((position, found)) = reads.next().await {
            accept(position, found?, &mut log, &mut report, sink).await?;
        }
    }
    if upto.is_none() {
        // The list may be behind.
        loop {
            let position = log.next;
            match read_entry(store, position).await? {
                Found::Nothing => break,
                found => accept(position, found, &mut log, &mut report, sink).await?,
            }
        }
    }
    let end = log.finish()?;
    if let Some(object) = &end.torn_tail {
        tracing::warn!(
            shard = claim.manifest.shard,
            object,
            "the log ended in a torn entry: its writer crashed before \
            the entry was acknowledged"
        );
    }
    Ok(ReplayReport {
        next_position: end.next_position,
        last_crc: end.last_crc,
        next_seq: end.next_seq,
        entries: report.entries,
        rows: report.rows,
        bytes: report.bytes,
        torn_tail: end.torn_tail,
    })
}

async fn accept(
    position: EntryPosition,
    found: Found,
    log: &mut LogCheck<'_>,
    report: &mut Totals,
    sink: &mut impl ReplaySink,
) -> Result<()> {
    let is_sentinel = matches!(&found, Found::Whole(entry) if entry.header.is_sentinel());
    let entry = log.check(position, found)?;
    let end = log.rows_end.unwrap_or_default().max(log.claim.manifest.flushed);
    sink.logged(LoggedEntry { position, crc: log.previous_crc, end, is_sentinel });
    let Some(entry) = entry else { return Ok(()) };
    report.add(&entry);
    sink.apply(entry).await
}

async fn last_listed(store: &ShardStore, from: EntryPosition) -> Result<Option<EntryPosition>> {
    let names = store.list(&layout::entry_folder(&store.root)).await?;
    let listed = names.iter().filter_map(|name| layout::entry_position(&store.root, name));
    Ok(listed.filter(|position| *position >= from).max())
}

/// Reads an entry that must be there: a later one is.
async fn read_present(store: &ShardStore, position: EntryPosition) -> Result<Found> {
    let object = layout::entry_path(&store.root, position);
    for attempt in 1..=store.attempts_max {
        match read_entry(store, position).await? {
            Found::Nothing if attempt < store.attempts_max => {
                store.pause(Operation::ReadEntry, &object, attempt, &"no object below a later entry").await;
            }
            Found::Nothing => {}
            found => return Ok(found),
        }
    }
    Err(Error::corrupt(object, format!("no log entry {position}"), "an entry: the log goes on behind it"))
}

#[derive(Default)]
struct Totals {
    entries: u64,
    rows: u64,
    bytes: u64,
}

impl Totals {
    fn add(&mut self, entry: &ReplayedEntry) {
        self.entries += 1;
        self.rows += entry.range.rows();
        self.bytes += entry.batches.iter().map(row_bytes).sum::<u64>();
    }
}

/// A torn object that waits for the sentinel behind it.
struct Torn {
    object: Path,
    error: Error,
}

/// What the entries must agree on. No I/O.
struct LogCheck<'a> {
    root: &'a Path,
    claim: &'a Claim,
    upto: Option<Sentinel>,
    next: EntryPosition,
    previous_crc: u32,
    /// The end of the rows seen; `None` before the first.
    rows_end: Option<Seq>,
    /// The newest epoch that wrote rows or a sentinel so far.
    epoch: Epoch,
    writers: BTreeMap<Epoch, Nonce>,
    torn: Option<Torn>,
    torn_tail: Option<String>,
}

struct LogEnd {
    next_position: EntryPosition,
    last_crc: u32,
    next_seq: Seq,
    torn_tail: Option<String>,
}

impl<'a> LogCheck<'a> {
    fn new(store: &'a ShardStore, claim: &'a Claim, upto: Option<Sentinel>) -> Self {
        LogCheck {
            root: &store.root,
            claim,
            upto,
            next: claim.manifest.replay_from,
            previous_crc: claim.manifest.released.map_or(0, |released| released.crc),
            rows_end: None,
            epoch: Epoch::default(),
            writers: BTreeMap::new(),
            torn: None,
            torn_tail: None,
        }
    }

    /// Checks the object at the next position; the rows it gives, if any.
    fn check(&mut self, position: EntryPosition, found: Found) -> Result<Option<ReplayedEntry>> {
        let object = layout::entry_path(self.root, position);
        let entry = match found {
            Found::Whole(entry) => entry,
            Found::Damaged { damage, crc } if damage.is_torn() && self.torn.is_none() => {
                self.torn = Some(Torn { object: object.clone(), error: damage.into_error(&object) });
                self.next = position.next();
                self.previous_crc = crc;
                return Ok(None);
            }
            // The first of two torn objects is not the last of the log.
            Found::Damaged { damage, .. } => {
                return Err(self.torn.take().map_or_else(|| damage.into_error(&object), |torn| torn.error));
            }
            Found::Nothing => return Err(Error::corrupt(object, "nothing", "a log entry")),
        };
        self.check_header(&object, position, &entry)?;
        self.check_epoch(&object, position, &entry)?;
        self.next = position.next();
        self.previous_crc = entry.crc;
        if entry.header.is_sentinel() {
            return Ok(None);
        }
        self.check_rows(&object, &entry)?;
        let schema = self.claim.spec.storage_schema();
        let batches = in_storage_schema(&object, schema, entry.batches)?;
        let all = ReplayedEntry { range: entry.header.range(), batches, puts: entry.header.puts };
        without_flushed(&object, all, self.claim.manifest.flushed)
    }

    fn check_header(&mut self, object: &Path, position: EntryPosition, entry: &Entry) -> Result<()> {
        let header = &entry.header;
        let torn = self.torn.take();
        if header.torn_before != torn.is_some() || (header.torn_before && !header.is_sentinel()) {
            return Err(match torn {
                Some(torn) => torn.error,
                None => Error::corrupt(object, "a sentinel behind a torn entry", "a torn entry before it"),
            });
        }
        if header.previous_crc != self.previous_crc {
            return Err(Error::corrupt(
                object,
                format!("an entry behind one with checksum {:08x}", header.previous_crc),
                format!("an entry behind one with checksum {:08x}, as the one before it has", self.previous_crc),
            ));
        }
        if header.position != position || *header.shard != *self.claim.manifest.shard {
            return Err(Error::corrupt(
                object,
                format!("entry {} of shard `{}`", header.position, header.shard),
                format!("entry {position} of shard `{}`", self.claim.manifest.shard),
            ));
        }
        // A later entry, of whatever kind, shows that an earlier torn one is long settled.
        self.torn_tail = torn.map(|torn| torn.object.to_string());
        Ok(())
    }

    /// W2: one writer for each epoch, and none effective after a newer one has begun.
    fn check_epoch(&mut self, object: &Path, position: EntryPosition, entry: &Entry) -> Result<()> {
        let header = &entry.header;
        if header.epoch > self.claim.epoch {
            return Err(Error::Fenced { ours: self.claim.epoch, by: header.epoch });
        }
        if header.epoch < self.epoch && !header.is_sentinel() {
            let expected = format!("rows of epoch {} or a newer one, as before it", self.epoch);
            return Err(Error::corrupt(object, format!("rows of epoch {}", header.epoch), expected));
        }
        let known = if header.epoch == self.claim.epoch {
            self.claim.nonce
        } else {
            *self.writers.entry(header.epoch).or_insert(header.nonce)
        };
        if known != header.nonce {
            let expected = format!("writer {known}, which had this epoch");
            let found = format!("an entry of epoch {} by writer {}", header.epoch, header.nonce);
            return Err(Error::corrupt(object, found, expected));
        }
        if let Some(sentinel) = self.upto.filter(|sentinel| sentinel.position == position)
            && (header.epoch != self.claim.epoch || entry.crc != sentinel.crc)
        {
            let expected = format!("the sentinel of epoch {} that was just written", self.claim.epoch);
            return Err(Error::corrupt(object, format!("an entry of epoch {}", header.epoch), expected));
        }
        self.epoch = self.epoch.max(header.epoch);
        Ok(())
    }

    /// S1: no hole at or above the flushed `Seq`, no row twice. Below it generations hold the
    /// rows, whether or not the log ever did.
    fn check_rows(&mut self, object: &Path, entry: &Entry) -> Result<()> {
        let range = entry.header.range();
        let seen = self.rows_end.unwrap_or(Seq::ZERO);
        let hole = range.first() > seen.max(self.claim.manifest.flushed);
        if hole || range.first() < seen {
            let expected = format!("rows from {}", seen.max(self.claim.manifest.flushed));
            return Err(Error::corrupt(object, format!("rows {range}"), expected));
        }
        self.rows_end = Some(range.end());
        Ok(())
    }

    fn finish(self) -> Result<LogEnd> {
        // Only a sentinel can vouch for a torn entry. Epoch 1 writes none, and needs none: before
        // it nobody wrote to this log.
        if let Some(torn) = self.torn {
            return Err(torn.error);
        }
        let rows_end = self.rows_end.unwrap_or(Seq::ZERO);
        Ok(LogEnd {
            next_position: self.next,
            last_crc: self.previous_crc,
            next_seq: rows_end.max(self.claim.manifest.flushed),
            torn_tail: self.torn_tail,
        })
    }
}

/// Gives the batches the shard's own schema in place of the stream's, whose metadata is the
/// header. Columns added since the entry was written are null in it, and renamed ones are found by field id.
fn in_storage_schema(object: &Path, schema: &SchemaRef, batches: Vec<RecordBatch>) -> Result<Vec<RecordBatch>> {
    let own = |batch: RecordBatch| {
        let stored = batch.schema();
        let rows = batch.num_rows();
        let unfit = || Error::corrupt(object, described(&stored), described(schema));
        let columns = schema.fields().iter().map(|field| match position_of(field, &stored) {
            Some(at) if stored.field(at).data_type() == field.data_type() => Ok(Arc::clone(batch.column(at))),
            None if field.is_nullable() => Ok(new_null_array(field.data_type(), rows)),
            _ => Err(unfit()),
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        // A column that the shard does not have is no older schema's.
        let is_known = |field: &FieldRef| position_of(field, schema).is_some();
        if !stored.fields().iter().all(is_known) {
            return Err(unfit());
        }
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
            .map_err(|error| Error::corrupt(object, error.to_string(), "rows of the shard's schema"))
    };
    batches.into_iter().map(own).collect()
}

fn described(schema: &SchemaRef) -> String {
    let columns: Vec<_> =
        schema.fields().iter().map(|field| format!("{}: {}", field.name(), field.data_type())).collect();
    format!("the columns {}", columns.join(", "))
}

/// The entry without its rows below `flushed`; `None` where nothing is left.
fn without_flushed(object: &Path, entry: ReplayedEntry, flushed: Seq) -> Result<Option<ReplayedEntry>> {
    if entry.range.end() <= flushed {
        return Ok(None);
    }
    let skip = flushed.offset_from(entry.range.first());
    let mut left = skip;
    let mut skipped_puts = 0;
    for put in &entry.puts {
        if left == 0 {
            break;
        }
        // S2: a put is never split over memtables, so none is split by the flushed `Seq`.
        left = left.checked_sub(*put).ok_or_else(|| {
            let found = format!("a put of {put} rows across the flushed sequence number {flushed}");
            Error::corrupt(object, found, "puts wholly below or above it")
        })?;
        skipped_puts += 1;
    }
    let mut cut = BatchCut { batches: &entry.batches, at: 0 };
    cut.take(skip as usize);
    let range = SeqRange::between(entry.range.first().plus(skip), entry.range.end());
    let batches = cut.take(range.rows() as usize);
    Ok(Some(ReplayedEntry { range, batches, puts: entry.puts[skipped_puts..].to_vec() }))
}

#[cfg(test)]
mod tests;

//! The bytes of one log entry. No other file knows them.
//!
//! An entry is a plain, uncompressed Arrow IPC stream (W1) and a trailer that Arrow readers never
//! reach, because they stop at the stream's end marker:
//!
//! ```text
//! schema message      the storage schema; its metadata is the header, under `tidewal.*`
//! record batches      the rows, several puts to a message where they are small
//! end-of-stream       ff ff ff ff 00 00 00 00
//! magic               8 bytes, "TIDEWAL\x01"
//! stream length       u64, little endian: the bytes before the magic
//! CRC32C              u32, little endian, of everything before it
//! ```
//!
//! The checksum is verified before a decoder sees the bytes: a flipped bit can make a decoder
//! allocate petabytes (W8).

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use bytes::Bytes;
use object_store::path::Path;

use crate::error::{Error, Result};
use crate::ids::{EntryPosition, Epoch, Nonce, Seq, SeqRange};
use crate::rows::row_bytes;

const FORMAT_VERSION: &str = "1";
const KEY_PREFIX: &str = "tidewal.";
const MAGIC: [u8; 8] = *b"TIDEWAL\x01";
const END_OF_STREAM: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
const CRC_BYTES: usize = 4;
const TRAILER_BYTES: usize = MAGIC.len() + 8 + CRC_BYTES;

/// Small batches are joined up to this size: a message costs about as much as a thousand rows,
/// and readers want batches that stay in cache.
const MESSAGE_ROWS_MAX: usize = 8192;
const MESSAGE_BYTES_MAX: u64 = 1 << 20;

/// What an entry says about itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EntryHeader {
    pub(crate) shard: Arc<str>,
    pub(crate) epoch: Epoch,
    pub(crate) nonce: Nonce,
    pub(crate) position: EntryPosition,
    /// The first row; [`Seq::ZERO`] in a sentinel, which has none.
    pub(crate) first: Seq,
    /// The rows of each put, in order; empty in a sentinel.
    pub(crate) puts: Vec<u64>,
    /// The CRC32C of the entry before, as [`Entry::crc`]; 0 before the first.
    pub(crate) previous_crc: u32,
    /// A sentinel's word that the object before it is torn and ends what came before.
    pub(crate) torn_before: bool,
}

impl EntryHeader {
    /// The rows it holds.
    pub(crate) fn range(&self) -> SeqRange {
        SeqRange::starting_at(self.first, self.puts.iter().fold(0, |rows: u64, put| rows.saturating_add(*put)))
    }

    /// Whether it only marks the start of an epoch.
    pub(crate) fn is_sentinel(&self) -> bool {
        self.puts.is_empty()
    }

    fn to_metadata(&self) -> [(&'static str, String); 10] {
        [
            ("format_version", FORMAT_VERSION.to_owned()),
            ("shard", self.shard.to_string()),
            ("epoch", self.epoch.to_string()),
            ("nonce", self.nonce.to_string()),
            ("position", self.position.to_string()),
            ("first_seq", self.first.to_string()),
            ("rows", self.range().rows().to_string()),
            ("puts", puts_to_text(&self.puts)),
            ("previous_crc32c", format!("{:08x}", self.previous_crc)),
            ("torn_before", self.torn_before.to_string()),
        ]
    }

    fn from_metadata(metadata: &HashMap<String, String>) -> Result<Self, Damage> {
        let get = |key: &str| {
            metadata
                .get(&format!("{KEY_PREFIX}{key}"))
                .map(String::as_str)
                .ok_or_else(|| Damage::corrupt(format!("no `{KEY_PREFIX}{key}`"), "a complete header"))
        };
        let version = get("format_version")?;
        if version != FORMAT_VERSION {
            return Err(Damage::Unsupported { version: version.to_owned() });
        }
        let number = |key: &str| get(key)?.parse::<u64>().map_err(|_| unreadable(key, get(key)));
        let header = EntryHeader {
            shard: get("shard")?.into(),
            epoch: Epoch::new(number("epoch")?),
            nonce: Nonce::parse(get("nonce")?).ok_or_else(|| unreadable("nonce", get("nonce")))?,
            position: EntryPosition::new(number("position")?),
            first: Seq::new(number("first_seq")?),
            puts: puts_from_text(get("puts")?, number("rows")?).ok_or_else(|| unreadable("puts", get("puts")))?,
            previous_crc: u32::from_str_radix(get("previous_crc32c")?, 16)
                .map_err(|_| unreadable("previous_crc32c", get("previous_crc32c")))?,
            torn_before: get("torn_before")? == "true",
        };
        Ok(header)
    }
}

/// Runs of equal sizes are written once: `1*500,20` is five hundred puts of one row, then one of
/// twenty.
fn puts_to_text(puts: &[u64]) -> String {
    let mut text = String::new();
    for run in puts.chunk_by(|a, b| a == b) {
        let separator = if text.is_empty() { "" } else { "," };
        // Writing to a String cannot fail.
        let _ = match run {
            [rows] => write!(text, "{separator}{rows}"),
            _ => write!(text, "{separator}{}*{}", run[0], run.len()),
        };
    }
    text
}

/// `None` where the text is no list of sizes that add up to `rows`.
fn puts_from_text(text: &str, rows: u64) -> Option<Vec<u64>> {
    let mut puts = Vec::new();
    let mut left = rows;
    for run in text.split(',').filter(|_| !text.is_empty()) {
        let (size, times) = run.split_once('*').unwrap_or((run, "1"));
        let (size, times): (u64, u64) = (size.parse().ok()?, times.parse().ok()?);
        // Checked before anything is allocated: there are no more puts than rows, and no more
        // rows than the entry says.
        left = left.checked_sub(size.checked_mul(times).filter(|all| *all > 0)?)?;
        puts.resize(puts.len() + times as usize, size);
    }
    (left == 0).then_some(puts)
}

fn unreadable(key: &str, value: Result<&str, Damage>) -> Damage {
    Damage::corrupt(format!("`{KEY_PREFIX}{key}` = `{}`", value.unwrap_or_default()), "a header this format allows")
}

/// An entry as it goes to the store.
#[derive(Clone, Debug)]
pub(crate) struct EncodedEntry {
    pub(crate) bytes: Bytes,
    /// The checksum in its trailer, which the next entry carries on. (The checksum of the whole
    /// object would say nothing: over data and its own CRC a CRC is the same for every object.)
    pub(crate) crc: u32,
}

/// Builds the bytes of an entry. `batches` hold the rows of `header.puts`, in order, in the
/// storage schema.
pub(crate) fn encode(header: &EntryHeader, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<EncodedEntry> {
    let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    if rows != header.range().rows() {
        let found = format!("{rows} rows in the batches and {} in its puts", header.range().rows());
        return Err(Error::invalid("the log entry", found, "as many in both"));
    }
    let stream = encode_stream(header, schema, batches)
        .map_err(|error| Error::invalid("the log entry", error.to_string(), "columns an Arrow IPC stream can carry"))?;
    let mut bytes = stream;
    let stream_bytes = bytes.len() as u64;
    bytes.extend_from_slice(&MAGIC);
    bytes.extend_from_slice(&stream_bytes.to_le_bytes());
    let covered = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&covered.to_le_bytes());
    Ok(EncodedEntry { bytes: bytes.into(), crc: covered })
}

fn encode_stream(header: &EntryHeader, schema: &SchemaRef, batches: &[RecordBatch]) -> Result<Vec<u8>, ArrowError> {
    let mut metadata = schema.metadata().clone();
    for (key, value) in header.to_metadata() {
        metadata.insert(format!("{KEY_PREFIX}{key}"), value);
    }
    let schema = Schema::new_with_metadata(schema.fields().clone(), metadata);
    let estimate: u64 = batches.iter().map(row_bytes).sum();
    let bytes = Vec::with_capacity(estimate as usize + 4096);
    let mut writer = StreamWriter::try_new(bytes, &schema)?;
    for group in message_groups(batches) {
        write_group(&mut writer, group)?;
    }
    writer.into_inner()
}

fn write_group(writer: &mut StreamWriter<Vec<u8>>, group: &[RecordBatch]) -> Result<(), ArrowError> {
    if let [first, _, ..] = group {
        // Dictionaries of several batches may not fit one key type together.
        if let Ok(joined) = concat_batches(first.schema_ref(), group) {
            return writer.write(&joined);
        }
    }
    group.iter().try_for_each(|batch| writer.write(batch))
}

/// Cuts the batches into runs that become one message each.
fn message_groups(batches: &[RecordBatch]) -> Vec<&[RecordBatch]> {
    let mut groups = Vec::new();
    let (mut start, mut rows, mut bytes) = (0, 0, 0);
    for (at, batch) in batches.iter().enumerate() {
        let batch_bytes = row_bytes(batch).saturating_sub(crate::rows::ARRAY_BYTES * batch.num_columns() as u64);
        let full = rows + batch.num_rows() > MESSAGE_ROWS_MAX || bytes + batch_bytes > MESSAGE_BYTES_MAX;
        if full && at > start {
            groups.push(&batches[start..at]);
            (start, rows, bytes) = (at, 0, 0);
        }
        rows += batch.num_rows();
        bytes += batch_bytes;
    }
    if start < batches.len() {
        groups.push(&batches[start..]);
    }
    groups
}

/// An entry as it came from the store.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) header: EntryHeader,
    /// The rows, in order; their boundaries are not those of the puts.
    pub(crate) batches: Vec<RecordBatch>,
    pub(crate) crc: u32,
}

/// Why an object is not an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Damage {
    /// It ends before an entry ends, or in zeros: what a crash leaves of an unfinished write.
    Torn {
        /// What was there.
        found: String,
    },
    /// It is as long as it says and does not hold what it should.
    Corrupt {
        /// What was there.
        found: String,
        /// What should be there.
        expected: String,
    },
    /// It is whole, in a format this release does not know.
    Unsupported {
        /// The format's version.
        version: String,
    },
}

impl Damage {
    fn corrupt(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Damage::Corrupt { found: found.into(), expected: expected.into() }
    }

    /// Whether it may be the unfinished last write of a crashed writer.
    pub(crate) fn is_torn(&self) -> bool {
        matches!(self, Damage::Torn { .. })
    }

    /// The error for an object that had to be whole.
    pub(crate) fn into_error(self, object: &Path) -> Error {
        match self {
            Damage::Torn { found } => Error::corrupt(object, found, "a whole log entry: only the last may be torn"),
            Damage::Corrupt { found, expected } => Error::corrupt(object, found, expected),
            Damage::Unsupported { version } => Error::invalid(
                format!("log entry `{object}`"),
                format!("format version {version}"),
                format!("format version {FORMAT_VERSION}; open the shard with the release that wrote it"),
            ),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Torn { found } => write!(f, "torn: {found}"),
            Damage::Corrupt { found, expected } => write!(f, "found {found}; expected {expected}"),
            Damage::Unsupported { version } => write!(f, "unknown format version {version}"),
        }
    }
}

/// Reads an entry. Rows stay where they are in `bytes` as far as their alignment allows.
pub(crate) fn decode(bytes: &Bytes) -> Result<Entry, Damage> {
    let (stream_bytes, crc) = verify(bytes)?;
    let stream = Buffer::from(bytes.slice(..stream_bytes));
    // The checksum holds, so a panic here is a defect of the writer or the decoder. It must not
    // take the process down either (W8).
    let decoded = catch_unwind(AssertUnwindSafe(|| decode_stream(stream)));
    let (schema, batches) = match decoded {
        Ok(Ok(decoded)) => decoded,
        Ok(Err(error)) => return Err(Damage::corrupt(error.to_string(), "an Arrow IPC stream")),
        Err(_) => return Err(Damage::corrupt("bytes the Arrow decoder panics on", "an Arrow IPC stream")),
    };
    let header = EntryHeader::from_metadata(schema.metadata())?;
    let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    if rows != header.range().rows() {
        return Err(Damage::corrupt(format!("{rows} rows"), format!("{} as its header says", header.range().rows())));
    }
    Ok(Entry { header, batches, crc })
}

fn decode_stream(mut stream: Buffer) -> Result<(SchemaRef, Vec<RecordBatch>), ArrowError> {
    let mut decoder = StreamDecoder::new();
    let mut batches = Vec::new();
    while !stream.is_empty() {
        batches.extend(decoder.decode(&mut stream)?);
    }
    decoder.finish()?;
    let schema = decoder.schema().ok_or_else(|| ArrowError::IpcError("a stream without a schema".to_owned()))?;
    Ok((schema, batches))
}

/// Checks the trailer and returns the length of the stream and the checksum of what precedes its
/// last four bytes.
///
/// A crash cuts an object or leaves zeros at its end; it does not write a trailer. So an object
/// that still shows *any* part of a trailer in its place was complete once, and what is wrong
/// with it is corruption: calling it torn would lose rows that may have been acknowledged.
fn verify(bytes: &[u8]) -> Result<(usize, u32), Damage> {
    let Some(stream_bytes) = bytes.len().checked_sub(TRAILER_BYTES).filter(|length| *length >= END_OF_STREAM.len())
    else {
        return Err(Damage::Torn { found: format!("{} bytes, fewer than any entry has", bytes.len()) });
    };
    let (stream, trailer) = bytes.split_at(stream_bytes);
    let (magic, rest) = trailer.split_at(MAGIC.len());
    let (length, stored) = rest.split_at(8);
    let marks = [magic == MAGIC, length == (stream_bytes as u64).to_le_bytes(), stream.ends_with(&END_OF_STREAM)];
    if trailer.iter().all(|byte| *byte == 0) {
        return Err(Damage::Torn { found: format!("{} bytes that end in zeros", bytes.len()) });
    }
    if !marks.contains(&true) {
        return Err(Damage::Torn { found: format!("{} bytes without a trailer", bytes.len()) });
    }
    let covered = crc32c::crc32c(&bytes[..bytes.len() - CRC_BYTES]);
    if marks.contains(&false) || stored != covered.to_le_bytes() {
        return Err(Damage::corrupt(
            format!("{} bytes with checksum {covered:08x}", bytes.len()),
            "a trailer with the length and checksum of the bytes before it",
        ));
    }
    Ok((stream_bytes, covered))
}

#[cfg(test)]
mod tests;

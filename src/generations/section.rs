//! `indexes.tw`: one section per index, and the directory at its end.
//!
//! A kind of index takes part by implementing [`SectionKind`]: how its section is built from rows,
//! and how it is opened again. Nothing else here knows what is in a section, and a section that
//! cannot be read is built again from the rows.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwapOption;
use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::blocks::{Block, BlockFile, Blocks, MemoryBlocks, SectionBlocks};
use super::meta::{FORMAT_VERSION, FileMeta};
use super::rows_file::RowsFile;
use crate::error::{Error, Result};
use crate::query::failed;

/// What `indexes.tw` begins and ends with.
const MAGIC: &[u8; 8] = b"TIDEWIDX";
/// Behind the directory: its length and its checksum, then the magic.
const TRAILER_BYTES: usize = 16;
/// Sections begin at multiples of this.
const ALIGNMENT: usize = 64;

/// An index as generations hold it.
pub(crate) trait SectionKind: fmt::Debug + Send + Sync + 'static {
    /// What is asked once a section is open.
    type Opened: Send + Sync;

    /// The kind's name in the directory.
    fn kind(&self) -> &'static str;
    /// The index's name in the directory.
    fn name(&self) -> &str;
    /// The section for these rows (in storage form, in order). Offsets count from its start.
    fn build(&self, rows: &[RecordBatch]) -> Result<SectionBytes, ArrowError>;
    /// Opens a section whose root is this block.
    fn open(&self, root: Block, blocks: Arc<dyn Blocks>) -> Result<Self::Opened>;
}

/// A section's bytes, and the part of them that is read first.
#[derive(Clone, Debug)]
pub(crate) struct SectionBytes {
    pub(crate) bytes: Vec<u8>,
    pub(crate) root: Block,
}

/// What the directory says of one section.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SectionEntry {
    kind: String,
    name: String,
    offset: u64,
    bytes: u64,
    crc32c: u32,
    /// Where the root lies within the section, and its checksum.
    root_offset: u64,
    root_bytes: u32,
    root_crc32c: u32,
}

#[derive(Debug, Serialize, Deserialize)]
struct Directory {
    format_version: u32,
    sections: Vec<SectionEntry>,
}

/// The file with these sections, in this order.
pub(crate) fn index_file(sections: &[(String, &'static str, SectionBytes)]) -> Result<(Vec<u8>, FileMeta), ArrowError> {
    let mut bytes = MAGIC.to_vec();
    let mut directory = Directory { format_version: FORMAT_VERSION, sections: Vec::with_capacity(sections.len()) };
    for (name, kind, section) in sections {
        bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        directory.sections.push(SectionEntry {
            kind: (*kind).to_owned(),
            name: name.clone(),
            offset: bytes.len() as u64,
            bytes: section.bytes.len() as u64,
            crc32c: crc32c::crc32c(&section.bytes),
            root_offset: section.root.offset,
            root_bytes: section.root.length,
            root_crc32c: section.root.crc,
        });
        bytes.extend_from_slice(&section.bytes);
    }
    let tail_offset = bytes.len();
    let json = serde_json::to_vec(&directory).map_err(|error| ArrowError::JsonError(error.to_string()))?;
    bytes.extend_from_slice(&json);
    bytes.extend_from_slice(&u32::try_from(json.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(&json).to_le_bytes());
    bytes.extend_from_slice(MAGIC);
    let tail_crc32c = crc32c::crc32c(bytes.get(tail_offset..).unwrap_or_default());
    let meta = FileMeta {
        bytes: bytes.len() as u64,
        crc32c: crc32c::crc32c(&bytes),
        tail_offset: tail_offset as u64,
        tail_crc32c,
    };
    Ok((bytes, meta))
}

/// The sections that a file's end part names.
pub(crate) fn sections(object: &str, tail: &[u8]) -> Result<Vec<SectionEntry>> {
    let corrupt = |found: String| Error::corrupt(object, found, "a directory of index sections");
    let length = tail.len().checked_sub(TRAILER_BYTES).ok_or_else(|| corrupt(format!("{} bytes", tail.len())))?;
    let (json, trailer) = tail.split_at(length);
    if trailer.get(8..) != Some(MAGIC) || trailer.get(..4) != Some(&(length as u32).to_le_bytes()) {
        return Err(corrupt("another trailer".to_owned()));
    }
    let directory: Directory = serde_json::from_slice(json).map_err(|error| corrupt(error.to_string()))?;
    if directory.format_version != FORMAT_VERSION {
        return Err(corrupt(format!("format version {}", directory.format_version)));
    }
    Ok(directory.sections)
}

/// One index of an open generation: opened when it is first asked, and kept open.
pub(crate) struct SectionHandle<K: SectionKind> {
    pub(crate) kind: Arc<K>,
    file: Arc<BlockFile>,
    /// `None` where the directory does not have it, or cannot be read.
    entry: Option<SectionEntry>,
    rows: Arc<RowsFile>,
    rows_count: u64,
    opened: ArcSwapOption<K::Opened>,
    /// Whether it was built again; held while that is done, so that it is done once.
    rebuilt: Mutex<bool>,
}

impl<K: SectionKind> SectionHandle<K> {
    pub(crate) fn new(
        kind: Arc<K>,
        file: &Arc<BlockFile>,
        entries: &[SectionEntry],
        rows: &Arc<RowsFile>,
        rows_count: u64,
    ) -> Self {
        let entry = entries.iter().find(|entry| entry.kind == kind.kind() && entry.name == kind.name()).cloned();
        SectionHandle {
            kind,
            file: Arc::clone(file),
            entry,
            rows: Arc::clone(rows),
            rows_count,
            opened: ArcSwapOption::empty(),
            rebuilt: Mutex::new(false),
        }
    }

    /// Asks the open section. One that turns out to be unreadable is built again from the rows,
    /// once, and asked again.
    pub(crate) fn ask<T>(&self, question: impl Fn(&Arc<K::Opened>) -> Result<T>) -> Result<T> {
        let asked = match &*self.opened.load() {
            Some(section) => question(section),
            None => self.open().and_then(|section| question(&section)),
        };
        match asked {
            Err(error @ Error::Corrupt { .. }) => question(&self.rebuild(&error)?),
            answered => answered,
        }
    }

    fn open(&self) -> Result<Arc<K::Opened>> {
        let entry = self.entry.as_ref().ok_or_else(|| {
            let found = format!("no section of {} `{}`", self.kind.kind(), self.kind.name());
            Error::corrupt(self.file.object(), found, "a section for each index")
        })?;
        let root = Block { offset: entry.root_offset, length: entry.root_bytes, crc: entry.root_crc32c };
        let blocks = SectionBlocks { file: Arc::clone(&self.file), offset: entry.offset };
        let section = Arc::new(self.kind.open(root, Arc::new(blocks))?);
        self.opened.store(Some(Arc::clone(&section)));
        Ok(section)
    }

    fn rebuild(&self, why: &Error) -> Result<Arc<K::Opened>> {
        let mut rebuilt = self.rebuilt.lock().unwrap_or_else(PoisonError::into_inner);
        if *rebuilt && let Some(section) = self.opened.load_full() {
            return Ok(section);
        }
        tracing::warn!(index = self.kind.name(), object = self.file.object(), error = %why,
            "an index of a generation cannot be read and is built again from its rows");
        let rows = self.rows.batches(0, self.rows_count)?;
        let rows: Vec<RecordBatch> = rows.into_iter().map(|(_, batch)| batch).collect();
        let built = self.kind.build(&rows).map_err(failed)?;
        let name = format!("{} (built again)", self.file.object());
        let blocks = MemoryBlocks { bytes: Bytes::from(built.bytes), name };
        let section = Arc::new(self.kind.open(built.root, Arc::new(blocks))?);
        self.opened.store(Some(Arc::clone(&section)));
        *rebuilt = true;
        self.file.access().stats.sections_rebuilt.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Ok(section)
    }
}

impl<K: SectionKind> fmt::Debug for SectionHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SectionHandle").field("kind", &self.kind).finish_non_exhaustive()
    }
}

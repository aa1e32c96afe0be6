//! Checked parts of objects: what every reader of a generation's file reads through.
//!
//! A block is verified before anyone looks at its bytes: a flipped bit can make a decoder
//! allocate without end. Verified blocks are kept in one cache with a limit in bytes, and a
//! block that many ask for at once is read once.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use moka::sync::Cache;
use object_store::path::Path;
use tokio::runtime;

use crate::error::{Error, Operation, Result};
use crate::wal::store::ShardStore;

/// A part of an object, and the checksum of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Block {
    /// Bytes from the start of the object.
    pub(crate) offset: u64,
    /// How many.
    pub(crate) length: u32,
    /// The CRC32C of them.
    pub(crate) crc: u32,
}

impl Block {
    /// Of bytes that lie at this offset.
    pub(crate) fn of(offset: u64, bytes: &[u8]) -> Self {
        Block { offset, length: u32::try_from(bytes.len()).unwrap_or(u32::MAX), crc: crc32c::crc32c(bytes) }
    }

    fn range(self) -> Range<u64> {
        self.offset..self.offset.saturating_add(self.length.into())
    }
}

/// Where blocks are read from.
pub(crate) trait Blocks: fmt::Debug + Send + Sync {
    /// The bytes of a block, once their checksum holds. May do I/O, and blocks the thread while it does.
    fn read(&self, block: Block) -> Result<Bytes>;

    /// Several blocks in the order given; neighbours are read in one request.
    fn read_all(&self, blocks: &[Block]) -> Result<Vec<Bytes>> {
        blocks.iter().map(|block| self.read(*block)).collect()
    }

    /// The object's name, for errors.
    fn object(&self) -> &str;
}

/// What reading generations has cost since the shard was opened. Each counter stands alone and
/// guards nothing, so `Relaxed` needs no pair.
#[derive(Debug, Default)]
pub(crate) struct ReadStats {
    /// Bytes asked of the store.
    pub(crate) bytes_read: AtomicU64,
    /// Requests made for them; a request may name several ranges.
    pub(crate) reads: AtomicU64,
    /// Zones that filters left unread.
    pub(crate) zones_pruned: AtomicU64,
    /// Columns whose statistics were missing or unusable, each time a generation was opened.
    pub(crate) seeds_unusable: AtomicU64,
    /// Index sections that could not be read and were built again from the rows.
    pub(crate) sections_rebuilt: AtomicU64,
}

/// What all files of a shard's generations are read with.
#[derive(Clone)]
pub(crate) struct FileAccess {
    pub(crate) store: ShardStore,
    /// Where requests run while the thread that needs them waits.
    pub(crate) io: runtime::Handle,
    pub(crate) cache: BlockCache,
    pub(crate) stats: Arc<ReadStats>,
}

/// Verified blocks, as bytes or decoded.
#[derive(Clone)]
pub(crate) struct BlockCache(Cache<(u64, u64), Cached>);

#[derive(Clone)]
enum Cached {
    Bytes(Bytes),
    Rows(RecordBatch, u32),
}

/// What a cached block costs beside its bytes.
const CACHE_ENTRY_BYTES: u32 = 200;

impl BlockCache {
    /// A cache that holds about so many bytes.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let weigh = |_: &(u64, u64), cached: &Cached| match cached {
            Cached::Bytes(bytes) => u32::try_from(bytes.len()).unwrap_or(u32::MAX).saturating_add(CACHE_ENTRY_BYTES),
            Cached::Rows(_, bytes) => bytes.saturating_add(CACHE_ENTRY_BYTES),
        };
        BlockCache(Cache::builder().max_capacity(bytes_max).weigher(weigh).build_with_hasher(Default::default()))
    }

    /// The bytes it holds now.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.weighted_size()
    }
}

impl fmt::Debug for FileAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileAccess").field("root", &self.store.root.as_ref()).finish_non_exhaustive()
    }
}

/// One file of a generation. It never changes (G3), so what is read of it may be kept.
#[derive(Debug)]
pub(crate) struct BlockFile {
    /// Its key in the cache: an opened file is known by number, not by name.
    id: u64,
    path: Path,
    name: String,
    access: FileAccess,
}

impl BlockFile {
    pub(crate) fn new(path: Path, access: &FileAccess) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Only its being different counts.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        BlockFile { id, name: path.to_string(), path, access: access.clone() }
    }

    pub(crate) fn access(&self) -> &FileAccess {
        &self.access
    }

    /// A decoded block, decoding it if the cache does not have it.
    pub(crate) fn rows(&self, block: Block, decode: impl Fn(Bytes) -> Result<RecordBatch>) -> Result<RecordBatch> {
        let load = || {
            let bytes = self.fetch(&[block])?.pop().unwrap_or_default();
            Ok(Cached::Rows(decode(bytes)?, block.length))
        };
        match self.load(block, load)? {
            Cached::Rows(rows, _) => Ok(rows),
            Cached::Bytes(bytes) => decode(bytes),
        }
    }

    /// Decoded blocks in the order given. What the cache lacks is read in as few requests as
    /// their places allow.
    pub(crate) fn all_rows(
        &self,
        blocks: &[Block],
        decode: impl Fn(Block, Bytes) -> Result<RecordBatch>,
    ) -> Result<Vec<RecordBatch>> {
        let mut fetched = self.fetch_missing(blocks)?.into_iter();
        let rows = blocks.iter().map(|block| match fetched.next().flatten() {
            None => self.rows(*block, |bytes| decode(*block, bytes)),
            Some(bytes) => self.rows_of(*block, bytes, |bytes| decode(*block, bytes)),
        });
        rows.collect()
    }

    fn rows_of(
        &self,
        block: Block,
        bytes: Bytes,
        decode: impl Fn(Bytes) -> Result<RecordBatch>,
    ) -> Result<RecordBatch> {
        match self.load(block, || Ok(Cached::Rows(decode(bytes.clone())?, block.length)))? {
            Cached::Rows(rows, _) => Ok(rows),
            Cached::Bytes(bytes) => decode(bytes),
        }
    }

    /// One load at a time for each block, whoever asks.
    fn load(&self, block: Block, load: impl FnOnce() -> Result<Cached>) -> Result<Cached> {
        let key = (self.id, block.offset);
        // The cheap way first: the other takes a lock.
        if let Some(cached) = self.access.cache.0.get(&key) {
            return Ok(cached);
        }
        self.access.cache.0.try_get_with(key, load).map_err(|error: Arc<Error>| (*error).clone())
    }

    /// The bytes of those blocks the cache lacks, if there are several of them.
    fn fetch_missing(&self, blocks: &[Block]) -> Result<Vec<Option<Bytes>>> {
        let missing = |block: &&Block| !self.access.cache.0.contains_key(&(self.id, block.offset));
        let wanted: Vec<Block> = blocks.iter().filter(missing).copied().collect();
        let mut found = vec![None; blocks.len()];
        if wanted.len() < 2 {
            return Ok(found);
        }
        let mut bytes = wanted.iter().copied().zip(self.fetch(&wanted)?).peekable();
        for (block, found) in blocks.iter().zip(&mut found) {
            if let Some((_, bytes)) = bytes.next_if(|(fetched, _)| fetched == block) {
                *found = Some(bytes);
            }
        }
        Ok(found)
    }

    /// Reads blocks from the store and verifies them.
    fn fetch(&self, blocks: &[Block]) -> Result<Vec<Bytes>> {
        let (store, path) = (self.access.store.clone(), self.path.clone());
        let ranges: Vec<Range<u64>> = blocks.iter().map(|block| block.range()).collect();
        self.access.stats.reads.fetch_add(1, Ordering::Relaxed);
        let bytes: u64 = blocks.iter().map(|block| u64::from(block.length)).sum();
        self.access.stats.bytes_read.fetch_add(bytes, Ordering::Relaxed);
        let read = async move { store.get_ranges(&path, &ranges, Operation::ReadGeneration).await };
        let found = wait_for(&self.access.io, read)??;
        blocks.iter().zip(found).map(|(block, bytes)| self.verified(*block, bytes, blocks.len() > 1)).collect()
    }

    fn verified(&self, block: Block, bytes: Bytes, shares_buffer: bool) -> Result<Bytes> {
        let crc = crc32c::crc32c(&bytes);
        if bytes.len() as u64 != u64::from(block.length) || crc != block.crc {
            let found = format!("{} bytes with checksum {crc:08x} at byte {}", bytes.len(), block.offset);
            let expected = format!("{} bytes with checksum {:08x}", block.length, block.crc);
            return Err(Error::corrupt(&self.name, found, expected));
        }
        // A part of a joined read would keep the whole of it in memory, and the cache counts parts.
        Ok(if shares_buffer { Bytes::copy_from_slice(&bytes) } else { bytes })
    }
}

impl Blocks for BlockFile {
    fn read(&self, block: Block) -> Result<Bytes> {
        let load = || Ok(Cached::Bytes(self.fetch(&[block])?.pop().unwrap_or_default()));
        match self.load(block, load)? {
            Cached::Bytes(bytes) => Ok(bytes),
            Cached::Rows(..) => Err(Error::corrupt(&self.name, "a block read in two ways", "blocks of one kind each")),
        }
    }

    fn read_all(&self, blocks: &[Block]) -> Result<Vec<Bytes>> {
        let fetched = self.fetch_missing(blocks)?;
        let read = blocks.iter().zip(fetched).map(|(block, bytes)| match bytes {
            None => self.read(*block),
            Some(bytes) => self.load(*block, || Ok(Cached::Bytes(bytes.clone()))).map(|_| bytes),
        });
        read.collect()
    }

    fn object(&self) -> &str {
        &self.name
    }
}

/// Waits on this thread for a future that runs on the I/O threads. Never called on one of these.
pub(crate) fn wait_for<T: Send + 'static>(
    io: &runtime::Handle,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let (answer, answered) = mpsc::sync_channel(1);
    io.spawn(async move {
        // Losing it is harmless: nobody waits.
        let _ = answer.send(future.await);
    });
    // The I/O threads end only after the shard has.
    answered.recv().map_err(|_| Error::Closed)
}

/// A section of a file: blocks whose offsets count from its start.
#[derive(Debug)]
pub(crate) struct SectionBlocks {
    pub(crate) file: Arc<BlockFile>,
    pub(crate) offset: u64,
}

impl SectionBlocks {
    fn absolute(&self, block: Block) -> Block {
        Block { offset: self.offset.saturating_add(block.offset), ..block }
    }
}

impl Blocks for SectionBlocks {
    fn read(&self, block: Block) -> Result<Bytes> {
        self.file.read(self.absolute(block))
    }

    fn read_all(&self, blocks: &[Block]) -> Result<Vec<Bytes>> {
        let blocks: Vec<Block> = blocks.iter().map(|block| self.absolute(*block)).collect();
        self.file.read_all(&blocks)
    }

    fn object(&self) -> &str {
        self.file.object()
    }
}

/// A section in memory: one that was built again because its file could not be read.
#[derive(Debug)]
pub(crate) struct MemoryBlocks {
    pub(crate) bytes: Bytes,
    pub(crate) name: String,
}

impl Blocks for MemoryBlocks {
    fn read(&self, block: Block) -> Result<Bytes> {
        let range = block.offset as usize..block.offset as usize + block.length as usize;
        let found = self.bytes.get(range.clone()).map(|_| self.bytes.slice(range));
        found.ok_or_else(|| Error::corrupt(&self.name, "a block beyond its end", "blocks within the section"))
    }

    fn object(&self) -> &str {
        &self.name
    }
}

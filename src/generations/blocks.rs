//! Checked parts of objects: what every reader of a generation's file reads through.

use bytes::Bytes;

use crate::error::Result;

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
}

/// Where blocks are read from.
pub(crate) trait Blocks: std::fmt::Debug + Send + Sync {
    /// The bytes of a block, once their checksum holds. May do I/O, and blocks the thread while it does.
    fn read(&self, block: Block) -> Result<Bytes>;

    /// Several blocks in the order given; neighbours are read in one request.
    fn read_all(&self, blocks: &[Block]) -> Result<Vec<Bytes>> {
        blocks.iter().map(|block| self.read(*block)).collect()
    }

    /// The object's name, for errors.
    fn object(&self) -> &str;
}

//! The section of a primary key or a B-tree: every key of the generation's rows, sorted.
//!
//! All numbers are little-endian. Offsets count from the start of the section.
//!
//! ```text
//! section   = entry blocks, then (primary keys) superseded blocks and a filter, then the root
//! entries   = count u32 | row u32 x count | key end u32 x count | key bytes
//!             ascending by (key, row); key i is the key bytes from key end i-1 (0 for the first)
//!             to key end i
//! superseded= count u32 | (row u32, by u32) x count          ascending by row
//! filter    = descriptor (20 bytes) | fingerprints            a binary fuse filter of 8 bits
//!             over the XXH3 (64 bits, seed 0) of each different key
//! root      = "TWKEYS\0\1" | entries u64 | blocks u32 | superseded blocks u32 | has filter u32
//!             | length of last key u32 | last key
//!             | block x blocks | superseded block x superseded blocks | [block of the filter]
//! block     = offset u64 | length u32 | CRC32C u32 | entries before it u64 (superseded: its first row)
//!             | length of first key u32 | first key               (none for superseded and filter)
//! ```
//!
//! A row's key is its bytes in Arrow's row format (`src/indexes/key.rs`). A row is superseded by
//! the next newer row of its key in the same generation, which is decided by the keys themselves.

mod build;
mod read;
#[cfg(test)]
mod tests;

pub(crate) use build::build_keys;
pub(crate) use read::KeySection;

/// Whose keys they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    /// A primary key: with a filter, and with what each row supersedes.
    PrimaryKey,
    /// A B-tree.
    Ordered,
}

const MAGIC: &[u8; 8] = b"TWKEYS\0\x01";

/// What the hash of a key is, everywhere and for ever.
fn hash_of(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

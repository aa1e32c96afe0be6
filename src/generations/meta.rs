//! What the manifest says of a generation.

use object_store::path::Path;
use serde::{Deserialize, Serialize};

use super::blocks::Block;
use crate::ids::{Seq, SeqRange};

/// The version of the files' format that this release writes.
pub(crate) const FORMAT_VERSION: u32 = 1;
/// What a generation may demand of its reader that this release can do.
const CAPABILITIES: [&str; 0] = [];

/// One generation, as the manifest has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GenerationMeta {
    /// The version of the format of its files.
    pub(crate) format_version: u32,
    /// What a reader must understand; unknown ones are refused by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) capabilities: Vec<String>,
    /// Its folder below the shard's `gen/`.
    pub(crate) folder: String,
    /// Its rows: `[first, end)`.
    pub(crate) first: Seq,
    pub(crate) end: Seq,
    /// `rows.arrow`.
    pub(crate) rows: FileMeta,
    /// `indexes.tw`.
    pub(crate) indexes: FileMeta,
}

/// One file of a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileMeta {
    /// Its size in bytes.
    pub(crate) bytes: u64,
    /// The CRC32C of the whole file.
    pub(crate) crc32c: u32,
    /// Where its end part (footer or directory) begins. It goes on to the end of the file.
    pub(crate) tail_offset: u64,
    /// The CRC32C of that part.
    pub(crate) tail_crc32c: u32,
}

impl FileMeta {
    /// The end part, which says where everything else is.
    pub(crate) fn tail(&self) -> Block {
        let length = u32::try_from(self.bytes.saturating_sub(self.tail_offset)).unwrap_or(u32::MAX);
        Block { offset: self.tail_offset, length, crc: self.tail_crc32c }
    }
}

impl GenerationMeta {
    pub(crate) fn range(&self) -> SeqRange {
        SeqRange::between(self.first, self.end)
    }

    pub(crate) fn rows_path(&self, root: &Path) -> Path {
        folder(root).join(self.folder.as_str()).join(ROWS)
    }

    pub(crate) fn indexes_path(&self, root: &Path) -> Path {
        folder(root).join(self.folder.as_str()).join(INDEXES)
    }

    /// What this release cannot read of it, in words.
    pub(crate) fn unreadable(&self) -> Option<String> {
        if self.format_version != FORMAT_VERSION {
            return Some(format!("format version {} (this release reads {FORMAT_VERSION})", self.format_version));
        }
        let unknown = self.capabilities.iter().find(|wanted| !CAPABILITIES.contains(&wanted.as_str()))?;
        Some(format!("the capability `{unknown}`, which this release does not have"))
    }
}

/// The name of the file with the rows.
pub(crate) const ROWS: &str = "rows.arrow";
/// The name of the file with the indexes.
pub(crate) const INDEXES: &str = "indexes.tw";

/// The folder of a shard's generations.
pub(crate) fn folder(root: &Path) -> Path {
    root.clone().join("gen")
}

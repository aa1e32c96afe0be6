//! What the objects of a shard are called.
//!
//! A log entry's name is its position in binary, lowest bit first. Neighbours in the log then
//! differ in the first character, which spreads them over the partitions of a store that shards
//! by prefix. The price is that a listing has no useful order, and needs none: it is only ever a
//! hint about the highest position.

use object_store::path::Path;

use crate::ids::{EntryPosition, ManifestVersion};

const POSITION_DIGITS: usize = 64;
const VERSION_DIGITS: usize = 20;

/// The folder of the log's entries.
pub(crate) fn entry_folder(root: &Path) -> Path {
    root.clone().join("wal")
}

/// The name of the entry at a position.
pub(crate) fn entry_path(root: &Path, position: EntryPosition) -> Path {
    entry_folder(root).join(format!("{:064b}.arrow", position.get().reverse_bits()))
}

/// The position an entry's name says; `None` for a name that is not an entry's.
pub(crate) fn entry_position(root: &Path, path: &Path) -> Option<EntryPosition> {
    let digits = path.filename()?.strip_suffix(".arrow")?;
    let well_formed = digits.len() == POSITION_DIGITS && digits.bytes().all(|digit| matches!(digit, b'0' | b'1'));
    let position = u64::from_str_radix(digits, 2).ok().filter(|_| well_formed)?.reverse_bits();
    let position = EntryPosition::new(position);
    // Position 0 is "before the log", and an entry in a folder below the log's is not the log's.
    (position.get() > 0 && entry_path(root, position) == *path).then_some(position)
}

/// The folder of the shard's manifests.
pub(crate) fn manifest_folder(root: &Path) -> Path {
    root.clone().join("manifest")
}

/// The name of a manifest version.
pub(crate) fn manifest_path(root: &Path, version: ManifestVersion) -> Path {
    manifest_folder(root).join(format!("{:020}.json", version.get()))
}

/// The version a manifest's name says; `None` for a name that is not a manifest's.
pub(crate) fn manifest_version(root: &Path, path: &Path) -> Option<ManifestVersion> {
    let digits = path.filename()?.strip_suffix(".json")?;
    let well_formed = digits.len() == VERSION_DIGITS && digits.bytes().all(|digit| digit.is_ascii_digit());
    let version = ManifestVersion::new(digits.parse().ok().filter(|_| well_formed)?);
    (version.get() > 0 && manifest_path(root, version) == *path).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_its_position_and_version() {
        let root = Path::from("shards/a");
        for value in [1, 2, 3, 255, 1 << 40, u64::MAX] {
            let position = EntryPosition::new(value);
            assert_eq!(entry_position(&root, &entry_path(&root, position)), Some(position));
            let version = ManifestVersion::new(value);
            assert_eq!(manifest_version(&root, &manifest_path(&root, version)), Some(version));
        }
        let first = entry_path(&root, EntryPosition::new(1));
        assert_eq!(first.as_ref(), format!("shards/a/wal/1{}.arrow", "0".repeat(63)));
    }

    #[test]
    fn foreign_names_are_ignored() {
        let root = Path::from("a");
        let zero = "0".repeat(64);
        let one = format!("1{}", "0".repeat(63));
        for name in [
            "a/wal/readme.txt".to_owned(),
            format!("a/wal/{zero}.arrow"),
            format!("a/wal/{one}.arrow.tmp"),
            format!("a/wal/{one}0.arrow"),
            format!("a/wal/+{}.arrow", &one[1..]),
            format!("a/wal/deeper/{one}.arrow"),
            format!("b/wal/{one}.arrow"),
        ] {
            assert_eq!(entry_position(&root, &Path::from(name.as_str())), None, "{name}");
        }
        for name in
            ["a/manifest/1.json", "a/manifest/+0000000000000000001.json", "a/manifest/00000000000000000000.json"]
        {
            assert_eq!(manifest_version(&root, &Path::from(name)), None, "{name}");
        }
    }
}

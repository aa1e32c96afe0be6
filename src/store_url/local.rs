//! A folder of this machine as a store.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;

use crate::error::{Error, Operation, Result};

/// The store of a folder, which is created if missing.
///
/// Synced always (invariant W1): without, an acknowledged write may be gone after a power cut.
pub(super) fn open(folder: &Path) -> Result<Arc<dyn ObjectStore>> {
    let folder = std::path::absolute(folder).map_err(|error| io_error(folder, error))?;
    create(&folder)?;
    let store = LocalFileSystem::new_with_prefix(&folder)
        .map_err(|error| Error::io(Operation::OpenStore, folder.display(), 1, error))?;
    Ok(Arc::new(store.with_fsync(true)))
}

fn create(folder: &Path) -> Result<()> {
    let mut missing = Vec::new();
    let mut existing = folder;
    loop {
        match fs::metadata(existing) {
            Ok(metadata) if metadata.is_dir() => break,
            Ok(_) => {
                return Err(Error::invalid(
                    format!("store path `{}`", folder.display()),
                    format!("`{}`, which is a file", existing.display()),
                    "a folder, or a name where one can be created",
                ));
            }
            // What lies below a file is "not a folder", which says nothing of which one.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                missing.push(existing);
            }
            Err(error) => return Err(io_error(existing, error)),
        }
        match existing.parent() {
            Some(parent) => existing = parent,
            None => break,
        }
    }
    fs::create_dir_all(folder).map_err(|error| io_error(folder, error))?;
    // A new folder is durable once its parent is. The store syncs only below its own root (W1).
    let parents: Vec<PathBuf> = missing.iter().filter_map(|new| new.parent()).map(Path::to_owned).collect();
    parents.iter().try_for_each(|parent| sync(parent).map_err(|error| io_error(parent, error)))
}

#[cfg(unix)]
fn sync(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

/// Folders cannot be synced here; the file system orders their entries itself.
#[cfg(not(unix))]
fn sync(_folder: &Path) -> io::Result<()> {
    Ok(())
}

fn io_error(path: &Path, error: io::Error) -> Error {
    Error::io(Operation::OpenStore, path.display(), 1, error)
}

//! Where a shard lives: an object store and a folder in it, given as a value or as a URL.

mod local;
mod remote;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::path::Path;
use url::Url;

use crate::error::{Error, Result};

/// An object store and the folder in it that a shard lives in.
///
/// Clones share the store. Two engines opened on clones are two writers of one shard, and the
/// later one fences the earlier.
///
/// ```
/// use tidewal::{Store, StoreKind};
///
/// let store = Store::from_url("memory://notes/2024")?;
/// assert_eq!(store.kind(), StoreKind::Memory);
/// assert_eq!(store.root().as_ref(), "2024");
/// # Ok::<(), tidewal::Error>(())
/// ```
#[derive(Clone)]
pub struct Store {
    object_store: Arc<dyn ObjectStore>,
    root: Path,
    kind: StoreKind,
}

/// What a store is, as far as its price goes: it decides how often the log is written by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreKind {
    /// A folder of this machine.
    Local,
    /// Memory of this process. What it holds ends with the process.
    Memory,
    /// A service that bills requests and answers in tens of milliseconds.
    Remote,
}

impl StoreKind {
    /// The setting `wal_flush_interval` where it is not given: a remote store bills each write,
    /// the others do not.
    pub(crate) fn default_flush_interval(self) -> Duration {
        match self {
            StoreKind::Local | StoreKind::Memory => Duration::ZERO,
            StoreKind::Remote => Duration::from_millis(100),
        }
    }
}

/// The schemes a URL may have, as shown to people.
const SCHEMES: &str = "a path, or a URL beginning with `file://`, `memory://`, `s3://`, `gs://` or `az://`";

/// What `memory://NAME` stands for, for as long as the process lives.
static NAMED_MEMORY: Mutex<BTreeMap<String, Arc<InMemory>>> = Mutex::new(BTreeMap::new());

impl Store {
    /// Opens the store a URL or path names. See [`Store::from_url_with_options`].
    ///
    /// # Errors
    /// As [`Store::from_url_with_options`].
    pub fn from_url(url_or_path: &str) -> Result<Self> {
        Self::from_url_with_options(url_or_path, [])
    }

    /// Opens the store a URL or path names.
    ///
    /// | | |
    /// |---|---|
    /// | `notes`, `/var/lib/notes`, `file:///var/lib/notes` | a folder, created if missing; every write is synced to the disk |
    /// | `memory://NAME`, `memory://NAME/folder` | memory; the same name is the same store within a process, and is kept until the process ends |
    /// | `s3://bucket/folder` | S3 and what speaks its protocol, with the feature `aws` |
    /// | `gs://bucket/folder` | Google Cloud Storage, with the feature `gcp` |
    /// | `az://container/folder` | Azure Blob Storage, with the feature `azure` |
    ///
    /// Remote stores take their configuration (credentials, region, endpoint) from the environment
    /// (`AWS_..`, `GOOGLE_..`, `AZURE_..`) and then from `options`, which win. The keys of
    /// options are those of the `object_store` crate: `region`, `endpoint`, `allow_http`,
    /// `access_key_id`, `account_name`, ... Other stores have no options.
    ///
    /// Creating the folder of a path is the only I/O; a remote store is first asked when a shard
    /// is opened. A folder that exists is not tried for writing, so that a read-only copy can
    /// be looked at.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] for a URL that names no store (no or an unknown scheme, a missing bucket, a query,
    /// fragment, port or credentials in it, a path that leads to or through a file), for a store whose cargo
    /// feature is off, and for options that do not exist or do not fit. [`Error::Io`] with
    /// [`Operation::OpenStore`](crate::Operation::OpenStore) when the folder cannot be made or read.
    pub fn from_url_with_options(
        url_or_path: &str,
        options: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self> {
        let options: Vec<(String, String)> = options.into_iter().collect();
        match Place::parse(url_or_path)? {
            Place::Folder(folder) => {
                no_options(url_or_path, &options)?;
                Ok(Self::new(local::open(&folder)?, Path::default()).with_kind(StoreKind::Local))
            }
            Place::Memory { name, root } => {
                no_options(url_or_path, &options)?;
                Ok(Self::new(named_memory(name), root).with_kind(StoreKind::Memory))
            }
            Place::Remote { service, bucket, root } => {
                let object_store = remote::open(service, &bucket, &options)?;
                Ok(Self::new(object_store, root))
            }
        }
    }

    /// A folder of any object store. It counts as [`StoreKind::Remote`]; see [`Store::with_kind`].
    ///
    /// The store must offer `PutMode::Create` (create only if absent), and a write it has
    /// acknowledged must be durable: give `LocalFileSystem` its `with_fsync(true)`.
    pub fn new(object_store: Arc<dyn ObjectStore>, root: impl Into<Path>) -> Self {
        Store { object_store, root: root.into(), kind: StoreKind::Remote }
    }

    /// Fresh memory. Reopen the shard through a clone of this value.
    pub fn memory() -> Self {
        Self::new(Arc::new(InMemory::new()), Path::default()).with_kind(StoreKind::Memory)
    }

    /// Says what the store is where the default, remote, is wrong.
    #[must_use]
    pub fn with_kind(mut self, kind: StoreKind) -> Self {
        self.kind = kind;
        self
    }

    /// The object store.
    pub fn object_store(&self) -> &Arc<dyn ObjectStore> {
        &self.object_store
    }

    /// The folder of the shard. Empty for the store's own root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What the store is.
    pub fn kind(&self) -> StoreKind {
        self.kind
    }
}

/// Written by hand: the `Debug` of a client may show its credentials, its `Display` does not.
impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("object_store", &format_args!("{}", self.object_store))
            .field("root", &self.root.as_ref())
            .field("kind", &self.kind)
            .finish()
    }
}

/// A service that speaks over the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    S3,
    Google,
    Azure,
}

/// What a URL or path names.
#[derive(Debug, PartialEq, Eq)]
enum Place {
    Folder(PathBuf),
    Memory { name: String, root: Path },
    Remote { service: Service, bucket: String, root: Path },
}

impl Place {
    fn parse(text: &str) -> Result<Self> {
        if text.is_empty() {
            return Err(Error::invalid("store URL", "nothing", SCHEMES));
        }
        if !is_url(text) {
            return Ok(Place::Folder(PathBuf::from(text)));
        }
        let url = Url::parse(text).map_err(|error| invalid_url(text, error.to_string(), SCHEMES))?;
        refuse_extras(text, &url)?;
        match url.scheme() {
            "file" => file_folder(text, &url).map(Place::Folder),
            "memory" => Ok(Place::Memory { name: host(text, &url, "a name")?, root: folder(text, &url)? }),
            "s3" => Self::remote(text, &url, Service::S3),
            "gs" => Self::remote(text, &url, Service::Google),
            "az" => Self::remote(text, &url, Service::Azure),
            other => Err(invalid_url(text, format!("the scheme `{other}`"), SCHEMES)),
        }
    }

    fn remote(text: &str, url: &Url, service: Service) -> Result<Self> {
        Ok(Place::Remote { service, bucket: host(text, url, "a bucket")?, root: folder(text, url)? })
    }
}

/// Whether the text is meant as a URL. `s3:/bucket` is a URL with a slash missing, not a folder
/// named `s3:`; `C:\notes` and `./a:b` are paths.
fn is_url(text: &str) -> bool {
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let well_formed = scheme.len() > 1
        && scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme.chars().all(|one| one.is_ascii_alphanumeric() || "+-.".contains(one));
    let known = ["file", "memory", "s3", "gs", "az"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    well_formed && (known || rest.starts_with("//"))
}

/// What a URL may carry and a place may not. Ignoring it would open another store than was meant.
fn refuse_extras(text: &str, url: &Url) -> Result<()> {
    let options = "no more than a place: give the rest as options or environment variables";
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid_url(text, "a user name or credentials", options));
    }
    if url.query().is_some() {
        return Err(invalid_url(text, "a query (`?..`)", options));
    }
    if url.fragment().is_some() {
        return Err(invalid_url(text, "a fragment (`#..`)", "none; write `%23` for a `#` in a name"));
    }
    match url.port() {
        Some(port) => Err(invalid_url(text, format!("the port {port}"), "none; an `endpoint` is an option")),
        None => Ok(()),
    }
}

fn file_folder(text: &str, url: &Url) -> Result<PathBuf> {
    // `file:notes` is read as `/notes` by the rules of URLs, and never meant so.
    let absolute = text.split_once(':').is_some_and(|(_, rest)| rest.starts_with('/'));
    match url.to_file_path() {
        Ok(path) if absolute => Ok(path),
        _ => Err(invalid_url(text, "no absolute path of this machine", "`file:///folder`, or a plain path")),
    }
}

fn host(text: &str, url: &Url, what: &str) -> Result<String> {
    match url.host_str() {
        Some(host) if !host.is_empty() => Ok(host.to_owned()),
        _ => {
            let scheme = url.scheme();
            Err(invalid_url(
                text,
                format!("no {}", what.trim_start_matches("a ")),
                format!("{what} after `{scheme}://`"),
            ))
        }
    }
}

fn folder(text: &str, url: &Url) -> Result<Path> {
    Path::from_url_path(url.path()).map_err(|error| invalid_url(text, error.to_string(), "a folder name"))
}

fn no_options(text: &str, options: &[(String, String)]) -> Result<()> {
    match options.first() {
        Some((key, _)) => Err(Error::invalid(
            format!("store option `{key}`"),
            format!("an option for `{}`", without_secrets(text)),
            "none: only remote stores have options",
        )),
        None => Ok(()),
    }
}

fn invalid_url(text: &str, found: impl Into<String>, expected: impl Into<String>) -> Error {
    Error::invalid(format!("store URL `{}`", without_secrets(text)), found, expected)
}

/// The URL as it may be shown and logged: without credentials and query, which may hold tokens.
fn without_secrets(text: &str) -> String {
    let visible = text.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = visible.split_once("://") else { return visible.to_owned() };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let authority = match authority.rsplit_once('@') {
        Some((_, host)) => format!("..@{host}"),
        None => authority.to_owned(),
    };
    format!("{scheme}://{authority}{path}")
}

fn named_memory(name: String) -> Arc<dyn ObjectStore> {
    // A panic elsewhere cannot leave the map half changed, so a poisoned lock is as good.
    let mut named = NAMED_MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(named.entry(name).or_default()) as Arc<dyn ObjectStore>
}

#[cfg(test)]
mod tests;

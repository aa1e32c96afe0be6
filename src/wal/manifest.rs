//! The shard manifest: who owns the shard, what it stores, and where the log begins.
//!
//! A version is one object, created only if absent and never changed. Its body is one line of
//! JSON and one line `crc32c=xxxxxxxx` over the first line with its end; the checksum is verified
//! before anything is parsed.
//!
//! Fields this release does not know are kept and written into the next version. A change that
//! this release must not ignore is announced as a capability, and refused by name.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{ArrowError, FieldRef, Schema};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use object_store::path::Path;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Operation, Result};
use crate::generations::GenerationMeta;
use crate::ids::{EntryPosition, Epoch, ManifestVersion, Nonce, Seq};
use crate::spec::{IndexSpec, TableSpec, ValidatedSpec};
use crate::wal::layout;
use crate::wal::store::{CreateAnswer, ShardStore, is_transient};

const FORMAT_VERSION: u32 = 1;
/// What a manifest may demand of its reader that this release can do.
const CAPABILITIES: [&str; 0] = [];
const CHECKSUM_KEY: &str = "crc32c=";

/// One version of a shard's manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    format_version: u32,
    /// What a reader must understand; unknown ones are refused by name.
    #[serde(default)]
    pub(crate) capabilities: Vec<String>,
    pub(crate) shard: String,
    pub(crate) version: ManifestVersion,
    pub(crate) epoch: Epoch,
    #[serde(with = "nonce_text")]
    pub(crate) nonce: Nonce,
    spec: StoredSpec,
    /// Rows below it are in generations.
    pub(crate) flushed: Seq,
    /// The first entry that may hold a row at or above `flushed`.
    pub(crate) replay_from: EntryPosition,
    /// The entry before `replay_from`, which may be gone; `None` while that is the log's start.
    pub(crate) released: Option<Released>,
    /// The sentinels at or below `released`. They are never deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) sentinels: Vec<EntryPosition>,
    /// Oldest first; their ranges tile the rows below `flushed` (G1).
    #[serde(default)]
    pub(crate) generations: Vec<GenerationMeta>,
    #[serde(flatten)]
    unknown: BTreeMap<String, serde_json::Value>,
}

/// What a commit releases of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Release {
    /// The last entry whose rows all lie in generations; `None` if that is the one released already.
    pub(crate) through: Option<Released>,
    /// The sentinels up to there.
    pub(crate) sentinels: Vec<EntryPosition>,
    /// The other entries up to there, that one included.
    pub(crate) entries: Vec<EntryPosition>,
}

/// The last entry replay does not read. Its checksum is where the chain is verified from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Released {
    pub(crate) position: EntryPosition,
    pub(crate) crc: u32,
}

/// A [`TableSpec`] as it is stored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct StoredSpec {
    /// An Arrow IPC stream without batches, in base64.
    schema: String,
    primary_key: Vec<String>,
    indexes: Vec<IndexSpec>,
}

mod nonce_text {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::ids::Nonce;

    pub(super) fn serialize<S: Serializer>(nonce: &Nonce, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(nonce)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Nonce, D::Error> {
        let text = String::deserialize(deserializer)?;
        Nonce::parse(&text).ok_or_else(|| D::Error::custom(format!("nonce `{text}` is not 32 hexadecimal digits")))
    }
}

impl Manifest {
    /// The first manifest of a shard: version 1, epoch 1, nothing flushed.
    pub(crate) fn first(shard: &str, spec: &ValidatedSpec, nonce: Nonce) -> Result<Self> {
        Ok(Manifest {
            format_version: FORMAT_VERSION,
            capabilities: Vec::new(),
            shard: shard.to_owned(),
            version: ManifestVersion::new(1),
            epoch: Epoch::new(1),
            nonce,
            spec: StoredSpec::of(spec.table())?,
            flushed: Seq::ZERO,
            replay_from: EntryPosition::new(1),
            released: None,
            sentinels: Vec::new(),
            generations: Vec::new(),
            unknown: BTreeMap::new(),
        })
    }

    /// The next version, owned by another opening.
    pub(crate) fn claimed_by(&self, epoch: Epoch, nonce: Nonce) -> Self {
        Manifest { version: self.version.next(), epoch, nonce, ..self.clone() }
    }

    /// The same with this spec, where that is another than the stored one.
    pub(crate) fn with_spec(mut self, spec: &ValidatedSpec) -> Result<Self> {
        self.spec = StoredSpec::of(spec.table())?;
        Ok(self)
    }

    /// The next version, with one more generation: nothing else moves `flushed` and the log's
    /// beginning (G2, G4, W3).
    pub(crate) fn with_generation(&self, generation: GenerationMeta, release: &Release) -> Self {
        let mut next = Manifest { version: self.version.next(), flushed: generation.end, ..self.clone() };
        next.generations.push(generation);
        if let Some(released) = release.through {
            next.replay_from = released.position.next();
            next.released = Some(released);
            next.sentinels.extend_from_slice(&release.sentinels);
        }
        next
    }

    /// What the shard stores.
    pub(crate) fn validated_spec(&self, root: &Path) -> Result<ValidatedSpec> {
        let object = layout::manifest_path(root, self.version);
        let unreadable = |found: String| Error::corrupt(&object, found, "a table spec this release can open");
        let schema = self.spec.schema().map_err(unreadable)?;
        let mut spec = TableSpec::new(schema.into()).primary_key(self.spec.primary_key.clone());
        for index in &self.spec.indexes {
            spec = spec.index(index.clone());
        }
        spec.validate().map_err(|error| unreadable(error.to_string()))
    }

    /// Its bytes in the store.
    pub(crate) fn encode(&self) -> Result<Bytes> {
        let mut line = serde_json::to_string(self)
            .map_err(|error| Error::invalid("the manifest", error.to_string(), "values JSON can carry"))?;
        line.push('\n');
        let crc = crc32c::crc32c(line.as_bytes());
        line.push_str(&format!("{CHECKSUM_KEY}{crc:08x}\n"));
        Ok(line.into())
    }

    /// Reads what [`Manifest::encode`] wrote.
    pub(crate) fn decode(root: &Path, version: ManifestVersion, bytes: &[u8]) -> Result<Self> {
        let object = layout::manifest_path(root, version);
        let json = verified(bytes).map_err(|found| {
            Error::corrupt(&object, found, format!("a line of JSON and a line `{CHECKSUM_KEY}` with its checksum"))
        })?;
        // Before the fields are read: another format may have other fields.
        let head: Head = parse(&object, json)?;
        head.check(&object)?;
        let manifest: Manifest = parse(&object, json)?;
        manifest.check(&object, version)?;
        Ok(manifest)
    }

    fn check(&self, object: &Path, version: ManifestVersion) -> Result<()> {
        if self.version != version {
            let expected = format!("version {version}, as its name says");
            return Err(Error::corrupt(object, format!("version {}", self.version), expected));
        }
        let released = self.released.map_or(EntryPosition::default(), |released| released.position);
        if released.next() != self.replay_from || self.epoch == Epoch::default() {
            let found = format!(
                "epoch {}, a log released up to entry {released} and replayed from entry {}",
                self.epoch, self.replay_from
            );
            return Err(Error::corrupt(object, found, "an epoch of at least 1 and a replay that starts behind it"));
        }
        let mut end = Seq::ZERO;
        for generation in &self.generations {
            if generation.first != end || generation.end <= end {
                let found = format!("a generation of rows {} where {end} was next", generation.range());
                return Err(Error::corrupt(object, found, "generations that tile the shard"));
            }
            end = generation.end;
        }
        if end != self.flushed {
            let found = format!("generations up to row {end} and {} as flushed", self.flushed);
            return Err(Error::corrupt(object, found, "generations up to the flushed row"));
        }
        Ok(())
    }
}

/// What is read first, of any format.
#[derive(Deserialize)]
struct Head {
    format_version: u32,
    #[serde(default)]
    capabilities: Vec<String>,
}

impl Head {
    fn check(&self, object: &Path) -> Result<()> {
        let refuse = |found: String| {
            let expected = format!("format version {FORMAT_VERSION} without it; open the shard with a newer release");
            Err(Error::invalid(format!("manifest `{object}`"), found, expected))
        };
        if self.format_version != FORMAT_VERSION {
            return refuse(format!("format version {}", self.format_version));
        }
        match self.capabilities.iter().find(|wanted| !CAPABILITIES.contains(&wanted.as_str())) {
            Some(unknown) => refuse(format!("the capability `{unknown}`, which this release does not have")),
            None => Ok(()),
        }
    }
}

fn parse<'a, T: Deserialize<'a>>(object: &Path, json: &'a str) -> Result<T> {
    serde_json::from_str(json).map_err(|error| Error::corrupt(object, error.to_string(), "a shard manifest as JSON"))
}

/// The line of JSON, once its checksum holds; otherwise what was found.
fn verified(bytes: &[u8]) -> Result<&str, String> {
    let unreadable = || format!("{} bytes without the checksum line", bytes.len());
    let end_of_json = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(unreadable)? + 1;
    let (json, checksum) = bytes.split_at(end_of_json);
    let crc = crc32c::crc32c(json);
    if checksum != format!("{CHECKSUM_KEY}{crc:08x}\n").as_bytes() {
        return Err(format!(
            "a line with checksum {crc:08x} and then `{}`",
            String::from_utf8_lossy(checksum).trim_end()
        ));
    }
    std::str::from_utf8(json).map_err(|error| error.to_string())
}

impl StoredSpec {
    fn of(spec: &TableSpec) -> Result<Self> {
        let unfit = |error: ArrowError| {
            Error::invalid("the schema", error.to_string(), "columns that an Arrow IPC stream can carry")
        };
        let stream = StreamWriter::try_new(Vec::new(), spec.schema()).and_then(StreamWriter::into_inner);
        let stored = StoredSpec {
            schema: BASE64.encode(stream.map_err(unfit)?),
            primary_key: spec.primary_key_columns().to_vec(),
            indexes: spec.indexes().to_vec(),
        };
        // What comes back as something else (an empty time zone comes back as none) would be
        // refused by every later open that gives this same spec (O8).
        let back = stored
            .schema()
            .map_err(|found| Error::invalid("the schema", found, "columns that an Arrow IPC stream can carry"))?;
        let changed =
            |(want, have): (&FieldRef, &FieldRef)| (want != have).then(|| (Arc::clone(want), Arc::clone(have)));
        match spec.schema().fields().iter().zip(back.fields()).find_map(changed) {
            Some((want, have)) => Err(Error::invalid(
                format!("column `{}`", want.name()),
                format!("type {}, which an Arrow IPC stream gives back as {}", want.data_type(), have.data_type()),
                "a type that the log gives back as it is",
            )),
            None => Ok(stored),
        }
    }

    fn schema(&self) -> Result<Schema, String> {
        let stream = BASE64.decode(&self.schema).map_err(|error| error.to_string())?;
        // The checksum holds; a decoder that panics all the same must not take the process down.
        let read = catch_unwind(AssertUnwindSafe(|| StreamReader::try_new(stream.as_slice(), None)));
        match read {
            Ok(Ok(reader)) => Ok(reader.schema().as_ref().clone()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("a schema the Arrow decoder panics on".to_owned()),
        }
    }
}

/// What creating a manifest version came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ManifestAnswer {
    /// It is there, and it is ours (also where the first answer was lost, F4).
    Created,
    /// Another manifest has this version.
    AlreadyExists(Box<Manifest>),
}

/// The manifests of one shard.
#[derive(Clone, Debug)]
pub(crate) struct ManifestStore(pub(crate) ShardStore);

impl Deref for ManifestStore {
    type Target = ShardStore;

    fn deref(&self) -> &ShardStore {
        &self.0
    }
}

impl ManifestStore {
    /// The newest manifest, or `None` for a shard that was never opened.
    ///
    /// A list may be behind, so what follows its highest version is looked for by name. An answer
    /// that is behind all the same harms nobody: creating the version after it fails.
    pub(crate) async fn latest(&self) -> Result<Option<Manifest>> {
        let names = self.list(&layout::manifest_folder(&self.root)).await?;
        let listed = names.iter().filter_map(|name| layout::manifest_version(&self.root, name)).max();
        let mut newest = match listed {
            Some(version) => Some(self.listed(version).await?),
            None => None,
        };
        let mut version = listed.unwrap_or_default().next();
        while let Some(bytes) = self.get_version(version).await? {
            newest = Some((version, bytes));
            version = version.next();
        }
        newest.map(|(version, bytes)| Manifest::decode(&self.root, version, &bytes)).transpose()
    }

    /// A version whose name the store has listed.
    async fn listed(&self, version: ManifestVersion) -> Result<(ManifestVersion, Bytes)> {
        let object = layout::manifest_path(&self.root, version);
        for attempt in 1..=self.attempts_max {
            if let Some(bytes) = self.get_version(version).await? {
                return Ok((version, bytes));
            }
            if attempt < self.attempts_max {
                self.pause(Operation::ReadManifest, &object, attempt, &"the store lists it and does not find it").await;
            }
        }
        Err(Error::corrupt(object, "a name the store lists and does not find", "the shard's newest manifest"))
    }

    async fn get_version(&self, version: ManifestVersion) -> Result<Option<Bytes>> {
        self.get(&layout::manifest_path(&self.root, version), Operation::ReadManifest).await
    }

    /// Creates a version where there is none.
    ///
    /// A lost answer is resolved by reading back. Only the same bytes count as ours: a second,
    /// different manifest of this writer under the same version was not created by this call.
    ///
    /// # Errors
    /// [`Error::Io`] where the version is not known to have been created after all attempts.
    pub(crate) async fn create(&self, manifest: &Manifest) -> Result<ManifestAnswer> {
        let object = layout::manifest_path(&self.root, manifest.version);
        let bytes = manifest.encode()?;
        let mut attempt = 1;
        loop {
            let (refusal, last) = match self.create_once(&object, bytes.clone()).await {
                CreateAnswer::Created => return Ok(ManifestAnswer::Created),
                CreateAnswer::Conflict => {
                    let source = "the store says that the object exists, and that it does not".into();
                    (object_store::Error::Generic { store: "manifest", source }, attempt >= self.attempts_max)
                }
                CreateAnswer::Failed(error) => {
                    let last = attempt >= self.attempts_max || !is_transient(&error);
                    (error, last)
                }
            };
            match self.get_version(manifest.version).await? {
                Some(found) if found == bytes => return Ok(ManifestAnswer::Created),
                Some(found) => {
                    let theirs = Manifest::decode(&self.root, manifest.version, &found)?;
                    return Ok(ManifestAnswer::AlreadyExists(Box::new(theirs)));
                }
                None if last => return Err(Error::io(Operation::CreateManifest, object, attempt, refusal)),
                None => self.pause(Operation::CreateManifest, &object, attempt, &refusal).await,
            }
            attempt += 1;
        }
    }
}

#[cfg(test)]
mod tests;

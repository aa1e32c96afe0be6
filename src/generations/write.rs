//! Writing a generation: both files of it from a sealed memtable, without holding the rows twice.

use std::sync::Arc;
use std::sync::mpsc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use futures::future::BoxFuture;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt};
use tokio::runtime;
use tokio::task::JoinHandle;

use super::keys::{Indexes, KeyIndex};
use super::meta::{FORMAT_VERSION, GenerationMeta};
use super::rows_file::RowsWriter;
use super::section::{SectionBytes, SectionKind, index_file};
use crate::config::CpuPool;
use crate::error::{Error, Operation, Result};
use crate::ids::{Epoch, Nonce, SeqRange};
use crate::memtable::MemtableReader;
use crate::query::failed;
use crate::spec::ValidatedSpec;
use crate::wal::store::{CreateAnswer, ShardStore};

/// What a file is uploaded in where it is longer than this. The services that take uploads in
/// parts want them equal and of at least 5 MiB.
const PART_BYTES: usize = 8 << 20;
/// Parts on their way at once: with the one being filled they bound what an upload holds.
const PARTS_IN_FLIGHT_MAX: usize = 2;

/// A memtable that takes no more rows.
#[derive(Clone)]
pub(crate) struct Sealed {
    pub(crate) memtable: MemtableReader,
    pub(crate) range: SeqRange,
    /// What holding its rows costs.
    pub(crate) row_bytes: u64,
}

/// The folder of one attempt to write a generation. It is never used again (G3); the epoch in it lets
/// a successor tell its own from what a predecessor left.
pub(crate) fn folder_name(range: SeqRange, epoch: Epoch, attempt: Nonce) -> String {
    format!("{:020}-{:010}-{attempt}", range.first().get(), epoch.get())
}

/// The epoch that a folder's name says; `None` for a name that is not a generation's.
pub(crate) fn folder_epoch(name: &str) -> Option<Epoch> {
    let mut parts = name.split('-');
    let (first, epoch, nonce) = (parts.next()?, parts.next()?, parts.next()?);
    let digits = |text: &str, count| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_ours = digits(first, 20) && digits(epoch, 10) && Nonce::parse(nonce).is_some() && parts.next().is_none();
    is_ours.then(|| epoch.parse().ok().map(Epoch::new)).flatten()
}

/// Writes both files. Blocks the thread, which must not be one of the I/O threads; the indexes are
/// built on the CPU pool meanwhile.
///
/// # Errors
/// [`Error::Io`] from the store, after one attempt: what is tried again is the whole, under another name.
pub(crate) fn write_generation(
    sealed: &Sealed,
    spec: &ValidatedSpec,
    indexes: &Indexes,
    folder: String,
    store: &ShardStore,
    io: &runtime::Handle,
    cpu_pool: &dyn CpuPool,
) -> Result<GenerationMeta> {
    let batches: Arc<[RecordBatch]> = sealed.memtable.rows().batches(sealed.range).map(|window| window.batch).collect();
    let rows: u64 = batches.iter().map(|batch| batch.num_rows() as u64).sum();
    if rows != sealed.range.rows() {
        let found = format!("{rows} rows in a memtable of rows {}", sealed.range);
        return Err(Error::corrupt("rows in memory", found, "every row of the range"));
    }
    let sections: Vec<_> = indexes.all().map(|index| spawn_build(index, &batches, cpu_pool)).collect();
    let mut meta = GenerationMeta {
        format_version: FORMAT_VERSION,
        capabilities: Vec::new(),
        folder,
        first: sealed.range.first(),
        end: sealed.range.end(),
        rows: Default::default(),
        indexes: Default::default(),
    };
    let mut upload = Upload::begin(store, io, meta.rows_path(&store.root));
    let mut writer = RowsWriter::new(spec.storage_schema(), sealed.row_bytes / rows.max(1)).map_err(failed)?;
    for batch in batches.iter() {
        upload.push(&writer.push(batch).map_err(failed)?)?;
    }
    let (rest, rows_meta) = writer.finish().map_err(failed)?;
    upload.push(&rest)?;
    upload.finish()?;
    meta.rows = rows_meta;

    let mut built = Vec::with_capacity(sections.len());
    for (index, section) in indexes.all().zip(sections) {
        // A pool that panics drops the sender.
        let lost = || Error::Query { detail: format!("the CPU pool lost the index `{}`", index.name()) };
        built.push((index.name().to_owned(), index.kind(), section.recv().map_err(|_| lost())??));
    }
    let (bytes, indexes_meta) = index_file(&built).map_err(failed)?;
    drop(built);
    let mut upload = Upload::begin(store, io, meta.indexes_path(&store.root));
    upload.push(&bytes)?;
    upload.finish()?;
    meta.indexes = indexes_meta;
    Ok(meta)
}

fn spawn_build(
    index: &Arc<KeyIndex>,
    batches: &Arc<[RecordBatch]>,
    cpu_pool: &dyn CpuPool,
) -> mpsc::Receiver<Result<SectionBytes>> {
    let (answer, built) = mpsc::sync_channel(1);
    let (index, batches) = (Arc::clone(index), Arc::clone(batches));
    cpu_pool.spawn(Box::new(move || {
        // Losing it is harmless: the attempt was given up.
        let _ = answer.send(index.build(&batches).map_err(failed));
    }));
    built
}

/// One file on its way to the store: as one request while it is short, in parts once it is not.
struct Upload<'a> {
    store: &'a ShardStore,
    io: &'a runtime::Handle,
    path: Path,
    part: Vec<u8>,
    multipart: Option<Box<dyn MultipartUpload>>,
    in_flight: Vec<JoinHandle<object_store::Result<()>>>,
}

impl<'a> Upload<'a> {
    fn begin(store: &'a ShardStore, io: &'a runtime::Handle, path: Path) -> Self {
        Upload { store, io, path, part: Vec::new(), multipart: None, in_flight: Vec::new() }
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let (taken, rest) = bytes.split_at(bytes.len().min(PART_BYTES - self.part.len()));
            self.part.extend_from_slice(taken);
            bytes = rest;
            if self.part.len() == PART_BYTES {
                self.send_part()?;
            }
        }
        Ok(())
    }

    fn send_part(&mut self) -> Result<()> {
        if self.multipart.is_none() {
            let (store, path) = (Arc::clone(&self.store.object_store), self.path.clone());
            let begun = self.wait(Box::pin(async move { store.put_multipart(&path).await }))?;
            self.multipart = Some(begun);
        }
        if self.in_flight.len() >= PARTS_IN_FLIGHT_MAX {
            let oldest = self.in_flight.remove(0);
            self.part_arrived(oldest)?;
        }
        let part = Bytes::from(std::mem::take(&mut self.part));
        if let Some(upload) = &mut self.multipart {
            let sent = {
                let _io = self.io.enter();
                upload.put_part(part.into())
            };
            self.in_flight.push(self.io.spawn(sent));
        }
        Ok(())
    }

    fn part_arrived(&self, part: JoinHandle<object_store::Result<()>>) -> Result<()> {
        let arrived = super::blocks::wait_for(self.io, part)?;
        let arrived = arrived.unwrap_or_else(|error| {
            Err(object_store::Error::Generic { store: "generation", source: error.to_string().into() })
        });
        arrived.map_err(|error| self.failed(error))
    }

    /// The file is in the store, synced where the store syncs, when this returns.
    fn finish(mut self) -> Result<()> {
        if self.multipart.is_none() {
            let (store, path, bytes) =
                (self.store.clone(), self.path.clone(), Bytes::from(std::mem::take(&mut self.part)));
            let created = super::blocks::wait_for(self.io, async move { store.create_once(&path, bytes).await })?;
            return match created {
                CreateAnswer::Created => Ok(()),
                CreateAnswer::Conflict => {
                    let source = "an object of this name exists, or the answer to an earlier attempt was lost".into();
                    Err(self.failed(object_store::Error::Generic { store: "generation", source }))
                }
                CreateAnswer::Failed(error) => Err(self.failed(error)),
            };
        }
        if !self.part.is_empty() {
            self.send_part()?;
        }
        for part in std::mem::take(&mut self.in_flight) {
            self.part_arrived(part)?;
        }
        if let Some(mut upload) = self.multipart.take() {
            self.wait(Box::pin(async move { upload.complete().await }))?;
        }
        Ok(())
    }

    fn wait<T: Send + 'static>(&self, request: BoxFuture<'static, object_store::Result<T>>) -> Result<T> {
        super::blocks::wait_for(self.io, request)?.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: object_store::Error) -> Error {
        Error::io(Operation::WriteGeneration, &self.path, 1, error)
    }
}

impl Drop for Upload<'_> {
    /// An upload that was begun and not completed: some services keep its parts, and bill them.
    fn drop(&mut self) {
        if let Some(mut upload) = self.multipart.take() {
            self.io.spawn(async move {
                if let Err(error) = upload.abort().await {
                    tracing::warn!(%error, "an upload that failed could not be taken back");
                }
            });
        }
    }
}

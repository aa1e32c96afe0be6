//! `rows.arrow`: the rows of a generation as an Arrow IPC file, in `Seq` order.
//!
//! Every record batch but the last has the same number of rows, a power of two that divides a
//! zone's, so a row's batch is a division. The footer's metadata has the checksum of each batch
//! and the statistics of the zones. Dictionaries are written as the values they stand for:
//! an IPC file has one dictionary for all of its batches, and puts may each bring another.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions, new_null_array};
use arrow_buffer::Buffer;
use arrow_cast::cast;
use arrow_ipc::convert::fb_to_schema;
use arrow_ipc::reader::FileDecoder;
use arrow_ipc::root_as_footer;
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::interleave::interleave;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;

use super::blocks::{Block, BlockFile, Blocks};
use super::meta::FileMeta;
use super::seeds::{SeedWriter, Seeds, ZONE_ROWS};
use crate::error::{Error, Result};
use crate::query::failed;

/// The rows of a batch: all but the last have as many.
const BATCH_ROWS_KEY: &str = "tidewal.batch_rows";
/// The batches' checksums: CRC32C of each message with its body, little-endian, in base64.
const BATCH_CHECKSUMS_KEY: &str = "tidewal.batch_crc32c";
/// A batch is what a lookup reads. Above this it is halved.
const BATCH_BYTES_MAX: u64 = 1 << 20;
/// The end of every IPC file: the footer's length and the magic.
const TRAILER_BYTES: usize = 10;

/// How a column's values lie in the file.
fn plain_type(data_type: &DataType) -> DataType {
    let plain = |field: &Arc<Field>| Arc::new(field.as_ref().clone().with_data_type(plain_type(field.data_type())));
    match data_type {
        DataType::Dictionary(_, values) => plain_type(values),
        DataType::List(field) => DataType::List(plain(field)),
        DataType::LargeList(field) => DataType::LargeList(plain(field)),
        DataType::FixedSizeList(field, size) => DataType::FixedSizeList(plain(field), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(plain).collect()),
        other => other.clone(),
    }
}

fn file_schema(schema: &Schema) -> SchemaRef {
    let plain = |field: &Arc<Field>| Field::as_ref(field).clone().with_data_type(plain_type(field.data_type()));
    let fields: Vec<Field> = schema.fields().iter().map(plain).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

/// Writes a file piece by piece: what is written is handed out and not kept.
pub(crate) struct RowsWriter {
    file: FileWriter<Vec<u8>>,
    schema: SchemaRef,
    batch_rows: usize,
    pending: Vec<RecordBatch>,
    pending_rows: usize,
    seeds: SeedWriter,
    checksums: Vec<u8>,
    /// Bytes handed out.
    written: u64,
    crc: u32,
}

impl RowsWriter {
    /// For rows of this storage schema that take about so many bytes each.
    pub(crate) fn new(schema: &SchemaRef, bytes_per_row: u64) -> Result<Self, ArrowError> {
        let mut batch_rows = ZONE_ROWS;
        while batch_rows > 1 && batch_rows as u64 * bytes_per_row > BATCH_BYTES_MAX {
            batch_rows /= 2;
        }
        let file_schema = file_schema(schema);
        Ok(RowsWriter {
            file: FileWriter::try_new(Vec::new(), &file_schema)?,
            schema: file_schema,
            batch_rows,
            pending: Vec::new(),
            pending_rows: 0,
            seeds: SeedWriter::new(schema),
            checksums: Vec::new(),
            written: 0,
            crc: 0,
        })
    }

    /// Takes the next rows, in storage form. Gives the bytes of the file that are ready.
    pub(crate) fn push(&mut self, batch: &RecordBatch) -> Result<Vec<u8>, ArrowError> {
        let mut bytes = Vec::new();
        let mut at = 0;
        while at < batch.num_rows() {
            let length = (batch.num_rows() - at).min(self.batch_rows - self.pending_rows);
            self.pending.push(self.plain(&batch.slice(at, length))?);
            self.pending_rows += length;
            at += length;
            if self.pending_rows == self.batch_rows {
                self.write_pending(&mut bytes)?;
            }
        }
        Ok(bytes)
    }

    /// The rest of the file, and what the manifest says of it.
    pub(crate) fn finish(mut self) -> Result<(Vec<u8>, FileMeta), ArrowError> {
        let mut bytes = Vec::new();
        if self.pending_rows > 0 {
            self.write_pending(&mut bytes)?;
        }
        self.file.write_metadata(BATCH_ROWS_KEY, self.batch_rows.to_string());
        self.file.write_metadata(BATCH_CHECKSUMS_KEY, BASE64.encode(&self.checksums));
        for (key, seed) in std::mem::replace(&mut self.seeds, SeedWriter::new(&Schema::empty())).finish()? {
            self.file.write_metadata(key, seed);
        }
        // What an empty file has before its footer belongs to no batch.
        self.drain(&mut bytes);
        let tail_offset = self.written;
        self.file.finish()?;
        let tail = std::mem::take(self.file.get_mut());
        let meta = FileMeta {
            bytes: tail_offset + tail.len() as u64,
            crc32c: crc32c::crc32c_append(self.crc, &tail),
            tail_offset,
            tail_crc32c: crc32c::crc32c(&tail),
        };
        bytes.extend(tail);
        Ok((bytes, meta))
    }

    fn plain(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let columns = batch.columns().iter().zip(self.schema.fields()).map(|(column, field)| {
            let column = if column.data_type() == field.data_type() {
                Arc::clone(column)
            } else {
                cast(column, field.data_type())?
            };
            Ok(without_unseen(column))
        });
        let columns = columns.collect::<Result<Vec<_>, ArrowError>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }

    fn write_pending(&mut self, bytes: &mut Vec<u8>) -> Result<(), ArrowError> {
        let batch = match self.pending.as_slice() {
            [whole] => whole.clone(),
            parts => concat_batches(&self.schema, parts)?,
        };
        self.pending.clear();
        self.pending_rows = 0;
        self.seeds.observe(&batch)?;
        // The schema's message goes out first, so that what follows is the batch alone.
        self.drain(bytes);
        self.file.write(&batch)?;
        if u32::try_from(self.file.get_ref().len()).is_err() {
            let detail =
                format!("{} rows take {} bytes, and a batch 2^32 at most", batch.num_rows(), self.file.get_ref().len());
            return Err(ArrowError::InvalidArgumentError(detail));
        }
        self.checksums.extend(crc32c::crc32c(self.file.get_ref()).to_le_bytes());
        self.drain(bytes);
        Ok(())
    }

    fn drain(&mut self, bytes: &mut Vec<u8>) {
        let ready = std::mem::take(self.file.get_mut());
        self.crc = crc32c::crc32c_append(self.crc, &ready);
        self.written += ready.len() as u64;
        if bytes.is_empty() { *bytes = ready } else { bytes.extend(ready) }
    }
}

/// A slice of a column of views would be written with the texts of all its rows.
fn without_unseen(column: ArrayRef) -> ArrayRef {
    use arrow_array::cast::AsArray;
    match column.data_type() {
        DataType::Utf8View => Arc::new(column.as_string_view().gc()),
        DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
        _ => column,
    }
}

/// An open file.
#[derive(Debug)]
pub(crate) struct RowsFile {
    file: Arc<BlockFile>,
    /// What rows are given in.
    schema: SchemaRef,
    batch_rows: usize,
    rows: u64,
    batches: Vec<(arrow_ipc::Block, Block)>,
    decoder: FileDecoder,
    /// For each column of `schema` its place in the file; `None` for one added since.
    places: Vec<Option<usize>>,
    pub(crate) seeds: Seeds,
}

impl RowsFile {
    /// Opens a file of so many rows for a storage schema, from its end part.
    pub(crate) fn open(file: Arc<BlockFile>, schema: &SchemaRef, rows: u64, tail: &[u8]) -> Result<Self> {
        let corrupt =
            |found: String| Error::corrupt(file.object(), found, "the footer of an Arrow IPC file of this crate");
        let length = tail.len().checked_sub(TRAILER_BYTES).ok_or_else(|| corrupt(format!("{} bytes", tail.len())))?;
        let (body, trailer) = tail.split_at(length);
        let footer_bytes: [u8; TRAILER_BYTES] = trailer.try_into().map_err(|_| corrupt("a short trailer".into()))?;
        let footer_length = arrow_ipc::reader::read_footer_length(footer_bytes).map_err(|e| corrupt(e.to_string()))?;
        let start = body.len().checked_sub(footer_length);
        let footer =
            start.and_then(|start| body.get(start..)).ok_or_else(|| corrupt("a footer longer than the tail".into()))?;
        let footer = root_as_footer(footer).map_err(|error| corrupt(error.to_string()))?;
        let stored = footer.schema().ok_or_else(|| corrupt("no schema".into()))?;
        let stored: SchemaRef = Arc::new(fb_to_schema(stored));
        let metadata: HashMap<String, String> = footer
            .custom_metadata()
            .into_iter()
            .flatten()
            .filter_map(|entry| Some((entry.key()?.to_owned(), entry.value()?.to_owned())))
            .collect();
        let batch_rows: usize = metadata
            .get(BATCH_ROWS_KEY)
            .and_then(|text| text.parse().ok())
            .filter(|rows| *rows > 0)
            .ok_or_else(|| corrupt(format!("no number of rows under `{BATCH_ROWS_KEY}`")))?;
        let checksums = metadata.get(BATCH_CHECKSUMS_KEY).and_then(|text| BASE64.decode(text).ok()).unwrap_or_default();
        let checksums = checksums.chunks_exact(4).map(|crc| u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]]));
        let blocks: Vec<arrow_ipc::Block> = footer.recordBatches().into_iter().flatten().copied().collect();
        let batches: Vec<_> =
            blocks.iter().zip(checksums).map(|(block, crc)| (*block, checked_block(block, crc))).collect();
        if batches.len() != blocks.len() || batches.len() as u64 != rows.div_ceil(batch_rows as u64) {
            let found = format!("{} batches with {} checksums for {rows} rows", blocks.len(), batches.len());
            return Err(corrupt(found));
        }
        let decoder = FileDecoder::new(Arc::clone(&stored), footer.version());
        let places = places(schema, &stored);
        let seeds = Seeds::read(schema, &metadata, rows, |column| places.get(column).is_some_and(Option::is_some));
        for (field, place) in schema.fields().iter().zip(&places) {
            let Some(found) = place.and_then(|at| stored.fields().get(at)) else { continue };
            if found.data_type() != &plain_type(field.data_type()) {
                return Err(corrupt(format!("column `{}` of type {}", found.name(), found.data_type())));
            }
        }
        Ok(RowsFile { schema: Arc::clone(schema), batch_rows, rows, batches, decoder, places, seeds, file })
    }

    /// The batches that hold the rows `first..end`, each with its first row's number.
    pub(crate) fn batches(&self, first: u64, end: u64) -> Result<Vec<(u64, RecordBatch)>> {
        let end = end.min(self.rows);
        if first >= end {
            return Ok(Vec::new());
        }
        let size = self.batch_rows as u64;
        let (from, to) = ((first / size) as usize, end.div_ceil(size) as usize);
        let numbers: Vec<usize> = (from..to).collect();
        let batches = self.read(&numbers)?;
        Ok(numbers.into_iter().map(|at| at as u64 * size).zip(batches).collect())
    }

    /// One row.
    pub(crate) fn row(&self, row: u64) -> Result<Option<RecordBatch>> {
        let at = (row / self.batch_rows as u64) as usize;
        let Some((block, checked)) = self.batches.get(at).filter(|_| row < self.rows) else { return Ok(None) };
        let batch = self.file.rows(*checked, |bytes| self.decode(block, bytes))?;
        let offset = (row % self.batch_rows as u64) as usize;
        Ok((offset < batch.num_rows()).then(|| batch.slice(offset, 1)))
    }

    /// These columns of these rows, in the order given.
    pub(crate) fn take(&self, rows: &[u64], columns: &[usize]) -> Result<RecordBatch, ArrowError> {
        let schema = Arc::new(self.schema.project(columns)?);
        let batch_of = |row: &u64| (*row / self.batch_rows as u64) as usize;
        let mut numbers: Vec<usize> = rows.iter().map(batch_of).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let batches = self.read(&numbers)?;
        let place = |row: &u64| {
            let at = numbers.binary_search(&batch_of(row)).unwrap_or_default();
            (at, (*row % self.batch_rows as u64) as usize)
        };
        let places: Vec<(usize, usize)> = rows.iter().map(place).collect();
        if places.iter().any(|(at, row)| batches.get(*at).is_none_or(|batch| *row >= batch.num_rows())) {
            return Err(ArrowError::from(Error::corrupt(self.file.object(), "fewer rows than its index", "every row")));
        }
        let gathered = columns.iter().map(|column| {
            let arrays: Vec<&dyn Array> = batches.iter().map(|batch| batch.column(*column).as_ref()).collect();
            match arrays.is_empty() {
                true => Ok(arrow_array::new_empty_array(self.schema.field(*column).data_type())),
                false => interleave(&arrays, &places),
            }
        });
        let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
        RecordBatch::try_new_with_options(schema, gathered.collect::<Result<_, _>>()?, &options)
    }

    fn read(&self, numbers: &[usize]) -> Result<Vec<RecordBatch>> {
        let wanted: Vec<_> = numbers.iter().filter_map(|at| self.batches.get(*at)).collect();
        if wanted.len() != numbers.len() {
            return Err(Error::corrupt(self.file.object(), format!("{} batches", self.batches.len()), "every row"));
        }
        let blocks: Vec<Block> = wanted.iter().map(|(_, checked)| *checked).collect();
        self.file.all_rows(&blocks, |checked, bytes| {
            let block = wanted.iter().find(|(_, other)| *other == checked).map(|(block, _)| block);
            block.map_or_else(
                || Err(Error::corrupt(self.file.object(), "a batch", "a batch asked for")),
                |block| self.decode(block, bytes),
            )
        })
    }

    fn decode(&self, block: &arrow_ipc::Block, bytes: Bytes) -> Result<RecordBatch> {
        let corrupt = |found: String| Error::corrupt(self.file.object(), found, "a record batch as the footer says");
        let decoded = self.decoder.read_record_batch(block, &Buffer::from(bytes));
        let decoded = decoded.map_err(|error| corrupt(error.to_string()))?.ok_or_else(|| corrupt("no batch".into()))?;
        self.in_schema(&decoded).map_err(failed)
    }

    /// The columns as the shard has them now: added ones are null, dictionaries are built again.
    fn in_schema(&self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let columns = self.schema.fields().iter().zip(&self.places).map(|(field, place)| match place {
            None => Ok(new_null_array(field.data_type(), batch.num_rows())),
            Some(at) if batch.column(*at).data_type() == field.data_type() => Ok(Arc::clone(batch.column(*at))),
            Some(at) => cast(batch.column(*at), field.data_type()),
        });
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
    }
}

fn checked_block(block: &arrow_ipc::Block, crc: u32) -> Block {
    // Negative or absurd lengths fail when they are read: no file is that long.
    let length = i64::from(block.metaDataLength()).saturating_add(block.bodyLength());
    Block {
        offset: u64::try_from(block.offset()).unwrap_or(u64::MAX),
        length: u32::try_from(length).unwrap_or(u32::MAX),
        crc,
    }
}

/// Where each column of `wanted` lies in `stored`: by field id where both have one, else by name.
fn places(wanted: &Schema, stored: &Schema) -> Vec<Option<usize>> {
    wanted.fields().iter().map(|field| crate::spec::position_of(field, stored)).collect()
}

//! Parquet and Arrow IPC: files that carry their schema.

use std::fs::File;
use std::io::{BufReader, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_ipc::reader::{FileReader, StreamReader};
use arrow_schema::{ArrowError, Schema, SchemaRef};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};

use super::trouble::{Source, Trouble};

const CUT_SHORT: &str = "check that the file was copied whole, and that it is what its name says";

/// Rows of a Parquet or Arrow IPC file.
pub(super) struct ColumnarSource {
    schema: SchemaRef,
    batches: Batches,
    /// Rows given out before the last batch.
    rows_before: u64,
    last_rows: u64,
    /// For each row group (Parquet), the row it ends at.
    group_ends: Vec<u64>,
    /// What is left of an IPC batch that was larger than asked for.
    rest: Option<RecordBatch>,
    batch_rows: usize,
    warning: Option<String>,
}

enum Batches {
    /// Row group by row group, so that no batch spans two and a damaged one is named.
    Parquet(Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>> + Send>),
    File(FileReader<BufReader<File>>),
    Stream(StreamReader<BufReader<File>>),
}

impl ColumnarSource {
    pub(super) fn parquet(file: File, batch_rows: usize) -> Result<Self, Trouble> {
        let refused =
            |error: parquet::errors::ParquetError| Trouble::whole(format!("no Parquet file: {error}"), CUT_SHORT);
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::default()).map_err(refused)?;
        let mut end = 0;
        let groups = metadata.metadata().row_groups().iter().map(|group| {
            end += u64::try_from(group.num_rows()).unwrap_or_default();
            end
        });
        let group_ends: Vec<u64> = groups.collect();
        let schema = Arc::clone(metadata.schema());
        let groups = (0..group_ends.len()).map(|group| -> Result<ParquetRecordBatchReader, Trouble> {
            let file = file.try_clone().map_err(|error| refused(error.into()))?;
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata.clone());
            builder.with_row_groups(vec![group]).with_batch_size(batch_rows).build().map_err(refused)
        });
        let reader = Box::new(groups.collect::<Result<Vec<_>, _>>()?.into_iter().flatten());
        Ok(Self { group_ends, ..Self::new(&schema, Batches::Parquet(reader), batch_rows) })
    }

    /// The file and the stream form are told apart by the first bytes.
    pub(super) fn ipc(mut file: File, batch_rows: usize) -> Result<Self, Trouble> {
        let mut magic = [0; 6];
        let unreadable = |error: std::io::Error| Trouble::whole(format!("reading failed: {error}"), CUT_SHORT);
        let begins_with = file.read(&mut magic).map_err(unreadable)?;
        if magic.starts_with(b"FEA1") {
            return Err(Trouble::whole("a Feather file of version 1", "write it as version 2 or as Parquet"));
        }
        if begins_with == 0 {
            return Err(Trouble::whole("the file is empty", CUT_SHORT));
        }
        let warning = if &magic == b"ARROW1" { None } else { unended(&mut file).map_err(unreadable)? };
        file.rewind().map_err(unreadable)?;
        let refused = |error: ArrowError| Trouble::whole(format!("no Arrow IPC file: {error}"), CUT_SHORT);
        let input = BufReader::with_capacity(1 << 16, file);
        if &magic == b"ARROW1" {
            let reader = FileReader::try_new(input, None).map_err(refused)?;
            let schema = reader.schema();
            return Ok(Self::new(&schema, Batches::File(reader), batch_rows));
        }
        let reader = StreamReader::try_new(input, None).map_err(refused)?;
        let schema = reader.schema();
        Ok(Self { warning, ..Self::new(&schema, Batches::Stream(reader), batch_rows) })
    }

    fn new(schema: &Schema, batches: Batches, batch_rows: usize) -> Self {
        ColumnarSource {
            // The metadata of the file as a whole says how it was written, not what the rows are.
            schema: Arc::new(Schema::new(schema.fields().clone())),
            batches,
            rows_before: 0,
            last_rows: 0,
            group_ends: Vec::new(),
            rest: None,
            batch_rows,
            warning: None,
        }
    }

    fn next_of_file(&mut self) -> Option<Result<RecordBatch, ArrowError>> {
        match &mut self.batches {
            Batches::Parquet(reader) => reader.next(),
            Batches::File(reader) => reader.next(),
            Batches::Stream(reader) => reader.next(),
        }
    }

    fn place_of(&self, row: u64) -> String {
        // Row groups and rows are counted from 1.
        let group = self.group_ends.iter().take_while(|end| **end < row).count() + 1;
        if self.group_ends.is_empty() { format!("row {row}") } else { format!("row {row} (row group {group})") }
    }
}

/// A stream may end without its end mark, but then nobody can tell whether it was cut.
fn unended(file: &mut File) -> std::io::Result<Option<String>> {
    const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
    let mut last = [0; 8];
    if file.metadata()?.len() >= 8 {
        file.seek(SeekFrom::End(-8))?;
        file.read_exact(&mut last)?;
    }
    Ok((last != END).then(|| "the stream has no end mark: if it was cut short, rows are missing".to_owned()))
}

impl Source for ColumnarSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Trouble> {
        self.rows_before += self.last_rows;
        self.last_rows = 0;
        let batch = match self.rest.take() {
            Some(rest) => rest,
            None => match self.next_of_file() {
                None => return Ok(None),
                Some(Ok(batch)) => batch,
                Some(Err(error)) => {
                    let place = self.place_of(self.rows_before + 1);
                    return Err(Trouble::at(format!("from {place}"), error.to_string(), CUT_SHORT));
                }
            },
        };
        let shown = batch.num_rows().min(self.batch_rows);
        if shown < batch.num_rows() {
            self.rest = Some(batch.slice(shown, batch.num_rows() - shown));
        }
        self.last_rows = shown as u64;
        Ok(Some(batch.slice(0, shown)))
    }

    fn place(&self, row: usize) -> String {
        self.place_of(self.rows_before + row as u64 + 1)
    }

    fn warning(&self) -> Option<String> {
        self.warning.clone()
    }
}

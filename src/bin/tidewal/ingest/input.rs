//! Which files, in which formats.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{Fields, Schema, SchemaRef};

use super::columnar::ColumnarSource;
use super::fit::Fit;
use super::records::Grammar;
use super::text::TextFile;
use super::trouble::{Source, Trouble};
use crate::{Result, complaint};

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// One JSON object a line
    #[value(alias = "jsonl", alias = "json")]
    Ndjson,
    /// Comma-separated values; the first line names the columns
    Csv,
    /// Tab-separated values; the first line names the columns
    Tsv,
    /// Apache Parquet
    Parquet,
    /// Arrow IPC, file or stream
    #[value(alias = "ipc", alias = "feather")]
    Arrow,
}

/// How files are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) batch_rows: usize,
    pub(super) delimiter: Option<u8>,
    pub(super) ignore_extra: bool,
}

/// A file to read, and its format.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) name: String,
    format: Format,
}

impl Input {
    /// Refuses at once what cannot be read: a mistyped name should not fence the shard's writer.
    pub(super) fn new(name: &str, format: Option<Format>) -> Result<Self> {
        if name == "-" {
            return match format {
                Some(format @ (Format::Ndjson | Format::Csv | Format::Tsv)) => {
                    Ok(Input { name: "standard input".to_owned(), format })
                }
                Some(_) => {
                    Err(complaint("standard input can be ndjson, csv or tsv; save other formats to a file first"))
                }
                None => Err(complaint("the format of standard input must be said: --format ndjson, csv or tsv")),
            };
        }
        let metadata = std::fs::metadata(name).map_err(|error| complaint(format!("{name}: {error}")))?;
        if metadata.is_dir() {
            return Err(complaint(format!("{name}: a folder; name the files in it: {name}/*")));
        }
        let format = match format {
            Some(format) => format,
            None => by_extension(name)?,
        };
        Ok(Input { name: name.to_owned(), format })
    }

    pub(super) fn open(&self, reading: &Reading) -> Result<Opened, Trouble> {
        let opened = match self.format {
            Format::Ndjson => Opened::Text(TextFile::open(self.reader()?, Grammar::Lines)?),
            Format::Csv => Opened::Text(TextFile::open(self.reader()?, csv(reading, b','))?),
            Format::Tsv => Opened::Text(TextFile::open(self.reader()?, csv(reading, b'\t'))?),
            Format::Parquet => Opened::Columnar(ColumnarSource::parquet(self.file()?, reading.batch_rows)?),
            Format::Arrow => Opened::Columnar(ColumnarSource::ipc(self.file()?, reading.batch_rows)?),
        };
        Ok(opened)
    }

    fn reader(&self) -> Result<Box<dyn BufRead + Send>, Trouble> {
        if self.name == "standard input" && !Path::new(&self.name).exists() {
            return Ok(Box::new(BufReader::with_capacity(1 << 16, std::io::stdin())));
        }
        Ok(Box::new(BufReader::with_capacity(1 << 16, self.file()?)))
    }

    fn file(&self) -> Result<File, Trouble> {
        File::open(&self.name).map_err(|error| Trouble::whole(error.to_string(), ""))
    }
}

fn csv(reading: &Reading, delimiter: u8) -> Grammar {
    Grammar::Csv { delimiter: reading.delimiter.unwrap_or(delimiter) }
}

fn by_extension(name: &str) -> Result<Format> {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "ndjson" | "jsonl" | "json" => Ok(Format::Ndjson),
        "csv" => Ok(Format::Csv),
        "tsv" | "tab" => Ok(Format::Tsv),
        "parquet" | "pq" => Ok(Format::Parquet),
        "arrow" | "arrows" | "ipc" | "feather" => Ok(Format::Arrow),
        "gz" => {
            Err(complaint(format!("{name}: compressed with gzip; zcat {name} | tidewal ingest --format ndjson ... -")))
        }
        _ => Err(complaint(format!(
            "{name}: its name does not say its format; give --format ndjson, csv, tsv, parquet or arrow"
        ))),
    }
}

/// A file whose schema can be asked for before its rows.
pub(super) enum Opened {
    Text(TextFile),
    Columnar(ColumnarSource),
}

impl Opened {
    /// Its columns; `None` if it has none, because it has no rows.
    pub(super) fn columns(&mut self) -> Result<Option<Fields>, Trouble> {
        match self {
            Opened::Text(file) => file.infer(),
            Opened::Columnar(source) => Ok(Some(source.schema().fields().clone())),
        }
    }

    /// Begins reading its rows as rows of the target.
    pub(super) fn rows(self, target: &SchemaRef, reading: &Reading) -> Result<Started, Trouble> {
        let source: Box<dyn Source> = match self {
            Opened::Text(file) => Box::new(file.rows(target, reading.ignore_extra, reading.batch_rows)?),
            Opened::Columnar(source) => Box::new(source),
        };
        let fit = Fit::new(&source.schema(), target, reading.ignore_extra)?;
        Ok(Started { source, fit, first: None })
    }
}

/// A file whose rows are being read.
pub(super) struct Started {
    pub(super) source: Box<dyn Source>,
    pub(super) fit: Fit,
    /// The first batch, if it was read already.
    first: Option<RecordBatch>,
}

impl Started {
    /// Reads the first rows and refuses the file if one of them does not fit.
    pub(super) fn with_first_rows(mut self) -> Result<Self, Trouble> {
        self.first = self.source.next_batch()?;
        if let Some(batch) = &self.first {
            self.fit.apply(batch).map_err(|misfit| misfit.at(self.source.place(misfit.row)))?;
        }
        Ok(self)
    }

    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>, Trouble> {
        match self.first.take() {
            Some(batch) => Ok(Some(batch)),
            None => self.source.next_batch(),
        }
    }
}

/// The schema of a new shard: the file's columns, and no nulls in the key.
pub(super) fn new_schema(columns: &Fields, key: &[String]) -> SchemaRef {
    let fields = columns.iter().map(|field| {
        let nullable = field.is_nullable() && !key.contains(field.name());
        Arc::new(field.as_ref().clone().with_nullable(nullable))
    });
    Arc::new(Schema::new(fields.collect::<Fields>()))
}

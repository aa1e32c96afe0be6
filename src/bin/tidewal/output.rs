//! Printing: rows as tables, NDJSON or CSV, and output that may be cut short by its reader.

use std::io::{self, Write};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray as _;
use arrow_cast::display::FormatOptions;
use arrow_cast::pretty::pretty_format_batches_with_options;
use arrow_csv::WriterBuilder as CsvBuilder;
use arrow_json::writer::{LineDelimited, WriterBuilder as JsonBuilder};
use arrow_schema::{ArrowError, DataType, SchemaRef};

use crate::{BoxError, Result, complaint};

/// How rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum RowFormat {
    /// Columns side by side, for people
    Table,
    /// One JSON object a line
    Ndjson,
    /// Comma-separated values with a header
    Csv,
}

/// Prints batches of one schema.
pub(crate) struct RowPrinter<W: Write> {
    format: RowFormat,
    out: W,
    first: bool,
}

impl<W: Write> RowPrinter<W> {
    pub(crate) fn new(format: RowFormat, schema: &SchemaRef, out: W) -> Result<Self> {
        if format == RowFormat::Csv
            && let Some(field) = schema.fields().iter().find(|field| !fits_csv(field.data_type()))
        {
            return Err(complaint(format!(
                "column `{}` is a {}, which CSV cannot hold; leave it out with --columns, or use --format ndjson",
                field.name(),
                field.data_type()
            )));
        }
        let mut printer = RowPrinter { format, out, first: true };
        if format != RowFormat::Ndjson {
            // The header stands even above no rows.
            printer.header(schema)?;
        }
        Ok(printer)
    }

    fn header(&mut self, schema: &SchemaRef) -> Result<()> {
        if self.format == RowFormat::Csv {
            let mut writer = CsvBuilder::new().with_header(true).build(&mut self.out);
            writer.write(&RecordBatch::new_empty(SchemaRef::clone(schema))).map_err(unwrapped)?;
        }
        Ok(())
    }

    pub(crate) fn print(&mut self, batch: &RecordBatch) -> Result<()> {
        match self.format {
            RowFormat::Table => {
                let options = FormatOptions::new().with_display_error(true);
                let text = pretty_format_batches_with_options(std::slice::from_ref(batch), &options)?;
                writeln!(self.out, "{text}")?;
            }
            RowFormat::Ndjson => print_ndjson(batch, &mut self.out)?,
            RowFormat::Csv => {
                CsvBuilder::new().with_header(false).build(&mut self.out).write(batch).map_err(unwrapped)?;
            }
        }
        self.first = false;
        Ok(())
    }

    /// Flushes, and prints the empty table if there were no rows.
    pub(crate) fn finish(mut self, schema: &SchemaRef) -> Result<()> {
        if self.first && self.format == RowFormat::Table {
            self.print(&RecordBatch::new_empty(SchemaRef::clone(schema)))?;
        }
        Ok(self.out.flush()?)
    }
}

fn fits_csv(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => fits_csv(values),
        other => !other.is_nested(),
    }
}

/// One JSON object a row, nulls written out.
pub(crate) fn print_ndjson(batch: &RecordBatch, out: &mut impl Write) -> Result<()> {
    let mut writer = JsonBuilder::new().with_explicit_nulls(true).build::<_, LineDelimited>(out);
    writer.write(batch).map_err(unwrapped)?;
    writer.finish().map_err(unwrapped)
}

/// A row as a record: a column a line.
pub(crate) fn print_record(row: &RecordBatch, out: &mut impl Write) -> Result<()> {
    let schema = row.schema_ref();
    let width = schema.fields().iter().map(|field| field.name().chars().count()).max().unwrap_or_default();
    let options = FormatOptions::new().with_display_error(true).with_null("NULL");
    for (field, column) in schema.fields().iter().zip(row.columns()) {
        let text = match field.data_type() {
            // Text as it is: a record may span lines.
            DataType::Utf8 if column.is_valid(0) => column.as_string::<i32>().value(0).to_owned(),
            _ => arrow_cast::display::ArrayFormatter::try_new(column.as_ref(), &options)?.value(0).to_string(),
        };
        writeln!(out, "{:width$}  {text}", field.name())?;
    }
    Ok(())
}

/// Arrow's writers wrap the error of the pipe; a closed one must be recognised.
fn unwrapped(error: ArrowError) -> BoxError {
    match error {
        ArrowError::IoError(_, error) => error.into(),
        // The CSV writer keeps only the text.
        ArrowError::CsvError(text) if text.contains("os error 32") => io::Error::from(io::ErrorKind::BrokenPipe).into(),
        other => other.into(),
    }
}

/// Whether the reader of the output has gone (`head` does that): the end, and no failure.
pub(crate) fn is_closed_pipe(error: &BoxError) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// A line on stderr. If nobody can read it, there is nobody left to tell.
pub(crate) fn complain(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// The standard output, in large pieces.
pub(crate) fn stdout() -> io::BufWriter<io::Stdout> {
    io::BufWriter::with_capacity(1 << 16, io::stdout())
}

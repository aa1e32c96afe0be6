//! NDJSON and CSV: records decoded chunk by chunk, and the bad one found by halving its chunk.

use std::io::Cursor;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_csv::ReaderBuilder as CsvBuilder;
use arrow_csv::reader::Format as CsvFormat;
use arrow_json::ReaderBuilder as JsonBuilder;
use arrow_schema::{ArrowError, DataType, Field, Fields, Schema, SchemaRef};

use super::fit::refuse_extra;
use super::infer::Sample;
use super::records::{Chunk, Grammar, Records};
use super::trouble::{Source, Trouble};

/// Records enough to know the columns by.
pub(super) const SAMPLE_ROWS: usize = 10_000;

/// A text file whose beginning has been read.
pub(super) struct TextFile {
    records: Records,
    grammar: Grammar,
    /// The names in a CSV file's header.
    header: Vec<String>,
    header_bytes: Vec<u8>,
    /// What was read to infer the schema and is still to be decoded.
    head: Option<(Chunk, Option<Trouble>)>,
}

impl TextFile {
    pub(super) fn open(input: Box<dyn std::io::BufRead + Send>, grammar: Grammar) -> Result<Self, Trouble> {
        let mut file = TextFile {
            records: Records::new(input, grammar)?,
            grammar,
            header: vec![],
            header_bytes: vec![],
            head: None,
        };
        if let Grammar::Csv { delimiter } = grammar {
            let (chunk, trouble) = file.records.chunk(1);
            if let Some(trouble) = trouble {
                return Err(trouble);
            }
            file.header = header_names(&chunk.bytes, delimiter)?;
            file.header_bytes = chunk.bytes;
        }
        Ok(file)
    }

    /// The columns, from the first records; `None` if there are no records.
    pub(super) fn infer(&mut self) -> Result<Option<Fields>, Trouble> {
        let head = self.records.chunk(SAMPLE_ROWS);
        let (chunk, trouble) = &head;
        if chunk.len() == 0 {
            return match trouble {
                Some(trouble) => Err(trouble.clone()),
                None => Ok(None),
            };
        }
        let fields = match self.grammar {
            Grammar::Lines => {
                let mut sample = Sample::default();
                for at in 0..chunk.len() {
                    match sample.add(chunk.record(at), chunk.line(at)) {
                        Ok(()) => {}
                        // The schema is known from the rows before; decoding finds the bad one again.
                        Err(_) if at > 0 => break,
                        Err(trouble) => return Err(trouble),
                    }
                }
                sample.fields()
            }
            Grammar::Csv { delimiter } => {
                // Bytes that are no text are said with their line when they are decoded.
                let text = (0..chunk.len()).take_while(|at| std::str::from_utf8(chunk.record(*at)).is_ok()).count();
                if text == 0 {
                    return Err(not_utf8(format!("line {}", chunk.line(0))));
                }
                Some(infer_csv(&self.header_bytes, chunk.prefix(text), delimiter)?)
            }
        };
        self.head = Some(head);
        Ok(fields)
    }

    /// Begins decoding rows of the target's columns.
    pub(super) fn rows(self, target: &Schema, ignore_extra: bool, batch_rows: usize) -> Result<TextSource, Trouble> {
        let schema = match self.grammar {
            Grammar::Lines => Schema::new(target.fields().iter().map(nullable).collect::<Fields>()),
            Grammar::Csv { .. } => {
                if !ignore_extra {
                    refuse_extra(self.header.iter().map(String::as_str), target)?;
                }
                let field = |name: &String| match target.field_with_name(name) {
                    Ok(field) => field.clone().with_nullable(true),
                    Err(_) => Field::new(name, DataType::Utf8, true),
                };
                Schema::new(self.header.iter().map(field).collect::<Vec<_>>())
            }
        };
        let decoder = Decoder { schema: Arc::new(schema), grammar: self.grammar, strict: !ignore_extra };
        decoder.check()?;
        let (pending, trouble) = self.head.unwrap_or_default();
        Ok(TextSource { records: self.records, decoder, batch_rows, pending, trouble, lines: Vec::new() })
    }
}

fn not_utf8(place: String) -> Trouble {
    Trouble::at(place, "the text is not UTF-8", "convert it: iconv -f LATIN1 -t UTF-8 FILE")
}

/// Nulls are checked later, where the row is known.
fn nullable(field: &Arc<Field>) -> Arc<Field> {
    Arc::new(field.as_ref().clone().with_nullable(true))
}

fn header_names(header: &[u8], delimiter: u8) -> Result<Vec<String>, Trouble> {
    let format = CsvFormat::default().with_header(true).with_delimiter(delimiter);
    if std::str::from_utf8(header).is_err() {
        return Err(not_utf8("line 1".to_owned()));
    }
    let (schema, _) = format
        .infer_schema(Cursor::new(header), Some(0))
        .map_err(|error| Trouble::at("line 1", cleaned(&error), "the first line must name the columns"))?;
    let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
    for (at, name) in names.iter().enumerate() {
        if name.is_empty() {
            let reason = format!("column {} has no name in the header", at + 1);
            return Err(Trouble::at("line 1", reason, "the first line must name the columns"));
        }
        if names.iter().take(at).any(|earlier| earlier == name) {
            let reason = format!("the header names the column `{name}` twice");
            return Err(Trouble::at("line 1", reason, "column names must differ; rename one"));
        }
    }
    Ok(names)
}

fn infer_csv(header: &[u8], records: &[u8], delimiter: u8) -> Result<Fields, Trouble> {
    // A short record is said to be wrong when it is decoded, with its line.
    let format = CsvFormat::default().with_header(true).with_delimiter(delimiter).with_truncated_rows(true);
    let sample = std::io::Read::chain(Cursor::new(header), Cursor::new(records));
    let (schema, _) = format
        .infer_schema(sample, None)
        .map_err(|error| Trouble::whole(cleaned(&error), "check the --format, or give --schema"))?;
    let known = |field: &Arc<Field>| match field.data_type() {
        // No value in the sample: text holds any that may follow.
        DataType::Null => Arc::new(field.as_ref().clone().with_data_type(DataType::Utf8)),
        _ => Arc::clone(field),
    };
    Ok(schema.fields().iter().map(known).collect())
}

/// Rows of a text file.
pub(super) struct TextSource {
    records: Records,
    decoder: Decoder,
    batch_rows: usize,
    pending: Chunk,
    trouble: Option<Trouble>,
    /// The lines of the last batch's rows.
    lines: Vec<u64>,
}

impl Source for TextSource {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.decoder.schema)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, Trouble> {
        let mut chunk = std::mem::take(&mut self.pending);
        if chunk.len() == 0 {
            if let Some(trouble) = self.trouble.take() {
                return Err(trouble);
            }
            (chunk, self.trouble) = self.records.chunk(self.batch_rows);
        }
        if chunk.len() == 0 {
            return self.trouble.take().map_or(Ok(None), Err);
        }
        // What was read as a sample may be more than a batch.
        if chunk.len() > self.batch_rows {
            (chunk, self.pending) = chunk.split(self.batch_rows);
        }
        self.lines = (0..chunk.len()).map(|at| chunk.line(at)).collect();
        if let Ok(batch) = self.decoder.decode(chunk.prefix(chunk.len()), chunk.len()) {
            return Ok(Some(batch));
        }
        let good = self.good_records(&chunk);
        let trouble = self.decoder.trouble(&chunk, good);
        self.pending = Chunk::default();
        if good == 0 {
            return Err(trouble);
        }
        self.trouble = Some(trouble);
        self.decoder.decode(chunk.prefix(good), good).map(Some).map_err(|error| Trouble::whole(cleaned(&error), ""))
    }

    fn place(&self, row: usize) -> String {
        format!("line {}", self.lines.get(row).copied().unwrap_or_default())
    }
}

impl TextSource {
    /// How many records from the first decode, of a chunk that does not.
    fn good_records(&self, chunk: &Chunk) -> usize {
        let (mut good, mut bad) = (0, chunk.len());
        while bad - good > 1 {
            let middle = good + (bad - good) / 2;
            match self.decoder.decode(chunk.prefix(middle), middle) {
                Ok(_) => good = middle,
                Err(_) => bad = middle,
            }
        }
        good
    }
}

struct Decoder {
    schema: SchemaRef,
    grammar: Grammar,
    strict: bool,
}

impl Decoder {
    /// Whether the format can hold these types at all.
    fn check(&self) -> Result<(), Trouble> {
        let outcome = match self.grammar {
            Grammar::Lines => self.decode(b"", 0).map(|_| ()),
            Grammar::Csv { .. } => match self.schema.fields().iter().find(|field| field.data_type().is_nested()) {
                Some(field) => Err(ArrowError::NotYetImplemented(format!(
                    "column `{}` is a {}, which CSV cannot hold",
                    field.name(),
                    field.data_type()
                ))),
                None => Ok(()),
            },
        };
        outcome.map_err(|error| Trouble::whole(cleaned(&error), "use another format"))
    }

    /// Decodes exactly this many records.
    fn decode(&self, bytes: &[u8], records: usize) -> Result<RecordBatch, ArrowError> {
        let schema = Arc::clone(&self.schema);
        let batch = match self.grammar {
            Grammar::Lines => {
                // Room for one more than expected, so that two objects in one line are seen.
                let builder = JsonBuilder::new(schema)
                    .with_batch_size(records + 1)
                    .with_coerce_primitive(true)
                    .with_strict_mode(self.strict);
                let mut decoder = builder.build_decoder()?;
                let used = decoder.decode(bytes)?;
                let batch = decoder.flush()?;
                batch.filter(|_| used == bytes.len())
            }
            Grammar::Csv { delimiter } => {
                let mut decoder =
                    CsvBuilder::new(schema).with_delimiter(delimiter).with_batch_size(records + 1).build_decoder();
                let mut left = bytes;
                while !left.is_empty() {
                    let used = decoder.decode(left)?;
                    if used == 0 {
                        break;
                    }
                    left = left.get(used..).unwrap_or_default();
                }
                decoder.flush()?
            }
        };
        match batch {
            Some(batch) if batch.num_rows() == records => Ok(batch),
            None if records == 0 => Ok(RecordBatch::new_empty(Arc::clone(&self.schema))),
            _ => Err(ArrowError::ParseError("expected exactly one record".to_owned())),
        }
    }

    /// What is wrong with this record.
    fn trouble(&self, chunk: &Chunk, at: usize) -> Trouble {
        let (record, line) = (chunk.record(at), chunk.line(at));
        let place = format!("line {line}");
        if std::str::from_utf8(record).is_err() {
            return not_utf8(place);
        }
        // The parser for samples says more about broken JSON than the decoder does.
        if self.grammar == Grammar::Lines
            && let Err(trouble) = Sample::default().add(record, line)
        {
            return trouble;
        }
        let error =
            self.decode(record, 1).err().unwrap_or(ArrowError::ParseError("expected exactly one record".into()));
        let text = cleaned(&error);
        let advice = if text.contains("missing from schema") {
            "--ignore-extra-columns leaves it out; --schema declares it in a new shard"
        } else if text.contains("number of fields") {
            "check the quotes, and what separates fields (--delimiter)"
        } else {
            "mend it; a new shard takes the types given with --schema instead of those the first records show"
        };
        Trouble::at(place, text, advice)
    }
}

/// The decoder's words, without what is wrong (its line, of one record) or too long.
fn cleaned(error: &ArrowError) -> String {
    let text = error.to_string();
    let mut text = text.as_str();
    for prefix in ["Json error: ", "Csv error: ", "Parser error: ", "Not yet implemented: "] {
        text = text.strip_prefix(prefix).unwrap_or(text);
    }
    let text = text.split(". Row data:").next().unwrap_or_default();
    let mut text = text.replace(" for line 1,", ",").replace(" at line 0", "").replace(" at line 1", "");
    if text.chars().count() > 400 {
        text = text.chars().take(400).chain("..".chars()).collect();
    }
    text
}

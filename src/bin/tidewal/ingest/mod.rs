//! `tidewal ingest`.

mod columnar;
mod fit;
mod infer;
mod input;
mod load;
mod records;
mod schema_text;
mod text;
mod trouble;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use arrow_schema::SchemaRef;
use serde_json::json;
use tidewal::{Components, Engine, IndexSpec, TableSpec};

use self::input::{Format, Input, Reading, Started, new_schema};
use self::load::{Loaded, load};
use self::trouble::Trouble;
use crate::output::{complain, stdout};
use crate::shard::{ShardArgs, WRITER_NOTE, exists, open};
use crate::{Result, complaint};

/// Write the rows of files into a shard.
///
/// The first ingest creates the shard: its columns are those of the first file (of NDJSON and CSV as
/// the first 10,000 records show them) or of --schema. Later files must fit: columns are matched by name, a column a file does
/// not have becomes null, and values change their type only if nothing is lost. A row whose key exists
/// replaces the old one, so the same file can be ingested again.
#[derive(Debug, clap::Args)]
#[command(after_help = WRITER_NOTE)]
pub(crate) struct Args {
    #[command(flatten)]
    shard: ShardArgs,
    /// The columns that identify a row. Needed to create a shard
    #[arg(long, value_name = "COL,..", value_delimiter = ',')]
    key: Vec<String>,
    /// Create the shard without a key: rows are only ever added
    #[arg(long, conflicts_with = "key")]
    append_only: bool,
    /// Create the shard with this B-tree index, beside the one of the key
    #[arg(long, value_name = "NAME=COL,..")]
    index: Vec<String>,
    /// The format of all files [default: by the extension of each]
    #[arg(long, value_enum)]
    format: Option<Format>,
    /// The columns of a new shard, or a file that lists them: id:int64,name:utf8? (`?`: may be null)
    #[arg(long, value_name = "COLUMNS")]
    schema: Option<String>,
    /// What separates the fields of CSV files
    #[arg(long, value_name = "CHARACTER", value_parser = parse_delimiter)]
    delimiter: Option<u8>,
    /// Leave out what the shard has no column for, instead of refusing it
    #[arg(long)]
    ignore_extra_columns: bool,
    /// Rows written at once
    #[arg(long, value_name = "N", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    batch_rows: u32,
    /// Do not wait for the log before rows count as written. They are durable when the command ends
    #[arg(long)]
    no_durable: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The files; `-` is the standard input (with --format)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
}

fn parse_delimiter(text: &str) -> Result<u8, String> {
    match text {
        "\\t" | "tab" => Ok(b'\t'),
        _ => match text.as_bytes() {
            [byte] if byte.is_ascii() && !b"\"\r\n".contains(byte) => Ok(*byte),
            _ => Err("expected one ASCII character, or `tab`".to_owned()),
        },
    }
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let clock = Components::default().clock;
    let inputs: Vec<Input> = args.files.iter().map(|name| Input::new(name, args.format)).collect::<Result<_>>()?;
    if args.files.iter().filter(|name| *name == "-").count() > 1 {
        return Err(complaint("standard input (`-`) can be read once"));
    }
    let (engine, first) = args.open(&inputs).await?;
    let started = clock.now();
    let (files, failure) = load(&engine, inputs, first, args.reading()).await;
    let closed = engine.close().await;
    let failure = failure.or_else(|| closed.err().map(|error| error.to_string()));
    let report = Report {
        files,
        elapsed: clock.now() - started,
        durable: engine.stats().durable.get(),
        keyed: !engine.spec().table().primary_key_columns().is_empty(),
        failure,
    };
    report.print(args.json)
}

impl Args {
    fn reading(&self) -> Reading {
        Reading {
            batch_rows: self.batch_rows as usize,
            delimiter: self.delimiter,
            ignore_extra: self.ignore_extra_columns,
        }
    }

    /// Opens the shard, or creates it, and then with the first file begun.
    async fn open(&self, inputs: &[Input]) -> Result<(Engine, Option<Started>)> {
        let store = self.shard.store()?;
        let mut settings = self.shard.settings();
        settings.durable_writes = !self.no_durable;
        let builder = Engine::builder(store.clone()).settings(settings);
        if exists(&store).await? {
            let engine = open(builder, None).await?;
            let agrees = self.check_agrees(&engine);
            if agrees.is_err() {
                engine.close().await?;
            }
            return agrees.map(|()| (engine, None));
        }
        if self.key.is_empty() && !self.append_only {
            return Err(complaint(format!(
                "there is no shard at `{}` yet; say what identifies a row of the new one with --key COLUMN, \
                 or create it with --append-only",
                self.shard.data
            )));
        }
        let Some(input) = inputs.first() else { return Err(complaint("no files")) };
        let (spec, first) = self.new_shard(input)?;
        Ok((open(builder, Some(spec)).await?, Some(first)))
    }

    /// What the shard is created with. The first rows are read and fitted before it is, so that a
    /// mistaken key or format leaves no shard that keeps the mistake.
    fn new_shard(&self, input: &Input) -> Result<(TableSpec, Started)> {
        let in_file = |trouble: Trouble| complaint(format!("{}; no shard was created", trouble.of(&input.name)));
        let mut opened = input.open(&self.reading()).map_err(in_file)?;
        let schema = match &self.schema {
            Some(text) => Arc::new(schema_text::parse(text)?),
            None => match opened.columns().map_err(in_file)? {
                Some(columns) => new_schema(&columns, &self.key),
                None => {
                    return Err(complaint(format!(
                        "{}: no rows, so the columns of the new shard are not known; give --schema",
                        input.name
                    )));
                }
            },
        };
        self.check_key(&schema).map_err(in_file)?;
        let mut spec = TableSpec::new(Arc::clone(&schema)).primary_key(&self.key);
        for index in self.indexes()? {
            spec = spec.index(index);
        }
        spec.validate()?;
        let first = opened.rows(&schema, &self.reading()).and_then(Started::with_first_rows).map_err(in_file)?;
        Ok((spec, first))
    }

    fn check_key(&self, schema: &SchemaRef) -> Result<(), Trouble> {
        for name in &self.key {
            if schema.index_of(name).is_err() {
                let advice = match schema.fields().len() {
                    1 => "if that is several columns in one, say what separates them with --delimiter",
                    _ => "name the columns of --key as they are spelled there",
                };
                let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
                let reason = format!("there is no column `{name}` for the key; there is {}", fit::shortened(&names));
                return Err(Trouble::whole(reason, advice));
            }
        }
        Ok(())
    }

    fn indexes(&self) -> Result<Vec<IndexSpec>> {
        let parse = |text: &String| match text.split_once('=') {
            Some((name, columns)) => Ok(IndexSpec::btree(name, columns.split(','))),
            None => Err(complaint(format!("--index: found `{text}`; expected NAME=COLUMN,.."))),
        };
        self.index.iter().map(parse).collect()
    }

    /// What the shard was created with stays. Saying it again is no mistake; saying otherwise is.
    fn check_agrees(&self, engine: &Engine) -> Result<()> {
        let table = engine.spec().table();
        let stored = table.primary_key_columns();
        if (!self.key.is_empty() && self.key != stored) || (self.append_only && !stored.is_empty()) {
            let has = if stored.is_empty() { "no key".to_owned() } else { format!("the key {}", stored.join(",")) };
            return Err(complaint(format!("--key: the shard was created with {has}, and keeps it; leave --key out")));
        }
        for index in self.indexes()? {
            if !table.indexes().contains(&index) {
                return Err(complaint(format!(
                    "--index: the shard has no index `{}` on {}, and indexes are chosen when it is created; \
                     write to a new shard",
                    index.name(),
                    index.columns().join(",")
                )));
            }
        }
        let Some(text) = &self.schema else { return Ok(()) };
        let given = schema_text::parse(text)?;
        if given.fields() == table.schema().fields() {
            return Ok(());
        }
        Err(complaint(
            "--schema: the shard was created with other columns, and keeps them (`tidewal stats` lists them); leave --schema out",
        ))
    }
}

/// What an ingest did.
struct Report {
    files: Vec<Loaded>,
    elapsed: Duration,
    durable: u64,
    /// Whether the shard has a primary key.
    keyed: bool,
    failure: Option<String>,
}

impl Report {
    fn rows(&self) -> u64 {
        self.files.iter().map(|file| file.rows).sum()
    }

    fn rate(&self) -> u64 {
        let seconds = self.elapsed.as_secs_f64();
        if seconds > 0.0 { (self.rows() as f64 / seconds) as u64 } else { 0 }
    }

    fn print(&self, as_json: bool) -> Result<ExitCode> {
        let mut out = stdout();
        if as_json {
            writeln!(out, "{}", self.as_json())?;
        } else {
            for file in self.files.iter().filter(|file| file.whole) {
                writeln!(out, "{}: {}", file.file, counted(file.rows))?;
            }
            writeln!(
                out,
                "{} in {:.2} s, {} rows/s; durable up to {}",
                counted(self.rows()),
                self.elapsed.as_secs_f64(),
                self.rate(),
                self.durable
            )?;
        }
        out.flush()?;
        let Some(failure) = &self.failure else { return Ok(ExitCode::SUCCESS) };
        complain(&format!("error: {failure}"));
        if let Some(file) = self.files.last() {
            complain(&format!("  {}", self.said_of(file)));
        }
        Ok(ExitCode::FAILURE)
    }

    fn as_json(&self) -> serde_json::Value {
        let files = self.files.iter().map(|file| json!({ "file": file.file, "rows": file.rows, "whole": file.whole }));
        json!({
            "files": files.collect::<Vec<_>>(),
            "rows": self.rows(),
            "seconds": self.elapsed.as_secs_f64(),
            "rows_per_second": self.rate(),
            "durable": self.durable,
            "error": self.failure,
        })
    }

    fn said_of(&self, file: &Loaded) -> String {
        if file.rows == 0 {
            return format!("no row of {} was written", file.file);
        }
        let were = if file.rows == 1 { "was written and is durable" } else { "were written and are durable" };
        let again = match (file.whole, self.keyed) {
            (true, _) => "",
            (false, true) => "; ingest the file again once it is mended: rows replace those of the same key",
            (false, false) => "; ingest only what follows them: in a shard without a key they would be doubled",
        };
        format!("{} of {} {were}{again}", counted(file.rows), file.file)
    }
}

fn counted(rows: u64) -> String {
    if rows == 1 { "1 row".to_owned() } else { format!("{rows} rows") }
}

//! `tidewal demo`.

mod corpus;
mod crash;
mod report;
mod tour;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use futures::StreamExt;
use tidewal::{Engine, Error, IndexSpec, Settings, Store, TableSpec};

use self::corpus::{Corpus, Piece};
use self::crash::{PieceKey, count_survivors, key_of, write_until_crash};
use self::report::{Findings, Report};
use self::tour::started;
use crate::{Result, complaint};

/// Loads real text, asks for it, crashes in the middle of writing, recovers, and counts.
///
/// The text is that of the crates in cargo's registry cache, or of any folder: one row per piece of
/// a file. Ends with an error if a row that was acknowledged is lost, or one is there twice.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where the text comes from [default: the crates in cargo's registry cache]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Where the shard is kept [default: a temporary folder, removed at the end]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// How many rows to load at most
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// Rows a put holds while loading, and puts in flight.
const PUT_ROWS: usize = 200;
const PUTS_IN_FLIGHT: usize = 32;

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let report = Report { silent: args.json };
    let mut corpus = Corpus::of(args.dir.as_deref())?;
    let temporary = if args.data.is_none() { Some(tempfile::tempdir()?) } else { None };
    let folder = match (&args.data, &temporary) {
        (Some(folder), _) => folder.as_path(),
        (None, Some(temporary)) => temporary.path(),
        (None, None) => return Err(complaint("no folder for the shard")),
    };

    report.heading("Loading text, one row per piece of a file");
    report.line(&format!("from {}", corpus.root.display()));
    report.line(&format!("into {}", folder.display()));
    let engine = open(folder).await?;
    // A shard of an earlier run holds rows this one did not write.
    let kept = keys_in(&engine).await?;
    let start = started();
    // A tenth is kept back for the crash.
    let (mut acknowledged, rows) = load(&engine, &mut corpus, args.rows - args.rows / 10, &report).await?;
    let rows_per_second = rows as f64 / start.elapsed().as_secs_f64().max(1e-9);
    report.line(&format!(
        "{rows} rows of {} files in {} ({rows_per_second:.0} rows/s, each durable when acknowledged); {} files were too large or not text",
        corpus.read,
        tour::took(start),
        corpus.skipped
    ));
    if rows == 0 {
        return Err(complaint(format!(
            "no text was found below `{}`; name another folder with --dir DIR",
            corpus.root.display()
        )));
    }
    acknowledged.extend(kept);

    report.heading("Asking for it");
    tour::show(&engine, &report).await?;

    report.heading("Crashing in the middle of writing");
    let last: Vec<Piece> = corpus.take((args.rows / 10) as usize);
    report.line(&format!("16 writers put {} more rows; the shard ends without a close while they do", last.len()));
    acknowledged.extend(write_until_crash(engine, last).await?);

    let start = started();
    let engine = open(folder).await?;
    let reopen_ms = start.elapsed().as_secs_f64() * 1e3;
    let survival = count_survivors(&engine, &acknowledged).await?;
    report.line(&format!("reopened in {reopen_ms:.1} ms: {} rows replayed from the log", engine.stats().rows_replayed));

    report.heading("A second writer");
    let fenced = fence(&engine, folder, &report).await?;
    let findings = Findings { rows: acknowledged.len() as u64, rows_per_second, survival, reopen_ms, fenced };
    findings.conclude(&report)
}

async fn open(folder: &Path) -> Result<Engine> {
    let folder = folder.to_str().ok_or_else(|| complaint("the name of the folder is not UTF-8"))?;
    let spec = TableSpec::new(corpus::schema())
        .primary_key(["path", "line"])
        .index(IndexSpec::btree("by_language", ["language"]))
        .index(IndexSpec::btree("by_crate", ["crate"]))
        .index(IndexSpec::btree("by_size", ["size"]));
    let settings = Settings { unflushed_bytes_max: 8 << 30, ..Settings::default() };
    Ok(Engine::builder(Store::from_url(folder)?).spec(spec).settings(settings).open().await?)
}

/// The keys that are there already.
async fn keys_in(engine: &Engine) -> Result<Vec<PieceKey>> {
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    let mut keys = Vec::new();
    let mut rows = engine.scan(tidewal::Scan::new().columns(["path", "line"])).await?;
    while let Some(batch) = rows.next().await {
        let batch = batch?;
        let lines = batch.column(1).as_primitive::<Int32Type>().values();
        let paths = batch.column(0).as_string::<i32>().iter().flatten();
        keys.extend(paths.zip(lines).map(|(path, line)| (path.to_owned(), *line)));
    }
    Ok(keys)
}

/// Loads up to `limit` rows, several puts at once. Gives the keys that were acknowledged.
async fn load(engine: &Engine, corpus: &mut Corpus, limit: u64, report: &Report) -> Result<(Vec<PieceKey>, u64)> {
    let progress = report.progress(limit);
    let mut left = limit as usize;
    let puts = std::iter::from_fn(|| {
        let pieces = corpus.take(left.min(PUT_ROWS));
        left -= pieces.len();
        (!pieces.is_empty()).then_some(pieces)
    });
    let writes = puts.map(|pieces| {
        let engine = engine.clone();
        async move {
            engine.put(corpus::batch(&pieces)?).await?;
            Ok::<_, crate::BoxError>(pieces.iter().map(key_of).collect::<Vec<_>>())
        }
    });
    let mut writes = std::pin::pin!(futures::stream::iter(writes).buffer_unordered(PUTS_IN_FLIGHT));
    let mut acknowledged = Vec::new();
    while let Some(keys) = writes.next().await {
        let keys = keys?;
        progress.inc(keys.len() as u64);
        acknowledged.extend(keys);
    }
    progress.finish_and_clear();
    let rows = acknowledged.len() as u64;
    Ok((acknowledged, rows))
}

/// A second writer opens the shard. Whether the first is shut out, and the second can go on.
async fn fence(first: &Engine, folder: &Path, report: &Report) -> Result<bool> {
    let second = open(folder).await?;
    report.line(&format!(
        "the second writer has epoch {}, the first had {}",
        second.stats().epoch,
        first.stats().epoch
    ));
    let row =
        |line| Piece { path: "fence".to_owned(), package: String::new(), language: "text", line, text: String::new() };
    let refused = match first.put(corpus::batch(&[row(1)])?).await {
        Err(error @ Error::Fenced { .. }) => {
            report.line(&format!("the first writer's next put: {error}"));
            true
        }
        Err(error) => return Err(error.into()),
        Ok(_) => false,
    };
    second.put(corpus::batch(&[row(2)])?).await?;
    let kept = second.get([tidewal::Value::from("fence"), tidewal::Value::from(2)]).await?;
    let absent = second.get([tidewal::Value::from("fence"), tidewal::Value::from(1)]).await?;
    report.line("the second writer's next put: acknowledged, and found");
    second.close().await?;
    Ok(refused && kept.row().is_some() && absent.row().is_none())
}

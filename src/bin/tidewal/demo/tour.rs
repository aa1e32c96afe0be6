//! What can be asked of a shard, shown on the text that was loaded.

use std::time::Instant;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use tidewal::{Engine, Lookup, Order, Scan, Value, col};

use super::corpus::{self, Piece};
use super::report::Report;
use crate::Result;

/// Scans, lookups, filters, a change and a look back.
pub(super) async fn show(engine: &Engine, report: &Report) -> Result<()> {
    languages(engine, report).await?;
    largest(engine, report).await?;
    one_crate(engine, report).await?;
    change_and_look_back(engine, report).await
}

async fn languages(engine: &Engine, report: &Report) -> Result<()> {
    report.question("How many pieces are there of each language?", "count where language = '..'");
    let snapshot = engine.snapshot().await?;
    for language in ["rust", "markdown", "toml", "c", "python"] {
        let start = started();
        let count = snapshot.count(Some(col("language").eq(language))).await?;
        report.line(&format!("{language:<10} {count:>9}    {}", took(start)));
    }
    Ok(())
}

async fn largest(engine: &Engine, report: &Report) -> Result<()> {
    report.question("Which Rust pieces are the largest?", "language = 'rust' order by size desc limit 5");
    let start = started();
    let scan = Scan::new()
        .columns(["path", "line", "size"])
        .filter_sql("language = 'rust'")?
        .order_by(Order::column_descending("size"))
        .limit(5);
    let rows = engine.scan(scan).await?.collect_all().await?;
    let sizes = rows.column(2).as_primitive::<Int64Type>();
    for row in 0..rows.num_rows() {
        report.line(&format!("{:>6} bytes  {}", sizes.value(row), place(&rows, row)));
    }
    report.line(&took(start));
    Ok(())
}

async fn one_crate(engine: &Engine, report: &Report) -> Result<()> {
    let sql = "text LIKE '%unsafe%' AND size BETWEEN 200 AND 2000";
    report.question("Where does the word `unsafe` stand in pieces of middle size?", &format!("{sql} limit 3"));
    let start = started();
    let scan = Scan::new().columns(["path", "line", "text"]).filter_sql(sql)?.limit(3);
    let rows = engine.scan(scan).await?.collect_all().await?;
    let texts = rows.column(2).as_string::<i32>();
    for row in 0..rows.num_rows() {
        let line = texts.value(row).lines().find(|line| line.contains("unsafe")).unwrap_or_default();
        report.line(&format!("{}: {}", place(&rows, row), shortened(line.trim(), 60)));
    }
    report.line(&took(start));
    Ok(())
}

/// A row is changed and deleted, and a snapshot from before still sees what it saw.
async fn change_and_look_back(engine: &Engine, report: &Report) -> Result<()> {
    let first = engine.scan(Scan::new().limit(1)).await?.collect_all().await?;
    if first.num_rows() == 0 {
        return Ok(());
    }
    let (path, line) =
        (first.column(0).as_string::<i32>().value(0), first.column(1).as_primitive::<Int32Type>().value(0));
    let key = || [Value::from(path), Value::from(line)];
    report.question("What does a write change, and what not?", "put, get, delete, get, and get as of before");
    let before = engine.snapshot().await?;
    let text = "This piece was rewritten a millisecond ago.".to_owned();
    let piece = Piece { path: path.to_owned(), package: String::new(), language: "text", line, text };
    let start = started();
    engine.put(corpus::batch(&[piece])?).await?;
    let written = took(start);
    let start = started();
    let found = text_of(&engine.get(key()).await?);
    report.line(&format!("after the put    {found}    put {written}, get {}", took(start)));
    engine.delete(&first.project(&[0, 1])?).await?;
    report.line(&format!("after the delete {}", text_of(&engine.get(key()).await?)));
    report.line(&format!("as of before     {}", text_of(&before.get(key())?)));
    engine.put(first).await?;
    Ok(())
}

fn place(rows: &RecordBatch, row: usize) -> String {
    let path = shortened(rows.column(0).as_string::<i32>().value(row), 70);
    format!("{path}:{}", rows.column(1).as_primitive::<Int32Type>().value(row))
}

fn text_of(lookup: &Lookup) -> String {
    match lookup.row().and_then(|row| row.column_by_name("text")) {
        Some(text) => {
            format!("\"{}\"", shortened(text.as_string::<i32>().value(0).lines().next().unwrap_or_default(), 50))
        }
        None => lookup.to_string(),
    }
}

/// The end of a path says more than its start, and the start of a text more than its end.
fn shortened(text: &str, characters: usize) -> String {
    if text.chars().count() <= characters {
        return text.to_owned();
    }
    let kept: String = text.chars().take(characters).collect();
    format!("{kept}..")
}

#[expect(clippy::disallowed_methods, reason = "people are told how long the machine took")]
pub(super) fn started() -> Instant {
    Instant::now()
}

pub(super) fn took(start: Instant) -> String {
    let micros = start.elapsed().as_micros();
    if micros < 10_000 { format!("{micros} us") } else { format!("{} ms", micros / 1000) }
}

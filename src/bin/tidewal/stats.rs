//! `tidewal stats`.

use std::io::Write as _;
use std::process::ExitCode;

use serde_json::json;
use tidewal::{Engine, Stats};

use crate::Result;
use crate::output::stdout;
use crate::shard::{ShardArgs, WRITER_NOTE, finish};

/// Say what a shard holds.
#[derive(Debug, clap::Args)]
#[command(after_help = WRITER_NOTE)]
pub(crate) struct Args {
    #[command(flatten)]
    shard: ShardArgs,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let engine = args.shard.open_existing().await?;
    let outcome = args.print(&engine).await;
    finish(&engine, outcome).await?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    async fn print(&self, engine: &Engine) -> Result<()> {
        let rows = engine.snapshot().await?.count(None).await?;
        let stats = engine.stats();
        let mut out = stdout();
        if self.json {
            writeln!(out, "{}", as_json(engine, &stats, rows))?;
        } else {
            write!(out, "{}", as_text(engine, &stats, rows))?;
        }
        Ok(out.flush()?)
    }
}

fn as_json(engine: &Engine, stats: &Stats, rows: u64) -> serde_json::Value {
    let table = engine.spec().table();
    let columns = table.schema().fields().iter().map(
        |field| json!({ "name": field.name(), "type": field.data_type().to_string(), "nullable": field.is_nullable() }),
    );
    let indexes = table.indexes().iter().map(|index| {
        json!({ "name": index.name(), "kind": format!("{:?}", index.kind()).to_lowercase(), "columns": index.columns() })
    });
    json!({
        "rows": rows,
        "durable": stats.durable.get(),
        "epoch": stats.epoch.get(),
        "columns": columns.collect::<Vec<_>>(),
        "primary_key": table.primary_key_columns(),
        "indexes": indexes.collect::<Vec<_>>(),
        "entries": stats.entries_replayed,
        "rows_replayed": stats.rows_replayed,
        "generations": stats.generations,
        "flushed": stats.flushed.get(),
        "row_bytes": stats.row_bytes,
        "index_bytes": stats.index_bytes,
        "replay_seconds": stats.replay_time.as_secs_f64(),
        "torn_tail": stats.torn_tail,
    })
}

fn as_text(engine: &Engine, stats: &Stats, rows: u64) -> String {
    let table = engine.spec().table();
    let key = table.primary_key_columns();
    let key = if key.is_empty() { "none (append-only)".to_owned() } else { key.join(", ") };
    let mut lines = vec![
        format!("rows         {rows}"),
        format!("durable      {} (rows ever written, replaced ones and deletes among them)", stats.durable),
        format!("epoch        {}", stats.epoch),
        format!(
            "log          {} entries, {} rows, replayed in {:.1?}",
            stats.entries_replayed, stats.rows_replayed, stats.replay_time
        ),
        format!("generations  {}, with the rows below {}", stats.generations, stats.flushed),
        format!("memory       {} of rows, {} of indexes", bytes(stats.row_bytes), bytes(stats.index_bytes)),
        format!("primary key  {key}"),
    ];
    for index in table.indexes() {
        lines.push(format!("index        {} on {}", index.name(), index.columns().join(", ")));
    }
    if let Some(object) = &stats.torn_tail {
        lines.push(format!("torn tail    {object}: cut short by a crash, never acknowledged"));
    }
    lines.push("columns".to_owned());
    for field in table.schema().fields() {
        let null = if field.is_nullable() { "" } else { " not null" };
        lines.push(format!("  {}: {}{null}", field.name(), field.data_type()));
    }
    lines.push(String::new());
    lines.join("\n")
}

fn bytes(count: u64) -> String {
    match count {
        0..1024 => format!("{count} bytes"),
        1024..1_048_576 => format!("{:.1} KiB", count as f64 / 1024.0),
        _ => format!("{:.1} MiB", count as f64 / 1_048_576.0),
    }
}

//! `tidewal scan`.

use std::process::ExitCode;

use tidewal::{Engine, Order, Scan};

use crate::output::{RowFormat, RowPrinter, complain, stdout};
use crate::shard::{ShardArgs, WRITER_NOTE, finish};
use crate::{Result, complaint};

/// A table is for eyes; without a limit it ends here, and says so.
const TABLE_ROWS: u64 = 100;

/// Print rows, filtered and ordered.
///
/// Rows come as they were written unless --order says otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = WRITER_NOTE)]
pub(crate) struct Args {
    #[command(flatten)]
    shard: ShardArgs,
    /// Only rows for which this holds: size > 100 AND name LIKE 'a%'
    #[arg(long, value_name = "SQL")]
    filter: Option<String>,
    /// Only these columns, in this order
    #[arg(long, value_name = "COL,..", value_delimiter = ',')]
    columns: Option<Vec<String>>,
    /// Order by a column; add `:desc` for the greatest first
    #[arg(long, value_name = "COL[:desc]")]
    order: Option<String>,
    /// At most this many rows [default: 100 in a table, all otherwise]
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Without the first N rows
    #[arg(long, value_name = "N", default_value_t = 0)]
    offset: u64,
    /// How rows are printed
    #[arg(long, value_enum, default_value = "table")]
    format: RowFormat,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    // A filter that cannot be read should not fence anybody.
    let scan = args.scan()?;
    let engine = args.shard.open_existing().await?;
    let outcome = args.print(&engine, scan).await;
    finish(&engine, outcome).await?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    /// The most rows that are printed.
    fn cap(&self) -> Option<u64> {
        self.limit.or((self.format == RowFormat::Table).then_some(TABLE_ROWS))
    }

    fn scan(&self) -> Result<Scan> {
        let mut scan = Scan::new().offset(self.offset);
        if let Some(cap) = self.cap() {
            // One more than a table shows tells whether there are more.
            scan = scan.limit(if self.limit.is_some() { cap } else { cap + 1 });
        }
        if let Some(columns) = &self.columns {
            scan = scan.columns(columns.iter().map(|name| name.trim()));
        }
        if let Some(order) = &self.order {
            scan = scan.order_by(parse_order(order)?);
        }
        match &self.filter {
            Some(filter) => Ok(scan.filter_sql(filter)?),
            None => Ok(scan),
        }
    }

    async fn print(&self, engine: &Engine, scan: Scan) -> Result<()> {
        let mut rows = engine.scan(scan).await?;
        let schema = rows.schema().clone();
        let mut printer = RowPrinter::new(self.format, &schema, stdout())?;
        let mut left = self.cap().unwrap_or(u64::MAX);
        let mut cut = false;
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            let shown = (batch.num_rows() as u64).min(left);
            cut |= shown < batch.num_rows() as u64;
            left -= shown;
            if shown > 0 {
                printer.print(&batch.slice(0, shown as usize))?;
            }
        }
        printer.finish(&schema)?;
        if cut {
            complain(&format!(
                "the first {TABLE_ROWS} rows are shown; --limit N shows N, --format ndjson or csv prints all"
            ));
        }
        Ok(())
    }
}

fn parse_order(text: &str) -> Result<Order> {
    let (name, descending) = match text.rsplit_once(':') {
        Some((name, "desc")) => (name, true),
        Some((name, "asc")) => (name, false),
        _ => (text, false),
    };
    match name {
        "" => Err(complaint("--order: no column; give its name, and `:desc` for the greatest first")),
        name if descending => Ok(Order::column_descending(name)),
        name => Ok(Order::column(name)),
    }
}

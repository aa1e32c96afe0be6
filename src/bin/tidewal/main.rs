//! The bundled binary: loads files into a shard, reads them back, and demonstrates the engine.

mod demo;
mod get;
mod ingest;
mod output;
mod scan;
mod shard;
mod stats;

use std::fmt;
use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use tracing_subscriber::EnvFilter;

/// Whatever went wrong: its text is for the person at the terminal.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
pub(crate) type Result<T, E = BoxError> = std::result::Result<T, E>;

/// Arrow rows in a write-ahead log on an object store: load files, look up keys, scan.
#[derive(Debug, Parser)]
#[command(version, propagate_version = true, after_help = LOGGING)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const LOGGING: &str = "Logs go to stderr: RUST_LOG=info or RUST_LOG=tidewal=debug says more. \
    Exit codes: 0 done, 1 failed, 2 wrong usage (or, of `get`, a key that was not found).";

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the rows of NDJSON, CSV, Parquet or Arrow IPC files into a shard
    Ingest(ingest::Args),
    /// Print rows, filtered and ordered
    Scan(scan::Args),
    /// Print the rows under primary keys
    Get(get::Args),
    /// Say what a shard holds
    Stats(stats::Args),
    /// Load, crash on purpose, recover, and count what survived
    Demo(demo::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    // The demo fences a writer on purpose and tells of it in its own words.
    log_to_stderr(if matches!(cli.command, Command::Demo(_)) { "off" } else { "warn" });
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&BoxError::from(error)),
    };
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::Ingest(args) => ingest::run(args).await,
            Command::Scan(args) => scan::run(args).await,
            Command::Get(args) => get::run(args).await,
            Command::Stats(args) => stats::run(args).await,
            Command::Demo(args) => demo::run(args).await,
        }
    });
    outcome.unwrap_or_else(|error| if output::is_closed_pipe(&error) { ExitCode::SUCCESS } else { report(&error) })
}

fn log_to_stderr(level: &str) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .init();
}

/// The error in one line, and a line for each cause its text does not already contain.
fn report(error: &BoxError) -> ExitCode {
    let mut text = error.to_string();
    output::complain(&format!("error: {text}"));
    let mut cause = error.source();
    while let Some(error) = cause {
        let found = error.to_string();
        if !text.contains(&found) {
            output::complain(&format!("  caused by: {found}"));
            text = found;
        }
        cause = error.source();
    }
    ExitCode::FAILURE
}

/// An error of the binary itself.
#[derive(Debug)]
struct Complaint(String);

impl fmt::Display for Complaint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Complaint {}

/// What was wrong, where, and what to do.
pub(crate) fn complaint(text: impl Into<String>) -> BoxError {
    Box::new(Complaint(text.into()))
}

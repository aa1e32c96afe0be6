//! What the demo says, to people or as one JSON object.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::crash::Survival;
use crate::Result;
use crate::output::stdout;

/// Speaks, unless only the JSON object is wanted.
pub(super) struct Report {
    pub(super) silent: bool,
}

/// Everything that was found out.
pub(super) struct Findings {
    pub(super) rows: u64,
    pub(super) rows_per_second: f64,
    pub(super) survival: Survival,
    pub(super) reopen_ms: f64,
    pub(super) fenced: bool,
}

impl Report {
    pub(super) fn line(&self, text: &str) {
        if !self.silent {
            // A pipe that was closed ends the demo at its next result, which is checked.
            let _ = writeln!(stdout(), "    {text}");
        }
    }

    pub(super) fn heading(&self, text: &str) {
        if !self.silent {
            let _ = writeln!(stdout(), "\n{text}");
        }
    }

    pub(super) fn question(&self, words: &str, query: &str) {
        if !self.silent {
            let _ = writeln!(stdout(), "\n  {words}\n    > {query}");
        }
    }

    /// A bar on stderr, where there is someone to see it.
    pub(super) fn progress(&self, rows: u64) -> ProgressBar {
        if self.silent || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("    {bar:40} {human_pos} of {human_len} rows, {per_sec}");
        ProgressBar::new(rows).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
    }
}

impl Findings {
    pub(super) fn all_is_well(&self) -> bool {
        self.survival.lost == 0 && self.survival.doubled == 0 && self.fenced
    }

    /// Prints the result, and says how the program shall end.
    pub(super) fn conclude(&self, report: &Report) -> Result<ExitCode> {
        let Survival { acknowledged, found, lost, doubled, unannounced } = self.survival;
        if report.silent {
            let object = json!({
                "rows": self.rows, "rows_per_second": self.rows_per_second.round(),
                "acknowledged": acknowledged, "found": found, "lost": lost, "doubled": doubled,
                "reopen_ms": (self.reopen_ms * 10.0).round() / 10.0, "fenced": self.fenced,
            });
            writeln!(stdout(), "{object}")?;
        } else {
            let mut out = stdout();
            writeln!(out, "\n  rows acknowledged   {acknowledged:>9}")?;
            writeln!(out, "  rows found          {found:>9}")?;
            writeln!(out, "  lost                {lost:>9}")?;
            writeln!(out, "  doubled             {doubled:>9}")?;
            writeln!(out, "  time to reopen      {:>9.1} ms", self.reopen_ms)?;
            let told = "also in the log: their puts were cut off before their answers";
            writeln!(out, "  not acknowledged    {unannounced:>9}    {told}")?;
            let fence = if self.fenced { "yes" } else { "NO" };
            writeln!(out, "  first writer fenced {fence:>9}")?;
            let verdict = if self.all_is_well() { "Nothing was lost or doubled." } else { "SOMETHING WENT WRONG." };
            writeln!(out, "\n{verdict}")?;
        }
        Ok(if self.all_is_well() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

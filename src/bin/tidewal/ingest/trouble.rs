//! Why a file cannot be read further, for the person who has to mend it.

use std::fmt;

/// What is wrong with a file, where in it, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// `line 7`, `row 12 (row group 2)`; empty for the file as a whole.
    pub(super) place: String,
    pub(super) reason: String,
    pub(super) advice: String,
}

impl Trouble {
    pub(super) fn at(place: impl Into<String>, reason: impl Into<String>, advice: impl Into<String>) -> Self {
        Trouble { place: place.into(), reason: reason.into(), advice: advice.into() }
    }

    pub(super) fn whole(reason: impl Into<String>, advice: impl Into<String>) -> Self {
        Trouble::at("", reason, advice)
    }

    /// With the name of the file in front.
    pub(super) fn of(&self, file: &str) -> String {
        let separator = if self.place.is_empty() { ": " } else { ", " };
        format!("{file}{separator}{self}")
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(self.reason.trim_end_matches(['.', ' ']))?;
        if self.advice.is_empty() { Ok(()) } else { write!(f, "; {}", self.advice) }
    }
}

/// Reads batches of a file one after another.
pub(super) trait Source: Send {
    /// The columns its batches have.
    fn schema(&self) -> arrow_schema::SchemaRef;
    /// The next rows; `None` at the end. Rows before the bad one come before the trouble.
    fn next_batch(&mut self) -> Result<Option<arrow_array::RecordBatch>, Trouble>;
    /// Where in the file this row of the last batch is.
    fn place(&self, row: usize) -> String;
    /// Something the reader should know although the file could be read.
    fn warning(&self) -> Option<String> {
        None
    }
}

//! The coordinates of a shard, as types.
//!
//! Arithmetic on them lives here and nowhere else: the only conversion in the crate is
//! `seq - first`, the distance of a row from the start of its memtable ([`Seq::offset_from`]).

use std::fmt;

use serde::{Deserialize, Serialize};

/// A row's sequence number, and the exclusive end of "everything below it".
///
/// As a row id it is given once, in order, without gaps, for the life of the shard (S1). As a
/// cursor it is an exclusive end: `Seq(0)` is "nothing", and "row 0 is there" is `Seq(1)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(u64);

impl Seq {
    /// Nothing, or the first row there is.
    pub const ZERO: Seq = Seq(0);
    /// Above every row a shard can hold.
    pub const MAX: Seq = Seq(u64::MAX);

    /// The sequence number with this value.
    pub const fn new(value: u64) -> Self {
        Seq(value)
    }

    /// The plain number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The number `rows` further on; stays at [`Seq::MAX`] past the end of the space.
    #[must_use]
    pub const fn plus(self, rows: u64) -> Self {
        Seq(self.0.saturating_add(rows))
    }

    /// The distance from `first`, and 0 for what lies below it.
    pub const fn offset_from(self, first: Seq) -> u64 {
        self.0.saturating_sub(first.0)
    }

    /// [`Seq::offset_from`] as an index into memory.
    pub(crate) const fn index_from(self, first: Seq) -> usize {
        self.offset_from(first) as usize
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The rows `[first, end)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SeqRange {
    first: Seq,
    end: Seq,
}

impl SeqRange {
    /// `[first, first + rows)`.
    pub const fn starting_at(first: Seq, rows: u64) -> Self {
        SeqRange { first, end: first.plus(rows) }
    }

    /// `[first, end)`; empty where `end` is not above `first`.
    pub const fn between(first: Seq, end: Seq) -> Self {
        if end.0 < first.0 { SeqRange { first, end: first } } else { SeqRange { first, end } }
    }

    /// The first row.
    pub const fn first(self) -> Seq {
        self.first
    }

    /// One past the last row.
    pub const fn end(self) -> Seq {
        self.end
    }

    /// How many rows it holds.
    pub const fn rows(self) -> u64 {
        self.end.offset_from(self.first)
    }

    /// Whether it holds no row.
    pub const fn is_empty(self) -> bool {
        self.rows() == 0
    }

    /// Whether the row lies in it.
    pub const fn contains(self, seq: Seq) -> bool {
        self.first.0 <= seq.0 && seq.0 < self.end.0
    }

    /// The rows both hold.
    #[must_use]
    pub fn intersect(self, other: SeqRange) -> SeqRange {
        SeqRange::between(self.first.max(other.first), self.end.min(other.end))
    }
}

impl fmt::Display for SeqRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}, {})", self.first, self.end)
    }
}

macro_rules! counter {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(u64);

        impl $name {
            /// The value as a type.
            pub const fn new(value: u64) -> Self {
                $name(value)
            }

            /// The plain number.
            pub const fn get(self) -> u64 {
                self.0
            }

            /// The one after it.
            #[must_use]
            pub const fn next(self) -> Self {
                $name(self.0.saturating_add(1))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

counter! {
    /// Which opening of the shard wrote something. The first is 1; 0 is "never opened".
    Epoch
}
counter! {
    /// The place of an entry in the log. The first is 1; 0 is "before the log".
    EntryPosition
}
counter! {
    /// The version of a shard manifest. The first is 1; 0 is "no manifest".
    ManifestVersion
}

/// A random number drawn once per opening. It tells our own object from a stranger's when a
/// store answers "already exists" to a write whose first answer was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Nonce(u128);

impl Nonce {
    /// The nonce with this value.
    pub const fn new(value: u128) -> Self {
        Nonce(value)
    }

    /// Reads what [`fmt::Display`] wrote: 32 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        (text.len() == 32).then(|| u128::from_str_radix(text, 16).ok().map(Nonce)).flatten()
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s1_a_distance_saturates_in_both_directions() {
        assert_eq!(Seq::new(3).offset_from(Seq::new(5)), 0);
        assert_eq!(Seq::new(5).offset_from(Seq::new(3)), 2);
        assert_eq!(Seq::MAX.plus(1), Seq::MAX);
    }

    #[test]
    fn s1_an_inverted_range_is_empty() {
        let range = SeqRange::between(Seq::new(9), Seq::new(2));
        assert!(range.is_empty());
        assert!(!range.contains(Seq::new(9)));
    }

    #[test]
    fn w4_a_nonce_survives_its_text_form() {
        let nonce = Nonce::new(0xfeed);
        assert_eq!(Nonce::parse(&nonce.to_string()), Some(nonce));
        assert_eq!(Nonce::parse("feed"), None);
    }
}

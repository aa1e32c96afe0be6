//! The invariants of a shard. This is their one home; code that upholds one cites its id.
//!
//! | id | invariant |
//! |---|---|
//! | S1 | sequence numbers are dense and given once |
//! | S2 | a put is never split over log entries, memtables or moments of visibility |
//! | W1 | an acknowledged durable put is in the store |
//! | W2 | only the newest epoch creates effective objects |
//! | W3 | a log entry is released only when a committed generation covers it |
//! | W4 | replayed rows are never appended or indexed again |
//! | V1 | visible <= durable in durable mode, whatever fails |
//! | V2 | a row becomes visible in all its indexes together, in `Seq` order |
//! | V3 | a snapshot never changes |
//! | G1 | generation ranges tile |
//! | G2 | a manifest commit precedes dropping the memtable |
//! | G3 | committed generations are never rewritten in place |
//! | G4 | generations are committed in order |
//! | R1 | the recovered state equals that of a process that never died, up to the last acknowledgement |
//! | R2 | recovery is idempotent |
//! | B1 | bytes held <= budget |
//! | L1 | after the first failure nothing is acknowledged and nothing is read |
//! | K1 | a search returns k rows whenever k match |

/// Sequence numbers are dense and given once.
pub(crate) const S1: &str = "S1";
/// An acknowledged durable put is in the store.
pub(crate) const W1: &str = "W1";
/// Generation ranges tile.
pub(crate) const G1: &str = "G1";
/// A manifest commit precedes dropping the memtable.
pub(crate) const G2: &str = "G2";
/// Generations are committed in order.
pub(crate) const G4: &str = "G4";

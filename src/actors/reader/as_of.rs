//! Decides at which sequence number a snapshot is taken.

use crate::error::{Error, Result};
use crate::ids::Seq;

/// The sequence numbers a snapshot can be taken at: every version of a row since `oldest` is
/// held, and nothing above `newest` may be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) oldest: Seq,
    pub(crate) newest: Seq,
}

impl Held {
    /// The newest, or the one asked for if it is held (Q5).
    pub(crate) fn resolve(self, as_of: Option<Seq>) -> Result<Seq> {
        match as_of {
            None => Ok(self.newest),
            Some(asked) if self.oldest <= asked && asked <= self.newest => Ok(asked),
            Some(asked) => Err(Error::SeqNotHeld { asked, oldest: self.oldest, newest: self.newest }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q5_a_snapshot_is_taken_at_any_seq_held_and_at_no_other() {
        let held = Held { oldest: Seq::new(2), newest: Seq::new(5) };
        assert_eq!(held.resolve(None).ok(), Some(Seq::new(5)));
        for asked in 2..=5 {
            assert_eq!(held.resolve(Some(Seq::new(asked))).ok(), Some(Seq::new(asked)));
        }
        for asked in [0, 1, 6, u64::MAX] {
            let error = held.resolve(Some(Seq::new(asked))).expect_err("not held");
            assert!(matches!(error, Error::SeqNotHeld { .. }));
            assert!(error.to_string().contains("2 to 5"), "{error}");
        }
    }
}

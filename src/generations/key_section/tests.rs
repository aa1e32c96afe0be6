//! An oracle, damage, and what is read.

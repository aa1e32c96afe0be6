//! What tests are given in place of a machine: a store with faults and a clock with hands.
//!
//! Integration tests say `mod support;`. Unit tests inside the crate include the files by
//! `#[path]`.
pub mod clock;
pub mod fault_store;
pub mod shard;

//! Generations: frozen memtables on the store, with their indexes.

pub(crate) mod blocks;
pub(crate) mod key_section;
pub(crate) mod seeds;

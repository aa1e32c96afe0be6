//! Generations: frozen memtables on the store, with their indexes.
//!
//! | file | what is in it |
//! |---|---|
//! | [`meta`] | what the manifest says of a generation |
//! | [`rows_file`] | `rows.arrow`: rows as an Arrow IPC file |
//! | [`seeds`] | statistics of its zones, in its footer |
//! | [`section`] | `indexes.tw`: a section per index, and the trait by which a kind of index has one |
//! | [`keys`], [`key_section`] | the sections of primary keys and B-trees |
//! | [`blocks`] | verified, cached reads of parts of files |
//! | [`write`] | both files from a sealed memtable |
//! | [`generation`] | an open generation, as queries read it |
//!
//! `docs/format.md` says the same byte by byte.

pub(crate) mod blocks;
pub(crate) mod generation;
pub(crate) mod key_section;
pub(crate) mod keys;
pub(crate) mod meta;
pub(crate) mod rows_file;
pub(crate) mod section;
pub(crate) mod seeds;
pub(crate) mod write;

pub(crate) use blocks::{BlockCache, FileAccess, ReadStats};
pub(crate) use generation::Generation;
pub(crate) use keys::Indexes;
pub(crate) use meta::{GenerationMeta, folder};
pub(crate) use write::{Sealed, folder_epoch, folder_name, write_generation};

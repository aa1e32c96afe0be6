//! The primary key and the B-trees of generations: both are sorted keys.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;

use super::blocks::{Block, Blocks};
use super::key_section::{KeyKind, KeySection, build_keys};
use super::section::{SectionBytes, SectionKind};
use crate::error::Result;
use crate::indexes::key::KeyEncoder;
use crate::query::failed;
use crate::spec::ValidatedSpec;

/// One index over sorted keys.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    pub(crate) encoder: KeyEncoder,
    kind: KeyKind,
    name: String,
}

/// The sections a shard's generations have.
#[derive(Clone, Debug)]
pub(crate) struct Indexes {
    pub(crate) primary_key: Option<Arc<KeyIndex>>,
    /// In the order of the spec's indexes.
    pub(crate) ordered: Vec<Arc<KeyIndex>>,
}

impl Indexes {
    pub(crate) fn of(spec: &ValidatedSpec) -> Result<Self> {
        let index = |kind, name: &str, columns: &[usize]| -> Result<Arc<KeyIndex>> {
            let encoder = KeyEncoder::new(spec.storage_schema(), columns).map_err(failed)?;
            Ok(Arc::new(KeyIndex { encoder, kind, name: name.to_owned() }))
        };
        let key = spec.primary_key();
        let primary_key = (!key.is_empty()).then(|| index(KeyKind::PrimaryKey, "", key)).transpose()?;
        let ordered = spec.indexes().iter().map(|bound| index(KeyKind::Ordered, bound.spec.name(), &bound.columns));
        Ok(Indexes { primary_key, ordered: ordered.collect::<Result<_>>()? })
    }

    /// All of them, as the file has them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<KeyIndex>> {
        self.primary_key.iter().chain(&self.ordered)
    }
}

impl SectionKind for KeyIndex {
    type Opened = KeySection;

    fn kind(&self) -> &'static str {
        match self.kind {
            KeyKind::PrimaryKey => "primary_key",
            KeyKind::Ordered => "btree",
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn build(&self, rows: &[RecordBatch]) -> Result<SectionBytes, ArrowError> {
        build_keys(self.kind, &self.encoder, rows)
    }

    fn open(&self, root: Block, blocks: Arc<dyn Blocks>) -> Result<KeySection> {
        KeySection::open(root, blocks)
    }
}

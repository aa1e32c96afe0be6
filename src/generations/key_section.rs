//! stub
use super::blocks::{Block, Blocks};
use super::section::SectionBytes;
use crate::error::Result;
use crate::indexes::key::KeyEncoder;
use arrow_array::RecordBatch;
use arrow_buffer::BooleanBuffer;
use arrow_schema::ArrowError;
use std::ops::{Bound, Range};
use std::sync::Arc;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyKind {
    PrimaryKey,
    Ordered,
}
pub(crate) struct KeySection;
pub(crate) fn build_keys(
    _k: KeyKind,
    _e: &KeyEncoder,
    _b: &[RecordBatch],
    _o: u64,
) -> Result<SectionBytes, ArrowError> {
    todo!()
}
impl KeySection {
    pub(crate) fn open(_root: Block, _b: Arc<dyn Blocks>) -> Result<Self> {
        todo!()
    }
    pub(crate) fn newest(&self, _k: &[u8], _r: u32) -> Result<Option<u32>> {
        todo!()
    }
    pub(crate) fn range(&self, _b: (Bound<&[u8]>, Bound<&[u8]>), _r: u32) -> Result<Vec<u32>> {
        todo!()
    }
    pub(crate) fn estimate(&self, _b: (Bound<&[u8]>, Bound<&[u8]>)) -> u64 {
        0
    }
    pub(crate) fn ordered(
        self: &Arc<Self>,
        _b: (Bound<Vec<u8>>, Bound<Vec<u8>>),
        _rev: bool,
        _r: u32,
    ) -> impl Iterator<Item = Result<u32>> + Send + use<> {
        std::iter::empty()
    }
    pub(crate) fn live(&self, _r: Range<u32>, _e: u32) -> Result<Option<BooleanBuffer>> {
        todo!()
    }
    pub(crate) fn is_live(&self, _r: u32, _e: u32) -> Result<bool> {
        todo!()
    }
}

//! The B-tree index over columns: keys encoded from rows, bounds encoded from values.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;

use crate::config::CpuPool;
use crate::ids::Seq;
use crate::indexes::btree::{self, BTreeReader, BTreeWriter};
use crate::indexes::key::KeyEncoder;
use crate::indexes::{IndexError, IndexWriter};

/// The write half.
pub(crate) struct OrderedWriter {
    name: String,
    encoder: Arc<KeyEncoder>,
    tree: BTreeWriter,
}

/// The read half.
#[derive(Clone)]
pub(crate) struct OrderedReader {
    encoder: Arc<KeyEncoder>,
    tree: BTreeReader,
}

/// An empty index of this name over these columns of the schema.
pub(crate) fn new(
    name: &str,
    schema: &SchemaRef,
    columns: &[usize],
    first: Seq,
    pool: &Arc<dyn CpuPool>,
) -> Result<(OrderedWriter, OrderedReader), IndexError> {
    let name = format!("the index `{name}`");
    let encoder = KeyEncoder::new(schema, columns).map_err(|error| IndexError::new(&name, first, error.to_string()))?;
    let encoder = Arc::new(encoder);
    let (writer, reader) = btree::new(pool);
    let reader = OrderedReader { encoder: Arc::clone(&encoder), tree: reader };
    Ok((OrderedWriter { name, encoder, tree: writer }, reader))
}

impl IndexWriter for OrderedWriter {
    fn name(&self) -> &str {
        &self.name
    }

    fn apply(&mut self, first: Seq, batch: &RecordBatch) -> Result<(), IndexError> {
        let keys = self.encoder.encode_rows(batch);
        let keys = keys.map_err(|error| IndexError::new(&self.name, first, error.to_string()))?;
        self.tree.insert(first, &keys);
        Ok(())
    }

    fn bytes(&self) -> u64 {
        self.tree.bytes()
    }
}

impl OrderedReader {
    /// How keys and bounds are encoded.
    pub(crate) fn encoder(&self) -> &KeyEncoder {
        &self.encoder
    }

    /// The entries.
    pub(crate) fn tree(&self) -> &BTreeReader {
        &self.tree
    }
}

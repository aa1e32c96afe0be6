//! Reads.
//!
//! A query takes one [`Snapshot`] (one view, one `Seq`) and keeps it. What happens to it, and
//! where:
//!
//! ```text
//!   Expr  <-- sql            what the caller asks: filter, sql, scan
//!    |
//!   bind --> Predicate       columns are positions, literals have their types: bind, literal, decimal
//!    |
//!   plan --> Access          every row, or those an index points to; pure
//!    |
//!   walk --> Piece           candidates in `Seq` order, piece by piece, from every source
//!    |
//!   select (eval)            newest of its key, passes the filter, no tombstone (Q1)
//!    |
//!   order                    by a column: the first keys of all, or an index in its own order
//!    |
//!   run --> RowStream        offset, limit, batches; one step at a time on the CPU pool
//! ```
//!
//! [`source`] says what a query reads from; [`snapshot`] looks up keys and begins scans.
mod bind;
mod decimal;
mod eval;
mod filter;
mod literal;
mod order;
mod plan;
mod run;
mod scan;
mod select;
mod snapshot;
mod source;
mod sql;
mod stream;
mod walk;

pub(crate) use bind::Predicate;
#[cfg(test)]
pub(crate) use bind::bind;
pub(crate) use filter::CompareOp;
pub use filter::{Expr, col, lit};
pub(crate) use literal::text_array;
pub(crate) use plan::{prefix_of, text_after};
pub use scan::{Order, Scan};
pub(crate) use snapshot::Reading;
pub use snapshot::{Lookup, Lookups, Outcome, Snapshot};
pub(crate) use source::{OrderedRows, Source, View, as_slices};
pub use stream::{RowIter, RowStream};

use arrow_schema::ArrowError;

use crate::error::Error;

/// What a source could not read comes through Arrow's kernels as it is. Anything else is a kernel
/// that refused: too much text for one array, most likely.
pub(crate) fn failed(error: ArrowError) -> Error {
    let detail = error.to_string();
    match error {
        ArrowError::ExternalError(source) => source.downcast().map_or(Error::Query { detail }, |error| *error),
        _ => Error::Query { detail },
    }
}

impl From<Error> for ArrowError {
    fn from(error: Error) -> Self {
        ArrowError::ExternalError(Box::new(error))
    }
}

#[cfg(test)]
mod tests;

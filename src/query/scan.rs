//! A scan, as callers ask for it, and checked against the schema.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef, SortOptions};

use super::bind::{Predicate, bind, find_column};
use super::filter::Expr;
use super::literal::is_comparable;
use crate::error::{Error, Result};
use crate::spec::ValidatedSpec;

/// The column that [`Scan::with_seq`] adds.
pub(crate) const SEQ: &str = "_seq";

/// The order of a scan's rows. It is total and repeatable: rows that compare equal come by
/// ascending sequence number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// As the rows were written.
    #[default]
    SeqAscending,
    /// The last written first.
    SeqDescending,
    /// By the values of a column. Keys and sequence numbers of the matching rows are held in
    /// memory (with a limit, of that many rows), the rows themselves are not.
    Column {
        /// Its name.
        name: String,
        /// The greatest first.
        descending: bool,
        /// Nulls before every value, in either direction.
        nulls_first: bool,
    },
}

impl Order {
    /// By a column, the least first, nulls last.
    pub fn column(name: impl Into<String>) -> Self {
        Order::Column { name: name.into(), descending: false, nulls_first: false }
    }

    /// By a column, the greatest first, nulls last.
    pub fn column_descending(name: impl Into<String>) -> Self {
        Order::Column { name: name.into(), descending: true, nulls_first: false }
    }
}

/// What to read, from which rows, in which order.
///
/// ```
/// use tidewal::{Order, Scan, col};
///
/// let scan = Scan::new()
///     .columns(["name", "size"])
///     .filter(col("size").gt(10))
///     .order_by(Order::column_descending("size"))
///     .limit(100);
/// # let _ = scan;
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Scan {
    columns: Option<Vec<String>>,
    filter: Option<Expr>,
    limit: Option<u64>,
    offset: u64,
    order: Order,
    batch_rows: usize,
    with_seq: bool,
}

impl Default for Scan {
    fn default() -> Self {
        Scan {
            columns: None,
            filter: None,
            limit: None,
            offset: 0,
            order: Order::default(),
            batch_rows: 8192,
            with_seq: false,
        }
    }
}

impl Scan {
    /// All columns of all rows, as they were written.
    pub fn new() -> Self {
        Scan::default()
    }

    /// These columns only, in this order.
    #[must_use]
    pub fn columns<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Only rows for which this is true. A second filter narrows the first.
    #[must_use]
    pub fn filter(mut self, filter: Expr) -> Self {
        self.filter = Some(match self.filter {
            Some(first) => first.and(filter),
            None => filter,
        });
        self
    }

    /// [`Scan::filter`] as SQL text (see [`Expr::parse`]).
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that says where the text cannot be read, and what is supported there.
    pub fn filter_sql(self, sql: &str) -> Result<Self> {
        Expr::parse(sql).map(|filter| self.filter(filter))
    }

    /// At most this many rows.
    #[must_use]
    pub fn limit(mut self, rows: u64) -> Self {
        self.limit = Some(rows);
        self
    }

    /// Without the first `rows` rows of the result.
    #[must_use]
    pub fn offset(mut self, rows: u64) -> Self {
        self.offset = rows;
        self
    }

    /// The order of the rows; as they were written by default.
    #[must_use]
    pub fn order_by(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// How many rows a batch of the result has; the last has fewer. Default 8192. Fewer cost more
    /// for each row, more hold more memory.
    #[must_use]
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = rows;
        self
    }

    /// Adds a column `_seq: UInt64` with the sequence numbers of the rows.
    #[must_use]
    pub fn with_seq(mut self, with_seq: bool) -> Self {
        self.with_seq = with_seq;
        self
    }

    /// Checks everything that needs no row.
    pub(crate) fn check(&self, spec: &ValidatedSpec) -> Result<CheckedScan> {
        let schema = spec.schema();
        let output = match &self.columns {
            None => (0..schema.fields().len()).collect(),
            Some(names) => output_columns(schema, names)?,
        };
        if output.is_empty() && !self.with_seq {
            return Err(Error::invalid("the scan's columns", "none", "at least one column, or `with_seq`"));
        }
        if self.batch_rows == 0 {
            return Err(Error::invalid("the scan's `batch_rows`", "0", "at least 1"));
        }
        let order = match &self.order {
            Order::SeqAscending => CheckedOrder::Seq { descending: false },
            Order::SeqDescending => CheckedOrder::Seq { descending: true },
            Order::Column { name, descending, nulls_first } => {
                let options = SortOptions { descending: *descending, nulls_first: *nulls_first };
                CheckedOrder::Column { column: sortable_column(schema, name)?, options }
            }
        };
        let filter = self.filter.as_ref().map(|filter| bind(filter, schema)).transpose()?;
        let mut fields: Vec<FieldRef> = output.iter().filter_map(|at| schema.fields().get(*at).cloned()).collect();
        if self.with_seq {
            fields.push(Arc::new(Field::new(SEQ, DataType::UInt64, false)));
        }
        Ok(CheckedScan {
            schema: Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone())),
            output,
            filter,
            limit: self.limit.unwrap_or(u64::MAX),
            offset: self.offset,
            order,
            batch_rows: self.batch_rows,
            with_seq: self.with_seq,
        })
    }
}

fn output_columns(schema: &Schema, names: &[String]) -> Result<Vec<usize>> {
    let mut output = Vec::with_capacity(names.len());
    for name in names {
        let position = find_column(schema, name, "the scan's columns")?;
        if output.contains(&position) {
            return Err(Error::invalid("the scan's columns", format!("`{name}` twice"), "each column once"));
        }
        output.push(position);
    }
    Ok(output)
}

fn sortable_column(schema: &Schema, name: &str) -> Result<usize> {
    let column = find_column(schema, name, "the scan's order")?;
    let data_type = schema.field(column).data_type();
    if is_comparable(data_type) {
        return Ok(column);
    }
    Err(Error::invalid(
        format!("the scan's order by `{name}`"),
        format!("type {data_type}"),
        "a type with an order (numbers, booleans, text, binary, dates, times, decimals)",
    ))
}

/// A scan whose columns are positions in the caller's schema.
#[derive(Debug)]
pub(crate) struct CheckedScan {
    /// Of the result.
    pub(crate) schema: SchemaRef,
    pub(crate) output: Vec<usize>,
    pub(crate) filter: Option<Predicate>,
    pub(crate) limit: u64,
    pub(crate) offset: u64,
    pub(crate) order: CheckedOrder,
    pub(crate) batch_rows: usize,
    pub(crate) with_seq: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum CheckedOrder {
    Seq { descending: bool },
    Column { column: usize, options: SortOptions },
}

impl CheckedScan {
    /// Counts: no columns, every match.
    pub(crate) fn counting(filter: Option<&Expr>, spec: &ValidatedSpec) -> Result<CheckedScan> {
        let filter = filter.map(|filter| bind(filter, spec.schema())).transpose()?;
        Ok(CheckedScan {
            schema: Arc::new(Schema::empty()),
            output: Vec::new(),
            filter,
            limit: u64::MAX,
            offset: 0,
            order: CheckedOrder::Seq { descending: false },
            batch_rows: 8192,
            with_seq: false,
        })
    }

    /// The columns that filter and order look at.
    pub(crate) fn examined(&self) -> BTreeSet<usize> {
        let mut columns = BTreeSet::new();
        if let Some(filter) = &self.filter {
            filter.add_columns(&mut columns);
        }
        if let CheckedOrder::Column { column, .. } = self.order {
            columns.insert(column);
        }
        columns
    }
}

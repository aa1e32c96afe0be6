//! What a shard stores, as the caller says it ([`TableSpec`], [`IndexSpec`]) and as the engine
//! trusts it ([`ValidatedSpec`], which only validation can build).
//!
//! Validation needs no store. It runs before the epoch is claimed, so that an open that cannot
//! succeed touches nothing and fences nobody (O5).

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::Arc;

use arrow_row::{RowConverter, SortField};
use arrow_schema::{DataType, Field, FieldRef, Schema, SchemaRef};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The column the engine adds to say that a row deletes its key.
pub(crate) const TOMBSTONE: &str = "_tombstone";
/// Names that begin so belong to the engine.
pub(crate) const RESERVED_PREFIX: &str = "_seq";
/// The field metadata that carries a field id, as Parquet and Iceberg spell it.
pub(crate) const FIELD_ID: &str = "PARQUET:field_id";

/// The schema, primary key and indexes of a shard.
///
/// ```
/// use std::sync::Arc;
/// use arrow_schema::{DataType, Field, Schema};
/// use tidewal::{IndexSpec, TableSpec};
///
/// let schema = Schema::new(vec![
///     Field::new("id", DataType::Int64, false),
///     Field::new("title", DataType::Utf8, true),
/// ]);
/// let spec = TableSpec::new(Arc::new(schema))
///     .primary_key(["id"])
///     .index(IndexSpec::btree("by_title", ["title"]));
/// assert!(spec.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpec {
    schema: SchemaRef,
    primary_key: Vec<String>,
    indexes: Vec<IndexSpec>,
}

impl TableSpec {
    /// Append-only rows of this schema, without indexes.
    pub fn new(schema: SchemaRef) -> Self {
        TableSpec { schema, primary_key: Vec::new(), indexes: Vec::new() }
    }

    /// The columns that identify a row, in order. A later row of the same key replaces the
    /// earlier one, and keys can be deleted.
    #[must_use]
    pub fn primary_key<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.primary_key = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an index.
    #[must_use]
    pub fn index(mut self, index: IndexSpec) -> Self {
        self.indexes.push(index);
        self
    }

    /// The caller's schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The columns of the primary key; empty for an append-only shard.
    pub fn primary_key_columns(&self) -> &[String] {
        &self.primary_key
    }

    /// The indexes, in the order they were added.
    pub fn indexes(&self) -> &[IndexSpec] {
        &self.indexes
    }

    /// Checks everything that needs no store (O1 to O3).
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that names the column or index, what was found, and what would do.
    pub fn validate(&self) -> Result<ValidatedSpec> {
        check_columns(&self.schema)?;
        let primary_key = check_primary_key(self)?;
        let indexes = check_indexes(self)?;
        Ok(ValidatedSpec {
            storage_schema: Arc::new(storage_schema(&self.schema, &primary_key)),
            spec: self.clone(),
            primary_key,
            indexes,
        })
    }
}

/// One index of a shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexSpec {
    name: String,
    columns: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    field_id: Option<i32>,
    kind: IndexKind,
}

/// What an index can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IndexKind {
    /// Equality, ranges and prefixes over sortable columns.
    Btree,
}

impl IndexSpec {
    /// An ordered index over one column, or over several as one composite key.
    pub fn btree<S: Into<String>>(name: impl Into<String>, columns: impl IntoIterator<Item = S>) -> Self {
        IndexSpec {
            name: name.into(),
            columns: columns.into_iter().map(Into::into).collect(),
            field_id: None,
            kind: IndexKind::Btree,
        }
    }

    /// Says which field id the (only) column must carry in its `PARQUET:field_id` metadata, so
    /// that an index is never bound to another column of the same name.
    #[must_use]
    pub fn field_id(mut self, field_id: i32) -> Self {
        self.field_id = Some(field_id);
        self
    }

    /// Its name, unique in the shard.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The columns it covers.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// What it can answer.
    pub fn kind(&self) -> IndexKind {
        self.kind
    }
}

/// A spec that holds O1 to O3. Only [`TableSpec::validate`] builds one.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedSpec {
    spec: TableSpec,
    storage_schema: SchemaRef,
    primary_key: Vec<usize>,
    indexes: Vec<BoundIndex>,
}

/// An index whose columns are positions in the schema.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct BoundIndex {
    pub(crate) spec: IndexSpec,
    pub(crate) columns: Vec<usize>,
}

impl ValidatedSpec {
    /// What was validated.
    pub fn table(&self) -> &TableSpec {
        &self.spec
    }

    /// The caller's schema.
    pub fn schema(&self) -> &SchemaRef {
        &self.spec.schema
    }

    /// What the log stores: the caller's columns, in the same places and all but the key nullable, then
    /// `_tombstone: Boolean`.
    pub fn storage_schema(&self) -> &SchemaRef {
        &self.storage_schema
    }

    /// The positions of the primary key's columns; empty for an append-only shard.
    pub(crate) fn primary_key(&self) -> &[usize] {
        &self.primary_key
    }

    /// The indexes, bound to positions.
    pub(crate) fn indexes(&self) -> &[BoundIndex] {
        &self.indexes
    }

    /// Where the storage schema keeps `_tombstone`: behind the caller's columns.
    pub(crate) fn tombstone_column(&self) -> usize {
        self.spec.schema.fields().len()
    }

    /// Why a shard with the stored spec cannot go on with this one; `None` if it can: columns may be
    /// added where they are nullable, and renamed where they have a field id.
    fn refused_change(&self, stored: &ValidatedSpec) -> Option<String> {
        for old in stored.schema().fields() {
            let Some(new) = position_of(old, self.schema()).and_then(|at| self.schema().fields().get(at)) else {
                return Some(format!("column `{}` is gone", old.name()));
            };
            if new.data_type() != old.data_type() || new.is_nullable() != old.is_nullable() {
                return Some(format!("column `{}` has another type", new.name()));
            }
        }
        let added = self.schema().fields().iter().filter(|new| position_of(new, stored.schema()).is_none());
        if let Some(new) = added.into_iter().find(|new| !new.is_nullable()) {
            return Some(format!(
                "the new column `{}` is not nullable, and rows there are have no value for it",
                new.name()
            ));
        }
        // Where each of these columns was.
        let were = |columns: &[usize]| -> Vec<Option<usize>> {
            columns.iter().map(|at| position_of(self.schema().field(*at), stored.schema())).collect()
        };
        let are = |columns: &[usize]| -> Vec<Option<usize>> { columns.iter().copied().map(Some).collect() };
        if were(&self.primary_key) != are(&stored.primary_key) {
            return Some("the primary key is another".to_owned());
        }
        let same_indexes = self.indexes.len() == stored.indexes.len()
            && self.indexes.iter().zip(&stored.indexes).all(|(new, old)| {
                new.spec.name == old.spec.name
                    && new.spec.kind == old.spec.kind
                    && were(&new.columns) == are(&old.columns)
            });
        (!same_indexes).then(|| "the indexes are others".to_owned())
    }

    /// Refuses a stored spec that says something else (O8), but for what may change.
    pub(crate) fn check_agrees_with_stored(&self, stored: &ValidatedSpec) -> Result<()> {
        if self.spec == stored.spec {
            return Ok(());
        }
        let Some(reason) = self.refused_change(stored) else { return Ok(()) };
        Err(Error::invalid(
            "the table spec",
            format!("{} given to open", describe(&self.spec)),
            format!(
                "{} as the shard has it; {reason}. A nullable column may be added, and one with a field id renamed; \
                 open it without a spec to use the stored one",
                describe(&stored.spec)
            ),
        ))
    }
}

/// A spec in one line, for people who compare two.
fn describe(spec: &TableSpec) -> String {
    let mut text = String::from("{");
    for field in spec.schema.fields() {
        let null = if field.is_nullable() { "" } else { " not null" };
        let id = field.metadata().get(FIELD_ID).map(|id| format!(" field id {id}")).unwrap_or_default();
        // Writing to a String cannot fail.
        let _ = write!(text, "{}: {}{null}{id}, ", field.name(), field.data_type());
    }
    let _ = write!(text, "primary key ({})", spec.primary_key.join(", "));
    for index in &spec.indexes {
        let _ = write!(text, ", {:?} index `{}` on ({})", index.kind, index.name, index.columns.join(", "));
    }
    text.push('}');
    text
}

fn check_columns(schema: &Schema) -> Result<()> {
    if schema.fields().is_empty() {
        return Err(Error::invalid("the schema", "no columns", "at least one column"));
    }
    let mut seen = HashSet::new();
    for field in schema.fields() {
        let name = field.name();
        if name == TOMBSTONE || name.starts_with(RESERVED_PREFIX) {
            return Err(Error::invalid(
                format!("column `{name}`"),
                "a name that belongs to the engine",
                format!("a name other than `{TOMBSTONE}` that does not begin with `{RESERVED_PREFIX}`"),
            ));
        }
        if !seen.insert(name) {
            return Err(Error::invalid(format!("column `{name}`"), "the same name twice", "unique column names"));
        }
        if is_zero_wide(field.data_type()) {
            // Arrow's kernels lose the number of rows of such arrays, and scans and lookups fail.
            return Err(Error::invalid(
                format!("column `{name}`"),
                format!("type {}", field.data_type()),
                "a type whose values are at least one byte or item wide",
            ));
        }
    }
    Ok(())
}

fn is_zero_wide(data_type: &DataType) -> bool {
    use DataType::*;
    match data_type {
        FixedSizeBinary(0) | FixedSizeList(_, 0) => true,
        List(of) | LargeList(of) | ListView(of) | LargeListView(of) | FixedSizeList(of, _) | Map(of, _) => {
            is_zero_wide(of.data_type())
        }
        Struct(fields) => fields.iter().any(|field| is_zero_wide(field.data_type())),
        Union(fields, _) => fields.iter().any(|(_, field)| is_zero_wide(field.data_type())),
        Dictionary(_, values) => is_zero_wide(values),
        RunEndEncoded(_, values) => is_zero_wide(values.data_type()),
        _ => false,
    }
}

fn check_primary_key(spec: &TableSpec) -> Result<Vec<usize>> {
    let mut positions = Vec::with_capacity(spec.primary_key.len());
    for name in &spec.primary_key {
        let subject = || format!("primary key column `{name}`");
        let (position, field) = find(&spec.schema, name, subject)?;
        if positions.contains(&position) {
            return Err(Error::invalid(subject(), "the same column twice", "each column once"));
        }
        if field.is_nullable() {
            return Err(Error::invalid(
                subject(),
                format!("nullable {}", field.data_type()),
                "a column declared not nullable",
            ));
        }
        check_sortable(field.data_type(), subject)?;
        positions.push(position);
    }
    Ok(positions)
}

fn check_indexes(spec: &TableSpec) -> Result<Vec<BoundIndex>> {
    let mut names = HashSet::new();
    let mut bound = Vec::with_capacity(spec.indexes.len());
    for index in &spec.indexes {
        let subject = || format!("index `{}`", index.name);
        if index.name.is_empty() {
            return Err(Error::invalid("index ``", "an empty name", "a name"));
        }
        if !names.insert(&index.name) {
            return Err(Error::invalid(subject(), "the same name twice", "unique index names"));
        }
        if index.columns.is_empty() {
            return Err(Error::invalid(subject(), "no columns", "at least one column"));
        }
        let mut columns = Vec::with_capacity(index.columns.len());
        for name in &index.columns {
            let subject = || format!("index `{}` on column `{name}`", index.name);
            let (position, field) = find(&spec.schema, name, subject)?;
            if columns.contains(&position) {
                return Err(Error::invalid(subject(), "the same column twice", "each column once"));
            }
            check_field_id(index, field, subject)?;
            match index.kind {
                IndexKind::Btree => check_sortable(field.data_type(), subject)?,
            }
            columns.push(position);
        }
        bound.push(BoundIndex { spec: index.clone(), columns });
    }
    Ok(bound)
}

/// An index that names a field id is bound to that field or to nothing (O3, B27).
fn check_field_id(index: &IndexSpec, field: &Field, subject: impl Fn() -> String) -> Result<()> {
    let Some(wanted) = index.field_id else { return Ok(()) };
    if index.columns.len() != 1 {
        return Err(Error::invalid(
            subject(),
            "a field id beside several columns",
            "one column where a field id is given",
        ));
    }
    match field.metadata().get(FIELD_ID) {
        Some(found) if *found == wanted.to_string() => Ok(()),
        Some(found) => Err(Error::invalid(subject(), format!("field id {found}"), format!("field id {wanted}"))),
        None => Err(Error::invalid(
            subject(),
            "a column without a field id",
            format!("`{FIELD_ID}` = {wanted} in the column's metadata"),
        )),
    }
}

fn check_sortable(data_type: &DataType, subject: impl Fn() -> String) -> Result<()> {
    // Dictionaries sort by their values; the row format encodes those.
    let sortable = !data_type.is_nested() && RowConverter::supports_fields(&[SortField::new(data_type.clone())]);
    if sortable {
        return Ok(());
    }
    Err(Error::invalid(
        subject(),
        format!("type {data_type}"),
        "a type with an order (numbers, booleans, text, binary, dates, times, decimals), not a nested one",
    ))
}

fn find<'a>(schema: &'a Schema, name: &str, subject: impl Fn() -> String) -> Result<(usize, &'a FieldRef)> {
    schema.fields().find(name).ok_or_else(|| {
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        Error::invalid(subject(), "no such column", format!("one of {}", names.join(", ")))
    })
}

/// Where a column lies in another schema: by field id where both have one, by name where neither
/// has. A column of the same name with another id is another column.
pub(crate) fn position_of(field: &Field, schema: &Schema) -> Option<usize> {
    let id = |field: &Field| field.metadata().get(FIELD_ID).cloned();
    let wanted = id(field);
    schema.fields().iter().position(|other| match (&wanted, id(other)) {
        (Some(wanted), Some(found)) => *wanted == found,
        (None, None) => field.name() == other.name(),
        _ => false,
    })
}

fn storage_schema(schema: &Schema, primary_key: &[usize]) -> Schema {
    let mut fields: Vec<FieldRef> = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(position, field)| {
            let nullable = !primary_key.contains(&position);
            Arc::new(field.as_ref().clone().with_nullable(nullable))
        })
        .collect();
    fields.push(Arc::new(Field::new(TOMBSTONE, DataType::Boolean, false)));
    Schema::new_with_metadata(fields, schema.metadata().clone())
}

#[cfg(test)]
mod tests;

//! Statistics of zones of rows, computed as the rows pass by and planted in the file with them.
//!
//! A zone is [`ZONE_ROWS`] neighbouring rows. For each scalar, text and binary column and each zone
//! there is the least and the greatest value, and how many rows are null or not a number. A filter
//! skips the zones in which no row can pass. Statistics that are missing or damaged cost reading,
//! and never an answer.
//!
//! In the metadata of the file's footer a column's statistics lie under `tidewal.seed.id:N` if it
//! has the field id N, otherwise under `tidewal.seed.name:COLUMN`, as a JSON object:
//!
//! | member | |
//! |---|---|
//! | `zone_rows` | rows of a zone; the last may be short |
//! | `rows` | rows of the file |
//! | `crc32c` | of the stream's bytes |
//! | `stream` | an Arrow IPC stream in base64: one batch, one row for each zone |
//!
//! The batch has the columns `min` and `max` (of the column's type; of a dictionary's values; null where
//! the zone has no value), `min_exact` and `max_exact`, `null_count` and `nan_count`. Values are ordered as
//! Arrow's kernels order them: -0.0 below 0.0, and NaN at the ends, so a zone with a NaN has it as a bound.
//! Texts and bytes longer than 64 bytes are cut: `min` to a prefix, `max` to the first value behind
//! everything that begins like it, or to null, if there is none.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type, UInt32Type};
use arrow_array::{Array, ArrayRef, BinaryArray, BooleanArray, RecordBatch, Scalar, UInt32Array, new_null_array};
use arrow_cast::cast;
use arrow_ipc::reader::StreamReader;
use arrow_ipc::writer::StreamWriter;
use arrow_ord::cmp;
use arrow_ord::ord::make_comparator;
use arrow_schema::{ArrowError, DataType, Field, Schema, SortOptions};
use arrow_select::concat::concat;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};

use crate::query::{CompareOp, Predicate, prefix_of, text_after, text_array};
use crate::spec::FIELD_ID;

/// The rows of a zone.
pub(crate) const ZONE_ROWS: usize = 8192;
/// Longer bounds of texts and bytes are cut.
const BOUND_BYTES: usize = 64;
/// An `IN` list longer than this prunes nothing: one comparison for each value would cost more.
const LISTED_VALUES_MAX: usize = 1024;

#[derive(Serialize, Deserialize)]
struct Stored {
    zone_rows: usize,
    rows: u64,
    crc32c: u32,
    stream: String,
}

/// Where a column's statistics lie.
fn key_of(field: &Field) -> String {
    match field.metadata().get(FIELD_ID) {
        Some(id) => format!("tidewal.seed.id:{id}"),
        None => format!("tidewal.seed.name:{}", field.name()),
    }
}

/// What the bounds of a column are; `None` for a column without.
fn bound_type(data_type: &DataType) -> Option<&DataType> {
    match data_type {
        DataType::Dictionary(_, values) => bound_type(values),
        DataType::Null | DataType::RunEndEncoded(..) => None,
        nested if nested.is_nested() => None,
        scalar => Some(scalar),
    }
}

/// Gathers the statistics of all columns. Batches do not cross zones.
pub(crate) struct SeedWriter {
    zone_rows: usize,
    rows: u64,
    columns: Vec<Option<ColumnWriter>>,
}

struct ColumnWriter {
    key: String,
    data_type: DataType,
    zones: Vec<Zone>,
}

/// One zone of one column; its bounds are arrays of one row.
struct Zone {
    bounds: Option<(ArrayRef, ArrayRef)>,
    nulls: u32,
    nans: u32,
}

impl SeedWriter {
    /// For batches of this schema.
    pub(crate) fn new(schema: &Schema) -> Self {
        Self::with_zones(schema, ZONE_ROWS)
    }

    fn with_zones(schema: &Schema, zone_rows: usize) -> Self {
        let column = |field: &Arc<Field>| {
            let data_type = bound_type(field.data_type())?.clone();
            Some(ColumnWriter { key: key_of(field), data_type, zones: Vec::new() })
        };
        SeedWriter { zone_rows, rows: 0, columns: schema.fields().iter().map(column).collect() }
    }

    /// The next rows.
    pub(crate) fn observe(&mut self, batch: &RecordBatch) -> Result<(), ArrowError> {
        let is_new = self.rows.is_multiple_of(self.zone_rows as u64);
        for (column, writer) in batch.columns().iter().zip(&mut self.columns) {
            if let Some(writer) = writer {
                writer.observe(column, is_new)?;
            }
        }
        self.rows += batch.num_rows() as u64;
        Ok(())
    }

    /// The entries of the footer's metadata.
    pub(crate) fn finish(self) -> Result<Vec<(String, String)>, ArrowError> {
        let (zone_rows, rows) = (self.zone_rows, self.rows);
        let stored = self.columns.into_iter().flatten().map(|column| {
            let key = column.key.clone();
            let bytes = column.stream()?;
            let stored = Stored { zone_rows, rows, crc32c: crc32c::crc32c(&bytes), stream: BASE64.encode(bytes) };
            let json = serde_json::to_string(&stored).map_err(|error| ArrowError::JsonError(error.to_string()))?;
            Ok((key, json))
        });
        stored.collect()
    }
}

impl ColumnWriter {
    fn observe(&mut self, column: &ArrayRef, is_new: bool) -> Result<(), ArrowError> {
        let column = match column.data_type() {
            DataType::Dictionary(..) => cast(column, &self.data_type)?,
            _ => Arc::clone(column),
        };
        let (nulls, nans) = (column.null_count() as u32, nan_count(&column));
        let bounds = bounds_of(&column)?;
        match self.zones.last_mut().filter(|_| !is_new) {
            None => self.zones.push(Zone { bounds, nulls, nans }),
            Some(zone) => {
                zone.nulls += nulls;
                zone.nans += nans;
                zone.bounds = match (zone.bounds.take(), bounds) {
                    (Some((min, max)), Some((other_min, other_max))) => {
                        let all = concat(&[&min, &max, &other_min, &other_max])?;
                        bounds_of(&all)?
                    }
                    (bounds, others) => bounds.or(others),
                };
            }
        }
        Ok(())
    }

    fn stream(&self) -> Result<Vec<u8>, ArrowError> {
        let none = new_null_array(&self.data_type, 1);
        let (mut mins, mut maxs) = (Vec::new(), Vec::new());
        let (mut mins_exact, mut maxs_exact) = (Vec::new(), Vec::new());
        for zone in &self.zones {
            let (min, max) = zone.bounds.clone().unwrap_or_else(|| (Arc::clone(&none), Arc::clone(&none)));
            let (cut_min, cut_max) = (cut(&min, false)?, cut(&max, true)?);
            mins_exact.push(cut_min.is_none());
            maxs_exact.push(cut_max.is_none());
            mins.push(cut_min.unwrap_or(min));
            maxs.push(cut_max.unwrap_or(max));
        }
        let joined = |arrays: &[ArrayRef]| match arrays {
            [] => Ok(new_null_array(&self.data_type, 0)),
            arrays => concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<&dyn Array>>()),
        };
        let columns: [(&str, ArrayRef); 6] = [
            ("min", joined(&mins)?),
            ("max", joined(&maxs)?),
            ("min_exact", Arc::new(BooleanArray::from(mins_exact))),
            ("max_exact", Arc::new(BooleanArray::from(maxs_exact))),
            ("null_count", Arc::new(UInt32Array::from_iter_values(self.zones.iter().map(|zone| zone.nulls)))),
            ("nan_count", Arc::new(UInt32Array::from_iter_values(self.zones.iter().map(|zone| zone.nans)))),
        ];
        let batch = RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))?;
        let mut writer = StreamWriter::try_new(Vec::new(), &batch.schema())?;
        writer.write(&batch)?;
        writer.into_inner()
    }
}

/// The least and the greatest value, as arrays of one row; `None` where there is no value.
fn bounds_of(column: &ArrayRef) -> Result<Option<(ArrayRef, ArrayRef)>, ArrowError> {
    let compare = make_comparator(column, column, SortOptions::default())?;
    let mut bounds: Option<(usize, usize)> = None;
    for row in (0..column.len()).filter(|row| column.is_valid(*row)) {
        bounds = Some(match bounds {
            None => (row, row),
            Some((min, max)) if compare(row, min) == Ordering::Less => (row, max),
            Some((min, max)) if compare(row, max) == Ordering::Greater => (min, row),
            Some(bounds) => bounds,
        });
    }
    // Copied: a slice would keep the whole batch in memory until the file is finished.
    let own = |row: usize| concat(&[column.slice(row, 1).as_ref(), column.slice(row, 0).as_ref()]);
    bounds.map(|(min, max)| Ok((own(min)?, own(max)?))).transpose()
}

fn nan_count(column: &ArrayRef) -> u32 {
    let count = match column.data_type() {
        DataType::Float16 => {
            column.as_primitive::<Float16Type>().iter().flatten().filter(|value| value.is_nan()).count()
        }
        DataType::Float32 => {
            column.as_primitive::<Float32Type>().iter().flatten().filter(|value| value.is_nan()).count()
        }
        DataType::Float64 => {
            column.as_primitive::<Float64Type>().iter().flatten().filter(|value| value.is_nan()).count()
        }
        _ => 0,
    };
    count as u32
}

/// A bound that is too long as one that is not: at or below the least value, or above the greatest.
/// `None` for one that need not be cut.
fn cut(bound: &ArrayRef, upwards: bool) -> Result<Option<ArrayRef>, ArrowError> {
    let data_type = bound.data_type();
    match data_type {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let text = cast(bound, &DataType::Utf8)?;
            let text = text.as_string::<i32>();
            if text.is_null(0) || text.value(0).len() <= BOUND_BYTES {
                return Ok(None);
            }
            let text = text.value(0);
            let end = (0..=BOUND_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
            let prefix = text.get(..end).unwrap_or_default();
            let bound = if upwards { text_after(prefix) } else { Some(prefix.to_owned()) };
            Ok(Some(bound.map_or_else(|| new_null_array(data_type, 1), |bound| text_array(&bound, data_type))))
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let bytes = cast(bound, &DataType::Binary)?;
            let bytes = bytes.as_binary::<i32>();
            if bytes.is_null(0) || bytes.value(0).len() <= BOUND_BYTES {
                return Ok(None);
            }
            let prefix = bytes.value(0).get(..BOUND_BYTES).unwrap_or_default().to_vec();
            let bound = if upwards { crate::indexes::key::successor(prefix) } else { Some(prefix) };
            let bound: ArrayRef = Arc::new(BinaryArray::from_opt_vec(vec![bound.as_deref()]));
            cast(&bound, data_type).map(Some)
        }
        _ => Ok(None),
    }
}

/// The statistics of one file, as filters ask them.
#[derive(Debug)]
pub(crate) struct Seeds {
    zones: usize,
    /// In the order of the schema's columns.
    columns: Vec<Option<ColumnSeed>>,
    damaged: usize,
}

#[derive(Debug)]
struct ColumnSeed {
    min: ArrayRef,
    max: ArrayRef,
    /// Whether each zone has a value, and whether it has a null.
    has_values: Vec<bool>,
    has_nulls: Vec<bool>,
    /// Whether both bounds of the zone are values in it.
    exact: Vec<bool>,
}

/// For each zone whether a condition may hold for a row of it, and whether it may fail for one.
struct May {
    hold: Vec<bool>,
    fail: Vec<bool>,
}

impl Seeds {
    /// Reads what the footer's metadata has for these columns. It never fails. A column that the file
    /// does not have needs none.
    pub(crate) fn read(
        schema: &Schema,
        metadata: &HashMap<String, String>,
        rows: u64,
        is_stored: impl Fn(usize) -> bool,
    ) -> Self {
        Self::with_zones(schema, metadata, rows, ZONE_ROWS, is_stored)
    }

    fn with_zones(
        schema: &Schema,
        metadata: &HashMap<String, String>,
        rows: u64,
        zone_rows: usize,
        is_stored: impl Fn(usize) -> bool,
    ) -> Self {
        let zones = usize::try_from(rows.div_ceil(zone_rows as u64)).unwrap_or(usize::MAX);
        let mut damaged = 0;
        let columns = schema.fields().iter().enumerate().map(|(at, field)| {
            let data_type = bound_type(field.data_type()).filter(|_| is_stored(at))?;
            let stored = metadata.get(&key_of(field));
            let column = stored.and_then(|json| ColumnSeed::read(json, data_type, rows, zone_rows, zones));
            damaged += usize::from(column.is_none());
            column
        });
        let columns = columns.collect();
        Seeds { zones, columns, damaged }
    }

    /// The columns that should have statistics and have none that can be used.
    pub(crate) fn damaged(&self) -> usize {
        self.damaged
    }

    /// For each zone whether it may hold a row for which the filter is true.
    pub(crate) fn zones(&self, filter: &Predicate) -> Vec<bool> {
        self.ask(filter).hold
    }

    fn unknown(&self) -> May {
        May { hold: vec![true; self.zones], fail: vec![true; self.zones] }
    }

    // Recursion is bounded by the depth of the expression the predicate was bound from.
    fn ask(&self, filter: &Predicate) -> May {
        let all = |terms: &[Predicate], of: fn(May) -> Vec<bool>| -> Vec<Vec<bool>> {
            terms.iter().map(|term| of(self.ask(term))).collect()
        };
        let join = |masks: Vec<Vec<bool>>, every: bool| -> Vec<bool> {
            let zone = |at: usize| {
                let mut masks = masks.iter().map(|mask| mask.get(at).copied().unwrap_or(true));
                if every { masks.all(|may| may) } else { masks.any(|may| may) }
            };
            (0..self.zones).map(zone).collect()
        };
        match filter {
            Predicate::Constant(value) => {
                May { hold: vec![*value == Some(true); self.zones], fail: vec![*value == Some(false); self.zones] }
            }
            Predicate::And(terms) => {
                May { hold: join(all(terms, |may| may.hold), true), fail: join(all(terms, |may| may.fail), false) }
            }
            Predicate::Or(terms) => {
                May { hold: join(all(terms, |may| may.hold), false), fail: join(all(terms, |may| may.fail), true) }
            }
            Predicate::Not(inner) => {
                let May { hold, fail } = self.ask(inner);
                May { hold: fail, fail: hold }
            }
            Predicate::Columns { .. } => self.unknown(),
            Predicate::Known { column, .. }
            | Predicate::Compare { column, .. }
            | Predicate::In { column, .. }
            | Predicate::IsNull { column }
            | Predicate::Text { column, .. } => {
                let seed = self.columns.get(*column).and_then(Option::as_ref);
                // A kernel that does not know the types has nothing to say.
                seed.and_then(|seed| seed.ask(filter).ok()).unwrap_or_else(|| self.unknown())
            }
        }
    }
}

impl ColumnSeed {
    fn read(json: &str, data_type: &DataType, rows: u64, zone_rows: usize, zones: usize) -> Option<Self> {
        let stored: Stored = serde_json::from_str(json).ok()?;
        if stored.zone_rows != zone_rows || stored.rows != rows {
            return None;
        }
        let bytes = BASE64.decode(stored.stream).ok()?;
        if crc32c::crc32c(&bytes) != stored.crc32c {
            return None;
        }
        // The checksum holds; a decoder that panics all the same must not take the process down.
        let read = || StreamReader::try_new(bytes.as_slice(), None).ok()?.next()?.ok();
        let batch = catch_unwind(AssertUnwindSafe(read)).ok()??;
        if batch.num_rows() != zones {
            return None;
        }
        let column = |name: &str| batch.column_by_name(name).cloned();
        let (min, max) = (column("min")?, column("max")?);
        if min.data_type() != data_type || max.data_type() != data_type {
            return None;
        }
        let (min_exact, max_exact) = (column("min_exact")?, column("max_exact")?);
        let (min_exact, max_exact) = (min_exact.as_boolean_opt()?.clone(), max_exact.as_boolean_opt()?.clone());
        let nulls = column("null_count")?;
        let nulls = nulls.as_primitive_opt::<UInt32Type>()?.clone();
        let zone_length = |at: usize| (rows - (at * zone_rows) as u64).min(zone_rows as u64);
        Some(ColumnSeed {
            has_values: (0..zones).map(|at| u64::from(nulls.value(at)) < zone_length(at)).collect(),
            has_nulls: (0..zones).map(|at| nulls.value(at) > 0).collect(),
            exact: (0..zones).map(|at| min_exact.value(at) && max_exact.value(at)).collect(),
            min,
            max,
        })
    }

    fn ask(&self, condition: &Predicate) -> Result<May, ArrowError> {
        let values = || self.has_values.clone();
        Ok(match condition {
            Predicate::Known { outcome, .. } => {
                let never = vec![false; self.has_values.len()];
                if *outcome { May { hold: values(), fail: never } } else { May { hold: never, fail: values() } }
            }
            Predicate::IsNull { .. } => May { hold: self.has_nulls.clone(), fail: values() },
            Predicate::Compare { op, value, .. } => {
                May { hold: self.compare(*op, value)?, fail: self.compare(negated(*op), value)? }
            }
            Predicate::In { set, .. } if set.values.len() <= LISTED_VALUES_MAX => {
                let mut hold = vec![false; self.has_values.len()];
                for at in 0..set.values.len() {
                    let may = self.compare(CompareOp::Eq, &set.values.slice(at, 1))?;
                    hold.iter_mut().zip(may).for_each(|(hold, may)| *hold |= may);
                }
                May { hold, fail: values() }
            }
            Predicate::Text { test, pattern, .. } => {
                let Some(prefix) = prefix_of(*test, pattern) else { return Ok(May { hold: values(), fail: values() }) };
                let text = |text: &str| text_array(text, pattern.data_type());
                let mut hold = self.compare(CompareOp::GtEq, &text(&prefix))?;
                if let Some(after) = text_after(&prefix) {
                    let before = self.compare(CompareOp::Lt, &text(&after))?;
                    hold.iter_mut().zip(before).for_each(|(hold, may)| *hold &= may);
                }
                May { hold, fail: values() }
            }
            _ => May { hold: values(), fail: values() },
        })
    }

    /// For each zone whether a value of it may compare so with `value` (an array of one row).
    fn compare(&self, op: CompareOp, value: &ArrayRef) -> Result<Vec<bool>, ArrowError> {
        let value = Scalar::new(Arc::clone(value));
        // A bound that is null stands for none: nothing is below it, or everything.
        let with =
            |compared: BooleanArray| -> Vec<bool> { compared.iter().map(|holds| holds.unwrap_or(true)).collect() };
        let both = |a: Vec<bool>, b: Vec<bool>| -> Vec<bool> { a.into_iter().zip(b).map(|(a, b)| a && b).collect() };
        let may = match op {
            CompareOp::Eq => both(with(cmp::lt_eq(&self.min, &value)?), with(cmp::gt_eq(&self.max, &value)?)),
            CompareOp::NotEq => {
                let equal = both(with(cmp::eq(&self.min, &value)?), with(cmp::eq(&self.max, &value)?));
                let bounded = (0..self.max.len()).map(|at| self.min.is_valid(at) && self.max.is_valid(at));
                let same = both(equal, self.exact.clone()).into_iter().zip(bounded);
                same.map(|(same, bounded)| !(same && bounded)).collect()
            }
            CompareOp::Lt => with(cmp::lt(&self.min, &value)?),
            CompareOp::LtEq => with(cmp::lt_eq(&self.min, &value)?),
            CompareOp::Gt => with(cmp::gt(&self.max, &value)?),
            CompareOp::GtEq => with(cmp::gt_eq(&self.max, &value)?),
        };
        Ok(both(may, self.has_values.clone()))
    }
}

fn negated(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Eq => CompareOp::NotEq,
        CompareOp::NotEq => CompareOp::Eq,
        CompareOp::Lt => CompareOp::GtEq,
        CompareOp::LtEq => CompareOp::Gt,
        CompareOp::Gt => CompareOp::LtEq,
        CompareOp::GtEq => CompareOp::Lt,
    }
}

#[cfg(test)]
mod tests;

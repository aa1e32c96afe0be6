//! Batches of a file brought into the shard's schema: columns by name, types exactly or not at all.

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, RecordBatch, new_null_array};
use arrow_cast::{CastOptions, can_cast_types, cast_with_options};
use arrow_schema::{DataType, Schema, SchemaRef};

use super::trouble::Trouble;

/// How the columns of one file become the shard's.
#[derive(Debug)]
pub(super) struct Fit {
    target: SchemaRef,
    /// For each column of the target, the file's; `None` where the file has none.
    columns: Vec<Option<usize>>,
}

/// A row that does not fit.
#[derive(Debug)]
pub(super) struct Misfit {
    /// Its place in the batch.
    pub(super) row: usize,
    pub(super) reason: String,
    pub(super) advice: String,
}

impl Misfit {
    /// With its place in the file.
    pub(super) fn at(&self, place: String) -> Trouble {
        Trouble::at(place, &self.reason, &self.advice)
    }
}

impl Fit {
    /// Matches columns by name. What can never fit is refused before a row is read.
    pub(super) fn new(file: &Schema, target: &SchemaRef, ignore_extra: bool) -> Result<Self, Trouble> {
        if !ignore_extra {
            refuse_extra(file.fields().iter().map(|field| field.name().as_str()), target)?;
        }
        let mut columns = Vec::with_capacity(target.fields().len());
        for field in target.fields() {
            let Ok(place) = file.index_of(field.name()) else {
                if !field.is_nullable() {
                    return Err(absent(field.name(), file));
                }
                columns.push(None);
                continue;
            };
            let found = file.field(place).data_type();
            if !is_convertible(found, field.data_type()) {
                return Err(Trouble::whole(
                    format!("column `{}` is {found}, and the shard holds {}", field.name(), field.data_type()),
                    "convert the column, or write to another shard",
                ));
            }
            columns.push(Some(place));
        }
        Ok(Fit { target: Arc::clone(target), columns })
    }

    /// Brings rows into the shard's schema.
    pub(super) fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, Misfit> {
        let rows = batch.num_rows();
        let mut columns = Vec::with_capacity(self.columns.len());
        let mut misfit: Option<Misfit> = None;
        for (field, place) in self.target.fields().iter().zip(&self.columns) {
            let column = match place {
                None => new_null_array(field.data_type(), rows),
                Some(place) => match convert(batch.column(*place), field.data_type(), field.name()) {
                    Ok(column) => column,
                    Err(found) => {
                        keep_first(&mut misfit, found);
                        continue;
                    }
                },
            };
            if !field.is_nullable()
                && let Some(row) = first_null(&column)
            {
                let reason = format!("column `{}` is null or absent, and must not be", field.name());
                let advice =
                    "fill it in; columns of the key cannot be null, others can if the shard was created so".to_owned();
                keep_first(&mut misfit, Misfit { row, reason, advice });
            }
            columns.push(column);
        }
        match misfit {
            Some(misfit) => Err(misfit),
            None => RecordBatch::try_new(Arc::clone(&self.target), columns).map_err(|error| Misfit {
                row: 0,
                reason: error.to_string(),
                advice: String::new(),
            }),
        }
    }
}

/// Dropping a column in silence loses data.
pub(super) fn refuse_extra<'a>(names: impl Iterator<Item = &'a str>, target: &Schema) -> Result<(), Trouble> {
    let extra: Vec<String> =
        names.filter(|name| target.index_of(name).is_err()).map(|name| format!("`{name}`")).collect();
    if extra.is_empty() {
        return Ok(());
    }
    let known: Vec<&str> = target.fields().iter().map(|field| field.name().as_str()).collect();
    Err(Trouble::whole(
        format!("the shard has no column {}; it has {}", shortened(&extra), shortened(&known)),
        "--ignore-extra-columns leaves them out",
    ))
}

pub(super) fn absent(name: &str, file: &Schema) -> Trouble {
    let names: Vec<&str> = file.fields().iter().map(|field| field.name().as_str()).collect();
    Trouble::whole(
        format!("there is no column `{name}`, which must not be null; the file has {}", shortened(&names)),
        "check the header and the spelling",
    )
}

/// A list for people: a thousand names help nobody.
pub(super) fn shortened<S: AsRef<str>>(names: &[S]) -> String {
    let shown: Vec<&str> = names.iter().take(20).map(AsRef::as_ref).collect();
    let more = names.len() - shown.len();
    if more == 0 { shown.join(", ") } else { format!("{} and {more} more", shown.join(", ")) }
}

fn keep_first(misfit: &mut Option<Misfit>, found: Misfit) {
    if misfit.as_ref().is_none_or(|known| found.row < known.row) {
        *misfit = Some(found);
    }
}

fn first_null(column: &ArrayRef) -> Option<usize> {
    let nulls = column.logical_nulls()?;
    (0..nulls.len()).find(|row| nulls.is_null(*row))
}

/// The values behind a dictionary, and text and bytes without their layout.
fn family(data_type: &DataType) -> Family {
    match data_type {
        DataType::Dictionary(_, values) => family(values),
        DataType::Null => Family::Null,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Family::Text,
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => Family::Bytes,
        other if other.is_numeric() => Family::Number,
        DataType::Timestamp(_, None) => Family::LocalTime,
        DataType::Timestamp(_, Some(_)) => Family::Instant,
        DataType::Date32 | DataType::Date64 => Family::Date,
        DataType::Time32(_) | DataType::Time64(_) => Family::TimeOfDay,
        _ => Family::Other,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Null,
    Text,
    Bytes,
    Number,
    LocalTime,
    Instant,
    Date,
    TimeOfDay,
    Other,
}

impl Family {
    fn is_temporal(self) -> bool {
        matches!(self, Family::LocalTime | Family::Instant | Family::Date | Family::TimeOfDay)
    }
}

fn is_convertible(from: &DataType, to: &DataType) -> bool {
    if from.equals_datatype(to) {
        return true;
    }
    let (source, target) = (family(from), family(to));
    let meant = match (source, target) {
        (Family::Null, _) => true,
        (Family::Text, target) if target.is_temporal() => true,
        (Family::Date, Family::LocalTime) => true,
        // Structs and lists are converted member by member, each checked by its way back.
        (Family::Other, Family::Other) => from.is_nested() && to.is_nested(),
        (source, target) => source == target,
    };
    meant && can_cast_types(from, to)
}

fn convert(column: &ArrayRef, to: &DataType, name: &str) -> Result<ArrayRef, Misfit> {
    let from = column.data_type();
    if from == to {
        return Ok(Arc::clone(column));
    }
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let whole = cast_with_options(column, to, &strict).ok();
    if let Some(converted) = &whole
        && is_exact(column, converted)
    {
        return Ok(Arc::clone(converted));
    }
    // One row at a time, to say which.
    for row in 0..column.len() {
        let value = column.slice(row, 1);
        let converted = cast_with_options(&value, to, &strict);
        if converted.as_ref().is_ok_and(|converted| is_exact(&value, converted)) {
            continue;
        }
        let shown = arrow_cast::display::array_value_to_string(&value, 0).unwrap_or_default();
        let reason = format!("column `{name}`: `{shown}` ({from}) cannot be held exactly as {to}");
        return Err(Misfit { row, reason, advice: "change the value, or write to another shard".to_owned() });
    }
    let reason = format!("column `{name}` cannot be converted from {from} to {to}");
    Err(Misfit { row: 0, reason, advice: "convert the column".to_owned() })
}

/// Whether the way back leads to the same values. Text that became a date has no such way: many
/// texts are one date, and what is no date was refused.
fn is_exact(column: &ArrayRef, converted: &ArrayRef) -> bool {
    let (source, target) = (family(column.data_type()), family(converted.data_type()));
    if matches!(source, Family::Null) || (source == Family::Text && target != Family::Other) {
        return true;
    }
    let back = cast_with_options(converted, column.data_type(), &CastOptions { safe: false, ..CastOptions::default() });
    back.is_ok_and(|back| back.to_data() == column.to_data() || plain(&back) == plain(column))
}

/// Dictionaries may number the same values in another way.
fn plain(column: &ArrayRef) -> Option<arrow_data::ArrayData> {
    match column.data_type() {
        DataType::Dictionary(_, values) => {
            cast_with_options(column, values, &CastOptions::default()).ok().map(|plain| plain.to_data())
        }
        _ => None,
    }
    .or_else(|| Some(column.to_data()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::cast::AsArray as _;
    use arrow_array::types::{Int64Type, TimestampMicrosecondType};
    use arrow_array::{Float64Array, Int32Array, Int64Array, StringArray};
    use arrow_schema::{Field, TimeUnit};

    fn apply(column: ArrayRef, to: DataType, nullable: bool) -> Result<ArrayRef, Misfit> {
        let file = Arc::new(Schema::new(vec![Field::new("a", column.data_type().clone(), true)]));
        let target = Arc::new(Schema::new(vec![Field::new("a", to, nullable)]));
        let fit = Fit::new(&file, &target, false).expect("convertible");
        let batch = RecordBatch::try_new(file, vec![column]).expect("a batch");
        fit.apply(&batch).map(|batch| Arc::clone(batch.column(0)))
    }

    #[test]
    fn numbers_change_type_exactly_or_not_at_all() {
        let wide = apply(Arc::new(Int32Array::from(vec![1, -2])), DataType::Int64, false).expect("fits");
        assert_eq!(wide.as_primitive::<Int64Type>().values(), &[1, -2]);
        let misfit = apply(Arc::new(Float64Array::from(vec![1.0, 2.0, 2.5])), DataType::Int64, false).expect_err("2.5");
        assert_eq!(misfit.row, 2);
        assert!(misfit.reason.contains("`2.5`"), "{}", misfit.reason);
        let above_2_to_53 = Int64Array::from(vec![0, (1 << 53) + 1]);
        assert_eq!(apply(Arc::new(above_2_to_53), DataType::Float64, false).expect_err("inexact").row, 1);
    }

    #[test]
    fn text_becomes_time_and_what_is_none_is_named() {
        let to = DataType::Timestamp(TimeUnit::Microsecond, None);
        let good = apply(Arc::new(StringArray::from(vec!["1970-01-01T00:00:01"])), to.clone(), true).expect("a time");
        assert_eq!(good.as_primitive::<TimestampMicrosecondType>().values(), &[1_000_000]);
        let misfit = apply(Arc::new(StringArray::from(vec!["1970-01-01", "soon"])), to, true).expect_err("soon");
        assert_eq!(misfit.row, 1);
    }

    #[test]
    fn the_first_null_of_a_column_without_nulls_is_named() {
        let misfit = apply(Arc::new(Int64Array::from(vec![Some(1), None, None])), DataType::Int64, false);
        assert_eq!(misfit.expect_err("a null").row, 1);
    }

    #[test]
    fn text_is_no_number_and_extra_columns_are_refused() {
        let target = Arc::new(Schema::new(vec![Field::new("a", DataType::Int64, true)]));
        let text = Schema::new(vec![Field::new("a", DataType::Utf8, true)]);
        assert!(Fit::new(&text, &target, false).expect_err("text").reason.contains("Utf8"));
        let extra = Schema::new(vec![Field::new("a", DataType::Int64, true), Field::new("b", DataType::Int64, true)]);
        assert!(Fit::new(&extra, &target, false).expect_err("extra").reason.contains("`b`"));
        assert!(Fit::new(&extra, &target, true).is_ok());
    }
}

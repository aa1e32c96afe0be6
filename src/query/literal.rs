//! Where a literal lies among the values of a column's type.
//!
//! A comparison with a literal that the type cannot hold is still exact: `n > 1.5` asks about
//! the whole numbers from 2 on. So a literal becomes a place in the type's order, and what to
//! compare with is read off it.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::timezone::Tz;
use arrow_array::types::*;
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, PrimitiveArray, StringArray, StringViewArray,
};
use arrow_buffer::i256;
use arrow_cast::parse::{Parser, string_to_datetime, string_to_time_nanoseconds};
use arrow_schema::{DataType, TimeUnit};

use super::decimal::{Decimal, Scaled};
use super::filter::{Literal, Temporal};
use crate::error::{Error, Result};
use crate::value::Value;

/// A literal among the values of a type. Arrays have one row and the type asked for.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Null,
    /// It is this value.
    Exact(ArrayRef),
    /// It lies between two neighbours; this is the upper one.
    Gap(ArrayRef),
    /// It lies above every value.
    Above,
    /// It lies below every value.
    Below,
}

/// The type whose values a column compares by.
pub(crate) fn value_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

pub(crate) fn is_text(data_type: &DataType) -> bool {
    matches!(value_type(data_type), DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// Whether values of the type can be compared at all.
pub(crate) fn is_comparable(data_type: &DataType) -> bool {
    use DataType::*;
    let nested = data_type.is_nested() || matches!(data_type, Dictionary(_, values) if is_dictionary(values));
    !nested
        && !matches!(value_type(data_type), Interval(_) | RunEndEncoded(..) | Null)
        && !value_type(data_type).is_nested()
}

fn is_dictionary(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Dictionary(..))
}

/// Places `literal` among the values of `data_type`; `subject` names the column in the refusal.
pub(crate) fn place(literal: &Literal, data_type: &DataType, subject: &str) -> Result<Place> {
    use DataType::*;
    let data_type = value_type(data_type);
    if matches!(literal, Literal::Value(Value::Null)) {
        return Ok(Place::Null);
    }
    let found = match data_type {
        Boolean => boolean(literal),
        Int8 => whole::<Int8Type>(literal, data_type),
        Int16 => whole::<Int16Type>(literal, data_type),
        Int32 => whole::<Int32Type>(literal, data_type),
        Int64 => whole::<Int64Type>(literal, data_type),
        UInt8 => whole::<UInt8Type>(literal, data_type),
        UInt16 => whole::<UInt16Type>(literal, data_type),
        UInt32 => whole::<UInt32Type>(literal, data_type),
        UInt64 => whole::<UInt64Type>(literal, data_type),
        Float16 | Float32 | Float64 => float(literal, data_type),
        Decimal32(precision, scale) => fixed::<Decimal32Type>(literal, data_type, *precision, *scale),
        Decimal64(precision, scale) => fixed::<Decimal64Type>(literal, data_type, *precision, *scale),
        Decimal128(precision, scale) => fixed::<Decimal128Type>(literal, data_type, *precision, *scale),
        Decimal256(precision, scale) => decimal256(literal, data_type, *precision, *scale),
        Utf8 | LargeUtf8 | Utf8View => match literal {
            Literal::Value(Value::Text(value)) => Some(Place::Exact(text_array(value, data_type))),
            _ => None,
        },
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) => match literal {
            Literal::Value(Value::Binary(value)) => binary(value, data_type),
            _ => None,
        },
        Date32 => moment::<Date32Type>(literal, data_type, None, 86_400_000_000_000),
        Date64 => moment::<Date64Type>(literal, data_type, None, 1_000_000),
        Timestamp(unit, zone) => {
            let zone = zone.as_deref();
            match unit {
                TimeUnit::Second => moment::<TimestampSecondType>(literal, data_type, zone, nanos(*unit)),
                TimeUnit::Millisecond => moment::<TimestampMillisecondType>(literal, data_type, zone, nanos(*unit)),
                TimeUnit::Microsecond => moment::<TimestampMicrosecondType>(literal, data_type, zone, nanos(*unit)),
                TimeUnit::Nanosecond => moment::<TimestampNanosecondType>(literal, data_type, zone, nanos(*unit)),
            }
        }
        Time32(TimeUnit::Second) => time::<Time32SecondType>(literal, data_type, nanos(TimeUnit::Second)),
        Time32(_) => time::<Time32MillisecondType>(literal, data_type, nanos(TimeUnit::Millisecond)),
        Time64(TimeUnit::Microsecond) => {
            time::<Time64MicrosecondType>(literal, data_type, nanos(TimeUnit::Microsecond))
        }
        Time64(_) => time::<Time64NanosecondType>(literal, data_type, 1),
        Duration(TimeUnit::Second) => whole::<DurationSecondType>(literal, data_type),
        Duration(TimeUnit::Millisecond) => whole::<DurationMillisecondType>(literal, data_type),
        Duration(TimeUnit::Microsecond) => whole::<DurationMicrosecondType>(literal, data_type),
        Duration(TimeUnit::Nanosecond) => whole::<DurationNanosecondType>(literal, data_type),
        _ => None,
    };
    found.ok_or_else(|| Error::invalid(subject, literal.to_string(), format!("{} ({data_type})", wanted(data_type))))
}

/// What a literal for the type looks like, for people.
fn wanted(data_type: &DataType) -> &'static str {
    use DataType::*;
    match data_type {
        Boolean => "TRUE or FALSE",
        Utf8 | LargeUtf8 | Utf8View => "text in single quotes",
        Binary | LargeBinary | BinaryView | FixedSizeBinary(_) => "bytes such as X'00FF'",
        Date32 | Date64 => "a date such as '2024-01-31'",
        Time32(_) | Time64(_) => "a time such as '13:05:09.25'",
        Timestamp(..) => {
            "a timestamp such as '2024-01-31T13:05:09Z' (with an offset where the column's time zone is a region)"
        }
        Duration(_) => "a whole number of the column's units",
        _ => "a number",
    }
}

const fn nanos(unit: TimeUnit) -> i128 {
    match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

fn boolean(literal: &Literal) -> Option<Place> {
    match literal {
        Literal::Value(Value::Boolean(value)) => Some(Place::Exact(Arc::new(BooleanArray::from(vec![*value])))),
        _ => None,
    }
}

fn array<T: ArrowPrimitiveType>(value: T::Native, data_type: &DataType) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::from_value(value, 1).with_data_type(data_type.clone()))
}

/// A number that has a decimal text; `Err` holds an infinity or NaN.
fn number(literal: &Literal) -> Option<std::result::Result<Decimal, f64>> {
    match literal {
        Literal::Value(Value::Int(value)) => Some(Ok(Decimal::from_i128((*value).into()))),
        Literal::Value(Value::UInt(value)) => Some(Ok(Decimal::from_i128((*value).into()))),
        Literal::Value(Value::Float(value)) => Some(Decimal::from_f64(*value).ok_or(*value)),
        Literal::Number(text) => Decimal::parse(text).map(Ok),
        _ => None,
    }
}

fn scaled(number: std::result::Result<Decimal, f64>, scale: i32) -> Scaled {
    match number {
        Ok(decimal) => decimal.scaled(scale),
        // NaN is above everything, as among floats.
        Err(value) if value == f64::NEG_INFINITY => Scaled::Below,
        Err(_) => Scaled::Above,
    }
}

fn whole<T>(literal: &Literal, data_type: &DataType) -> Option<Place>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i128>,
{
    Some(in_type::<T>(scaled(number(literal)?, 0), data_type))
}

fn in_type<T>(units: Scaled, data_type: &DataType) -> Place
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i128>,
{
    let (ceil, exact) = match units {
        Scaled::Units { ceil, exact } => (ceil, exact),
        Scaled::Above => return Place::Above,
        Scaled::Below => return Place::Below,
    };
    let native = ceil.to_i128().and_then(|ceil| T::Native::try_from(ceil).ok());
    match native {
        Some(value) if exact => Place::Exact(array::<T>(value, data_type)),
        Some(value) => Place::Gap(array::<T>(value, data_type)),
        None if ceil.is_negative() => Place::Below,
        None => Place::Above,
    }
}

fn fixed<T>(literal: &Literal, data_type: &DataType, precision: u8, scale: i8) -> Option<Place>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i128>,
{
    let units = scaled(decimal(literal)?, scale.into());
    Some(beyond(units, precision).unwrap_or_else(|| in_type::<T>(units, data_type)))
}

fn decimal256(literal: &Literal, data_type: &DataType, precision: u8, scale: i8) -> Option<Place> {
    let units = scaled(decimal(literal)?, scale.into());
    Some(beyond(units, precision).unwrap_or_else(|| match units {
        Scaled::Units { ceil, exact: true } => Place::Exact(array::<Decimal256Type>(ceil, data_type)),
        Scaled::Units { ceil, exact: false } => Place::Gap(array::<Decimal256Type>(ceil, data_type)),
        Scaled::Above => Place::Above,
        Scaled::Below => Place::Below,
    }))
}

/// A number, or the text form of a decimal.
fn decimal(literal: &Literal) -> Option<std::result::Result<Decimal, f64>> {
    match literal {
        Literal::Value(Value::Text(text)) => Decimal::parse(text.trim()).map(Ok),
        other => number(other),
    }
}

fn beyond(units: Scaled, precision: u8) -> Option<Place> {
    let Scaled::Units { ceil, .. } = units else { return None };
    let limit = i256::from_i128(10).checked_pow(precision.into())?;
    if ceil >= limit {
        Some(Place::Above)
    } else if ceil <= limit.wrapping_neg() {
        Some(Place::Below)
    } else {
        None
    }
}

/// The nearest value of the type, with `-0.0` as it is: the binder knows that both zeros are one.
fn float(literal: &Literal, data_type: &DataType) -> Option<Place> {
    let value = match literal {
        Literal::Value(Value::Float(value)) => *value,
        Literal::Value(Value::Int(value)) => *value as f64,
        Literal::Value(Value::UInt(value)) => *value as f64,
        Literal::Number(text) => text.parse().ok()?,
        _ => return None,
    };
    // An infinity that was written is one; a finite number beyond the type's range is not.
    let was_finite = !matches!(literal, Literal::Value(Value::Float(value)) if !value.is_finite());
    let nearest = float_array(value, data_type)?;
    let overflowed = was_finite && as_f64(&nearest).is_some_and(f64::is_infinite);
    Some(match overflowed {
        false => Place::Exact(nearest),
        true if value > 0.0 => Place::Gap(nearest),
        true => Place::Gap(float_array(lowest_finite(data_type), data_type)?),
    })
}

fn lowest_finite(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Float16 => -65504.0,
        DataType::Float32 => f32::MIN.into(),
        _ => f64::MIN,
    }
}

type F16 = <Float16Type as ArrowPrimitiveType>::Native;

/// One row of a float type. Every NaN becomes the one NaN that is above infinity.
pub(crate) fn float_array(value: f64, data_type: &DataType) -> Option<ArrayRef> {
    let value = if value.is_nan() { f64::NAN } else { value };
    match data_type {
        DataType::Float16 => Some(array::<Float16Type>(F16::from_f64(value), data_type)),
        DataType::Float32 => Some(array::<Float32Type>(value as f32, data_type)),
        DataType::Float64 => Some(array::<Float64Type>(value, data_type)),
        _ => None,
    }
}

/// The one value of a float array.
pub(crate) fn as_f64(array: &ArrayRef) -> Option<f64> {
    match array.data_type() {
        DataType::Float16 => array.as_primitive::<Float16Type>().values().first().map(|value| value.to_f64()),
        DataType::Float32 => array.as_primitive::<Float32Type>().values().first().map(|value| f64::from(*value)),
        DataType::Float64 => array.as_primitive::<Float64Type>().values().first().copied(),
        _ => None,
    }
}

/// One row of a text type.
pub(crate) fn text_array(value: &str, data_type: &DataType) -> ArrayRef {
    match data_type {
        DataType::LargeUtf8 => Arc::new(LargeStringArray::from(vec![value])),
        DataType::Utf8View => Arc::new(StringViewArray::from(vec![value])),
        _ => Arc::new(StringArray::from(vec![value])),
    }
}

fn binary(value: &[u8], data_type: &DataType) -> Option<Place> {
    Some(match data_type {
        DataType::LargeBinary => Place::Exact(Arc::new(LargeBinaryArray::from(vec![value]))),
        DataType::BinaryView => Place::Exact(Arc::new(BinaryViewArray::from(vec![value]))),
        DataType::FixedSizeBinary(size) => fixed_size_binary(value, usize::try_from(*size).ok()?)?,
        _ => Place::Exact(Arc::new(BinaryArray::from(vec![value]))),
    })
}

/// Bytes of another length lie between two values of this one.
fn fixed_size_binary(value: &[u8], size: usize) -> Option<Place> {
    let one = |bytes: &[u8]| {
        let array = FixedSizeBinaryArray::try_from_iter(std::iter::once(bytes)).ok()?;
        Some(Arc::new(array) as ArrayRef)
    };
    if value.len() == size {
        return one(value).map(Place::Exact);
    }
    let mut ceil = value.to_vec();
    ceil.resize(size, 0);
    if value.len() < size {
        return one(&ceil).map(Place::Gap);
    }
    // The longer value is above its own prefix, so the next one up is the neighbour.
    Some(if increment(&mut ceil) { Place::Gap(one(&ceil)?) } else { Place::Above })
}

/// The next bytes of the same length; false where there are none.
fn increment(bytes: &mut [u8]) -> bool {
    for byte in bytes.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return true;
        }
    }
    false
}

fn moment<T>(literal: &Literal, data_type: &DataType, zone: Option<&str>, unit: i128) -> Option<Place>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i128>,
{
    let text = match literal {
        Literal::Value(Value::Text(text)) | Literal::Typed(Temporal::Date | Temporal::Timestamp, text) => text,
        _ => return None,
    };
    Some(in_units::<T>(moment_nanos(text, zone)?, unit, data_type))
}

fn time<T>(literal: &Literal, data_type: &DataType, unit: i128) -> Option<Place>
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i128>,
{
    let text = match literal {
        Literal::Value(Value::Text(text)) | Literal::Typed(Temporal::Time, text) => text,
        _ => return None,
    };
    Some(in_units::<T>(string_to_time_nanoseconds(text).ok()?.into(), unit, data_type))
}

fn in_units<T>(nanos: i128, unit: i128, data_type: &DataType) -> Place
where
    T: ArrowPrimitiveType,
    T::Native: TryFrom<i128>,
{
    let rest = nanos.rem_euclid(unit);
    let ceil = nanos.div_euclid(unit) + i128::from(rest != 0);
    in_type::<T>(Scaled::Units { ceil: i256::from_i128(ceil), exact: rest == 0 }, data_type)
}

/// Nanoseconds since 1970, of a date or a timestamp.
fn moment_nanos(text: &str, zone: Option<&str>) -> Option<i128> {
    let text = text.trim();
    let under = |zone: &Tz| {
        let moment = string_to_datetime(zone, text).ok()?;
        Some(i128::from(moment.timestamp()) * 1_000_000_000 + i128::from(moment.timestamp_subsec_nanos()))
    };
    let fixed = |zone: &str| zone.parse::<Tz>().ok();
    let Some(nanos) = under(&fixed(zone.unwrap_or("+00:00")).or_else(|| fixed("+00:00"))?) else {
        return distant_date(text);
    };
    if fixed(zone.unwrap_or("+00:00")).is_some() {
        return Some(nanos);
    }
    // A region whose rules this build does not carry. Text that says its own offset means the same
    // instant under any zone; other text cannot be placed.
    let elsewhere = under(&fixed("+01:00")?)?;
    (nanos == elsewhere).then_some(nanos)
}

/// Dates beyond four-digit years, which have no time of day.
fn distant_date(text: &str) -> Option<i128> {
    let only_date = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'-' | b'+'));
    let days = only_date.then(|| Date32Type::parse(text)).flatten()?;
    Some(i128::from(days) * 86_400_000_000_000)
}

/// Whether the text of a typed literal says what its type promises.
pub(crate) fn is_temporal_text(kind: Temporal, text: &str) -> bool {
    match kind {
        Temporal::Time => string_to_time_nanoseconds(text).is_ok(),
        Temporal::Date | Temporal::Timestamp => moment_nanos(text, None).is_some(),
    }
}

pub(crate) fn is_float(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Float16 | DataType::Float32 | DataType::Float64)
}

//! A [`Value`] in a column's own type.
//!
//! Keys to look up and literals of filters pass here, and nowhere else, on their way to Arrow.
//! A value is taken exactly or not at all: one that a type could only hold rounded, cut or
//! wrapped would find rows the caller did not ask for.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BooleanArray, Decimal32Array, Decimal64Array, Decimal128Array, Decimal256Array,
    FixedSizeBinaryArray, Float64Array, Int64Array, StringArray, UInt64Array, make_array, new_null_array,
};
use arrow_buffer::{Buffer, i256};
use arrow_cast::{CastOptions, cast_with_options};
use arrow_data::ArrayData;
use arrow_schema::{DataType, TimeUnit};

use crate::value::Value;

/// The value as an array of one row of exactly the type `to`, or `None` where that type cannot
/// hold it exactly.
///
/// Whole numbers go into any numeric type they lie in, and into durations as a count of their
/// unit. Floats go where they lose nothing; into decimals they go as their shortest text, so
/// that `0.1` is a tenth. Text is parsed for dates, times, timestamps, intervals and decimals.
/// A dictionary takes what its values take.
pub(crate) fn value_to_array(value: &Value, to: &DataType) -> Option<ArrayRef> {
    if let DataType::Dictionary(_, values) = to {
        return dictionary_of(&value_to_array(value, values)?, to);
    }
    match value {
        Value::Null => Some(new_null_array(to, 1)),
        Value::Boolean(value) => (*to == DataType::Boolean).then(|| Arc::new(BooleanArray::from(vec![*value])) as _),
        Value::Int(value) => whole(i128::from(*value), to),
        Value::UInt(value) => whole(i128::from(*value), to),
        Value::Float(value) => float(*value, to),
        Value::Text(value) => text(value, to),
        Value::Binary(value) => binary(value, to),
    }
}

/// One key, and the value it stands for as the whole dictionary. A zero is the same bytes in
/// every key type.
fn dictionary_of(value: &ArrayRef, to: &DataType) -> Option<ArrayRef> {
    if value.is_null(0) {
        return Some(new_null_array(to, 1));
    }
    let data = ArrayData::builder(to.clone())
        .len(1)
        .add_buffer(Buffer::from_vec(vec![0u64]))
        .add_child_data(value.to_data())
        .build()
        .ok()?;
    Some(make_array(data))
}

fn whole(value: i128, to: &DataType) -> Option<ArrayRef> {
    match to {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let float = value as f64;
            (float as i128 == value).then(|| self::float(float, to)).flatten()
        }
        to if to.is_decimal() => decimal(&value.to_string(), to),
        to if to.is_integer() => match i64::try_from(value) {
            Ok(value) => cast_exact(&Int64Array::from(vec![value]), to),
            Err(_) => cast_exact(&UInt64Array::from(vec![u64::try_from(value).ok()?]), to),
        },
        DataType::Duration(_) => cast_exact(&Int64Array::from(vec![i64::try_from(value).ok()?]), to),
        _ => None,
    }
}

fn float(value: f64, to: &DataType) -> Option<ArrayRef> {
    match to {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let narrow = cast_exact(&Float64Array::from(vec![value]), to)?;
            let back = cast_exact(&narrow, &DataType::Float64)?.as_primitive::<Float64Type>().value(0);
            (back == value || (back.is_nan() && value.is_nan())).then_some(narrow)
        }
        to if to.is_decimal() => decimal(&value.to_string(), to),
        to if to.is_integer() => {
            // Beyond 2^100 the conversion could saturate; no integer column reaches there.
            let fits = value.fract() == 0.0 && value.abs() < 2f64.powi(100);
            fits.then(|| whole(value as i128, to)).flatten()
        }
        _ => None,
    }
}

fn text(value: &str, to: &DataType) -> Option<ArrayRef> {
    let source = StringArray::from(vec![value]);
    match to {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Interval(_) => cast_exact(&source, to),
        DataType::Date32 | DataType::Date64 | DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..) => {
            moment(&source, to)
        }
        to if to.is_decimal() => decimal(value.trim(), to),
        _ => None,
    }
}

fn binary(value: &[u8], to: &DataType) -> Option<ArrayRef> {
    match to {
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            cast_exact(&BinaryArray::from(vec![value]), to)
        }
        DataType::FixedSizeBinary(width) if usize::try_from(*width) == Ok(value.len()) => {
            Some(Arc::new(FixedSizeBinaryArray::try_from_iter(std::iter::once(value)).ok()?))
        }
        _ => None,
    }
}

/// A cast that answers `None` instead of a null or an error.
fn cast_exact(source: &dyn Array, to: &DataType) -> Option<ArrayRef> {
    let options = CastOptions { safe: true, ..CastOptions::default() };
    cast_with_options(source, to, &options).ok().filter(|array| array.is_valid(0))
}

/// Parses a date, time or timestamp. The parser drops what lies below the column's unit, so the
/// same text is read in every finer unit too (where it lies in that unit's range), and all must
/// agree.
fn moment(source: &StringArray, to: &DataType) -> Option<ArrayRef> {
    let parsed = cast_exact(source, to)?;
    let value = i128::from(count(&parsed)?);
    let agrees = finer_units(to).into_iter().all(|(finer, factor)| {
        let finer = cast_exact(source, &finer).and_then(|finer| count(&finer));
        finer.is_none_or(|finer| i128::from(finer) == value * factor)
    });
    agrees.then_some(parsed)
}

/// The number a date, time or timestamp is stored as.
fn count(array: &ArrayRef) -> Option<i64> {
    Some(cast_exact(array, &DataType::Int64)?.as_primitive::<Int64Type>().value(0))
}

fn finer_units(of: &DataType) -> Vec<(DataType, i128)> {
    const NANOS_PER_DAY: i128 = 86_400_000_000_000;
    let nanos = |unit: &TimeUnit| match unit {
        TimeUnit::Second => 1_000_000_000,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    };
    let (nanos_each, zone) = match of {
        DataType::Date32 => (NANOS_PER_DAY, None),
        DataType::Date64 => (1_000_000, None),
        DataType::Timestamp(unit, zone) => (nanos(unit), zone.clone()),
        DataType::Time32(unit) | DataType::Time64(unit) => {
            return vec![(DataType::Time64(TimeUnit::Nanosecond), nanos(unit))];
        }
        _ => return Vec::new(),
    };
    [TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond]
        .into_iter()
        .filter(|unit| nanos(unit) < nanos_each)
        .map(|unit| (DataType::Timestamp(unit, zone.clone()), nanos_each / nanos(&unit)))
        .collect()
}

/// Reads `-12.5`, `.5` or `1e3` into a decimal of exactly that value.
fn decimal(number: &str, to: &DataType) -> Option<ArrayRef> {
    let (precision, scale) = match to {
        DataType::Decimal32(precision, scale)
        | DataType::Decimal64(precision, scale)
        | DataType::Decimal128(precision, scale)
        | DataType::Decimal256(precision, scale) => (*precision, *scale),
        _ => return None,
    };
    let unscaled = unscaled(number, precision, scale)?;
    let narrow = unscaled.to_i128();
    Some(match to {
        DataType::Decimal32(..) => Arc::new(
            Decimal32Array::from(vec![i32::try_from(narrow?).ok()?]).with_precision_and_scale(precision, scale).ok()?,
        ),
        DataType::Decimal64(..) => Arc::new(
            Decimal64Array::from(vec![i64::try_from(narrow?).ok()?]).with_precision_and_scale(precision, scale).ok()?,
        ),
        DataType::Decimal128(..) => {
            Arc::new(Decimal128Array::from(vec![narrow?]).with_precision_and_scale(precision, scale).ok()?)
        }
        _ => Arc::new(Decimal256Array::from(vec![unscaled]).with_precision_and_scale(precision, scale).ok()?),
    })
}

/// `number * 10^scale`, where that is whole and has at most `precision` digits.
fn unscaled(number: &str, precision: u8, scale: i8) -> Option<i256> {
    let (sign, magnitude) = match number.strip_prefix('-') {
        Some(magnitude) => ("-", magnitude),
        None => ("", number.strip_prefix('+').unwrap_or(number)),
    };
    let (mantissa, exponent) = match magnitude.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (magnitude, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let significant = digits.trim_start_matches('0').trim_end_matches('0');
    if significant.is_empty() {
        return Some(i256::ZERO);
    }
    let dropped_zeros = digits.len() - digits.trim_end_matches('0').len();
    let zeros = i64::from(exponent) + i64::from(scale) + dropped_zeros as i64 - fraction.len() as i64;
    // Below zero a digit other than 0 would be cut off.
    let zeros = usize::try_from(zeros).ok()?;
    if significant.len().saturating_add(zeros) > usize::from(precision) {
        return None;
    }
    i256::from_string(&format!("{sign}{significant}{}", "0".repeat(zeros)))
}

#[cfg(test)]
mod tests;

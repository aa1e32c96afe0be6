use arrow_cast::display::array_value_to_string;

use super::*;

/// The value as its column would print it; `None` where the column does not take it.
fn taken(value: impl Into<Value>, to: &DataType) -> Option<String> {
    let array = value_to_array(&value.into(), to)?;
    assert_eq!((array.data_type(), array.len()), (to, 1));
    Some(array_value_to_string(&array, 0).expect("printable"))
}

fn some(text: &str) -> Option<String> {
    Some(text.to_owned())
}

#[test]
fn q3_whole_numbers_go_where_they_fit() {
    assert_eq!(taken(-128, &DataType::Int8), some("-128"));
    assert_eq!(taken(128, &DataType::Int8), None);
    assert_eq!(taken(-1, &DataType::UInt64), None);
    assert_eq!(taken(u64::MAX, &DataType::UInt64), some("18446744073709551615"));
    assert_eq!(taken(u64::MAX, &DataType::Int64), None);
    assert_eq!(taken(1 << 24, &DataType::Float32), some("16777216.0"));
    assert_eq!(taken((1 << 24) + 1, &DataType::Float32), None);
    assert_eq!(taken(i64::MAX, &DataType::Float64), None);
    assert_eq!(taken(7, &DataType::Utf8), None);
    assert_eq!(taken(1, &DataType::Boolean), None);
    assert_eq!(taken(5, &DataType::Date32), None);
    assert!(taken(5, &DataType::Duration(TimeUnit::Second)).is_some());
}

#[test]
fn q3_floats_go_only_where_they_lose_nothing() {
    assert_eq!(taken(2.5, &DataType::Float16), some("2.5"));
    assert_eq!(taken(0.1, &DataType::Float32), None);
    assert_eq!(taken(f64::NAN, &DataType::Float32), some("NaN"));
    assert_eq!(taken(f64::INFINITY, &DataType::Float32), some("inf"));
    assert_eq!(taken(3.0, &DataType::Int32), some("3"));
    assert_eq!(taken(3.5, &DataType::Int32), None);
    assert_eq!(taken(9_223_372_036_854_775_808.0, &DataType::Int64), None);
    assert_eq!(taken(f64::INFINITY, &DataType::Int64), None);
    assert_eq!(taken(f64::NAN, &DataType::Int64), None);
    assert_eq!(taken(0.1, &DataType::Decimal128(10, 2)), some("0.10"));
    assert_eq!(taken(0.125, &DataType::Decimal128(10, 2)), None);
    assert_eq!(taken(f64::NAN, &DataType::Decimal128(10, 2)), None);
}

#[test]
fn q3_decimals_are_read_exactly_or_not_at_all() {
    assert_eq!(taken("-12.5", &DataType::Decimal128(5, 2)), some("-12.50"));
    assert_eq!(taken("12.500", &DataType::Decimal128(5, 2)), some("12.50"));
    assert_eq!(taken("12.505", &DataType::Decimal128(5, 2)), None);
    assert_eq!(taken("1000", &DataType::Decimal128(5, 2)), None);
    assert_eq!(taken("1.5e2", &DataType::Decimal32(5, 0)), some("150"));
    assert_eq!(taken("0.000", &DataType::Decimal64(5, 1)), some("0.0"));
    assert_eq!(taken(1200, &DataType::Decimal128(5, -2)), some("1200"));
    assert_eq!(taken(1250, &DataType::Decimal128(5, -2)), None);
    assert_eq!(taken("1e1000000000", &DataType::Decimal256(76, 0)), None);
    let long = "9".repeat(76);
    assert_eq!(taken(long.as_str(), &DataType::Decimal256(76, 0)), some(&long));
    for wrong in ["", ".", "-", "1.2.3", "1 2", "abc", "--1", "1e"] {
        assert_eq!(taken(wrong, &DataType::Decimal128(10, 2)), None, "{wrong}");
    }
}

#[test]
fn q3_dates_and_times_are_parsed_and_never_cut() {
    let milliseconds = DataType::Timestamp(TimeUnit::Millisecond, None);
    assert_eq!(taken("2024-02-29", &DataType::Date32), some("2024-02-29"));
    assert_eq!(taken("2024-02-30", &DataType::Date32), None);
    assert_eq!(taken("2024-02-29T12:00:00", &DataType::Date32), None);
    assert_eq!(taken("2024-02-29T01:02:03.5", &milliseconds), some("2024-02-29T01:02:03.500"));
    assert_eq!(taken("2024-02-29T01:02:03.0005", &milliseconds), None);
    // Nanoseconds since 1970 end in 2262; the other units go on.
    assert_eq!(taken("3024-02-29T01:02:03", &milliseconds), some("3024-02-29T01:02:03"));
    assert_eq!(taken("3024-02-29T01:02:03", &DataType::Timestamp(TimeUnit::Nanosecond, None)), None);
    let zoned = DataType::Timestamp(TimeUnit::Second, Some("+02:00".into()));
    assert_eq!(taken("2024-02-29T01:02:03+02:00", &zoned), some("2024-02-29T01:02:03+02:00"));
    assert_eq!(taken("01:02:03", &DataType::Time32(TimeUnit::Second)), some("01:02:03"));
    assert_eq!(taken("01:02:03.5", &DataType::Time32(TimeUnit::Second)), None);
    assert_eq!(taken("soon", &milliseconds), None);
}

#[test]
fn q3_text_and_bytes_keep_their_kind() {
    for to in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View] {
        assert_eq!(taken("a'b", &to), some("a'b"));
        assert_eq!(taken(vec![0xffu8], &to), None);
    }
    for to in [DataType::Binary, DataType::LargeBinary, DataType::BinaryView, DataType::FixedSizeBinary(2)] {
        assert_eq!(taken(vec![1u8, 2], &to), some("0102"));
        assert_eq!(taken("12", &to), None);
    }
    assert_eq!(taken(vec![1u8], &DataType::FixedSizeBinary(2)), None);
    assert_eq!(taken("true", &DataType::Boolean), None);
    assert_eq!(taken(true, &DataType::Boolean), some("true"));
    assert_eq!(taken("1", &DataType::Int32), None);
}

#[test]
fn q3_a_dictionary_takes_what_its_values_take() {
    for key in [DataType::Int8, DataType::UInt64] {
        let of = |value| DataType::Dictionary(Box::new(key.clone()), Box::new(value));
        assert_eq!(taken("red", &of(DataType::Utf8)), some("red"));
        assert_eq!(taken(7, &of(DataType::Utf8)), None);
        assert_eq!(taken(7, &of(DataType::Int16)), some("7"));
        assert!(value_to_array(&Value::Null, &of(DataType::Utf8)).expect("a null").is_null(0));
    }
}

#[test]
fn q3_null_is_a_null_of_every_type() {
    for to in [DataType::Int64, DataType::Utf8, DataType::Boolean, DataType::Decimal128(3, 1), DataType::Date32] {
        let array = value_to_array(&Value::Null, &to).expect("a null");
        assert_eq!((array.data_type(), array.null_count()), (&to, 1));
    }
}

use std::cmp::Ordering;

use arrow_array::types::Int8Type;
use arrow_array::{
    BinaryArray, BinaryViewArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Int32Array, Int64Array,
    LargeStringArray, StringArray, StringViewArray,
};
use arrow_schema::{Field, Schema, TimeUnit};
use proptest::prelude::*;

use super::*;

fn encoder(types: &[DataType]) -> KeyEncoder {
    let fields: Vec<Field> =
        types.iter().enumerate().map(|(at, of)| Field::new(format!("k{at}"), of.clone(), true)).collect();
    let columns: Vec<usize> = (0..types.len()).collect();
    KeyEncoder::new(&Arc::new(Schema::new(fields)), &columns).expect("sortable")
}

fn texts(values: &[Option<&str>]) -> ArrayRef {
    Arc::new(StringArray::from(values.to_vec()))
}

fn ints(values: &[Option<i32>]) -> ArrayRef {
    Arc::new(Int32Array::from(values.to_vec()))
}

fn dictionary(values: &[&str]) -> ArrayRef {
    Arc::new(values.iter().copied().collect::<DictionaryArray<Int8Type>>())
}

fn is_within(key: &[u8], (lower, upper): &KeyBounds) -> bool {
    let above = match lower {
        Bound::Included(lower) => key >= lower.as_slice(),
        Bound::Excluded(lower) => key > lower.as_slice(),
        Bound::Unbounded => true,
    };
    above
        && match upper {
            Bound::Included(upper) => key <= upper.as_slice(),
            Bound::Excluded(upper) => key < upper.as_slice(),
            Bound::Unbounded => true,
        }
}

#[test]
fn q2_a_key_given_as_values_is_the_key_of_the_row_that_holds_them() {
    let long = "x".repeat(65);
    for text in ["", "a", "12345678", "123456789", &long[..31], &long[..32], &long[..33], &long[..64], &long] {
        for number in [i64::MIN, -1, 0, 1, i64::MAX] {
            let columns: [ArrayRef; 6] = [
                Arc::new(Int64Array::from(vec![number])),
                Arc::new(StringArray::from(vec![text])),
                Arc::new(LargeStringArray::from(vec![text])),
                Arc::new(StringViewArray::from(vec![text])),
                Arc::new(BinaryArray::from(vec![text.as_bytes()])),
                dictionary(&[text]),
            ];
            let types: Vec<DataType> = columns.iter().map(|column| column.data_type().clone()).collect();
            let encoder = encoder(&types);
            let rows = encoder.encode_columns(&columns).expect("encoded");
            let bytes = Value::Binary(text.as_bytes().to_vec());
            let key = Key(vec![number.into(), text.into(), text.into(), text.into(), bytes, text.into()]);
            assert_eq!(encoder.encode_key(&key).expect("a key").as_slice(), rows.row(0).as_ref());
            let counted: u64 = columns.iter().map(encoded_bytes).sum();
            assert_eq!(counted, rows.row(0).as_ref().len() as u64);
        }
    }
}

#[test]
fn q2_a_key_that_does_not_fit_is_refused_with_column_value_and_type() {
    let small = encoder(&[DataType::Int8]);
    for value in [Value::Int(300), Value::Float(1.5), Value::from("1"), Value::Null, Value::Boolean(true)] {
        let text = small.encode_key(&Key(vec![value.clone()])).expect_err("does not fit").to_string();
        assert!(text.contains("`k0`") && text.contains(&value.to_string()) && text.contains("Int8"), "{text}");
    }
    let text = small.encode_key(&Key::from((1, 2))).expect_err("too many").to_string();
    assert!(text.contains("2 values") && text.contains("1 (k0)"), "{text}");
    assert!(small.encode_key(&Key::from(5.0)).is_ok(), "a whole float is the whole number");
}

#[test]
fn q2_text_is_parsed_for_dates_and_decimals_and_never_rounded() {
    let dates = encoder(&[DataType::Date32, DataType::Timestamp(TimeUnit::Millisecond, None)]);
    assert!(dates.encode_key(&Key::from(("2024-02-29", "2024-02-29 12:00:00"))).is_ok());
    assert!(dates.encode_key(&Key::from(("2023-02-29", "2024-02-29 12:00:00"))).is_err());
    assert!(dates.encode_key(&Key::from(("2024-02-29", "2024-02-29 12:00:00.0001"))).is_err());
    let decimals = encoder(&[DataType::Decimal128(10, 2)]);
    assert!(decimals.encode_key(&Key::from("12.34")).is_ok());
    assert!(decimals.encode_key(&Key::from("12.345")).is_err());
}

#[test]
fn q3_a_dictionary_column_is_encoded_as_its_values_are() {
    let values = ["b", "a", "b", "a long text of more than one block"];
    let dictionary = dictionary(&values);
    let encoder = encoder(&[dictionary.data_type().clone()]);
    let plain = texts(&values.map(Some));
    let from_dictionary = encoder.encode_columns(&[Arc::clone(&dictionary)]).expect("encoded");
    let from_values = encoder.encode_columns(&[Arc::clone(&plain)]).expect("encoded");
    assert!(from_dictionary.iter().eq(from_values.iter()));
    assert_eq!(encoded_bytes(&dictionary), encoded_bytes(&plain));
    // An empty dictionary can still be the type of rows that are all null.
    let nulls = new_null_array(dictionary.data_type(), 3);
    assert_eq!(encoded_bytes(&nulls), 3);
    assert_eq!(encoder.encode_columns(&[nulls]).expect("encoded").row(2).data(), [0]);
}

#[test]
fn b1_the_counted_bytes_of_a_column_are_those_of_its_keys() {
    let column = |array: ArrayRef| {
        let rows = encoder(&[array.data_type().clone()]).encode_columns(&[Arc::clone(&array)]).expect("encoded");
        let actual: usize = rows.iter().map(|row| row.data().len()).sum();
        (encoded_bytes(&array), actual as u64)
    };
    let exact: [ArrayRef; 4] = [
        Arc::new(BooleanArray::from(vec![Some(true), None])),
        Arc::new(FixedSizeBinaryArray::try_from_iter([[1u8; 5], [2; 5]].into_iter()).expect("bytes")),
        Arc::new(BinaryViewArray::from(vec![&b"123456789012345"[..], b"x"])),
        ints(&[Some(1), None]),
    ];
    for array in exact {
        let (counted, actual) = column(Arc::clone(&array));
        assert_eq!(counted, actual, "{}", array.data_type());
    }
    let (counted, actual) = column(texts(&[Some("123456789"), None, Some("")]).slice(1, 2));
    assert_eq!(counted, actual, "a slice is counted by its own rows");
}

#[test]
fn q3_is_null_finds_nulls_and_a_range_never_does() {
    let encoder = encoder(&[DataType::Int32, DataType::Utf8]);
    let rows = encoder
        .encode_columns(&[
            ints(&[None, Some(1), Some(1), Some(2), None]),
            texts(&[Some("a"), None, Some("a"), None, None]),
        ])
        .expect("encoded");
    let found = |bounds: KeyBounds| -> Vec<usize> {
        (0..rows.num_rows()).filter(|at| is_within(rows.row(*at).data(), &bounds)).collect()
    };
    let everything = || Some((Bound::Unbounded, Bound::Unbounded));
    let one = [ints(&[Some(1)])];
    assert_eq!(found(encoder.bounds(&[ints(&[None])], None).expect("bounds")), [0, 4]);
    assert_eq!(found(encoder.bounds(&one, None).expect("bounds")), [1, 2]);
    assert_eq!(found(encoder.bounds(&[ints(&[Some(1)]), texts(&[None])], None).expect("bounds")), [1]);
    assert_eq!(found(encoder.bounds(&[], everything()).expect("bounds")), [1, 2, 3]);
    assert_eq!(found(encoder.bounds(&one, everything()).expect("bounds")), [2]);
    assert_eq!(found(encoder.bounds(&[], None).expect("bounds")), [0, 1, 2, 3, 4]);
    let beyond = [ints(&[Some(1)]), texts(&[Some("a")])];
    assert!(encoder.bounds(&beyond, everything()).is_err(), "there is no third column");
}

fn text() -> impl Strategy<Value = Option<String>> {
    // Few letters, the first and last of their bytes among them, so that values meet.
    prop::option::weighted(
        0.8,
        prop::collection::vec(prop::sample::select(vec!['\0', 'a', 'b', '\u{7f}', '\u{10ffff}']), 0..40)
            .prop_map(|letters| letters.into_iter().collect()),
    )
}

proptest! {
    #[test]
    fn q3_bounds_hold_what_the_values_say(
        rows in prop::collection::vec((prop::option::of(-3i32..3), text()), 1..30),
        number in -3i32..3,
        low in text(), high in text(),
        inclusive in any::<(bool, bool)>(),
    ) {
        let encoder = encoder(&[DataType::Int32, DataType::Utf8]);
        let numbers: Vec<Option<i32>> = rows.iter().map(|row| row.0).collect();
        let words: Vec<Option<&str>> = rows.iter().map(|row| row.1.as_deref()).collect();
        let keys = encoder.encode_columns(&[ints(&numbers), texts(&words)]).expect("encoded");
        // The order of keys is the order of the rows.
        for (a, mine) in rows.iter().enumerate() {
            for (b, theirs) in rows.iter().enumerate() {
                let order: Ordering = keys.row(a).data().cmp(keys.row(b).data());
                prop_assert_eq!(order, mine.cmp(theirs));
            }
        }
        let bound = |word: &Option<String>, inclusive| match word {
            None => Bound::Unbounded,
            Some(word) if inclusive => Bound::Included(texts(&[Some(word)])),
            Some(word) => Bound::Excluded(texts(&[Some(word)])),
        };
        let range = (bound(&low, inclusive.0), bound(&high, inclusive.1));
        let bounds = encoder.bounds(&[ints(&[Some(number)])], Some(range)).expect("bounds");
        for (at, (found, word)) in rows.iter().enumerate() {
            let here = *found == Some(number);
            let above = |word: &String| low.as_ref().is_none_or(|low| if inclusive.0 { word >= low } else { word > low });
            let below = |word: &String| high.as_ref().is_none_or(|high| if inclusive.1 { word <= high } else { word < high });
            let wanted = here && word.as_ref().is_some_and(|word| above(word) && below(word));
            prop_assert_eq!(is_within(keys.row(at).data(), &bounds), wanted, "{:?}", rows[at]);
        }
    }
}

//! A second opinion on filters: row by row, value by value, written without arrow's kernels.

use std::cmp::Ordering;
use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    ArrayRef, BinaryArray, BooleanArray, Date32Array, Decimal128Array, DictionaryArray, FixedSizeBinaryArray,
    Float32Array, Float64Array, Int8Array, Int64Array, LargeStringArray, RecordBatch, StringArray, StringViewArray,
    Time32SecondArray, TimestampMillisecondArray, UInt64Array,
};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

use super::super::filter::{CompareOp, Expr, Literal, Node, TextTest, col};
use crate::value::Value;

/// A value as the oracle compares it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Model {
    Boolean(bool),
    /// In units of 10^-4; everything the tests write has at most four decimals.
    Number(i128),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
}

/// What a column is made of, and how a literal reads there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Boolean,
    Number,
    Single,
    Double,
    Text,
    Bytes,
    /// The model is a number of nanoseconds.
    Moment,
    Time,
}

pub(crate) const COLUMNS: [(&str, Kind); 16] = [
    ("flag", Kind::Boolean),
    ("tiny", Kind::Number),
    ("big", Kind::Number),
    ("unsigned", Kind::Number),
    ("price", Kind::Number),
    ("single", Kind::Single),
    ("double", Kind::Double),
    ("text", Kind::Text),
    ("large", Kind::Text),
    ("view", Kind::Text),
    ("dict", Kind::Text),
    ("bytes", Kind::Bytes),
    ("pair", Kind::Bytes),
    ("day", Kind::Moment),
    ("at", Kind::Moment),
    ("clock", Kind::Time),
];

pub(crate) type Row = Vec<Option<Model>>;

/// Scales of 10^4 above any column, for literals that no column holds.
const FAR: i128 = i128::MAX / 2;

const WORDS: [&str; 9] = ["", "a", "ab", "abc", "aXc", "b%", "B_", "\\a\nb", "ünï"];
const FLOATS: [f64; 10] = [0.0, -0.0, 1.5, -1.5, 0.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300, -3e38];
const BLOBS: [&[u8]; 5] = [&[], &[0, 1], &[1], &[1, 0], &[255, 255]];
/// Text and nanoseconds since 1970.
const MOMENTS: [(&str, i128); 6] = [
    ("1970-01-01", 0),
    ("1970-01-02", 86_400_000_000_000),
    ("1970-01-01T00:00:00.0000005Z", 500),
    ("1970-01-01 12:00:00", 43_200_000_000_000),
    ("1970-01-02T01:00:00+01:00", 86_400_000_000_000),
    ("1969-12-31T23:59:59.999Z", -1_000_000),
];
const TIMES: [(&str, i128); 3] = [("00:00:00", 0), ("00:00:00.5", 500_000_000), ("12:00:00", 43_200_000_000_000)];

fn pick<T: Clone + std::fmt::Debug + 'static>(values: &[T]) -> BoxedStrategy<T> {
    proptest::sample::select(values.to_vec()).boxed()
}

/// A value that the column's type holds.
fn cell(name: &str, kind: Kind) -> BoxedStrategy<Option<Model>> {
    let scaled = |values: &[i128]| pick(values).prop_map(|value| Model::Number(value * 10_000)).boxed();
    let value: BoxedStrategy<Model> = match (name, kind) {
        ("tiny", _) => scaled(&[-128, -1, 0, 1, 2, 127]),
        ("big", _) => scaled(&[i64::MIN.into(), -1, 0, 1, 2, 128, (1 << 53) + 1, i64::MAX.into()]),
        ("unsigned", _) => scaled(&[0, 1, 2, i64::MAX as i128 + 1, u64::MAX.into()]),
        ("price", _) => {
            pick(&[-99_999_900, -15_000, 0, 11_000, 15_000, 15_100, 99_999_900]).prop_map(Model::Number).boxed()
        }
        ("pair", _) => pick(&[[0u8, 0], [0, 1], [1, 0], [255, 255]]).prop_map(|b| Model::Bytes(b.to_vec())).boxed(),
        ("day", _) => pick(&[-1i128, 0, 1]).prop_map(|d| Model::Number(d * 86_400_000_000_000)).boxed(),
        ("at", _) => pick(&[-1i128, 0, 1, 43_200_000, 86_400_000]).prop_map(|m| Model::Number(m * 1_000_000)).boxed(),
        (_, Kind::Time) => pick(&[0i128, 1, 43_200]).prop_map(|s| Model::Number(s * 1_000_000_000)).boxed(),
        (_, Kind::Boolean) => any::<bool>().prop_map(Model::Boolean).boxed(),
        (_, Kind::Single) => pick(&FLOATS).prop_map(|value| Model::Float(f64::from(value as f32))).boxed(),
        (_, Kind::Double) => pick(&FLOATS).prop_map(Model::Float).boxed(),
        (_, Kind::Text) => pick(&WORDS).prop_map(|word| Model::Text(word.into())).boxed(),
        _ => pick(&BLOBS).prop_map(|bytes| Model::Bytes(bytes.to_vec())).boxed(),
    };
    prop_oneof![1 => Just(None), 4 => value.prop_map(Some)].boxed()
}

pub(crate) fn rows() -> impl Strategy<Value = Vec<Row>> {
    let row: Vec<_> = COLUMNS.iter().map(|(name, kind)| cell(name, *kind)).collect();
    proptest::collection::vec(row, 1..20)
}

pub(crate) fn schema() -> Schema {
    let dictionary = DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8));
    let types = [
        DataType::Boolean,
        DataType::Int8,
        DataType::Int64,
        DataType::UInt64,
        DataType::Decimal128(6, 2),
        DataType::Float32,
        DataType::Float64,
        DataType::Utf8,
        DataType::LargeUtf8,
        DataType::Utf8View,
        dictionary,
        DataType::Binary,
        DataType::FixedSizeBinary(2),
        DataType::Date32,
        DataType::Timestamp(arrow_schema::TimeUnit::Millisecond, Some("+00:00".into())),
        DataType::Time32(arrow_schema::TimeUnit::Second),
    ];
    let fields = COLUMNS.iter().zip(types).map(|((name, _), data_type)| Field::new(*name, data_type, true));
    Schema::new(fields.collect::<Vec<_>>())
}

pub(crate) fn batch(rows: &[Row]) -> RecordBatch {
    let number = |at: usize, unit: i128| -> Vec<Option<i128>> {
        rows.iter()
            .map(|row| {
                row[at].as_ref().map(|v| match v {
                    Model::Number(n) => n / unit,
                    _ => panic!("{v:?}"),
                })
            })
            .collect()
    };
    let float = |at: usize| -> Vec<Option<f64>> {
        rows.iter()
            .map(|row| {
                row[at].as_ref().map(|v| match v {
                    Model::Float(n) => *n,
                    _ => panic!("{v:?}"),
                })
            })
            .collect()
    };
    let text = |at: usize| -> Vec<Option<&str>> {
        rows.iter()
            .map(|row| {
                row[at].as_ref().map(|v| match v {
                    Model::Text(n) => n.as_str(),
                    _ => panic!("{v:?}"),
                })
            })
            .collect()
    };
    let bytes = |at: usize| -> Vec<Option<&[u8]>> {
        rows.iter()
            .map(|row| {
                row[at].as_ref().map(|v| match v {
                    Model::Bytes(n) => n.as_slice(),
                    _ => panic!("{v:?}"),
                })
            })
            .collect()
    };
    let flags: Vec<_> = rows.iter().map(|row| row[0].as_ref().map(|v| *v == Model::Boolean(true))).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(BooleanArray::from(flags)),
        Arc::new(number(1, 10_000).into_iter().map(|v| v.map(|v| v as i8)).collect::<Int8Array>()),
        Arc::new(number(2, 10_000).into_iter().map(|v| v.map(|v| v as i64)).collect::<Int64Array>()),
        Arc::new(number(3, 10_000).into_iter().map(|v| v.map(|v| v as u64)).collect::<UInt64Array>()),
        Arc::new(Decimal128Array::from(number(4, 100)).with_data_type(DataType::Decimal128(6, 2))),
        Arc::new(float(5).into_iter().map(|v| v.map(|v| v as f32)).collect::<Float32Array>()),
        Arc::new(Float64Array::from(float(6))),
        Arc::new(StringArray::from(text(7))),
        Arc::new(LargeStringArray::from(text(8))),
        Arc::new(StringViewArray::from(text(9))),
        Arc::new(text(10).into_iter().collect::<DictionaryArray<Int8Type>>()),
        Arc::new(BinaryArray::from(bytes(11))),
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(bytes(12).into_iter(), 2).expect("pairs")),
        Arc::new(number(13, 86_400_000_000_000).into_iter().map(|v| v.map(|v| v as i32)).collect::<Date32Array>()),
        Arc::new(
            number(14, 1_000_000)
                .into_iter()
                .map(|v| v.map(|v| v as i64))
                .collect::<TimestampMillisecondArray>()
                .with_timezone("+00:00"),
        ),
        Arc::new(number(15, 1_000_000_000).into_iter().map(|v| v.map(|v| v as i32)).collect::<Time32SecondArray>()),
    ];
    RecordBatch::try_new(Arc::new(schema()), columns).expect("a batch")
}

/// A literal that a column of this kind can be compared with.
fn literal(kind: Kind) -> BoxedStrategy<Value> {
    let value: BoxedStrategy<Value> = match kind {
        Kind::Boolean => any::<bool>().prop_map(Value::Boolean).boxed(),
        Kind::Number => prop_oneof![
            pick(&[-129i64, -128, -1, 0, 1, 2, 127, 128, 1 << 53, (1 << 53) + 1, i64::MIN, i64::MAX])
                .prop_map(Value::Int),
            pick(&[i64::MAX as u64 + 1, u64::MAX]).prop_map(Value::UInt),
            pick(&[1.5, -1.5, 1.1, 0.001, -0.0, 9999.99, -9999.99, 1e300, f64::NAN, f64::INFINITY, f64::NEG_INFINITY])
                .prop_map(Value::Float),
        ]
        .boxed(),
        Kind::Single | Kind::Double => {
            prop_oneof![pick(&FLOATS).prop_map(Value::Float), pick(&[0i64, 1, -3]).prop_map(Value::Int)].boxed()
        }
        Kind::Text => pick(&WORDS).prop_map(|word| Value::Text(word.into())).boxed(),
        Kind::Bytes => pick(&[&[][..], &[0], &[0, 1], &[1, 0], &[1, 0, 0], &[255, 255], &[255, 255, 1]])
            .prop_map(|bytes: &[u8]| Value::Binary(bytes.to_vec()))
            .boxed(),
        Kind::Moment => pick(&MOMENTS).prop_map(|(text, _)| Value::Text(text.into())).boxed(),
        Kind::Time => pick(&TIMES).prop_map(|(text, _)| Value::Text(text.into())).boxed(),
    };
    prop_oneof![1 => Just(Value::Null), 9 => value].boxed()
}

fn leaf() -> BoxedStrategy<Expr> {
    let compare = pick(&COLUMNS).prop_flat_map(|(name, kind)| {
        let op =
            pick(&[CompareOp::Eq, CompareOp::NotEq, CompareOp::Lt, CompareOp::LtEq, CompareOp::Gt, CompareOp::GtEq]);
        (Just(name), op, literal(kind), any::<bool>()).prop_map(|(name, op, value, left)| {
            if left { col(name).compare(op, value.into()) } else { Expr::from(value).compare(op, col(name)) }
        })
    });
    let among = pick(&COLUMNS).prop_flat_map(|(name, kind)| {
        (Just(name), proptest::collection::vec(literal(kind), 0..8)).prop_map(|(name, list)| col(name).in_list(list))
    });
    let between = pick(&COLUMNS).prop_flat_map(|(name, kind)| {
        (Just(name), literal(kind), literal(kind)).prop_map(|(name, low, high)| col(name).between(low, high))
    });
    let null = pick(&COLUMNS).prop_map(|(name, _)| col(name).is_null());
    let text = (
        pick(&["text", "large", "view", "dict"]),
        pick(&["%", "", "a%", "%c", "%b%", "a_c", "_", "b\\%", "%\\_", "\\\\a%", "AB%", "a%b%c", "Ü%"]),
        0..3,
    )
        .prop_map(|(name, pattern, test)| match test {
            0 => col(name).like(pattern),
            1 => col(name).ilike(pattern),
            _ => col(name).starts_with(pattern),
        });
    let columns = (pick(&["single", "double", "big", "dict", "text"]), 0..3).prop_map(|(name, op)| match op {
        0 => col(name).eq(col(name)),
        1 => col(name).lt(col(name)),
        _ => col(name).gt_eq(col(name)),
    });
    let bare = pick(&[Expr::from(true), Expr::from(Value::Null), col("flag")]);
    prop_oneof![6 => compare, 3 => among, 2 => between, 1 => null, 3 => text, 1 => columns, 1 => bare].boxed()
}

pub(crate) fn expr() -> impl Strategy<Value = Expr> {
    leaf().prop_recursive(4, 16, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Expr::all),
            proptest::collection::vec(inner.clone(), 1..4).prop_map(Expr::any),
            inner.prop_map(Expr::not),
        ]
    })
}

/// What the filter says about the row: true, false or unknown.
#[expect(clippy::manual_try_fold, reason = "an unknown term does not end the chain")]
pub(crate) fn truth(expr: &Expr, row: &Row) -> Option<bool> {
    match expr.node() {
        Node::Column(_) | Node::Literal(_) => value(expr, row, Kind::Boolean).map(|v| v == Model::Boolean(true)),
        Node::Compare { left, op, right } => {
            let kind = kind_of(left).or(kind_of(right)).expect("a column on one side");
            compare(value(left, row, kind), *op, value(right, row, kind))
        }
        Node::In { operand, list } => {
            let kind = kind_of(operand).expect("a column");
            let mut found = Some(false);
            for literal in list {
                let Literal::Value(item) = literal else { panic!("{literal}") };
                found = or(found, compare(value(operand, row, kind), CompareOp::Eq, read(item, kind)));
            }
            found
        }
        Node::Between { operand, low, high } => {
            let kind = kind_of(operand).expect("a column");
            and(
                compare(value(operand, row, kind), CompareOp::GtEq, value(low, row, kind)),
                compare(value(operand, row, kind), CompareOp::LtEq, value(high, row, kind)),
            )
        }
        Node::IsNull(operand) => Some(value(operand, row, Kind::Text).is_none()),
        Node::Text { operand, test, pattern } => {
            let (Some(Model::Text(text)), Literal::Value(Value::Text(pattern))) =
                (value(operand, row, Kind::Text), pattern)
            else {
                return None;
            };
            Some(match test {
                TextTest::StartsWith => text.starts_with(pattern.as_str()),
                TextTest::Like => matches(&text.chars().collect::<Vec<_>>(), &pattern.chars().collect::<Vec<_>>()),
                TextTest::ILike => matches(
                    &text.to_lowercase().chars().collect::<Vec<_>>(),
                    &pattern.to_lowercase().chars().collect::<Vec<_>>(),
                ),
            })
        }
        Node::And(terms) => terms.iter().fold(Some(true), |all, term| and(all, truth(term, row))),
        Node::Or(terms) => terms.iter().fold(Some(false), |any, term| or(any, truth(term, row))),
        Node::Not(inner) => truth(inner, row).map(|outcome| !outcome),
        Node::TooDeep => panic!("too deep"),
    }
}

fn and(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    match (a, b) {
        (Some(false), _) | (_, Some(false)) => Some(false),
        (Some(true), Some(true)) => Some(true),
        _ => None,
    }
}

fn or(a: Option<bool>, b: Option<bool>) -> Option<bool> {
    and(a.map(|a| !a), b.map(|b| !b)).map(|both| !both)
}

fn kind_of(expr: &Expr) -> Option<Kind> {
    let Node::Column(name) = expr.node() else { return None };
    COLUMNS.iter().find(|(column, _)| column == name).map(|(_, kind)| *kind)
}

fn value(expr: &Expr, row: &Row, kind: Kind) -> Option<Model> {
    match expr.node() {
        Node::Column(name) => row[COLUMNS.iter().position(|(column, _)| column == name).expect("a column")].clone(),
        Node::Literal(Literal::Value(value)) => read(value, kind),
        other => panic!("{other:?}"),
    }
}

/// A literal as a column of this kind takes it.
fn read(value: &Value, kind: Kind) -> Option<Model> {
    let moment = |text: &str, table: &[(&str, i128)]| {
        Model::Number(table.iter().find(|(t, _)| *t == text).expect("a known text").1)
    };
    Some(match (value, kind) {
        (Value::Null, _) => return None,
        (Value::Boolean(value), _) => Model::Boolean(*value),
        (Value::Int(value), Kind::Single | Kind::Double) => Model::Float(*value as f64),
        (Value::Int(value), _) => Model::Number(i128::from(*value) * 10_000),
        (Value::UInt(value), _) => Model::Number(i128::from(*value) * 10_000),
        // A finite number that overflows lies between the largest number and infinity.
        (Value::Float(value), Kind::Single) if value.is_finite() && (*value as f32).is_infinite() => {
            Model::Float(*value)
        }
        (Value::Float(value), Kind::Single) => Model::Float(f64::from(*value as f32)),
        (Value::Float(value), Kind::Double) => Model::Float(*value),
        (Value::Float(value), _) if *value == f64::NEG_INFINITY => Model::Number(-FAR),
        (Value::Float(value), _) if value.is_nan() || *value > 1e20 => Model::Number(FAR),
        (Value::Float(value), _) => Model::Number((value * 10_000.0).round() as i128),
        (Value::Text(text), Kind::Moment) => moment(text, &MOMENTS),
        (Value::Text(text), Kind::Time) => moment(text, &TIMES),
        (Value::Text(text), _) => Model::Text(text.clone()),
        (Value::Binary(bytes), _) => Model::Bytes(bytes.clone()),
    })
}

fn compare(left: Option<Model>, op: CompareOp, right: Option<Model>) -> Option<bool> {
    let order = match (left?, right?) {
        (Model::Boolean(a), Model::Boolean(b)) => a.cmp(&b),
        (Model::Number(a), Model::Number(b)) => a.cmp(&b),
        (Model::Float(a), Model::Float(b)) => a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan())),
        (Model::Text(a), Model::Text(b)) => a.cmp(&b),
        (Model::Bytes(a), Model::Bytes(b)) => a.cmp(&b),
        (a, b) => panic!("{a:?} with {b:?}"),
    };
    Some(match op {
        CompareOp::Eq => order == Ordering::Equal,
        CompareOp::NotEq => order != Ordering::Equal,
        CompareOp::Lt => order == Ordering::Less,
        CompareOp::LtEq => order != Ordering::Greater,
        CompareOp::Gt => order == Ordering::Greater,
        CompareOp::GtEq => order != Ordering::Less,
    })
}

fn matches(text: &[char], pattern: &[char]) -> bool {
    match pattern {
        [] => text.is_empty(),
        ['%', rest @ ..] => (0..=text.len()).any(|skip| matches(&text[skip..], rest)),
        ['_', rest @ ..] => !text.is_empty() && matches(&text[1..], rest),
        ['\\', c, rest @ ..] | [c, rest @ ..] => text.first() == Some(c) && matches(&text[1..], rest),
    }
}

use std::sync::Arc;

use arrow_array::{
    BinaryArray, Date32Array, Decimal128Array, DictionaryArray, Float64Array, Int64Array, StringArray, UInt8Array,
};
use proptest::prelude::*;

use super::*;
use crate::query::{Expr, bind, col};
use crate::value::Value;

const ZONE: usize = 16;

fn schema() -> Schema {
    Schema::new(vec![
        Field::new("int", DataType::Int64, true),
        Field::new("small", DataType::UInt8, true),
        Field::new("float", DataType::Float64, true),
        Field::new("text", DataType::Utf8, true),
        Field::new("bytes", DataType::Binary, true),
        Field::new("flag", DataType::Boolean, true),
        Field::new("day", DataType::Date32, true),
        Field::new("price", DataType::Decimal128(10, 2), true),
        Field::new("word", DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)), true),
    ])
}

/// One row, by a number: neighbours are alike, so that zones differ.
fn texts(at: i64) -> String {
    match at.rem_euclid(7) {
        0 => String::new(),
        1 => "x".repeat(64 + at.rem_euclid(5) as usize),
        2 => format!("{}é{at}", "y".repeat(63)),
        3 => format!("{}{at}", "\u{10FFFF}".repeat(17)),
        _ => format!("t{at}"),
    }
}

fn floats(at: i64) -> f64 {
    match at.rem_euclid(9) {
        0 => f64::NAN,
        1 => -f64::NAN,
        2 => -0.0,
        3 => 0.0,
        4 => f64::INFINITY,
        _ => at as f64 / 2.0,
    }
}

fn bytes(at: i64) -> Vec<u8> {
    match at.rem_euclid(4) {
        0 => vec![0xFF; 70],
        1 => [vec![0xFF; 63], vec![at as u8; 5]].concat(),
        _ => vec![at as u8; at.rem_euclid(3) as usize],
    }
}

fn batch(rows: &[Option<i64>]) -> RecordBatch {
    let words: Vec<Option<String>> = rows.iter().map(|at| at.map(texts)).collect();
    let byte_values: Vec<Option<Vec<u8>>> = rows.iter().map(|at| at.map(bytes)).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(rows.iter().copied().collect::<Int64Array>()),
        Arc::new(rows.iter().map(|at| at.map(|at| at as u8)).collect::<UInt8Array>()),
        Arc::new(rows.iter().map(|at| at.map(floats)).collect::<Float64Array>()),
        Arc::new(words.iter().map(Option::as_deref).collect::<StringArray>()),
        Arc::new(byte_values.iter().map(Option::as_deref).collect::<BinaryArray>()),
        Arc::new(rows.iter().map(|at| at.map(|at| at % 3 == 0)).collect::<BooleanArray>()),
        Arc::new(rows.iter().map(|at| at.map(|at| at as i32)).collect::<Date32Array>()),
        Arc::new(
            rows.iter()
                .map(|at| at.map(i128::from))
                .collect::<Decimal128Array>()
                .with_precision_and_scale(10, 2)
                .expect("it fits"),
        ),
        Arc::new(words.iter().map(Option::as_deref).collect::<DictionaryArray<arrow_array::types::Int32Type>>()),
    ];
    RecordBatch::try_new(Arc::new(schema()), columns).expect("columns of the schema")
}

fn planted(batch: &RecordBatch, piece: usize) -> HashMap<String, String> {
    let mut writer = SeedWriter::with_zones(&schema(), ZONE);
    let mut at = 0;
    while at < batch.num_rows() {
        let length = piece.min(batch.num_rows() - at).min(ZONE - at % ZONE);
        writer.observe(&batch.slice(at, length)).expect("observed");
        at += length;
    }
    writer.finish().expect("finished").into_iter().collect()
}

fn seeds(batch: &RecordBatch, metadata: &HashMap<String, String>) -> Seeds {
    Seeds::with_zones(&schema(), metadata, batch.num_rows() as u64, ZONE, |_| true)
}

/// A condition on one column with a value that rows may have.
fn condition(column: usize, op: usize, at: i64) -> Expr {
    let name = schema().field(column).name().clone();
    let value: Value = match column {
        0 => Value::Int(at),
        1 => Value::Int(at.rem_euclid(256)),
        2 => Value::Float(floats(at)),
        3 | 8 => Value::Text(texts(at)),
        4 => Value::Binary(bytes(at)),
        5 => Value::Boolean(at % 2 == 0),
        6 => Value::Text(format!("1970-01-{:02}", 1 + at.rem_euclid(28))),
        _ => Value::Text(format!("{}.{:02}", at / 100, at.rem_euclid(100))),
    };
    match op {
        0 => col(name).eq(value),
        1 => col(name).not_eq(value),
        2 => col(name).lt(value),
        3 => col(name).lt_eq(value),
        4 => col(name).gt(value),
        5 => col(name).gt_eq(value),
        6 => col(name).is_null(),
        7 if column == 3 => col(name).starts_with(texts(at).chars().take(3).collect::<String>()),
        _ => col(name).in_list([value, Value::Null]),
    }
}

fn check(batch: &RecordBatch, seeds: &Seeds, filter: &Expr) -> usize {
    let predicate = bind(filter, &schema()).expect("it binds");
    let kept = seeds.zones(&predicate);
    let passes = predicate.evaluate(batch).expect("it evaluates").passes();
    for (row, passes) in passes.iter().enumerate() {
        assert!(!passes || kept[row / ZONE], "row {row} passes {filter:?} and its zone is left out");
    }
    kept.iter().filter(|kept| !**kept).count()
}

proptest! {
    #[test]
    fn g_no_zone_with_a_row_that_passes_is_left_out(
        rows in prop::collection::vec(prop::option::weighted(0.9, -40i64..300), 1..120),
        sorts: bool,
        piece in 1usize..20,
        terms in prop::collection::vec((0usize..9, 0usize..9, -40i64..300, any::<bool>(), any::<bool>()), 1..4),
    ) {
        let mut rows = rows;
        if sorts {
            rows.sort();
        }
        let batch = batch(&rows);
        let seeds = seeds(&batch, &planted(&batch, piece));
        prop_assert_eq!(seeds.damaged(), 0);
        let mut terms = terms.into_iter().map(|(column, op, at, negates, joins)| {
            let term = condition(column, op, at);
            (if negates { !term } else { term }, joins)
        });
        let (mut filter, _) = terms.next().expect("at least one");
        for (term, joins) in terms {
            check(&batch, &seeds, &term);
            filter = if joins { filter.and(term) } else { filter.or(term) };
        }
        check(&batch, &seeds, &filter);
        check(&batch, &seeds, &!filter);
    }
}

#[test]
fn g_a_filter_that_few_zones_can_match_leaves_out_the_rest() {
    let batch = batch(&(0..160).map(Some).collect::<Vec<_>>());
    let seeds = seeds(&batch, &planted(&batch, ZONE));
    assert_eq!(check(&batch, &seeds, &col("int").eq(33)), 9);
    assert_eq!(check(&batch, &seeds, &col("int").gt(100).and(col("int").lt(110))), 9);
    assert_eq!(check(&batch, &seeds, &col("int").is_null()), 10);
    assert_eq!(check(&batch, &seeds, &!col("int").gt(15)), 9);
    assert_eq!(check(&batch, &seeds, &col("day").eq("1970-01-03")), 9);
}

#[test]
fn g_a_missing_or_damaged_seed_keeps_every_zone_of_its_column_and_is_counted() {
    let batch = batch(&(0..64).map(Some).collect::<Vec<_>>());
    let whole = planted(&batch, ZONE);
    let key = "tidewal.seed.name:int";
    let mut damages: Vec<Option<String>> = vec![None, Some(String::new()), Some("{}".into())];
    damages.push(Some(whole[key].replacen("\"rows\":64", "\"rows\":65", 1)));
    damages.push(Some(whole[key].replacen("\"zone_rows\":16", "\"zone_rows\":8", 1)));
    damages.push(Some(whole["tidewal.seed.name:text"].clone()));
    let stream = whole[key].find("stream").expect("it has one") + 40;
    damages.push(Some(format!("{}Q{}", &whole[key][..stream], &whole[key][stream + 1..])));
    damages.push(Some(format!("{}{}", &whole[key][..stream], &whole[key][stream + 4..])));
    for damage in damages {
        let mut metadata = whole.clone();
        metadata.remove(key);
        metadata.extend(damage.clone().map(|damage| (key.to_owned(), damage)));
        let seeds = seeds(&batch, &metadata);
        assert_eq!(seeds.damaged(), 1, "{damage:?}");
        assert_eq!(check(&batch, &seeds, &col("int").eq(3)), 0);
        assert_eq!(check(&batch, &seeds, &col("day").eq("1970-01-03")), 3, "other columns prune on");
    }
}

#[test]
fn g_bounds_of_long_values_are_cut_to_64_bytes_and_stay_bounds() {
    let long: ArrayRef = Arc::new(StringArray::from(vec!["é".repeat(40)]));
    let low = cut(&long, false).expect("cut").expect("it is long");
    assert_eq!(low.as_string::<i32>().value(0), "é".repeat(32));
    let high = cut(&long, true).expect("cut").expect("it is long");
    assert_eq!(high.as_string::<i32>().value(0), format!("{}ê", "é".repeat(31)));
    let last: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&[0xFF; 65]]));
    assert!(cut(&last, true).expect("cut").expect("it is long").is_null(0), "nothing is above it");
    let short: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&[0xFF; 64]]));
    assert!(cut(&short, true).expect("cut").is_none());
}

#[test]
fn g_a_column_is_found_by_its_field_id_whatever_its_name() {
    let field = |name: &str| {
        Field::new(name, DataType::Int64, true).with_metadata([(FIELD_ID.to_owned(), "7".to_owned())].into())
    };
    let written = Schema::new(vec![field("before")]);
    let mut writer = SeedWriter::with_zones(&written, ZONE);
    let rows: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    writer.observe(&RecordBatch::try_new(Arc::new(written), vec![rows]).expect("a batch")).expect("observed");
    let metadata: HashMap<String, String> = writer.finish().expect("finished").into_iter().collect();
    let renamed = Schema::new(vec![field("after")]);
    let seeds = Seeds::with_zones(&renamed, &metadata, 2, ZONE, |_| true);
    assert_eq!(seeds.damaged(), 0);
    assert_eq!(seeds.zones(&bind(&col("after").eq(5), &renamed).expect("it binds")), [false]);
}

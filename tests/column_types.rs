//! Columns of every type survive put, delete, lookup and reopening (P1, R1).

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, new_null_array};
use arrow_schema::{DataType, Field, Fields, IntervalUnit, Schema, TimeUnit, UnionFields, UnionMode};
use arrow_select::concat::concat;
use object_store::ObjectStore;
use support::fault_store::Op;
use support::shard::{builder, faulty, in_time};
use tidewal::{Engine, Key, Scan, TableSpec};

fn field(name: &str, data_type: DataType, nullable: bool) -> Arc<Field> {
    Arc::new(Field::new(name, data_type, nullable))
}

fn types() -> Vec<DataType> {
    use DataType::*;
    let strict = |of: DataType| field("item", of, false);
    let entries = Struct(Fields::from(vec![Field::new("keys", Utf8, false), Field::new("values", Int32, true)]));
    let union =
        UnionFields::try_new([0, 5], [Field::new("a", Int32, false), Field::new("b", Utf8, true)]).expect("two");
    vec![
        Null,
        Boolean,
        Utf8View,
        BinaryView,
        FixedSizeBinary(3),
        Decimal32(5, 2),
        Decimal256(50, -3),
        Timestamp(TimeUnit::Nanosecond, Some("Europe/Berlin".into())),
        Interval(IntervalUnit::MonthDayNano),
        Dictionary(Box::new(Int8), Box::new(Utf8)),
        Dictionary(Box::new(UInt64), Box::new(Utf8View)),
        List(strict(Dictionary(Box::new(Int32), Box::new(Utf8)))),
        List(strict(Utf8View)),
        LargeList(strict(Int32)),
        ListView(strict(Int32)),
        LargeListView(strict(Utf8)),
        FixedSizeList(strict(Float32), 4),
        Struct(Fields::from(vec![Field::new("x", Int32, false), Field::new("y", Utf8View, true)])),
        Struct(Fields::empty()),
        Map(field("entries", entries, false), false),
        Union(union.clone(), UnionMode::Sparse),
        Union(union, UnionMode::Dense),
        RunEndEncoded(field("run_ends", Int32, false), field("values", Utf8, true)),
        List(strict(Struct(Fields::from(vec![Field::new("x", Int32, false)])))),
    ]
}

fn values(of: &DataType, rows: usize) -> ArrayRef {
    use arrow_array::*;
    let ints = || Int32Array::from_iter_values((0..rows as i32).map(|value| value / 2));
    let texts =
        || StringArray::from_iter_values((0..rows).map(|at| format!("a text that is longer than a view {}", at / 2)));
    let offsets = || arrow_buffer::OffsetBuffer::from_lengths(vec![1; rows]);
    let cast = |from: &dyn Array| arrow_cast::cast(from, of).ok();
    match of {
        DataType::FixedSizeList(item, size) => {
            let all = values(item.data_type(), rows * *size as usize);
            Arc::new(FixedSizeListArray::try_new_with_length(Arc::clone(item), *size, all, None, rows).expect("a list"))
        }
        DataType::List(item) => {
            Arc::new(ListArray::new(Arc::clone(item), offsets(), values(item.data_type(), rows), None))
        }
        DataType::LargeList(item) => {
            let offsets = arrow_buffer::OffsetBuffer::from_lengths(vec![1; rows]);
            Arc::new(LargeListArray::new(Arc::clone(item), offsets, values(item.data_type(), rows), None))
        }
        DataType::ListView(item) => {
            let (at, sizes) = ((0..rows as i32).collect::<Vec<_>>(), vec![1; rows]);
            Arc::new(ListViewArray::new(
                Arc::clone(item),
                at.into(),
                sizes.into(),
                values(item.data_type(), rows),
                None,
            ))
        }
        DataType::LargeListView(item) => {
            let (at, sizes) = ((0..rows as i64).collect::<Vec<_>>(), vec![1; rows]);
            Arc::new(LargeListViewArray::new(
                Arc::clone(item),
                at.into(),
                sizes.into(),
                values(item.data_type(), rows),
                None,
            ))
        }
        DataType::Struct(fields) if fields.is_empty() => Arc::new(StructArray::new_empty_fields(rows, None)),
        DataType::Struct(fields) => {
            let columns = fields.iter().map(|field| values(field.data_type(), rows)).collect();
            Arc::new(StructArray::new(fields.clone(), columns, None))
        }
        DataType::Map(entries, sorted) => {
            let inner = values(entries.data_type(), rows);
            let inner = cast::AsArray::as_struct(&inner).clone();
            Arc::new(MapArray::new(Arc::clone(entries), offsets(), inner, None, *sorted))
        }
        DataType::Union(fields, mode) => {
            let ids: Vec<i8> = (0..rows).map(|at| if at % 2 == 0 { 0 } else { 5 }).collect();
            let dense = (*mode == UnionMode::Dense).then(|| (0..rows as i32).collect::<Vec<_>>().into());
            let children = vec![Arc::new(ints()) as ArrayRef, Arc::new(texts())];
            Arc::new(UnionArray::try_new(fields.clone(), ids.into(), dense, children).expect("a union"))
        }
        DataType::RunEndEncoded(_, _) => cast(&texts()).unwrap_or_else(|| new_null_array(of, rows)),
        DataType::FixedSizeBinary(width) => {
            let each = (0..rows).map(|at| vec![at as u8; *width as usize]);
            Arc::new(FixedSizeBinaryArray::try_from_iter(each).expect("of one width"))
        }
        _ => cast(&texts())
            .filter(|array| array.null_count() == 0)
            .or_else(|| cast(&ints()))
            .unwrap_or_else(|| new_null_array(of, rows)),
    }
}

async fn all(engine: &Engine) -> RecordBatch {
    let rows = engine.scan(Scan::new()).await.expect("a scan").collect_all().await.expect("rows");
    let keys = [1, 7, 99].map(Key::from).to_vec();
    let found = engine.get_many(keys).await.expect("lookups");
    assert_eq!(found.rows.num_rows(), 2);
    engine.get(7).await.expect("a lookup");
    rows
}

async fn check(inner: &Arc<dyn ObjectStore>, of: &DataType, nullable: bool) {
    let schema = Arc::new(Schema::new_with_metadata(
        vec![Field::new("id", DataType::Int64, false), Field::new("v", of.clone(), nullable)],
        [("tidewal.epoch".to_owned(), "mine".to_owned())].into(),
    ));
    let spec = TableSpec::new(Arc::clone(&schema)).primary_key(["id"]);
    let open = || async { in_time(builder(Arc::clone(inner)).spec(spec.clone()).open()).await };
    let engine = open().await.unwrap_or_else(|error| panic!("{of} opens: {error}"));
    let column = values(of, 10);
    let batch = |ids: Vec<i64>, column: ArrayRef| {
        RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(Int64Array::from(ids)), column]).expect("a batch")
    };
    engine.put(batch((0..10).collect(), Arc::clone(&column))).await.unwrap_or_else(|error| panic!("{of}: {error}"));
    let joined = [batch((10..13).collect(), column.slice(4, 3)), batch(vec![1], column.slice(9, 1))];
    engine.put_all(joined.to_vec()).await.unwrap_or_else(|error| panic!("{of}: {error}"));
    if nullable {
        engine.put(batch(vec![20, 21], new_null_array(of, 2))).await.unwrap_or_else(|error| panic!("{of}: {error}"));
    }
    let key = batch(vec![3], column.slice(0, 1)).project(&[0]).expect("the key");
    engine.delete(&key).await.unwrap_or_else(|error| panic!("{of}, delete: {error}"));
    let before = all(&engine).await;
    let expected = concat(&[
        &column.slice(0, 1),
        &column.slice(2, 1),
        &column.slice(4, 6),
        &column.slice(4, 3),
        &column.slice(9, 1),
    ]);
    if !matches!(of, DataType::Union(..) | DataType::RunEndEncoded(..))
        && let Ok(expected) = expected
    {
        assert_eq!(&before.column(1).slice(0, 12), &expected, "{of}");
    }
    engine.close().await.expect("closes");
    let engine = open().await.unwrap_or_else(|error| panic!("{of} reopens: {error}"));
    assert_eq!(all(&engine).await, before, "{of}");
    engine.close().await.expect("closes");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r1_columns_of_every_type_survive_a_delete_and_a_reopening() {
    let mut failed = Vec::new();
    for of in types() {
        for nullable in [true, false] {
            if matches!(of, DataType::Null | DataType::Interval(_)) && !nullable {
                continue;
            }
            let (inner, _) = faulty();
            let name = format!("{of} nullable {nullable}");
            let checked = {
                let of = of.clone();
                tokio::spawn(async move { check(&inner, &of, nullable).await })
            };
            if let Err(error) = checked.await {
                failed.push(format!("{name}: {error}"));
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

#[tokio::test]
async fn o8_a_type_that_the_store_would_give_back_as_another_is_refused_before_anything_is_written() {
    let (inner, faults) = faulty();
    let without_zone = DataType::Timestamp(TimeUnit::Nanosecond, Some("".into()));
    let schema = Schema::new(vec![Field::new("at", without_zone, true)]);
    let open = builder(Arc::new(faults.clone())).spec(TableSpec::new(Arc::new(schema))).open().await;
    let text = open.expect_err("refused").to_string();
    assert!(text.contains("column `at`") && text.contains("gives back as Timestamp(ns)"), "{text}");
    assert_eq!(faults.count(Op::Put, ""), 0, "O5");
    drop(inner);
}

#[test]
fn o1_values_without_width_are_refused_at_any_depth() {
    let wide = DataType::FixedSizeBinary(0);
    for of in [
        wide.clone(),
        DataType::FixedSizeList(field("item", DataType::Int8, true), 0),
        DataType::List(field("item", wide, true)),
    ] {
        let schema = Schema::new(vec![Field::new("v", of, true)]);
        let text = TableSpec::new(Arc::new(schema)).validate().expect_err("refused").to_string();
        assert!(text.contains("column `v`"), "{text}");
    }
}

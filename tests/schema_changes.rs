//! A table that gains a column, or whose column gets another name, between two opens (O8).

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use object_store::ObjectStore;
use support::shard::{builder, faulty, in_time};
use tidewal::{Engine, Error, IndexSpec, Result, Scan, TableSpec, col};

fn field(name: &str, data_type: DataType, nullable: bool, id: i32) -> Field {
    Field::new(name, data_type, nullable).with_metadata([("PARQUET:field_id".to_owned(), id.to_string())].into())
}

fn before() -> TableSpec {
    let fields = vec![field("id", DataType::Int64, false, 1), field("text", DataType::Utf8, true, 2)];
    TableSpec::new(Arc::new(Schema::new(fields))).primary_key(["id"]).index(IndexSpec::btree("by_text", ["text"]))
}

/// `text` is now `words`, and `size` is new.
fn after() -> TableSpec {
    let fields = vec![
        field("id", DataType::Int64, false, 1),
        field("size", DataType::Int64, true, 3),
        field("words", DataType::Utf8, true, 2),
    ];
    TableSpec::new(Arc::new(Schema::new(fields))).primary_key(["id"]).index(IndexSpec::btree("by_text", ["words"]))
}

fn rows(schema: &SchemaRef, ids: std::ops::Range<i64>) -> RecordBatch {
    let texts: ArrayRef = Arc::new(StringArray::from_iter_values(ids.clone().map(|id| format!("text {id}"))));
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(ids));
    let columns =
        if schema.fields().len() == 2 { vec![numbers, texts] } else { vec![Arc::clone(&numbers), numbers, texts] };
    RecordBatch::try_new(Arc::clone(schema), columns).expect("columns of the schema")
}

async fn open(store: &Arc<dyn ObjectStore>, spec: TableSpec) -> Result<Engine> {
    in_time(builder(Arc::clone(store)).spec(spec).open()).await
}

#[tokio::test]
async fn o8_a_column_added_and_one_renamed_by_its_field_id_are_found_in_every_tier() {
    let (inner, _) = faulty();
    let engine = open(&inner, before()).await.expect("opens");
    engine.put(rows(engine.schema(), 0..10)).await.expect("written");
    in_time(engine.flush()).await.expect("flushed");
    engine.put(rows(engine.schema(), 10..20)).await.expect("written");
    // Ten rows are in a generation, ten in the log.
    engine.abort();
    let mut engine = open(&inner, after()).await.expect("opens");
    engine.put(rows(engine.schema(), 20..30)).await.expect("written");
    for round in ["in memory", "in generations", "with the stored spec"] {
        let all = engine.scan(Scan::new()).await.expect("a scan").collect_all().await.expect("rows");
        let names: Vec<&str> = all.schema_ref().fields().iter().map(|field| field.name().as_str()).collect();
        assert_eq!((names, all.num_rows()), (vec!["id", "size", "words"], 30), "{round}");
        assert_eq!(all.column(1).null_count(), 20, "{round}: rows from before have no size");
        for id in [3, 13, 23] {
            let text = format!("text {id}");
            let found = engine.scan(Scan::new().filter(col("words").eq(text.as_str()))).await.expect("a scan");
            let found = found.collect_all().await.expect("rows");
            assert_eq!(found.column(0).as_primitive::<Int64Type>().values(), &[id], "{round}");
            let row = engine.get(id).await.expect("a lookup").row().cloned().expect("it is there");
            assert_eq!(row.column(2).as_string::<i32>().value(0), text, "{round}");
        }
        let found = engine.scan(Scan::new().filter(col("size").gt(25))).await.expect("a scan");
        assert_eq!(found.collect_all().await.expect("rows").num_rows(), 4, "{round}");
        assert_eq!(engine.stats().seeds_unusable, 0, "{round}");
        in_time(engine.close()).await.expect("closed");
        let stored = Engine::builder(tidewal::Store::new(Arc::clone(&inner), "shard"));
        engine = if round == "in memory" { open(&inner, after()).await } else { in_time(stored.open()).await }
            .expect("opens");
    }
}

#[tokio::test]
async fn o8_a_change_that_rows_cannot_follow_is_refused_with_its_reason_and_changes_nothing() {
    let (inner, _) = faulty();
    let engine = open(&inner, before()).await.expect("opens");
    engine.put(rows(engine.schema(), 0..10)).await.expect("written");
    let spec = |fields: Vec<Field>| TableSpec::new(Arc::new(Schema::new(fields))).primary_key(["id"]);
    let (id, text) = (field("id", DataType::Int64, false, 1), field("text", DataType::Utf8, true, 2));
    let by_text = IndexSpec::btree("by_text", ["text"]);
    let refused = [
        (spec(vec![id.clone()]), "`text` is gone"),
        (spec(vec![id.clone(), field("text", DataType::Utf8, true, 5)]).index(by_text.clone()), "`text` is gone"),
        (spec(vec![id.clone(), field("text", DataType::LargeUtf8, true, 2)]).index(by_text.clone()), "another type"),
        (
            spec(vec![id.clone(), text.clone(), field("size", DataType::Int64, false, 3)]).index(by_text),
            "`size` is not nullable",
        ),
        (spec(vec![id, text]), "the indexes are others"),
    ];
    for (spec, reason) in refused {
        let error = open(&inner, spec).await.expect_err("refused");
        assert!(matches!(error, Error::InvalidInput { .. }) && error.to_string().contains(reason), "{error}");
    }
    engine.put(rows(engine.schema(), 10..20)).await.expect("O5: nobody was fenced");
}

//! The engine inside a tokio program: write, read back, delete, look at an older state, close.
//!
//! `cargo run --example embed`

use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use tidewal::{Engine, IndexSpec, Order, Scan, Store, TableSpec, col};

type BoxError = Box<dyn std::error::Error>;

fn notes(schema: &SchemaRef, rows: &[(i64, &str, &str)]) -> Result<RecordBatch, BoxError> {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.1))),
        Arc::new(StringArray::from_iter_values(rows.iter().map(|row| row.2))),
    ];
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("topic", DataType::Utf8, true),
        Field::new("text", DataType::Utf8, true),
    ]));
    let spec = TableSpec::new(Arc::clone(&schema)).primary_key(["id"]).index(IndexSpec::btree("by_topic", ["topic"]));

    // `file:///var/lib/notes` or `s3://bucket/notes` would go here just as well.
    let engine = Engine::builder(Store::memory()).spec(spec).open().await?;

    let rows = [(1, "sea", "tides rise"), (2, "sea", "tides fall"), (3, "sky", "clouds pass")];
    let first = engine.put(notes(&schema, &rows)?).await?;
    println!("rows {first} are durable and visible");

    engine.put(notes(&schema, &[(2, "moon", "tides follow the moon")])?).await?;
    let gone = RecordBatch::try_new(Arc::new(schema.project(&[0])?), vec![Arc::new(Int64Array::from(vec![3]))])?;
    engine.delete(&gone).await?;

    for key in [1, 2, 3, 4] {
        println!("get {key}: {}", engine.get(key).await?);
    }

    let scan = Scan::new().filter(col("topic").in_list(["sea", "moon"])).order_by(Order::column("topic"));
    let now = engine.scan(scan.clone()).await?.collect_all().await?;
    let then = engine.snapshot_as_of(first.end()).await?.scan(scan)?.collect_all().await?;
    println!("in the sea or on the moon: {} rows now, {} before the changes", now.num_rows(), then.num_rows());

    engine.close().await?;
    Ok(())
}

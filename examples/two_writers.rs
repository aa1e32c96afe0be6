//! Two writers of one shard: the second fences the first, and what each of them then sees.
//!
//! `cargo run --example two_writers`

use std::sync::Arc;

use arrow_array::{Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use tidewal::{Engine, Error, Scan, Store, TableSpec};

type BoxError = Box<dyn std::error::Error>;

fn row(schema: &SchemaRef, id: i64, by: &str) -> Result<RecordBatch, BoxError> {
    let (id, by) = (Int64Array::from(vec![id]), StringArray::from(vec![by]));
    Ok(RecordBatch::try_new(Arc::clone(schema), vec![Arc::new(id), Arc::new(by)])?)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let schema =
        Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("by", DataType::Utf8, true)]));
    let store = Store::memory();
    let spec = TableSpec::new(Arc::clone(&schema)).primary_key(["id"]);

    let first = Engine::builder(store.clone()).spec(spec).open().await?;
    first.put(row(&schema, 1, "first")?).await?;
    println!("the first writer has epoch {}", first.stats().epoch);

    // The shard exists now: its spec is stored with it.
    let second = Engine::builder(store).open().await?;
    println!("the second writer has epoch {} and found {} row", second.stats().epoch, second.cursors().visible());

    // The first learns of it at its next write, which is not acknowledged.
    match first.put(row(&schema, 2, "first")?).await {
        Err(error @ Error::Fenced { .. }) => println!("the first writer's put: {error}"),
        other => return Err(format!("expected to be fenced, got {other:?}").into()),
    }
    match first.get(1).await {
        Err(error @ Error::Fenced { .. }) => println!("the first writer's reads: {error}"),
        other => return Err(format!("expected to be fenced, got {other:?}").into()),
    }

    second.put(row(&schema, 3, "second")?).await?;
    let rows = second.scan(Scan::new()).await?.collect_all().await?;
    println!("the second writer goes on, and sees ids {:?}", rows.column(0));
    second.close().await?;
    Ok(())
}

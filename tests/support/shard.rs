//! Shards for tests: a schema, rows of it, and ways to open and to look behind the engine.
#![allow(dead_code, unreachable_pub, reason = "each test uses its own part of the support")]

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use tidewal::{Components, Engine, EngineBuilder, IndexSpec, Lookup, Result, Settings, Store, TableSpec};

use super::clock::TestClock;
use super::fault_store::FaultStore;

/// `id: Int64` (the key), `text: Utf8`.
pub fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false), Field::new("text", DataType::Utf8, true)]))
}

/// The schema with its key and a B-tree on the text.
pub fn spec() -> TableSpec {
    TableSpec::new(schema()).primary_key(["id"]).index(IndexSpec::btree("by_text", ["text"]))
}

/// Rows with these ids; the text is `{tag} {id}`.
pub fn rows(ids: Range<i64>, tag: &str) -> RecordBatch {
    let texts = ids.clone().map(|id| format!("{tag} {id}"));
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from_iter_values(ids.clone())), Arc::new(StringArray::from_iter_values(texts))];
    RecordBatch::try_new(schema(), columns).expect("columns of the schema")
}

/// Keys as a delete takes them.
pub fn keys(ids: Range<i64>) -> RecordBatch {
    rows(ids, "").project(&[0]).expect("the key")
}

/// An in-memory store, and the faults in front of it.
pub fn faulty() -> (Arc<dyn ObjectStore>, FaultStore) {
    let inner: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let faults = FaultStore::new(Arc::clone(&inner));
    (inner, faults)
}

/// Settings that write without pause.
pub fn settings() -> Settings {
    Settings { wal_flush_interval: Some(Duration::ZERO), ..Settings::default() }
}

/// A builder over the store, with retries that take no time.
pub fn builder(store: Arc<dyn ObjectStore>) -> EngineBuilder {
    let components = Components { clock: Arc::new(TestClock::automatic()), ..Components::default() };
    Engine::builder(Store::new(store, "shard")).spec(spec()).settings(settings()).components(components)
}

/// Opens the shard.
pub async fn open(store: &(impl ObjectStore + Clone)) -> Result<Engine> {
    builder(Arc::new(store.clone())).open().await
}

/// Opens the shard in the store behind the faults.
pub async fn reopen(inner: &Arc<dyn ObjectStore>) -> Engine {
    builder(Arc::clone(inner)).open().await.expect("the shard opens")
}

/// Fails the test where something hangs. Long enough for a busy machine; no test waits for it.
pub async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("it did not hang")
}

/// The ids of all rows a reopened shard has, ascending.
pub async fn found_ids(inner: &Arc<dyn ObjectStore>) -> Vec<i64> {
    let rows = reopen(inner).await.scan(tidewal::Scan::new()).await.expect("a scan").collect_all().await.expect("rows");
    let mut ids = rows.column(0).as_primitive::<Int64Type>().values().to_vec();
    ids.sort_unstable();
    ids
}

/// The text of the row with this key.
pub async fn text(engine: &Engine, id: i64) -> Option<String> {
    match engine.get(id).await.expect("the shard answers") {
        Lookup::Found(row) => Some(row.column(1).as_string::<i32>().value(0).to_owned()),
        _ => None,
    }
}

/// The ids of all rows in the log, in order, read with nothing but arrow.
pub async fn logged_ids(store: &Arc<dyn ObjectStore>) -> Vec<i64> {
    use futures::TryStreamExt;
    let prefix = object_store::path::Path::from("shard/wal");
    let objects: Vec<_> = store.list(Some(&prefix)).try_collect().await.expect("it lists");
    let mut entries = Vec::new();
    for object in objects {
        let bytes = store.get(&object.location).await.expect("it is there").bytes().await.expect("it reads");
        let reader = StreamReader::try_new(bytes.as_ref(), None).expect("an Arrow stream");
        let position: u64 = reader.schema().metadata()["tidewal.position"].parse().expect("a position");
        let batches: Vec<RecordBatch> = reader.map(|batch| batch.expect("rows")).collect();
        entries.push((position, batches));
    }
    entries.sort_by_key(|(position, _)| *position);
    let batches = entries.into_iter().flat_map(|(_, batches)| batches);
    batches.flat_map(|batch| batch.column(0).as_primitive::<Int64Type>().values().to_vec()).collect()
}

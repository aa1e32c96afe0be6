//! The engine through its actors' addresses alone, beside an actor of the embedder's own that
//! reacts to what becomes of the shard.
//!
//! `cargo run --example actors`

use std::sync::Arc;

use actix::{Actor, Context, Handler};
use arrow_array::{Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use tidewal::actors::herald::{ShardEvent, Subscribe};
use tidewal::actors::reader::{Get, RunScan};
use tidewal::actors::wal_appender::Append;
use tidewal::{Engine, ReadLevel, Scan, Store, TableSpec};

type BoxError = Box<dyn std::error::Error>;

/// An embedder's actor: it wants to know when the shard is no longer to be used.
struct Watchman {
    report: tokio::sync::mpsc::UnboundedSender<ShardEvent>,
}

impl Actor for Watchman {
    type Context = Context<Self>;
}

impl Handler<ShardEvent> for Watchman {
    type Result = ();

    fn handle(&mut self, event: ShardEvent, _: &mut Self::Context) {
        println!("the watchman hears: {event:?}");
        // The program below ends when it has heard enough; until then it listens.
        let _ = self.report.send(event);
    }
}

// The embedder's own actors live in an actix system of the embedder's; the shard's live on
// threads of the shard's. Addresses reach across.
#[actix::main]
async fn main() -> Result<(), BoxError> {
    let schema = Arc::new(Schema::new(vec![Field::new("id", DataType::Int64, false)]));
    let spec = TableSpec::new(Arc::clone(&schema)).primary_key(["id"]);
    let engine = Engine::builder(Store::memory()).spec(spec).open().await?;
    let addresses = engine.addresses();

    let (report, mut reports) = tokio::sync::mpsc::unbounded_channel();
    let watchman = Watchman { report }.start();
    addresses.herald.send(Subscribe(watchman.recipient())).await?;

    // Writing: check the rows and reserve memory, send them, wait for as much as is wanted.
    let rows = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from_iter_values(0..1000))])?;
    let admitted = addresses.admission.put(vec![rows]).await?;
    let (append, sequenced) = Append::new(admitted);
    addresses.wal_appender.send(append).await?;
    let receipt = sequenced.receipt(&addresses.cursors).await?;
    println!("rows {} have their place", receipt.range());
    receipt.visible().await?;
    println!("and are durable and visible: {} of them", addresses.cursors.visible());

    // Reading.
    println!("get 7: {}", addresses.reader.send(Get::new(7)).await??);
    let scan = Scan::new().filter_sql("id BETWEEN 10 AND 19")?;
    let found = addresses.reader.send(RunScan { scan, level: ReadLevel::Visible }).await??;
    println!("between 10 and 19: {} rows", found.collect_all().await?.num_rows());

    engine.close().await?;
    while let Some(event) = reports.recv().await {
        if matches!(event, ShardEvent::Closed) {
            break;
        }
    }
    Ok(())
}

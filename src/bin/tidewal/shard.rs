//! What every command needs: where the shard is, and the shard opened.

use futures::TryStreamExt as _;
use tidewal::{Engine, EngineBuilder, Settings, Store, TableSpec};

use crate::{Result, complaint};

/// Printed below the help of each command.
pub(crate) const WRITER_NOTE: &str = "This command opens the shard as its writer, as every command does. \
    Another process that has the shard open is fenced: it acknowledges nothing more and must open it again.";

/// Where the shard is.
#[derive(Debug, clap::Args)]
pub(crate) struct ShardArgs {
    /// The shard: a folder, or a URL (file:///folder; s3://, gs://, az:// in builds with these features)
    #[arg(long, value_name = "URL")]
    pub(crate) data: String,
    /// Memory for rows and indexes, in MiB. Opening takes as much as the shard needs
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(2..=1 << 24))]
    memory: u64,
}

impl ShardArgs {
    pub(crate) fn store(&self) -> Result<Store> {
        Ok(Store::from_url(&self.data)?)
    }

    pub(crate) fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        settings.unflushed_bytes_max = self.memory << 20;
        settings.memtable_bytes_max = settings.memtable_bytes_max.min(settings.unflushed_bytes_max / 2);
        settings
    }

    /// Opens a shard that exists.
    pub(crate) async fn open_existing(&self) -> Result<Engine> {
        // Opening a local folder creates it; a mistyped name should not.
        self.check_local_folder()?;
        let store = self.store()?;
        if !exists(&store).await? {
            return Err(self.nothing_here());
        }
        open(Engine::builder(store).settings(self.settings()), None).await
    }

    fn check_local_folder(&self) -> Result<()> {
        let path = self.data.strip_prefix("file://").unwrap_or(&self.data);
        let is_local = path.len() < self.data.len() || !self.data.contains("://");
        // A percent-encoded name is left to the store.
        if is_local && !path.contains('%') && !std::path::Path::new(path).exists() {
            return Err(self.nothing_here());
        }
        Ok(())
    }

    fn nothing_here(&self) -> crate::BoxError {
        complaint(format!(
            "there is no shard at `{}`; create one with `tidewal ingest --data {} --key COLUMN FILE`",
            self.data, self.data
        ))
    }
}

pub(crate) async fn open(builder: EngineBuilder, spec: Option<TableSpec>) -> Result<Engine> {
    let builder = match spec {
        Some(spec) => builder.spec(spec),
        None => builder,
    };
    Ok(builder.open().await?)
}

/// Whether a shard was created here. Looking does not open it, and fences nobody.
pub(crate) async fn exists(store: &Store) -> Result<bool> {
    let manifests = store.root().clone().join("manifest");
    let first = store.object_store().list(Some(&manifests)).try_next().await;
    Ok(first.map_err(|error| complaint(format!("the store could not be listed: {error}")))?.is_some())
}

/// Ends the command's hold on the shard; the command's own error is the one worth showing.
pub(crate) async fn finish<T>(engine: &Engine, outcome: Result<T>) -> Result<T> {
    let closed = engine.close().await;
    let value = outcome?;
    closed?;
    Ok(value)
}

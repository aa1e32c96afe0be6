//! Files into a shard: one thread reads and decodes, this task puts, and several puts are in flight.

use std::collections::VecDeque;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use indicatif::ProgressBar;
use tidewal::Engine;
use tidewal::actors::wal_appender::Receipt;
use tokio::sync::mpsc;

use super::input::{Input, Reading, Started};
use super::trouble::Trouble;
use crate::output::complain;

/// Batches decoded and not put: one waits while the next is decoded.
const BATCHES_READ_AHEAD: usize = 2;
/// Puts not yet acknowledged. The log gathers several into one write while one is under way;
/// more would hold memory without making it faster.
const PUTS_IN_FLIGHT: usize = 16;

/// What became of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded {
    pub(super) file: String,
    /// Rows that were acknowledged.
    pub(super) rows: u64,
    /// Whether it was read to its end.
    pub(super) whole: bool,
}

/// What the reading thread says.
enum Step {
    Rows(RecordBatch),
    FileEnds,
    Stops(Trouble),
}

/// Reads every file and puts its rows. What stopped it, if anything, comes beside what was
/// acknowledged until then.
pub(super) async fn load(
    engine: &Engine,
    inputs: Vec<Input>,
    first: Option<Started>,
    reading: Reading,
) -> (Vec<Loaded>, Option<String>) {
    let (sender, mut steps) = mpsc::channel(BATCHES_READ_AHEAD);
    let target = Arc::clone(engine.schema());
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    let reader = tokio::task::spawn_blocking(move || read_files(&inputs, first, &target, &reading, &sender));
    let mut loader = Loader { engine, files: Vec::new(), in_flight: VecDeque::new(), bar: progress_bar() };
    let mut failure = None;
    for name in names {
        loader.files.push(Loaded { file: name.clone(), ..Loaded::default() });
        failure = loader.load_file(&name, &mut steps).await.err();
        if failure.is_some() {
            break;
        }
    }
    if let Err(error) = loader.settle(0).await {
        failure.get_or_insert(error);
    }
    loader.bar.finish_and_clear();
    // The reader is not waited for: it may sit in a read of standard input. Its channel is closed.
    drop(steps);
    drop(reader);
    (loader.files, failure)
}

struct Loader<'a> {
    engine: &'a Engine,
    files: Vec<Loaded>,
    /// Puts in the order they were made, with the file each belongs to.
    in_flight: VecDeque<(usize, Receipt)>,
    bar: ProgressBar,
}

impl Loader<'_> {
    async fn load_file(&mut self, name: &str, steps: &mut mpsc::Receiver<Step>) -> Result<(), String> {
        let file = self.files.len() - 1;
        loop {
            match steps.recv().await {
                Some(Step::Rows(batch)) => {
                    let receipt = self.engine.put_no_wait(vec![batch]).await.map_err(|error| error.to_string())?;
                    self.in_flight.push_back((file, receipt));
                    self.settle(PUTS_IN_FLIGHT).await?;
                }
                Some(Step::FileEnds) => {
                    // All but the last rows are acknowledged; those are when the load ends.
                    if let Some(loaded) = self.files.get_mut(file) {
                        loaded.whole = true;
                    }
                    return Ok(());
                }
                Some(Step::Stops(trouble)) => return Err(trouble.of(name)),
                None => {
                    return Err(format!(
                        "{name}: the reader broke down; the file is damaged in a way it does not expect"
                    ));
                }
            }
        }
    }

    /// Waits until at most `left` puts are unacknowledged.
    async fn settle(&mut self, left: usize) -> Result<(), String> {
        while self.in_flight.len() > left {
            let Some((file, receipt)) = self.in_flight.pop_front() else { break };
            let range = receipt.visible().await.map_err(|error| error.to_string())?;
            if let Some(loaded) = self.files.get_mut(file) {
                loaded.rows += range.rows();
                self.bar.inc(range.rows());
                self.bar.set_message(loaded.file.clone());
            }
        }
        Ok(())
    }
}

fn progress_bar() -> ProgressBar {
    // Drawn on stderr, and only if that is a terminal.
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = indicatif::ProgressStyle::with_template("{spinner} {human_pos} rows, {per_sec}  {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Runs on a thread of its own until the files end, one cannot be read, or nobody listens.
fn read_files(
    inputs: &[Input],
    mut first: Option<Started>,
    target: &SchemaRef,
    reading: &Reading,
    steps: &mpsc::Sender<Step>,
) {
    for input in inputs {
        let last = match read_file(input, first.take(), target, reading, steps) {
            Ok(()) => Step::FileEnds,
            Err(trouble) => Step::Stops(trouble),
        };
        let stops = matches!(last, Step::Stops(_));
        if steps.blocking_send(last).is_err() || stops {
            return;
        }
    }
}

fn read_file(
    input: &Input,
    started: Option<Started>,
    target: &SchemaRef,
    reading: &Reading,
    steps: &mpsc::Sender<Step>,
) -> Result<(), Trouble> {
    let mut started = match started {
        Some(started) => started,
        None => input.open(reading)?.rows(target, reading)?,
    };
    while let Some(batch) = started.next_batch()? {
        let fit = &started.fit;
        let (rows, misfit) = match fit.apply(&batch) {
            Ok(rows) => (rows, None),
            // The rows before the bad one are as good as those of the batch before.
            Err(misfit) => {
                let before = fit.apply(&batch.slice(0, misfit.row));
                let empty = || RecordBatch::new_empty(Arc::clone(target));
                (before.unwrap_or_else(|_| empty()), Some(misfit))
            }
        };
        if rows.num_rows() > 0 && steps.blocking_send(Step::Rows(rows)).is_err() {
            return Ok(());
        }
        if let Some(misfit) = misfit {
            return Err(misfit.at(started.source.place(misfit.row)));
        }
    }
    if let Some(warning) = started.source.warning() {
        complain(&format!("warning: {}: {warning}", input.name));
    }
    Ok(())
}

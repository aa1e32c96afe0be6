//! The ordered index of a memtable: rows by the order-preserving encoding of their keys.
//!
//! The index is a list of sorted runs that never change. An insert makes its batch a run; runs
//! of one size class are merged, [`FAN_OUT`] at a time, into one of the next class, so a row is
//! copied once per class: O(log n) work a row. Inserts of a few rows are gathered into one run
//! first, which is made anew each time.
//!
//! Merges of more than a moment run on the pool. Their inputs stay in the list until the result
//! is collected by a later insert, so no answer depends on when that is, or on whether it comes.

mod ordered;
mod run;
#[cfg(test)]
mod tests;

use std::ops::Bound;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, TryRecvError};

use arc_swap::ArcSwap;
use arrow_row::Rows;

pub(crate) use self::ordered::Ordered;
use self::run::Run;
use crate::config::CpuPool;
use crate::ids::Seq;

/// How many runs of a class are merged into one of the next. More would make reads search more
/// runs, fewer would copy each row more often.
const FAN_OUT: usize = 8;

/// Runs of a class that may wait while a merge of that class is on the pool. Beyond it the
/// writer merges by itself, so that a pool that is behind slows writes and not every read.
///
/// With it a class has at most `FAN_OUT` runs in a merge and `WAITING_MAX` that wait, 23
/// together, and an index of n rows at most `23 * (log8(n) + 1) + 1` runs: 208 at 16 million
/// rows. A pool that keeps up leaves 7 a class.
const WAITING_MAX: usize = 2 * FAN_OUT - 1;

/// The rows, and the bytes of them, below which a run is still gathered. Each small insert
/// copies what is gathered, so this bounds its work; every run that is not
/// gathered has at least one of the two, which bounds what a run costs besides its rows.
const GATHERED_ROWS: usize = 64;
const GATHERED_BYTES: u64 = 8 << 10;

/// The rows, and the bytes of them, up to which a merge is done by the insert that asks for it.
/// It takes the writer about half a millisecond at most.
const INLINE_MERGE_ROWS_MAX: usize = 16 << 10;
const INLINE_MERGE_BYTES_MAX: u64 = 1 << 20;

/// What a run takes besides its rows: itself, its two counts, and its places in two lists.
const RUN_BYTES: u64 = (size_of::<Run>() + 4 * size_of::<usize>()) as u64;

/// The most that an insert of so many rows with so many bytes of encoded keys adds to
/// [`BTreeWriter::bytes`], now or through a later merge.
pub(crate) const fn bytes_estimate(rows: u64, key_bytes: u64) -> u64 {
    let data = rows.saturating_mul(Run::ENTRY_BYTES).saturating_add(key_bytes);
    let runs = rows
        .saturating_mul(RUN_BYTES.div_ceil(GATHERED_ROWS as u64))
        .saturating_add(key_bytes.div_ceil(GATHERED_BYTES / RUN_BYTES));
    // Twice: while a merge runs there are its inputs and its result.
    data.saturating_add(runs).saturating_mul(2)
}

/// An empty index.
pub(crate) fn new(pool: &Arc<dyn CpuPool>) -> (BTreeWriter, BTreeReader) {
    let published = Arc::new(ArcSwap::from_pointee(Runs::default()));
    let writer = BTreeWriter {
        pool: Arc::clone(pool),
        published: Arc::clone(&published),
        classes: Vec::new(),
        bytes: 0,
        classes_changed: false,
        replaced: Vec::new(),
    };
    (writer, BTreeReader { published })
}

// Why the halves may work at once. Only the writer, which is not `Clone`, stores into
// `published`, and what it stores is never changed afterwards: `Runs` and all behind it have no
// interior mutability. So a reader that loaded a list works on a value that is its own (V3).
//
// What a reader sees is complete: `insert` stores the list with the new rows before it returns,
// and only then does the caller raise the watermark past them. A reader takes its watermark first
// and loads the list second, so the list it gets is the one with all rows below that watermark
// or a later one. A later one may hold rows above the watermark; readers drop those by `Seq`.
//
// It does not shrink and holds nothing twice: a merge replaces its inputs by a run of the same
// entries in one store.

/// What a reader sees: the runs of one moment.
#[derive(Debug, Default)]
struct Runs {
    /// The rows of the last small inserts, held by value: a small insert allocates its entries
    /// and this list, and leaves the other runs alone.
    gathered: Run,
    others: Arc<[Arc<Run>]>,
}

impl Runs {
    fn iter(&self) -> impl Iterator<Item = &Run> {
        std::iter::once(&self.gathered).chain(self.others.iter().map(|run| &**run))
    }

    /// The run at this place of [`Runs::iter`].
    fn get(&self, number: usize) -> &Run {
        number.checked_sub(1).map_or(&self.gathered, |other| &self.others[other])
    }
}

/// The half that adds rows.
pub(crate) struct BTreeWriter {
    pool: Arc<dyn CpuPool>,
    published: Arc<ArcSwap<Runs>>,
    /// Class `c` holds the runs of `8^c` to `8^(c + 1) - 1` rows. Eight of them have a row count
    /// of class `c + 1`, always.
    classes: Vec<Class>,
    /// What [`BTreeWriter::bytes`] gives, without what is gathered.
    bytes: u64,
    classes_changed: bool,
    replaced: Vec<Arc<Run>>,
}

#[derive(Default)]
struct Class {
    /// The oldest first.
    waiting: Vec<Arc<Run>>,
    merge: Option<Merge>,
}

/// A merge on the pool.
struct Merge {
    inputs: Vec<Arc<Run>>,
    result_bytes: u64,
    /// Without a sender the merge was lost: the pool was dropped, or the job panicked.
    result: Receiver<Run>,
}

impl BTreeWriter {
    /// Adds rows: `keys[i]` is the key of row `first + i`. They can be read when it returns.
    pub(crate) fn insert(&mut self, first: Seq, keys: &Rows) {
        if keys.num_rows() == 0 {
            return;
        }
        let batch = Run::of_batch(first, keys);
        let published = self.published.load();
        let gathered = if is_gathered(&batch) {
            let run = Run::merge([&published.gathered, &batch]);
            if is_gathered(&run) {
                run
            } else {
                self.add(run);
                Run::default()
            }
        } else {
            self.add(batch);
            published.gathered.clone()
        };
        self.settle();
        let others = if std::mem::take(&mut self.classes_changed) {
            self.classes.iter().flat_map(Class::runs).cloned().collect()
        } else {
            Arc::clone(&published.others)
        };
        drop(published);
        self.published.store(Arc::new(Runs { gathered, others }));
        self.free_replaced();
    }

    /// The bytes the runs hold, and what merges on the pool will hold beside them.
    ///
    /// Runs that only readers still hold are not in it, nor is what an empty index takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes + self.published.load().gathered.data_bytes()
    }

    fn add(&mut self, run: Run) {
        let class = run.len().checked_ilog(FAN_OUT).unwrap_or(0) as usize;
        if self.classes.len() <= class {
            self.classes.resize_with(class + 1, Class::default);
        }
        self.bytes += RUN_BYTES + run.data_bytes();
        self.classes[class].waiting.push(Arc::new(run));
        self.classes_changed = true;
    }

    /// Collects what the pool has merged and merges what is due, from the smallest class up.
    fn settle(&mut self) {
        let mut class = 0;
        while class < self.classes.len() {
            while let Some(merged) = self.collect(class).or_else(|| self.merge_due(class)) {
                self.add(merged);
            }
            class += 1;
        }
    }

    /// The result of the class's merge, once it is there or lost.
    fn collect(&mut self, class: usize) -> Option<Run> {
        let merge = self.classes[class].merge.take()?;
        let merged = match merge.result.try_recv() {
            Ok(merged) => merged,
            Err(TryRecvError::Empty) => {
                self.classes[class].merge = Some(merge);
                return None;
            }
            // Nobody else will do it. A pool that loses work may lose it again, so not there.
            Err(TryRecvError::Disconnected) => Run::merge(merge.inputs.iter().map(|run| &**run)),
        };
        self.bytes -= merge.result_bytes;
        self.replace(merge.inputs);
        Some(merged)
    }

    /// Merges the oldest runs of a class that has enough of them, or has the pool do it.
    fn merge_due(&mut self, class: usize) -> Option<Run> {
        let Class { waiting, merge } = &mut self.classes[class];
        if waiting.len() < FAN_OUT {
            return None;
        }
        let oldest = || waiting[..FAN_OUT].iter().map(|run| &**run);
        let data_bytes = Run::merged_data_bytes(oldest());
        let is_short =
            oldest().map(Run::len).sum::<usize>() <= INLINE_MERGE_ROWS_MAX && data_bytes <= INLINE_MERGE_BYTES_MAX;
        if is_short || waiting.len() > WAITING_MAX {
            let inputs: Vec<_> = waiting.drain(..FAN_OUT).collect();
            let merged = Run::merge(inputs.iter().map(|run| &**run));
            self.replace(inputs);
            return Some(merged);
        }
        if merge.is_some() {
            return None;
        }
        let inputs: Vec<_> = waiting.drain(..FAN_OUT).collect();
        let (sender, result) = mpsc::channel();
        let result_bytes = RUN_BYTES + data_bytes;
        *merge = Some(Merge { inputs: inputs.clone(), result_bytes, result });
        self.bytes += result_bytes;
        self.pool.spawn(Box::new(move || {
            // The writer is gone when nobody receives it, and the index with it.
            let _ = sender.send(Run::merge(inputs.iter().map(|run| &**run)));
        }));
        // A pool that ran it at once has the result here already.
        self.collect(class)
    }

    /// Takes note of runs whose entries another run has now.
    fn replace(&mut self, inputs: Vec<Arc<Run>>) {
        self.bytes -= inputs.iter().map(|run| RUN_BYTES + run.data_bytes()).sum::<u64>();
        self.replaced.extend(inputs);
        self.classes_changed = true;
    }

    /// Lets go of them, once no list that a reader can load has them.
    fn free_replaced(&mut self) {
        let replaced = std::mem::take(&mut self.replaced);
        // Giving large allocations back takes milliseconds. If the pool drops the job they are
        // freed all the same.
        if replaced.iter().map(|run| run.data_bytes()).sum::<u64>() > INLINE_MERGE_BYTES_MAX {
            self.pool.spawn(Box::new(move || drop(replaced)));
        }
    }
}

fn is_gathered(run: &Run) -> bool {
    run.len() < GATHERED_ROWS && run.data_bytes() < GATHERED_BYTES
}

impl Class {
    fn runs(&self) -> impl Iterator<Item = &Arc<Run>> {
        self.merge.iter().flat_map(|merge| &merge.inputs).chain(&self.waiting)
    }
}

/// The half that reads. A caller takes its watermark before it asks.
#[derive(Clone)]
pub(crate) struct BTreeReader {
    published: Arc<ArcSwap<Runs>>,
}

impl BTreeReader {
    /// The rows below the watermark whose keys lie in the bounds, by ascending `Seq`.
    pub(crate) fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>, watermark: Seq) -> Vec<Seq> {
        let runs = self.published.load_full();
        let within = |run| Run::seqs(run, run.within(lower, upper));
        let mut seqs: Vec<Seq> = runs.iter().flat_map(within).filter(|seq| *seq < watermark).collect();
        seqs.sort_unstable();
        seqs
    }

    /// The same rows by ascending key or, in `reverse`, by descending key; rows of one key come
    /// by ascending `Seq` in both. Nothing is read ahead of what the caller takes.
    pub(crate) fn ordered(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>, reverse: bool, watermark: Seq) -> Ordered {
        Ordered::over(&self.published.load_full(), (lower, upper), reverse, watermark)
    }

    /// How many rows have keys in the bounds, those above every watermark included.
    pub(crate) fn estimate(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> u64 {
        let runs = self.published.load_full();
        runs.iter().map(|run| run.within(lower, upper).len() as u64).sum()
    }
}

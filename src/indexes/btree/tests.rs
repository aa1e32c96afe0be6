use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_row::{RowConverter, SortField};
use arrow_schema::DataType;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::components::InlinePool;
use crate::config::Job;

/// Keeps its jobs until it is told to run or to lose them.
#[derive(Debug, Default)]
struct HoldingPool(Mutex<Held>);

#[derive(Default)]
struct Held {
    jobs: Vec<Job<'static>>,
    spawned: usize,
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} jobs", self.jobs.len())
    }
}

impl HoldingPool {
    fn take(&self) -> Vec<Job<'static>> {
        std::mem::take(&mut self.0.lock().unwrap().jobs)
    }

    fn run(&self) {
        self.take().into_iter().for_each(|job| job());
    }

    fn spawned(&self) -> usize {
        self.0.lock().unwrap().spawned
    }
}

impl CpuPool for HoldingPool {
    fn spawn(&self, job: Job<'static>) {
        let mut held = self.0.lock().unwrap();
        held.jobs.push(job);
        held.spawned += 1;
    }

    fn run_all(&self, jobs: Vec<Job<'_>>) {
        jobs.into_iter().for_each(|job| job());
    }
}

#[derive(Debug)]
struct ThreadPerJob;

impl CpuPool for ThreadPerJob {
    fn spawn(&self, job: Job<'static>) {
        std::thread::spawn(job);
    }

    fn run_all(&self, jobs: Vec<Job<'_>>) {
        jobs.into_iter().for_each(|job| job());
    }
}

/// An index beside a sorted map of the same rows.
struct Checked {
    converter: RowConverter,
    writer: BTreeWriter,
    reader: BTreeReader,
    model: BTreeMap<(Vec<u8>, Seq), ()>,
    end: Seq,
    estimates: u64,
}

type Key = Vec<u8>;

impl Checked {
    fn new(pool: &Arc<dyn CpuPool>) -> Self {
        Self::starting_at(Seq::ZERO, pool)
    }

    fn starting_at(end: Seq, pool: &Arc<dyn CpuPool>) -> Self {
        let converter = RowConverter::new(vec![SortField::new(DataType::Binary)]).unwrap();
        let (writer, reader) = new(pool);
        Checked { converter, writer, reader, model: BTreeMap::new(), end, estimates: 0 }
    }

    fn insert(&mut self, keys: &[Key]) {
        let key_bytes: usize = keys.iter().map(Vec::len).sum();
        let parser = self.converter.parser();
        let mut rows = self.converter.empty_rows(keys.len(), key_bytes);
        keys.iter().for_each(|key| rows.push(parser.parse(key)));
        self.writer.insert(self.end, &rows);
        for key in keys {
            self.model.insert((key.clone(), self.end), ());
            self.end = self.end.plus(1);
        }
        self.estimates += bytes_estimate(keys.len() as u64, key_bytes as u64);
        assert!(self.writer.bytes() <= self.estimates, "{} above {}", self.writer.bytes(), self.estimates);
        assert!(self.runs() <= runs_max(self.model.len()), "{} runs of {} rows", self.runs(), self.model.len());
    }

    fn runs(&self) -> usize {
        self.reader.published.load().iter().count()
    }

    fn check(&self, lower: &Bound<Key>, upper: &Bound<Key>, watermark: Seq) {
        let (low, up) = (borrow(lower), borrow(upper));
        let inside = |key: &Key| {
            let above = match lower {
                Bound::Unbounded => true,
                Bound::Included(bound) => key >= bound,
                Bound::Excluded(bound) => key > bound,
            };
            let below = match upper {
                Bound::Unbounded => true,
                Bound::Included(bound) => key <= bound,
                Bound::Excluded(bound) => key < bound,
            };
            above && below
        };
        let all: Vec<&(Key, Seq)> = self.model.keys().filter(|(key, _)| inside(key)).collect();
        assert_eq!(self.reader.estimate(low, up), all.len() as u64);
        let mut visible: Vec<&(Key, Seq)> = all.into_iter().filter(|(_, seq)| *seq < watermark).collect();
        let seqs = |rows: &[&(Key, Seq)]| rows.iter().map(|row| row.1).collect::<Vec<_>>();
        assert_eq!(self.reader.ordered(low, up, false, watermark).collect::<Vec<_>>(), seqs(&visible));
        // A stable sort leaves the rows of one key by ascending `Seq`.
        visible.sort_by(|a, b| b.0.cmp(&a.0));
        assert_eq!(self.reader.ordered(low, up, true, watermark).collect::<Vec<_>>(), seqs(&visible));
        visible.sort_by_key(|row| row.1);
        assert_eq!(self.reader.range(low, up, watermark), seqs(&visible));
    }

    fn check_all(&self) {
        self.check(&Bound::Unbounded, &Bound::Unbounded, self.end);
    }
}

fn runs_max(rows: usize) -> usize {
    (FAN_OUT + WAITING_MAX) * (rows.checked_ilog(FAN_OUT).unwrap_or(0) as usize + 1) + 1
}

fn borrow(bound: &Bound<Key>) -> Bound<&[u8]> {
    bound.as_ref().map(Vec::as_slice)
}

fn inline() -> Arc<dyn CpuPool> {
    Arc::new(InlinePool)
}

fn holding() -> (Arc<HoldingPool>, Arc<dyn CpuPool>) {
    let pool = Arc::new(HoldingPool::default());
    (Arc::clone(&pool), pool)
}

/// A key so long that eight of them are too many for a merge in the insert.
fn long(number: u64) -> Key {
    let mut key = vec![b'x'; 150 << 10];
    key.extend_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    key
}

/// Keys that meet: few values, lengths around that of a head, and shared first bytes.
fn key() -> impl Strategy<Value = Key> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(255)];
    let shared = prop_oneof![4 => Just(0usize), 1 => Just(8), 1 => Just(14), 1 => Just(15), 1 => Just(16)];
    (shared, vec(byte, 0..4), any::<bool>()).prop_map(|(shared, rest, zeros)| {
        let mut key = vec![if zeros { 0 } else { b'k' }; shared];
        key.extend(rest);
        key
    })
}

fn bound() -> impl Strategy<Value = Bound<Key>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => key().prop_map(Bound::Included),
        2 => key().prop_map(Bound::Excluded),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn p5_any_bounds_at_any_watermark_give_what_a_sorted_map_gives(
        first in prop_oneof![Just(0u64), Just(1 << 40)],
        batches in vec(prop_oneof![3 => vec(key(), 0..3), 1 => vec(key(), 50..150)], 1..60),
        questions in vec((bound(), bound(), 0.0..1.2f64), 1..12),
    ) {
        let mut index = Checked::starting_at(Seq::new(first), &inline());
        batches.iter().for_each(|batch| index.insert(batch));
        index.check_all();
        for (lower, upper, share) in questions {
            let rows = (index.model.len() as f64 * share) as u64;
            index.check(&lower, &upper, Seq::new(first + rows));
        }
    }

    #[test]
    fn b1_bytes_stay_below_the_estimates_and_runs_below_their_bound_however_late_the_pool(
        steps in vec((0u8..8, 0u64..200, 0u64..4), 1..80),
    ) {
        let (pool, shared) = holding();
        let mut index = Checked::new(&shared);
        for (step, (size, number, answer)) in steps.into_iter().enumerate() {
            let numbered = |at: u64| format!("{:b}", number * 31 + at * 17).into_bytes();
            match size {
                // Both are checked by every insert.
                0 => index.insert(&(0..number).map(numbered).collect::<Vec<_>>()),
                1 => index.insert(&(0..number / 8).map(numbered).collect::<Vec<_>>()),
                2 => index.insert(&[vec![7; number as usize * 60]]),
                _ => index.insert(&[long(step as u64)]),
            }
            match answer {
                0 => pool.run(),
                1 => drop(pool.take()),
                _ => {}
            }
        }
        index.check_all();
    }
}

#[test]
fn v1_watermark_zero_gives_no_row() {
    let mut index = Checked::new(&inline());
    index.insert(&[vec![1], vec![2]]);
    index.check(&Bound::Unbounded, &Bound::Unbounded, Seq::ZERO);
    assert_eq!(index.reader.range(Bound::Unbounded, Bound::Unbounded, Seq::ZERO), []);
}

#[test]
fn p5_a_thousand_equal_keys_come_by_seq_in_both_directions() {
    let mut index = Checked::new(&inline());
    for _ in 0..10 {
        index.insert(&vec![b"same".to_vec(); 70]);
        (0..30).for_each(|_| index.insert(&[b"same".to_vec()]));
    }
    let by_seq: Vec<Seq> = (0..1000).map(Seq::new).collect();
    let same = Bound::Included(&b"same"[..]);
    assert_eq!(index.reader.ordered(same, same, true, Seq::MAX).collect::<Vec<_>>(), by_seq);
    assert_eq!(index.reader.ordered(same, same, false, Seq::MAX).collect::<Vec<_>>(), by_seq);
    assert_eq!(index.reader.range(same, same, Seq::MAX), by_seq);
    assert_eq!(index.reader.estimate(Bound::Excluded(b"same"), Bound::Unbounded), 0);
}

#[test]
fn p5_empty_keys_and_keys_that_share_their_first_bytes_are_told_apart() {
    let mut keys = vec![Vec::new(), Vec::new()];
    for length in 1..40 {
        keys.extend([vec![0; length], vec![b'k'; length]]);
        keys.push([vec![b'k'; length], vec![0]].concat());
        keys.push([vec![b'k'; length], vec![255]].concat());
    }
    // Downwards, so that no batch comes sorted.
    keys.reverse();
    let mut index = Checked::new(&inline());
    keys.chunks(9).for_each(|batch| index.insert(batch));
    for key in &keys {
        index.check(&Bound::Included(key.clone()), &Bound::Included(key.clone()), Seq::MAX);
        index.check(&Bound::Excluded(key.clone()), &Bound::Unbounded, Seq::MAX);
    }
}

#[test]
fn p5_bounds_that_cross_hold_nothing() {
    let mut index = Checked::new(&inline());
    index.insert(&(0..100).map(|key| vec![key]).collect::<Vec<_>>());
    index.check(&Bound::Included(vec![60]), &Bound::Excluded(vec![40]), Seq::MAX);
    index.check(&Bound::Excluded(vec![60]), &Bound::Excluded(vec![60]), Seq::MAX);
}

#[test]
fn v3_a_reader_that_loaded_before_sees_no_change() {
    let mut index = Checked::new(&inline());
    (0..200).for_each(|number| index.insert(&[long(number)]));
    let expected: Vec<Seq> = index.reader.ordered(Bound::Unbounded, Bound::Unbounded, false, Seq::MAX).collect();
    let mut begun = index.reader.ordered(Bound::Unbounded, Bound::Unbounded, false, Seq::MAX);
    let mut seen: Vec<Seq> = begun.by_ref().take(7).collect();
    (200..400).for_each(|number| index.insert(&[long(number)]));
    seen.extend(begun);
    assert_eq!(seen, expected);
}

/// Ends the readers' last round, also when the writer fails.
struct Finish<'a>(&'a AtomicBool);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn v3_readers_beside_a_writer_see_all_rows_below_their_watermark_and_no_other() {
    const ROWS: u64 = 60_000;
    let pool: Arc<dyn CpuPool> = Arc::new(ThreadPerJob);
    let mut index = Checked::new(&pool);
    let (watermark, finished) = (AtomicU64::new(0), AtomicBool::new(false));
    let key_of = |row: u64| (row % 1000).to_be_bytes().to_vec();
    std::thread::scope(|scope| {
        for reverse in [false, true] {
            let (reader, watermark, finished) = (index.reader.clone(), &watermark, &finished);
            scope.spawn(move || {
                loop {
                    let is_last = finished.load(Ordering::Acquire);
                    let end = watermark.load(Ordering::Acquire);
                    let seen = reader.range(Bound::Unbounded, Bound::Unbounded, Seq::new(end));
                    assert!(seen.iter().copied().eq((0..end).map(Seq::new)), "{} of {end}", seen.len());
                    let mut ordered: Vec<u64> = reader
                        .ordered(Bound::Unbounded, Bound::Unbounded, reverse, Seq::new(end))
                        .map(Seq::get)
                        .collect();
                    assert!(ordered.is_sorted_by_key(|row| {
                        let key = row % 1000;
                        (if reverse { 999 - key } else { key }, *row)
                    }));
                    ordered.sort_unstable();
                    assert!(ordered.into_iter().eq(0..end));
                    if is_last {
                        break;
                    }
                }
            });
        }
        let _finish = Finish(&finished);
        while index.end < Seq::new(ROWS) {
            let rows = [1, 3, 700, 90, 6000][index.end.get() as usize % 5].min(ROWS - index.end.get());
            index.insert(&(index.end.get()..).take(rows as usize).map(key_of).collect::<Vec<_>>());
            watermark.store(index.end.get(), Ordering::Release);
        }
    });
}

#[test]
fn p5_a_merge_on_the_pool_changes_no_answer_before_it_comes_or_after() {
    let (pool, shared) = holding();
    let mut index = Checked::new(&shared);
    (0..8).for_each(|number| index.insert(&[long(number)]));
    assert_eq!(pool.spawned(), 1);
    let unmerged = index.runs();
    index.check_all();
    pool.run();
    index.check_all();
    assert_eq!(index.runs(), unmerged, "only an insert collects a result");
    index.insert(&[vec![1]]);
    assert_eq!(index.runs(), unmerged - 7);
    index.check_all();
}

#[test]
fn p5_merges_that_the_pool_loses_are_done_by_the_writer() {
    let (pool, shared) = holding();
    let mut index = Checked::new(&shared);
    for number in 0..150 {
        index.insert(&[long(number)]);
        // A pool that stops drops its jobs, and so does a job that panics.
        for job in pool.take() {
            let lost = catch_unwind(AssertUnwindSafe(move || {
                let _job = job;
                std::panic::resume_unwind(Box::new("a job that panics"));
            }));
            assert!(lost.is_err());
        }
    }
    assert!(pool.spawned() >= 18);
    // As many as a pool that keeps up leaves: 150 is 226 in base 8.
    assert!(index.runs() <= 1 + 2 + 2 + 8, "{} runs", index.runs());
    index.check_all();
}

#[test]
fn b1_a_pool_that_never_answers_leaves_a_bounded_number_of_runs() {
    let (_pool, shared) = holding();
    let mut index = Checked::new(&shared);
    let mut runs_seen = 0;
    for number in 0..300 {
        // The bound is checked by every insert.
        index.insert(&[long(number)]);
        runs_seen = runs_seen.max(index.runs());
    }
    assert!(runs_seen > FAN_OUT + WAITING_MAX, "the bound of a class was reached");
    index.check_all();
}

#[test]
fn b1_bytes_are_those_of_the_runs_when_no_merge_is_on_the_pool() {
    let mut index = Checked::new(&inline());
    for number in 0..100 {
        index.insert(&[long(number)]);
        index.insert(&(0..number as u8).map(|key| vec![key; 3]).collect::<Vec<_>>());
        let runs = index.reader.published.load();
        let held = |run: &Arc<Run>| RUN_BYTES + run.data_bytes();
        let expected = runs.gathered.data_bytes() + runs.others.iter().map(held).sum::<u64>();
        assert_eq!(index.writer.bytes(), expected);
    }
}

#[test]
fn b1_short_keys_take_24_bytes_a_row_and_little_beside() {
    let mut index = Checked::new(&inline());
    for batch in 0..200u64 {
        index.insert(&(0..100).map(|row| (batch * 7919 % 200 + row * 200).to_be_bytes().to_vec()).collect::<Vec<_>>());
    }
    let bytes = index.writer.bytes();
    assert!((20_000 * 24..20_000 * 25).contains(&bytes), "{bytes}");
}

#[test]
fn p5_one_row_inserts_are_gathered_and_merged() {
    let mut index = Checked::new(&inline());
    for number in 0..3000u64 {
        index.insert(&[(number * 7919 % 3000).to_be_bytes().to_vec()]);
    }
    // 46 runs of 64 rows are 5 runs of 512 and 6 of 64; 56 rows are gathered.
    assert_eq!(index.runs(), 12);
    index.check_all();
}

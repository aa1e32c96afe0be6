use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

use super::build::SectionBuilder;
use super::{KeyKind, KeySection};
use crate::error::{Error, Result};
use crate::generations::blocks::{Block, Blocks};
use crate::generations::section::SectionBytes;

/// A section in memory that checks what it gives, and counts.
#[derive(Debug)]
struct Counted {
    bytes: Bytes,
    reads: AtomicUsize,
}

impl Blocks for Counted {
    fn read(&self, block: Block) -> Result<Bytes> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let range = block.offset as usize..block.offset as usize + block.length as usize;
        let bytes = self.bytes.get(range.clone()).map(|_| self.bytes.slice(range)).unwrap_or_default();
        if bytes.len() != block.length as usize || crc32c::crc32c(&bytes) != block.crc {
            return Err(Error::corrupt("the section", "another checksum", "that of the block"));
        }
        Ok(bytes)
    }

    fn object(&self) -> &str {
        "the section"
    }
}

fn open(section: SectionBytes) -> Result<(Arc<KeySection>, Arc<Counted>)> {
    let blocks = Arc::new(Counted { bytes: section.bytes.into(), reads: AtomicUsize::new(0) });
    Ok((Arc::new(KeySection::open(section.root, Arc::clone(&blocks) as Arc<dyn Blocks>)?), blocks))
}

/// The key of each row, from row 0 on.
fn built(kind: KeyKind, keys: &[Vec<u8>]) -> SectionBytes {
    let mut sorted: Vec<(&Vec<u8>, u32)> = keys.iter().zip(0..).collect();
    sorted.sort();
    let mut builder = SectionBuilder::new(kind);
    sorted.into_iter().for_each(|(key, row)| builder.push(key, row));
    builder.finish()
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// Sets of keys that differ in kind: none, one, one key over and over, many versions over several
/// blocks, long ones, keys beyond a block.
fn sets() -> Vec<(&'static str, Vec<Vec<u8>>)> {
    let mut random = Random(7);
    let mut numbers = |rows: u64, below: u64| -> Vec<Vec<u8>> {
        (0..rows).map(|_| [vec![1], random.below(below).to_be_bytes().to_vec()].concat()).collect()
    };
    let mut sets = vec![
        ("none", Vec::new()),
        ("one", vec![b"a".to_vec()]),
        ("one key", vec![b"a".to_vec(); 9000]),
        ("few keys", numbers(9000, 5)),
        ("many keys", numbers(9000, 1_000_000)),
        ("versions", numbers(9000, 3000)),
    ];
    let texts = |at: usize| vec![b'a' + (at % 20) as u8; at * 37 % 900];
    sets.push(("texts", (0..1500).map(texts).collect()));
    sets.push(("beyond a block", (0..20).map(|at| vec![at as u8 % 7; 20_000 + at]).collect()));
    sets
}

type Model = BTreeMap<Vec<u8>, Vec<u32>>;

fn model(keys: &[Vec<u8>]) -> Model {
    let mut model = Model::new();
    keys.iter().zip(0..).for_each(|(key, row)| model.entry(key.clone()).or_default().push(row));
    model
}

#[test]
fn f7_a_lookup_gives_the_newest_version_below_the_watermark_by_the_exact_key() {
    for (name, keys) in sets() {
        let (section, _) = open(built(KeyKind::PrimaryKey, &keys)).expect("it opens");
        assert_eq!(section.entries(), keys.len() as u64, "{name}");
        let mut random = Random(3);
        for (key, rows) in model(&keys).iter().step_by(13) {
            for row_end in [0, rows[0], rows[0] + 1, random.below(9000) as u32, *rows.last().expect("one"), u32::MAX] {
                let expected = rows.iter().copied().filter(|row| *row < row_end).max();
                assert_eq!(section.newest(key, row_end).expect("it reads"), expected, "{name} below {row_end}");
            }
            let missing = [key.as_slice(), b"~"].concat();
            assert_eq!(section.newest(&missing, u32::MAX).expect("it reads"), None, "{name}: no hash decides");
        }
    }
}

#[test]
fn f7_ranges_in_either_order_equal_a_model() {
    for (name, keys) in sets() {
        let (section, _) = open(built(KeyKind::Ordered, &keys)).expect("it opens");
        let model = model(&keys);
        let mut random = Random(11);
        let some = |random: &mut Random| {
            keys.get(random.below(keys.len().max(1) as u64) as usize).cloned().unwrap_or_default()
        };
        for round in 0..40 {
            let (mut low, mut high) = (some(&mut random), some(&mut random));
            if low > high {
                std::mem::swap(&mut low, &mut high);
            }
            let lower =
                [Bound::Included(low.clone()), Bound::Excluded(low.clone()), Bound::Unbounded][round % 3].clone();
            let upper =
                [Bound::Included(high.clone()), Bound::Unbounded, Bound::Excluded(high.clone())][round % 3].clone();
            // A `BTreeMap` panics on an empty range of one excluded key.
            if low == high && matches!((&lower, &upper), (Bound::Excluded(_), _) | (_, Bound::Excluded(_))) {
                continue;
            }
            let row_end = if round % 2 == 0 { u32::MAX } else { random.below(9000) as u32 };
            let bounds = (lower.clone(), upper.clone());
            let groups: Vec<&Vec<u32>> = model.range(bounds.clone()).map(|(_, rows)| rows).collect();
            let ascending: Vec<u32> =
                groups.iter().flat_map(|rows| rows.iter().copied()).filter(|row| *row < row_end).collect();
            let descending: Vec<u32> =
                groups.iter().rev().flat_map(|rows| rows.iter().copied()).filter(|row| *row < row_end).collect();
            let as_slices = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
            let mut sorted = ascending.clone();
            sorted.sort_unstable();
            assert_eq!(section.range(as_slices, row_end).expect("it reads"), sorted, "{name}");
            for (reverse, expected) in [(false, &ascending), (true, &descending)] {
                let rows: Vec<u32> =
                    section.ordered(bounds.clone(), reverse, row_end).collect::<Result<_>>().expect("it reads");
                assert_eq!(&rows, expected, "{name}, reverse: {reverse}");
            }
            let all = groups.iter().map(|rows| rows.len() as u64).sum::<u64>();
            assert!(section.estimate(as_slices) <= keys.len() as u64, "{name}");
            assert!(all == 0 || section.estimate(as_slices) > 0, "{name}: what has rows is not estimated at none");
        }
    }
}

#[test]
fn f7_b45_a_row_is_live_until_a_newer_row_of_its_key_is_below_the_watermark() {
    for (name, keys) in sets() {
        let (section, _) = open(built(KeyKind::PrimaryKey, &keys)).expect("it opens");
        let mut by = vec![u32::MAX; keys.len()];
        for rows in model(&keys).values() {
            rows.windows(2).for_each(|pair| by[pair[0] as usize] = pair[1]);
        }
        for row_end in [0, 1, keys.len() as u32 / 2, keys.len() as u32] {
            for range in [0..keys.len() as u32, 0..keys.len() as u32 / 3, keys.len() as u32 / 2..keys.len() as u32] {
                let expected: Vec<bool> = range.clone().map(|row| by[row as usize] >= row_end).collect();
                let live = section.live(range.clone(), row_end).expect("it reads");
                let live: Vec<bool> = live.map_or_else(|| vec![true; range.len()], |live| live.iter().collect());
                assert_eq!(live, expected, "{name} below {row_end}");
            }
            for row in (0..keys.len() as u32).step_by(97) {
                assert_eq!(section.is_live(row, row_end).expect("it reads"), by[row as usize] >= row_end, "{name}");
            }
        }
    }
}

#[test]
fn a_hit_reads_the_filter_and_one_block_and_a_miss_the_filter_alone() {
    let (_, keys) = sets().swap_remove(4);
    let (section, blocks) = open(built(KeyKind::PrimaryKey, &keys)).expect("it opens");
    let reads = |question: &dyn Fn()| {
        let before = blocks.reads.load(Ordering::Relaxed);
        question();
        blocks.reads.load(Ordering::Relaxed) - before
    };
    assert_eq!(reads(&|| assert!(section.newest(&keys[17], u32::MAX).expect("it reads").is_some())), 2);
    let missing = |at: u64| [vec![1], (2_000_000 + at).to_be_bytes().to_vec()].concat();
    let all =
        reads(&|| (0..1000).for_each(|at| assert_eq!(section.newest(&missing(at), u32::MAX).expect("it reads"), None)));
    assert!(all < 1020, "{all} reads for 1000 misses: the filter lets fewer than 2 in 100 through");
    assert_eq!(reads(&|| assert!(section.estimate((Bound::Unbounded, Bound::Unbounded)) > 0)), 0);
}

#[test]
fn w8_a_flipped_byte_is_found_and_garbage_with_a_right_checksum_panics_nothing() {
    let (_, keys) = sets().swap_remove(5);
    let whole = built(KeyKind::PrimaryKey, &keys);
    let ask = |section: &Arc<KeySection>| -> Result<()> {
        for key in keys.iter().step_by(50) {
            section.newest(key, u32::MAX)?;
        }
        section.range((Bound::Unbounded, Bound::Unbounded), u32::MAX)?;
        section.live(0..keys.len() as u32, u32::MAX)?;
        section.ordered((Bound::Unbounded, Bound::Unbounded), true, u32::MAX).collect::<Result<Vec<u32>>>()?;
        Ok(())
    };
    for at in (0..whole.bytes.len()).step_by(997) {
        let mut damaged = whole.clone();
        damaged.bytes[at] ^= 4;
        let asked = open(damaged).and_then(|(section, _)| ask(&section));
        assert!(matches!(asked, Err(Error::Corrupt { .. })), "byte {at}");
    }
    // Whatever the root says, once its checksum is right.
    let mut random = Random(5);
    for _ in 0..2000 {
        let mut damaged = whole.clone();
        let start = damaged.root.offset as usize;
        for _ in 0..3 {
            let at = start + random.below(u64::from(damaged.root.length)) as usize;
            damaged.bytes[at] = random.below(256) as u8;
        }
        damaged.root = Block::of(start as u64, &damaged.bytes[start..]);
        if let Ok((section, _)) = open(damaged) {
            let _ = ask(&section);
        }
    }
}

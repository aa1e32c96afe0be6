use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use arrow_array::{ArrayRef, Int64Array, StringArray};
use arrow_schema::{Field, Schema};
use proptest::prelude::*;

use super::*;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("i", DataType::Int64, false), Field::new("s", DataType::Utf8, false)]))
}

fn batch(keys: &[i64]) -> RecordBatch {
    // Every third text is longer than fits in place.
    let text = |key: &i64| format!("{}{key}", "k".repeat(if key % 3 == 0 { 40 } else { 1 }));
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Int64Array::from(keys.to_vec())), Arc::new(StringArray::from_iter_values(keys.iter().map(text)))];
    RecordBatch::try_new(schema(), columns).expect("a batch")
}

/// Every kind of key map.
const KEYS: [&[usize]; 3] = [&[0], &[1], &[1, 0]];

fn encoded(reader: &PrimaryKeyReader, key: i64) -> Vec<u8> {
    reader.encoder().encode_rows(&batch(&[key])).expect("encoded").row(0).as_ref().to_vec()
}

fn range(first: u64, end: u64) -> SeqRange {
    SeqRange::between(Seq::new(first), Seq::new(end))
}

#[test]
fn p9_within_one_put_the_later_row_of_a_key_wins() {
    for columns in KEYS {
        let (mut writer, reader) = new(&schema(), columns, Seq::new(10)).expect("sortable");
        writer.apply(Seq::new(10), &batch(&[7, 8, 7, 7])).expect("applied");
        assert_eq!(reader.newest(&encoded(&reader, 7), Seq::new(14)), Some(Seq::new(13)));
        assert_eq!(reader.newest(&encoded(&reader, 8), Seq::new(14)), Some(Seq::new(11)));
        let live = reader.live(range(10, 14), Seq::new(14)).expect("some are superseded");
        assert_eq!(live.iter().collect::<Vec<_>>(), [false, true, false, true]);
    }
}

#[test]
fn v1_below_the_first_watermark_nothing_is_found() {
    let (mut writer, reader) = new(&schema(), &[0], Seq::ZERO).expect("sortable");
    writer.apply(Seq::ZERO, &batch(&[1])).expect("applied");
    assert_eq!(reader.newest(&encoded(&reader, 1), Seq::ZERO), None);
    assert_eq!(reader.newest(&encoded(&reader, 1), Seq::new(1)), Some(Seq::ZERO));
    assert_eq!(reader.newest(&encoded(&reader, 2), Seq::new(1)), None);
}

#[test]
fn v4_an_older_snapshot_keeps_the_version_it_saw() {
    let (mut writer, reader) = new(&schema(), &[0], Seq::ZERO).expect("sortable");
    for seq in 0..5 {
        writer.apply(Seq::new(seq), &batch(&[42])).expect("applied");
    }
    let key = encoded(&reader, 42);
    for watermark in 1..=5 {
        assert_eq!(reader.newest(&key, Seq::new(watermark)), Some(Seq::new(watermark - 1)));
        let live: Vec<u64> = (0..watermark).filter(|seq| reader.is_live(Seq::new(*seq), Seq::new(watermark))).collect();
        assert_eq!(live, [watermark - 1]);
    }
}

#[test]
fn a_shard_that_only_appends_pays_nothing_for_supersession() {
    let (mut writer, reader) = new(&schema(), &[0], Seq::ZERO).expect("sortable");
    let keys: Vec<i64> = (0..5000).collect();
    writer.apply(Seq::ZERO, &batch(&keys)).expect("applied");
    assert!(reader.live(range(0, 5000), Seq::new(5000)).is_none());
}

proptest! {
    #[test]
    fn p5_lookups_and_liveness_equal_a_model_at_every_watermark(
        puts in prop::collection::vec(prop::collection::vec(0i64..12, 1..6), 1..20),
        which in 0usize..3,
    ) {
        let first = 1000;
        let (mut writer, reader) = new(&schema(), KEYS[which], Seq::new(first)).expect("sortable");
        let mut rows = Vec::new();
        for keys in &puts {
            writer.apply(Seq::new(first + rows.len() as u64), &batch(keys)).expect("applied");
            rows.extend(keys);
        }
        for seen in 0..=rows.len() {
            let watermark = Seq::new(first + seen as u64);
            let model: BTreeMap<i64, usize> = rows[..seen].iter().enumerate().map(|(at, key)| (*key, at)).collect();
            for key in 0..12 {
                let wanted = model.get(&key).map(|at| Seq::new(first + *at as u64));
                prop_assert_eq!(reader.newest(&encoded(&reader, key), watermark), wanted);
            }
            let live = reader.live(SeqRange::between(Seq::new(first), watermark), watermark);
            for (at, key) in rows[..seen].iter().enumerate() {
                let wanted = model[key] == at;
                prop_assert_eq!(reader.is_live(Seq::new(first + at as u64), watermark), wanted);
                prop_assert_eq!(live.as_ref().is_none_or(|live| live.value(at)), wanted);
            }
        }
    }

    #[test]
    fn b1_the_index_never_holds_more_than_was_estimated(
        puts in prop::collection::vec(prop::collection::vec(0i64..100_000, 1..400), 1..40),
        which in 0usize..3,
    ) {
        let (mut writer, _) = new(&schema(), KEYS[which], Seq::ZERO).expect("sortable");
        let (mut rows, mut estimate) = (0, 0);
        for keys in &puts {
            let batch = batch(keys);
            let bytes = writer.shared.encoder.encode_rows(&batch).expect("encoded").iter()
                .map(|key| key.as_ref().len() as u64).sum();
            estimate += bytes_estimate(keys.len() as u64, bytes, writer.shared.encoder.types());
            writer.apply(Seq::new(rows), &batch).expect("applied");
            rows += keys.len() as u64;
            prop_assert!(writer.bytes() <= estimate + EMPTY_BYTES, "{} of {estimate}", writer.bytes());
        }
    }
}

#[test]
fn v2_a_reader_beside_the_writer_always_finds_the_newest_version_below_its_watermark() {
    const KEYS: u64 = 50;
    const ROUNDS: u64 = 2000;
    let (mut writer, reader) = new(&schema(), &[1, 0], Seq::ZERO).expect("sortable");
    let published = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let keys: Vec<Vec<u8>> = (0..KEYS).map(|key| encoded(&reader, key as i64)).collect();
            while !done.load(Ordering::Acquire) {
                let watermark = published.load(Ordering::Acquire);
                for (key, bytes) in (0..KEYS).zip(&keys) {
                    // Row `seq` has key `seq % KEYS`.
                    let wanted = (watermark > key).then(|| watermark - 1 - (watermark - 1 - key) % KEYS);
                    assert_eq!(reader.newest(bytes, Seq::new(watermark)), wanted.map(Seq::new));
                }
                let live = reader.live(range(0, watermark), Seq::new(watermark));
                let count = live.map_or(watermark, |live| live.count_set_bits() as u64);
                assert_eq!(count, watermark.min(KEYS));
            }
        });
        for seq in 0..ROUNDS {
            writer.apply(Seq::new(seq), &batch(&[(seq % KEYS) as i64])).expect("applied");
            published.store(seq + 1, Ordering::Release);
        }
        done.store(true, Ordering::Release);
    });
}

use arrow_array::cast::AsArray;
use arrow_array::types::{Int16Type, Int64Type};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeBinaryArray, Int64Array, StringArray, StringViewArray,
};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

use super::*;
use crate::components::InlinePool;
use crate::config::Components;
use crate::ids::SeqRange;
use crate::indexes::key::KeyEncoder;
use crate::spec::{IndexSpec, TableSpec};

fn spec() -> Arc<ValidatedSpec> {
    let dictionary = DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Utf8));
    let schema = Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, false),
        Field::new("colour", dictionary, true),
        Field::new("view", DataType::Utf8View, true),
        Field::new("flag", DataType::Boolean, true),
        Field::new("digest", DataType::FixedSizeBinary(20), true),
    ]);
    let spec = TableSpec::new(Arc::new(schema))
        .primary_key(["id", "name"])
        .index(IndexSpec::btree("by_colour", ["colour", "id"]))
        .index(IndexSpec::btree("by_view", ["view"]))
        .index(IndexSpec::btree("by_flag", ["flag", "digest"]));
    Arc::new(spec.validate().expect("valid"))
}

/// Rows with these ids; `words` is how long their texts are.
fn batch(ids: &[i64], words: usize) -> RecordBatch {
    let word = |id: i64| format!("{id} {}", "w".repeat(words * (id.unsigned_abs() as usize % 3)));
    let some = |id: i64| (id % 4 != 0).then(|| word(id % 50));
    let colours: DictionaryArray<Int16Type> =
        ids.iter().map(|id| some(*id)).collect::<Vec<_>>().iter().map(Option::as_deref).collect();
    let digests = ids.iter().map(|id| (id % 5 != 0).then_some([*id as u8; 20]));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(ids.to_vec())),
        Arc::new(StringArray::from_iter_values(ids.iter().map(|id| word(*id)))),
        Arc::new(colours),
        Arc::new(ids.iter().map(|id| some(*id)).collect::<StringViewArray>()),
        Arc::new(ids.iter().map(|id| (id % 3 != 0).then_some(id % 2 == 0)).collect::<BooleanArray>()),
        Arc::new(FixedSizeBinaryArray::try_from_sparse_iter_with_size(digests, 20).expect("digests")),
    ];
    RecordBatch::try_new(Arc::clone(spec().schema()), columns).expect("a batch")
}

fn put(first: Seq, batches: Vec<RecordBatch>) -> SequencedRows {
    let rows = spec().check_put(batches).expect("a put");
    let range = SeqRange::starting_at(first, rows.rows());
    rows.sequenced(range)
}

fn inline() -> Arc<dyn CpuPool> {
    Arc::new(InlinePool)
}

fn memtable(first: u64) -> (MemtableWriter, MemtableReader) {
    new(&spec(), Seq::new(first), &inline()).expect("a memtable")
}

#[test]
fn x1_a_hole_and_an_overlap_are_found_and_leave_the_memtable_as_it_was() {
    let (mut writer, reader) = memtable(10);
    writer.apply(&put(Seq::new(10), vec![batch(&[1, 2], 1)])).expect("applied");
    for first in [0, 10, 11, 13, 1000] {
        for failure in [
            writer.apply(&put(Seq::new(first), vec![batch(&[3], 1)])).expect_err("not contiguous"),
            writer
                .apply_parallel(&put(Seq::new(first), vec![batch(&[3], 1)]), &InlinePool)
                .expect_err("not contiguous"),
        ] {
            assert!(matches!(&failure, Failure::Invariant { id: "S1", detail } if detail.contains("12")), "{failure}");
        }
        assert_eq!((writer.first().get(), writer.end().get(), writer.rows()), (10, 12, 2));
        assert!(reader.rows().row(Seq::new(12)).is_none());
    }
    writer.apply(&put(Seq::new(12), vec![batch(&[3], 1)])).expect("contiguous");
}

#[test]
fn s1_a_range_that_is_not_that_of_its_rows_is_found() {
    let (mut writer, _) = memtable(0);
    let rows = put(Seq::ZERO, vec![batch(&[1, 2], 1)]);
    let wrong = SequencedRows { range: SeqRange::starting_at(Seq::ZERO, 3), ..rows };
    let failure = writer.apply(&wrong).expect_err("one row is missing");
    assert!(matches!(&failure, Failure::Invariant { id: "S1", .. }), "{failure}");
}

/// Everything the reader can be asked, at the watermark.
fn everything(reader: &MemtableReader, end: Seq) -> String {
    let range = SeqRange::between(reader.first(), end);
    let ids: Vec<i64> = reader
        .rows()
        .batches(range)
        .flat_map(|window| window.batch.column(0).as_primitive::<Int64Type>().values().to_vec())
        .collect();
    let keys = reader.primary_key().expect("a key");
    let rows = reader.rows().take(&(0..range.rows()).map(|at| range.first().plus(at)).collect::<Vec<_>>(), None);
    let encoded = keys.encoder().encode_rows(&rows.expect("rows")).expect("encoded");
    let newest: Vec<_> = encoded.iter().map(|key| keys.newest(key.data(), end)).collect();
    let trees: Vec<Vec<Seq>> = (0..3)
        .map(|at| {
            let tree = reader.btree(at).expect("an index").tree();
            tree.ordered(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, false, end).collect()
        })
        .collect();
    let live: Option<Vec<bool>> = keys.live(range, end).map(|live| live.iter().collect());
    format!("{ids:?} {newest:?} {live:?} {trees:?}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn x3_inline_and_parallel_applies_leave_the_same_state(
        puts in prop::collection::vec(prop::collection::vec(prop::collection::vec(0i64..30, 1..20), 1..4), 1..6),
    ) {
        let pool = Components::default().cpu_pool;
        let (mut inline, inline_reader) = new(&spec(), Seq::new(7), &pool).expect("a memtable");
        let (mut parallel, parallel_reader) = new(&spec(), Seq::new(7), &pool).expect("a memtable");
        for batches in &puts {
            let rows = put(inline.end(), batches.iter().map(|ids| batch(ids, 4)).collect());
            inline.apply(&rows).expect("applied");
            parallel.apply_parallel(&rows, pool.as_ref()).expect("applied");
            prop_assert_eq!(inline.end(), parallel.end());
            prop_assert_eq!(inline.bytes().rows, parallel.bytes().rows);
        }
        let end = inline.end();
        prop_assert_eq!(everything(&inline_reader, end), everything(&parallel_reader, end));
    }

    #[test]
    fn b1_what_is_held_never_exceeds_what_was_charged(
        puts in prop::collection::vec((prop::collection::vec(-100i64..100_000, 1..300), 0usize..60, 0usize..10), 1..30),
    ) {
        let (mut writer, _) = memtable(0);
        let mut charged = 0;
        for (ids, words, cut) in &puts {
            let whole = batch(ids, *words);
            let slice = whole.slice((*cut).min(ids.len() - 1), ids.len() - (*cut).min(ids.len() - 1));
            let rows = put(writer.end(), vec![slice]);
            charged += charge(&spec(), &rows);
            writer.apply(&rows).expect("applied");
            let held = writer.bytes();
            prop_assert!(held.rows + held.indexes <= charged + EMPTY_BYTES, "{held:?} of {charged}");
        }
        // An estimate that is honest is no use if it is many times what is held.
        let held = writer.bytes();
        prop_assert!(charged <= 6 * (held.rows + held.indexes), "{held:?} of {charged}");
    }
}

#[test]
fn b1_many_puts_of_one_row_stay_within_their_charges() {
    let (mut writer, _) = memtable(0);
    let mut charged = 0;
    for id in 0..20_000 {
        let rows = put(writer.end(), vec![batch(&[id], 30)]);
        charged += charge(&spec(), &rows);
        writer.apply(&rows).expect("applied");
        if id % 97 == 0 {
            let held = writer.bytes();
            assert!(held.rows + held.indexes <= charged + EMPTY_BYTES, "{held:?} of {charged} after {id}");
        }
    }
}

#[test]
fn b1_a_dictionary_is_charged_by_the_rows_that_use_it() {
    let ids: Vec<i64> = (0..3000).collect();
    let small = batch(&ids, 50).slice(0, 2);
    let alone = batch(&ids[..2], 50);
    assert_eq!(index_bytes_estimate(&spec(), &small), index_bytes_estimate(&spec(), &alone));
    assert!(small.column(2).as_any_dictionary().values().len() > 20, "the slice has the whole dictionary");
}

#[test]
fn f1_one_rule_seals_and_never_an_empty_memtable() {
    let (mut writer, _) = memtable(0);
    assert!(!writer.is_full(1, u64::MAX), "an empty memtable is never sealed");
    let rows = put(Seq::ZERO, vec![batch(&[1, 2, 3], 10)]);
    let charged = charge(&spec(), &rows);
    writer.apply(&rows).expect("applied");
    assert!(!writer.is_full(charged + 100, 100), "the next put fits to the byte");
    assert!(writer.is_full(charged + 100, 101), "and one byte more does not");
    assert!(writer.is_full(u64::MAX - 1, u64::MAX), "no overflow");
}

#[test]
fn f1_replay_seals_where_the_live_shard_did() {
    // The same rows with merges at once, in the background, and lost.
    #[derive(Debug)]
    struct Lost;
    impl CpuPool for Lost {
        fn spawn(&self, job: Job<'static>) {
            drop(job);
        }
        fn run_all(&self, jobs: Vec<Job<'_>>) {
            jobs.into_iter().for_each(|job| job());
        }
    }
    let seals = |pool: Arc<dyn CpuPool>| -> Vec<u64> {
        let mut seals = Vec::new();
        let mut writer = new(&spec(), Seq::ZERO, &pool).expect("a memtable").0;
        for at in 0..60 {
            let ids: Vec<i64> = (at * 500..(at + 1) * 500).collect();
            let rows = put(writer.end(), vec![batch(&ids, 2)]);
            if writer.is_full(4 << 20, charge(&spec(), &rows)) {
                seals.push(writer.end().get());
                writer = new(&spec(), writer.end(), &pool).expect("a memtable").0;
            }
            writer.apply(&rows).expect("applied");
        }
        seals
    };
    let wanted = seals(inline());
    assert!(wanted.len() > 2, "{wanted:?}");
    assert_eq!(seals(Components::default().cpu_pool), wanted);
    assert_eq!(seals(Arc::new(Lost)), wanted);
}

/// An index that fails in its own way.
struct Faulty {
    panics: bool,
}

impl IndexWriter for Faulty {
    fn name(&self) -> &str {
        "the index `faulty`"
    }

    fn apply(&mut self, first: Seq, _: &RecordBatch) -> Result<(), IndexError> {
        assert!(!self.panics, "a bug");
        Err(IndexError::new(self.name(), first, "no more".to_owned()))
    }

    fn bytes(&self) -> u64 {
        0
    }
}

#[test]
fn x2_an_index_that_fails_or_panics_is_named_with_its_row() {
    let pool = Components::default().cpu_pool;
    for panics in [false, true] {
        let (mut writer, reader) = memtable(5);
        writer.indexes.insert(1, Box::new(Faulty { panics }));
        let failure = writer
            .apply_parallel(&put(Seq::new(5), vec![batch(&[1], 1)]), pool.as_ref())
            .expect_err("the index refuses");
        let text = failure.to_string();
        assert!(matches!(failure, Failure::Apply { .. }), "{text}");
        assert!(text.contains("`faulty`") && text.contains('5'), "{text}");
        assert!(text.contains(if panics { "a bug" } else { "no more" }), "{text}");
        // The other indexes did their work all the same: one failure does not tear a put apart.
        assert_eq!(
            reader
                .btree(2)
                .expect("an index")
                .tree()
                .range(std::ops::Bound::Unbounded, std::ops::Bound::Unbounded, Seq::MAX)
                .len(),
            1
        );
    }
    let (mut writer, _) = memtable(5);
    writer.indexes.push(Box::new(Faulty { panics: false }));
    let text = writer.apply(&put(Seq::new(5), vec![batch(&[1], 1)])).expect_err("the index refuses").to_string();
    assert!(text.contains("`faulty`") && text.contains('5') && text.contains("no more"), "{text}");
}

#[test]
fn v6_without_key_and_index_rows_are_kept_and_found() {
    let schema = Arc::clone(spec().schema());
    let bare = Arc::new(TableSpec::new(schema).validate().expect("valid"));
    let (mut writer, reader) = new(&bare, Seq::ZERO, &inline()).expect("a memtable");
    let rows = put(Seq::ZERO, vec![batch(&[1, 2], 1), batch(&[3], 1)]);
    writer.apply_parallel(&rows, &InlinePool).expect("applied");
    assert!(reader.primary_key().is_none() && reader.btree(0).is_none());
    let range = SeqRange::between(Seq::ZERO, Seq::new(2));
    assert_eq!(reader.rows().batches(range).map(|window| window.batch.num_rows()).sum::<usize>(), 2);
}

#[test]
fn p9_a_delete_is_the_newest_version_of_its_key() {
    let (mut writer, reader) = memtable(0);
    writer.apply(&put(Seq::ZERO, vec![batch(&[1, 2], 1)])).expect("applied");
    let keys = batch(&[1], 1).project(&[0, 1]).expect("the key columns");
    let delete = spec().check_delete(&keys).expect("a delete").sequenced(SeqRange::starting_at(Seq::new(2), 1));
    writer.apply(&delete).expect("applied");
    let primary = reader.primary_key().expect("a key");
    let encoder: &KeyEncoder = primary.encoder();
    let key = encoder.encode_rows(&keys).expect("encoded");
    assert_eq!(primary.newest(key.row(0).data(), Seq::new(3)), Some(Seq::new(2)));
    assert_eq!(primary.newest(key.row(0).data(), Seq::new(2)), Some(Seq::ZERO));
    let tombstone = reader.rows().row(Seq::new(2)).expect("a row");
    assert!(tombstone.column(spec().tombstone_column()).as_boolean().value(0));
}

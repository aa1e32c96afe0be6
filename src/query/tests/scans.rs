//! Q1 to Q5: lookups and scans of real memtables against brute force over the list of rows.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{ArrayRef, Int64Array, RecordBatch};
use arrow_select::concat::concat_batches;
use proptest::prelude::*;

use super::super::bind::bind;
use super::super::filter::{Expr, col};
use super::super::plan::Access;
use super::super::run::Run;
use super::super::scan::{Order, Scan};
use super::super::source::View;
use super::super::{Lookup, Outcome, Snapshot};
use super::oracle::truth;
use super::shard::{Shard, Version};
use crate::error::{Error, Failure};
use crate::ids::Seq;
use crate::value::{Key, Value};

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<Version>),
    Seal,
}

fn version(deleted: bool) -> impl Strategy<Value = Version> {
    let text = proptest::sample::select(vec![None, Some(""), Some("a"), Some("ab"), Some("abc"), Some("b"), Some("ü")]);
    let double = proptest::sample::select(vec![None, Some(0.0), Some(-0.0), Some(1.5), Some(f64::NAN), Some(-1.0)]);
    let big = prop_oneof![1 => Just(None), 9 => (0..20i64).prop_map(Some)];
    (0..25i64, big, text, double).prop_map(move |(id, big, text, double)| {
        let none = deleted;
        Version {
            id,
            big: big.filter(|_| !none),
            text: text.filter(|_| !none).map(str::to_string),
            double: double.filter(|_| !none),
            deleted,
        }
    })
}

fn steps(keyed: bool) -> impl Strategy<Value = Vec<Step>> {
    let put = proptest::collection::vec(version(false), 1..8).prop_map(Step::Write);
    let delete = proptest::collection::vec(version(keyed), 1..3).prop_map(Step::Write);
    proptest::collection::vec(prop_oneof![12 => put, 3 => delete, 1 => Just(Step::Seal)], 1..40)
}

fn leaf() -> impl Strategy<Value = Expr> {
    let number = 0..20i64;
    let text = proptest::sample::select(vec!["", "a", "ab", "abc", "b", "c"]);
    prop_oneof![
        4 => number.clone().prop_map(|n| col("big").eq(n)),
        1 => number.clone().prop_map(|n| col("big").lt(n as f64 - 0.5)),
        2 => (number.clone(), 0..4i64).prop_map(|(low, more)| col("big").between(low, low + more)),
        2 => proptest::collection::vec(number, 0..4).prop_map(|list| col("big").in_list(list)),
        1 => Just(col("big").is_null()),
        1 => Just(col("text").is_not_null()),
        4 => text.clone().prop_map(|text| col("text").eq(text)),
        1 => text.clone().prop_map(|text| col("text").gt(text)),
        1 => text.clone().prop_map(|text| col("text").starts_with(text)),
        1 => text.prop_map(|text| col("text").like(format!("{text}%c"))),
        1 => Just(col("double").eq(0.0)),
        1 => Just(col("double").gt(1.0)),
        1 => Just(col("double").eq(f64::NAN)),
    ]
}

fn filter() -> impl Strategy<Value = Option<Expr>> {
    let some = proptest::collection::vec((leaf(), any::<bool>()), 1..4).prop_map(|leaves| {
        let mut leaves = leaves.into_iter();
        let (first, negated) = leaves.next().expect("at least one");
        let first = if negated && leaves.len() > 1 { first.not() } else { first };
        leaves.fold(first, |all, (leaf, both)| if both { all.and(leaf) } else { all.and(leaf.or(col("big").eq(3))) })
    });
    proptest::option::weighted(0.8, some)
}

fn order() -> impl Strategy<Value = Order> {
    let column = (proptest::sample::select(vec!["id", "big", "text", "double"]), any::<bool>(), any::<bool>())
        .prop_map(|(name, descending, nulls_first)| Order::Column { name: name.into(), descending, nulls_first });
    prop_oneof![1 => Just(Order::SeqAscending), 1 => Just(Order::SeqDescending), 3 => column]
}

#[derive(Clone, Debug)]
struct Question {
    filter: Option<Expr>,
    order: Order,
    limit: Option<u64>,
    offset: u64,
    batch_rows: usize,
    /// In thousandths of the shard's rows.
    seq: u64,
    columns: Option<Vec<&'static str>>,
}

fn question() -> impl Strategy<Value = Question> {
    let limit = prop_oneof![2 => Just(None), 4 => (0..8u64).prop_map(Some), 1 => (0..80u64).prop_map(Some)];
    let columns = proptest::option::of(proptest::sample::subsequence(vec!["double", "text", "id"], 0..=3));
    let batch_rows = prop_oneof![1..9usize, Just(8192)];
    let seq = prop_oneof![Just(1000), 0..=1000u64];
    (filter(), order(), limit, prop_oneof![Just(0), 0..12u64], batch_rows, seq, columns).prop_map(
        |(filter, order, limit, offset, batch_rows, seq, columns)| Question {
            filter,
            order,
            limit,
            offset,
            batch_rows,
            seq,
            columns,
        },
    )
}

fn shard(keyed: bool, indexed: bool, steps: Vec<Step>) -> Shard {
    let mut shard = Shard::new(keyed, indexed);
    let mut seals = 0;
    for step in steps {
        match step {
            Step::Write(versions) => shard.write(versions),
            Step::Seal if seals < 2 => {
                seals += 1;
                shard.seal();
            }
            Step::Seal => (),
        }
    }
    shard
}

/// The rows a question asks for, by brute force.
fn expected(shard: &Shard, seq: Seq, question: &Question) -> Vec<usize> {
    let mut rows = shard.rows_below(seq);
    rows.retain(|at| {
        question.filter.as_ref().is_none_or(|filter| truth(filter, &shard.versions[*at].row()) == Some(true))
    });
    match &question.order {
        Order::SeqAscending => (),
        Order::SeqDescending => rows.reverse(),
        Order::Column { name, descending, nulls_first } => rows.sort_by(|a, b| {
            let (a, b) = (&shard.versions[*a], &shard.versions[*b]);
            // Stable, so equal rows stay by ascending `Seq`.
            match name.as_str() {
                "id" => directed(Some(a.id), Some(b.id), Ord::cmp, *descending, *nulls_first),
                "big" => directed(a.big, b.big, Ord::cmp, *descending, *nulls_first),
                "text" => directed(a.text.as_deref(), b.text.as_deref(), Ord::cmp, *descending, *nulls_first),
                _ => directed(a.double, b.double, floats, *descending, *nulls_first),
            }
        }),
    }
    let limit = question.limit.map_or(usize::MAX, |limit| limit as usize);
    rows.into_iter().skip(question.offset as usize).take(limit).collect()
}

fn floats(a: &f64, b: &f64) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

fn directed<T>(
    a: Option<T>,
    b: Option<T>,
    cmp: fn(&T, &T) -> Ordering,
    descending: bool,
    nulls_first: bool,
) -> Ordering {
    match (a, b) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => {
            if nulls_first {
                Ordering::Less
            } else {
                Ordering::Greater
            }
        }
        (Some(_), None) => {
            if nulls_first {
                Ordering::Greater
            } else {
                Ordering::Less
            }
        }
        (Some(a), Some(b)) => {
            if descending {
                cmp(&b, &a)
            } else {
                cmp(&a, &b)
            }
        }
    }
}

fn scan(question: &Question) -> Scan {
    let mut scan = Scan::new()
        .order_by(question.order.clone())
        .offset(question.offset)
        .batch_rows(question.batch_rows)
        .with_seq(true);
    if let Some(filter) = &question.filter {
        scan = scan.filter(filter.clone());
    }
    if let Some(limit) = question.limit {
        scan = scan.limit(limit);
    }
    if let Some(columns) = &question.columns {
        scan = scan.columns(columns.iter().copied());
    }
    scan
}

pub(super) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(future)
}

fn check(shard: &Shard, question: &Question) -> Result<(), TestCaseError> {
    let seq = Seq::new(shard.end().get() * question.seq / 1000);
    let snapshot = shard.snapshot(seq);
    let expected = expected(shard, seq, question);
    let rows = snapshot.scan_blocking(scan(question)).map_err(fail)?;
    let schema = Arc::clone(rows.schema());
    let batches: Vec<RecordBatch> = rows.collect::<Result<_, _>>().map_err(fail)?;
    let sizes: Vec<usize> = batches.iter().map(RecordBatch::num_rows).collect();
    let full = sizes.len().saturating_sub(1);
    prop_assert!(sizes[..full].iter().all(|rows| *rows == question.batch_rows), "batches of {sizes:?}");
    let blocking = concat_batches(&schema, &batches).map_err(fail)?;
    shard.check_rows(&blocking, &expected).map_err(TestCaseError::fail)?;
    let streamed = block_on(snapshot.scan(scan(question)).map_err(fail)?.collect_all()).map_err(fail)?;
    prop_assert!(format!("{streamed:?}") == format!("{blocking:?}"), "a stream and an iterator differ");
    let matches = expected_count(shard, seq, question);
    prop_assert_eq!(block_on(snapshot.count(question.filter.clone())).map_err(fail)?, matches);
    Ok(())
}

fn expected_count(shard: &Shard, seq: Seq, question: &Question) -> u64 {
    let all = Question { limit: None, offset: 0, ..question.clone() };
    expected(shard, seq, &all).len() as u64
}

fn fail(error: impl std::fmt::Display) -> TestCaseError {
    TestCaseError::fail(error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn q1_q4_a_scan_gives_what_brute_force_gives(
        steps in steps(true),
        indexed in any::<bool>(),
        questions in proptest::collection::vec(question(), 6),
    ) {
        let shard = shard(true, indexed, steps);
        for question in &questions {
            check(&shard, question).map_err(|error| TestCaseError::fail(format!("{question:?}: {error}")))?;
        }
    }

    #[test]
    fn q4_a_scan_without_a_primary_key_gives_every_row(
        steps in steps(false),
        questions in proptest::collection::vec(question(), 3),
    ) {
        let shard = shard(false, true, steps);
        for question in &questions {
            check(&shard, question).map_err(|error| TestCaseError::fail(format!("{question:?}: {error}")))?;
        }
    }

    #[test]
    fn q2_lookups_find_the_newest_row_below_the_snapshot(steps in steps(true), seq in 0..=1000u64) {
        let shard = shard(true, false, steps);
        let seq = Seq::new(shard.end().get() * seq / 1000);
        let snapshot = shard.snapshot(seq);
        let below = &shard.versions[..seq.get() as usize];
        // Every key, and one of them twice.
        let ids: Vec<i64> = (0..27).rev().chain([3]).collect();
        let many = snapshot.get_many(&ids.iter().map(|id| Key::from(*id)).collect::<Vec<_>>()).map_err(fail)?;
        let schema = Arc::new(shard.spec.schema().project(&[0]).expect("the key"));
        let batch = RecordBatch::try_new(schema, vec![Arc::new(Int64Array::from(ids.clone())) as ArrayRef]).expect("keys");
        prop_assert_eq!(&snapshot.get_batch(&batch).map_err(fail)?, &many);
        for (at, id) in ids.into_iter().enumerate() {
            let newest = below.iter().rev().find(|version| version.id == id);
            let one = snapshot.get(id).map_err(fail)?;
            match newest {
                None => prop_assert!(one == Lookup::Missing && many.outcomes[at] == Outcome::Missing),
                Some(version) if version.deleted => {
                    prop_assert!(one == Lookup::Deleted && many.outcomes[at] == Outcome::Deleted);
                }
                Some(version) => {
                    let row = one.row().expect("found").clone();
                    prop_assert_eq!(row.schema(), shard.spec.schema().clone());
                    prop_assert_eq!(row.column(0).as_primitive::<Int64Type>().value(0), id);
                    prop_assert_eq!(row.column(2).as_string::<i32>().iter().next().flatten(), version.text.as_deref());
                    prop_assert_eq!(format!("{:?}", many.row(at).expect("found")), format!("{row:?}"));
                }
            }
        }
    }
}

pub(super) fn row(id: i64, big: i64) -> Version {
    Version { id, big: Some(big), text: None, double: None, deleted: false }
}

pub(super) fn ids(snapshot: &Snapshot, scan: Scan) -> Vec<i64> {
    let rows = block_on(snapshot.scan(scan).expect("a scan").collect_all()).expect("rows");
    rows.column_by_name("id").expect("ids").as_primitive::<Int64Type>().values().to_vec()
}

#[test]
fn q1_a_key_whose_newest_row_no_longer_matches_is_not_found_by_an_older_one() {
    for sealed in [false, true] {
        let mut shard = Shard::new(true, true);
        shard.write((0..100).map(|id| row(id, id)).collect());
        if sealed {
            shard.seal();
        }
        shard.write(vec![row(5, 1000)]);
        shard.write(vec![Version { deleted: true, big: None, ..row(6, 0) }]);
        let snapshot = shard.snapshot(shard.end());
        assert_eq!(ids(&snapshot, Scan::new().filter(col("big").between(4, 7))), [4, 7]);
        // The limit counts what is in the result, not what was looked at.
        assert_eq!(ids(&snapshot, Scan::new().filter(col("big").gt_eq(5)).limit(2)), [7, 8]);
        assert_eq!(ids(&snapshot, Scan::new().order_by(Order::column_descending("big")).limit(2)), [5, 99]);
    }
}

#[test]
fn v4_a_snapshot_gives_the_same_bytes_whatever_happens_after() {
    let mut shard = Shard::new(true, true);
    shard.write((0..50).map(|id| row(id, id % 7)).collect());
    let snapshot = shard.snapshot(shard.end());
    let read = || {
        let all = ids(&snapshot, Scan::new());
        let some = ids(&snapshot, Scan::new().filter(col("big").eq(3)).order_by(Order::column("id")));
        (all, some, snapshot.get(7).expect("read"), block_on(snapshot.count(None)).expect("counted"))
    };
    let before = read();
    shard.write((0..50).map(|id| row(id, 3)).collect());
    shard.write(vec![Version { deleted: true, big: None, ..row(7, 0) }]);
    assert_eq!(read(), before);
}

fn access(shard: &Shard, filter: Expr) -> Access {
    let snapshot = shard.snapshot(shard.end());
    let scan = Scan::new().filter(filter).check(&shard.spec).expect("valid");
    Run::new(&snapshot.view, snapshot.seq, &shard.spec, scan).expect("a run").access().expect("planned")
}

#[test]
fn q3_a_selective_filter_uses_an_index_and_another_does_not() {
    let mut shard = Shard::new(true, true);
    let text = |id: i64| Some(format!("{}{}", ["x", "y"][id as usize % 2], id % 100));
    shard.write((0..1000).map(|id| Version { text: text(id), ..row(id, id) }).collect());
    let uses = |filter: Expr| match access(&shard, filter) {
        Access::Index { index, .. } => Some(index),
        Access::All | Access::Nothing => None,
    };
    let by_big = Some(0);
    let by_text = Some(1);
    assert_eq!(uses(col("big").eq(7)), by_big);
    assert_eq!(uses(col("big").in_list([1, 2, 3])), by_big);
    assert_eq!(uses(col("big").between(10, 20).and(col("id").gt(3))), by_big);
    assert_eq!(uses(col("big").is_null()), by_big);
    assert_eq!(uses(col("big").gt(10)), None, "99 % of the rows");
    assert_eq!(uses(col("id").eq(7)), None, "no index on it");
    assert_eq!(uses(col("text").eq("x4")), by_text);
    assert_eq!(uses(col("text").starts_with("x4")), by_text);
    assert_eq!(uses(col("text").like("x4%")), by_text);
    assert_eq!(uses(col("text").like("%4")), None);
    assert_eq!(uses(col("text").in_list(["x4", "x6"]).and(col("big").between(0, 500))), by_text, "both columns");
    assert_eq!(uses(col("big").eq(7).or(col("big").eq(8))), None, "an OR is no conjunct");
    assert!(matches!(access(&shard, col("big").eq(1.5)), Access::Nothing));
    assert!(matches!(access(&shard, col("id").eq(3).and(col("big").eq(Value::Null))), Access::Nothing));
}

#[test]
fn q4_a_scan_that_cannot_be_carried_out_is_refused_before_any_work() {
    let shard = Shard::new(true, true);
    let snapshot = shard.snapshot(Seq::ZERO);
    let refusal = |scan: Scan| match snapshot.scan(scan) {
        Err(error @ Error::InvalidInput { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refusal(Scan::new().columns(["idd"])).contains("one of id, big, text, double"));
    assert!(refusal(Scan::new().columns(["id", "id"])).contains("twice"));
    assert!(refusal(Scan::new().columns(Vec::<String>::new())).contains("at least one column"));
    assert!(refusal(Scan::new().batch_rows(0)).contains("batch_rows"));
    assert!(refusal(Scan::new().order_by(Order::column("no"))).contains("`no`"));
    assert!(refusal(Scan::new().filter(col("_tombstone").eq(true))).contains("_tombstone"));
    assert!(Scan::new().filter_sql("id >").is_err());
}

#[test]
fn q2_a_lookup_that_cannot_be_answered_is_refused() {
    let mut shard = Shard::new(true, false);
    shard.write(vec![row(1, 1)]);
    let snapshot = shard.snapshot(shard.end());
    assert!(snapshot.get("one").expect_err("text").to_string().contains("`id`"));
    assert!(snapshot.get_many(&[Key::from(1), Key::from((1, 2))]).is_err());
    let wrong = shard.spec.schema().project(&[1]).expect("another column");
    let wrong = RecordBatch::new_empty(Arc::new(wrong));
    assert!(snapshot.get_batch(&wrong).expect_err("not the key").to_string().contains("id Int64"));
    let unkeyed = Shard::new(false, false).snapshot(Seq::ZERO);
    assert!(matches!(unkeyed.get(1), Err(Error::InvalidInput { .. })));
    assert!(matches!(unkeyed.get_many(&[]), Err(Error::InvalidInput { .. })));
}

#[test]
fn q2_hit_miss_and_deleted_are_told_apart_in_print() {
    let mut shard = Shard::new(true, false);
    shard.write(vec![row(1, 10), row(2, 20)]);
    shard.write(vec![Version { deleted: true, big: None, ..row(2, 0) }]);
    let snapshot = shard.snapshot(shard.end());
    let print = |id: i64| snapshot.get(id).expect("looked up").to_string();
    assert_eq!(print(1), "{id: 1, big: 10, text: null, double: null}");
    assert_eq!((print(2).as_str(), print(3).as_str()), ("deleted", "missing"));
}

#[test]
fn z2_a_snapshot_and_its_streams_answer_with_the_shards_failure() {
    let mut shard = Shard::new(true, false);
    shard.write((0..10).map(|id| row(id, id)).collect());
    let snapshot = shard.snapshot(shard.end());
    let mut stream = snapshot.scan(Scan::new().batch_rows(2)).expect("a scan");
    assert!(matches!(block_on(stream.next()), Some(Ok(_))));
    shard.status.fail(Failure::Apply { detail: "for a test".into() });
    assert!(matches!(block_on(stream.next()), Some(Err(Error::Failed(_)))));
    assert!(block_on(stream.next()).is_none());
    assert!(matches!(snapshot.get(1), Err(Error::Failed(_))));
    assert!(matches!(snapshot.get_many(&[]), Err(Error::Failed(_))));
    assert!(matches!(snapshot.scan(Scan::new()), Err(Error::Failed(_))));
    assert!(matches!(snapshot.scan_blocking(Scan::new()), Err(Error::Failed(_))));
    assert!(matches!(block_on(snapshot.count(None)), Err(Error::Failed(_))));
}

#[test]
fn q3_an_index_and_a_full_scan_give_the_same_rows_in_every_order() {
    let mut shard = Shard::new(true, true);
    let mut plain = Shard::new(true, false);
    for shard in [&mut shard, &mut plain] {
        shard.write((0..400).map(|id| row(id, id * 7 % 50)).collect());
        shard.seal();
        shard.write((0..200).map(|id| row(id * 2, id * 3 % 50)).collect());
    }
    let mut seen = HashMap::new();
    for order in [Order::SeqAscending, Order::SeqDescending, Order::column("big"), Order::column_descending("big")] {
        for (name, shard) in [("indexed", &shard), ("plain", &plain)] {
            let filter = col("big").between(10, 12);
            assert!(matches!(access(shard, filter.clone()), Access::Index { .. }) == (name == "indexed"));
            let found = ids(&shard.snapshot(shard.end()), Scan::new().filter(filter).order_by(order.clone()).limit(9));
            assert_eq!(seen.entry(format!("{order:?}")).or_insert_with(|| found.clone()), &found, "{order:?}");
        }
    }
}

#[test]
fn q4_no_rows_and_no_source_are_an_empty_result() {
    let snapshot = Shard::new(true, true).snapshot(Seq::ZERO);
    let rows = block_on(snapshot.scan(Scan::new().order_by(Order::column("big"))).expect("a scan").collect_all());
    assert_eq!(rows.expect("rows").num_rows(), 0);
    assert_eq!(snapshot.get(1).expect("looked up"), Lookup::Missing);
    assert_eq!(View::of_memtables(Vec::new()).oldest_snapshot(), Seq::ZERO);
    assert!(bind(&col("id").eq(1), snapshot.schema()).is_ok());
}

#[test]
fn q4_long_and_short_puts_are_read_in_order_in_both_directions() {
    let mut shard = Shard::new(true, false);
    for rows in [3, 1500, 2, 2, 1100, 1, 3000, 4] {
        let first = shard.end().get() as i64;
        shard.write((first..first + rows).map(|id| row(id, id)).collect());
    }
    let snapshot = shard.snapshot(shard.end());
    let upwards: Vec<i64> = (0..shard.end().get() as i64).collect();
    let downwards: Vec<i64> = upwards.iter().rev().copied().collect();
    for batch_rows in [700, 8192] {
        let scan = Scan::new().batch_rows(batch_rows);
        assert!(ids(&snapshot, scan.clone()) == upwards);
        assert!(ids(&snapshot, scan.clone().order_by(Order::SeqDescending)) == downwards);
        assert!(ids(&snapshot, scan.order_by(Order::column_descending("big"))) == downwards);
    }
}

#[test]
fn q4_an_ordered_index_is_followed_past_rows_that_are_no_longer_there() {
    let mut shard = Shard::new(true, true);
    shard.write((0..4000).map(|id| row(id, id)).collect());
    shard.seal();
    // The greatest 500 of the index are superseded in a newer memtable, and 100 more in this one.
    shard.write((3500..4000).map(|id| row(id, -1)).collect());
    shard.write((3500..3600).map(|id| row(id, -2)).collect());
    let scan = Scan::new().order_by(Order::column_descending("big")).filter(col("big").lt_eq(5000)).offset(1).limit(3);
    assert_eq!(ids(&shard.snapshot(shard.end()), scan.clone()), [3498, 3497, 3496]);
    assert_eq!(ids(&shard.snapshot(Seq::new(4000)), scan), [3998, 3997, 3996]);
}

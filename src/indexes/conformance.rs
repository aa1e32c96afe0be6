//! The suite that every index passes.
//!
//! An index joins by saying, in [`Subject`], how it is made, what it answers, and what a list of
//! rows read from front to back would answer. Rows have a key that comes again and again, a
//! number, and a text; number and text may be null.

use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};
use proptest::prelude::*;

use crate::components::InlinePool;
use crate::config::{Components, CpuPool};
use crate::ids::{Seq, SeqRange};
use crate::indexes::key::KeyBounds;
use crate::indexes::{IndexWriter, ordered, primary_key};

type Row = (i64, Option<i64>, Option<&'static str>);

const KEYS: i64 = 7;
const NUMBERS: i64 = 5;
const TEXTS: [&str; 4] = ["", "ab", "abc", "a text that is longer than one block of the encoding of keys"];

/// An index under the suite.
trait Subject {
    type Reader: Clone + Send + Sync;
    /// What it answers at one watermark to all its questions.
    type Answers: PartialEq + Debug;

    fn new(first: Seq, pool: &Arc<dyn CpuPool>) -> (Box<dyn IndexWriter>, Self::Reader);
    fn answers(reader: &Self::Reader, first: Seq, watermark: Seq) -> Self::Answers;
    /// The same, from the rows below the watermark; the first of them is `first`.
    fn oracle(rows: &[Row], first: Seq) -> Self::Answers;
    /// All rows the answers name.
    fn named(answers: &Self::Answers) -> Vec<Seq>;
}

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Int64, false),
        Field::new("number", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
    ]))
}

fn batch(rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(rows.iter().map(|row| row.1).collect::<Int64Array>()),
        Arc::new(rows.iter().map(|row| row.2).collect::<StringArray>()),
    ];
    RecordBatch::try_new(schema(), columns).expect("a batch")
}

fn numbered(rows: &[Row], first: Seq) -> impl DoubleEndedIterator<Item = (Seq, &Row)> {
    rows.iter().enumerate().map(move |(at, row)| (first.plus(at as u64), row))
}

struct PrimaryKey;

#[derive(PartialEq, Debug)]
struct Versions {
    /// The newest row of each key.
    newest: Vec<Option<Seq>>,
    live: Vec<bool>,
}

impl Subject for PrimaryKey {
    type Reader = primary_key::PrimaryKeyReader;
    type Answers = Versions;

    fn new(first: Seq, _: &Arc<dyn CpuPool>) -> (Box<dyn IndexWriter>, Self::Reader) {
        let (writer, reader) = primary_key::new(&schema(), &[0], first).expect("an index");
        (Box::new(writer), reader)
    }

    fn answers(reader: &Self::Reader, first: Seq, watermark: Seq) -> Versions {
        let newest =
            (0..KEYS).map(|key| reader.newest(&reader.encoder().encode_key(&key.into()).expect("a key"), watermark));
        let range = SeqRange::between(first, watermark);
        let live = reader.live(range, watermark);
        let live: Vec<bool> =
            (0..range.rows() as usize).map(|at| live.as_ref().is_none_or(|live| live.value(at))).collect();
        for (at, live) in live.iter().enumerate() {
            assert_eq!(reader.is_live(first.plus(at as u64), watermark), *live);
        }
        Versions { newest: newest.collect(), live }
    }

    fn oracle(rows: &[Row], first: Seq) -> Versions {
        let newest_of = |key| numbered(rows, first).rev().find(|(_, row)| row.0 == key).map(|(seq, _)| seq);
        let live = numbered(rows, first).map(|(seq, row)| newest_of(row.0) == Some(seq));
        Versions { newest: (0..KEYS).map(newest_of).collect(), live: live.collect() }
    }

    fn named(answers: &Versions) -> Vec<Seq> {
        answers.newest.iter().copied().flatten().collect()
    }
}

struct Ordered;

/// What is asked of the ordered index over number and text.
#[derive(Debug)]
enum Question {
    Everything,
    IsNull,
    Equal(i64),
    /// Above the one and not above the other.
    Between(i64, i64),
    TextOf(i64, &'static str),
    TextFrom(i64, &'static str),
}

fn questions() -> Vec<Question> {
    let mut questions = vec![Question::Everything, Question::IsNull];
    for number in 0..NUMBERS {
        questions.push(Question::Equal(number));
        questions.extend((0..NUMBERS).map(|end| Question::Between(number, end)));
        for text in TEXTS {
            questions.push(Question::TextOf(number, text));
            questions.push(Question::TextFrom(number, text));
        }
    }
    questions
}

impl Question {
    fn matches(&self, row: &Row) -> bool {
        let (number, text) = (row.1, row.2);
        match self {
            Question::Everything => true,
            Question::IsNull => number.is_none(),
            Question::Equal(wanted) => number == Some(*wanted),
            Question::Between(above, end) => number.is_some_and(|number| above < &number && number <= *end),
            Question::TextOf(wanted, value) => number == Some(*wanted) && text == Some(value),
            Question::TextFrom(wanted, from) => number == Some(*wanted) && text.is_some_and(|text| text >= *from),
        }
    }

    fn bounds(&self, reader: &ordered::OrderedReader) -> KeyBounds {
        let number = |value: Option<i64>| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
        let text = |value: &str| Arc::new(StringArray::from(vec![value])) as ArrayRef;
        let encoder = reader.encoder();
        let bounds = match self {
            Question::Everything => encoder.bounds(&[], None),
            Question::IsNull => encoder.bounds(&[number(None)], None),
            Question::Equal(wanted) => encoder.bounds(&[number(Some(*wanted))], None),
            Question::Between(above, end) => {
                let range = (Bound::Excluded(number(Some(*above))), Bound::Included(number(Some(*end))));
                encoder.bounds(&[], Some(range))
            }
            Question::TextOf(wanted, value) => encoder.bounds(&[number(Some(*wanted)), text(value)], None),
            Question::TextFrom(wanted, from) => {
                let range = (Bound::Included(text(from)), Bound::Unbounded);
                encoder.bounds(&[number(Some(*wanted))], Some(range))
            }
        };
        bounds.expect("bounds")
    }
}

#[derive(PartialEq, Debug)]
struct Found {
    by_seq: Vec<Seq>,
    by_key: Vec<Seq>,
    by_key_descending: Vec<Seq>,
}

impl Subject for Ordered {
    type Reader = ordered::OrderedReader;
    type Answers = Vec<Found>;

    fn new(first: Seq, pool: &Arc<dyn CpuPool>) -> (Box<dyn IndexWriter>, Self::Reader) {
        let (writer, reader) = ordered::new("by_number", &schema(), &[1, 2], first, pool).expect("an index");
        (Box::new(writer), reader)
    }

    fn answers(reader: &Self::Reader, _: Seq, watermark: Seq) -> Vec<Found> {
        let find = |question: Question| {
            let (lower, upper) = question.bounds(reader);
            let (lower, upper) = (lower.as_ref().map(Vec::as_slice), upper.as_ref().map(Vec::as_slice));
            let ordered = |reverse| reader.tree().ordered(lower, upper, reverse, watermark).collect();
            let by_seq = reader.tree().range(lower, upper, watermark);
            assert!(reader.tree().estimate(lower, upper) >= by_seq.len() as u64);
            Found { by_seq, by_key: ordered(false), by_key_descending: ordered(true) }
        };
        questions().into_iter().map(find).collect()
    }

    fn oracle(rows: &[Row], first: Seq) -> Vec<Found> {
        let find = |question: Question| {
            let mut found: Vec<(Seq, &Row)> = numbered(rows, first).filter(|(_, row)| question.matches(row)).collect();
            let seqs = |found: &[(Seq, &Row)]| found.iter().map(|(seq, _)| *seq).collect();
            let by_seq = seqs(&found);
            // Stable, so rows of one key stay in their order.
            found.sort_by_key(|(_, row)| (row.1, row.2));
            let by_key = seqs(&found);
            found.sort_by_key(|(seq, row)| (std::cmp::Reverse((row.1, row.2)), *seq));
            Found { by_seq, by_key, by_key_descending: seqs(&found) }
        };
        questions().into_iter().map(find).collect()
    }

    fn named(answers: &Vec<Found>) -> Vec<Seq> {
        answers.iter().flat_map(|found| found.by_seq.iter().copied()).collect()
    }
}

fn row() -> impl Strategy<Value = Row> {
    (0..KEYS, prop::option::of(0..NUMBERS), prop::option::of(prop::sample::select(TEXTS.to_vec())))
}

/// Nothing below the first row, and every batch at every watermark as a list of rows has it.
fn check_against_oracle<S: Subject>(batches: &[Vec<Row>], first: Seq, pool: &Arc<dyn CpuPool>) {
    let (mut writer, reader) = S::new(first, pool);
    assert_eq!(S::answers(&reader, first, first), S::oracle(&[], first), "an empty index");
    let mut rows = Vec::new();
    for rows_of_batch in batches {
        writer.apply(first.plus(rows.len() as u64), &batch(rows_of_batch)).expect("applied");
        rows.extend_from_slice(rows_of_batch);
        let watermark = first.plus(rows.len() as u64);
        assert_eq!(S::answers(&reader, first, watermark), S::oracle(&rows, first));
    }
    // The whole history again, from the end: what came later must not show (V4).
    for seen in 0..rows.len() {
        let watermark = first.plus(seen as u64);
        let answers = S::answers(&reader, first, watermark);
        assert!(S::named(&answers).iter().all(|seq| *seq < watermark));
        assert_eq!(answers, S::oracle(&rows[..seen], first), "below {watermark}");
    }
}

/// What a reader on another thread finds below the watermark it took is what the rows say, while
/// the writer goes on; and it never loses a row it has seen.
fn check_beside_writer<S: Subject>(pool: &Arc<dyn CpuPool>) {
    const BATCHES: u64 = 400;
    const ROWS: u64 = 3;
    // Every key, number and text, nulls too, in an order that anyone can compute from a `Seq`.
    let row_at = |seq: u64| -> Row {
        let number = (seq % (NUMBERS as u64 + 1)) as i64;
        let text = TEXTS.get((seq % 5) as usize).copied();
        ((seq % KEYS as u64) as i64, (number < NUMBERS).then_some(number), text)
    };
    let rows: Vec<Row> = (0..BATCHES * ROWS).map(row_at).collect();
    let (mut writer, reader) = S::new(Seq::ZERO, pool);
    let published = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut rounds, mut most) = (0, 0);
            let mut is_last = false;
            while !is_last {
                is_last = done.load(Ordering::Acquire);
                let watermark = published.load(Ordering::Acquire);
                let answers = S::answers(&reader, Seq::ZERO, Seq::new(watermark));
                let named = S::named(&answers).len();
                assert!(named >= most, "{named} rows where {most} had been seen");
                assert_eq!(answers, S::oracle(&rows[..watermark as usize], Seq::ZERO), "below {watermark}");
                (rounds, most) = (rounds + 1, named);
            }
            (rounds, most)
        });
        for (batch_at, rows) in (0..).zip(rows.chunks(ROWS as usize)) {
            writer.apply(Seq::new(batch_at * ROWS), &batch(rows)).expect("applied");
            published.store((batch_at + 1) * ROWS, Ordering::Release);
        }
        done.store(true, Ordering::Release);
        let (rounds, most) = reading.join().expect("what the reader saw was right");
        assert!(rounds > 0 && most > 0);
    });
}

macro_rules! conformance {
    ($($module:ident: $subject:ty),* $(,)?) => {
        $(mod $module {
            use super::*;

            proptest! {
                #![proptest_config(ProptestConfig::with_cases(64))]
                #[test]
                fn v4_answers_at_every_watermark_are_those_of_the_rows_below_it(
                    batches in prop::collection::vec(prop::collection::vec(row(), 1..6), 0..12),
                    first in prop::sample::select(vec![0u64, 1, 1 << 40]),
                ) {
                    let pool: Arc<dyn CpuPool> = Arc::new(InlinePool);
                    check_against_oracle::<$subject>(&batches, Seq::new(first), &pool);
                }
            }

            #[test]
            fn v4_rows_that_are_all_alike_and_all_null_are_kept_apart() {
                let alike: Row = (3, None, None);
                check_against_oracle::<$subject>(&vec![vec![alike; 3]; 20], Seq::new(10), &Components::default().cpu_pool);
            }

            #[test]
            fn v2_a_reader_beside_the_writer_sees_the_rows_below_its_watermark_and_no_others() {
                check_beside_writer::<$subject>(&Components::default().cpu_pool);
            }
        })*
    };
}

conformance! {
    primary_key_conforms: PrimaryKey,
    ordered_conforms: Ordered,
}

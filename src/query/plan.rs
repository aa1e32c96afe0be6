//! Which rows a filter can be looked for among: all of them, or those an index points to.
//!
//! A plan only narrows. The whole filter is evaluated on every candidate, so a plan may be
//! generous and need not understand everything; what it must not do is leave a match out.

use std::ops::Bound;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, new_null_array};
use arrow_cast::cast;
use arrow_schema::{ArrowError, DataType, Schema};

use super::bind::Predicate;
use super::filter::{CompareOp, TextTest};
use super::literal::text_array;
use crate::indexes::key::{KeyBounds, KeyEncoder};

/// Where the rows of a query are looked for.
#[derive(Debug)]
pub(crate) enum Access {
    /// No row can match.
    Nothing,
    /// Every row is a candidate.
    All,
    /// The rows of these ranges of the index at this place in the spec.
    Index { index: usize, ranges: Vec<KeyBounds> },
}

/// Above this share of the rows, reading them all in order is quicker than fetching candidates.
const CANDIDATES_PER_ROWS: (u64, u64) = (1, 5);
/// More ranges than this cost more to search than they save.
const RANGES_MAX: usize = 1024;

/// An index as the planner sees it.
pub(crate) struct Candidate<'a> {
    /// Its place in the spec.
    pub(crate) index: usize,
    /// Its columns' positions.
    pub(crate) columns: &'a [usize],
    pub(crate) encoder: &'a KeyEncoder,
}

/// Chooses the index with the fewest candidates, if they are few among `rows`.
pub(crate) fn plan(
    filter: &Predicate,
    schema: &Schema,
    candidates: &[Candidate<'_>],
    rows: u64,
    estimate: impl Fn(usize, &KeyBounds) -> u64,
) -> Result<Access, ArrowError> {
    if filter.conjuncts().iter().any(never_true) {
        return Ok(Access::Nothing);
    }
    let (share, of) = CANDIDATES_PER_ROWS;
    let mut best = Access::All;
    let mut fewest = rows.saturating_mul(share) / of;
    for candidate in candidates {
        let Some(ranges) = ranges_of(filter, schema, candidate)? else { continue };
        let found = ranges.iter().fold(0, |sum: u64, range| sum.saturating_add(estimate(candidate.index, range)));
        if found <= fewest {
            fewest = found;
            best = Access::Index { index: candidate.index, ranges };
        }
    }
    Ok(best)
}

fn never_true(conjunct: &Predicate) -> bool {
    matches!(conjunct, Predicate::Constant(None | Some(false)) | Predicate::Known { outcome: false, .. })
}

/// The key ranges of an index that hold every match: points on its first columns as far as the
/// filter fixes them, then a range on the next one.
pub(crate) fn ranges_of(
    filter: &Predicate,
    schema: &Schema,
    candidate: &Candidate<'_>,
) -> Result<Option<Vec<KeyBounds>>, ArrowError> {
    let mut prefixes: Vec<Vec<ArrayRef>> = vec![Vec::new()];
    let mut range = None;
    let mut used = false;
    for column in candidate.columns {
        let data_type = schema.field(*column).data_type();
        match points(filter, *column, data_type)? {
            Some(points) if prefixes.len().saturating_mul(points.len()) <= RANGES_MAX => {
                used = true;
                prefixes = prefixes
                    .iter()
                    .flat_map(|prefix| {
                        points.iter().map(move |point| [prefix.as_slice(), &[Arc::clone(point)]].concat())
                    })
                    .collect();
            }
            _ => {
                range = range_on(filter, *column, data_type)?;
                used |= range.is_some();
                break;
            }
        }
    }
    if !used {
        return Ok(None);
    }
    prefixes.iter().map(|prefix| candidate.encoder.bounds(prefix, range.clone())).collect::<Result<_, _>>().map(Some)
}

/// A value in the column's own type: a dictionary's keys are encoded from dictionaries.
fn in_column_type(value: &ArrayRef, data_type: &DataType) -> Result<ArrayRef, ArrowError> {
    if value.data_type() == data_type { Ok(Arc::clone(value)) } else { cast(value, data_type) }
}

/// The only values the column can have, if some conjunct lists them.
fn points(filter: &Predicate, column: usize, data_type: &DataType) -> Result<Option<Vec<ArrayRef>>, ArrowError> {
    for conjunct in filter.conjuncts() {
        match conjunct {
            Predicate::Compare { column: of, op: CompareOp::Eq, value } if *of == column => {
                return Ok(Some(vec![in_column_type(value, data_type)?]));
            }
            Predicate::In { column: of, set, .. } if *of == column => {
                let values = in_column_type(&set.values, data_type)?;
                return Ok(Some((0..values.len()).map(|at| values.slice(at, 1)).collect()));
            }
            Predicate::IsNull { column: of } if *of == column => {
                return Ok(Some(vec![new_null_array(data_type, 1)]));
            }
            _ => (),
        }
    }
    Ok(None)
}

type Range = (Bound<ArrayRef>, Bound<ArrayRef>);

/// The tightest range that one lower and one upper conjunct give. The first of each is taken:
/// which of two is tighter matters to nobody who wrote both.
fn range_on(filter: &Predicate, column: usize, data_type: &DataType) -> Result<Option<Range>, ArrowError> {
    let (mut lower, mut upper) = (Bound::Unbounded, Bound::Unbounded);
    let narrow = |bound: &mut Bound<ArrayRef>, to: Bound<ArrayRef>| {
        if matches!(bound, Bound::Unbounded) {
            *bound = to;
        }
    };
    let mut found = false;
    for conjunct in filter.conjuncts() {
        match conjunct {
            Predicate::Compare { column: of, op, value } if *of == column => {
                let value = in_column_type(value, data_type)?;
                match op {
                    CompareOp::Gt => narrow(&mut lower, Bound::Excluded(value)),
                    CompareOp::GtEq => narrow(&mut lower, Bound::Included(value)),
                    CompareOp::Lt => narrow(&mut upper, Bound::Excluded(value)),
                    CompareOp::LtEq => narrow(&mut upper, Bound::Included(value)),
                    CompareOp::Eq | CompareOp::NotEq => continue,
                }
            }
            Predicate::Text { column: of, test, pattern } if *of == column => {
                let Some(prefix) = prefix_of(*test, pattern) else { continue };
                let text = |text: &str| in_column_type(&text_array(text, pattern.data_type()), data_type);
                narrow(&mut lower, Bound::Included(text(&prefix)?));
                if let Some(after) = text_after(&prefix) {
                    narrow(&mut upper, Bound::Excluded(text(&after)?));
                }
            }
            // `IS NOT NULL` leaves everything else; a scan is as good.
            _ => continue,
        }
        found = true;
    }
    Ok(found.then_some((lower, upper)))
}

/// What every match of the pattern begins with; `None` if that says nothing.
pub(crate) fn prefix_of(test: TextTest, pattern: &ArrayRef) -> Option<String> {
    let pattern = match pattern.data_type() {
        DataType::LargeUtf8 => pattern.as_string::<i64>().value(0),
        DataType::Utf8View => pattern.as_string_view().value(0),
        _ => pattern.as_string::<i32>().value(0),
    };
    let prefix = match test {
        TextTest::StartsWith => pattern.to_string(),
        TextTest::Like => {
            let mut prefix = String::new();
            let mut chars = pattern.chars();
            while let Some(c) = chars.next() {
                match c {
                    '%' | '_' => break,
                    '\\' => prefix.push(chars.next().unwrap_or('\\')),
                    c => prefix.push(c),
                }
            }
            prefix
        }
        TextTest::ILike => return None,
    };
    (!prefix.is_empty()).then_some(prefix)
}

/// The first text after everything that begins with `prefix`: bytes of UTF-8 sort as characters do.
pub(crate) fn text_after(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        let next = match last {
            '\u{D7FF}' => Some('\u{E000}'),
            other => char::from_u32(u32::from(other) + 1),
        };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn q3_the_prefix_of_a_pattern_ends_at_its_first_wildcard() {
        let prefix = |pattern: &str| prefix_of(TextTest::Like, &text_array(pattern, &DataType::Utf8));
        assert_eq!(prefix("ab%c"), Some("ab".into()));
        assert_eq!(prefix("a\\%b_"), Some("a%b".into()));
        assert_eq!(prefix("%a"), None);
        assert_eq!(prefix_of(TextTest::ILike, &text_array("ab%", &DataType::Utf8)), None);
    }

    #[test]
    fn q3_the_text_after_a_prefix_is_a_text() {
        assert_eq!(text_after("ab"), Some("ac".into()));
        assert_eq!(text_after("a\u{D7FF}"), Some("a\u{E000}".into()));
        assert_eq!(text_after("a\u{10FFFF}"), Some("b".into()));
        assert_eq!(text_after("\u{10FFFF}"), None);
    }
}

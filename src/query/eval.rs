//! Evaluating a bound filter over a batch, with arrow's kernels and SQL's three-valued logic.

use std::ops::Not;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float16Type, Float32Type, Float64Type};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType, BooleanArray, Datum, RecordBatch, Scalar};
use arrow_buffer::{BooleanBuffer, NullBuffer};
use arrow_cast::cast;
use arrow_ord::cmp;
use arrow_schema::{ArrowError, DataType};
use arrow_string::like;

use super::bind::{Predicate, ValueSet};
use super::filter::{CompareOp, TextTest};
use super::literal::value_type;

/// Which rows a condition holds for and which it does not; it is unknown for the rest.
///
/// Two masks instead of values and validity make Kleene's logic plain: a conjunction holds where
/// all do and fails where one does.
#[derive(Clone, Debug)]
pub(crate) struct Truth {
    yes: BooleanBuffer,
    no: BooleanBuffer,
}

impl Truth {
    fn constant(value: Option<bool>, rows: usize) -> Self {
        let all = |set| if set { BooleanBuffer::new_set(rows) } else { BooleanBuffer::new_unset(rows) };
        Truth { yes: all(value == Some(true)), no: all(value == Some(false)) }
    }

    fn of(array: &BooleanArray) -> Self {
        let values = array.values();
        match array.nulls().filter(|nulls| nulls.null_count() > 0) {
            None => Truth { yes: values.clone(), no: values.not() },
            Some(nulls) => Truth { yes: values & nulls.inner(), no: &values.not() & nulls.inner() },
        }
    }

    fn and(self, other: &Truth) -> Self {
        Truth { yes: &self.yes & &other.yes, no: &self.no | &other.no }
    }

    fn or(self, other: &Truth) -> Self {
        Truth { yes: &self.yes | &other.yes, no: &self.no & &other.no }
    }

    fn negated(self) -> Self {
        Truth { yes: self.no, no: self.yes }
    }

    /// The rows that pass a filter: unknown is not enough.
    pub(crate) fn passes(self) -> BooleanBuffer {
        self.yes
    }

    /// The outcome for the first row.
    pub(crate) fn first(&self) -> Option<bool> {
        if self.yes.is_empty() || self.yes.value(0) == self.no.value(0) { None } else { Some(self.yes.value(0)) }
    }

    /// As an array with nulls where it is unknown.
    #[cfg(test)]
    pub(crate) fn to_array(&self) -> BooleanArray {
        BooleanArray::new(self.yes.clone(), Some(NullBuffer::new(&self.yes | &self.no)))
    }
}

// Recursion is bounded by the depth of the expression the predicate was bound from.
pub(crate) fn evaluate(predicate: &Predicate, batch: &RecordBatch) -> Result<Truth, ArrowError> {
    let rows = batch.num_rows();
    Ok(match predicate {
        Predicate::Constant(value) => Truth::constant(*value, rows),
        Predicate::Known { column, outcome } => {
            let array = match batch.column(*column).logical_nulls() {
                None => return Ok(Truth::constant(Some(*outcome), rows)),
                nulls => BooleanArray::new(Truth::constant(Some(*outcome), rows).yes, nulls),
            };
            Truth::of(&array)
        }
        Predicate::Compare { column, op, value } => {
            let value = Scalar::new(Arc::clone(value));
            Truth::of(&compare(*op, batch.column(*column), &value)?)
        }
        Predicate::Columns { left, op, right } => {
            let (left, right) = (plain_zeros(batch.column(*left))?, plain_zeros(batch.column(*right))?);
            Truth::of(&compare(*op, &left, &right)?)
        }
        Predicate::In { column, set, or_null } => {
            let found = Truth::of(&is_in(batch.column(*column), set)?);
            if *or_null { found.or(&Truth::constant(None, rows)) } else { found }
        }
        Predicate::IsNull { column } => {
            let yes = match batch.column(*column).logical_nulls() {
                Some(nulls) => nulls.inner().not(),
                None => BooleanBuffer::new_unset(rows),
            };
            Truth { no: yes.not(), yes }
        }
        Predicate::Text { column, test, pattern } => Truth::of(&text_matches(*test, batch.column(*column), pattern)?),
        Predicate::And(terms) => {
            let mut all = Truth::constant(Some(true), rows);
            for term in terms {
                all = all.and(&evaluate(term, batch)?);
                if all.no.count_set_bits() == rows {
                    break;
                }
            }
            all
        }
        Predicate::Or(terms) => {
            let mut any = Truth::constant(Some(false), rows);
            for term in terms {
                any = any.or(&evaluate(term, batch)?);
                if any.yes.count_set_bits() == rows {
                    break;
                }
            }
            any
        }
        Predicate::Not(inner) => evaluate(inner, batch)?.negated(),
    })
}

fn compare(op: CompareOp, left: &dyn Datum, right: &dyn Datum) -> Result<BooleanArray, ArrowError> {
    match op {
        CompareOp::Eq => cmp::eq(left, right),
        CompareOp::NotEq => cmp::neq(left, right),
        CompareOp::Lt => cmp::lt(left, right),
        CompareOp::LtEq => cmp::lt_eq(left, right),
        CompareOp::Gt => cmp::gt(left, right),
        CompareOp::GtEq => cmp::gt_eq(left, right),
    }
}

/// A column with every `-0.0` as `0.0`: between two columns no literal can stand for both.
pub(crate) fn plain_zeros(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    fn plain<T: ArrowPrimitiveType>(column: &ArrayRef) -> ArrayRef {
        let zero = T::default_value();
        // `==` on floats takes the two zeros as equal, and NaN as unequal to both.
        Arc::new(column.as_primitive::<T>().unary::<_, T>(|value| if value == zero { zero } else { value }))
    }
    let column = match value_type(column.data_type()) {
        DataType::Float16 | DataType::Float32 | DataType::Float64 => plain_values(column)?,
        _ => return Ok(Arc::clone(column)),
    };
    Ok(match column.data_type() {
        DataType::Float16 => plain::<Float16Type>(&column),
        DataType::Float32 => plain::<Float32Type>(&column),
        _ => plain::<Float64Type>(&column),
    })
}

/// A dictionary as the values it stands for.
pub(crate) fn plain_values(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match column.data_type() {
        DataType::Dictionary(_, values) => cast(column, values),
        _ => Ok(Arc::clone(column)),
    }
}

/// Up to here one comparison for each value is quicker than encoding the column.
const COMPARED_VALUES_MAX: usize = 4;

fn is_in(column: &ArrayRef, set: &ValueSet) -> Result<BooleanArray, ArrowError> {
    if set.values.len() <= COMPARED_VALUES_MAX {
        let mut found = BooleanBuffer::new_unset(column.len());
        for at in 0..set.values.len() {
            let equal = cmp::eq(column, &Scalar::new(set.values.slice(at, 1)))?;
            found = &found | equal.values();
        }
        return Ok(BooleanArray::new(found, column.logical_nulls()));
    }
    let nulls: Option<NullBuffer> = column.logical_nulls();
    let rows = set.converter.convert_columns(&[plain_values(column)?])?;
    let found = BooleanBuffer::from_iter(rows.iter().map(|row| set.encoded.contains(row.as_ref())));
    Ok(BooleanArray::new(found, nulls))
}

pub(crate) fn text_matches(test: TextTest, column: &ArrayRef, pattern: &ArrayRef) -> Result<BooleanArray, ArrowError> {
    let pattern = Scalar::new(Arc::clone(pattern));
    match test {
        TextTest::Like => like::like(column, &pattern),
        TextTest::ILike => like::ilike(column, &pattern),
        TextTest::StartsWith => like::starts_with(column, &pattern),
    }
}

//! An expression bound to a schema: columns are positions, literals have the columns' types.
//!
//! Binding is where a comparison with a literal becomes one the arrow kernels answer exactly:
//! literals between two values, beyond the type's range, and the two zeros of floats are
//! resolved here, so that evaluation and planning see plain ordered comparisons only.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_row::{RowConverter, SortField};
use arrow_schema::{ArrowError, DataType, Field, Schema};
use arrow_select::concat::concat;

use super::eval::Truth;
use super::filter::{CompareOp, DEPTH_MAX, Expr, Literal, Node, TextTest};
use super::literal::{Place, as_f64, float_array, is_comparable, is_text, place, text_array, value_type};
use crate::error::{Error, Result};
use crate::value::Value;

/// A bound condition. Columns are positions in the schema it was bound to; values are arrays of
/// one row of the column's value type, never null.
#[derive(Clone, Debug)]
pub(crate) enum Predicate {
    Constant(Option<bool>),
    /// The same for every value, and null for null.
    Known {
        column: usize,
        outcome: bool,
    },
    Compare {
        column: usize,
        op: CompareOp,
        value: ArrayRef,
    },
    Columns {
        left: usize,
        op: CompareOp,
        right: usize,
    },
    /// With a null in the list, what is not in it is unknown.
    In {
        column: usize,
        set: Arc<ValueSet>,
        or_null: bool,
    },
    IsNull {
        column: usize,
    },
    Text {
        column: usize,
        test: TextTest,
        pattern: ArrayRef,
    },
    And(Vec<Predicate>),
    Or(Vec<Predicate>),
    Not(Box<Predicate>),
}

/// The distinct values of an `IN` list.
#[derive(Debug)]
pub(crate) struct ValueSet {
    /// One row each.
    pub(crate) values: ArrayRef,
    pub(crate) converter: RowConverter,
    pub(crate) encoded: HashSet<Box<[u8]>, ahash::RandomState>,
}

impl ValueSet {
    fn new(values: &[ArrayRef], data_type: &DataType) -> Result<Self, ArrowError> {
        let parts: Vec<_> = values.iter().map(AsRef::as_ref).collect();
        let values = concat(&parts)?;
        let converter = RowConverter::new(vec![SortField::new(data_type.clone())])?;
        let rows = converter.convert_columns(&[Arc::clone(&values)])?;
        let encoded = rows.iter().map(|row| row.as_ref().into()).collect();
        Ok(ValueSet { values, converter, encoded })
    }
}

/// Binds `expr` to the columns of `schema`.
pub(crate) fn bind(expr: &Expr, schema: &Schema) -> Result<Predicate> {
    Binder { schema }.condition(expr)
}

/// The position of a column.
pub(crate) fn find_column(schema: &Schema, name: &str, subject: &str) -> Result<usize> {
    schema.fields().find(name).map(|(position, _)| position).ok_or_else(|| {
        let names: Vec<_> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        Error::invalid(
            subject,
            format!("the column `{name}`, which does not exist"),
            format!("one of {}", names.join(", ")),
        )
    })
}

struct Binder<'a> {
    schema: &'a Schema,
}

/// The side of a test that varies.
struct Column<'a> {
    position: usize,
    data_type: &'a DataType,
    subject: String,
}

impl Binder<'_> {
    // Recursion is bounded: an expression is never deeper than `DEPTH_MAX`.
    fn condition(&self, expr: &Expr) -> Result<Predicate> {
        match expr.node() {
            Node::Column(name) => self.boolean_column(name),
            Node::Literal(Literal::Value(Value::Boolean(value))) => Ok(Predicate::Constant(Some(*value))),
            Node::Literal(Literal::Value(Value::Null)) => Ok(Predicate::Constant(None)),
            Node::Literal(literal) => {
                Err(Error::invalid("the filter", format!("{literal} as a condition"), "a comparison or another test"))
            }
            Node::Compare { left, op, right } => self.compare(left, *op, right),
            Node::In { operand, list } => self.over_column(operand, |column| self.in_list(column, list)),
            Node::Between { operand, low, high } => Ok(conjunction([
                self.compare(operand, CompareOp::GtEq, low)?,
                self.compare(operand, CompareOp::LtEq, high)?,
            ])),
            Node::IsNull(operand) => self.over_column(operand, |column| {
                Ok(match column.data_type {
                    DataType::Null => Predicate::Constant(Some(true)),
                    _ => Predicate::IsNull { column: column.position },
                })
            }),
            Node::Text { operand, test, pattern } => {
                self.over_column(operand, |column| text_test(column, *test, pattern))
            }
            Node::And(terms) => Ok(conjunction(self.conditions(terms)?)),
            Node::Or(terms) => Ok(disjunction(self.conditions(terms)?)),
            Node::Not(inner) => Ok(Predicate::Not(Box::new(self.condition(inner)?))),
            Node::TooDeep => Err(Error::invalid(
                "the filter",
                format!("more than {DEPTH_MAX} levels of nesting"),
                "a flatter filter; chains of AND and OR count as one level",
            )),
        }
    }

    fn conditions(&self, terms: &[Expr]) -> Result<Vec<Predicate>> {
        terms.iter().map(|term| self.condition(term)).collect()
    }

    fn column(&self, name: &str) -> Result<Column<'_>> {
        let position = find_column(self.schema, name, "the filter")?;
        let data_type = self.schema.field(position).data_type();
        Ok(Column { position, data_type, subject: format!("column `{name}`") })
    }

    fn boolean_column(&self, name: &str) -> Result<Predicate> {
        let column = self.column(name)?;
        match value_type(column.data_type) {
            DataType::Boolean => compare_literal(&column, CompareOp::Eq, &Literal::Value(Value::Boolean(true))),
            other => {
                Err(Error::invalid(column.subject, format!("type {other} as a condition"), "a comparison with it"))
            }
        }
    }

    fn compare(&self, left: &Expr, op: CompareOp, right: &Expr) -> Result<Predicate> {
        match (left.node(), right.node()) {
            (Node::Column(left), Node::Column(right)) => compare_columns(&self.column(left)?, op, &self.column(right)?),
            (_, Node::Literal(literal)) => self.over_column(left, |column| compare_literal(column, op, literal)),
            (Node::Literal(literal), _) => {
                self.over_column(right, |column| compare_literal(column, op.flipped(), literal))
            }
            _ => Err(not_an_operand(if left.is_operand() { right } else { left })),
        }
    }

    /// Builds a test of a column. A literal in the column's place is a column of one row, and the
    /// test's outcome on it a constant.
    fn over_column(&self, operand: &Expr, test: impl FnOnce(&Column<'_>) -> Result<Predicate>) -> Result<Predicate> {
        let literal = match operand.node() {
            Node::Column(name) => return test(&self.column(name)?),
            Node::Literal(literal) => literal,
            _ => return Err(not_an_operand(operand)),
        };
        let Some(data_type) = natural_type(literal) else {
            return Err(Error::invalid("the filter", format!("{literal} without a column"), "a test of a column"));
        };
        let column = Column { position: 0, data_type: &data_type, subject: format!("the literal {literal}") };
        let predicate = test(&column)?;
        let Place::Exact(value) = place(literal, &data_type, &column.subject)? else { return Ok(predicate) };
        let schema = Schema::new(vec![Field::new("literal", data_type.clone(), true)]);
        let outcome = RecordBatch::try_new(Arc::new(schema), vec![value]).and_then(|row| predicate.evaluate(&row));
        let outcome =
            outcome.map_err(|error| Error::invalid(column.subject, error.to_string(), "a test of a column"))?;
        Ok(Predicate::Constant(outcome.first()))
    }

    fn in_list(&self, column: &Column<'_>, list: &[Literal]) -> Result<Predicate> {
        check_comparable(column)?;
        let mut or_null = false;
        let mut values = Vec::with_capacity(list.len());
        for literal in list {
            match place(literal, column.data_type, &column.subject)? {
                Place::Null => or_null = true,
                Place::Exact(value) if is_zero(&value) => values.extend(zeros(value.data_type())),
                Place::Exact(value) => values.push(value),
                // No value of the column is equal to it.
                Place::Gap(_) | Place::Above | Place::Below => (),
            }
        }
        let position = column.position;
        // Nothing is in an empty list, not even null.
        let nothing = if list.is_empty() {
            Predicate::Constant(Some(false))
        } else {
            Predicate::Known { column: position, outcome: false }
        };
        match (values.is_empty(), or_null) {
            (true, true) => Ok(Predicate::Constant(None)),
            (true, false) => Ok(nothing),
            (false, _) => {
                let set = ValueSet::new(&values, value_type(column.data_type)).map_err(|error| {
                    Error::invalid(column.subject.as_str(), error.to_string(), "a column whose values can be compared")
                })?;
                Ok(Predicate::In { column: position, set: Arc::new(set), or_null })
            }
        }
    }
}

fn not_an_operand(expr: &Expr) -> Error {
    Error::invalid("the filter", format!("({expr}) as a value"), "a column or a literal")
}

/// The type of a literal that stands where a column would.
fn natural_type(literal: &Literal) -> Option<DataType> {
    let Literal::Value(value) = literal else { return None };
    Some(match value {
        Value::Null => DataType::Null,
        Value::Boolean(_) => DataType::Boolean,
        Value::Int(_) => DataType::Int64,
        Value::UInt(_) => DataType::UInt64,
        Value::Float(_) => DataType::Float64,
        Value::Text(_) => DataType::Utf8,
        Value::Binary(_) => DataType::Binary,
    })
}

fn check_comparable(column: &Column<'_>) -> Result<()> {
    if is_comparable(column.data_type) || *column.data_type == DataType::Null {
        return Ok(());
    }
    Err(Error::invalid(
        column.subject.as_str(),
        format!("type {}", column.data_type),
        "a type with an order (numbers, booleans, text, binary, dates, times, decimals), or IS NULL",
    ))
}

fn compare_columns(left: &Column<'_>, op: CompareOp, right: &Column<'_>) -> Result<Predicate> {
    check_comparable(left)?;
    if left.data_type != right.data_type {
        return Err(Error::invalid(
            format!("the comparison of {} with {}", left.subject, right.subject),
            format!("types {} and {}", left.data_type, right.data_type),
            "two columns of one type",
        ));
    }
    Ok(Predicate::Columns { left: left.position, op, right: right.position })
}

/// `column op literal`, exactly (see [`Place`]).
fn compare_literal(column: &Column<'_>, op: CompareOp, literal: &Literal) -> Result<Predicate> {
    use CompareOp::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    check_comparable(column)?;
    if *column.data_type == DataType::Null {
        return Ok(Predicate::Constant(None));
    }
    let position = column.position;
    let known = |outcome| Predicate::Known { column: position, outcome };
    let compare = |op, value| Predicate::Compare { column: position, op, value };
    Ok(match (place(literal, column.data_type, &column.subject)?, op) {
        (Place::Null, _) => Predicate::Constant(None),
        (Place::Exact(value), op) if is_zero(&value) => compare_zero(position, op, value.data_type()),
        (Place::Exact(value), op) => compare(op, value),
        (Place::Gap(_) | Place::Above | Place::Below, Eq) => known(false),
        (Place::Gap(_) | Place::Above | Place::Below, NotEq) => known(true),
        (Place::Gap(upper), Lt | LtEq) => compare(Lt, upper),
        (Place::Gap(upper), Gt | GtEq) => compare(GtEq, upper),
        (Place::Above, Lt | LtEq) | (Place::Below, Gt | GtEq) => known(true),
        (Place::Above, Gt | GtEq) | (Place::Below, Lt | LtEq) => known(false),
    })
}

fn is_zero(value: &ArrayRef) -> bool {
    as_f64(value) == Some(0.0)
}

/// `-0.0` and `0.0` of a float type, which the kernels tell apart and SQL does not.
fn zeros(data_type: &DataType) -> impl Iterator<Item = ArrayRef> {
    [-0.0, 0.0].into_iter().filter_map(|zero| float_array(zero, data_type))
}

fn compare_zero(column: usize, op: CompareOp, data_type: &DataType) -> Predicate {
    let sides: Vec<_> = match op {
        CompareOp::Eq => vec![(CompareOp::GtEq, -0.0), (CompareOp::LtEq, 0.0)],
        CompareOp::NotEq => vec![(CompareOp::Lt, -0.0), (CompareOp::Gt, 0.0)],
        CompareOp::Lt | CompareOp::GtEq => vec![(op, -0.0)],
        CompareOp::Gt | CompareOp::LtEq => vec![(op, 0.0)],
    };
    let compares = sides
        .into_iter()
        .filter_map(|(op, zero)| float_array(zero, data_type).map(|value| Predicate::Compare { column, op, value }));
    if op == CompareOp::NotEq { disjunction(compares) } else { conjunction(compares) }
}

fn text_test(column: &Column<'_>, test: TextTest, pattern: &Literal) -> Result<Predicate> {
    if *column.data_type == DataType::Null {
        return Ok(Predicate::Constant(None));
    }
    if !is_text(column.data_type) {
        return Err(Error::invalid(
            column.subject.as_str(),
            format!("type {}", column.data_type),
            "a text column for LIKE, ILIKE and starts_with",
        ));
    }
    let text = match pattern {
        Literal::Value(Value::Null) => return Ok(Predicate::Constant(None)),
        Literal::Value(Value::Text(text)) => text,
        other => return Err(Error::invalid(column.subject.as_str(), format!("the pattern {other}"), "a text pattern")),
    };
    let pattern = text_array(text, value_type(column.data_type));
    let predicate = Predicate::Text { column: column.position, test, pattern: Arc::clone(&pattern) };
    // A pattern that cannot be compiled is the caller's to fix, and is told before any work.
    super::eval::text_matches(test, &pattern, &pattern).map_err(|error| {
        Error::invalid(
            column.subject.as_str(),
            format!("the pattern {}: {error}", Value::from(text)),
            "a shorter pattern",
        )
    })?;
    Ok(predicate)
}

/// All of them, flat, so that a planner sees every conjunct.
fn conjunction(terms: impl IntoIterator<Item = Predicate>) -> Predicate {
    let mut flat = Vec::new();
    for term in terms {
        match term {
            Predicate::And(inner) => flat.extend(inner),
            other => flat.push(other),
        }
    }
    Predicate::And(flat)
}

fn disjunction(terms: impl IntoIterator<Item = Predicate>) -> Predicate {
    Predicate::Or(terms.into_iter().collect())
}

impl Predicate {
    /// The conditions that must all hold.
    pub(crate) fn conjuncts(&self) -> &[Predicate] {
        match self {
            Predicate::And(terms) => terms,
            other => std::slice::from_ref(other),
        }
    }

    /// Adds the columns it looks at.
    pub(crate) fn add_columns(&self, columns: &mut BTreeSet<usize>) {
        // One walk serves both; a filter is small.
        self.clone().visit_mut(&mut |column| {
            columns.insert(*column);
        });
    }

    /// The same condition on rows that have only these columns, in this order.
    pub(crate) fn on_columns(&self, columns: &[usize]) -> Predicate {
        let mut narrow = self.clone();
        narrow.visit_mut(&mut |column| {
            *column = columns.iter().position(|kept| kept == column).unwrap_or(usize::MAX);
        });
        narrow
    }

    fn visit_mut(&mut self, see: &mut impl FnMut(&mut usize)) {
        match self {
            Predicate::Constant(_) => (),
            Predicate::Known { column, .. }
            | Predicate::Compare { column, .. }
            | Predicate::In { column, .. }
            | Predicate::IsNull { column }
            | Predicate::Text { column, .. } => see(column),
            Predicate::Columns { left, right, .. } => {
                see(left);
                see(right);
            }
            Predicate::And(terms) | Predicate::Or(terms) => terms.iter_mut().for_each(|term| term.visit_mut(see)),
            Predicate::Not(inner) => inner.visit_mut(see),
        }
    }

    pub(crate) fn evaluate(&self, batch: &RecordBatch) -> Result<Truth, ArrowError> {
        super::eval::evaluate(self, batch)
    }
}

//! A filter, as callers write it: a small typed expression over columns and literals.

use std::fmt;

use crate::error::{Error, Result};
use crate::value::Value;

/// How deep an expression may nest. Every walk over one recurses at most so far, so no filter
/// can overflow a stack. Chains of `and` and `or` are flat and do not count.
pub(crate) const DEPTH_MAX: u32 = 100;

/// A condition on the columns of a row, with SQL's three-valued logic: a comparison with null is
/// neither true nor false, and only rows for which the whole filter is true pass.
///
/// ```
/// use tidewal::{Expr, col};
///
/// let filter = col("size").gt(10).and(col("lang").eq("rust"));
/// assert_eq!(filter.to_string(), "size > 10 AND lang = 'rust'");
/// assert_eq!(Expr::parse("size > 10 AND lang = 'rust'")?, filter);
/// # Ok::<(), tidewal::Error>(())
/// ```
///
/// # How literals meet columns
/// A literal takes the type of the column it is compared with.
/// - Whole numbers, dates, times, timestamps and decimals are compared exactly: `n > 1.5` on an
///   integer column is `n >= 2`, and a literal outside the column's range is above or below every value.
/// - For a floating-point column the literal is the nearest value of the column's type.
/// - Floats are ordered by IEEE 754's `totalOrder`, except that `-0.0` equals `0.0`: NaN equals
///   itself and is above infinity. A NaN whose sign bit is set in the data lies below negative infinity.
/// - Text is ordered by its bytes. For dates, times, timestamps and decimals it is parsed.
///   A timestamp without an offset is local to the column's time zone (UTC where it has none).
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    node: Node,
    depth: u32,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Node {
    Column(String),
    Literal(Literal),
    Compare {
        left: Box<Expr>,
        op: CompareOp,
        right: Box<Expr>,
    },
    In {
        operand: Box<Expr>,
        list: Vec<Literal>,
    },
    Between {
        operand: Box<Expr>,
        low: Box<Expr>,
        high: Box<Expr>,
    },
    IsNull(Box<Expr>),
    Text {
        operand: Box<Expr>,
        test: TextTest,
        pattern: Literal,
    },
    And(Vec<Expr>),
    Or(Vec<Expr>),
    Not(Box<Expr>),
    /// What is left of an expression beyond [`DEPTH_MAX`]; binding it is refused.
    TooDeep,
}

/// A literal with what its text said and a [`Value`] does not hold.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Literal {
    Value(Value),
    /// A number whose text no integer or float holds exactly; decimals do.
    Number(String),
    /// `DATE '..'`, `TIME '..'`, `TIMESTAMP '..'`.
    Typed(Temporal, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temporal {
    Date,
    Time,
    Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CompareOp {
    Eq,
    NotEq,
    Lt,
    LtEq,
    Gt,
    GtEq,
}

impl CompareOp {
    /// The operator that says the same with its sides exchanged.
    pub(crate) fn flipped(self) -> Self {
        match self {
            CompareOp::Lt => CompareOp::Gt,
            CompareOp::LtEq => CompareOp::GtEq,
            CompareOp::Gt => CompareOp::Lt,
            CompareOp::GtEq => CompareOp::LtEq,
            same => same,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextTest {
    Like,
    ILike,
    StartsWith,
}

/// The column of this name, exactly as the schema spells it.
pub fn col(name: impl Into<String>) -> Expr {
    Expr::leaf(Node::Column(name.into()))
}

/// A literal. Builders take plain values where this reads worse.
pub fn lit(value: impl Into<Value>) -> Expr {
    Expr::leaf(Node::Literal(Literal::Value(value.into())))
}

impl<T: Into<Value>> From<T> for Expr {
    fn from(value: T) -> Self {
        lit(value)
    }
}

impl Expr {
    fn leaf(node: Node) -> Self {
        Expr { node, depth: 1 }
    }

    fn over(depth: u32, node: Node) -> Self {
        if depth >= DEPTH_MAX {
            Expr { node: Node::TooDeep, depth: DEPTH_MAX }
        } else {
            Expr { node, depth: depth + 1 }
        }
    }

    pub(crate) fn node(&self) -> &Node {
        &self.node
    }

    pub(crate) fn literal(literal: Literal) -> Self {
        Expr::leaf(Node::Literal(literal))
    }

    /// Whether it is a column or a literal, and not a condition.
    pub(crate) fn is_operand(&self) -> bool {
        matches!(self.node, Node::Column(_) | Node::Literal(_))
    }

    /// Reads a filter from SQL: comparisons (`=`, `<>`, `!=`, `<`, `<=`, `>`, `>=`), `IN`, `BETWEEN`,
    /// `IS [NOT] NULL`, `LIKE`, `ILIKE`, `starts_with(column, 'prefix')`, `AND`, `OR`, `NOT` and
    /// parentheses over columns and literals. Column names are taken as written, in double quotes
    /// where they are not plain words. `\` escapes `%` and `_` in patterns.
    ///
    /// ```
    /// use tidewal::Expr;
    ///
    /// let filter = Expr::parse("day >= DATE '2024-01-01' AND NOT (name LIKE 'a%' OR size IN (1, 2))")?;
    /// assert_eq!(Expr::parse(&filter.to_string())?, filter);
    /// # Ok::<(), tidewal::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidInput`] that says at which line and column, and what is supported there.
    pub fn parse(sql: &str) -> Result<Expr> {
        super::sql::parse(sql)
    }

    pub(crate) fn compare(self, op: CompareOp, other: Expr) -> Self {
        let depth = self.depth.max(other.depth);
        Expr::over(depth, Node::Compare { left: Box::new(self), op, right: Box::new(other) })
    }

    /// `self = other`
    #[must_use]
    pub fn eq(self, other: impl Into<Expr>) -> Self {
        self.compare(CompareOp::Eq, other.into())
    }

    /// `self <> other`
    #[must_use]
    pub fn not_eq(self, other: impl Into<Expr>) -> Self {
        self.compare(CompareOp::NotEq, other.into())
    }

    /// `self < other`
    #[must_use]
    pub fn lt(self, other: impl Into<Expr>) -> Self {
        self.compare(CompareOp::Lt, other.into())
    }

    /// `self <= other`
    #[must_use]
    pub fn lt_eq(self, other: impl Into<Expr>) -> Self {
        self.compare(CompareOp::LtEq, other.into())
    }

    /// `self > other`
    #[must_use]
    pub fn gt(self, other: impl Into<Expr>) -> Self {
        self.compare(CompareOp::Gt, other.into())
    }

    /// `self >= other`
    #[must_use]
    pub fn gt_eq(self, other: impl Into<Expr>) -> Self {
        self.compare(CompareOp::GtEq, other.into())
    }

    /// `self IN (values)`. An empty list holds nothing.
    #[must_use]
    pub fn in_list<V: Into<Value>>(self, values: impl IntoIterator<Item = V>) -> Self {
        self.in_literals(values.into_iter().map(|value| Literal::Value(value.into())).collect())
    }

    pub(crate) fn in_literals(self, list: Vec<Literal>) -> Self {
        Expr::over(self.depth, Node::In { operand: Box::new(self), list })
    }

    /// `self NOT IN (values)`: never true where the list holds a null.
    #[must_use]
    pub fn not_in_list<V: Into<Value>>(self, values: impl IntoIterator<Item = V>) -> Self {
        self.in_list(values).not()
    }

    /// `self BETWEEN low AND high`, both included.
    #[must_use]
    pub fn between(self, low: impl Into<Expr>, high: impl Into<Expr>) -> Self {
        let (low, high) = (low.into(), high.into());
        let depth = self.depth.max(low.depth).max(high.depth);
        Expr::over(depth, Node::Between { operand: Box::new(self), low: Box::new(low), high: Box::new(high) })
    }

    /// `self IS NULL`
    #[must_use]
    pub fn is_null(self) -> Self {
        Expr::over(self.depth, Node::IsNull(Box::new(self)))
    }

    /// `self IS NOT NULL`
    #[must_use]
    pub fn is_not_null(self) -> Self {
        self.is_null().not()
    }

    pub(crate) fn text(self, test: TextTest, pattern: Literal) -> Self {
        Expr::over(self.depth, Node::Text { operand: Box::new(self), test, pattern })
    }

    /// `self LIKE pattern`: `%` is any text, `_` any one character, `\` takes the next one literally.
    #[must_use]
    pub fn like(self, pattern: impl Into<Value>) -> Self {
        self.text(TextTest::Like, Literal::Value(pattern.into()))
    }

    /// `self NOT LIKE pattern`
    #[must_use]
    pub fn not_like(self, pattern: impl Into<Value>) -> Self {
        self.like(pattern).not()
    }

    /// `self ILIKE pattern`: [`Expr::like`] without regard to case.
    #[must_use]
    pub fn ilike(self, pattern: impl Into<Value>) -> Self {
        self.text(TextTest::ILike, Literal::Value(pattern.into()))
    }

    /// `starts_with(self, prefix)`
    #[must_use]
    pub fn starts_with(self, prefix: impl Into<Value>) -> Self {
        self.text(TextTest::StartsWith, Literal::Value(prefix.into()))
    }

    /// `self AND other`
    #[must_use]
    pub fn and(self, other: Expr) -> Self {
        Expr::all([self, other])
    }

    /// `self OR other`
    #[must_use]
    pub fn or(self, other: Expr) -> Self {
        Expr::any([self, other])
    }

    /// True where all are; true where there are none.
    pub fn all(exprs: impl IntoIterator<Item = Expr>) -> Self {
        Expr::chain(exprs, true)
    }

    /// True where one is; false where there are none.
    pub fn any(exprs: impl IntoIterator<Item = Expr>) -> Self {
        Expr::chain(exprs, false)
    }

    fn chain(exprs: impl IntoIterator<Item = Expr>, conjunction: bool) -> Self {
        let mut terms = Vec::new();
        for expr in exprs {
            match expr.node {
                Node::And(inner) if conjunction => append(&mut terms, inner),
                Node::Or(inner) if !conjunction => append(&mut terms, inner),
                _ => terms.push(expr),
            }
        }
        match (terms.pop(), terms.is_empty()) {
            (None, _) => lit(conjunction),
            (Some(only), true) => only,
            (Some(last), false) => {
                terms.push(last);
                let depth = terms.iter().map(|term| term.depth).max().unwrap_or_default();
                Expr::over(depth, if conjunction { Node::And(terms) } else { Node::Or(terms) })
            }
        }
    }

    /// `NOT self`: null stays null.
    #[must_use]
    #[expect(clippy::should_implement_trait, reason = "it does; the method reads better at the end of a chain")]
    pub fn not(self) -> Self {
        match self.node {
            Node::Not(inner) => *inner,
            _ => Expr::over(self.depth, Node::Not(Box::new(self))),
        }
    }
}

/// Extending the longer side keeps a chain built term by term linear.
fn append(terms: &mut Vec<Expr>, mut inner: Vec<Expr>) {
    if terms.is_empty() {
        *terms = inner;
    } else {
        terms.append(&mut inner);
    }
}

impl std::ops::Not for Expr {
    type Output = Expr;

    fn not(self) -> Expr {
        Expr::not(self)
    }
}

impl std::str::FromStr for Expr {
    type Err = Error;

    fn from_str(sql: &str) -> Result<Self> {
        Expr::parse(sql)
    }
}

impl fmt::Display for CompareOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CompareOp::Eq => "=",
            CompareOp::NotEq => "<>",
            CompareOp::Lt => "<",
            CompareOp::LtEq => "<=",
            CompareOp::Gt => ">",
            CompareOp::GtEq => ">=",
        })
    }
}

impl fmt::Display for Temporal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Temporal::Date => "DATE",
            Temporal::Time => "TIME",
            Temporal::Timestamp => "TIMESTAMP",
        })
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Value(Value::Boolean(true)) => f.write_str("TRUE"),
            Literal::Value(Value::Boolean(false)) => f.write_str("FALSE"),
            // `NaN` and `inf` alone would be column names.
            Literal::Value(Value::Float(value)) if !value.is_finite() => write!(f, "DOUBLE '{value:?}'"),
            Literal::Value(value) => value.fmt(f),
            Literal::Number(text) => f.write_str(text),
            Literal::Typed(kind, text) => write!(f, "{kind} '{}'", text.replace('\'', "''")),
        }
    }
}

/// SQL that [`Expr::parse`] reads back as the same expression.
impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Node::Column(name) => super::sql::write_column(f, name),
            Node::Literal(literal) => literal.fmt(f),
            Node::Compare { left, op, right } => write!(f, "{} {op} {}", Operand(left), Operand(right)),
            Node::In { .. } | Node::Between { .. } | Node::IsNull(_) | Node::Text { .. } => self.fmt_test(f, ""),
            Node::And(terms) => write_chain(f, terms, " AND "),
            Node::Or(terms) => write_chain(f, terms, " OR "),
            Node::Not(inner) => match inner.node {
                Node::Text { test: TextTest::StartsWith, .. } => write!(f, "NOT {inner}"),
                Node::In { .. } | Node::Between { .. } | Node::IsNull(_) | Node::Text { .. } => {
                    inner.fmt_test(f, "NOT ")
                }
                _ => write!(f, "NOT {}", Operand(inner)),
            },
            Node::TooDeep => f.write_str("(..)"),
        }
    }
}

impl Expr {
    /// The tests SQL negates in their middle: `a NOT IN (1)`.
    fn fmt_test(&self, f: &mut fmt::Formatter<'_>, not: &str) -> fmt::Result {
        match &self.node {
            Node::In { operand, list } => {
                write!(f, "{} {not}IN (", Operand(operand))?;
                for (at, literal) in list.iter().enumerate() {
                    write!(f, "{}{literal}", if at == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
            Node::Between { operand, low, high } => {
                write!(f, "{} {not}BETWEEN {} AND {}", Operand(operand), Operand(low), Operand(high))
            }
            Node::IsNull(operand) => write!(f, "{} IS {not}NULL", Operand(operand)),
            Node::Text { operand, test: TextTest::StartsWith, pattern } => {
                write!(f, "starts_with({}, {pattern})", Operand(operand))
            }
            Node::Text { operand, test, pattern } => {
                let word = if *test == TextTest::Like { "LIKE" } else { "ILIKE" };
                write!(f, "{} {not}{word} {pattern}", Operand(operand))
            }
            _ => Ok(()),
        }
    }
}

fn write_chain(f: &mut fmt::Formatter<'_>, terms: &[Expr], separator: &str) -> fmt::Result {
    for (at, term) in terms.iter().enumerate() {
        if at > 0 {
            f.write_str(separator)?;
        }
        // `AND` binds closer than `OR`, so only an OR inside an AND needs parentheses. They are
        // written around both: people forget which.
        match term.node {
            Node::And(_) | Node::Or(_) => write!(f, "({term})")?,
            _ => write!(f, "{term}")?,
        }
    }
    Ok(())
}

/// A part that stands beside an operator: in parentheses unless it is a column or a literal.
struct Operand<'a>(&'a Expr);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_operand() { self.0.fmt(f) } else { write!(f, "({})", self.0) }
    }
}

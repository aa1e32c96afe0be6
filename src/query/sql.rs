//! SQL text into [`Expr`].
//!
//! `sqlparser` cuts the text into tokens (literals, quoting, comments, positions); the grammar over
//! them is here. Its parser knows all of SQL and builds a tree as deep as a chain is long, whose
//! drop alone overflows a stack at ten thousand `AND`s; this one knows what a filter may say, keeps
//! chains flat, and can name the place of everything it refuses.

use std::fmt;

use sqlparser::dialect::GenericDialect;
use sqlparser::tokenizer::{Location, Token, TokenWithSpan, Tokenizer, Word};

use super::decimal::Decimal;
use super::filter::{CompareOp, DEPTH_MAX, Expr, Literal, Temporal, TextTest, col};
use crate::error::{Error, Result};
use crate::value::Value;

const SUPPORTED: &str = "=, <>, <, <=, >, >=, [NOT] IN (..), [NOT] BETWEEN .. AND .., IS [NOT] NULL, [NOT] LIKE, \
                         [NOT] ILIKE, starts_with(..), AND, OR, NOT and parentheses, over columns and literals";

/// Words that mean something of their own where a column may stand.
const RESERVED: [&str; 12] =
    ["and", "or", "not", "in", "between", "is", "null", "like", "ilike", "escape", "true", "false"];

pub(crate) fn parse(sql: &str) -> Result<Expr> {
    let tokens = Tokenizer::new(&GenericDialect {}, sql)
        .tokenize_with_location()
        .map_err(|error| refused(error.location, error.message, "text that SQL can be read from"))?;
    let tokens = tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_))).collect();
    let mut parser = Parser { tokens, at: 0, end: end_of(sql), depth: 0 };
    let expr = parser.disjunction()?;
    match parser.peek() {
        Token::EOF => Ok(expr),
        _ => Err(parser.unexpected("AND, OR or the end of the filter")),
    }
}

/// Writes a name so that [`parse`] reads it back.
pub(crate) fn write_column(f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
    let mut chars = name.chars();
    // Not every plain word: `N`, `X`, `B` and the like begin a literal only before a quote, which
    // never follows a column.
    let plain = chars.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !RESERVED.iter().any(|word| name.eq_ignore_ascii_case(word));
    if plain { f.write_str(name) } else { write!(f, "\"{}\"", name.replace('"', "\"\"")) }
}

struct Parser {
    tokens: Vec<TokenWithSpan>,
    at: usize,
    end: Location,
    depth: u32,
}

fn end_of(sql: &str) -> Location {
    let line = sql.matches('\n').count() as u64 + 1;
    let column = sql.rsplit('\n').next().unwrap_or_default().chars().count() as u64 + 1;
    Location { line, column }
}

fn refused(at: Location, found: impl Into<String>, expected: impl fmt::Display) -> Error {
    let subject = format!("the filter at line {}, column {}", at.line, at.column);
    Error::invalid(subject, found, format!("{expected}; a filter is made of {SUPPORTED}"))
}

impl Parser {
    fn peek(&self) -> &Token {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> &Token {
        self.tokens.get(self.at + ahead).map_or(&Token::EOF, |token| &token.token)
    }

    fn location(&self) -> Location {
        self.tokens.get(self.at).map_or(self.end, |token| token.span.start)
    }

    fn unexpected(&self, expected: impl fmt::Display) -> Error {
        let found = match self.peek() {
            Token::EOF => "the end of the text".to_string(),
            token => format!("`{token}`"),
        };
        refused(self.location(), found, expected)
    }

    /// The next token as an unquoted word, in any case.
    fn is_word_at(&self, ahead: usize, word: &str) -> bool {
        matches!(self.peek_at(ahead), Token::Word(Word { value, quote_style: None, .. }) if value.eq_ignore_ascii_case(word))
    }

    fn take_word(&mut self, word: &str) -> bool {
        let found = self.is_word_at(0, word);
        self.at += usize::from(found);
        found
    }

    fn take(&mut self, token: &Token) -> bool {
        let found = self.peek() == token;
        self.at += usize::from(found);
        found
    }

    fn require(&mut self, token: &Token, what: &str) -> Result<()> {
        if self.take(token) { Ok(()) } else { Err(self.unexpected(what)) }
    }

    fn disjunction(&mut self) -> Result<Expr> {
        self.chain("or", Self::conjunction).map(Expr::any)
    }

    fn conjunction(&mut self) -> Result<Expr> {
        self.chain("and", Self::negation).map(Expr::all)
    }

    fn chain(&mut self, word: &str, term: fn(&mut Self) -> Result<Expr>) -> Result<Vec<Expr>> {
        let mut terms = vec![term(self)?];
        while self.take_word(word) {
            terms.push(term(self)?);
        }
        Ok(terms)
    }

    fn negation(&mut self) -> Result<Expr> {
        // A loop, not recursion: ten thousand NOTs are one or none.
        let mut negated = false;
        while self.take_word("not") {
            negated = !negated;
        }
        let expr = self.predicate()?;
        Ok(if negated { expr.not() } else { expr })
    }

    fn predicate(&mut self) -> Result<Expr> {
        let start = self.location();
        let left = self.primary()?;
        if !self.continues_operand() {
            return Ok(left);
        }
        if !left.is_operand() {
            return Err(refused(start, "a condition before an operator", "a column or a literal before it"));
        }
        if let Some(op) = self.compare_op() {
            let right = self.operand()?;
            return Ok(left.compare(op, right));
        }
        if self.take_word("is") {
            let negated = self.take_word("not");
            if !self.take_word("null") {
                return Err(self.unexpected("NULL after IS or IS NOT"));
            }
            return Ok(if negated { left.is_not_null() } else { left.is_null() });
        }
        let negated = self.take_word("not");
        let test = self.negatable_test(left)?;
        Ok(if negated { test.not() } else { test })
    }

    /// Whether an operator that needs an operand on its left comes next.
    fn continues_operand(&self) -> bool {
        let words = ["is", "not", "in", "between", "like", "ilike"];
        matches!(
            self.peek(),
            Token::Eq | Token::DoubleEq | Token::Neq | Token::Lt | Token::LtEq | Token::Gt | Token::GtEq
        ) || words.iter().any(|word| self.is_word_at(0, word))
    }

    fn compare_op(&mut self) -> Option<CompareOp> {
        let op = match self.peek() {
            Token::Eq | Token::DoubleEq => CompareOp::Eq,
            Token::Neq => CompareOp::NotEq,
            Token::Lt => CompareOp::Lt,
            Token::LtEq => CompareOp::LtEq,
            Token::Gt => CompareOp::Gt,
            Token::GtEq => CompareOp::GtEq,
            _ => return None,
        };
        self.at += 1;
        Some(op)
    }

    fn negatable_test(&mut self, left: Expr) -> Result<Expr> {
        if self.take_word("in") {
            self.require(&Token::LParen, "a list of literals in parentheses after IN")?;
            let mut list = Vec::new();
            if self.take(&Token::RParen) {
                return Ok(left.in_literals(list));
            }
            loop {
                list.push(self.required_literal("a literal in the list of IN")?);
                if !self.take(&Token::Comma) {
                    break;
                }
            }
            self.require(&Token::RParen, "a comma or a closing parenthesis")?;
            return Ok(left.in_literals(list));
        }
        if self.take_word("between") {
            let low = self.operand()?;
            if !self.take_word("and") {
                return Err(self.unexpected("AND between the bounds of BETWEEN"));
            }
            let high = self.operand()?;
            return Ok(left.between(low, high));
        }
        let test = if self.take_word("like") {
            TextTest::Like
        } else if self.take_word("ilike") {
            TextTest::ILike
        } else {
            return Err(self.unexpected("IN, BETWEEN, LIKE or ILIKE after NOT"));
        };
        let pattern = self.pattern()?;
        Ok(left.text(test, pattern))
    }

    /// A pattern, with another `ESCAPE` character rewritten to `\`.
    fn pattern(&mut self) -> Result<Literal> {
        let pattern = self.required_literal("a text pattern")?;
        if !self.take_word("escape") {
            return Ok(pattern);
        }
        let at = self.location();
        let escape = self.required_literal("one character after ESCAPE")?;
        let one = match &escape {
            Literal::Value(Value::Text(text)) => {
                let mut chars = text.chars();
                chars.next().filter(|_| chars.next().is_none())
            }
            _ => None,
        };
        let Some(escape_char) = one else {
            return Err(refused(at, escape.to_string(), "one character after ESCAPE"));
        };
        let Literal::Value(Value::Text(text)) = pattern else { return Ok(pattern) };
        Ok(Literal::Value(Value::Text(with_backslash(&text, escape_char))))
    }

    fn primary(&mut self) -> Result<Expr> {
        if matches!(self.peek(), Token::LParen) {
            let at = self.location();
            if self.depth >= DEPTH_MAX {
                let found = format!("more than {DEPTH_MAX} nested parentheses");
                return Err(refused(at, found, "a flatter filter"));
            }
            self.at += 1;
            self.depth += 1;
            let inner = self.disjunction()?;
            self.depth -= 1;
            self.require(&Token::RParen, "a closing parenthesis")?;
            return Ok(inner);
        }
        if self.is_word_at(0, "starts_with") && matches!(self.peek_at(1), Token::LParen) {
            self.at += 2;
            let operand = self.operand()?;
            self.require(&Token::Comma, "a comma and the prefix")?;
            let prefix = self.required_literal("a text prefix")?;
            self.require(&Token::RParen, "a closing parenthesis")?;
            return Ok(operand.text(TextTest::StartsWith, prefix));
        }
        self.operand()
    }

    /// A column or a literal, in parentheses or not.
    fn operand(&mut self) -> Result<Expr> {
        let mut open = 0;
        while self.take(&Token::LParen) {
            open += 1;
        }
        let operand = match self.literal()? {
            Some(literal) => Expr::literal(literal),
            None => self.column()?,
        };
        for _ in 0..open {
            self.require(&Token::RParen, "a closing parenthesis")?;
        }
        Ok(operand)
    }

    fn column(&mut self) -> Result<Expr> {
        let Token::Word(word) = self.peek() else {
            return Err(self.unexpected("a column or a literal"));
        };
        let reserved = word.quote_style.is_none() && RESERVED.iter().any(|r| word.value.eq_ignore_ascii_case(r));
        if reserved {
            return Err(self.unexpected("a column (in double quotes where its name is a word of SQL) or a literal"));
        }
        let name = word.value.clone();
        match self.peek_at(1) {
            Token::LParen => Err(self.unexpected("starts_with, which is the only function")),
            Token::Period => Err(self.unexpected("a column's name alone, in double quotes where it holds a dot")),
            _ => {
                self.at += 1;
                Ok(col(name))
            }
        }
    }

    fn required_literal(&mut self, what: &str) -> Result<Literal> {
        self.literal()?.ok_or_else(|| self.unexpected(what))
    }

    fn literal(&mut self) -> Result<Option<Literal>> {
        let literal = match self.peek() {
            Token::SingleQuotedString(text) => Literal::Value(Value::Text(text.clone())),
            Token::Number(digits, _) => number(digits, false).ok_or_else(|| self.unexpected("a number"))?,
            Token::Minus | Token::Plus => {
                let negative = matches!(self.peek(), Token::Minus);
                self.at += 1;
                let Token::Number(digits, _) = self.peek() else {
                    return Err(self.unexpected("a number after the sign"));
                };
                number(digits, negative).ok_or_else(|| self.unexpected("a number"))?
            }
            Token::HexStringLiteral(digits) => {
                let bytes = hex(digits).ok_or_else(|| self.unexpected("an even number of hexadecimal digits"))?;
                Literal::Value(Value::Binary(bytes))
            }
            Token::Word(Word { value, quote_style: None, .. }) => match value.to_ascii_lowercase().as_str() {
                "null" => Literal::Value(Value::Null),
                "true" => Literal::Value(Value::Boolean(true)),
                "false" => Literal::Value(Value::Boolean(false)),
                word => return self.typed_literal(word),
            },
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(literal))
    }

    /// `DATE '..'` and its like: a type's name means something only before a string.
    fn typed_literal(&mut self, word: &str) -> Result<Option<Literal>> {
        let Token::SingleQuotedString(text) = self.peek_at(1) else { return Ok(None) };
        let temporal = |kind: Temporal, text: &str| {
            let literal = Literal::Typed(kind, text.to_string());
            super::literal::is_temporal_text(kind, text).then_some(literal)
        };
        let literal = match word {
            "date" => temporal(Temporal::Date, text),
            "time" => temporal(Temporal::Time, text),
            "timestamp" => temporal(Temporal::Timestamp, text),
            "double" | "float" | "real" => text.parse().ok().map(|value| Literal::Value(Value::Float(value))),
            _ => return Err(self.unexpected("DATE, TIME, TIMESTAMP or DOUBLE before a string")),
        };
        let Some(literal) = literal else {
            self.at += 1;
            return Err(self.unexpected(format_args!("the text of a {}", word.to_ascii_uppercase())));
        };
        self.at += 2;
        Ok(Some(literal))
    }
}

/// A number as the narrowest literal that holds it exactly.
fn number(digits: &str, negative: bool) -> Option<Literal> {
    let text = if negative { format!("-{digits}") } else { digits.to_string() };
    if let Ok(value) = text.parse::<i64>() {
        return Some(Literal::Value(Value::Int(value)));
    }
    if let Ok(value) = text.parse::<u64>() {
        return Some(Literal::Value(Value::UInt(value)));
    }
    let exact = Decimal::parse(&text)?;
    let whole = !digits.contains(['.', 'e', 'E']);
    let value: f64 = text.parse().ok()?;
    let fits = !whole && value.is_finite() && Decimal::from_f64(value).as_ref() == Some(&exact);
    Some(if fits { Literal::Value(Value::Float(value)) } else { Literal::Number(text) })
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = digits.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

fn with_backslash(pattern: &str, escape: char) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        if c == escape {
            out.push('\\');
            out.extend(chars.next());
        } else {
            if c == '\\' {
                out.push('\\');
            }
            out.push(c);
        }
    }
    out
}

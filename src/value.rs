//! Single values, as callers write them: keys to look up and literals of filters.

use std::fmt;

/// One value of any scalar column. It takes the column's own type where it is used: text is
/// parsed for dates, timestamps and decimals, whole numbers fit any numeric column they lie in.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// SQL's null.
    Null,
    /// A truth value.
    Boolean(bool),
    /// A whole number.
    Int(i64),
    /// A whole number above the range of `i64`.
    UInt(u64),
    /// A floating-point number.
    Float(f64),
    /// Text, or the text form of a date, time, timestamp or decimal.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("NULL"),
            Value::Boolean(value) => value.fmt(f),
            Value::Int(value) => value.fmt(f),
            Value::UInt(value) => value.fmt(f),
            Value::Float(value) => write!(f, "{value:?}"),
            Value::Text(value) => write!(f, "'{}'", value.replace('\'', "''")),
            Value::Binary(value) => {
                f.write_str("X'")?;
                value.iter().try_for_each(|byte| write!(f, "{byte:02X}"))?;
                f.write_str("'")
            }
        }
    }
}

macro_rules! from {
    ($($source:ty => $variant:ident),* $(,)?) => {
        $(impl From<$source> for Value {
            fn from(value: $source) -> Self {
                Value::$variant(value.into())
            }
        })*
    };
}

from! {
    bool => Boolean,
    i8 => Int, i16 => Int, i32 => Int, i64 => Int,
    u8 => Int, u16 => Int, u32 => Int,
    f32 => Float, f64 => Float,
    &str => Text, String => Text, &String => Text,
    &[u8] => Binary, Vec<u8> => Binary,
}

impl From<u64> for Value {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Value::UInt(value), Value::Int)
    }
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

/// A primary key: one value per key column, in the order the key was declared.
#[derive(Clone, Debug, PartialEq)]
pub struct Key(pub Vec<Value>);

impl<T: Into<Value>> From<T> for Key {
    fn from(value: T) -> Self {
        Key(vec![value.into()])
    }
}

impl From<Vec<Value>> for Key {
    fn from(values: Vec<Value>) -> Self {
        Key(values)
    }
}

impl<const N: usize> From<[Value; N]> for Key {
    fn from(values: [Value; N]) -> Self {
        Key(values.into())
    }
}

impl<A: Into<Value>, B: Into<Value>> From<(A, B)> for Key {
    fn from((a, b): (A, B)) -> Self {
        Key(vec![a.into(), b.into()])
    }
}

impl<A: Into<Value>, B: Into<Value>, C: Into<Value>> From<(A, B, C)> for Key {
    fn from((a, b, c): (A, B, C)) -> Self {
        Key(vec![a.into(), b.into(), c.into()])
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        for (at, value) in self.0.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{value}")?;
        }
        f.write_str(")")
    }
}

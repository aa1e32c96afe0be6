//! `tidewal get`.

use std::io::Write as _;
use std::process::ExitCode;

use arrow_schema::DataType;
use tidewal::{Engine, Key, Lookup, Value};

use crate::output::{complain, print_ndjson, print_record, stdout};
use crate::shard::{ShardArgs, WRITER_NOTE, finish};
use crate::{Result, complaint};

/// Print the rows under primary keys.
///
/// A key of several columns is given as its values with commas between: `eu,42`. A value with a comma in it
/// is put in double quotes. Exit code 2 says that a key was not found.
#[derive(Debug, clap::Args)]
#[command(after_help = WRITER_NOTE)]
pub(crate) struct Args {
    #[command(flatten)]
    shard: ShardArgs,
    /// How rows are printed
    #[arg(long, value_enum, default_value = "record")]
    format: Format,
    /// The keys
    #[arg(required = true, value_name = "KEY", allow_negative_numbers = true)]
    keys: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A column a line
    Record,
    /// One JSON object a line
    Ndjson,
}

pub(crate) async fn run(args: Args) -> Result<ExitCode> {
    let engine = args.shard.open_existing().await?;
    let outcome = args.print(&engine).await;
    let all_found = finish(&engine, outcome).await?;
    Ok(if all_found { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

impl Args {
    /// Whether every key was found.
    async fn print(&self, engine: &Engine) -> Result<bool> {
        let types = key_types(engine)?;
        let keys: Vec<Key> = self.keys.iter().map(|text| parse_key(text, &types)).collect::<Result<_>>()?;
        let snapshot = engine.snapshot().await?;
        let mut out = stdout();
        let mut all_found = true;
        for (at, (key, text)) in keys.into_iter().zip(&self.keys).enumerate() {
            match snapshot.get(key)? {
                Lookup::Found(row) if self.format == Format::Ndjson => print_ndjson(&row, &mut out)?,
                Lookup::Found(row) => {
                    if at > 0 {
                        writeln!(out)?;
                    }
                    print_record(&row, &mut out)?;
                }
                Lookup::Deleted => {
                    all_found = false;
                    complain(&format!("{text}: deleted"));
                }
                Lookup::Missing => {
                    all_found = false;
                    complain(&format!("{text}: not found"));
                }
            }
        }
        out.flush()?;
        Ok(all_found)
    }
}

/// The names and types of the key columns.
fn key_types(engine: &Engine) -> Result<Vec<(String, DataType)>> {
    let table = engine.spec().table();
    if table.primary_key_columns().is_empty() {
        return Err(complaint("this shard has no primary key, so there are no keys to look up; use `tidewal scan`"));
    }
    let schema = engine.schema();
    let types = table.primary_key_columns().iter().map(|name| {
        let field = schema.field_with_name(name)?;
        Ok((name.clone(), field.data_type().clone()))
    });
    types.collect()
}

fn parse_key(text: &str, types: &[(String, DataType)]) -> Result<Key> {
    let parts = if types.len() == 1 { vec![text.to_owned()] } else { split_key(text) };
    if parts.len() != types.len() {
        let names: Vec<&str> = types.iter().map(|(name, _)| name.as_str()).collect();
        return Err(complaint(format!(
            "key `{text}` has {} values, and the primary key has {}: give {}",
            parts.len(),
            types.len(),
            names.join(",")
        )));
    }
    let values = parts.iter().zip(types).map(|(part, (name, data_type))| parse_value(part, name, data_type));
    Ok(Key(values.collect::<Result<_>>()?))
}

/// Splits at commas outside double quotes; a doubled quote inside quotes is a quote.
fn split_key(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let Some(part) = parts.last_mut() else { break };
        match character {
            '"' if quoted && characters.next_if_eq(&'"').is_some() => part.push('"'),
            '"' if quoted || part.is_empty() => quoted = !quoted,
            ',' if !quoted => parts.push(String::new()),
            other => part.push(other),
        }
    }
    parts
}

fn parse_value(text: &str, name: &str, data_type: &DataType) -> Result<Value> {
    let wrong = |expected: &str| complaint(format!("key column `{name}`: found `{text}`; expected {expected}"));
    match data_type {
        DataType::Dictionary(_, values) => parse_value(text, name, values),
        DataType::Boolean => text.parse::<bool>().map(Value::from).map_err(|_| wrong("true or false")),
        integer if integer.is_integer() => {
            let whole = text.parse::<i64>().map(Value::from).or_else(|_| text.parse::<u64>().map(Value::from));
            whole.map_err(|_| wrong(&format!("a whole number ({integer})")))
        }
        float if float.is_floating() => text.parse::<f64>().map(Value::from).map_err(|_| wrong("a number")),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView | DataType::FixedSizeBinary(_) => {
            parse_hex(text).map(Value::from).ok_or_else(|| wrong("bytes in hexadecimal digits, two for each"))
        }
        _ => Ok(Value::from(text)),
    }
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text).as_bytes();
    let pairs = digits.chunks(2).map(|pair| match pair {
        [high, low] => {
            let value = char::from(*high).to_digit(16)? * 16 + char::from(*low).to_digit(16)?;
            u8::try_from(value).ok()
        }
        _ => None,
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_composite_key_is_split_at_commas_outside_quotes() {
        assert_eq!(split_key("eu,42"), ["eu", "42"]);
        assert_eq!(split_key(r#""a,""b""",2"#), [r#"a,"b""#, "2"]);
        assert_eq!(split_key("a,"), ["a", ""]);
    }

    #[test]
    fn key_values_take_the_type_of_their_column() {
        let value = |text: &str, data_type| parse_value(text, "k", &data_type);
        assert_eq!(value("42", DataType::Utf8).expect("text"), Value::Text("42".into()));
        assert_eq!(value("18446744073709551615", DataType::UInt64).expect("fits"), Value::UInt(u64::MAX));
        assert_eq!(value("0aFF", DataType::Binary).expect("hex"), Value::Binary(vec![10, 255]));
        let refused = value("4x", DataType::Int64).expect_err("no number").to_string();
        assert!(refused.contains("`k`") && refused.contains("`4x`") && refused.contains("whole number"), "{refused}");
    }
}

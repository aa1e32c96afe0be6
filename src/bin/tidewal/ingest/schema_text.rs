//! `--schema`: columns as text.

use arrow_schema::{DataType, Field, Schema, TimeUnit};

use crate::{BoxError, Result, complaint};

/// Reads `id:int64,name:utf8?`, or a file that holds the same, one column a line if preferred.
pub(super) fn parse(text_or_file: &str) -> Result<Schema> {
    if text_or_file.contains(':') && !std::path::Path::new(text_or_file).is_file() {
        return parse_text(text_or_file);
    }
    let text = std::fs::read_to_string(text_or_file).map_err(|error| {
        complaint(format!("--schema: `{text_or_file}` is no `name:type` list, and as a file cannot be read: {error}"))
    })?;
    parse_text(&text)
}

fn parse_text(text: &str) -> Result<Schema> {
    let without_comments: Vec<&str> = text.lines().map(|line| line.split('#').next().unwrap_or_default()).collect();
    let mut fields = Vec::new();
    for column in split_columns(&without_comments.join("\n")) {
        fields.push(parse_column(column)?);
    }
    if fields.is_empty() {
        return Err(complaint("--schema: no columns; give them as name:type, for example id:int64,name:utf8?"));
    }
    Ok(Schema::new(fields))
}

/// At commas and newlines outside brackets.
fn split_columns(text: &str) -> Vec<&str> {
    let mut depth = 0_i32;
    let is_separator = |character: char| {
        match character {
            '(' | '[' | '<' => depth += 1,
            ')' | ']' | '>' => depth -= 1,
            _ => {}
        }
        depth == 0 && matches!(character, ',' | '\n')
    };
    text.split(is_separator).map(str::trim).filter(|column| !column.is_empty()).collect()
}

fn parse_column(column: &str) -> Result<Field> {
    let Some((name, type_text)) = column.split_once(':') else {
        return Err(complaint(format!("--schema: found `{column}`; expected name:type")));
    };
    let (type_text, nullable) = match type_text.trim().strip_suffix('?') {
        Some(inner) => (inner.trim_end(), true),
        None => (type_text.trim(), false),
    };
    let data_type = parse_type(type_text).map_err(|_| unknown_type(name, type_text))?;
    Ok(Field::new(name.trim(), data_type, nullable))
}

fn unknown_type(name: &str, text: &str) -> BoxError {
    complaint(format!(
        "--schema: column `{name}` has the unknown type `{text}`; expected bool, int8 to int64, uint8 to uint64, \
         float32, float64, utf8, large_utf8, binary, date, timestamp (microseconds; also timestamp_s, _ms, _us, _ns), \
         decimal(PRECISION,SCALE), or a type as Arrow writes it, such as List(Int64)"
    ))
}

fn parse_type(text: &str) -> Result<DataType> {
    let lower = text.to_ascii_lowercase();
    let timestamp = |unit| Ok(DataType::Timestamp(unit, None));
    if let Some(digits) = lower.strip_prefix("decimal(").and_then(|rest| rest.strip_suffix(')')) {
        let (precision, scale) = digits.split_once(',').unwrap_or((digits, "0"));
        let (precision, scale) = (precision.trim().parse()?, scale.trim().parse()?);
        return match precision {
            1..=38 => Ok(DataType::Decimal128(precision, scale)),
            _ => Err(complaint("a precision of 1 to 38")),
        };
    }
    match lower.as_str() {
        "bool" | "boolean" => Ok(DataType::Boolean),
        "int8" => Ok(DataType::Int8),
        "int16" => Ok(DataType::Int16),
        "int32" | "int" => Ok(DataType::Int32),
        "int64" | "bigint" => Ok(DataType::Int64),
        "uint8" => Ok(DataType::UInt8),
        "uint16" => Ok(DataType::UInt16),
        "uint32" => Ok(DataType::UInt32),
        "uint64" => Ok(DataType::UInt64),
        "float32" | "float" => Ok(DataType::Float32),
        "float64" | "double" => Ok(DataType::Float64),
        "utf8" | "string" | "text" => Ok(DataType::Utf8),
        "large_utf8" | "large_string" => Ok(DataType::LargeUtf8),
        "binary" => Ok(DataType::Binary),
        "date" | "date32" => Ok(DataType::Date32),
        "timestamp" | "timestamp_us" => timestamp(TimeUnit::Microsecond),
        "timestamp_s" => timestamp(TimeUnit::Second),
        "timestamp_ms" => timestamp(TimeUnit::Millisecond),
        "timestamp_ns" => timestamp(TimeUnit::Nanosecond),
        _ => Ok(text.parse()?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_read_with_nulls_nested_types_and_comments() {
        let schema =
            parse_text("id:int64, at:timestamp_ms? # when\nprice:decimal(10,2),tags:List(Utf8)?").expect("valid");
        let text: Vec<String> = schema
            .fields()
            .iter()
            .map(|field| format!("{} {} {}", field.name(), field.data_type(), field.is_nullable()))
            .collect();
        assert_eq!(
            text,
            ["id Int64 false", "at Timestamp(ms) true", "price Decimal128(10, 2) false", "tags List(Utf8) true"]
        );
    }

    #[test]
    fn an_unknown_type_is_answered_with_those_there_are() {
        let text = parse("id:integer64").expect_err("unknown").to_string();
        assert!(text.contains("`id`") && text.contains("`integer64`") && text.contains("int64"), "{text}");
    }
}

//! Q3: filters as SQL text.

use super::super::bind::bind;
use super::super::filter::{Expr, col, lit};
use super::oracle::schema;
use crate::value::Value;

fn parsed(sql: &str) -> Expr {
    Expr::parse(sql).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn refusal(sql: &str) -> String {
    Expr::parse(sql).expect_err(sql).to_string()
}

#[test]
fn q3_sql_reads_as_the_builders_read() {
    assert_eq!(parsed("size > 10 AND name LIKE 'a%'"), col("size").gt(10).and(col("name").like("a%")));
    assert_eq!(parsed("a = 1 OR b = 2 AND NOT c = 3"), col("a").eq(1).or(col("b").eq(2).and(col("c").eq(3).not())));
    assert_eq!(parsed("(a = 1 OR b = 2) AND c"), col("a").eq(1).or(col("b").eq(2)).and(col("c")));
    assert_eq!(parsed("10 < size"), lit(10).lt(col("size")));
    assert_eq!(parsed("(size) >= (((-1)))"), col("size").gt_eq(-1));
    assert_eq!(parsed("a NOT IN (1, NULL)"), col("a").not_in_list([Some(1i64), None]));
    assert_eq!(parsed("a between -1.5 and 2e3"), col("a").between(-1.5, 2e3));
    assert_eq!(parsed("a NOT BETWEEN 1 AND 2"), col("a").between(1, 2).not());
    assert_eq!(parsed("a IS NULL or a is not null"), col("a").is_null().or(col("a").is_not_null()));
    assert_eq!(parsed("a NOT ILIKE 'x' -- a comment"), col("a").ilike("x").not());
    assert_eq!(parsed("starts_with(a, 'x')"), col("a").starts_with("x"));
    assert_eq!(parsed("\"odd \"\" name\" = 'it''s'"), col("odd \" name").eq("it's"));
    assert_eq!(parsed("`and` = TRUE"), col("and").eq(true));
    assert_eq!(parsed("a = X'00fF'"), col("a").eq(vec![0u8, 255]));
    assert_eq!(parsed("a = -9223372036854775808"), col("a").eq(i64::MIN));
    assert_eq!(parsed("a = 18446744073709551615"), col("a").eq(u64::MAX));
    assert_eq!(parsed("a <> NULL"), col("a").not_eq(Value::Null));
    assert_eq!(parsed("a LIKE '50!%\\' ESCAPE '!'"), col("a").like("50\\%\\\\"));
    assert_eq!(parsed("date = 5 AND time > 1"), col("date").eq(5).and(col("time").gt(1)));
}

#[test]
fn q3_typed_literals_read_back_and_bind() {
    for sql in [
        "day = DATE '2024-01-01'",
        "at >= TIMESTAMP '2024-01-01 00:00:00'",
        "clock < TIME '12:30:00'",
        "double = DOUBLE 'NaN'",
        "price = 12345678901234567890.123",
        "big < 99999999999999999999",
        "bytes = X''",
    ] {
        let expr = parsed(sql);
        assert_eq!(parsed(&expr.to_string()).to_string(), expr.to_string());
        assert!(bind(&expr, &schema()).is_ok(), "{sql}");
    }
    assert!(bind(&parsed("text = DATE '2024-01-01'"), &schema()).is_err());
    assert!(bind(&parsed("clock = DATE '2024-01-01'"), &schema()).is_err());
}

#[test]
fn q3_refusals_name_the_place_and_what_is_supported() {
    for (sql, place, word) in [
        ("", "line 1, column 1", "the end of the text"),
        ("size >", "line 1, column 7", "the end of the text"),
        ("size > 10 10", "line 1, column 11", "`10`"),
        ("a = 1\n  AND b ~ 2", "line 2, column 9", "`~`"),
        ("a = b + 1", "line 1, column 7", "`+`"),
        ("lower(a) = 'x'", "line 1, column 1", "only function"),
        ("t.a = 1", "line 1, column 1", "name alone"),
        ("a IN (SELECT 1)", "line 1, column 7", "SELECT"),
        ("a IN (1", "line 1, column 8", "closing parenthesis"),
        ("a IS 5", "line 1, column 6", "NULL"),
        ("(a = 1) = 2", "line 1, column 1", "a condition before an operator"),
        ("a = 'x", "line 1, column 5", "Unterminated"),
        ("a = X'123'", "line 1, column 5", "hexadecimal"),
        ("a = DATE 'soon'", "line 1, column 10", "DATE"),
        ("a LIKE 'x' ESCAPE 'ab'", "line 1, column 19", "one character"),
        ("a = 1; DROP TABLE x", "line 1, column 6", "`;`"),
        ("select = 1 = 2", "line 1, column 12", "`=`"),
    ] {
        let text = refusal(sql);
        assert!(text.contains(place) && text.contains(word), "{sql}: {text}");
        assert!(text.contains("a filter is made of"), "{sql}: {text}");
    }
}

#[test]
fn q3_ten_thousand_of_anything_overflow_no_stack() {
    let n = 10_000;
    assert!(refusal(&format!("{}a = 1{}", "(".repeat(n), ")".repeat(n))).contains("nested parentheses"));
    assert!(refusal(&"(".repeat(n)).contains("nested parentheses"));
    assert_eq!(parsed(&format!("a = {}1{}", "(".repeat(n), ")".repeat(n))), col("a").eq(1));
    assert_eq!(parsed(&format!("{}a", "NOT ".repeat(n))), col("a"));
    assert_eq!(parsed(&format!("{}a", "NOT ".repeat(n + 1))), col("a").not());
    assert_eq!(parsed(&vec!["a = 1"; n].join(" AND ")), Expr::all(vec![col("a").eq(1); n]));
    assert_eq!(parsed(&vec!["a = 1"; n].join(" OR ")), Expr::any(vec![col("a").eq(1); n]));
    let nested = format!("{}a{}", "NOT (b AND ".repeat(99), ")".repeat(99));
    assert!(bind(&parsed(&nested), &schema()).expect_err("deep").to_string().contains("levels"));
    assert!(refusal(&format!("{}a{}", "NOT (b AND ".repeat(n), ")".repeat(n))).contains("nested parentheses"));
}

//! Q3: filters say what SQL says.

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, Int64Array, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use proptest::prelude::*;

use super::super::bind::bind;
use super::super::filter::{Expr, col, lit};
use super::oracle::{batch, expr, rows, schema, truth};

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn q3_a_filter_says_of_every_row_what_a_naive_evaluator_says(rows in rows(), expr in expr()) {
        let batch = batch(&rows);
        let bound = bind(&expr, &schema()).expect("a filter of the schema");
        let outcome = bound.evaluate(&batch).expect("evaluated").to_array();
        let found: Vec<_> = outcome.iter().collect();
        let expected: Vec<_> = rows.iter().map(|row| truth(&expr, row)).collect();
        prop_assert_eq!(found, expected, "{}", expr);
    }

    #[test]
    fn q3_sql_text_of_a_filter_reads_back_as_the_same_filter(expr in expr()) {
        let text = expr.to_string();
        let back = Expr::parse(&text).map_err(|error| TestCaseError::fail(format!("{text}: {error}")))?;
        // Through text, because a NaN is not equal to itself.
        prop_assert_eq!(format!("{:?}", back), format!("{:?}", expr), "{}", text);
    }
}

fn passes(expr: &Expr, column: ArrayRef) -> Vec<Option<bool>> {
    let schema = Arc::new(Schema::new(vec![Field::new("n", column.data_type().clone(), true)]));
    let batch = RecordBatch::try_new(Arc::clone(&schema), vec![column]).expect("a batch");
    bind(expr, &schema).expect("bound").evaluate(&batch).expect("evaluated").to_array().iter().collect()
}

fn refusal(expr: &Expr) -> String {
    bind(expr, &schema()).expect_err("the filter is wrong").to_string()
}

#[test]
fn q3_both_zeros_are_one_and_nan_is_greatest() {
    let column = || Arc::new(Float64Array::from(vec![-0.0, 0.0, f64::INFINITY, f64::NAN, -1.0])) as ArrayRef;
    let mask =
        |expr: Expr| passes(&expr, column()).into_iter().map(|outcome| outcome == Some(true)).collect::<Vec<_>>();
    for zero in [0.0, -0.0] {
        assert_eq!(mask(col("n").eq(zero)), [true, true, false, false, false]);
        assert_eq!(mask(col("n").gt(zero)), [false, false, true, true, false]);
        assert_eq!(mask(col("n").gt_eq(zero)), [true, true, true, true, false]);
        assert_eq!(mask(col("n").lt(zero)), [false, false, false, false, true]);
        assert_eq!(mask(col("n").in_list([zero])), [true, true, false, false, false]);
    }
    assert_eq!(mask(col("n").eq(f64::NAN)), [false, false, false, true, false]);
    assert_eq!(mask(col("n").gt(f64::INFINITY)), [false, false, false, true, false]);
}

#[test]
fn q3_a_whole_number_column_is_compared_exactly() {
    let column = || Arc::new(Int64Array::from(vec![Some(1), Some(2), None, Some(i64::MAX)])) as ArrayRef;
    let t = Some(true);
    let f = Some(false);
    assert_eq!(passes(&col("n").gt(1.5), column()), [f, t, None, t]);
    assert_eq!(passes(&col("n").eq(1.5), column()), [f, f, None, f]);
    assert_eq!(passes(&col("n").lt(u64::MAX), column()), [t, t, None, t]);
    assert_eq!(passes(&col("n").gt(1e30), column()), [f, f, None, f]);
    // Beside i64::MAX, 9223372036854775807 as a float would be 9223372036854775808.
    assert_eq!(passes(&col("n").lt(9_223_372_036_854_775_807.0_f64), column()), [t, t, None, t]);
}

#[test]
fn q3_not_in_with_a_null_is_never_true() {
    let column = || Arc::new(Int64Array::from(vec![Some(1), Some(2), None])) as ArrayRef;
    let list = [Some(1i64), None];
    assert_eq!(passes(&col("n").not_in_list(list), column()), [Some(false), None, None]);
    assert_eq!(passes(&col("n").in_list(list), column()), [Some(true), None, None]);
}

#[test]
fn q3_literals_alone_are_constants() {
    let column = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    assert_eq!(passes(&lit(1).eq(1), column()), [Some(true)]);
    assert_eq!(passes(&lit(1).gt(1.5), column()), [Some(false)]);
    assert_eq!(passes(&lit(None::<i64>).eq(1), column()), [None]);
    assert_eq!(passes(&lit(None::<i64>).is_null(), column()), [Some(true)]);
    assert_eq!(passes(&lit("abc").like("a%"), column()), [Some(true)]);
}

#[test]
fn q3_a_column_that_does_not_exist_is_refused_with_those_that_do() {
    let text = refusal(&col("sise").gt(1));
    assert!(text.contains("`sise`") && text.contains("flag, tiny, big"), "{text}");
}

#[test]
fn q3_a_literal_of_another_kind_is_refused_with_column_and_type() {
    let text = refusal(&col("day").gt("yesterday"));
    assert!(text.contains("`day`") && text.contains("'yesterday'") && text.contains("Date32"), "{text}");
    let text = refusal(&col("tiny").eq("7"));
    assert!(text.contains("`tiny`") && text.contains("Int8"), "{text}");
    assert!(refusal(&col("flag").eq(1)).contains("TRUE or FALSE"));
    assert!(refusal(&col("tiny").like("7%")).contains("text column"));
    assert!(refusal(&col("tiny").eq(col("big"))).contains("Int8 and Int64"));
    assert!(refusal(&col("tiny").and(col("flag"))).contains("as a condition"));
}

#[test]
fn q3_a_filter_nested_beyond_reason_is_refused_and_overflows_nothing() {
    let mut expr = col("flag");
    for _ in 0..10_000 {
        expr = expr.and(col("flag")).or(col("flag"));
    }
    assert!(refusal(&expr).contains("100 levels"));
    let chain = (0..10_000).fold(col("flag"), |chain, at| chain.or(col("big").eq(at)));
    assert!(bind(&chain, &schema()).is_ok());
}

#[test]
fn q3_a_timestamp_literal_is_local_to_the_columns_zone() {
    let at = |zone: &str| {
        let data_type = DataType::Timestamp(arrow_schema::TimeUnit::Second, Some(zone.into()));
        Schema::new(vec![Field::new("at", data_type, true)])
    };
    let bound = |zone: &str, text: &str| bind(&col("at").eq(text), &at(zone)).map(|predicate| format!("{predicate:?}"));
    assert_eq!(
        bound("+02:00", "2024-01-01 02:00:00").expect("bound"),
        bound("+02:00", "2024-01-01T00:00:00Z").expect("bound")
    );
    assert!(bound("Europe/Paris", "2024-01-01T00:00:00Z").is_ok());
    let error = bound("Europe/Paris", "2024-01-01T00:00:00").expect_err("an unknown region").to_string();
    assert!(error.contains("offset"), "{error}");
}

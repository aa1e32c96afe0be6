use arrow_array::{Int32Array, Int64Array, StringArray, StringViewArray};
use arrow_schema::Field;

use super::*;
use crate::spec::TableSpec;

fn spec() -> ValidatedSpec {
    let fields = vec![
        Field::new("id", DataType::Int64, false),
        Field::new("a", DataType::Utf8, true),
        Field::new("b", DataType::Utf8, false),
    ];
    TableSpec::new(Arc::new(Schema::new(fields))).primary_key(["id"]).validate().expect("valid")
}

fn batch(fields: Vec<Field>, columns: Vec<ArrayRef>) -> RecordBatch {
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).expect("a batch")
}

fn good() -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(vec![1, 2])),
        Arc::new(StringArray::from(vec![Some("x"), None])),
        Arc::new(StringArray::from(vec!["y", "z"])),
    ];
    RecordBatch::try_new(Arc::clone(spec().schema()), columns).expect("a batch")
}

fn refusal(batches: Vec<RecordBatch>) -> String {
    spec().check_put(batches).expect_err("the put is wrong").to_string()
}

#[test]
fn p1_empty_puts_are_refused() {
    assert!(refusal(vec![]).contains("no batches"));
    assert!(refusal(vec![good(), good().slice(0, 0)]).contains("batch 1 of the put"));
}

#[test]
fn p1_swapped_columns_of_one_type_are_refused() {
    let (schema, columns, _) = good().into_parts();
    let swapped = Schema::new(vec![
        schema.field(0).clone(),
        schema.field(2).clone().with_nullable(true),
        schema.field(1).clone(),
    ]);
    let text = refusal(vec![
        RecordBatch::try_new(
            Arc::new(swapped),
            vec![Arc::clone(&columns[0]), Arc::clone(&columns[2]), Arc::clone(&columns[1])],
        )
        .expect("a batch"),
    ]);
    assert!(text.contains("column 1") && text.contains("`b`") && text.contains("`a`"), "{text}");
}

#[test]
fn p1_a_wrong_type_a_missing_column_and_a_null_are_refused_by_name() {
    let (schema, columns, _) = good().into_parts();
    let mut fields: Vec<Field> = schema.fields().iter().map(|field| field.as_ref().clone()).collect();
    let text = refusal(vec![batch(fields[..2].to_vec(), columns[..2].to_vec())]);
    assert!(text.contains("2 columns") && text.contains("3 columns"), "{text}");

    fields[0] = Field::new("id", DataType::Int32, false);
    let mut wrong = columns.clone();
    wrong[0] = Arc::new(Int32Array::from(vec![1, 2]));
    let text = refusal(vec![batch(fields.clone(), wrong)]);
    assert!(text.contains("`id`") && text.contains("Int32") && text.contains("Int64"), "{text}");

    fields[0] = Field::new("id", DataType::Int64, false);
    fields[2] = Field::new("b", DataType::Utf8, true);
    let mut null = columns;
    null[2] = Arc::new(StringArray::from(vec![Some("y"), None]));
    let text = refusal(vec![batch(fields, null)]);
    assert!(text.contains("`b`") && text.contains("1 nulls"), "{text}");
}

#[test]
fn p9_a_delete_takes_the_key_columns_only() {
    let text = spec().check_delete(&good()).expect_err("too many columns").to_string();
    assert!(text.contains("1 columns (id)"), "{text}");
    let keys = good().project(&[0]).expect("the key");
    let rows = spec().check_delete(&keys).expect("a delete");
    assert_eq!(rows.rows(), 2);
    let text = TableSpec::new(Arc::clone(spec().schema()))
        .validate()
        .expect("valid")
        .check_delete(&keys)
        .expect_err("no key")
        .to_string();
    assert!(text.contains("without a primary key"), "{text}");
}

#[test]
fn b73_slices_are_counted_by_their_windows() {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..100_000));
    let whole = batch(vec![Field::new("id", DataType::Int64, false)], vec![ids]);
    let parts: u64 = (0..100).map(|at| row_bytes(&whole.slice(at * 1000, 1000))).sum();
    assert_eq!(parts, 100_000 * 8 + 100 * ARRAY_BYTES);
}

#[test]
fn b1_a_small_slice_does_not_hold_its_parent() {
    let text = "x".repeat(100);
    let views: ArrayRef = Arc::new(StringViewArray::from_iter_values((0..10_000).map(|_| text.as_str())));
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..10_000));
    let fields = vec![Field::new("id", DataType::Int64, false), Field::new("v", DataType::Utf8View, true)];
    let slice = owned_window(batch(fields, vec![ids, views]).slice(5, 10)).expect("a copy");
    let held: u64 = slice.columns().iter().map(|column| buffer_bytes(&column.to_data())).sum();
    assert!(held < 20_000, "{held}");
    assert_eq!(slice.num_rows(), 10);
}

#[test]
fn b1_a_slice_of_lists_is_charged_its_own_items_and_nested_views_their_text() {
    use arrow_array::{Float32Array, ListArray, StructArray};
    use arrow_buffer::OffsetBuffer;
    let batch = |column: arrow_array::ArrayRef| RecordBatch::try_from_iter([("v", column)]).expect("a batch");
    let item = Arc::new(Field::new("item", DataType::Float32, false));
    let items = Arc::new(Float32Array::from(vec![0.5; 100_000]));
    let lists = batch(Arc::new(ListArray::new(item, OffsetBuffer::from_lengths(vec![100; 1000]), items, None)));
    let slice = lists.slice(10, 1);
    assert!(row_bytes(&lists) > 400_000 && row_bytes(&slice) < 1000, "{}", row_bytes(&slice));
    let copy = owned_window(slice.clone()).expect("a copy");
    let kept = buffer_bytes(&copy.column(0).to_data());
    assert!(copy == slice && kept < 5000, "the rest is let go, and not {kept} bytes kept");
    let views = StringViewArray::from_iter_values((0..100).map(|at| format!("{at:0>1000}")));
    let field = Arc::new(Field::new("t", DataType::Utf8View, false));
    let nested = batch(Arc::new(StructArray::from(vec![(field, Arc::new(views) as arrow_array::ArrayRef)])));
    assert!(row_bytes(&nested) > 100_000, "{}", row_bytes(&nested));
}

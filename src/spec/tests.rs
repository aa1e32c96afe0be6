use super::*;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("id", DataType::Int64, false),
        Field::new("name", DataType::Utf8, true)
            .with_metadata([(FIELD_ID.to_owned(), "7".to_owned())].into_iter().collect()),
        Field::new("tags", DataType::new_list(DataType::Utf8, true), true),
    ]))
}

fn refusal(spec: TableSpec) -> String {
    spec.validate().expect_err("the spec is wrong").to_string()
}

#[test]
fn o1_reserved_and_duplicate_column_names_are_refused_by_name() {
    for name in ["_tombstone", "_seq", "_sequence"] {
        let text = refusal(TableSpec::new(Arc::new(Schema::new(vec![Field::new(name, DataType::Int8, true)]))));
        assert!(text.contains(&format!("`{name}`")), "{text}");
    }
    let twice = Schema::new(vec![Field::new("a", DataType::Int8, true), Field::new("a", DataType::Utf8, true)]);
    let text = refusal(TableSpec::new(Arc::new(twice)));
    assert!(text.contains("`a`") && text.contains("twice"), "{text}");
    let text = refusal(TableSpec::new(Arc::new(Schema::empty())));
    assert!(text.contains("no columns"), "{text}");
}

#[test]
fn o2_a_primary_key_exists_is_not_nullable_and_not_nested() {
    let text = refusal(TableSpec::new(schema()).primary_key(["missing"]));
    assert!(text.contains("`missing`") && text.contains("id, name, tags"), "{text}");
    let text = refusal(TableSpec::new(schema()).primary_key(["name"]));
    assert!(text.contains("`name`") && text.contains("nullable Utf8"), "{text}");
    let nested = Schema::new(vec![Field::new("l", DataType::new_list(DataType::Int8, true), false)]);
    let text = refusal(TableSpec::new(Arc::new(nested)).primary_key(["l"]));
    assert!(text.contains("`l`") && text.contains("List"), "{text}");
    let text = refusal(TableSpec::new(schema()).primary_key(["id", "id"]));
    assert!(text.contains("twice"), "{text}");
}

#[test]
fn o3_index_specs_are_refused_with_index_column_constraint_and_finding() {
    let text = refusal(TableSpec::new(schema()).index(IndexSpec::btree("i", ["nope"])));
    assert!(text.contains("`i`") && text.contains("`nope`") && text.contains("no such column"), "{text}");
    let text = refusal(TableSpec::new(schema()).index(IndexSpec::btree("i", ["tags"])));
    assert!(text.contains("`tags`") && text.contains("List") && text.contains("order"), "{text}");
    let text =
        refusal(TableSpec::new(schema()).index(IndexSpec::btree("i", ["id"])).index(IndexSpec::btree("i", ["name"])));
    assert!(text.contains("unique index names"), "{text}");
    let none: [&str; 0] = [];
    let text = refusal(TableSpec::new(schema()).index(IndexSpec::btree("i", none)));
    assert!(text.contains("no columns"), "{text}");
}

#[test]
fn o3_b27_an_index_is_never_bound_to_a_column_with_another_field_id() {
    assert!(TableSpec::new(schema()).index(IndexSpec::btree("i", ["name"]).field_id(7)).validate().is_ok());
    let text = refusal(TableSpec::new(schema()).index(IndexSpec::btree("i", ["name"]).field_id(8)));
    assert!(text.contains("field id 7") && text.contains("field id 8"), "{text}");
    let text = refusal(TableSpec::new(schema()).index(IndexSpec::btree("i", ["id"]).field_id(8)));
    assert!(text.contains("without a field id"), "{text}");
}

#[test]
fn o8_a_disagreement_shows_both_specs() {
    let ours = TableSpec::new(schema()).primary_key(["id"]).validate().expect("valid");
    let stored = TableSpec::new(schema()).validate().expect("valid");
    let text = ours.check_agrees_with_stored(&stored).expect_err("they differ").to_string();
    assert!(text.contains("primary key (id)") && text.contains("primary key ()"), "{text}");
}

#[test]
fn the_storage_schema_makes_all_but_the_key_nullable_and_ends_with_the_tombstone() {
    let fields = vec![Field::new("v", DataType::Int8, false), Field::new("k", DataType::Int8, false)];
    let spec = TableSpec::new(Arc::new(Schema::new(fields))).primary_key(["k"]).validate().expect("valid");
    let nullable: Vec<_> =
        spec.storage_schema().fields().iter().map(|f| (f.name().as_str(), f.is_nullable())).collect();
    assert_eq!(nullable, [("v", true), ("k", false), ("_tombstone", false)]);
    assert_eq!(spec.tombstone_column(), 2);
}

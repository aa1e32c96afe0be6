//! `tidewal ingest`: every format in, every mistake answered.
#![cfg(feature = "cli")]
#![allow(dead_code, unreachable_pub, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "support/cli.rs"]
mod cli;

use std::fs::File;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use cli::Desk;

fn batch(ids: std::ops::Range<i64>) -> RecordBatch {
    let names: StringArray = ids.clone().map(|id| Some(format!("name {id}"))).collect();
    let ids: Int64Array = ids.collect();
    RecordBatch::try_from_iter_with_nullable([
        ("id", Arc::new(ids) as ArrayRef, true),
        ("name", Arc::new(names) as ArrayRef, true),
    ])
    .expect("columns")
}

fn parquet(desk: &Desk, name: &str, batch: &RecordBatch, group_rows: usize) {
    let properties = parquet::file::properties::WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_dictionary_enabled(false)
        .build();
    let file = File::create(desk.path(name)).expect("created");
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("begun");
    writer.write(batch).expect("written");
    writer.close().expect("closed");
}

fn ipc_file(desk: &Desk, name: &str, batches: &[RecordBatch]) {
    let options = arrow_ipc::writer::IpcWriteOptions::default()
        .try_with_compression(Some(arrow_ipc::CompressionType::LZ4_FRAME))
        .expect("supported");
    let file = File::create(desk.path(name)).expect("created");
    let mut writer =
        arrow_ipc::writer::FileWriter::try_new_with_options(file, &batches[0].schema(), options).expect("begun");
    batches.iter().for_each(|batch| writer.write(batch).expect("written"));
    writer.finish().expect("closed");
}

fn ipc_stream(desk: &Desk, name: &str, batches: &[RecordBatch]) {
    let file = File::create(desk.path(name)).expect("created");
    let mut writer = arrow_ipc::writer::StreamWriter::try_new(file, &batches[0].schema()).expect("begun");
    batches.iter().for_each(|batch| writer.write(batch).expect("written"));
    writer.finish().expect("closed");
}

fn cut(desk: &Desk, name: &str, bytes: usize) {
    let content = std::fs::read(desk.path(name)).expect("read");
    desk.file(name, &content[..content.len() - bytes]);
}

const TWO_ROWS: &str = "{\"id\":1,\"name\":\"name 1\"}\n{\"id\":2,\"name\":\"name 2\"}\n";

#[test]
fn each_format_makes_the_same_rows() {
    let rows = batch(1..3);
    for name in ["a.ndjson", "a.jsonl", "a.json", "a.csv", "a.tsv", "a.parquet", "a.arrow", "a.feather", "a.ipc"] {
        let desk = Desk::new();
        match name.rsplit('.').next().expect("an extension") {
            "csv" => drop(desk.file(name, "id,name\n1,name 1\n2,name 2\n")),
            "tsv" => drop(desk.file(name, "id\tname\n1\tname 1\n2\tname 2\n")),
            "parquet" => parquet(&desk, name, &rows, 1000),
            "arrow" | "feather" => ipc_file(&desk, name, std::slice::from_ref(&rows)),
            "ipc" => ipc_stream(&desk, name, std::slice::from_ref(&rows)),
            _ => drop(desk.file(name, TWO_ROWS)),
        }
        let said = desk.ingest(&["--key", "id", name]).success();
        assert!(said.starts_with(&format!("{name}: 2 rows\n2 rows in ")), "{said}");
        assert_eq!(desk.rows(), TWO_ROWS, "{name}");
        assert_eq!(desk.columns(), ["id Int64", "name Utf8?"], "{name}");
    }
}

#[test]
fn standard_input_is_read_if_its_format_is_said() {
    let desk = Desk::new();
    let refused = desk.run_with_input("ingest", &["--key", "id", "-"], b"").failure();
    assert!(refused.contains("--format"), "{refused}");
    desk.run_with_input("ingest", &["--key", "id", "--format", "ndjson", "-"], TWO_ROWS.as_bytes()).success();
    desk.run_with_input("ingest", &["--format", "csv", "-"], b"id,name\n3,c\n").success();
    assert_eq!(desk.rows(), format!("{TWO_ROWS}{{\"id\":3,\"name\":\"c\"}}\n"));
}

#[test]
fn ingesting_a_file_again_replaces_its_rows() {
    let desk = Desk::new();
    desk.file("a.ndjson", TWO_ROWS).ingest(&["--key", "id", "a.ndjson"]).success();
    let answer = desk.ingest(&["--key", "id", "--json", "--no-durable", "a.ndjson"]);
    let report = answer.json();
    assert_eq!((&report["rows"], &report["durable"]), (&2.into(), &4.into()), "{report}");
    assert_eq!(report["error"], serde_json::Value::Null);
    assert_eq!(desk.rows(), TWO_ROWS);
}

#[test]
fn a_malformed_line_is_named_and_the_rows_before_it_are_durable() {
    let desk = Desk::new();
    let mut lines: Vec<String> = (0..20_000).map(|id| format!("{{\"id\":{id}}}")).collect();
    lines[15_321] = "{\"id\":15321".to_owned();
    desk.file("a.ndjson", lines.join("\n"));
    let said = desk.ingest(&["--key", "id", "a.ndjson"]).failure();
    assert!(said.starts_with("error: a.ndjson, line 15322: the object does not end in this line"), "{said}");
    assert!(said.contains("15321 rows of a.ndjson were written and are durable"), "{said}");
    assert_eq!(desk.run("stats", &["--json"]).json()["rows"], 15_321);
}

#[test]
fn a_later_file_that_is_wrong_does_not_take_back_an_earlier_one() {
    let desk = Desk::new();
    desk.file("a.ndjson", TWO_ROWS).file("b.ndjson", "{\"id\":3}\n{\"id\":\"four\"}\n{\"id\":5}\n");
    let answer = desk.ingest(&["--key", "id", "--json", "a.ndjson", "b.ndjson"]);
    assert_eq!(answer.code, 1, "{answer:?}");
    let report = answer.json();
    assert_eq!(report["files"][0]["rows"], 2);
    assert_eq!(report["files"][0]["whole"], true);
    assert_eq!(report["files"][1]["rows"], 1);
    assert_eq!(report["files"][1]["whole"], false);
    let error = report["error"].as_str().expect("an error");
    assert!(error.starts_with("b.ndjson, line 2: ") && error.contains("\"four\" as Int64"), "{error}");
}

#[test]
fn csv_mistakes_are_named_with_the_line_of_the_file() {
    let cases = [
        ("id,a\n1,\"x\ny\"\n2,b,c\n", "line 4: incorrect number of fields, expected 2 got 3"),
        ("id,a\n1,x\n\n2,\"never closed\n3,y\n", "line 4: a quote opened in this record is not closed"),
        ("id,a,id\n1,2,3\n", "line 1: the header names the column `id` twice"),
        ("id,,b\n1,2,3\n", "line 1: column 2 has no name"),
    ];
    for (content, expected) in cases {
        let desk = Desk::new();
        let said = desk.file("a.csv", content).ingest(&["--key", "id", "a.csv"]).failure();
        assert!(said.contains(&format!("a.csv, {expected}")), "{said}");
    }
    let desk = Desk::new();
    let said = desk.file("a.csv", b"id,a\n1,x\n2,caf\xe9\n").ingest(&["--key", "id", "a.csv"]).failure();
    assert!(said.contains("a.csv, line 3: the text is not UTF-8; convert it: iconv"), "{said}");
    assert_eq!(desk.rows(), "{\"id\":1,\"a\":\"x\"}\n");
}

#[test]
fn marks_carriage_returns_quoted_newlines_and_unicode_are_kept_apart_from_the_values() {
    let desk = Desk::new();
    desk.file("a.csv", "\u{feff}id,text\r\n1,\"two\r\nlines, \"\"quoted\"\"\"\r\n\r\n2,größe 🌊\r\n");
    desk.ingest(&["--key", "id", "a.csv"]).success();
    let expected = [r#"{"id":1,"text":"two\r\nlines, \"quoted\""}"#, r#"{"id":2,"text":"größe 🌊"}"#];
    assert_eq!(desk.rows().lines().collect::<Vec<_>>(), expected);
    desk.file("b.ndjson", "\u{feff}{\"id\":3,\"text\":\"\\u00e9\"}\r\n\r\n").ingest(&["b.ndjson"]).success();
    assert_eq!(desk.rows().lines().last(), Some(r#"{"id":3,"text":"é"}"#));
}

#[test]
fn a_parquet_file_cut_short_is_refused_and_a_damaged_page_is_named_with_its_row_group() {
    let desk = Desk::new();
    parquet(&desk, "cut.parquet", &batch(0..100), 10);
    cut(&desk, "cut.parquet", 10);
    let said = desk.ingest(&["--key", "id", "cut.parquet"]).failure();
    assert!(said.contains("cut.parquet: no Parquet file") && said.contains("copied whole"), "{said}");
    assert!(!desk.has_shard());

    parquet(&desk, "bad.parquet", &batch(0..100_000), 50_000);
    let mut content = std::fs::read(desk.path("bad.parquet")).expect("read");
    // The second row group begins behind the middle; its first page header becomes nonsense.
    let metadata = parquet::file::metadata::ParquetMetaDataReader::new()
        .parse_and_finish(&File::open(desk.path("bad.parquet")).expect("opened"))
        .expect("whole");
    let start = metadata.row_group(1).column(0).byte_range().0 as usize;
    content[start..start + 16].fill(0xff);
    desk.file("bad.parquet", content);
    let said = desk.ingest(&["--key", "id", "bad.parquet"]).failure();
    assert!(said.contains("(row group 2)"), "{said}");
    let kept = desk.run("stats", &["--json"]).json()["rows"].as_u64().expect("a number");
    assert!(said.contains(&format!("{kept} rows of bad.parquet were written and are durable")), "{kept}: {said}");
    assert!((40_000..=50_000).contains(&kept), "{kept}");
}

#[test]
fn an_arrow_file_cut_short_is_refused_or_named_by_its_row() {
    let desk = Desk::new();
    ipc_file(&desk, "file.arrow", &[batch(0..10)]);
    cut(&desk, "file.arrow", 12);
    let said = desk.ingest(&["--key", "id", "file.arrow"]).failure();
    assert!(said.contains("file.arrow: no Arrow IPC file"), "{said}");

    ipc_stream(&desk, "stream.arrow", &[batch(0..10), batch(10..2000)]);
    cut(&desk, "stream.arrow", 5000);
    let said = desk.ingest(&["--key", "id", "stream.arrow"]).failure();
    assert!(said.contains("stream.arrow, from row 11: "), "{said}");
    assert!(said.contains("10 rows of stream.arrow were written and are durable"), "{said}");
    desk.file("empty.arrow", "");
    assert!(desk.ingest(&["empty.arrow"]).failure().contains("empty.arrow: the file is empty"));
}

#[test]
fn a_stream_without_its_end_mark_is_read_with_a_warning() {
    let desk = Desk::new();
    ipc_stream(&desk, "a.arrow", &[batch(1..3)]);
    cut(&desk, "a.arrow", 8);
    let answer = desk.ingest(&["--key", "id", "a.arrow"]);
    assert!(answer.err.contains("warning: a.arrow: the stream has no end mark"), "{answer:?}");
    answer.success();
    assert_eq!(desk.rows(), TWO_ROWS);
}

#[test]
fn a_key_that_does_not_do_leaves_no_shard() {
    let desk = Desk::new();
    desk.file("a.ndjson", "{\"id\":1,\"o\":{}}\n{\"id\":null,\"o\":{}}\n");
    let refusal = |args: &[&str]| {
        let said = desk.ingest(&[args, &["a.ndjson"]].concat()).failure();
        assert!(!desk.has_shard(), "{said}");
        said
    };
    assert!(refusal(&[]).contains("--key COLUMN"), "absent");
    let said = refusal(&["--key", "ID"]);
    assert!(said.contains("no column `ID` for the key; there is id, o"), "{said}");
    let said = refusal(&["--key", "id"]);
    assert!(said.contains("a.ndjson, line 2: column `id` is null or absent"), "{said}");
    let said = refusal(&["--key", "o"]);
    assert!(said.contains("primary key column `o`") && said.contains("Struct"), "{said}");
    let said = refusal(&["--key", "id,id"]);
    assert!(said.contains("the same column twice"), "{said}");
}

#[test]
fn a_null_key_in_a_later_row_is_named_with_its_row() {
    let desk = Desk::new();
    let ids = Int64Array::from_iter((0..9000).map(|id| (id != 8500).then_some(id)));
    let rows = RecordBatch::try_from_iter([("id", Arc::new(ids) as ArrayRef)]).expect("a column");
    parquet(&desk, "a.parquet", &rows, 4096);
    let said = desk.ingest(&["--key", "id", "a.parquet"]).failure();
    assert!(said.contains("a.parquet, row 8501 (row group 3): column `id` is null"), "{said}");
    assert!(said.contains("8500 rows of a.parquet were written"), "{said}");
}

#[test]
fn a_given_schema_decides_the_types() {
    let desk = Desk::new();
    desk.file("a.csv", "id,zip,at,price\n1,00123,2024-05-01T12:00:00,1.10\n2,,,\n");
    desk.file("columns.txt", "id: uint32 # the key\nzip: utf8?\nat: timestamp_ms?\nprice: decimal(9,2)?\n");
    desk.ingest(&["--key", "id", "--schema", "columns.txt", "a.csv"]).success();
    assert_eq!(desk.columns(), ["id UInt32", "zip Utf8?", "at Timestamp(ms)?", "price Decimal128(9, 2)?"]);
    let first = desk.rows().lines().next().expect("a row").to_owned();
    assert_eq!(first, r#"{"id":1,"zip":"00123","at":"2024-05-01T12:00:00","price":1.10}"#);
    let said = desk.ingest(&["--schema", "id:int64", "a.csv"]).failure();
    assert!(said.contains("created with other columns"), "{said}");
}

#[test]
fn an_existing_shard_takes_columns_by_name_and_types_only_if_exact() {
    let desk = Desk::new();
    desk.file("a.ndjson", "{\"id\":1,\"n\":5,\"t\":\"x\"}\n").ingest(&["--key", "id", "a.ndjson"]).success();
    let columns: [(&str, ArrayRef); 2] =
        [("n", Arc::new(Int32Array::from(vec![6]))), ("id", Arc::new(Int32Array::from(vec![2])))];
    parquet(&desk, "b.parquet", &RecordBatch::try_from_iter(columns).expect("columns"), 10);
    desk.ingest(&["b.parquet"]).success();
    assert_eq!(desk.rows(), "{\"id\":1,\"n\":5,\"t\":\"x\"}\n{\"id\":2,\"n\":6,\"t\":null}\n");

    let extra = desk.file("c.csv", "id,more\n3,4\n").ingest(&["c.csv"]).failure();
    assert!(extra.contains("no column `more`; it has id, n, t") && extra.contains("--ignore-extra-columns"), "{extra}");
    desk.ingest(&["--ignore-extra-columns", "c.csv"]).success();
    let missing = desk.file("d.csv", "n\n3\n").ingest(&["d.csv"]).failure();
    assert!(missing.contains("there is no column `id`"), "{missing}");
    let text: [(&str, ArrayRef); 1] = [("id", Arc::new(StringArray::from(vec!["1"])))];
    parquet(&desk, "e.parquet", &RecordBatch::try_from_iter(text).expect("a column"), 10);
    let refused = desk.ingest(&["e.parquet"]).failure();
    assert!(refused.contains("column `id` is Utf8, and the shard holds Int64"), "{refused}");
    let other_key = desk.ingest(&["--key", "n", "a.ndjson"]).failure();
    assert!(other_key.contains("created with the key id"), "{other_key}");
}

#[test]
fn nested_objects_and_lists_stay_nested_columns_in_the_order_of_the_file() {
    let desk = Desk::new();
    let line = r#"{"id":1,"z":{"y":[1,2],"x":{"w":"deep"}},"list":[{"a":1.5},{"a":null}],"none":null,"empty":{}}"#;
    desk.file("a.ndjson", format!("{line}\n")).ingest(&["--key", "id", "a.ndjson"]).success();
    assert_eq!(desk.rows(), format!("{line}\n"));
    assert!(desk.columns()[1].contains("Struct(\"y\": List(Int64), \"x\": Struct("), "{:?}", desk.columns());
}

#[test]
fn a_thousand_columns_are_taken() {
    let desk = Desk::new();
    let names: Vec<String> = (0..1000).map(|at| format!("c{at}")).collect();
    let values: Vec<String> = (0..1000).map(|at| at.to_string()).collect();
    desk.file("a.csv", format!("{}\n{}\n", names.join(","), values.join(",")));
    desk.ingest(&["--key", "c0", "a.csv"]).success();
    assert_eq!(desk.columns().len(), 1000);
    assert_eq!(desk.run("scan", &["--columns", "c999", "--format", "csv"]).success(), "c999\n999\n");
}

#[test]
fn an_empty_file_is_no_rows_where_the_columns_are_known() {
    let desk = Desk::new();
    desk.file("a.ndjson", "").file("a.csv", "").file("header.csv", "id,name\n");
    for name in ["a.ndjson", "a.csv", "header.csv"] {
        let said = desk.ingest(&["--key", "id", name]).failure();
        assert!(said.contains("no rows") && said.contains("--schema"), "{said}");
    }
    assert!(!desk.has_shard());
    let said = desk.ingest(&["--key", "id", "--schema", "id:int64,name:utf8?", "header.csv", "a.ndjson"]).success();
    assert!(said.contains("header.csv: 0 rows\na.ndjson: 0 rows\n"), "{said}");
    assert_eq!(desk.rows(), "");
}

#[test]
fn what_is_no_such_format_is_answered_with_the_way_out() {
    let desk = Desk::new();
    desk.file("a.json", "[{\"id\":1}]").file("b.json", "{\n  \"id\": 1\n}\n").file("c.txt", "id\n1\n");
    let answer = |name: &str| desk.ingest(&["--key", "id", name]).failure();
    assert!(answer("a.json").contains("line 1: found a JSON array"), "{}", answer("a.json"));
    assert!(answer("b.json").contains("line 1: the object does not end in this line"), "{}", answer("b.json"));
    assert!(answer("c.txt").contains("give --format"), "{}", answer("c.txt"));
    assert!(answer("missing.csv").starts_with("error: missing.csv: No such file"), "{}", answer("missing.csv"));
    desk.file("d.csv", "id;name\n1;x\n");
    assert!(answer("d.csv").contains("--delimiter"), "{}", answer("d.csv"));
    desk.ingest(&["--key", "id", "--delimiter", ";", "d.csv"]).success();
    assert_eq!(desk.rows(), "{\"id\":1,\"name\":\"x\"}\n");
}

#[test]
fn two_objects_in_a_line_or_one_in_two_are_refused() {
    let desk = Desk::new();
    desk.file("a.ndjson", "{\"id\":1}\n{\"id\":2}{\"id\":3}\n{\"id\":4}\n");
    let said = desk.ingest(&["--key", "id", "a.ndjson"]).failure();
    assert!(said.contains("a.ndjson, line 2: "), "{said}");
    desk.file("b.ndjson", "{\"id\":5}\n{\"id\":\n6}\n");
    let said = desk.ingest(&["b.ndjson"]).failure();
    assert!(said.contains("b.ndjson, line 2: the object does not end in this line"), "{said}");
    assert_eq!(desk.rows(), "{\"id\":1}\n{\"id\":5}\n");
}

#[test]
fn rows_without_a_key_are_only_added() {
    let desk = Desk::new();
    desk.file("a.csv", "n\n1\n").ingest(&["--append-only", "a.csv"]).success();
    desk.ingest(&["a.csv"]).success();
    assert_eq!(desk.rows(), "{\"n\":1}\n{\"n\":1}\n");
    let refused = desk.run("get", &["1"]).failure();
    assert!(refused.contains("no primary key") && refused.contains("tidewal scan"), "{refused}");
}

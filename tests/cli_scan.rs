//! `tidewal scan`, `get` and `stats`: what was loaded is read back.
#![cfg(feature = "cli")]
#![allow(dead_code, unreachable_pub, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

#[path = "support/cli.rs"]
mod cli;

use std::io::{BufRead as _, BufReader};

use cli::Desk;

const FISH: &str = "id,name,size\n1,plaice,40\n2,cod,120\n3,herring,\n4,ling,200\n";

fn desk() -> Desk {
    let desk = Desk::new();
    desk.file("fish.csv", FISH).ingest(&["--key", "id", "--index", "by_size=size", "fish.csv"]).success();
    desk
}

#[test]
fn a_table_is_printed_by_default() {
    let expected = "\
+----+--------+------+
| id | name   | size |
+----+--------+------+
| 1  | plaice | 40   |
| 2  | cod    | 120  |
+----+--------+------+
";
    assert_eq!(desk().run("scan", &["--limit", "2"]).success(), expected);
}

#[test]
fn rows_are_filtered_projected_ordered_and_counted_off() {
    let desk = desk();
    let scan = |args: &[&str]| desk.run("scan", &[&["--format", "csv"], args].concat()).success();
    assert_eq!(scan(&["--filter", "size > 100 AND name LIKE '%o%'"]), "id,name,size\n2,cod,120\n");
    assert_eq!(scan(&["--columns", "size, id", "--order", "size:desc", "--limit", "2"]), "size,id\n200,4\n120,2\n");
    assert_eq!(scan(&["--columns", "id", "--order", "name", "--offset", "3"]), "id\n1\n");
    assert_eq!(scan(&["--filter", "id < 0"]), "id,name,size\n");
    assert_eq!(scan(&[]), FISH);
}

#[test]
fn a_table_without_a_limit_ends_after_a_hundred_rows_and_says_so() {
    let desk = Desk::new();
    let lines: Vec<String> = (0..101).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    desk.file("a.ndjson", lines[..100].concat()).ingest(&["--key", "id", "a.ndjson"]).success();
    let whole = desk.run("scan", &[]);
    assert_eq!((whole.out.lines().count(), whole.err.as_str()), (104, ""));
    desk.file("b.ndjson", &lines[100]).ingest(&["b.ndjson"]).success();
    let cut = desk.run("scan", &[]);
    assert_eq!(cut.out.lines().count(), 104);
    assert!(cut.err.contains("the first 100 rows are shown; --limit N"), "{}", cut.err);
    assert_eq!(desk.rows().lines().count(), 101);
}

#[test]
fn a_reader_that_goes_away_ends_the_scan_quietly() {
    let desk = Desk::new();
    let wide = "x".repeat(1000);
    let lines: Vec<String> = (0..5000).map(|id| format!("{id},{wide}\n")).collect();
    desk.file("a.csv", format!("id,text\n{}", lines.concat())).ingest(&["--key", "id", "a.csv"]).success();
    for format in ["ndjson", "csv"] {
        let mut child = desk.start("scan", &["--format", format]);
        let mut first = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut first).expect("a line");
        let output = child.wait_with_output().expect("ends");
        assert!(output.status.success(), "{format}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{format}");
    }
}

#[test]
fn a_scan_that_cannot_be_is_refused_in_one_line() {
    let desk = desk();
    let refused = |args: &[&str]| desk.run("scan", args).failure();
    let said = refused(&["--filter", "size >"]);
    assert!(said.starts_with("error: invalid input: the filter") && said.lines().count() == 1, "{said}");
    assert!(refused(&["--columns", "colour"]).contains("`colour`"));
    assert!(refused(&["--order", "colour:desc"]).contains("`colour`"));
    desk.file("b.ndjson", "{\"k\":1,\"tags\":[1]}\n");
    let nested = Desk::new();
    nested.file("b.ndjson", "{\"k\":1,\"tags\":[1]}\n").ingest(&["--key", "k", "b.ndjson"]).success();
    let said = nested.run("scan", &["--format", "csv"]).failure();
    assert!(said.contains("`tags`") && said.contains("--format ndjson"), "{said}");
    assert_eq!(desk.run("scan", &["--limit", "many"]).code, 2, "wrong usage");
}

#[test]
fn a_shard_that_is_not_there_is_said_and_not_made() {
    let desk = Desk::new();
    for command in ["scan", "stats"] {
        let said = desk.run(command, &[]).failure();
        assert!(said.contains("there is no shard at `shard`; create one with `tidewal ingest"), "{said}");
    }
    assert_eq!(std::fs::read_dir(desk.folder()).expect("read").count(), 0);
    std::fs::create_dir(desk.path("shard")).expect("made");
    assert!(desk.run("get", &["1"]).failure().contains("there is no shard"));
}

#[test]
fn get_prints_records_or_json_and_tells_what_is_not_there() {
    let desk = desk();
    assert_eq!(desk.run("get", &["2"]).success(), "id    2\nname  cod\nsize  120\n");
    assert_eq!(
        desk.run("get", &["--format", "ndjson", "3", "1"]).success(),
        "{\"id\":3,\"name\":\"herring\",\"size\":null}\n{\"id\":1,\"name\":\"plaice\",\"size\":40}\n"
    );
    let partly = desk.run("get", &["4", "-7"]);
    assert_eq!((partly.code, partly.err.as_str()), (2, "-7: not found\n"));
    assert!(partly.out.contains("ling"), "{partly:?}");
    let wrong = desk.run("get", &["four"]).failure();
    assert!(wrong.contains("key column `id`: found `four`; expected a whole number"), "{wrong}");
}

#[test]
fn get_tells_deleted_from_never_written() {
    use arrow_array::{ArrayRef, Int64Array, RecordBatch};
    let desk = desk();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let store = tidewal::Store::from_url(desk.path("shard").to_str().expect("a name")).expect("a store");
        let engine = tidewal::Engine::builder(store).open().await.expect("opens");
        let ids = std::sync::Arc::new(Int64Array::from(vec![2])) as ArrayRef;
        engine.delete(&RecordBatch::try_from_iter([("id", ids)]).expect("keys")).await.expect("deleted");
        engine.close().await.expect("closes");
    });
    let answer = desk.run("get", &["2", "9"]);
    assert_eq!((answer.code, answer.err.as_str()), (2, "2: deleted\n9: not found\n"));
}

#[test]
fn composite_keys_are_given_with_commas_and_quotes() {
    let desk = Desk::new();
    desk.file("a.ndjson", "{\"land\":\"a,b\",\"day\":\"2024-02-03\",\"n\":1}\n");
    desk.ingest(&["--key", "land,day", "--schema", "land:utf8,day:date,n:int8", "a.ndjson"]).success();
    assert!(desk.run("get", &["\"a,b\",2024-02-03"]).success().contains("n     1"));
    let wrong = desk.run("get", &["a"]).failure();
    assert!(wrong.contains("give land,day"), "{wrong}");
}

#[test]
fn stats_say_what_the_shard_holds() {
    let desk = desk();
    desk.ingest(&["fish.csv"]).success();
    let stats = desk.run("stats", &["--json"]).json();
    assert_eq!((&stats["rows"], &stats["durable"]), (&4.into(), &8.into()), "{stats}");
    assert_eq!(stats["epoch"], 3);
    assert_eq!(stats["primary_key"], serde_json::json!(["id"]));
    assert_eq!(stats["indexes"][0]["name"], "by_size");
    let text = desk.run("stats", &[]).success();
    assert!(text.contains("rows         4") && text.contains("  size: Int64\n"), "{text}");
}

#[test]
fn every_command_says_that_it_fences_another_writer() {
    for command in ["ingest", "scan", "get", "stats"] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_tidewal")).args([command, "--help"]).output();
        let help = String::from_utf8(output.expect("runs").stdout).expect("text");
        assert!(help.contains("is fenced"), "{help}");
    }
}

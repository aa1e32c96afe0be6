//! The demo as a stranger runs it.

#![cfg(feature = "cli")]
#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::process::Command;

fn demo(arguments: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_tidewal")).arg("demo").args(arguments).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() || !output.stderr.is_empty(), "a failure says why: {text}");
    (output.status.success(), text)
}

#[test]
fn r1_the_demo_loses_and_doubles_nothing_and_says_so_as_json() {
    let (ended_well, text) = demo(&["--rows", "1500", "--json", "--dir", concat!(env!("CARGO_MANIFEST_DIR"), "/src")]);
    assert!(ended_well, "{text}");
    let found: serde_json::Value = serde_json::from_str(&text).expect("one JSON object");
    assert_eq!((&found["lost"], &found["doubled"], &found["fenced"]), (&0.into(), &0.into(), &true.into()), "{text}");
    assert_eq!(found["acknowledged"], found["found"], "{text}");
    assert!(found["acknowledged"].as_u64().expect("a count") > 100, "{text}");
    assert!(found["reopen_ms"].as_f64().expect("a time") > 0.0, "{text}");
}

#[test]
fn the_demo_keeps_its_shard_where_it_is_told_to_and_opens_it_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("shard");
    let data = data.to_str().expect("a path");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    for _ in 0..2 {
        let (ended_well, text) = demo(&["--rows", "600", "--data", data, "--dir", source]);
        assert!(ended_well, "{text}");
        for part in ["rows acknowledged", "Nothing was lost or doubled.", "fenced", "as of before"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    assert!(folder.path().join("shard/wal").is_dir());
}

#[test]
fn a_folder_without_text_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_tidewal"))
        .args(["demo", "--dir", folder.path().to_str().expect("a path")])
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("--dir"), "{output:?}");
}

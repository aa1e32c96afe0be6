use std::collections::HashMap;
use std::sync::Arc;

use arrow_schema::{DataType, Field, TimeUnit};

use super::*;
use crate::wal::testing::fault_store::{Fault, Op};
use crate::wal::testing::generation_meta;
use crate::wal::testing::{Process, SHARD, corrupt_object, spec};

fn root() -> Path {
    Path::from("root")
}

fn manifest() -> Manifest {
    Manifest::first(SHARD, &spec(), Nonce::new(9)).expect("the spec can be stored")
}

fn decode(bytes: &[u8]) -> Result<Manifest> {
    Manifest::decode(&root(), ManifestVersion::new(1), bytes)
}

/// The manifest with one of its fields replaced, under a checksum that holds.
fn with(field: &str, value: serde_json::Value) -> Vec<u8> {
    let mut json = serde_json::to_value(manifest()).expect("JSON");
    json[field] = value;
    let line = format!("{json}\n");
    let crc = crc32c::crc32c(line.as_bytes());
    format!("{line}crc32c={crc:08x}\n").into_bytes()
}

#[test]
fn a_manifest_comes_back_as_it_was() {
    let mut released = manifest();
    released.flushed = Seq::new(u64::MAX - 1);
    released.generations = vec![generation_meta(0, u64::MAX - 1)];
    released.replay_from = EntryPosition::new(8);
    released.released = Some(Released { position: EntryPosition::new(7), crc: u32::MAX });
    for manifest in [manifest(), released] {
        assert_eq!(decode(&manifest.encode().expect("it encodes")).expect("it decodes"), manifest);
    }
}

#[test]
fn o8_the_whole_spec_comes_back() {
    let metadata = HashMap::from([("k".to_owned(), "v".to_owned())]);
    let dictionary = DataType::Dictionary(Box::new(DataType::Int16), Box::new(DataType::Utf8));
    let fields = vec![
        Field::new("id", DataType::Int64, false),
        Field::new("at", DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), false),
        Field::new("tag", dictionary, true).with_metadata(metadata.clone()),
        Field::new("list", DataType::new_list(DataType::Float32, false), true),
    ];
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    let spec = TableSpec::new(schema)
        .primary_key(["id", "at"])
        .index(IndexSpec::btree("by_tag", ["tag", "at"]))
        .validate()
        .expect("the spec is valid");
    let manifest = Manifest::first(SHARD, &spec, Nonce::new(9)).expect("the spec can be stored");
    let stored = decode(&manifest.encode().expect("it encodes")).expect("it decodes");
    assert_eq!(stored.validated_spec(&root()).expect("the spec is valid"), spec);
}

#[test]
fn w8_a_manifest_cut_at_any_byte_is_corrupt_and_named() {
    let bytes = manifest().encode().expect("it encodes");
    for length in 0..bytes.len() {
        let error = decode(&bytes[..length]).expect_err("it is cut");
        assert_eq!(corrupt_object(&error), Some("root/manifest/00000000000000000001.json"), "{length}: {error}");
    }
}

#[test]
fn w8_a_flipped_bit_anywhere_in_a_manifest_is_found() {
    let bytes = manifest().encode().expect("it encodes");
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.to_vec();
            bytes[at] ^= 1 << bit;
            let error = decode(&bytes).expect_err("a bit is flipped");
            assert!(corrupt_object(&error).is_some(), "byte {at} bit {bit}: {error}");
        }
    }
}

#[test]
fn a_field_this_release_does_not_know_is_kept_in_the_next_version() {
    let newer = decode(&with("later_field", serde_json::json!({"depth": [1, u64::MAX]}))).expect("it decodes");
    let next = newer.claimed_by(Epoch::new(2), Nonce::new(1));
    let text = String::from_utf8(next.encode().expect("it encodes").to_vec()).expect("text");
    assert!(text.contains(r#""later_field":{"depth":[1,18446744073709551615]}"#), "{text}");
}

#[test]
fn a_capability_or_format_this_release_does_not_have_is_refused_by_name() {
    let text = decode(&with("capabilities", serde_json::json!(["time_travel"]))).expect_err("unknown").to_string();
    assert!(text.contains("`time_travel`") && text.contains("newer release"), "{text}");
    let text = decode(&with("format_version", serde_json::json!(2))).expect_err("unknown").to_string();
    assert!(text.contains("format version 2") && text.contains("format version 1"), "{text}");
}

#[test]
fn w8_a_manifest_that_contradicts_itself_or_its_name_is_corrupt() {
    for (field, value) in [
        ("version", serde_json::json!(2)),
        ("replay_from", serde_json::json!(2)),
        ("released", serde_json::json!({"position": 3, "crc": 1})),
        ("epoch", serde_json::json!(0)),
        ("nonce", serde_json::json!("short")),
        ("flushed", serde_json::json!(-1)),
    ] {
        let error = decode(&with(field, value)).expect_err(field);
        assert!(corrupt_object(&error).is_some(), "{field}: {error}");
    }
    let spec = serde_json::json!({"schema": "////AAAA", "primary_key": [], "indexes": []});
    let error = decode(&with("spec", spec)).expect("it decodes").validated_spec(&root()).expect_err("no schema");
    assert!(corrupt_object(&error).is_some(), "{error}");
}

fn version(version: u64) -> Manifest {
    Manifest { version: ManifestVersion::new(version), ..manifest() }
}

#[tokio::test]
async fn the_newest_manifest_is_found_behind_a_stale_list() {
    let process = Process::first();
    assert_eq!(process.store.latest().await.expect("it answers"), None);
    for at in 1..=4 {
        assert_eq!(process.store.create(&version(at)).await.expect("it answers"), ManifestAnswer::Created);
    }
    let hidden = [vec!["manifest/".to_owned()], vec!["3.json".to_owned(), "4.json".to_owned()], vec![]];
    for names in hidden {
        process.faults.on(Op::List, "manifest").once(Fault::HideFromList(names));
        assert_eq!(process.store.latest().await.expect("it answers"), Some(version(4)));
    }
}

#[tokio::test]
async fn foreign_objects_beside_the_manifests_are_ignored() {
    let process = Process::first();
    process.store.create(&version(1)).await.expect("it answers");
    for name in ["root/manifest/readme.txt", "root/manifest/9.json", "root/manifest/99999999999999999999999.json"] {
        process.faults.overwrite(&Path::from(name), "hello").await;
    }
    assert_eq!(process.store.latest().await.expect("it answers"), Some(version(1)));
}

#[tokio::test]
async fn w8_a_damaged_newest_manifest_is_corrupt_and_no_older_one_is_taken_instead() {
    let process = Process::first();
    process.store.create(&version(1)).await.expect("it answers");
    process.faults.overwrite(&layout::manifest_path(&root(), ManifestVersion::new(2)), "{}").await;
    let error = process.store.latest().await.expect_err("it is damaged");
    assert_eq!(corrupt_object(&error), Some("root/manifest/00000000000000000002.json"), "{error}");
}

#[tokio::test]
async fn f4_a_commit_whose_answer_was_lost_is_recognised() {
    for fault in [Fault::FailAfter, Fault::AlreadyExists, Fault::Precondition, Fault::FailBefore] {
        let process = Process::first();
        process.faults.on(Op::Put, "manifest").once(fault.clone());
        assert_eq!(process.store.create(&version(1)).await.expect("it answers"), ManifestAnswer::Created, "{fault:?}");
        assert_eq!(process.store.latest().await.expect("it answers"), Some(version(1)), "{fault:?}");
    }
}

#[tokio::test]
async fn f4_a_different_manifest_of_the_same_writer_is_not_taken_for_this_one() {
    let process = Process::first();
    let earlier = Manifest { flushed: Seq::new(5), generations: vec![generation_meta(0, 5)], ..version(1) };
    process.store.create(&earlier).await.expect("it answers");
    let answer = process.store.create(&version(1)).await.expect("it answers");
    assert_eq!(answer, ManifestAnswer::AlreadyExists(Box::new(earlier)));
}

#[tokio::test]
async fn w6_a_manifest_that_cannot_be_created_is_an_error_after_bounded_attempts() {
    let process = Process::first();
    process.faults.on(Op::Put, "manifest").always(Fault::AlreadyExists);
    let error = process.store.create(&version(1)).await.expect_err("409 for ever");
    assert!(matches!(error, Error::Io { operation: Operation::CreateManifest, attempts: 4, .. }), "{error}");
}

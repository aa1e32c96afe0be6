//! What lies in the store is readable without this library (W1), and one put stays whole (W2).

#![allow(clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod support;

use std::process::Command;
use std::sync::Arc;

use object_store::local::LocalFileSystem;
use support::shard::{builder, keys, rows};

/// The Python that has pyarrow. CI sets it up; without it there is nothing to test with.
fn python() -> Option<String> {
    let python = std::env::var("TIDEWAL_PYTHON").ok();
    assert!(python.is_some() || std::env::var("CI").is_err(), "in CI, TIDEWAL_PYTHON names a Python with pyarrow");
    python
}

#[tokio::test]
async fn w1_pyarrow_reads_every_log_entry_as_a_plain_stream() {
    let Some(python) = python() else {
        eprintln!("skipped: TIDEWAL_PYTHON does not name a Python with pyarrow");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let store = LocalFileSystem::new_with_prefix(folder.path()).expect("a store");
    let engine = builder(Arc::new(store)).open().await.expect("opens");
    engine.put(rows(0..5, "a")).await.expect("written");
    engine.put(rows(5..7, "b")).await.expect("written");
    engine.delete(&keys(3..4)).await.expect("deleted");
    // A close would write the rows out and let the log go.
    engine.abort();
    let program = r#"
import os, sys, pyarrow.ipc as ipc
for name in os.listdir(sys.argv[1]):
    with open(os.path.join(sys.argv[1], name), "rb") as file:
        reader = ipc.open_stream(file)
        header = {key.decode(): value.decode() for key, value in reader.schema.metadata.items()}
        table = reader.read_all()
        for row in table.to_pylist():
            print(header["tidewal.position"], row["id"], row["text"], row["_tombstone"])
"#;
    let output = Command::new(python).args(["-c", program]).arg(folder.path().join("shard/wal")).output();
    let output = output.expect("python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    let wanted = [
        "1 0 a 0 False",
        "1 1 a 1 False",
        "1 2 a 2 False",
        "1 3 a 3 False",
        "1 4 a 4 False",
        "2 5 b 5 False",
        "2 6 b 6 False",
        "3 3 None True",
    ];
    assert_eq!(lines, wanted);
}

#[tokio::test]
async fn b1_a_local_folder_is_synced_before_a_put_is_durable() {
    // A store opened by path must sync; the flag is the store's own and shows in its Debug form.
    let folder = tempfile::tempdir().expect("a folder");
    let store = tidewal::Store::from_url(folder.path().to_str().expect("a path")).expect("a store");
    let shown = format!("{:?}", store.object_store());
    assert!(shown.contains("fsync: true"), "{shown}");
}

#[tokio::test]
async fn f7_pyarrow_reads_the_rows_of_a_generation_as_a_plain_file() {
    let Some(python) = python() else {
        eprintln!("skipped: TIDEWAL_PYTHON does not name a Python with pyarrow");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let store = LocalFileSystem::new_with_prefix(folder.path()).expect("a store");
    let engine = builder(Arc::new(store)).open().await.expect("opens");
    engine.put(rows(0..20_000, "a")).await.expect("written");
    engine.put(rows(5..7, "b")).await.expect("written");
    engine.delete(&keys(3..4)).await.expect("deleted");
    engine.close().await.expect("closed");
    let program = r#"
import glob, os, sys, pyarrow.ipc as ipc
[name] = glob.glob(os.path.join(sys.argv[1], "*", "rows.arrow"))
with open(name, "rb") as file:
    reader = ipc.open_file(file)
    table = reader.read_all()
    table.validate(full=True)
    print(reader.num_record_batches, table.num_rows, table.schema.names)
    print([(row["id"], row["text"], row["_tombstone"]) for row in table.slice(19_999).to_pylist()])
"#;
    let output = Command::new(python).args(["-c", program]).arg(folder.path().join("shard/gen")).output();
    let output = output.expect("python runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("text");
    let wanted = "3 20003 ['id', 'text', '_tombstone']\n\
        [(19999, 'a 19999', False), (5, 'b 5', False), (6, 'b 6', False), (3, None, True)]\n";
    assert_eq!(text, wanted);
}

//! The built binary, and a folder of files for it.
#![allow(dead_code, unreachable_pub, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A folder that goes away with the test. Commands run in it; the shard is its folder `shard`.
pub struct Desk {
    folder: tempfile::TempDir,
}

/// What a command answered.
#[derive(Debug)]
pub struct Answer {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Answer {
    fn of(output: &Output) -> Self {
        Answer {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Its stdout, after a success.
    #[track_caller]
    pub fn success(self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        self.out
    }

    /// Its stderr, after the failure of a command that was called rightly.
    #[track_caller]
    pub fn failure(self) -> String {
        assert_eq!(self.code, 1, "{self:?}");
        self.err
    }

    /// Its stdout as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

#[allow(dead_code, reason = "each test file uses its part")]
impl Desk {
    pub fn new() -> Self {
        Desk { folder: tempfile::tempdir().expect("a folder") }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> &Self {
        std::fs::write(self.path(name), content).expect("written");
        self
    }

    fn command(&self, command: &str, args: &[&str]) -> Command {
        let mut binary = Command::new(env!("CARGO_BIN_EXE_tidewal"));
        binary.current_dir(self.folder.path()).env_remove("RUST_LOG");
        binary.arg(command).args(["--data", "shard"]).args(args);
        binary
    }

    pub fn run(&self, command: &str, args: &[&str]) -> Answer {
        Answer::of(&self.command(command, args).stdin(Stdio::null()).output().expect("runs"))
    }

    pub fn run_with_input(&self, command: &str, args: &[&str], input: &[u8]) -> Answer {
        let mut binary = self.command(command, args);
        let mut child =
            binary.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
        child.stdin.take().expect("piped").write_all(input).expect("taken");
        Answer::of(&child.wait_with_output().expect("ends"))
    }

    pub fn ingest(&self, args: &[&str]) -> Answer {
        self.run("ingest", args)
    }

    /// Starts a command whose output nobody reads further than the caller does.
    pub fn start(&self, command: &str, args: &[&str]) -> std::process::Child {
        let mut binary = self.command(command, args);
        binary.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs")
    }

    /// The rows of the shard, one JSON object a line.
    pub fn rows(&self) -> String {
        self.run("scan", &["--format", "ndjson"]).success()
    }

    /// The columns of the shard as `name type nullable`.
    pub fn columns(&self) -> Vec<String> {
        let stats = self.run("stats", &["--json"]).json();
        let columns = stats["columns"].as_array().expect("a list").iter();
        columns
            .map(|column| {
                let text = |key: &str| column[key].as_str().expect("text").to_owned();
                let null = if column["nullable"] == true { "?" } else { "" };
                format!("{} {}{null}", text("name"), text("type"))
            })
            .collect()
    }

    pub fn has_shard(&self) -> bool {
        self.path("shard").join("manifest").exists()
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }
}

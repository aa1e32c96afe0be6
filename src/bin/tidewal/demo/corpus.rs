//! Real text to load: the sources and documents of the crates in cargo's registry cache, or any
//! folder, cut into pieces.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{ArrayRef, Int32Array, Int64Array, RecordBatch, StringArray};
use arrow_schema::{DataType, Field, Schema, SchemaRef};

use crate::{Result, complaint};

/// Lines a piece holds at most.
const PIECE_LINES: usize = 40;
/// Files above this are data, not text that people wrote.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// One piece of a file.
#[derive(Debug)]
pub(super) struct Piece {
    pub(super) path: String,
    pub(super) package: String,
    pub(super) language: &'static str,
    /// The number of its first line, from 1.
    pub(super) line: i32,
    pub(super) text: String,
}

pub(super) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("path", DataType::Utf8, false),
        Field::new("line", DataType::Int32, false),
        Field::new("crate", DataType::Utf8, true),
        Field::new("language", DataType::Utf8, true),
        Field::new("size", DataType::Int64, true),
        Field::new("text", DataType::Utf8, true),
    ]))
}

pub(super) fn batch(pieces: &[Piece]) -> Result<RecordBatch> {
    let text = |of: fn(&Piece) -> &str| Arc::new(StringArray::from_iter_values(pieces.iter().map(of)));
    let columns: Vec<ArrayRef> = vec![
        text(|piece| &piece.path),
        Arc::new(Int32Array::from_iter_values(pieces.iter().map(|piece| piece.line))),
        text(|piece| &piece.package),
        text(|piece| piece.language),
        Arc::new(Int64Array::from_iter_values(pieces.iter().map(|piece| piece.text.len() as i64))),
        text(|piece| &piece.text),
    ];
    Ok(RecordBatch::try_new(schema(), columns)?)
}

/// Where cargo keeps the sources of the crates this machine has built.
fn registry_sources() -> Option<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cargo")))?;
    let sources = home.join("registry").join("src");
    // Below it is one folder a registry, nearly always a single one.
    let mut registries = fs::read_dir(&sources).ok()?.flatten().map(|entry| entry.path());
    match (registries.next(), registries.next()) {
        (Some(only), None) => Some(only),
        (first, _) => first.map(|_| sources),
    }
}

/// The pieces of a folder, in the order of their paths.
#[derive(Debug)]
pub(super) struct Corpus {
    pub(super) root: PathBuf,
    folders: Vec<PathBuf>,
    files: VecDeque<PathBuf>,
    pieces: VecDeque<Piece>,
    /// Files passed over: too large, or not text.
    pub(super) skipped: u64,
    pub(super) read: u64,
}

impl Corpus {
    pub(super) fn of(folder: Option<&Path>) -> Result<Self> {
        let root = match folder {
            Some(folder) if folder.is_dir() => folder.to_owned(),
            Some(folder) => return Err(complaint(format!("`{}` is not a folder", folder.display()))),
            None => registry_sources().ok_or_else(|| {
                complaint("cargo's registry cache was not found here; name a folder of text with --dir DIR")
            })?,
        };
        let folders = vec![root.clone()];
        Ok(Corpus { root, folders, files: VecDeque::new(), pieces: VecDeque::new(), skipped: 0, read: 0 })
    }

    /// Up to `rows` further pieces; fewer only at the end.
    pub(super) fn take(&mut self, rows: usize) -> Vec<Piece> {
        let mut taken = Vec::with_capacity(rows);
        while taken.len() < rows {
            match self.pieces.pop_front() {
                Some(piece) => taken.push(piece),
                None if self.read_more() => {}
                None => break,
            }
        }
        taken
    }

    /// Reads the next file, or looks into the next folder. `false` at the end.
    fn read_more(&mut self) -> bool {
        if let Some(file) = self.files.pop_front() {
            self.cut(&file);
            return true;
        }
        let Some(folder) = self.folders.pop() else { return false };
        let mut entries: Vec<_> = fs::read_dir(folder).into_iter().flatten().flatten().collect();
        entries.sort_by_key(fs::DirEntry::file_name);
        let mut folders = Vec::new();
        for entry in entries {
            // A link could lead around in a circle.
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) if kind.is_file() && language(&entry.path()).is_some() => self.files.push_back(entry.path()),
                _ => {}
            }
        }
        // The last is looked into first.
        self.folders.extend(folders.into_iter().rev());
        true
    }

    fn cut(&mut self, file: &Path) {
        let small = fs::metadata(file).is_ok_and(|file| file.len() <= FILE_BYTES_MAX);
        let text = small.then(|| fs::read_to_string(file).ok()).flatten();
        let (Some(text), Some(language)) = (text, language(file)) else {
            self.skipped += 1;
            return;
        };
        self.read += 1;
        let shown = file.strip_prefix(&self.root).unwrap_or(file);
        let path = shown.to_string_lossy().into_owned();
        let package = package_of(shown);
        let lines: Vec<&str> = text.lines().collect();
        for (at, lines) in lines.chunks(PIECE_LINES).enumerate() {
            let line = i32::try_from(at * PIECE_LINES + 1).unwrap_or(i32::MAX);
            let text = lines.join("\n");
            self.pieces.push_back(Piece { path: path.clone(), package: package.clone(), language, line, text });
        }
    }
}

/// The crate a file of the registry cache belongs to: the first folder.
fn package_of(path: &Path) -> String {
    let mut parts = path.iter().map(|part| part.to_string_lossy());
    let first = parts.next().filter(|_| parts.next().is_some());
    first.unwrap_or_default().into_owned()
}

fn language(file: &Path) -> Option<&'static str> {
    let name = match file.extension()?.to_str()? {
        "rs" => "rust",
        "md" | "markdown" => "markdown",
        "toml" => "toml",
        "c" | "h" => "c",
        "cc" | "cpp" | "hpp" => "c++",
        "py" => "python",
        "sh" => "shell",
        "js" | "ts" => "javascript",
        "yml" | "yaml" => "yaml",
        "txt" => "text",
        _ => return None,
    };
    Some(name)
}

//! What the tree must look like, counted: sizes of files and functions, calls that wait for the
//! wall clock, tests that are switched off, names of tests.
//!
//! Each rule is a function of a file's text, and is tried on an offence first: a rule that
//! cannot fail proves nothing.

use std::fs;
use std::path::{Path, PathBuf};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;

/// Functions that may be longer, as `file: function`, each with its reason.
const LONG_FUNCTIONS: &[(&str, &str)] = &[(
    "src/actors/topology.rs: start_shard",
    "wires all addresses of a shard in one place, last stage first, so that the order can be read",
)];

/// The one file that may wait for the wall clock: the machine's implementation of the clock.
const CLOCK: &str = "src/components.rs";

/// The letters of ids a test may be named by: promises, invariants, and bugs others had (B).
const ID_LETTERS: &str = "bcefghklnopqrsvwxz";

/// A source file: its path from the root of the crate, and its text with the contents of comments,
/// strings and characters blanked, so that braces and words in it are code.
struct Source {
    path: String,
    code: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        Source { path: path.to_owned(), code: blank(text) }
    }

    fn line_of(&self, offset: usize) -> usize {
        self.code[..offset].matches('\n').count() + 1
    }
}

/// Every `.rs` file below a folder of the crate, in a fixed order.
fn sources(folder: &str) -> Vec<Source> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    collect(&root.join(folder), &mut paths);
    paths.sort();
    let read = |path: &PathBuf| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().replace('\\', "/");
        Source::new(&name, &text)
    };
    paths.iter().map(read).collect()
}

// ---- reading Rust, as far as counting needs it

/// Replaces what is inside comments, strings and characters by spaces, and keeps every newline.
fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut code = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let (from, to, next) = match skipped(&bytes[at..], at > 0 && is_word(bytes[at - 1])) {
            Some((head, body, tail)) => (at + head, at + head + body, at + head + body + tail),
            None => (at, at, at + 1),
        };
        for byte in &mut code[from..to.min(bytes.len())] {
            if *byte != b'\n' {
                *byte = b' ';
            }
        }
        at = next;
    }
    String::from_utf8_lossy(&code).into_owned()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The lengths of opening, contents and closing of what begins here and is no code.
fn skipped(rest: &[u8], in_word: bool) -> Option<(usize, usize, usize)> {
    let until = |from: usize, end: &[u8]| {
        rest[from..].windows(end.len()).position(|window| window == end).unwrap_or(rest.len() - from)
    };
    if rest.starts_with(b"//") {
        return Some((0, until(0, b"\n"), 0));
    }
    if rest.starts_with(b"/*") {
        return Some((0, block_comment(rest), 0));
    }
    if !in_word && (rest[0] == b'r' || rest.starts_with(b"br")) {
        let prefix = usize::from(rest[0] == b'b') + 1;
        let hashes = rest[prefix..].iter().take_while(|byte| **byte == b'#').count();
        if rest.get(prefix + hashes) == Some(&b'"') {
            let open = prefix + hashes + 1;
            let close = [b"\"".as_slice(), &b"#".repeat(hashes)].concat();
            return Some((open, until(open, &close), close.len()));
        }
    }
    match rest[0] {
        b'"' => Some((1, quoted(&rest[1..], b'"'), 1)),
        // A lifetime is a quote that no quote closes: 'a' and '\n' are characters, 'a is not.
        b'\'' if rest.get(1) == Some(&b'\\') => Some((1, quoted(&rest[1..], b'\''), 1)),
        b'\'' => {
            let width = std::str::from_utf8(&rest[1..rest.len().min(5)])
                .unwrap_or_else(|error| std::str::from_utf8(&rest[1..1 + error.valid_up_to()]).unwrap_or(""))
                .chars()
                .next()?
                .len_utf8();
            (rest.get(1 + width) == Some(&b'\'')).then_some((1, width, 1))
        }
        _ => None,
    }
}

/// The length of a block comment, which may hold others.
fn block_comment(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match &rest[at..rest.len().min(at + 2)] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// The bytes up to the quote that ends a literal.
fn quoted(rest: &[u8], end: u8) -> usize {
    let mut at = 0;
    while at < rest.len() && rest[at] != end {
        at += if rest[at] == b'\\' { 2 } else { 1 };
    }
    at.min(rest.len())
}

/// Where each `fn NAME` begins, and the name. Types of functions (`fn(..)`) have no name.
fn functions(code: &str) -> Vec<(usize, &str)> {
    let bytes = code.as_bytes();
    let named = |(at, _): (usize, &str)| {
        let stands_alone = at == 0 || !is_word(bytes[at - 1]);
        let name = &code[at + 3..];
        let length = name.bytes().take_while(|byte| is_word(*byte)).count();
        (stands_alone && length > 0).then(|| (at, &name[..length]))
    };
    code.match_indices("fn ").filter_map(named).collect()
}

/// The offset behind the body of the function that begins here; `None` where it has no body.
fn end_of_function(code: &str, from: usize) -> Option<usize> {
    let (mut nested, mut braces) = (0i32, 0i32);
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => nested += 1,
            b')' | b']' => nested -= 1,
            b';' if nested == 0 && braces == 0 => return None,
            b'{' => braces += 1,
            b'}' => {
                braces -= 1;
                if braces == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// The names of functions that an attribute such as `#[test]` or `#[tokio::test(..)]` stands above.
fn test_functions(code: &str) -> Vec<(usize, &str)> {
    let is_test = |attribute: &str| {
        let path = attribute.split(['(', ']', '=']).next().unwrap_or("").trim();
        path == "test" || path.ends_with("::test")
    };
    let functions = functions(code);
    let below = |at: usize| functions.iter().find(|(function, _)| *function > at).copied();
    code.match_indices("#[").filter(|(at, _)| is_test(&code[at + 2..])).filter_map(|(at, _)| below(at)).collect()
}

// ---- the rules: each gives the offences in one file

fn long_file(source: &Source) -> Vec<String> {
    let lines = source.code.lines().count();
    let offence = || format!("{}: {lines} lines, at most {FILE_LINES_MAX}", source.path);
    (lines > FILE_LINES_MAX).then(offence).into_iter().collect()
}

fn long_functions(source: &Source) -> Vec<String> {
    let too_long = |(from, name): (usize, &str)| {
        let lines = source.line_of(end_of_function(&source.code, from)? - 1) - source.line_of(from) + 1;
        let id = format!("{}: {name}", source.path);
        let excepted = LONG_FUNCTIONS.iter().any(|(function, _)| *function == id);
        (lines > FUNCTION_LINES_MAX && !excepted).then(|| format!("{id}: {lines} lines, at most {FUNCTION_LINES_MAX}"))
    };
    functions(&source.code).into_iter().filter_map(too_long).collect()
}

fn words(source: &Source, forbidden: &[&str], instead: &str) -> Vec<String> {
    let found = |word: &&str| -> Vec<String> {
        let offence = |(at, _)| format!("{}:{}: `{word}`; {instead}", source.path, source.line_of(at));
        source.code.match_indices(*word).map(offence).collect()
    };
    forbidden.iter().flat_map(found).collect()
}

fn sleeps(source: &Source) -> Vec<String> {
    if source.path == CLOCK {
        return Vec::new();
    }
    words(source, &["thread::sleep", "time::sleep"], "wait on a fact, or on the injected clock")
}

fn unfinished(source: &Source) -> Vec<String> {
    words(source, &["todo!", "unimplemented!"], "finish it, or return an error")
}

fn ignored_without_a_reason(source: &Source) -> Vec<String> {
    words(source, &["#[ignore]"], "say why: `#[ignore = \"..\"]`")
}

fn unclear_names(source: &Source) -> Vec<String> {
    let unclear = |(at, name): (usize, &str)| {
        let offence = || {
            format!(
                "{}:{}: `{name}`; begin with the id it proves, or say it in four words or more",
                source.path,
                source.line_of(at)
            )
        };
        (!is_clear(name)).then(offence)
    };
    test_functions(&source.code).into_iter().filter_map(unclear).collect()
}

fn is_clear(name: &str) -> bool {
    let words: Vec<&str> = name.split('_').filter(|word| !word.is_empty()).collect();
    let by_id = words.first().is_some_and(|first| {
        let (letter, digits) = first.split_at(1);
        ID_LETTERS.contains(letter) && !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit())
    });
    words.len() >= if by_id { 2 } else { 4 }
}

// ---- the tree

fn assert_none(folders: &[&str], rule: impl Fn(&Source) -> Vec<String>) {
    let sources: Vec<Source> = folders.iter().flat_map(|folder| sources(folder)).collect();
    assert!(!sources.is_empty(), "nothing was read below {folders:?}");
    let offences: Vec<String> = sources.iter().flat_map(rule).collect();
    assert!(offences.is_empty(), "\n{}", offences.join("\n"));
}

#[test]
fn no_source_file_is_longer_than_six_hundred_lines() {
    assert_none(&["src"], long_file);
}

#[test]
fn no_function_is_longer_than_seventy_lines() {
    assert_none(&["src"], long_functions);
}

#[test]
fn every_exception_for_a_long_function_is_needed_and_reasoned() {
    let sources = sources("src");
    for (function, reason) in LONG_FUNCTIONS {
        assert!(reason.split(' ').count() >= 4, "{function}: {reason}");
        let is_long = |source: &Source| {
            functions(&source.code).iter().any(|(from, name)| {
                *function == format!("{}: {name}", source.path)
                    && end_of_function(&source.code, *from)
                        .is_some_and(|end| source.line_of(end - 1) - source.line_of(*from) >= FUNCTION_LINES_MAX)
            })
        };
        assert!(sources.iter().any(is_long), "{function} is gone or short: remove its exception");
    }
}

#[test]
fn nothing_but_the_clock_waits_for_the_wall_clock() {
    assert_none(&["src", "tests", "benches"], sleeps);
}

#[test]
fn nothing_in_the_source_is_left_unfinished() {
    assert_none(&["src"], unfinished);
}

#[test]
fn no_test_is_switched_off_without_a_reason() {
    assert_none(&["src", "tests"], ignored_without_a_reason);
}

#[test]
fn every_test_is_named_by_what_it_proves() {
    assert_none(&["src", "tests"], unclear_names);
    let named: usize = sources("tests").iter().map(|source| test_functions(&source.code).len()).sum();
    assert!(named >= 10, "only {named} tests were recognised");
}

// ---- the rules, tried

#[test]
fn what_is_inside_comments_and_literals_is_not_code() {
    let text = concat!(
        "let a = \"{ \\\" {\"; // {{\n",
        "/* { /* { */ { */ let b = '{'; let c = '\\''; let d: &'a str = r#\"{ \" {\"#;\n",
        "let e = b\"{\"; let f = br\"{\"; let r = '\u{e9}'; fn g<'a>() { '}' }\n",
    );
    let code = blank(text);
    assert_eq!(code.matches('{').count(), 1, "{code}");
    assert_eq!(code.matches('}').count(), 1, "{code}");
    assert_eq!(code.lines().count(), text.lines().count());
    assert!(code.contains("&'a str"), "{code}");
}

#[test]
fn the_rule_on_length_counts_the_lines_of_a_body() {
    let body = |lines: usize| {
        format!("fn long(a: [u8; 3]) {{\n{}}}\nfn other() {{}}\n", "if x { y(\"}\") }\n".repeat(lines - 2))
    };
    assert_eq!(long_functions(&Source::new("a.rs", &body(70))), Vec::<String>::new());
    let found = long_functions(&Source::new("a.rs", &body(71)));
    assert_eq!(found, ["a.rs: long: 71 lines, at most 70"]);
    assert!(long_file(&Source::new("a.rs", &"\n".repeat(600))).is_empty());
    assert_eq!(long_file(&Source::new("a.rs", &"\n".repeat(601))).len(), 1);
    let declared = "trait A { fn a(); fn b(); }\ntype F = fn (u8);\n";
    assert_eq!(functions(declared).len(), 2);
    assert!(long_functions(&Source::new("a.rs", declared)).is_empty());
}

#[test]
fn the_rules_on_words_find_them_in_code_alone() {
    let source = |text| Source::new("a.rs", text);
    assert_eq!(sleeps(&source("a();\nstd::thread::sleep(b);")).len(), 1);
    assert!(sleeps(&source("// thread::sleep\n\"tokio::time::sleep\"")).is_empty());
    assert!(sleeps(&Source::new(CLOCK, "tokio::time::sleep(a)")).is_empty());
    assert_eq!(unfinished(&source("todo!(); unimplemented!()")).len(), 2);
    assert_eq!(ignored_without_a_reason(&source("#[ignore]\nfn a() {}")).len(), 1);
    assert!(ignored_without_a_reason(&source("#[ignore = \"slow\"]\nfn a() {}")).is_empty());
}

#[test]
fn the_rule_on_names_knows_tests_from_functions() {
    let text = "#[test]\nfn basic() {}\nfn helper() {}\n#[tokio::test(flavor = \"a\")]\n#[ignore = \"b\"]\nasync fn works() {}";
    let found = unclear_names(&Source::new("a.rs", text));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].contains("`basic`") && found[1].contains("`works`"), "{found:?}");
    for clear in ["o5_a_doomed_open", "b02_rotation", "a_panic_is_reported"] {
        assert!(is_clear(clear), "{clear}");
    }
    for unclear in ["o5", "put_then_get", "x_5_a", "d1_open", ""] {
        assert!(!is_clear(unclear), "{unclear}");
    }
}

/// The names of tests in a text: what stands between backticks and is a sentence of words.
fn tests_named_in(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|word| word.matches('_').count() >= 5 && word.bytes().all(is_word)).collect()
}

#[test]
fn every_test_that_the_readme_of_the_tests_names_exists() {
    assert_eq!(tests_named_in("`a_b_c_d_e_f`, `wal_entry_bytes_max` and `a b_c_d_e_f_g` x_x_x_x_x_x"), ["a_b_c_d_e_f"]);
    let code: Vec<Source> = ["src", "tests"].into_iter().flat_map(sources).collect();
    let exists = |name: &&str| code.iter().any(|source| source.code.contains(&format!("fn {name}(")));
    let named = tests_named_in(include_str!("README.md"));
    assert!(named.len() > 50, "{} tests are named", named.len());
    let missing: Vec<_> = named.into_iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "tests/README.md names tests that are not there: {missing:#?}");
}

//! Text cut into records, each with the line it begins in.
//!
//! The decoders of the arrow project do not say in which line they failed, and count records
//! where a quoted newline makes them differ from lines. So records are found here first.

use std::io::{self, BufRead, Cursor, Read};

use super::trouble::Trouble;

/// A record above this is taken for a mistake (an unclosed quote, no newlines at all), so that
/// it does not fill the memory.
const RECORD_BYTES_MAX: usize = 64 << 20;
/// A chunk is decoded and put as a whole. Above this its rows are wide, and fewer will do.
const CHUNK_BYTES_MAX: usize = 8 << 20;

/// What ends a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grammar {
    /// A newline.
    Lines,
    /// A newline outside quotes.
    Csv { delimiter: u8 },
}

/// Consecutive records.
#[derive(Debug, Default)]
pub(super) struct Chunk {
    pub(super) bytes: Vec<u8>,
    /// Where each record ends in `bytes`.
    ends: Vec<usize>,
    /// The line each record begins in, from 1.
    lines: Vec<u64>,
}

impl Chunk {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The bytes of the first `records` records.
    pub(super) fn prefix(&self, records: usize) -> &[u8] {
        let end = records.checked_sub(1).and_then(|last| self.ends.get(last)).copied().unwrap_or_default();
        self.bytes.get(..end).unwrap_or_default()
    }

    pub(super) fn record(&self, at: usize) -> &[u8] {
        self.prefix(at + 1).get(self.prefix(at).len()..).unwrap_or_default()
    }

    pub(super) fn line(&self, at: usize) -> u64 {
        self.lines.get(at).copied().unwrap_or_default()
    }

    /// The first `records` records, and the rest.
    pub(super) fn split(mut self, records: usize) -> (Chunk, Chunk) {
        let at = self.prefix(records).len();
        let rest = Chunk {
            bytes: self.bytes.split_off(at),
            ends: self.ends.split_off(records.min(self.ends.len())).into_iter().map(|end| end - at).collect(),
            lines: self.lines.split_off(records.min(self.lines.len())),
        };
        (self, rest)
    }

    fn push(&mut self, line: u64) {
        self.ends.push(self.bytes.len());
        self.lines.push(line);
    }
}

/// Reads records.
pub(super) struct Records {
    input: Box<dyn BufRead + Send>,
    grammar: Grammar,
    /// The line the next byte is in.
    line: u64,
    /// The last byte was a carriage return, which counts as a line of its own unless a newline follows.
    after_return: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    FieldStart,
    Plain,
    Quoted,
    /// After a quote within quotes: their end, or the first half of a doubled quote.
    QuoteInQuotes,
}

impl Records {
    /// Looks at the first bytes: a byte order mark is dropped.
    pub(super) fn new(mut input: Box<dyn BufRead + Send>, grammar: Grammar) -> Result<Self, Trouble> {
        let mut head = Vec::new();
        input.by_ref().take(3).read_to_end(&mut head).map_err(unreadable)?;
        if head.starts_with(&[0xff, 0xfe]) || head.starts_with(&[0xfe, 0xff]) {
            return Err(Trouble::whole(
                "the text is UTF-16",
                "convert it: iconv -f UTF-16 -t UTF-8 FILE | tidewal ingest ... -",
            ));
        }
        if head.starts_with(&[0x1f, 0x8b]) {
            return Err(Trouble::whole(
                "the file is compressed with gzip",
                "zcat FILE | tidewal ingest --format F ... -",
            ));
        }
        if head.starts_with(b"\xef\xbb\xbf") {
            head.clear();
        }
        let input = Box::new(Cursor::new(head).chain(input));
        Ok(Records { input, grammar, line: 1, after_return: false })
    }

    /// Up to `records` records. The trouble, if any, comes after the records that were read before it.
    pub(super) fn chunk(&mut self, records: usize) -> (Chunk, Option<Trouble>) {
        let mut chunk = Chunk::default();
        while chunk.len() < records && chunk.bytes.len() < CHUNK_BYTES_MAX {
            let start = chunk.bytes.len();
            match self.next_into(&mut chunk.bytes) {
                Ok(Some(line)) => chunk.push(line),
                Ok(None) => break,
                Err(trouble) => {
                    chunk.bytes.truncate(start);
                    return (chunk, Some(trouble));
                }
            }
        }
        (chunk, None)
    }

    /// Appends the next record that is not blank, with a newline at its end, and says in which
    /// line it began.
    fn next_into(&mut self, bytes: &mut Vec<u8>) -> Result<Option<u64>, Trouble> {
        let start = bytes.len();
        let mut state = State::FieldStart;
        let mut line = self.line;
        loop {
            let available = match self.input.fill_buf() {
                Ok(available) => available,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(unreadable(error)),
            };
            if available.is_empty() {
                return self.last_record(bytes, start, state, line);
            }
            let (used, ended) = match self.grammar {
                Grammar::Lines => end_of_line(available),
                Grammar::Csv { delimiter } => end_of_csv_record(available, delimiter, &mut state),
            };
            let piece = available.get(..used).unwrap_or_default();
            self.line += count_lines(piece, &mut self.after_return);
            bytes.extend_from_slice(piece);
            self.input.consume(used);
            let length = bytes.len() - start;
            if length > RECORD_BYTES_MAX {
                let what =
                    if state == State::Quoted { "a quote opened here is not closed" } else { "a record does not end" };
                return Err(Trouble::at(
                    format!("line {line}"),
                    format!("{what} within {} MiB", RECORD_BYTES_MAX >> 20),
                    "check the quotes and line ends, or the --format",
                ));
            }
            if ended && !is_blank(bytes.get(start..).unwrap_or_default()) {
                if bytes.last() == Some(&b'\r') {
                    bytes.push(b'\n');
                }
                return Ok(Some(line));
            }
            if ended {
                bytes.truncate(start);
                state = State::FieldStart;
                line = self.line;
            }
        }
    }

    fn last_record(&self, bytes: &mut Vec<u8>, start: usize, state: State, line: u64) -> Result<Option<u64>, Trouble> {
        if state == State::Quoted {
            return Err(Trouble::at(
                format!("line {line}"),
                "a quote opened in this record is not closed before the end of the file",
                "close it, or check whether the file was cut short",
            ));
        }
        if is_blank(bytes.get(start..).unwrap_or_default()) {
            bytes.truncate(start);
            return Ok(None);
        }
        bytes.push(b'\n');
        Ok(Some(line))
    }
}

fn unreadable(error: io::Error) -> Trouble {
    Trouble::whole(format!("reading failed: {error}"), "")
}

fn is_blank(record: &[u8]) -> bool {
    record.iter().all(u8::is_ascii_whitespace)
}

fn count_lines(piece: &[u8], after_return: &mut bool) -> u64 {
    let mut lines = 0;
    for byte in piece {
        match byte {
            b'\n' => lines += u64::from(!*after_return),
            b'\r' => lines += 1,
            _ => {}
        }
        *after_return = *byte == b'\r';
    }
    lines
}

fn end_of_line(available: &[u8]) -> (usize, bool) {
    match available.iter().position(|byte| *byte == b'\n') {
        Some(at) => (at + 1, true),
        None => (available.len(), false),
    }
}

/// Quotes count where a field begins, as they do for the decoder; elsewhere they are text.
fn end_of_csv_record(available: &[u8], delimiter: u8, state: &mut State) -> (usize, bool) {
    for (at, byte) in available.iter().enumerate() {
        *state = match (*state, *byte) {
            (State::Quoted, b'"') => State::QuoteInQuotes,
            (State::Quoted, _) => State::Quoted,
            (_, b'\n' | b'\r') => return (at + 1, true),
            (State::FieldStart, b'"') | (State::QuoteInQuotes, b'"') => State::Quoted,
            (_, byte) if byte == delimiter => State::FieldStart,
            _ => State::Plain,
        };
    }
    (available.len(), false)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], grammar: Grammar) -> (Vec<(u64, String)>, Option<Trouble>) {
        // One byte at a time: a record may be cut anywhere by the reads.
        let input = io::BufReader::with_capacity(1, Cursor::new(text.to_vec()));
        let mut records = Records::new(Box::new(input), grammar).expect("readable");
        let (chunk, trouble) = records.chunk(100);
        let found = (0..chunk.len()).map(|at| (chunk.line(at), String::from_utf8_lossy(chunk.record(at)).into_owned()));
        (found.collect(), trouble)
    }

    fn csv(text: &str) -> Vec<(u64, String)> {
        let (found, trouble) = read(text.as_bytes(), Grammar::Csv { delimiter: b',' });
        assert_eq!(trouble, None);
        found
    }

    #[test]
    fn lines_are_counted_with_blank_ones_and_without_a_mark() {
        let (found, trouble) = read(b"\xef\xbb\xbf{}\r\n\n  \n{\"a\":1}", Grammar::Lines);
        assert_eq!(trouble, None);
        assert_eq!(found, [(1, "{}\r\n".to_owned()), (4, "{\"a\":1}\n".to_owned())]);
    }

    #[test]
    fn a_quoted_newline_does_not_end_a_record_and_counts_as_a_line() {
        let found = csv("a,b\n1,\"x\n\"\"y\"\n2,z\n");
        assert_eq!(found, [(1, "a,b\n".into()), (2, "1,\"x\n\"\"y\"\n".into()), (4, "2,z\n".to_owned())]);
    }

    #[test]
    fn a_quote_inside_a_plain_field_is_text() {
        assert_eq!(csv("5\" pipe,1\n6,2\n").len(), 2);
    }

    #[test]
    fn carriage_returns_and_both_end_records_and_are_one_line_each() {
        assert_eq!(csv("a\rb\r\nc\n").iter().map(|(line, _)| *line).collect::<Vec<_>>(), [1, 2, 3]);
    }

    #[test]
    fn an_unclosed_quote_is_said_with_its_line_after_the_records_before_it() {
        let (found, trouble) = read(b"a\n1\n\"x\n2\n", Grammar::Csv { delimiter: b',' });
        assert_eq!(found.len(), 2);
        assert_eq!(trouble.expect("unclosed").place, "line 3");
    }

    #[test]
    fn utf_16_is_named() {
        let input = Box::new(Cursor::new(vec![0xff, 0xfe, b'{', 0]));
        let trouble = Records::new(input, Grammar::Lines).err().expect("refused");
        assert!(trouble.reason.contains("UTF-16"), "{trouble}");
    }
}

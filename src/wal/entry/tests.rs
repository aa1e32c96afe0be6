use arrow_array::types::Int8Type;
use arrow_array::{Array, ArrayRef, DictionaryArray, Int64Array, StringArray, StringViewArray};
use arrow_ipc::reader::StreamReader;
use arrow_schema::{DataType, Field};

use super::*;
use crate::wal::testing::{ids, put, spec};

fn header(puts: &[u64]) -> EntryHeader {
    EntryHeader {
        shard: "a shard, \"quoted\"".into(),
        epoch: Epoch::new(3),
        nonce: Nonce::new(0xfeed),
        position: EntryPosition::new(17),
        first: Seq::new(100),
        puts: puts.to_vec(),
        previous_crc: 0x0a0b_0c0d,
        torn_before: false,
    }
}

fn batches(sizes: &[u64]) -> Vec<RecordBatch> {
    let mut next = 100;
    let put = |rows: &u64| {
        next += rows;
        put(next - rows, *rows).batches.to_vec()
    };
    sizes.iter().flat_map(put).collect()
}

fn small_entry() -> EncodedEntry {
    encode(&header(&[1, 2]), spec().storage_schema(), &batches(&[1, 2])).expect("it encodes")
}

#[test]
fn w1_an_entry_comes_back_as_it_was() {
    let sizes = [3, 1, 1, 1, 8];
    let encoded = encode(&header(&sizes), spec().storage_schema(), &batches(&sizes)).expect("it encodes");
    let entry = decode(&encoded.bytes).expect("it decodes");
    assert_eq!(entry.header, header(&sizes));
    assert_eq!(ids(&entry.batches), (100..114).collect::<Vec<i64>>());
    assert_eq!(entry.crc, encoded.crc);
}

#[test]
fn o7_a_sentinel_holds_no_row_and_says_what_it_vouches_for() {
    let sentinel = EntryHeader { torn_before: true, first: Seq::ZERO, ..header(&[]) };
    let encoded = encode(&sentinel, spec().storage_schema(), &[]).expect("it encodes");
    let entry = decode(&encoded.bytes).expect("it decodes");
    assert!(entry.header.is_sentinel() && entry.batches.is_empty());
    assert_eq!(entry.header, sentinel);
}

#[test]
fn w1_any_arrow_reader_opens_an_entry_and_finds_its_header() {
    let encoded = small_entry();
    let reader = StreamReader::try_new(&encoded.bytes[..], None).expect("a stream");
    let metadata = reader.schema().metadata().clone();
    assert_eq!(metadata["tidewal.position"], "17");
    assert_eq!(metadata["tidewal.puts"], "1,2");
    assert_eq!(metadata["tidewal.rows"], "3");
    let rows: usize = reader.map(|batch| batch.expect("a batch").num_rows()).sum();
    assert_eq!(rows, 3);
}

#[test]
fn w1_two_entries_that_differ_have_chain_checksums_that_differ() {
    // The checksum over data and its own checksum is one constant; chaining that proves nothing.
    let other = EntryHeader { position: EntryPosition::new(18), ..header(&[1, 2]) };
    let other = encode(&other, spec().storage_schema(), &batches(&[1, 2])).expect("it encodes");
    assert_ne!(small_entry().crc, other.crc);
}

#[test]
fn small_puts_share_messages_and_large_ones_are_not_joined() {
    let ones = vec![1; 9000];
    let entry = encode(&header(&ones), spec().storage_schema(), &batches(&ones)).expect("it encodes");
    let entry = decode(&entry.bytes).expect("it decodes");
    let rows: Vec<_> = entry.batches.iter().map(RecordBatch::num_rows).collect();
    assert_eq!(rows, [8192, 808]);
    assert_eq!(entry.header.puts, ones);
    let large = batches(&[100_000, 100_000]);
    assert_eq!(message_groups(&large).len(), 2);
}

#[test]
fn runs_of_equal_puts_are_written_once() {
    assert_eq!(puts_to_text(&[1, 1, 1, 20, 4, 4]), "1*3,20,4*2");
    assert_eq!(puts_from_text("1*3,20,4*2", 31), Some(vec![1, 1, 1, 20, 4, 4]));
    assert_eq!(puts_from_text("", 0), Some(vec![]));
    for (text, rows) in
        [("1*3", 4), ("5", 4), ("0*9", 0), ("0", 0), ("x", 1), ("1*99999999999", 5), ("", 1), ("1,,1", 2)]
    {
        assert_eq!(puts_from_text(text, rows), None, "{text} {rows}");
    }
}

#[test]
fn w8_an_entry_cut_at_any_byte_is_torn() {
    let whole = small_entry().bytes;
    for length in 0..whole.len() {
        let damage = decode(&whole.slice(..length)).expect_err("it is cut");
        assert!(damage.is_torn(), "cut to {length} of {}: {damage}", whole.len());
    }
}

#[test]
fn w8_an_entry_whose_end_was_not_written_is_torn() {
    let whole = small_entry().bytes;
    for written in 0..whole.len() - TRAILER_BYTES {
        let mut bytes = whole[..written].to_vec();
        bytes.resize(whole.len(), 0);
        assert!(decode(&bytes.into()).expect_err("it is torn").is_torn(), "{written} bytes, then zeros");
    }
}

#[test]
fn w8_a_flipped_bit_anywhere_is_found_and_is_never_taken_for_a_torn_end() {
    let whole = small_entry().bytes;
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 1 << bit;
            let damage = decode(&bytes.into()).expect_err("a bit is flipped");
            assert!(matches!(damage, Damage::Corrupt { .. }), "byte {at} bit {bit}: {damage}");
        }
    }
}

#[test]
fn w8_bytes_behind_the_trailer_are_found() {
    let mut bytes = small_entry().bytes.to_vec();
    bytes.push(0);
    assert!(decode(&bytes.into()).is_err());
}

/// Replaces the bytes in the stream and makes the checksum fit again.
fn resealed(from: &[u8], to: &[u8]) -> Bytes {
    let mut bytes = small_entry().bytes.to_vec();
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the text is there");
    bytes[at..at + to.len()].copy_from_slice(to);
    let covered = bytes.len() - CRC_BYTES;
    let crc = crc32c::crc32c(&bytes[..covered]);
    bytes[covered..].copy_from_slice(&crc.to_le_bytes());
    bytes.into()
}

#[test]
fn an_unknown_format_version_is_refused_by_name() {
    // The value follows its key and a length in the metadata.
    let whole = small_entry().bytes;
    let key = b"tidewal.format_version";
    let value_of = |bytes: &[u8]| -> Option<String> {
        let reader = StreamReader::try_new(bytes, None).ok()?;
        reader.schema().metadata().get("tidewal.format_version").cloned()
    };
    let version = (0..whole.len()).filter(|at| whole[*at] == b'1').find(|at| {
        let mut bytes = whole.to_vec();
        bytes[*at] = b'7';
        let found = catch_unwind(AssertUnwindSafe(|| value_of(&bytes))).ok().flatten();
        found.as_deref() == Some("7")
    });
    assert!(whole.windows(key.len()).any(|window| window == key));
    let at = version.expect("the version is one digit somewhere");
    let mut bytes = whole.to_vec();
    bytes[at] = b'7';
    let covered = bytes.len() - CRC_BYTES;
    let crc = crc32c::crc32c(&bytes[..covered]);
    bytes[covered..].copy_from_slice(&crc.to_le_bytes());
    let damage = decode(&bytes.into()).expect_err("format 7 is unknown");
    assert_eq!(damage, Damage::Unsupported { version: "7".to_owned() });
    let text = damage.into_error(&Path::from("wal/x")).to_string();
    assert!(text.contains("wal/x") && text.contains("format version 7") && text.contains("format version 1"), "{text}");
}

#[test]
fn w8_a_header_that_lies_under_a_good_checksum_is_corrupt_and_not_a_panic() {
    for (from, to) in [
        (&b"tidewal.puts"[..], &b"tidewal.nuts"[..]),
        (b"0000000000000000000000000000feed", b"zz00000000000000000000000000feed"),
        (b"0a0b0c0d", b"0a0b0c0z"),
        (b"1,2", b"1,9"),
    ] {
        let damage = decode(&resealed(from, to)).expect_err("the header lies");
        assert!(matches!(damage, Damage::Corrupt { .. }), "{damage}");
    }
}

#[test]
fn w8_every_flip_under_a_good_checksum_is_an_error_or_an_entry_and_never_a_panic() {
    let whole = small_entry().bytes;
    for at in 0..whole.len() - TRAILER_BYTES {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 0x01;
        let covered = bytes.len() - CRC_BYTES;
        let crc = crc32c::crc32c(&bytes[..covered]);
        bytes[covered..].copy_from_slice(&crc.to_le_bytes());
        // What matters is that it returns.
        let _ = decode(&bytes.into());
    }
}

fn round_trip(columns: Vec<Vec<ArrayRef>>, field: Field) {
    let schema: SchemaRef = Arc::new(Schema::new(vec![field]));
    let batches: Vec<_> = columns
        .into_iter()
        .map(|columns| RecordBatch::try_new(Arc::clone(&schema), columns).expect("the columns fit"))
        .collect();
    let puts: Vec<u64> = batches.iter().map(|batch| batch.num_rows() as u64).collect();
    let encoded = encode(&header(&puts), &schema, &batches).expect("it encodes");
    let entry = decode(&encoded.bytes).expect("it decodes");
    let text = |batches: &[RecordBatch]| -> Vec<String> {
        let column = |batch: &RecordBatch| arrow_cast::cast(batch.column(0), &DataType::Utf8).expect("it casts");
        let texts = batches.iter().flat_map(|batch| {
            let column = column(batch);
            let strings = column.as_any().downcast_ref::<StringArray>().expect("text").clone();
            (0..strings.len()).map(move |at| if strings.is_null(at) { "null".into() } else { strings.value(at).into() })
        });
        texts.collect::<Vec<String>>()
    };
    assert_eq!(text(&entry.batches), text(&batches));
}

#[test]
fn w1_dictionaries_come_back_also_where_two_do_not_fit_one_key_type() {
    let dictionary = |from: i64| -> ArrayRef {
        let values: Vec<String> = (from..from + 100).map(|at| format!("value {at}")).collect();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        Arc::new(values.into_iter().collect::<DictionaryArray<Int8Type>>())
    };
    let field = || Field::new("d", DataType::Dictionary(Box::new(DataType::Int8), Box::new(DataType::Utf8)), true);
    round_trip(vec![vec![dictionary(0)], vec![dictionary(0)]], field());
    round_trip(vec![vec![dictionary(0)], vec![dictionary(50)], vec![dictionary(200)]], field());
}

#[test]
fn w1_views_and_slices_come_back() {
    let views: ArrayRef = Arc::new(StringViewArray::from(vec![Some("a"), None, Some("longer than twelve bytes")]));
    round_trip(vec![vec![Arc::clone(&views)], vec![views.slice(1, 2)]], Field::new("v", DataType::Utf8View, true));
    let numbers: ArrayRef = Arc::new((0..20).map(|at| (at % 3 > 0).then_some(at)).collect::<Int64Array>());
    round_trip(vec![vec![numbers.slice(3, 9)], vec![numbers.slice(0, 1)]], Field::new("n", DataType::Int64, true));
}

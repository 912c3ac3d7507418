//! How is a header block read and written? (RFC 7541)
//!
//! Ours are written without a table and without the Huffman code, so that they are the same for all connections. Each
//! starts with the remark that no table is kept, which a peer that forbids one must hear (section 4.2).

use super::huffman::unpack;
pub(crate) use super::table::Memory;
use super::{Broken, COMPRESSION_ERROR, ENHANCE_YOUR_CALM};

/// The most that the headers of one block may come to, as RFC 9113 counts them (section 10.5.1).
const MOST_LIST: usize = 64 * 1024;
/// A dynamic table size update to nothing.
const NO_TABLE: u8 = 0x20;

/// Numbers of the static table, for names that are sent often.
pub(crate) const AUTHORITY: u8 = 1;
pub(crate) const PATH: u8 = 4;
pub(crate) const CONTENT_TYPE: u8 = 31;
pub(crate) const USER_AGENT: u8 = 58;
/// … and for whole headers: `:method: POST`, `:scheme: http`, `:scheme: https`, `:status: 200`.
pub(crate) const POST: u8 = 3;
pub(crate) const HTTP: u8 = 6;
pub(crate) const HTTPS: u8 = 7;
pub(crate) const STATUS_200: u8 = 8;

/// What is wrong with a block.
const CUT: Broken = Broken::new(COMPRESSION_ERROR, "a header block that is cut off");

/// Reads a block, header by header.
pub(crate) fn read(
    mut block: &[u8],
    memory: &mut Memory,
    mut each: impl FnMut(&[u8], &[u8]),
) -> Result<(), Broken> {
    let (mut name, mut value) = (Vec::new(), Vec::new());
    let (mut sum, mut headers) = (0, 0);
    while let Some(&first) = block.first() {
        let unknown = Broken::new(COMPRESSION_ERROR, "the number of a header that has none");
        if first & 0xe0 == NO_TABLE {
            if headers > 0 {
                return Err(Broken::new(
                    COMPRESSION_ERROR,
                    "a table size behind the first header of a block",
                ));
            }
            let size = number(&mut block, 5)?;
            memory
                .resize(size)
                .ok_or(Broken::new(COMPRESSION_ERROR, "a larger table of headers than is allowed"))?;
            continue;
        }
        name.clear();
        value.clear();
        let keep = first & 0xc0 == 0x40;
        let bits = match first {
            0x80.. => 7,
            0x40..0x80 => 6,
            _ => 4,
        };
        let known = number(&mut block, bits)?;
        if known > 0 {
            let (their_name, their_value) = memory.get(known).ok_or(unknown)?;
            name.extend_from_slice(their_name);
            if first & 0x80 != 0 {
                value.extend_from_slice(their_value);
            }
        } else if first & 0x80 != 0 {
            return Err(unknown);
        } else {
            string(&mut block, &mut name)?;
        }
        if first & 0x80 == 0 {
            string(&mut block, &mut value)?;
        }
        headers += 1;
        sum += name.len() + value.len() + 32;
        if sum > MOST_LIST {
            return Err(Broken::new(ENHANCE_YOUR_CALM, "headers of more than 64 KiB"));
        }
        if keep {
            memory.add(&name, &value);
        }
        each(&name, &value);
    }
    Ok(())
}

/// Reads an integer off the front, whose first byte has so many bits for it (section 5.1).
fn number(block: &mut &[u8], bits: u32) -> Result<usize, Broken> {
    let (&first, mut rest) = block.split_first().ok_or(CUT)?;
    let full = (1_u32 << bits) - 1;
    let mut n = u32::from(first) & full;
    if n == full {
        let mut shift = 0;
        loop {
            let (&byte, more) = rest.split_first().ok_or(CUT)?;
            rest = more;
            if shift > 21 {
                return Err(Broken::new(COMPRESSION_ERROR, "a number that is too large"));
            }
            n += u32::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
    }
    *block = rest;
    Ok(n as usize)
}

/// Reads a string off the front (section 5.2).
fn string(block: &mut &[u8], out: &mut Vec<u8>) -> Result<(), Broken> {
    let packed = *block.first().ok_or(CUT)? & 0x80 != 0;
    let length = number(block, 7)?;
    let (text, rest) = block.split_at_checked(length).ok_or(CUT)?;
    *block = rest;
    if packed {
        return unpack(text, out).ok_or(Broken::new(COMPRESSION_ERROR, "a badly packed header"));
    }
    out.extend_from_slice(text);
    Ok(())
}

/// Begins a block.
pub(crate) fn begin() -> Vec<u8> {
    vec![NO_TABLE]
}

/// Appends a whole header by its number.
pub(crate) fn put_known(block: &mut Vec<u8>, number: u8) {
    block.push(0x80 | number);
}

/// Appends a header whose name has a number.
pub(crate) fn put_value(block: &mut Vec<u8>, name: u8, value: &[u8]) {
    put_number(block, 0, 4, usize::from(name));
    put_string(block, value);
}

/// Appends a header by name and value.
pub(crate) fn put(block: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    block.push(0);
    put_string(block, name);
    put_string(block, value);
}

fn put_string(block: &mut Vec<u8>, text: &[u8]) {
    put_number(block, 0, 7, text.len());
    block.extend_from_slice(text);
}

fn put_number(block: &mut Vec<u8>, first: u8, bits: u32, n: usize) {
    let full = (1_usize << bits) - 1;
    if n < full {
        block.push(first | n as u8);
        return;
    }
    block.push(first | full as u8);
    let mut left = n - full;
    while left >= 0x80 {
        block.push(left as u8 | 0x80);
        left >>= 7;
    }
    block.push(left as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(block: &[u8], memory: &mut Memory) -> Result<Vec<(String, String)>, Broken> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut all = Vec::new();
        read(block, memory, |name, value| all.push((text(name), text(value)))).map(|()| all)
    }

    fn list(text: &str) -> Vec<(String, String)> {
        let pairs = text.lines().map(|line| line.trim().split_once(": ").unwrap());
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    #[test]
    fn integers_of_appendix_c_1() {
        for (bytes, bits, n) in [(&b"\x0a"[..], 5, 10), (b"\x1f\x9a\x0a", 5, 1337), (b"\x2a", 8, 42)] {
            let mut rest = bytes;
            assert_eq!(number(&mut rest, bits), Ok(n));
            assert!(rest.is_empty());
            let mut out = Vec::new();
            put_number(&mut out, 0, bits, n);
            assert_eq!(out, bytes);
        }
    }

    #[test]
    fn single_headers_of_appendix_c_2() {
        let one = |block: &[u8]| headers(block, &mut Memory::new()).unwrap();
        assert_eq!(one(b"\x40\x0acustom-key\x0dcustom-header"), list("custom-key: custom-header"));
        assert_eq!(one(b"\x04\x0c/sample/path"), list(":path: /sample/path"));
        assert_eq!(one(b"\x10\x08password\x06secret"), list("password: secret"));
        assert_eq!(one(b"\x82"), list(":method: GET"));
    }

    /// C.3 has three requests as they are, C.4 the same ones packed.
    #[test]
    fn requests_of_appendix_c_3_and_c_4() {
        let plain: [&[u8]; 3] = [
            b"\x82\x86\x84\x41\x0fwww.example.com",
            b"\x82\x86\x84\xbe\x58\x08no-cache",
            b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value",
        ];
        let packed: [&[u8]; 3] = [
            b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
            b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf",
            b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
        ];
        for blocks in [plain, packed] {
            let mut memory = Memory::new();
            let lists = [
                ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com",
                ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache",
                ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value",
            ];
            for ((block, text), size) in blocks.into_iter().zip(lists).zip([57, 110, 164]) {
                assert_eq!(headers(block, &mut memory).unwrap(), list(text));
                assert_eq!(memory.size(), size);
            }
        }
    }

    /// C.6: responses, packed, with a table of 256 bytes that entries are evicted from.
    #[test]
    fn responses_of_appendix_c_6() {
        let mut memory = Memory::new();
        memory.resize(256).unwrap();
        let dates = ["Mon, 21 Oct 2013 20:13:21 GMT", "Mon, 21 Oct 2013 20:13:22 GMT"];
        let response = |status: &str, date: &str| {
            format!(
                ":status: {status}\ncache-control: private\ndate: {date}\nlocation: https://www.example.com"
            )
        };
        let block = b"\x48\x82\x64\x02\x58\x85\xae\xc3\x77\x1a\x4b\x61\x96\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff\x6e\x91\x9d\x29\xad\x17\x18\x63\xc7\x8f\x0b\x97\xc8\xe9\xae\x82\xae\x43\xd3";
        assert_eq!(headers(block, &mut memory).unwrap(), list(&response("302", dates[0])));
        assert_eq!(memory.size(), 222);
        let block = b"\x48\x83\x64\x0e\xff\xc1\xc0\xbf";
        assert_eq!(headers(block, &mut memory).unwrap(), list(&response("307", dates[0])));
        assert_eq!(memory.size(), 222);
        let block = b"\x88\xc1\x61\x96\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x84\xa6\x2d\x1b\xff\xc0\x5a\x83\x9b\xd9\xab\x77\xad\x94\xe7\x82\x1d\xd7\xf2\xe6\xc7\xb3\x35\xdf\xdf\xcd\x5b\x39\x60\xd5\xaf\x27\x08\x7f\x36\x72\xc1\xab\x27\x0f\xb5\x29\x1f\x95\x87\x31\x60\x65\xc0\x03\xed\x4e\xe5\xb1\x06\x3d\x50\x07";
        let cookie = "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1";
        let third = format!("{}\ncontent-encoding: gzip\n{cookie}", response("200", dates[1]));
        assert_eq!(headers(block, &mut memory).unwrap(), list(&third));
        assert_eq!(memory.size(), 215);
    }

    #[test]
    fn a_peer_that_keeps_nothing_costs_nothing() {
        let mut memory = Memory::new();
        headers(b"\x40\x01a\x01b", &mut memory).unwrap();
        assert_eq!(memory.size(), 34);
        assert_eq!(headers(b"\x20\x40\x01a\x01b", &mut memory).unwrap(), list("a: b"));
        assert_eq!(memory.size(), 0);
        assert_eq!(headers(b"\xbe", &mut memory).unwrap_err().code, COMPRESSION_ERROR);
    }

    #[test]
    fn a_block_that_breaks_the_rules_is_refused() {
        for (block, words) in [
            (&b"\x80"[..], "has none"),
            (b"\xbe", "has none"),
            (b"\x82\x20", "behind the first"),
            (b"\x3f\xe2\x1f", "larger table"),
            (b"\x40\x0acustom", "cut off"),
            (b"\xff", "cut off"),
            (b"\xff\xff\xff\xff\xff\xff\x0f", "too large"),
            (b"\0\x81\xfe\x01b", "badly packed"),
        ] {
            let broken = headers(block, &mut Memory::new()).unwrap_err();
            assert_eq!(broken.code, COMPRESSION_ERROR);
            assert!(broken.what.contains(words), "{block:x?}: {broken:?}");
        }
        let large = [&b"\x40\x01a\x7f\x81\x1e"[..], &[b'x'; 3968], &[0xbe; 20]].concat();
        assert_eq!(headers(&large, &mut Memory::new()).unwrap_err().code, ENHANCE_YOUR_CALM);
    }

    proptest! {
        #[test]
        fn there_and_back(all in prop::collection::vec(("[a-z-]{1,20}", "[ -~]{0,300}"), 0..8)) {
            let mut block = begin();
            put_known(&mut block, POST);
            put_value(&mut block, PATH, b"/p");
            put_value(&mut block, USER_AGENT, b"agent");
            for (name, value) in &all {
                put(&mut block, name.as_bytes(), value.as_bytes());
            }
            let mut want = list(":method: POST\n:path: /p\nuser-agent: agent");
            want.extend(all);
            prop_assert_eq!(headers(&block, &mut Memory::none()).unwrap(), want);
        }

        #[test]
        fn never_panics(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..80), 1..6)) {
            let mut memory = Memory::new();
            for block in &blocks {
                let _ = headers(block, &mut memory);
                prop_assert!(memory.size() <= 4096);
            }
        }
    }
}

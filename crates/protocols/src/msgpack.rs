//! What does a value of MessagePack say? (<https://github.com/msgpack/msgpack/blob/master/spec.md>)

/// A value, of those kinds that are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Nil,
    Bool(bool),
    /// Above what 63 bits hold, it is negative.
    Integer(i64),
    Text(&'a [u8]),
    /// Of a binary, or of an extension: the type is not looked at.
    Bytes(&'a [u8]),
}

/// Takes the first value off the front; `None`: it has not come whole, or is of another kind.
pub(crate) fn take<'a>(bytes: &mut &'a [u8]) -> Option<Value<'a>> {
    let (&code, rest) = bytes.split_first()?;
    *bytes = rest;
    Some(match code {
        0x00..=0x7f | 0xe0..=0xff => Value::Integer(i64::from(code as i8)),
        0xc0 => Value::Nil,
        0xc2 | 0xc3 => Value::Bool(code == 0xc3),
        0xcc..=0xcf => Value::Integer(number(bytes, 1 << (code - 0xcc))? as i64),
        0xd0..=0xd3 => {
            let width = 1 << (code - 0xd0);
            let above = 64 - 8 * width as u32;
            Value::Integer((number(bytes, width)? << above) as i64 >> above)
        }
        0xa0..=0xbf => Value::Text(part(bytes, u64::from(code & 0x1f))?),
        0xd9..=0xdb => Value::Text(sized(bytes, 1 << (code - 0xd9), 0)?),
        0xc4..=0xc6 => Value::Bytes(sized(bytes, 1 << (code - 0xc4), 0)?),
        // an extension has a byte for its type before its data
        0xd4..=0xd8 => Value::Bytes(part(bytes, 1 + (1 << (code - 0xd4)))?),
        0xc7..=0xc9 => Value::Bytes(sized(bytes, 1 << (code - 0xc7), 1)?),
        _ => return None,
    })
}

/// Takes a number of so many bytes, the highest first.
fn number(bytes: &mut &[u8], width: usize) -> Option<u64> {
    let (taken, rest) = bytes.split_at_checked(width)?;
    *bytes = rest;
    Some(taken.iter().fold(0, |number, &byte| number << 8 | u64::from(byte)))
}

fn part<'a>(bytes: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(usize::try_from(length).ok()?)?;
    *bytes = rest;
    Some(taken)
}

/// Takes a length of so many bytes, and what it is the length of, with `more` bytes that it does not count.
fn sized<'a>(bytes: &mut &'a [u8], width: usize, more: u64) -> Option<&'a [u8]> {
    let length = number(bytes, width)?;
    part(bytes, length + more)
}

/// Appends a number in as few bytes as it needs.
pub(crate) fn put_number(out: &mut Vec<u8>, number: u64) {
    let bytes = number.to_be_bytes();
    match number {
        0..=0x7f => out.push(number as u8),
        0x80..=0xff => out.extend_from_slice(&[0xcc, number as u8]),
        0x100..=0xffff => out.extend_from_slice(&[0xcd, bytes[6], bytes[7]]),
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&bytes[4..]);
        }
        _ => {
            out.push(0xcf);
            out.extend_from_slice(&bytes);
        }
    }
}

/// Appends a text. What is longer than the format can say is cut, and refused then.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let bytes = length.to_be_bytes();
    match length {
        0..=0x1f => out.push(0xa0 | bytes[3]),
        0x20..=0xff => out.extend_from_slice(&[0xd9, bytes[3]]),
        0x100..=0xffff => out.extend_from_slice(&[0xda, bytes[2], bytes[3]]),
        _ => {
            out.push(0xdb);
            out.extend_from_slice(&bytes);
        }
    }
    out.extend_from_slice(&text.as_bytes()[..length as usize]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn one(mut bytes: &[u8]) -> (Option<Value<'_>>, usize) {
        let value = take(&mut bytes);
        (value, bytes.len())
    }

    #[test]
    fn each_kind() {
        for (bytes, value) in [
            (&b"\xc0"[..], Value::Nil),
            (b"\xc2", Value::Bool(false)),
            (b"\xc3", Value::Bool(true)),
            (b"\x7f", Value::Integer(127)),
            (b"\xff", Value::Integer(-1)),
            (b"\xcc\xff", Value::Integer(255)),
            (b"\xcd\x01\x02", Value::Integer(0x102)),
            (b"\xce\x00\x03\x00\x03", Value::Integer(0x30003)),
            (b"\xcf\x00\x00\x00\x01\x00\x00\x00\x00", Value::Integer(1 << 32)),
            (b"\xd0\x80", Value::Integer(-128)),
            (b"\xd1\xff\xfe", Value::Integer(-2)),
            (b"\xd2\x7f\xff\xff\xff", Value::Integer(0x7fff_ffff)),
            (b"\xd3\xff\xff\xff\xff\xff\xff\xff\xfd", Value::Integer(-3)),
            (b"\xa2hi", Value::Text(b"hi")),
            (b"\xd9\x02hi", Value::Text(b"hi")),
            (b"\xda\x00\x02hi", Value::Text(b"hi")),
            (b"\xdb\x00\x00\x00\x02hi", Value::Text(b"hi")),
            (b"\xc4\x01\xff", Value::Bytes(b"\xff")),
            (b"\xd4\x03a", Value::Bytes(b"\x03a")),
            (b"\xd8\x030123456789abcdef", Value::Bytes(b"\x030123456789abcdef")),
            (b"\xc7\x02\x03ab", Value::Bytes(b"\x03ab")),
        ] {
            assert_eq!(one(bytes), (Some(value), 0), "{bytes:?}");
            for cut in 0..bytes.len() {
                assert_eq!(one(&bytes[..cut]).0, None, "{bytes:?} cut at {cut}");
            }
        }
        for other in [0x80, 0x9f, 0xc1, 0xca, 0xcb, 0xdc, 0xdf] {
            assert_eq!(one(&[other, 0, 0, 0, 0, 0, 0, 0, 0]).0, None, "{other:#x}");
        }
        assert_eq!(one(b"\xdb\xff\xff\xff\xff").0, None, "a length is no promise");
    }

    proptest! {
        #[test]
        fn what_is_put_is_taken(number: u64, text in ".{0,300}") {
            let mut out = Vec::new();
            put_number(&mut out, number);
            put_text(&mut out, &text);
            let mut rest = &out[..];
            prop_assert_eq!(take(&mut rest), Some(Value::Integer(number as i64)));
            prop_assert_eq!(take(&mut rest), Some(Value::Text(text.as_bytes())));
            prop_assert!(rest.is_empty());
        }
    }
}

//! How is a document written, and read piece by piece? (BSON 1.1, <https://bsonspec.org/spec.html>)

/// The kinds of values, by the names of the specification.
pub(crate) const DOUBLE: u8 = 0x01;
pub(crate) const STRING: u8 = 0x02;
pub(crate) const DOCUMENT: u8 = 0x03;
pub(crate) const ARRAY: u8 = 0x04;
pub(crate) const BINARY: u8 = 0x05;
pub(crate) const OBJECT_ID: u8 = 0x07;
pub(crate) const BOOLEAN: u8 = 0x08;
pub(crate) const DATETIME: u8 = 0x09;
pub(crate) const NULL: u8 = 0x0a;
pub(crate) const REGEX: u8 = 0x0b;
pub(crate) const INT32: u8 = 0x10;
pub(crate) const TIMESTAMP: u8 = 0x11;
pub(crate) const INT64: u8 = 0x12;
pub(crate) const MAX_KEY: u8 = 0x7f;
pub(crate) const MIN_KEY: u8 = 0xff;

/// No name that is read, and no regular expression, is longer.
const MOST_NAME: usize = 4_096;

/// A document that is being written.
#[derive(Debug, Default)]
pub(crate) struct Document {
    elements: Vec<u8>,
}

impl Document {
    /// Adds an element; `value` is what stands behind its name.
    pub(crate) fn with(mut self, kind: u8, name: &str, value: &[u8]) -> Self {
        self.elements.push(kind);
        self.elements.extend_from_slice(name.as_bytes());
        self.elements.push(0);
        self.elements.extend_from_slice(value);
        self
    }

    /// Adds a 32-bit number.
    pub(crate) fn int(self, name: &str, value: i32) -> Self {
        self.with(INT32, name, &value.to_le_bytes())
    }

    /// Adds a truth.
    pub(crate) fn boolean(self, name: &str, value: bool) -> Self {
        self.with(BOOLEAN, name, &[u8::from(value)])
    }

    /// Adds a text.
    pub(crate) fn text(self, name: &str, value: &str) -> Self {
        self.with(STRING, name, &[&length(value.len() + 1)[..], value.as_bytes(), b"\0"].concat())
    }

    /// Adds bytes, of a kind within their kind; 0: any.
    pub(crate) fn binary(self, name: &str, subtype: u8, value: &[u8]) -> Self {
        self.with(BINARY, name, &[&length(value.len())[..], &[subtype], value].concat())
    }

    /// Adds a document.
    pub(crate) fn document(self, name: &str, value: &Self) -> Self {
        self.with(DOCUMENT, name, &value.bytes())
    }

    /// As it is sent: its length, which counts itself, its elements, and its end.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        [&length(self.elements.len() + 5)[..], &self.elements, b"\0"].concat()
    }
}

fn length(bytes: usize) -> [u8; 4] {
    (bytes as u32).to_le_bytes()
}

/// An element as it was read: where its value stands is counted from the element's first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Element<'a> {
    pub(crate) kind: u8,
    pub(crate) name: &'a [u8],
    pub(crate) value: usize,
    pub(crate) size: usize,
}

/// These bytes are no element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

/// Reads the head of the element that stands first; `None`: more must come to tell. Its value may still be on its way.
pub(crate) fn element(bytes: &[u8]) -> Result<Option<Element<'_>>, Broken> {
    let Some((&kind, rest)) = bytes.split_first() else { return Ok(None) };
    let Some(name) = text(rest)? else { return Ok(None) };
    let value = name.len() + 2;
    let size = size(kind, &bytes[value..])?;
    Ok(size.map(|size| Element { kind, name, value, size }))
}

/// What stands before the NUL.
fn text(bytes: &[u8]) -> Result<Option<&[u8]>, Broken> {
    match bytes.iter().take(MOST_NAME).position(|byte| *byte == 0) {
        Some(end) => Ok(Some(&bytes[..end])),
        None if bytes.len() < MOST_NAME => Ok(None),
        None => Err(Broken),
    }
}

/// How many bytes a value has, from its first ones.
fn size(kind: u8, value: &[u8]) -> Result<Option<usize>, Broken> {
    // what stands beside that which the length counts, and the least that it may count
    let (beside, least) = match kind {
        NULL | 0x06 | MAX_KEY | MIN_KEY => return Ok(Some(0)),
        BOOLEAN => return Ok(Some(1)),
        INT32 => return Ok(Some(4)),
        DOUBLE | DATETIME | TIMESTAMP | INT64 => return Ok(Some(8)),
        OBJECT_ID => return Ok(Some(12)),
        0x13 => return Ok(Some(16)),
        REGEX => {
            let Some(pattern) = text(value)? else { return Ok(None) };
            let options = text(&value[pattern.len() + 1..])?;
            return Ok(options.map(|options| pattern.len() + options.len() + 2));
        }
        STRING | 0x0d | 0x0e => (4, 1),
        DOCUMENT | ARRAY => (0, 5),
        BINARY => (5, 0),
        0x0c => (16, 1),
        0x0f => (0, 14),
        _ => return Err(Broken),
    };
    let Some(length) = value.first_chunk().map(|length| i32::from_le_bytes(*length)) else { return Ok(None) };
    if length < least {
        return Err(Broken);
    }
    Ok(Some(length as usize + beside))
}

/// The elements of a document that is there whole; ends early where it is broken.
pub(crate) fn elements(document: &[u8]) -> impl Iterator<Item = (Element<'_>, &[u8])> {
    let mut rest = document.get(4..).unwrap_or_default();
    std::iter::from_fn(move || {
        let element = element(rest).ok()??;
        let end = element.value + element.size;
        let value = rest.get(element.value..end)?;
        rest = &rest[end..];
        Some((element, value))
    })
}

/// A number of whatever kind, or a truth, which is 1 or 0.
pub(crate) fn number(kind: u8, value: &[u8]) -> Option<f64> {
    match kind {
        DOUBLE => value.try_into().ok().map(f64::from_le_bytes),
        INT32 => value.try_into().ok().map(i32::from_le_bytes).map(f64::from),
        INT64 => value.try_into().ok().map(|bytes| i64::from_le_bytes(bytes) as f64),
        BOOLEAN => value.first().map(|byte| f64::from(*byte)),
        _ => None,
    }
}

/// The bytes of a string, without its length and its end, or of a binary.
pub(crate) fn content(kind: u8, value: &[u8]) -> Option<&[u8]> {
    match kind {
        STRING => value.get(4..value.len() - 1),
        BINARY => value.get(5..),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_specification() {
        assert_eq!(
            Document::default().text("hello", "world").bytes(),
            b"\x16\0\0\0\x02hello\0\x06\0\0\0world\0\0"
        );
        // {"BSON": ["awesome", 5.05, 1986]}
        let array = Document::default().text("0", "awesome").with(DOUBLE, "1", &5.05f64.to_le_bytes());
        let bytes = Document::default().with(ARRAY, "BSON", &array.int("2", 1986).bytes()).bytes();
        let written =
            b"1\0\0\0\x04BSON\0&\0\0\0\x020\0\x08\0\0\0awesome\0\x011\x00333333\x14@\x102\0\xc2\x07\0\0\0\0";
        assert_eq!(bytes, written);
        let (element, value) = elements(&bytes).next().unwrap();
        let numbers: Vec<_> = elements(value).map(|(e, value)| number(e.kind, value)).collect();
        assert_eq!((element.name, numbers), (&b"BSON"[..], vec![None, Some(5.05), Some(1986.0)]));
    }

    #[test]
    fn every_kind_has_its_size() {
        for (kind, value) in [
            (DOUBLE, &b"8bytes.."[..]),
            (STRING, b"\x02\0\0\0x\0"),
            (DOCUMENT, b"\x05\0\0\0\0"),
            (ARRAY, b"\x05\0\0\0\0"),
            (BINARY, b"\x01\0\0\0\0x"),
            (0x06, b""),
            (OBJECT_ID, b"twelve bytes"),
            (BOOLEAN, b"\x01"),
            (REGEX, b"^a\0i\0"),
            (REGEX, b"\0\0"),
            (0x0c, b"\x02\0\0\0x\0twelve bytes"),
            (0x0d, b"\x01\0\0\0\0"),
            (0x0f, b"\x0e\0\0\0\x01\0\0\0\0\x05\0\0\0\0"),
            (INT32, b"four"),
            (0x13, b"sixteen bytes..."),
            (MIN_KEY, b""),
        ] {
            let bytes = Document::default().with(kind, "name", value).bytes();
            let read: Vec<_> = elements(&bytes).collect();
            assert_eq!(read.len(), 1, "{kind:#x}");
            assert_eq!((read[0].0.name, read[0].1), (&b"name"[..], value), "{kind:#x}");
            for end in 0..bytes.len() - 5 {
                assert!(element(&bytes[4..4 + end]).is_ok(), "{kind:#x} cut at {end}");
            }
        }
    }

    #[test]
    fn what_is_no_element() {
        for broken in
            [&b"\x14a\0"[..], b"\0", b"\x02a\0\0\0\0\0", b"\x05a\0\xff\xff\xff\xff", b"\x03a\0\x04\0\0\0"]
        {
            assert_eq!(
                element(&[broken, &[b'x'; 9]].concat()),
                Err(Broken).or(element(broken)),
                "{broken:?}"
            );
        }
        assert_eq!(element(&[b'\x01'; MOST_NAME]), Ok(None));
        assert_eq!(element(&[b'\x01'; MOST_NAME + 1]), Err(Broken));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            names in prop::collection::vec("[a-z]{0,9}", 0..9),
            text in ".{0,40}",
            n in any::<i32>(),
        ) {
            let mut document = Document::default();
            for (i, name) in names.iter().enumerate() {
                document = match i % 3 {
                    0 => document.text(name, &text),
                    1 => document.int(name, n),
                    _ => document.binary(name, 0, text.as_bytes()),
                };
            }
            let bytes = document.bytes();
            let read: Vec<_> = elements(&bytes).collect();
            prop_assert_eq!(read.len(), names.len());
            for ((i, name), (element, value)) in names.iter().enumerate().zip(read) {
                prop_assert_eq!(element.name, name.as_bytes());
                match i % 3 {
                    1 => prop_assert_eq!(number(element.kind, value), Some(f64::from(n))),
                    _ => prop_assert_eq!(content(element.kind, value), Some(text.as_bytes())),
                }
            }
        }

        #[test]
        fn noise_is_read_without_harm(noise in prop::collection::vec(any::<u8>(), 0..80)) {
            let _ = element(&noise);
            for (element, value) in elements(&noise) {
                let _ = (number(element.kind, value), content(element.kind, value));
            }
        }
    }
}

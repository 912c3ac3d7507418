//! How are the few protobuf messages read and written that gRPC's own services have? (protobuf.dev, "Encoding")

/// What a field holds, as far as it is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// A number of any width.
    Number(u64),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
}

/// The fields of a message, in their order; it ends early where they cannot be read.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let tag = number(&mut self.0)?;
        let value = match tag & 7 {
            0 => Value::Number(number(&mut self.0)?),
            1 => Value::Number(u64::from_le_bytes(take(&mut self.0, 8)?.try_into().ok()?)),
            2 => {
                let length = usize::try_from(number(&mut self.0)?).ok()?;
                Value::Bytes(take(&mut self.0, length)?)
            }
            5 => Value::Number(u64::from(u32::from_le_bytes(take(&mut self.0, 4)?.try_into().ok()?))),
            _ => return None,
        };
        Some((u32::try_from(tag >> 3).ok()?, value))
    }
}

/// All strings, bytes or messages of one field.
pub(crate) fn each(message: &[u8], field: u32) -> impl Iterator<Item = &[u8]> {
    Fields(message).filter_map(move |(number, value)| match value {
        Value::Bytes(bytes) if number == field => Some(bytes),
        _ => None,
    })
}

fn take<'a>(bytes: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(n)?;
    *bytes = rest;
    Some(taken)
}

fn number(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..64).step_by(7) {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// Appends a field that holds a number.
pub(crate) fn put_number(out: &mut Vec<u8>, field: u32, n: u64) {
    put_varint(out, u64::from(field) << 3);
    put_varint(out, n);
}

/// Appends a field that holds a string, bytes or a message.
pub(crate) fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn examples_of_its_documentation() {
        let mut out = Vec::new();
        put_number(&mut out, 1, 150);
        put_bytes(&mut out, 2, b"testing");
        assert_eq!(out, b"\x08\x96\x01\x12\x07testing");
        let fields: Vec<_> = Fields(&out).collect();
        assert_eq!(fields, [(1, Value::Number(150)), (2, Value::Bytes(b"testing"))]);
        assert_eq!(Fields(b"\x0d\x01\0\0\0\x11\x02\0\0\0\0\0\0\0").count(), 2);
    }

    proptest! {
        #[test]
        fn there_and_back(n in any::<u64>(), bytes in prop::collection::vec(any::<u8>(), 0..300), field in 1..1000u32) {
            let mut out = Vec::new();
            put_bytes(&mut out, field, &bytes);
            put_number(&mut out, field, n);
            let fields: Vec<_> = Fields(&out).collect();
            prop_assert_eq!(fields, [(field, Value::Bytes(&bytes)), (field, Value::Number(n))]);
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert!(Fields(&bytes).count() <= bytes.len());
        }
    }
}

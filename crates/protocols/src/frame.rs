//! How is a WebSocket frame written and read? (RFC 6455, section 5.2) Shared by the client and the node.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha1::{Digest as _, Sha1};

/// Opcodes of RFC 6455, section 5.2.
pub(crate) const CONTINUATION: u8 = 0x0;
pub(crate) const TEXT: u8 = 0x1;
pub(crate) const BINARY: u8 = 0x2;
pub(crate) const CLOSE: u8 = 0x8;
pub(crate) const PING: u8 = 0x9;
pub(crate) const PONG: u8 = 0xa;

/// The most payload of a control frame (section 5.5).
pub(crate) const MOST_CONTROL: usize = 125;

/// The start of a frame, up to its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame {
    /// Whether it is the last of its message.
    pub(crate) fin: bool,
    /// What it is.
    pub(crate) opcode: u8,
    /// The masking key; `None` if the payload is not masked.
    pub(crate) mask: Option<[u8; 4]>,
    /// How many bytes come before the payload.
    pub(crate) head: usize,
    /// How many bytes of payload follow.
    pub(crate) length: u64,
}

impl Frame {
    /// Reads the start of a frame; `None` while it is not all there. The error says which rule it breaks, as
    /// the end of the sentence "the peer sent …".
    pub(crate) fn read(bytes: &[u8]) -> Result<Option<Self>, &'static str> {
        let Some(&first) = bytes.first() else { return Ok(None) };
        let opcode = first & 0x0f;
        let fin = first & 0x80 != 0;
        if first & 0x70 != 0 {
            return Err("a frame with reserved bits set, though no extension was agreed");
        }
        if !matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG) {
            return Err("a frame of an unknown kind");
        }
        let control = opcode >= CLOSE;
        if control && !fin {
            return Err("a fragmented control frame");
        }
        let Some(&second) = bytes.get(1) else { return Ok(None) };
        let short = second & 0x7f;
        if control && usize::from(short) > MOST_CONTROL {
            return Err("a control frame of more than 125 bytes");
        }
        let (length, at) = match short {
            126 => match bytes.get(2..4).and_then(|b| b.try_into().ok()) {
                Some(b) => (u64::from(u16::from_be_bytes(b)), 4),
                None => return Ok(None),
            },
            127 => match bytes.get(2..10).and_then(|b| b.try_into().ok()) {
                Some(b) => (u64::from_be_bytes(b), 10),
                None => return Ok(None),
            },
            short => (u64::from(short), 2),
        };
        if length >> 63 != 0 {
            return Err("a frame whose length has its highest bit set");
        }
        if second & 0x80 == 0 {
            return Ok(Some(Self { fin, opcode, mask: None, head: at, length }));
        }
        let Some(mask) = bytes.get(at..at + 4).and_then(|b| b.try_into().ok()) else { return Ok(None) };
        Ok(Some(Self { fin, opcode, mask: Some(mask), head: at + 4, length }))
    }

    /// Whether it is a control frame (section 5.5).
    pub(crate) fn is_control(&self) -> bool {
        self.opcode >= CLOSE
    }

    /// The payload as it came and where the frame ends; `None` while it is not all there.
    pub(crate) fn payload<'a>(&self, bytes: &'a [u8]) -> Option<(&'a [u8], usize)> {
        let end = self.head.checked_add(usize::try_from(self.length).ok()?)?;
        Some((bytes.get(self.head..end)?, end))
    }
}

/// Appends a frame; with a mask, its payload is masked (section 5.3).
pub(crate) fn write(out: &mut Vec<u8>, fin: bool, opcode: u8, mask: Option<[u8; 4]>, payload: &[u8]) {
    out.push(if fin { 0x80 | opcode } else { opcode });
    let masked = if mask.is_some() { 0x80 } else { 0 };
    match payload.len() {
        n @ 0..=125 => out.push(masked | n as u8),
        n @ 126..=0xffff => {
            out.push(masked | 126);
            out.extend_from_slice(&(n as u16).to_be_bytes());
        }
        n => {
            out.push(masked | 127);
            out.extend_from_slice(&(n as u64).to_be_bytes());
        }
    }
    if let Some(mask) = mask {
        out.extend_from_slice(&mask);
    }
    let start = out.len();
    out.extend_from_slice(payload);
    if let Some(mask) = mask {
        apply(mask, &mut out[start..]);
    }
}

/// Masks or unmasks (section 5.3): the same operation.
pub(crate) fn apply(mask: [u8; 4], payload: &mut [u8]) {
    for (i, byte) in payload.iter_mut().enumerate() {
        *byte ^= mask[i % 4];
    }
}

/// What a server must answer to a key (section 4.2.2, item 5.4).
pub(crate) fn accept(key: &[u8]) -> String {
    let mut sha = Sha1::new();
    sha.update(key);
    sha.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    STANDARD.encode(sha.finalize())
}

/// A client's key of 16 bytes, as it stands in the request (section 4.1, item 7).
pub(crate) fn key(bytes: [u8; 16]) -> String {
    STANDARD.encode(bytes)
}

/// Whether this is a key of 16 bytes.
pub(crate) fn is_key(key: &[u8]) -> bool {
    STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16)
}

/// The code and reason of a Close frame's payload (section 5.5.1); 1005 stands for an empty one.
pub(crate) fn close_code(payload: &[u8]) -> Result<(u16, &[u8]), &'static str> {
    match payload {
        [] => Ok((1005, &[])),
        [_] => Err("a Close frame with half a code"),
        [a, b, reason @ ..] => match u16::from_be_bytes([*a, *b]) {
            // Section 7.4: the rest are reserved, or must never stand in a frame.
            code @ (1000..=1003 | 1007..=1014 | 3000..=4999) => Ok((code, reason)),
            _ => Err("a Close frame with a code that must not be sent"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_rfc() {
        assert_eq!(accept(b"dGhlIHNhbXBsZSBub25jZQ=="), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        let mut wire = Vec::new();
        write(&mut wire, true, TEXT, Some([0x37, 0xfa, 0x21, 0x3d]), b"Hello");
        assert_eq!(wire, [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
        let mut wire = Vec::new();
        write(&mut wire, false, TEXT, None, b"Hel");
        assert_eq!(wire, [0x01, 0x03, 0x48, 0x65, 0x6c]);
    }

    #[test]
    fn lengths_are_written_in_the_fewest_bytes() {
        for (length, head) in [(125, 2), (126, 4), (0xffff, 4), (0x1_0000, 10)] {
            let mut wire = Vec::new();
            write(&mut wire, true, BINARY, None, &vec![0; length]);
            assert_eq!(wire.len(), head + length);
            assert_eq!(Frame::read(&wire).unwrap().unwrap().length, length as u64);
        }
    }

    #[test]
    fn broken_rules_are_named_as_soon_as_they_show() {
        for (bytes, rule) in [
            (&[0xc1][..], "reserved bits"),
            (&[0x83], "unknown kind"),
            (&[0x08], "fragmented control"),
            (&[0x89, 126], "more than 125"),
            (&[0x82, 127, 0x80, 0, 0, 0, 0, 0, 0, 0], "highest bit"),
        ] {
            assert!(Frame::read(bytes).unwrap_err().contains(rule), "{rule}");
        }
    }

    #[test]
    fn close_codes() {
        assert_eq!(close_code(&[]), Ok((1005, &[][..])));
        assert_eq!(close_code(b"\x03\xf5later"), Ok((1013, &b"later"[..])));
        for bad in [&[3][..], &[3, 237], &[0, 0], &[0xff, 0xff]] {
            assert!(close_code(bad).is_err());
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn written_and_read_again(fin: bool, mask: Option<[u8; 4]>, payload in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..300),
            prop::collection::vec(any::<u8>(), 65_500..65_600),
        ]) {
            let mut wire = Vec::new();
            write(&mut wire, fin, BINARY, mask, &payload);
            let frame = Frame::read(&wire).unwrap().unwrap();
            prop_assert_eq!((frame.fin, frame.opcode, frame.mask), (fin, BINARY, mask));
            let (got, end) = frame.payload(&wire).unwrap();
            let mut got = got.to_vec();
            apply(mask.unwrap_or_default(), &mut got);
            prop_assert_eq!(got, payload);
            prop_assert_eq!(end, wire.len());
            prop_assert!(frame.payload(&wire[..end - 1]).is_none() || frame.length == 0);
            for cut in 0..frame.head {
                prop_assert_eq!(Frame::read(&wire[..cut]), Ok(None));
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            if let Ok(Some(frame)) = Frame::read(&bytes) {
                let _ = frame.payload(&bytes);
            }
            let _ = close_code(&bytes);
            let _ = is_key(&bytes);
        }
    }
}

//! What is a frame of HTTP/2? (RFC 9113, sections 4.1 and 6)

use super::{Broken, FRAME_SIZE_ERROR, Front, PROTOCOL_ERROR};

pub(crate) const DATA: u8 = 0x0;
pub(crate) const HEADERS: u8 = 0x1;
pub(crate) const PRIORITY: u8 = 0x2;
pub(crate) const RST_STREAM: u8 = 0x3;
pub(crate) const SETTINGS: u8 = 0x4;
pub(crate) const PUSH_PROMISE: u8 = 0x5;
pub(crate) const PING: u8 = 0x6;
pub(crate) const GOAWAY: u8 = 0x7;
pub(crate) const WINDOW_UPDATE: u8 = 0x8;
pub(crate) const CONTINUATION: u8 = 0x9;

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const WITH_PRIORITY: u8 = 0x20;

/// SETTINGS_HEADER_TABLE_SIZE and the other names of RFC 9113, section 6.5.2.
pub(crate) const HEADER_TABLE_SIZE: u16 = 0x1;
pub(crate) const ENABLE_PUSH: u16 = 0x2;
pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 0x3;
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 0x4;
pub(crate) const MAX_FRAME_SIZE: u16 = 0x5;

/// The longest payload that we take: what each side starts from, and we never ask for more.
pub(crate) const MOST_PAYLOAD: usize = 16_384;
/// How long the head of a frame is.
pub(crate) const HEAD: usize = 9;

/// One frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The first frame, and how many bytes it takes; `None`: it has not come whole.
    pub(crate) fn read(bytes: &'a [u8]) -> Front<Self> {
        let Some(&[a, b, c, kind, flags, s0, s1, s2, s3]) = bytes.first_chunk::<HEAD>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        if length > MOST_PAYLOAD {
            return Err(Broken::new(FRAME_SIZE_ERROR, "a frame of more than 16384 bytes"));
        }
        let end = HEAD + length;
        let Some(payload) = bytes.get(HEAD..end) else { return Ok(None) };
        let stream = u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff;
        Ok(Some((Self { kind, flags, stream, payload }, end)))
    }

    /// The payload of DATA or HEADERS without its padding and priority.
    pub(crate) fn content(&self) -> Result<&'a [u8], Broken> {
        let mut content = self.payload;
        if self.flags & PADDED != 0 {
            let unpadded = content.split_first().and_then(|(&padding, rest)| {
                rest.len().checked_sub(usize::from(padding)).map(|length| &rest[..length])
            });
            content = unpadded.ok_or(Broken::new(PROTOCOL_ERROR, "more padding than there is frame"))?;
        }
        if self.kind == HEADERS && self.flags & WITH_PRIORITY != 0 {
            content = content.get(5..).ok_or(Broken::new(FRAME_SIZE_ERROR, "a priority that is cut off"))?;
        }
        Ok(content)
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a frame.
pub(crate) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

/// Appends SETTINGS.
pub(crate) fn settings(out: &mut Vec<u8>, values: &[(u16, u32)]) {
    let mut payload = Vec::with_capacity(6 * values.len());
    for (name, value) in values {
        payload.extend_from_slice(&name.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    write(out, SETTINGS, 0, 0, &payload);
}

/// Appends GOAWAY with words that the peer may log.
pub(crate) fn go_away(out: &mut Vec<u8>, last: u32, code: u32, words: &str) {
    let mut payload = Vec::with_capacity(8 + words.len());
    payload.extend_from_slice(&last.to_be_bytes());
    payload.extend_from_slice(&code.to_be_bytes());
    payload.extend_from_slice(words.as_bytes());
    write(out, GOAWAY, 0, 0, &payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_as_the_rfc_draws_it() {
        let mut out = Vec::new();
        settings(&mut out, &[(HEADER_TABLE_SIZE, 0), (ENABLE_PUSH, 0)]);
        assert_eq!(out, b"\0\0\x0c\x04\0\0\0\0\0\0\x01\0\0\0\0\0\x02\0\0\0\0");
        out.clear();
        go_away(&mut out, 5, 11, "calm");
        assert_eq!(out, b"\0\0\x0c\x07\0\0\0\0\0\0\0\0\x05\0\0\0\x0bcalm");
        let (frame, taken) = Frame::read(&out).unwrap().unwrap();
        assert_eq!((frame.kind, frame.stream, taken), (GOAWAY, 0, out.len()));
        assert_eq!(Frame::read(&out[..out.len() - 1]), Ok(None));
    }

    #[test]
    fn padding_and_priority_are_no_content() {
        let content = |kind, flags, payload| Frame { kind, flags, stream: 1, payload }.content();
        assert_eq!(content(DATA, PADDED, b"\x02abc\0\0"), Ok(&b"abc"[..]));
        assert_eq!(content(DATA, PADDED, b"\x02\0\0"), Ok(&b""[..]));
        assert_eq!(content(DATA, PADDED, b"\x03\0\0").unwrap_err().code, PROTOCOL_ERROR);
        assert_eq!(content(DATA, PADDED, b"").unwrap_err().code, PROTOCOL_ERROR);
        assert_eq!(content(HEADERS, PADDED | WITH_PRIORITY, b"\x01\0\0\0\0\x07block\0"), Ok(&b"block"[..]));
        assert_eq!(content(HEADERS, WITH_PRIORITY, b"\0\0\0\0").unwrap_err().code, FRAME_SIZE_ERROR);
    }

    #[test]
    fn a_length_that_nobody_asked_for_is_refused_before_it_comes() {
        assert_eq!(Frame::read(b"\0\x40\x01\0\0\0\0\0\x01").unwrap_err().code, FRAME_SIZE_ERROR);
        assert_eq!(Frame::read(b"\0\x40\0\0\0\0\0\0\x01"), Ok(None));
    }
}

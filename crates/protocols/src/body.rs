//! Where does an HTTP/1.1 body end? Decodes lengths and chunks as they come, and keeps none of it.

/// The longest chunk-size or trailer line that is waited for.
const MOST_LINE: usize = 4096;

/// Where in a body one connection stands (RFC 9112, sections 6.3 and 7.1).
///
/// Lengths are 32-bit to keep slots small: an answer of more than 4 GiB is no heartbeat.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Body {
    /// There is none, or all of it has passed.
    #[default]
    Ended,
    /// This many bytes are still to come; never zero.
    Left(u32),
    /// It ends where the connection ends.
    UntilClose,
    /// A line with a chunk's size comes next.
    ChunkSize,
    /// This many bytes of a chunk are still to come; never zero.
    ChunkData(u32),
    /// The line end behind a chunk's data comes next.
    ChunkEnd,
    /// A trailer line, or the empty line that ends the body, comes next.
    Trailers,
}

const _: () = assert!(size_of::<Body>() == 8);

impl Body {
    /// A body of a known length.
    pub(crate) fn of_length(length: u32) -> Self {
        if length == 0 { Self::Ended } else { Self::Left(length) }
    }

    /// Whether all of it has passed.
    pub(crate) fn ended(self) -> bool {
        self == Self::Ended
    }

    /// Takes the next piece off the front of `bytes`: how many bytes it has (never zero) and what of them is
    /// payload (empty for framing). `None`: more bytes are needed, or the body has ended.
    pub(crate) fn take<'a>(&mut self, bytes: &'a [u8]) -> Result<Option<(usize, &'a [u8])>, &'static str> {
        if bytes.is_empty() {
            return Ok(None);
        }
        match *self {
            Self::Ended => Ok(None),
            Self::UntilClose => Ok(Some((bytes.len(), bytes))),
            Self::Left(left) => {
                let (payload, left) = split(bytes, left);
                *self = Self::of_length(left);
                Ok(Some((payload.len(), payload)))
            }
            Self::ChunkData(left) => {
                let (payload, left) = split(bytes, left);
                *self = if left == 0 { Self::ChunkEnd } else { Self::ChunkData(left) };
                Ok(Some((payload.len(), payload)))
            }
            Self::ChunkSize => {
                let Some(line) = line(bytes)? else { return Ok(None) };
                *self = match chunk_size(line)? {
                    0 => Self::Trailers,
                    size => Self::ChunkData(size),
                };
                Ok(Some((line.len() + 2, &[])))
            }
            Self::ChunkEnd => {
                let end = &bytes[..bytes.len().min(2)];
                if !b"\r\n".starts_with(end) {
                    return Err("a chunk is longer than its size line says");
                }
                if end.len() < 2 {
                    return Ok(None);
                }
                *self = Self::ChunkSize;
                Ok(Some((2, &[])))
            }
            Self::Trailers => {
                let Some(line) = line(bytes)? else { return Ok(None) };
                if line.is_empty() {
                    *self = Self::Ended;
                }
                Ok(Some((line.len() + 2, &[])))
            }
        }
    }
}

/// What of `left` bytes is here, and how many remain.
fn split(bytes: &[u8], left: u32) -> (&[u8], u32) {
    let here = bytes.len().min(left as usize);
    (&bytes[..here], left - here as u32)
}

/// The first line without its end; `None` while the end is not there.
fn line(bytes: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    let within = &bytes[..bytes.len().min(MOST_LINE)];
    match within.iter().position(|&b| b == b'\n') {
        Some(at) => within[..at]
            .strip_suffix(b"\r")
            .map(Some)
            .ok_or("a line of its chunked body does not end in CRLF"),
        None if within.len() == MOST_LINE => Err("a line of its chunked body is longer than 4 KiB"),
        None => Ok(None),
    }
}

/// Reads `1*HEXDIG [ chunk-ext ]`.
fn chunk_size(line: &[u8]) -> Result<u32, &'static str> {
    const BAD: &str = "a chunk of its body has no valid size";
    let digits = line.iter().position(|b| !b.is_ascii_hexdigit()).unwrap_or(line.len());
    if digits == 0 || !matches!(line.get(digits), None | Some(b';' | b' ' | b'\t')) {
        return Err(BAD);
    }
    let digits = std::str::from_utf8(&line[..digits]).map_err(|_| BAD)?;
    u32::from_str_radix(digits, 16).map_err(|_| "a chunk of its body is larger than 4 GiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Decodes with at most `step` new bytes at a time, as a reactor would hand them in.
    fn decode(mut body: Body, bytes: &[u8], step: usize) -> Result<(Vec<u8>, usize), &'static str> {
        let (mut payload, mut used) = (Vec::new(), 0);
        let mut here = 0;
        while here < bytes.len() {
            here = (here + step).min(bytes.len());
            while let Some((n, piece)) = body.take(&bytes[used..here])? {
                assert!(n > 0 && piece.len() <= n);
                payload.extend_from_slice(piece);
                used += n;
            }
        }
        assert!(body.ended(), "{body:?}");
        Ok((payload, used))
    }

    #[test]
    fn chunks_extensions_and_trailers() {
        let wire = b"5;ext=\"a\"\r\nhello\r\n006 \r\n world\r\n0\r\nTrailer: x\r\n\r\nNEXT";
        for step in 1..wire.len() {
            let (payload, used) = decode(Body::ChunkSize, wire, step).unwrap();
            assert_eq!(payload, b"hello world");
            assert_eq!(&wire[used..], b"NEXT");
        }
    }

    #[test]
    fn what_is_no_chunk_says_so() {
        for bad in ["\r\n", "x\r\n", "5\nhello", "5x\r\n", "1ffffffff\r\n", "1\r\nab\r\n", "-1\r\n"] {
            assert!(decode(Body::ChunkSize, bad.as_bytes(), 1).is_err(), "{bad:?}");
            assert!(decode(Body::ChunkSize, bad.as_bytes(), 99).is_err(), "{bad:?}");
        }
        let long = [b'0'; MOST_LINE + 1];
        assert!(decode(Body::ChunkSize, &long, 1).is_err());
    }

    proptest! {
        #[test]
        fn any_chunking_of_any_payload(parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..8), step in 1..50usize) {
            let mut wire = Vec::new();
            for part in &parts {
                wire.extend_from_slice(format!("{:X}\r\n", part.len()).as_bytes());
                wire.extend_from_slice(part);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
            let (payload, used) = decode(Body::ChunkSize, &wire, step).unwrap();
            prop_assert_eq!(payload, parts.concat());
            prop_assert_eq!(used, wire.len());
        }

        #[test]
        fn a_length_takes_exactly_that_many(payload in prop::collection::vec(any::<u8>(), 1..200), step in 1..50usize) {
            let mut wire = payload.clone();
            wire.extend_from_slice(b"NEXT");
            let (got, used) = decode(Body::of_length(payload.len() as u32), &wire, step).unwrap();
            prop_assert_eq!(&got, &payload);
            prop_assert_eq!(used, payload.len());
        }
    }
}

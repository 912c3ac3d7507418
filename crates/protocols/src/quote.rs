//! How are a peer's bytes shown in the words of a failure?

use model::{Failure, FailureKind};

/// In double quotes, escaped, and cut after `most` bytes.
pub fn quote(bytes: &[u8], most: usize) -> String {
    let cut = bytes.len() > most;
    let mut shown = &bytes[..bytes.len().min(most)];
    if cut
        && let Err(e) = std::str::from_utf8(shown)
        && e.error_len().is_none()
    {
        // The cut went through a character: leave the whole of it out rather than show its halves.
        shown = &shown[..e.valid_up_to()];
    }
    let mut out = String::from("\"");
    for chunk in shown.utf8_chunks() {
        out.extend(chunk.valid().escape_debug());
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out.push_str(if cut { "…\"" } else { "\"" });
    out
}

/// A failure in which the server broke the protocol's rules.
pub(crate) fn against_protocol(text: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Protocol, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_and_cut() {
        assert_eq!(quote(b"PONG\r\n", 80), r#""PONG\r\n""#);
        assert_eq!(quote(b"\x15\x03\xff", 80), r#""\u{15}\u{3}\xff""#);
        assert_eq!(quote(b"abcdef", 3), r#""abc…""#);
        assert_eq!(quote("aéb".as_bytes(), 2), r#""a…""#);
        assert_eq!(quote(b"", 0), r#""""#);
    }
}

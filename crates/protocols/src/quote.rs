//! How are a peer's bytes shown in the words of a failure?

use std::fmt;

use model::{Failure, FailureKind, Target};

/// In double quotes, escaped, and cut after `most` bytes.
pub fn quote(bytes: &[u8], most: usize) -> String {
    format!("\"{}\"", escaped(bytes, most))
}

/// The same without the quotes.
pub(crate) fn escaped(bytes: &[u8], most: usize) -> String {
    let cut = bytes.len() > most;
    let mut shown = &bytes[..bytes.len().min(most)];
    if cut
        && let Err(e) = std::str::from_utf8(shown)
        && e.error_len().is_none()
    {
        // The cut went through a character: leave the whole of it out rather than show its halves.
        shown = &shown[..e.valid_up_to()];
    }
    let mut out = String::new();
    for chunk in shown.utf8_chunks() {
        // between double quotes, a single one stands for itself
        out.push_str(&chunk.valid().escape_debug().to_string().replace("\\'", "'"));
        for byte in chunk.invalid() {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if cut {
        out.push('…');
    }
    out
}

/// A failure in which the server broke the protocol's rules.
pub(crate) fn against_protocol(text: impl Into<String>) -> Failure {
    Failure::new(FailureKind::Protocol, text)
}

/// A failure in which the server turned us away, in its own words and no others.
pub(crate) fn turned_away(words: &[u8]) -> Failure {
    Failure::new(FailureKind::ServerRefused, escaped(words, 200))
}

/// A failure in which the server would not let us in; `text` says what it answered.
pub(crate) fn login_refused(text: impl fmt::Display, target: &Target) -> Failure {
    let scheme = target.scheme;
    let hint = match (target.user(), target.password()) {
        (None, None) => format!("write a login into the URL: {scheme}://USER:PASSWORD@HOST"),
        _ => "check the user and the password in the URL".to_owned(),
    };
    Failure::new(FailureKind::LoginRefused, format!("{text}; {hint}"))
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
        assert_eq!(quote(br#"it's "so" \'"#, 80), r#""it's \"so\" \\'""#);
    }
}

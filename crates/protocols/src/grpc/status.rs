//! How did a call end? ("gRPC over HTTP2", Status and Status-Message; the codes are those of the gRPC core)

use model::{Failure, FailureKind};

use crate::quote::quote;

pub(crate) const OK: u32 = 0;
pub(crate) const NOT_FOUND: u32 = 5;
const PERMISSION_DENIED: u32 = 7;
pub(crate) const RESOURCE_EXHAUSTED: u32 = 8;
pub(crate) const UNIMPLEMENTED: u32 = 12;
pub(crate) const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;
const UNAUTHENTICATED: u32 = 16;

/// Of a server's words, so many bytes are kept.
const MOST_WORDS: usize = 200;

const NAMES: [&str; 17] = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
];

/// The failure that a status other than OK is for whoever called `path`; `words` as they came.
pub(crate) fn refusal(path: &str, code: u32, words: &[u8]) -> Failure {
    let name = usize::try_from(code).ok().and_then(|at| NAMES.get(at));
    let name = name.map_or_else(|| format!("status {code}"), |name| (*name).to_owned());
    let words = unescaped(words);
    let words = if words.is_empty() { String::new() } else { format!(": {}", quote(&words, MOST_WORDS)) };
    let (kind, hint) = match code {
        RESOURCE_EXHAUSTED | UNAVAILABLE => (FailureKind::ServerRefused, ""),
        UNAUTHENTICATED | PERMISSION_DENIED => (
            FailureKind::LoginRefused,
            "; send what lets it in with --metadata, for example 'authorization=Bearer TOKEN'",
        ),
        UNIMPLEMENTED => {
            (FailureKind::Protocol, "; the server does not have this method: name one with --call")
        }
        _ => (FailureKind::Protocol, ""),
    };
    Failure::new(kind, format!("the server answered {path} with {name}{words}{hint}"))
}

/// The failure that an HTTP status other than 200 is: something answered that is not gRPC.
pub(crate) fn http_refusal(path: &str, status: &[u8]) -> Failure {
    let shown = quote(status, 3);
    let (kind, hint) = match status {
        b"401" | b"403" => (
            FailureKind::LoginRefused,
            "send what lets it in with --metadata, for example 'authorization=Bearer TOKEN'",
        ),
        b"429" | b"502" | b"503" | b"504" => {
            (FailureKind::ServerRefused, "it is full, or what is behind it is")
        }
        _ => (FailureKind::Protocol, "check that gRPC is served there, under this method"),
    };
    Failure::new(kind, format!("the server answered {path} with HTTP status {shown}; {hint}"))
}

/// Status-Message as it was before it was percent-encoded; what is not encoded so stands for itself.
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let digits = text.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| byte == b'%').map(|digits| u8::from_str_radix(digits, 16)) {
            Some(Ok(escaped)) => {
                out.push(escaped);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

/// Words as Status-Message: printable ASCII but `%`, the rest percent-encoded.
pub(crate) fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b' '..=b'~' if byte != b'%' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_there_and_back() {
        for text in ["no such room", "50 % of läuft\n", "", "%%41"] {
            assert_eq!(unescaped(escaped(text).as_bytes()), text.as_bytes());
        }
        assert_eq!(escaped("100 %\n"), "100 %25%0A");
        assert_eq!(unescaped(b"%4 %zz %41%"), b"%4 %zz A%");
    }

    #[test]
    fn each_status_has_its_kind() {
        let kind = |code| refusal("/a.B/C", code, b"").kind;
        assert_eq!(kind(14), FailureKind::ServerRefused);
        assert_eq!(kind(8), FailureKind::ServerRefused);
        assert_eq!(kind(16), FailureKind::LoginRefused);
        assert_eq!(kind(5), FailureKind::Protocol);
        let failure = refusal("/a.B/C", 12, b"unknown service a.B");
        assert!(
            failure
                .text
                .starts_with("the server answered /a.B/C with UNIMPLEMENTED: \"unknown service a.B\"")
        );
        assert!(refusal("/a.B/C", 99, b"").text.contains("status 99"));
    }
}

//! What does it mean that a gRPC server gives up a connection or a stream?

use model::{Failure, FailureKind};

use crate::h2::{self, Broken};
use crate::quote::{against_protocol, quote};

/// Of a server's words, so many bytes are kept.
const MOST_WORDS: usize = 200;

/// The failure that a GOAWAY is.
pub(crate) fn connection(code: u32, words: &[u8]) -> Failure {
    let name = h2::code_name(code);
    let said = if words.is_empty() { String::new() } else { format!(": {}", quote(words, MOST_WORDS)) };
    let (kind, hint) = match code {
        h2::NO_ERROR => (FailureKind::Closed, ""),
        // A server that counts pings says so in these words (gRFC A8). It is not full: fewer connections would not help.
        h2::ENHANCE_YOUR_CALM if words == b"too_many_pings" => (
            FailureKind::Protocol,
            "; pings come more often than its keepalive enforcement allows (grpc-go: one in 5 minutes): use --call \
             with --heartbeat off, or lower MinTime and set PermitWithoutStream there",
        ),
        h2::ENHANCE_YOUR_CALM | h2::REFUSED_STREAM => (FailureKind::ServerRefused, ""),
        _ => (FailureKind::Protocol, ""),
    };
    Failure::new(kind, format!("the server closed the connection with GOAWAY {name}{said}{hint}"))
}

/// The failure that the reset of a call of `path` is.
pub(crate) fn stream(path: &str, code: u32) -> Failure {
    let kind = match code {
        h2::REFUSED_STREAM | h2::ENHANCE_YOUR_CALM => FailureKind::ServerRefused,
        _ => FailureKind::Protocol,
    };
    Failure::new(
        kind,
        format!("the server gave up the call of {path} with RST_STREAM {}", h2::code_name(code)),
    )
}

/// The failure that broken rules are; the server is told, too.
pub(crate) fn broken(broken: Broken, out: &mut Vec<u8>) -> Failure {
    h2::frame::go_away(out, 0, broken.code, "");
    against_protocol(format!(
        "the server sent {}, which HTTP/2 forbids here; check that a gRPC server listens there",
        broken.what
    ))
}

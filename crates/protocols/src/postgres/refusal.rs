//! What does a refusal of PostgreSQL mean for the connection? In the server's own words.

use model::{Failure, FailureKind};

use super::Phase;
use crate::quote::{against_protocol, quote};

/// The longest refusal in the form that servers had before version 3 of the protocol.
const MOST_OLD_WORDS: usize = 1_000;
/// Of a server's words, so many characters are kept.
pub(super) const MOST_WORDS: usize = 200;
/// What to look at when the login was not accepted.
const LOGIN_HINT: &str = "check user, password and database in the URL, and the server's pg_hba.conf";
/// What a server that is full says of itself, where the node of a cluster only passes it on.
const FULL: [&[u8]; 4] = [
    b"53300",
    b"sorry, too many clients already",
    b"remaining connection slots are reserved",
    b"too many connections for",
];

/// The login cannot succeed; `text` says why, and what would help.
pub(super) fn login_refused(text: impl Into<String>) -> Failure {
    Failure::new(FailureKind::LoginRefused, text)
}

/// A message that has no place here.
pub(super) fn out_of_place(bytes: &[u8]) -> Failure {
    let said = quote(&bytes[..bytes.len().min(5)], 5);
    against_protocol(format!(
        "the server began a message with {said}, which has no place here; check that PostgreSQL listens there"
    ))
}

/// A server that cannot even start a process for us says so as it did before version 3: without a length.
pub(super) fn old_refusal(bytes: &[u8]) -> Result<usize, Failure> {
    let words = &bytes[1..bytes.len().min(MOST_OLD_WORDS)];
    match words.iter().position(|byte| *byte == 0) {
        Some(end) if end > 0 => Err(Failure::new(FailureKind::ClosedEarly, shown(&words[..end]))),
        None if bytes.len() < MOST_OLD_WORDS => Ok(0),
        _ => Err(out_of_place(bytes)),
    }
}

/// What an ErrorResponse means for the connection, in the server's own words ("Error and Notice Message Fields").
pub(super) fn refusal(phase: Phase, operates: bool, body: &[u8]) -> Failure {
    let mut fields = body.split(|byte| *byte == 0).filter_map(|field| field.split_first());
    let [mut severity, mut plain_severity, mut code, mut message, mut detail] = [&b""[..]; 5];
    for (name, value) in &mut fields {
        match name {
            b'S' => severity = value,
            b'V' => plain_severity = value,
            b'C' => code = value,
            b'M' => message = value,
            b'D' => detail = value,
            _ => {}
        }
    }
    if !plain_severity.is_empty() {
        // The other is in the server's language.
        severity = plain_severity;
    }
    let mut words = format!("{} {}: {}", shown(severity), shown(code), shown(message));
    if !detail.is_empty() {
        words += &format!(" ({})", shown(detail));
    }
    if code.starts_with(b"08") && (is_full(message) || is_full(detail)) {
        return Failure::new(FailureKind::ServerRefused, words);
    }
    let open = matches!(phase, Phase::Starting | Phase::Open);
    if open && operates && !matches!(severity, b"FATAL" | b"PANIC") {
        return against_protocol(format!("the operation was answered with {words}"));
    }
    match code {
        b"53300" => Failure::new(FailureKind::ServerRefused, words),
        // PgBouncer has this code for whatever is wrong, its own limit among it.
        b"08P01" if message.starts_with(b"no more connections allowed") => {
            Failure::new(FailureKind::ServerRefused, words)
        }
        [b'2', b'8', ..] | [b'3', b'D', ..] => login_refused(format!("{words}; {LOGIN_HINT}")),
        b"08P01" if !open && is_pooler_login(message) => login_refused(format!("{words}; {LOGIN_HINT}")),
        b"08P01" if !open => against_protocol(words),
        _ if !open => Failure::new(FailureKind::ClosedEarly, words),
        _ if matches!(severity, b"FATAL" | b"PANIC") => Failure::new(FailureKind::Closed, words),
        _ => against_protocol(format!("an empty query was answered with {words}")),
    }
}

/// Whether the words, such as those that a node of a cluster heard from another, say that a server is full.
fn is_full(words: &[u8]) -> bool {
    FULL.iter().any(|full| words.windows(full.len()).any(|window| window == *full))
}

/// Whether PgBouncer says with its one code for everything that the login is wrong.
fn is_pooler_login(message: &[u8]) -> bool {
    message.ends_with(b"authentication failed") || message.starts_with(b"no such ")
}

/// Words as they are, without what a terminal would act upon, and not too long.
fn shown(words: &[u8]) -> String {
    let text = String::from_utf8_lossy(words);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_WORDS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_a_terminal_would_act_upon() {
        assert_eq!(shown(b"no \x1b[31mred\r\n"), "no  [31mred  ");
        assert_eq!(shown(&[b'x'; 1_000]).len(), MOST_WORDS);
    }
}

//! Who logs in, and how does a password stay out of everything that is shown or stored?

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::target::Scheme;

/// What stands for a password wherever it is shown.
const HIDDEN: &str = "***";

/// Whom a connection logs in as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Login {
    /// The name, as the server knows it.
    pub user: String,
    /// The password, if one was given; a stored result only says that there was one.
    pub password: Option<Password>,
}

/// A password. It is never shown, and written in clear only where no person reads: from the coordinator to its
/// workers. In any form that can be read, such as JSON, three asterisks stand for it.
#[derive(Clone, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Password(String);

impl Password {
    /// The password itself, for the server.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Password {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let hidden = to.is_human_readable();
        to.serialize_str(if hidden { HIDDEN } else { &self.0 })
    }
}

impl Login {
    /// Reads what stands before the `@` of a URL; `None` if it has a `%` that escapes nothing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (user, password) = match text.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (text, None),
        };
        let password = match password {
            Some(password) => Some(decoded(password)?.into()),
            None => None,
        };
        Some(Self { user: decoded(user)?, password })
    }
}

impl fmt::Display for Login {
    /// As it stands before the `@` of a URL, the password hidden.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.user.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                write!(f, "{}", char::from(byte))?;
            } else {
                write!(f, "%{byte:02X}")?;
            }
        }
        if self.password.is_some() { write!(f, ":{HIDDEN}") } else { Ok(()) }
    }
}

/// Resolves `%XX` (RFC 3986, section 2.1); `None` if that makes no text, or holds a NUL, which ends a text in many a
/// protocol.
pub(crate) fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            out.push(*byte);
            continue;
        }
        let digits = rest.get(..2).filter(|d| d.iter().all(u8::is_ascii_hexdigit))?;
        out.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = &rest[2..];
    }
    String::from_utf8(out).ok().filter(|text| !text.contains('\0'))
}

/// A word of a command line, with asterisks for the password if it is a URL that has one.
pub fn without_password(word: &str) -> String {
    let start = word.find("://").map_or(0, |at| at + 3);
    let rest = &word[start..];
    // `--flag=URL` is a word as well.
    let scheme = word[..start].trim_end_matches("://").rsplit('=').next();
    let scheme = scheme.and_then(|name| Scheme::named(name.trim_end_matches("+srv")));
    // A password that should have been escaped may hold a slash: where one is expected, all before the last @ is it.
    let all = scheme.is_some_and(Scheme::has_login);
    let most = if all { rest.len() } else { rest.find(['/', '?', '#']).unwrap_or(rest.len()) };
    let Some(at) = rest[..most].rfind('@') else { return word.to_owned() };
    match rest[..at].find(':') {
        Some(colon) => format!("{}{}:{HIDDEN}{}", &word[..start], &rest[..colon], &rest[at..]),
        None if scheme == Some(Scheme::Nats) => format!("{}:{HIDDEN}{}", &word[..start], &rest[at..]),
        None => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_nowhere_to_be_read() {
        let login = Login::parse("us%40er:p%3Ass%2F").unwrap();
        assert_eq!((login.user.as_str(), login.password.as_ref().unwrap().reveal()), ("us@er", "p:ss/"));
        let shown = format!("{login} {login:?} {}", serde_json::to_string(&login).unwrap());
        assert!(!shown.contains("p:ss") && !shown.contains("%3A"), "{shown}");
        assert!(shown.starts_with("us%40er:*** "), "{shown}");
    }

    #[test]
    fn escapes_that_are_none() {
        for bad in ["%", "%4", "%zz", "%+1", "%00", "%ff"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
        assert_eq!(decoded("a%25b%C3%A9").unwrap(), "a%bé");
    }

    #[test]
    fn a_password_in_a_word() {
        for (word, shown) in [
            ("postgres://u:secret@h:5432/db", "postgres://u:***@h:5432/db"),
            ("postgresql://u:se/cr@et@h/db", "postgresql://u:***@h/db"),
            ("postgres://u@h/db", "postgres://u@h/db"),
            ("u:secret@h", "u:***@h"),
            ("http://u:secret@h/", "http://u:***@h/"),
            ("http://h:80/a@b", "http://h:80/a@b"),
            ("tcp://127.0.0.1:7000", "tcp://127.0.0.1:7000"),
            ("nats://token@h", "nats://:***@h"),
            ("redis://u:se/cr@et@h", "redis://u:***@h"),
            ("mongodb+srv://u:se/cr@et@h/?w=1", "mongodb+srv://u:***@h/?w=1"),
            ("--metrics=http://u:secret@h/", "--metrics=http://u:***@h/"),
            ("--quiet", "--quiet"),
        ] {
            assert_eq!(without_password(word), shown);
        }
    }
}

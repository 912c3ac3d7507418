//! Which server is asked about? The URL, read and checked.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The schemes that the drivers so far speak, each with its default port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Bytes over TCP: an echo, or `--send` and `--expect`.
    Tcp,
    /// The same over TLS.
    Tls,
    /// HTTP/1.1 keep-alive.
    Http,
    /// HTTP/1.1 keep-alive over TLS.
    Https,
    /// WebSocket (RFC 6455).
    Ws,
    /// WebSocket over TLS.
    Wss,
    /// Server-sent events (WHATWG HTML, 9.2).
    Sse,
    /// Server-sent events over TLS.
    Sses,
}

impl Scheme {
    /// All schemes, in the order in which help and docs list them.
    pub const ALL: &[Self] =
        &[Self::Tcp, Self::Tls, Self::Http, Self::Https, Self::Ws, Self::Wss, Self::Sse, Self::Sses];

    /// As written in a URL.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Sse => "sse",
            Self::Sses => "sses",
        }
    }

    /// Whether TLS comes before the protocol.
    pub const fn is_tls(self) -> bool {
        matches!(self, Self::Tls | Self::Https | Self::Wss | Self::Sses)
    }

    /// The same protocol without TLS: the name of its driver.
    pub const fn plain(self) -> Self {
        match self {
            Self::Tcp | Self::Tls => Self::Tcp,
            Self::Http | Self::Https => Self::Http,
            Self::Ws | Self::Wss => Self::Ws,
            Self::Sse | Self::Sses => Self::Sse,
        }
    }

    /// The port that a URL without one means; `None` where the protocol has no customary one.
    pub const fn default_port(self) -> Option<u16> {
        match self {
            Self::Tcp | Self::Tls => None,
            Self::Http | Self::Ws | Self::Sse => Some(80),
            Self::Https | Self::Wss | Self::Sses => Some(443),
        }
    }

    /// The path that a URL without one means here: where the node serves it.
    pub const fn default_path(self) -> &'static str {
        match self.plain() {
            Self::Ws => "/ws",
            Self::Sse => "/events",
            _ => "/",
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// Why a URL cannot be a target.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum TargetError {
    /// There is no `://`.
    #[error("{0:?} has no scheme; write it as tcp://HOST:PORT, ws://HOST:PORT/path …")]
    NoScheme(String),
    /// The scheme is not known.
    #[error("{0:?} is not a scheme that plimsoll speaks; it speaks {1}")]
    UnknownScheme(String, String),
    /// The host is missing.
    #[error("{0:?} names no host")]
    NoHost(String),
    /// The port is missing, and the scheme has no customary one.
    #[error("{0:?} names no port, and {1}:// has no customary one; write {1}://HOST:PORT")]
    NoPort(String, &'static str),
    /// The port is not a number from 1 to 65535.
    #[error("{0:?} has the port {1:?}, which is not a number from 1 to 65535")]
    BadPort(String, String),
    /// A character that cannot stand there.
    #[error("{0:?} holds a space or a control character")]
    BadCharacter(String),
}

/// The server under test, as named by its URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Target {
    /// The protocol.
    pub scheme: Scheme,
    /// A name or an address; IPv6 without its brackets.
    pub host: String,
    /// The port, given or customary.
    pub port: u16,
    /// Path and query, starting with `/`.
    pub path: String,
}

impl Target {
    /// Reads a URL.
    ///
    /// # Errors
    /// Says what is missing or wrong, and how it should be written.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let whole = || url.to_owned();
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(TargetError::BadCharacter(whole()));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| TargetError::NoScheme(whole()))?;
        let scheme =
            Scheme::ALL.iter().copied().find(|s| s.id().eq_ignore_ascii_case(scheme)).ok_or_else(|| {
                let known: Vec<_> = Scheme::ALL.iter().map(|s| s.id()).collect();
                TargetError::UnknownScheme(scheme.to_owned(), known.join(", "))
            })?;
        let rest = rest.split('#').next().unwrap_or_default();
        let (authority, path) = match rest.find(['/', '?']) {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let path = match path {
            "" => scheme.default_path().to_owned(),
            query if query.starts_with('?') => format!("{}{query}", scheme.default_path()),
            path => path.to_owned(),
        };
        let (host, port) = match authority.strip_prefix('[') {
            Some(v6) => {
                let (host, after) = v6.split_once(']').ok_or_else(|| TargetError::NoHost(whole()))?;
                (host, after.strip_prefix(':'))
            }
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        if host.is_empty() {
            return Err(TargetError::NoHost(whole()));
        }
        let port = match port {
            Some(port) => port
                .parse::<u16>()
                .ok()
                .filter(|&p| p > 0)
                .ok_or_else(|| TargetError::BadPort(whole(), port.to_owned()))?,
            None => scheme.default_port().ok_or_else(|| TargetError::NoPort(whole(), scheme.id()))?,
        };
        Ok(Self { scheme, host: host.to_owned(), port, path })
    }

    /// `HOST:PORT` as it stands in a URL or a Host header.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.scheme.plain() == Scheme::Tcp { "" } else { &self.path };
        write!(f, "{}://{}{path}", self.scheme, self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn read_and_written_again() {
        for url in ["tcp://127.0.0.1:7000", "wss://example.org:443/ws?a=b", "sse://[::1]:80/events"] {
            assert_eq!(Target::parse(url).unwrap().to_string(), url);
        }
        let ws = Target::parse("ws://chat.example").unwrap();
        assert_eq!((ws.port, ws.path.as_str()), (80, "/ws"));
    }

    #[test]
    fn each_mistake_has_its_message() {
        let says = |url: &str| Target::parse(url).unwrap_err().to_string();
        assert!(says("localhost:80").contains("no scheme"));
        assert!(says("gopher://x").contains("tcp, tls, http"));
        assert!(says("tcp://x").contains("no customary one"));
        assert!(says("tcp://:80").contains("names no host"));
        assert!(says("tcp://x:0").contains("65535"));
        assert!(says("tcp://x:99999").contains("65535"));
        assert!(says("tcp://a b:1").contains("space"));
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,60}") {
            let _ = Target::parse(&text);
            let _ = Target::parse(&format!("ws://{text}"));
        }
    }
}

//! Which server is asked about? The URL, read and checked.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::login::{Login, Password, decoded, without_password};
use crate::ssl_mode::SslMode;

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
    /// Redis (RESP2).
    Redis,
    /// Redis over TLS.
    Rediss,
    /// NATS client protocol.
    Nats,
    /// MQTT 3.1.1, or 5 with `?version=5`.
    Mqtt,
    /// MQTT over TLS.
    Mqtts,
    /// PostgreSQL's own protocol, version 3; whether over TLS is said by the URL's `sslmode`.
    Postgres,
    /// MongoDB's own protocol (OP_MSG); over TLS with `?tls=true`.
    MongoDb,
    /// The thin client protocol of Apache Ignite 3.
    Ignite,
    /// gRPC over HTTP/2.
    Grpc,
    /// gRPC over TLS.
    Grpcs,
}

impl Scheme {
    /// All schemes, in the order in which help and docs list them.
    pub const ALL: &[Self] = &[
        Self::Tcp,
        Self::Tls,
        Self::Http,
        Self::Https,
        Self::Ws,
        Self::Wss,
        Self::Sse,
        Self::Sses,
        Self::Redis,
        Self::Rediss,
        Self::Nats,
        Self::Mqtt,
        Self::Mqtts,
        Self::Postgres,
        Self::MongoDb,
        Self::Ignite,
        Self::Grpc,
        Self::Grpcs,
    ];

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
            Self::Redis => "redis",
            Self::Rediss => "rediss",
            Self::Nats => "nats",
            Self::Mqtt => "mqtt",
            Self::Mqtts => "mqtts",
            Self::Postgres => "postgres",
            Self::MongoDb => "mongodb",
            Self::Ignite => "ignite",
            Self::Grpc => "grpc",
            Self::Grpcs => "grpcs",
        }
    }

    /// The scheme of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        // PostgreSQL's own documentation has both.
        let name = if name.eq_ignore_ascii_case("postgresql") { "postgres" } else { name };
        Self::ALL.iter().copied().find(|scheme| scheme.id().eq_ignore_ascii_case(name))
    }

    /// Whether TLS comes before the protocol.
    pub const fn is_tls(self) -> bool {
        matches!(
            self,
            Self::Tls | Self::Https | Self::Wss | Self::Sses | Self::Rediss | Self::Mqtts | Self::Grpcs
        )
    }

    /// The same protocol without TLS: the name of its driver.
    pub const fn plain(self) -> Self {
        match self {
            Self::Tcp | Self::Tls => Self::Tcp,
            Self::Http | Self::Https => Self::Http,
            Self::Ws | Self::Wss => Self::Ws,
            Self::Sse | Self::Sses => Self::Sse,
            Self::Redis | Self::Rediss => Self::Redis,
            Self::Nats => Self::Nats,
            Self::Mqtt | Self::Mqtts => Self::Mqtt,
            Self::Postgres => Self::Postgres,
            Self::MongoDb => Self::MongoDb,
            Self::Ignite => Self::Ignite,
            Self::Grpc | Self::Grpcs => Self::Grpc,
        }
    }

    /// The port that a URL without one means; `None` where the protocol has no customary one.
    pub const fn default_port(self) -> Option<u16> {
        match self {
            Self::Tcp | Self::Tls => None,
            Self::Http | Self::Ws | Self::Sse => Some(80),
            // What grpc-go takes where a name has no port; without TLS, the examples of gRPC have 50051.
            Self::Https | Self::Wss | Self::Sses | Self::Grpcs => Some(443),
            Self::Redis | Self::Rediss => Some(6379),
            Self::Nats => Some(4222),
            Self::Mqtt => Some(1883),
            Self::Mqtts => Some(8883),
            Self::Postgres => Some(5432),
            Self::MongoDb => Some(27017),
            Self::Ignite => Some(10_800),
            Self::Grpc => Some(50_051),
        }
    }

    /// The path that a URL without one means here: where the node serves it. Empty where the protocol has no paths.
    pub const fn default_path(self) -> &'static str {
        match self.plain() {
            Self::Ws => "/ws",
            Self::Sse => "/events",
            Self::Redis | Self::Nats | Self::Mqtt | Self::Ignite | Self::Grpc => "",
            _ => "/",
        }
    }

    /// Whether a user and a password in the URL mean a login.
    pub const fn has_login(self) -> bool {
        matches!(
            self.plain(),
            Self::Redis | Self::Nats | Self::Mqtt | Self::Postgres | Self::MongoDb | Self::Ignite
        )
    }

    /// What is agreed on within TLS before the protocol begins (ALPN, RFC 7301); `None`: nothing.
    pub const fn alpn(self) -> Option<&'static [u8]> {
        match self {
            Self::Grpcs => Some(b"h2"),
            _ => None,
        }
    }

    /// Whether the node speaks it.
    pub const fn is_served(self) -> bool {
        matches!(self.plain(), Self::Tcp | Self::Http | Self::Ws | Self::Sse | Self::Grpc)
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
    /// What stands before the `@` cannot be read.
    #[error("{0:?} has a user or a password that cannot be read; write % in them as %25, @ as %40, / as %2F")]
    BadLogin(String),
    /// A version of the protocol that no driver speaks.
    #[error("{0:?} asks for version {1:?}; MQTT is spoken as 3.1.1 (the default) or 5 (?version=5)")]
    BadVersion(String, String),
    /// A character that cannot stand there.
    #[error("{0:?} holds a space or a control character")]
    BadCharacter(String),
    /// A user where the protocol knows none.
    #[error("{0:?} names a user, and {1}:// has no login; leave out what stands before the @")]
    NoLogin(String, &'static str),
    /// The same where metadata stands for a login.
    #[error(
        "{0:?} names a user, which gRPC has no place for; leave out what stands before the @, and log in with \
         --metadata 'authorization=Bearer TOKEN' beside --call"
    )]
    LoginIsMetadata(String),
    /// No user where the protocol needs one.
    #[error("{0:?} names no user; write it as {1}://USER:PASSWORD@HOST/DATABASE")]
    NoUser(String, &'static str),
    /// A `%` that escapes nothing.
    #[error(
        "{0:?} has a % that is not followed by the two hexadecimal digits of a character; write % itself as %25"
    )]
    BadEscape(String),
    /// A setting behind the `?` that has no meaning here.
    #[error("{0:?} asks for {1:?}; what can be asked for is {2}")]
    BadOption(String, String, &'static str),
    /// Several servers, or names that stand for several.
    #[error(
        "{0:?} names a cluster, and each connection goes to one server; write that one as \
         mongodb://USER:PASSWORD@HOST:PORT/DATABASE"
    )]
    Cluster(String),
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
    /// Path and query, starting with `/`; where the protocol has no paths, only a query or nothing.
    pub path: String,
    /// Whom connections log in as, where the protocol has a login.
    #[serde(default)]
    pub login: Option<Login>,
}

impl Target {
    /// Reads a URL.
    ///
    /// # Errors
    /// Says what is missing or wrong, and how it should be written.
    pub fn parse(url: &str) -> Result<Self, TargetError> {
        let whole = || without_password(url);
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(TargetError::BadCharacter(whole()));
        }
        let (scheme, rest) = url.split_once("://").ok_or_else(|| TargetError::NoScheme(whole()))?;
        if scheme.eq_ignore_ascii_case("mongodb+srv") {
            return Err(TargetError::Cluster(whole()));
        }
        let scheme = Scheme::named(scheme).ok_or_else(|| {
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
        let (login, authority) = match authority.rsplit_once('@') {
            Some(_) if scheme.plain() == Scheme::Grpc => return Err(TargetError::LoginIsMetadata(whole())),
            Some(_) if !scheme.has_login() => return Err(TargetError::NoLogin(whole(), scheme.id())),
            // Its clients take `nats://TOKEN@HOST` for a token, which is as secret as a password.
            Some((token, rest)) if scheme == Scheme::Nats && !token.contains(':') => {
                (Some(Login::parse(&format!(":{token}"))), rest)
            }
            Some((login, rest)) => (Some(Login::parse(login)), rest),
            None if scheme.has_login() && path.contains('@') => return Err(TargetError::BadLogin(whole())),
            None => (None, authority),
        };
        let login = match login {
            Some(None) => return Err(TargetError::BadLogin(whole())),
            Some(login) => login.filter(|login| !login.user.is_empty() || login.password.is_some()),
            None => None,
        };
        let nobody = match scheme {
            Scheme::Postgres => login.as_ref().is_none_or(|login| login.user.is_empty()),
            Scheme::MongoDb => login.as_ref().is_some_and(|login| login.user.is_empty()),
            _ => false,
        };
        if nobody {
            return Err(TargetError::NoUser(whole(), scheme.id()));
        }
        if scheme == Scheme::MongoDb && authority.contains(',') {
            return Err(TargetError::Cluster(whole()));
        }
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
        let target = Self { scheme, host: host.to_owned(), port, path, login };
        if scheme == Scheme::Postgres {
            target.database().ok_or_else(|| TargetError::BadEscape(whole()))?;
            if let Some(bad) = target.options().find(|option| SslMode::of(option).is_none()) {
                let known = "sslmode=disable, sslmode=require or sslmode=verify-full";
                return Err(TargetError::BadOption(whole(), bad.to_owned(), known));
            }
        }
        for (of, name, values, known) in [
            (Scheme::Mqtt, "qos", &["0", "1"][..], "qos=0 or qos=1"),
            (Scheme::Nats, "tls", &["true"][..], "tls=true"),
        ] {
            if scheme.plain() == of
                && let Some(value) = target.query(name)
                && !values.contains(&value)
            {
                return Err(TargetError::BadOption(whole(), format!("{name}={value}"), known));
            }
        }
        if scheme == Scheme::MongoDb {
            target.check_mongodb(whole)?;
        }
        match target.query("version") {
            Some(version) if scheme.plain() == Scheme::Mqtt && !matches!(version, "3.1.1" | "5") => {
                Err(TargetError::BadVersion(whole(), version.to_owned()))
            }
            _ => Ok(target),
        }
    }

    /// Whom connections log in as, if somebody was named.
    pub fn user(&self) -> Option<&str> {
        self.login.as_ref().map(|login| login.user.as_str()).filter(|user| !user.is_empty())
    }

    /// The password, for the server alone.
    pub fn password(&self) -> Option<&str> {
        self.login.as_ref()?.password.as_ref().map(Password::reveal)
    }

    /// The value of `name=value` in the query.
    pub fn query(&self, name: &str) -> Option<&str> {
        self.options().find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    /// The database that the path names; else, as PostgreSQL has it, the one that is called like the user, or MongoDB's
    /// `test`. `None` if neither is there, or the path is no text.
    pub fn database(&self) -> Option<String> {
        match self.database_as_written() {
            "" if self.scheme == Scheme::MongoDb => Some("test".to_owned()),
            "" => Some(self.login.as_ref()?.user.clone()),
            name => decoded(name),
        }
    }

    /// What stands for a database in the path, if anything does.
    pub(crate) fn database_as_written(&self) -> &str {
        self.path.split('?').next().unwrap_or_default().trim_start_matches('/')
    }

    /// Whether its URL has connections encrypted, and then whether any certificate will do, `insecure` being the user's
    /// word on that; `None`: they are not encrypted, unless the server asks for it.
    pub fn encrypted(&self, insecure: bool) -> Option<bool> {
        match (self.scheme, self.ssl_mode()) {
            (Scheme::Postgres, SslMode::Disable) => None,
            // But to whom is not asked: as libpq has it.
            (Scheme::Postgres, SslMode::Require) => Some(true),
            (Scheme::Postgres, SslMode::VerifyFull) => Some(insecure),
            _ => self.begins_with_tls().then_some(insecure),
        }
    }

    /// Whether a PostgreSQL connection is to be encrypted; the last that the URL says counts.
    pub fn ssl_mode(&self) -> SslMode {
        self.options().filter_map(SslMode::of).last().unwrap_or_default()
    }

    /// What stands behind the `?`, cut at each `&`.
    pub(crate) fn options(&self) -> impl Iterator<Item = &str> {
        let query = self.path.split_once('?').map_or("", |(_, query)| query);
        query.split('&').filter(|option| !option.is_empty())
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
    /// As a URL; a password is hidden.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.scheme.plain() == Scheme::Tcp { "" } else { &self.path };
        write!(f, "{}://", self.scheme)?;
        if let Some(login) = &self.login {
            write!(f, "{login}@")?;
        }
        write!(f, "{}{path}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn read_and_written_again() {
        for url in [
            "tcp://127.0.0.1:7000",
            "wss://example.org:443/ws?a=b",
            "sse://[::1]:80/events",
            "redis://127.0.0.1:6379",
            "nats://[::1]:4222",
            "mqtts://a%40b@broker:8883?version=5",
            "ignite://127.0.0.1:10800",
            "grpcs://127.0.0.1:7051",
        ] {
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
        assert!(says("tcp://u@x:1").contains("has no login"));
        assert!(says("postgres://x/db").contains("names no user"));
        assert!(says("postgres://:p@x/db").contains("names no user"));
        assert!(says("postgres://u:%@x/db").contains("%25"));
        assert!(says("postgres://u@x/%ff").contains("%25"));
        assert!(says("postgres://u@x/db?sslmode=prefer").contains("sslmode=require"));
        assert!(says("postgres://u@x/db?connect_timeout=1").contains("connect_timeout=1"));
        assert!(says("ws://me:pass@h").contains("no login"));
        assert!(says("grpc://me:pass@h").contains("--metadata"));
        assert!(says("redis://me:100%@h").contains("%25"));
        assert!(says("mqtt://h?version=4").contains(r#"version "4""#));
        assert!(says("mongodb://:p@x/db").contains("names no user"));
        assert!(
            says("mqtts://h?version=5&qos=2").contains(r#""qos=2"; what can be asked for is qos=0 or qos=1"#)
        );
        assert!(says("nats://h?tls=no").contains("what can be asked for is tls=true"));
    }

    #[test]
    fn a_login_its_database_and_its_encryption() {
        let target = Target::parse("postgresql://ann%2Fb:pa%40ss@db.local/shop%20a?sslmode=require").unwrap();
        let login = target.login.as_ref().unwrap();
        assert_eq!((login.user.as_str(), login.password.as_ref().unwrap().reveal()), ("ann/b", "pa@ss"));
        assert_eq!(
            (target.host.as_str(), target.port, target.ssl_mode()),
            ("db.local", 5432, SslMode::Require)
        );
        assert_eq!(target.database().unwrap(), "shop a");
        assert_eq!(target.to_string(), "postgres://ann%2Fb:***@db.local:5432/shop%20a?sslmode=require");
        let target = Target::parse("postgres://ann@[::1]:6432").unwrap();
        assert_eq!((target.database().unwrap().as_str(), target.ssl_mode()), ("ann", SslMode::Disable));
        assert_eq!(target.to_string(), "postgres://ann@[::1]:6432/");
    }

    #[test]
    fn a_url_says_whether_and_for_whom_connections_are_encrypted() {
        let of = |url: &str| [false, true].map(|insecure| Target::parse(url).unwrap().encrypted(insecure));
        assert_eq!(of("postgres://u@h/d"), [None, None]);
        assert_eq!(of("postgres://u@h/d?sslmode=require"), [Some(true), Some(true)]);
        assert_eq!(of("postgres://u@h/d?sslmode=verify-full"), [Some(false), Some(true)]);
        assert_eq!(of("redis://h"), [None, None]);
        assert_eq!(of("rediss://h"), [Some(false), Some(true)]);
        assert_eq!(of("mongodb://h/?tls=true"), [Some(false), Some(true)]);
    }

    #[test]
    fn no_message_quotes_a_password() {
        for url in [
            "postgres://u:secret@x:0/db",
            "postgres://u:secret@/db",
            "postgres://u:secret %@x",
            "postgres://u:sec/ret@x",
            "postgres://:secret@x",
            "postgres://u:secret@x?a=b",
            "postgres://u:secret%@x",
            "tcp://u:secret@x:1",
            "u:secret@x",
        ] {
            let text = format!("{0} {0:?}", Target::parse(url).unwrap_err());
            assert!(!text.contains("sec"), "{text}");
        }
    }

    #[test]
    fn a_login_is_read_and_its_password_never_shown() {
        let of = |url: &str| {
            let target = Target::parse(url).unwrap();
            (target.user().map(str::to_owned), target.password().map(str::to_owned), target.to_string())
        };
        let some = |text: &str| Some(text.to_owned());
        let shown = |text: &str| text.to_owned();
        assert_eq!(of("redis://me:p%40ss%3a@h:1"), (some("me"), some("p@ss:"), shown("redis://me:***@h:1")));
        assert_eq!(of("redis://:a:b@h"), (None, some("a:b"), shown("redis://:***@h:6379")));
        assert_eq!(of("nats://token@h"), (None, some("token"), shown("nats://:***@h:4222")));
        assert_eq!(of("mqtt://@h"), (None, None, shown("mqtt://h:1883")));
        for bad in [
            "redis://me:hunter2@:1",
            "redis://me:hunter2@h:0",
            "redis://me:hunter2/@h",
            "ws://me:hunter2@h",
            "me:hunter2@h",
            "redis://me:hunter2@h h",
        ] {
            let error = Target::parse(bad).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
        let target = Target::parse("redis://me:hunter2@h").unwrap();
        assert!(!format!("{target:?}").contains("hunter2"));
        assert!(!serde_json::to_string(&target).unwrap().contains("hunter2"));
    }

    proptest! {
        #[test]
        fn never_panics(text in ".{0,60}") {
            let _ = Target::parse(&text);
            let _ = Target::parse(&format!("ws://{text}"));
            let _ = Target::parse(&format!("postgres://{text}"));
            let _ = Target::parse(&format!("mongodb://{text}"));
            let _ = without_password(&text);
        }
    }
}

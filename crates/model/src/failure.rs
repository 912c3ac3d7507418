//! How can a connection fail, and whose failure is it?

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whose failure it is. The verdict of a run hangs on this more than on any count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Origin {
    /// The machine or process that Plimsoll itself runs on.
    Generator,
    /// The target or something in front of it.
    Target,
    /// Either: the evidence of one connection does not decide.
    Unknown,
}

/// The ways in which one connection can fail. The names are the keys of `connections.failed` in a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FailureKind {
    /// `EADDRNOTAVAIL`: no local port was left for this source and destination.
    NoPorts,
    /// `EMFILE` or `ENFILE` on our side.
    NoDescriptors,
    /// `ENOBUFS` or `ENOMEM` on our side.
    NoMemory,
    /// `ECONNREFUSED`: nothing listens, or a full queue answered with a reset.
    Refused,
    /// `ENETUNREACH` or `EHOSTUNREACH`.
    Unreachable,
    /// TCP did not open within the patience (SYN retries unanswered).
    ConnectTimeout,
    /// TCP opened, but the handshake or login never finished.
    ReadyTimeout,
    /// The TLS handshake failed.
    Tls,
    /// The server's certificate is not valid for this name or not trusted.
    TlsCertificate,
    /// The server answered with what the protocol does not allow, or with an answer to another question.
    Protocol,
    /// The protocol's own refusal: HTTP 503, SQLSTATE 53300, "max number of clients reached".
    ServerRefused,
    /// The server did not accept user, password or database, or asks for a login that the URL does not have or that is
    /// not known here.
    LoginRefused,
    /// The server closed before the connection was ready.
    ClosedEarly,
    /// The server closed a held connection in good order (FIN).
    Closed,
    /// `ECONNRESET` or `EPIPE`.
    Reset,
    /// A round trip on a held connection did not come back within the patience.
    Silent,
    /// The worker that drove this connection died.
    WorkerDied,
    /// Any other error of the operating system; the example text has the errno.
    Os,
}

impl FailureKind {
    /// Every kind, in the order in which they are reported.
    pub const ALL: &[Self] = &[
        Self::NoPorts,
        Self::NoDescriptors,
        Self::NoMemory,
        Self::Refused,
        Self::Unreachable,
        Self::ConnectTimeout,
        Self::ReadyTimeout,
        Self::Tls,
        Self::TlsCertificate,
        Self::Protocol,
        Self::ServerRefused,
        Self::LoginRefused,
        Self::ClosedEarly,
        Self::Closed,
        Self::Reset,
        Self::Silent,
        Self::WorkerDied,
        Self::Os,
    ];

    /// The key used in results.
    pub const fn id(self) -> &'static str {
        match self {
            Self::NoPorts => "no-ports",
            Self::NoDescriptors => "no-descriptors",
            Self::NoMemory => "no-memory",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::ConnectTimeout => "connect-timeout",
            Self::ReadyTimeout => "ready-timeout",
            Self::Tls => "tls",
            Self::TlsCertificate => "tls-certificate",
            Self::Protocol => "protocol",
            Self::ServerRefused => "server-refused",
            Self::LoginRefused => "login-refused",
            Self::ClosedEarly => "closed-early",
            Self::Closed => "closed",
            Self::Reset => "reset",
            Self::Silent => "silent",
            Self::WorkerDied => "worker-died",
            Self::Os => "os",
        }
    }

    /// What it means, as the end of the sentence "N connections …".
    pub const fn says(self) -> &'static str {
        match self {
            Self::NoPorts => "found no local port left",
            Self::NoDescriptors => "found no descriptor left in the generator",
            Self::NoMemory => "found no memory left in the generator's kernel",
            Self::Refused => "were refused",
            Self::Unreachable => "found no route to the target",
            Self::ConnectTimeout => "were never accepted by the target's kernel",
            Self::ReadyTimeout => "opened, but their handshake was never answered",
            Self::Tls => "failed in the TLS handshake",
            Self::TlsCertificate => "met a certificate that is not valid for the target",
            Self::Protocol => "got an answer that the protocol does not allow",
            Self::ServerRefused => "were turned away by the server's own words",
            Self::LoginRefused => "were not let in by the server's login",
            Self::ClosedEarly => "were closed by the server before they were ready",
            Self::Closed => "were closed by the server while held",
            Self::Reset => "were reset",
            Self::Silent => "stopped answering",
            Self::WorkerDied => "were lost with a worker of the generator",
            Self::Os => "failed with an error of the operating system",
        }
    }

    /// Whose failure it is.
    pub const fn origin(self) -> Origin {
        match self {
            Self::NoPorts | Self::NoDescriptors | Self::NoMemory | Self::WorkerDied => Origin::Generator,
            Self::Unreachable | Self::Os => Origin::Unknown,
            _ => Origin::Target,
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.id())
    }
}

/// One connection's end: its kind and, where there are any, the words that came with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub kind: FailureKind,
    /// The server's own words or the errno's; empty where the kind says it all.
    pub text: String,
}

impl Failure {
    /// A failure with its words.
    pub fn new(kind: FailureKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// Failures counted by kind, with one example's words for each kind.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// How many of each kind.
    pub count: BTreeMap<FailureKind, u64>,
    /// The first words seen for a kind.
    pub example: BTreeMap<FailureKind, String>,
}

impl Tally {
    /// Counts one failure; keeps its words if they are the first of its kind.
    pub fn add(&mut self, failure: &Failure) {
        *self.count.entry(failure.kind).or_default() += 1;
        if !failure.text.is_empty() {
            self.example.entry(failure.kind).or_insert_with(|| failure.text.clone());
        }
    }

    /// Counts `n` failures of one kind that left no words.
    pub fn add_many(&mut self, kind: FailureKind, n: u64) {
        if n > 0 {
            *self.count.entry(kind).or_default() += n;
        }
    }

    /// All failures together.
    pub fn total(&self) -> u64 {
        self.count.values().sum()
    }

    /// The count of one kind.
    pub fn of(&self, kind: FailureKind) -> u64 {
        self.count.get(&kind).copied().unwrap_or(0)
    }

    /// Adds another tally to this one.
    pub fn merge(&mut self, other: &Self) {
        for (&kind, &n) in &other.count {
            self.add_many(kind, n);
        }
        for (&kind, text) in &other.example {
            self.example.entry(kind).or_insert_with(|| text.clone());
        }
    }

    /// What was counted here and not yet in `before` (an earlier state of the same tally).
    pub fn since(&self, before: &Self) -> Self {
        let mut out = Self::default();
        for (&kind, &n) in &self.count {
            out.add_many(kind, n.saturating_sub(before.of(kind)));
        }
        for (&kind, text) in &self.example {
            if out.of(kind) > 0 {
                out.example.insert(kind, text.clone());
            }
        }
        out
    }
}

//! What is a connection told to do, beside showing that it lives?

use std::collections::BTreeMap;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::login::Password;

/// One real operation: a message and its echo, a query, a command, a call. What it is stands with each protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Operation {
    /// What is said, in the protocol's own language; `None`: what its driver says on its own.
    pub text: Option<String>,
    /// Over gRPC: the call to make; `None`: the echo of the node.
    #[serde(default)]
    pub call: Option<Call>,
    /// Over PostgreSQL: the scripts to run; `None`: the text.
    #[serde(default)]
    pub scripts: Option<Scripts>,
}

/// Scripts of pgbench, as they are. One operation is one run of one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Scripts {
    /// Of which one is drawn for each operation, by their weights.
    pub scripts: Vec<Script>,
    /// How statements are sent.
    pub mode: QueryMode,
    /// What `:name` stands for before a script sets it: `scale`, `default_seed`, `random_seed` and those of `--define`.
    pub variables: BTreeMap<String, String>,
}

/// One script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Script {
    /// Its file, or the name of one that is built in.
    pub name: String,
    /// Its lines.
    pub text: String,
    /// How often it is drawn, against the others.
    pub weight: u32,
}

/// How statements are sent ("Frontend/Backend Protocol" of the PostgreSQL documentation).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum QueryMode {
    /// As text, with values written into it.
    #[default]
    Simple,
    /// Parsed, bound and executed each time.
    Extended,
    /// Parsed once for each connection.
    Prepared,
}

/// A call of one gRPC method, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Call {
    /// `/package.Service/Method`.
    pub path: String,
    /// The request, encoded.
    pub request: Vec<u8>,
    /// How many messages go and come.
    pub kind: CallKind,
    /// What is sent beside the request, such as `authorization`.
    pub metadata: Vec<Metadata>,
    /// Of a bidirectional method: how many streams each connection keeps open.
    pub streams: u32,
}

/// How many messages a gRPC method takes and gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum CallKind {
    /// One, and one comes back: each operation is a stream of its own.
    Unary,
    /// One, and any number come back: each operation is a stream of its own, over when the server ends it.
    ServerStreaming,
    /// Any number both ways: streams stay open, and each operation is a message that one message answers.
    Bidirectional,
}

/// One header field of a call or a request. The value may be a secret: a stored result only says that there was one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Metadata {
    /// In lower case, as HTTP/2 has it.
    pub name: String,
    /// As it is sent.
    pub value: Password,
}

/// Fields by which HTTP tells where a message ends and what the connection is: they are the driver's.
const FRAMING: [&str; 6] = [
    "connection",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
];

impl FromStr for Metadata {
    type Err = String;

    /// Reads `name=value` (RFC 9110, section 5.1 and 5.5): a token, and a value on one line.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, value) =
            text.split_once('=').ok_or("it has no =; write it as 'authorization=Bearer TOKEN'")?;
        let name = name.trim().to_ascii_lowercase();
        let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(format!("{name:?} is no name of a header field"));
        }
        if FRAMING.contains(&name.as_str()) {
            return Err(format!(
                "{name} is not yours to set: it says where a message ends, or what the connection is"
            ));
        }
        if value.bytes().any(|b| b != b'\t' && b.is_ascii_control()) {
            return Err(format!("the value of {name} holds a control character"));
        }
        Ok(Self { name, value: value.trim().to_owned().into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_field_is_a_pair_on_one_line() {
        let read = |text: &str| text.parse::<Metadata>();
        let pair = read("Authorization= Bearer a=b ").unwrap();
        assert_eq!((pair.name.as_str(), pair.value.reveal()), ("authorization", "Bearer a=b"));
        for (text, why) in [
            ("authorization", "no ="),
            ("=x", "no name"),
            ("a b=x", "no name"),
            ("x=a\r\nHost: b", "control character"),
            ("Content-Length=5", "not yours"),
        ] {
            let said = read(text).unwrap_err();
            assert!(said.contains(why), "{text:?}: {said}");
        }
    }
}

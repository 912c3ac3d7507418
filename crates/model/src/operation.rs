//! What is a connection told to do, beside showing that it lives?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One real operation: a message and its echo, a query, a command, a call. What it is stands with each protocol.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Operation {
    /// What is said, in the protocol's own language; `None`: what its driver says on its own.
    pub text: Option<String>,
}

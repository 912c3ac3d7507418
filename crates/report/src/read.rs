//! Is this file a result that this version understands?

use model::RunResult;
use model::result::SCHEMA;
use serde::Deserialize;
use thiserror::Error;

/// Why stored bytes are not a result; completes "failed to read FILE: …".
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ReadError {
    /// The bytes are not JSON at all, or are cut off.
    #[error("not JSON: {reason} at line {line}, column {column}")]
    NotJson {
        /// What the parser expected.
        reason: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
    /// JSON, but no document of Plimsoll's.
    #[error("not a plimsoll result: {reason}; results are written by `plimsoll hold … --json FILE`")]
    NotAResult {
        /// Which mark of a result is missing.
        reason: String,
    },
    /// Written by a later version.
    #[error(
        "the result has schema {found}, written by plimsoll {plimsoll}; this plimsoll reads schema {SCHEMA}: \
         use plimsoll {plimsoll} or later"
    )]
    Newer {
        /// The document's schema.
        found: u64,
        /// The version of Plimsoll that wrote it.
        plimsoll: String,
    },
    /// Says that it is a result of this schema, but a field is missing or of the wrong kind.
    #[error("a plimsoll result of schema {SCHEMA}, but damaged: {reason} at line {line}, column {column}")]
    Damaged {
        /// Which field, and what is wrong with it.
        reason: String,
        /// Line, from 1.
        line: usize,
        /// Column, from 1.
        column: usize,
    },
}

/// The two fields that every version of the document has.
#[derive(Deserialize)]
struct Head {
    plimsoll: Option<serde_json::Value>,
    schema: Option<serde_json::Value>,
}

/// Reads a stored result.
///
/// The version is looked at before anything else, so that a later document is named as such rather than
/// reported as damaged.
///
/// # Errors
/// Says whether the bytes are no JSON, no result, a later one or a damaged one, and where.
pub fn read(json: &[u8]) -> Result<RunResult, ReadError> {
    let head: Head = serde_json::from_slice(json).map_err(|error| match error.classify() {
        serde_json::error::Category::Data => {
            ReadError::NotAResult { reason: "it is not an object with `plimsoll` and `schema`".to_owned() }
        }
        _ => ReadError::NotJson { reason: reason(&error), line: error.line(), column: error.column() },
    })?;
    let Some(plimsoll) = head.plimsoll.as_ref().and_then(|v| v.as_str()) else {
        return Err(ReadError::NotAResult {
            reason: "the field `plimsoll` (the version that wrote it) is missing".to_owned(),
        });
    };
    let Some(schema) = head.schema.as_ref().and_then(serde_json::Value::as_u64) else {
        return Err(ReadError::NotAResult {
            reason: "the field `schema` (a whole number) is missing".to_owned(),
        });
    };
    if schema > u64::from(SCHEMA) {
        return Err(ReadError::Newer { found: schema, plimsoll: plimsoll.to_owned() });
    }
    serde_json::from_slice(json).map_err(|error| ReadError::Damaged {
        reason: reason(&error),
        line: error.line(),
        column: error.column(),
    })
}

/// The parser's words without the position that it appends to them.
fn reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

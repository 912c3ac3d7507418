//! Which BSON does a text mean? (MongoDB Extended JSON 2, canonical or relaxed, as its shell and tools write it)

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use crate::bson::{self, Document};

/// What a text must be.
const EXAMPLE: &str = r#"write a command as MongoDB's extended JSON, such as {"find": "c", "limit": 1}"#;

/// Reads a command: an object, not empty, as its first name is what it does.
///
/// # Errors
/// What the text should have been, for a user.
pub(crate) fn command(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(command)) if !command.is_empty() => {
            document(&command)?;
            Ok(command)
        }
        Ok(_) => Err(format!("the operation names no command; {EXAMPLE}")),
        Err(error) => Err(format!("the operation is no JSON ({error}); {EXAMPLE}")),
    }
}

/// Writes an object that stands for itself.
///
/// # Errors
/// Which of its values cannot be written, and why.
pub(crate) fn document(object: &Map<String, Value>) -> Result<Document, String> {
    object.iter().try_fold(Document::default(), |document, (name, value)| put(document, name, value))
}

fn put(to: Document, name: &str, value: &Value) -> Result<Document, String> {
    if name.contains('\0') {
        return Err(format!("the operation has a NUL in the name {name:?}, which BSON has no way to write"));
    }
    Ok(match value {
        Value::Null => to.with(bson::NULL, name, &[]),
        Value::Bool(truth) => to.boolean(name, *truth),
        Value::String(text) => to.text(name, text),
        Value::Array(values) => {
            let mut array = Document::default();
            for (at, value) in values.iter().enumerate() {
                array = put(array, &at.to_string(), value)?;
            }
            to.with(bson::ARRAY, name, &array.bytes())
        }
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(n), _) => match i32::try_from(n) {
                Ok(n) => to.int(name, n),
                Err(_) => to.with(bson::INT64, name, &n.to_le_bytes()),
            },
            (None, n) => to.with(bson::DOUBLE, name, &n.unwrap_or(f64::NAN).to_le_bytes()),
        },
        Value::Object(object) => match object.iter().next().filter(|(key, _)| is_kind(key)) {
            Some((key, _)) => {
                let (kind, value) = special(key, object).ok_or_else(|| {
                    format!("the operation has {value} for {name:?}, which is no {key} that can be written")
                })?;
                to.with(kind, name, &value)
            }
            None => to.document(name, &document(object)?),
        },
    })
}

/// Whether a first key says that an object stands for another kind of value. `$gt`, `$set` and the like do not.
fn is_kind(key: &str) -> bool {
    const KINDS: &[&str] = &[
        "$oid",
        "$numberInt",
        "$numberLong",
        "$numberDouble",
        "$numberDecimal",
        "$binary",
        "$uuid",
        "$date",
        "$timestamp",
        "$regularExpression",
        "$minKey",
        "$maxKey",
        "$undefined",
        "$symbol",
        "$code",
        "$dbPointer",
    ];
    KINDS.contains(&key)
}

/// The kind of value that such an object stands for, and its bytes; `None`: it is not written so, or not known here.
fn special(key: &str, object: &Map<String, Value>) -> Option<(u8, Vec<u8>)> {
    let value = object.get(key).filter(|_| object.len() == 1)?;
    let text = value.as_str();
    Some(match key {
        "$oid" => (bson::OBJECT_ID, unhex(text?).filter(|id| id.len() == 12)?),
        "$numberInt" => (bson::INT32, text?.parse::<i32>().ok()?.to_le_bytes().to_vec()),
        "$numberLong" => (bson::INT64, text?.parse::<i64>().ok()?.to_le_bytes().to_vec()),
        // Rust and JSON have the same names for what is no number
        "$numberDouble" => (bson::DOUBLE, text?.parse::<f64>().ok()?.to_le_bytes().to_vec()),
        "$binary" => {
            let subtype = unhex(value.get("subType")?.as_str()?)?;
            let bytes = STANDARD.decode(value.get("base64")?.as_str()?).ok()?;
            (bson::BINARY, [&(bytes.len() as u32).to_le_bytes()[..], subtype.get(..1)?, &bytes].concat())
        }
        "$uuid" => {
            let bytes = unhex(&text?.replace('-', "")).filter(|id| id.len() == 16)?;
            (bson::BINARY, [&16u32.to_le_bytes()[..], &[4], &bytes].concat())
        }
        "$date" => {
            let milliseconds = match text {
                Some(text) => text.parse::<jiff::Timestamp>().ok()?.as_millisecond(),
                None => value.get("$numberLong")?.as_str()?.parse().ok()?,
            };
            (bson::DATETIME, milliseconds.to_le_bytes().to_vec())
        }
        "$timestamp" => {
            let [i, t] = ["i", "t"].map(|part| u32::try_from(value.get(part)?.as_u64()?).ok());
            (bson::TIMESTAMP, [i?.to_le_bytes(), t?.to_le_bytes()].concat())
        }
        "$regularExpression" => {
            let [pattern, options] = ["pattern", "options"].map(|part| value.get(part)?.as_str());
            let both = [pattern?, options?].map(|part| (!part.contains('\0')).then_some(part.as_bytes()));
            (bson::REGEX, [both[0]?, b"\0", both[1]?, b"\0"].concat())
        }
        "$minKey" => (bson::MIN_KEY, Vec::new()),
        "$maxKey" => (bson::MAX_KEY, Vec::new()),
        _ => return None,
    })
}

/// The bytes that pairs of hexadecimal digits stand for; one digit alone is one byte.
fn unhex(digits: &str) -> Option<Vec<u8>> {
    let pairs = digits.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            let pair =
                std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u8::from_str_radix(pair, 16).ok()
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of the one element of `{"a": VALUE}`, from its kind to its end.
    fn written(value: &str) -> Vec<u8> {
        let bytes = document(&command(&format!(r#"{{"a": {value}}}"#)).unwrap()).unwrap().bytes();
        assert_eq!(bytes[..4], (bytes.len() as u32).to_le_bytes());
        assert_eq!(bytes.last(), Some(&0));
        bytes[4..bytes.len() - 1].to_vec()
    }

    #[test]
    fn plain_json() {
        assert_eq!(written("null"), b"\x0aa\0");
        assert_eq!(written("true"), b"\x08a\0\x01");
        assert_eq!(written("-2"), b"\x10a\0\xfe\xff\xff\xff");
        assert_eq!(written("2147483648"), b"\x12a\0\0\0\0\x80\0\0\0\0");
        assert_eq!(written("5.05"), b"\x01a\x00333333\x14@");
        assert_eq!(written(r#""x""#), b"\x02a\0\x02\0\0\0x\0");
        assert_eq!(written("[1]"), b"\x04a\0\x0c\0\0\0\x100\0\x01\0\0\0\0");
        assert_eq!(written(r#"{"$gt": 1}"#), b"\x03a\0\x0e\0\0\0\x10$gt\0\x01\0\0\0\0");
    }

    #[test]
    fn kinds_that_json_does_not_have() {
        // the values of the specification's "BSON corpus"
        for (value, bytes) in [
            (
                r#"{"$oid": "56e1fc72e0c917e9c4714161"}"#,
                &b"\x07a\0\x56\xe1\xfc\x72\xe0\xc9\x17\xe9\xc4\x71\x41\x61"[..],
            ),
            (r#"{"$numberInt": "1"}"#, b"\x10a\0\x01\0\0\0"),
            (r#"{"$numberLong": "-1"}"#, b"\x12a\0\xff\xff\xff\xff\xff\xff\xff\xff"),
            (r#"{"$numberDouble": "1.0"}"#, b"\x01a\0\0\0\0\0\0\0\xf0\x3f"),
            (r#"{"$numberDouble": "-Infinity"}"#, b"\x01a\0\0\0\0\0\0\0\xf0\xff"),
            (r#"{"$binary": {"base64": "//8=", "subType": "00"}}"#, b"\x05a\0\x02\0\0\0\0\xff\xff"),
            (
                r#"{"$uuid": "73ffd264-44b3-4c69-90e8-e7d1dfc035d4"}"#,
                b"\x05a\0\x10\0\0\0\x04\x73\xff\xd2\x64\x44\xb3\x4c\x69\x90\xe8\xe7\xd1\xdf\xc0\x35\xd4",
            ),
            (r#"{"$date": "2012-12-24T12:15:30.501Z"}"#, b"\x09a\0\xc5\xd8\xd6\xcc\x3b\x01\0\0"),
            (r#"{"$date": {"$numberLong": "1356351330501"}}"#, b"\x09a\0\xc5\xd8\xd6\xcc\x3b\x01\0\0"),
            (r#"{"$timestamp": {"t": 123456789, "i": 42}}"#, b"\x11a\0\x2a\0\0\0\x15\xcd\x5b\x07"),
            (r#"{"$regularExpression": {"pattern": "abc", "options": "im"}}"#, b"\x0ba\0abc\0im\0"),
            (r#"{"$minKey": 1}"#, b"\xffa\0"),
            (r#"{"$maxKey": 1}"#, b"\x7fa\0"),
        ] {
            assert_eq!(written(value), bytes, "{value}");
        }
    }

    #[test]
    fn what_is_no_command() {
        let says = |text: &str| command(text).unwrap_err();
        for text in ["[]", "1", "{}", "\"find\""] {
            assert!(says(text).contains(r#"names no command; write a command as"#), "{}", says(text));
        }
        assert!(says("find c").contains("is no JSON (expected"), "{}", says("find c"));
        for (text, key) in [
            (r#"{"a": {"$oid": "12"}}"#, "$oid"),
            (r#"{"a": [{"b": {"$numberDecimal": "1"}}]}"#, "$numberDecimal"),
            (r#"{"a": {"$date": "yesterday"}}"#, "$date"),
            (r#"{"a": {"$numberLong": 1}}"#, "$numberLong"),
            (r#"{"a": {"$oid": "56e1fc72e0c917e9c4714161", "b": 1}}"#, "$oid"),
        ] {
            assert!(says(text).contains(&format!("no {key} that can be written")), "{}", says(text));
        }
        assert!(says(r#"{"a\u0000": 1}"#).contains("NUL"));
    }
}

//! Which methods does the node have, and what does it answer to one message of each?

use super::descriptors;
use crate::grpc::reflection::{
    ERROR, ERROR_WORDS, FILE_BY_NAME, FILE_OF_SYMBOL, FILES, FIRST, LIST_SERVICES, METHODS, ORIGINAL,
    SERVICES, VALID_HOST,
};
use crate::grpc::status::{NOT_FOUND, UNIMPLEMENTED};
use crate::protobuf::{self, Fields, Value};

/// `grpc.health.v1.HealthCheckResponse.ServingStatus.SERVING`.
const SERVING: u64 = 1;

/// A method of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// `plimsoll.v1.Messaging/Echo`
    Echo,
    /// `plimsoll.v1.Messaging/Talk`
    Talk,
    /// `grpc.health.v1.Health/Check`
    Check,
    /// `grpc.reflection.v1.ServerReflection/ServerReflectionInfo`, and that of `v1alpha`.
    Reflect,
}

impl Method {
    /// The method of that path.
    pub(super) fn named(path: &[u8]) -> Option<Self> {
        Some(match path {
            b"/plimsoll.v1.Messaging/Echo" => Self::Echo,
            b"/plimsoll.v1.Messaging/Talk" => Self::Talk,
            b"/grpc.health.v1.Health/Check" => Self::Check,
            _ if METHODS.iter().any(|method| method.as_bytes() == path) => Self::Reflect,
            _ => return None,
        })
    }

    /// Whether every message comes back as it is.
    pub(super) fn echoes(self) -> bool {
        matches!(self, Self::Echo | Self::Talk)
    }

    /// Whether exactly one message goes each way.
    pub(super) fn is_unary(self) -> bool {
        matches!(self, Self::Echo | Self::Check)
    }

    /// The answer to one message; `Err`: a status other than OK, with its words.
    pub(super) fn answer(self, message: &[u8]) -> Result<Vec<u8>, (u32, &'static str)> {
        let mut out = Vec::new();
        match self {
            Self::Echo | Self::Talk => out.extend_from_slice(message),
            Self::Check => {
                let service = protobuf::each(message, FIRST).next().unwrap_or_default();
                if !service.is_empty() && !descriptors::services().iter().any(|s| s.as_bytes() == service) {
                    return Err((NOT_FOUND, "unknown service"));
                }
                protobuf::put_number(&mut out, FIRST, SERVING);
            }
            Self::Reflect => reflect(message, &mut out),
        }
        Ok(out)
    }
}

/// Answers one ServerReflectionRequest.
fn reflect(request: &[u8], out: &mut Vec<u8>) {
    if let Some(host) = protobuf::each(request, FIRST).next() {
        protobuf::put_bytes(out, VALID_HOST, host);
    }
    protobuf::put_bytes(out, ORIGINAL, request);
    let asked = Fields(request).find_map(|(field, value)| match (field, value) {
        (FILE_BY_NAME | FILE_OF_SYMBOL | LIST_SERVICES, Value::Bytes(text)) => Some((field, text)),
        _ => None,
    });
    let mut answer = Vec::new();
    let file = match asked {
        Some((LIST_SERVICES, _)) => {
            for service in descriptors::services() {
                let mut named = Vec::new();
                protobuf::put_bytes(&mut named, FIRST, service.as_bytes());
                protobuf::put_bytes(&mut answer, FIRST, &named);
            }
            return protobuf::put_bytes(out, SERVICES, &answer);
        }
        Some((FILE_BY_NAME, name)) => descriptors::by_name(name).ok_or((NOT_FOUND, "there is no such file")),
        Some((_, symbol)) => descriptors::of_symbol(symbol).ok_or((NOT_FOUND, "there is no such symbol")),
        None => Err((UNIMPLEMENTED, "nothing here has extensions")),
    };
    match file {
        Ok(file) => {
            protobuf::put_bytes(&mut answer, FIRST, file);
            protobuf::put_bytes(out, FILES, &answer);
        }
        Err((code, words)) => {
            protobuf::put_number(&mut answer, FIRST, u64::from(code));
            protobuf::put_bytes(&mut answer, ERROR_WORDS, words.as_bytes());
            protobuf::put_bytes(out, ERROR, &answer);
        }
    }
}

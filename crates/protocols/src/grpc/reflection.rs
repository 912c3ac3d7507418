//! What is said to a server that describes its own services? (`grpc.reflection.v1.ServerReflection`; `v1alpha` has the
//! same messages)

use crate::protobuf::{self, Fields, Value};

/// The methods to ask, the newer one first.
pub const METHODS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// Fields of ServerReflectionRequest.
pub(crate) const FILE_BY_NAME: u32 = 3;
pub(crate) const FILE_OF_SYMBOL: u32 = 4;
pub(crate) const LIST_SERVICES: u32 = 7;
/// Fields of ServerReflectionResponse.
pub(crate) const VALID_HOST: u32 = 1;
pub(crate) const ORIGINAL: u32 = 2;
pub(crate) const FILES: u32 = 4;
pub(crate) const SERVICES: u32 = 6;
pub(crate) const ERROR: u32 = 7;
/// The only field, or the first, of the messages within.
pub(crate) const FIRST: u32 = 1;
/// The second field of ErrorResponse.
pub(crate) const ERROR_WORDS: u32 = 2;

/// Asks for the file that defines a service, method or message, and those that it needs.
pub fn file_of_symbol(symbol: &str) -> Vec<u8> {
    request(FILE_OF_SYMBOL, symbol)
}

/// Asks for a file by the name under which another one imports it.
pub fn file_by_name(name: &str) -> Vec<u8> {
    request(FILE_BY_NAME, name)
}

/// Asks for the names of all services.
pub fn list_services() -> Vec<u8> {
    request(LIST_SERVICES, "")
}

fn request(field: u32, text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    protobuf::put_bytes(&mut out, field, text.as_bytes());
    out
}

/// What a server told of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    /// Files, each an encoded `google.protobuf.FileDescriptorProto`.
    Files(Vec<Vec<u8>>),
    /// Names of services.
    Services(Vec<String>),
    /// It cannot tell, in its own words.
    Refused(String),
}

impl Told {
    /// Reads an answer; `None`: it is none to what we ask.
    pub fn read(answer: &[u8]) -> Option<Self> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Fields(answer).find_map(|(field, value)| match (field, value) {
            (FILES, Value::Bytes(files)) => {
                Some(Self::Files(protobuf::each(files, FIRST).map(<[u8]>::to_vec).collect()))
            }
            (SERVICES, Value::Bytes(services)) => {
                let names = protobuf::each(services, FIRST).filter_map(|s| protobuf::each(s, FIRST).next());
                Some(Self::Services(names.map(text).collect()))
            }
            (ERROR, Value::Bytes(error)) => {
                Some(Self::Refused(protobuf::each(error, ERROR_WORDS).next().map(text).unwrap_or_default()))
            }
            _ => None,
        })
    }
}

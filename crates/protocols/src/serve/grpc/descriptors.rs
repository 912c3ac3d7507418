//! How does the node describe its own services? From the files in `proto/`, which are encoded there beside their text.
//!
//! `UPDATE_DESCRIPTORS=1 cargo test -p plimsoll-protocols --test descriptors` encodes them again.

use crate::protobuf;

/// Each file, as an encoded `google.protobuf.FileDescriptorProto`. None imports another.
static FILES: [&[u8]; 4] = [
    include_bytes!("../../../proto/plimsoll/v1/messaging.bin"),
    include_bytes!("../../../proto/grpc/health/v1/health.bin"),
    include_bytes!("../../../proto/grpc/reflection/v1/reflection.bin"),
    include_bytes!("../../../proto/grpc/reflection/v1alpha/reflection.bin"),
];

/// Fields of FileDescriptorProto.
const NAME: u32 = 1;
const PACKAGE: u32 = 2;
const MESSAGES: u32 = 4;
const ENUMS: u32 = 5;
const SERVICES: u32 = 6;
/// The first field of whatever has a name; the second of a service.
const METHODS: u32 = 2;
/// Fields of DescriptorProto.
const NESTED_MESSAGES: u32 = 3;
const NESTED_ENUMS: u32 = 4;

fn text(bytes: Option<&[u8]>) -> &str {
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or_default()
}

fn name(descriptor: &[u8]) -> &str {
    text(protobuf::each(descriptor, NAME).next())
}

fn package(file: &[u8]) -> &str {
    text(protobuf::each(file, PACKAGE).next())
}

/// The full names of all services.
pub(super) fn services() -> Vec<String> {
    let of = |file: &'static &[u8]| {
        protobuf::each(file, SERVICES).map(move |service| format!("{}.{}", package(file), name(service)))
    };
    FILES.iter().flat_map(of).collect()
}

/// The file of that name.
pub(super) fn by_name(wanted: &[u8]) -> Option<&'static [u8]> {
    FILES.into_iter().find(|file| name(file).as_bytes() == wanted)
}

/// The file that defines a service, a method, a message or an enum, by its full name.
pub(super) fn of_symbol(wanted: &[u8]) -> Option<&'static [u8]> {
    let wanted = std::str::from_utf8(wanted).ok()?;
    FILES.into_iter().find(|file| {
        let within = wanted.strip_prefix(package(file)).and_then(|rest| rest.strip_prefix('.'));
        within.is_some_and(|symbol| {
            let (first, rest) = symbol.split_once('.').unwrap_or((symbol, ""));
            protobuf::each(file, SERVICES).any(|s| name(s) == first && has(s, &[METHODS], rest))
                || protobuf::each(file, MESSAGES)
                    .any(|m| name(m) == first && has(m, &[NESTED_MESSAGES, NESTED_ENUMS], rest))
                || protobuf::each(file, ENUMS).any(|e| name(e) == first && rest.is_empty())
        })
    })
}

/// Whether a descriptor has what is called so in one of these fields; nothing, it has.
fn has(descriptor: &[u8], fields: &[u32], wanted: &str) -> bool {
    let mut named = fields.iter().flat_map(|&field| protobuf::each(descriptor, field));
    wanted.is_empty() || named.any(|inner| name(inner) == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_symbol_is_found_in_its_file() {
        assert_eq!(
            services(),
            [
                "plimsoll.v1.Messaging",
                "grpc.health.v1.Health",
                "grpc.reflection.v1.ServerReflection",
                "grpc.reflection.v1alpha.ServerReflection"
            ]
        );
        let messaging = by_name(b"plimsoll/v1/messaging.proto");
        assert!(messaging.is_some());
        for symbol in ["plimsoll.v1.Messaging", "plimsoll.v1.Messaging.Talk", "plimsoll.v1.Message"] {
            assert_eq!(of_symbol(symbol.as_bytes()), messaging, "{symbol}");
        }
        let status = "grpc.health.v1.HealthCheckResponse.ServingStatus";
        assert_eq!(of_symbol(status.as_bytes()), by_name(b"grpc/health/v1/health.proto"));
        for unknown in ["plimsoll.v1", "plimsoll.v1.Messaging.Shout", "plimsoll.v10.Message", "Message", ""] {
            assert_eq!(of_symbol(unknown.as_bytes()), None, "{unknown}");
        }
    }
}

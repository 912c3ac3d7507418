//! Which gRPC call is made? From a method's name and JSON to the bytes that every connection sends.

mod reflect;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use model::{Call, CallKind, Metadata, Operation, Scheme, Spec, Target};
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, Kind, MessageDescriptor, MethodDescriptor};
use serde_json::Value;

use crate::Failed;

/// Which gRPC method is called, and where its types stand.
#[derive(Debug, Args)]
pub(crate) struct CallArgs {
    /// grpc: the method that is called, to verify a connection in a hold, or as a message in a talk
    #[arg(long, value_name = "SERVICE/METHOD", env = "PLIMSOLL_CALL")]
    pub(crate) call: Option<String>,

    /// What is sent: the request of --call as JSON, or over http the body of a POST; or a file that has it
    #[arg(long, value_name = "TEXT|@FILE", env = "PLIMSOLL_DATA")]
    pub(crate) data: Option<String>,

    /// If --call is bidirectional: streams that each connection keeps open
    #[arg(long, value_name = "N", default_value_t = 1, env = "PLIMSOLL_STREAMS", requires = "call")]
    pub(crate) streams: u32,

    /// A .proto file that defines the service of --call; default: the server is asked, by reflection
    #[arg(
        long,
        value_name = "FILE",
        env = "PLIMSOLL_PROTO",
        requires = "call",
        conflicts_with = "descriptor_set"
    )]
    pub(crate) proto: Vec<PathBuf>,

    /// Where --proto and what it imports are found; default: the directory of each --proto
    #[arg(long, value_name = "DIR", env = "PLIMSOLL_IMPORT_PATH", requires = "proto")]
    pub(crate) import_path: Vec<PathBuf>,

    /// The same as protoc wrote it, its imports included
    #[arg(long, value_name = "FILE", env = "PLIMSOLL_DESCRIPTOR_SET", requires = "call")]
    pub(crate) descriptor_set: Option<PathBuf>,
}

/// Whether the arguments fit each other and the target: known before anything is begun.
pub(crate) fn check(args: &CallArgs, target: &Target) -> Result<(), Failed> {
    match &args.call {
        Some(call) if target.scheme.plain() != Scheme::Grpc => Err(Failed::Usage(format!(
            "--call {call} is for grpc:// and grpcs://, and the target is {}://",
            target.scheme
        ))),
        Some(call) => names(call).map(|_| ()),
        None if args.data.is_some() && target.scheme.plain() != Scheme::Http => Err(Failed::Usage(format!(
            "--data is the request of a --call, or the body of a request over http, and the target is {}://",
            target.scheme
        ))),
        None => Ok(()),
    }
}

/// The call that is asked for, if one is; the server is asked what its service is like, unless a file says so.
pub(crate) fn operation(
    args: &CallArgs,
    metadata: &[Metadata],
    spec: &Spec,
    addresses: &[SocketAddr],
    ca_pem: Option<&str>,
) -> Result<Option<Operation>, Failed> {
    let Some(name) = &args.call else { return Ok(None) };
    let (service, method) = names(name)?;
    let pool = if let Some(file) = &args.descriptor_set {
        descriptor_set(file)?
    } else if args.proto.is_empty() {
        reflect::pool(spec, addresses, ca_pem, metadata, service).map_err(Failed::CannotRun)?
    } else {
        compile(args)?
    };
    let method = find(&pool, service, method)?;
    let kind = match (method.is_client_streaming(), method.is_server_streaming()) {
        (false, false) => CallKind::Unary,
        (false, true) => CallKind::ServerStreaming,
        (true, true) => CallKind::Bidirectional,
        (true, false) => {
            return Err(Failed::Usage(format!(
                "--call {name} is answered only when its stream ends; call a method that is unary, server \
                 streaming or bidirectional"
            )));
        }
    };
    let call = Call {
        path: format!("/{}/{}", method.parent_service().full_name(), method.name()),
        request: request(&method.input(), &json(args)?)?,
        kind,
        metadata: metadata.to_vec(),
        streams: args.streams,
    };
    let operation = Operation { call: Some(call), ..Operation::default() };
    protocols::check_operation(spec.target.scheme, &operation)
        .map_err(|why| Failed::Usage(format!("--call {name}: {why}")))?;
    Ok(Some(operation))
}

/// Service and method, as `package.Service/Method` or with a dot between.
fn names(call: &str) -> Result<(&str, &str), Failed> {
    let call = call.strip_prefix('/').unwrap_or(call);
    call.rsplit_once('/')
        .or_else(|| call.rsplit_once('.'))
        .filter(|(service, method)| !service.is_empty() && !method.is_empty())
        .ok_or_else(|| Failed::Usage(format!("--call {call:?}: write it as PACKAGE.SERVICE/METHOD")))
}

/// What `--data` says, from a file if it starts with `@`.
pub(crate) fn data(args: &CallArgs) -> Result<Option<String>, Failed> {
    let Some(text) = &args.data else { return Ok(None) };
    let Some(path) = text.strip_prefix('@') else { return Ok(Some(text.clone())) };
    let read = std::fs::read_to_string(path);
    read.map(Some).map_err(|e| Failed::CannotRun(format!("cannot read {path} of --data: {e}")))
}

/// The same as the request of a call; without a word of it, one with nothing in it.
fn json(args: &CallArgs) -> Result<Value, Failed> {
    let text = data(args)?.unwrap_or_else(|| "{}".to_owned());
    serde_json::from_str(&text).map_err(|e| Failed::Usage(format!("--data is no JSON: {e}")))
}

fn descriptor_set(file: &Path) -> Result<DescriptorPool, Failed> {
    let name = file.display();
    let bytes = std::fs::read(file).map_err(|e| Failed::CannotRun(format!("cannot read {name}: {e}")))?;
    DescriptorPool::decode(&*bytes).map_err(|e| {
        Failed::Usage(format!(
            "{name} is no whole set of descriptors: {e}; make it with protoc --include_imports --descriptor_set_out"
        ))
    })
}

fn compile(args: &CallArgs) -> Result<DescriptorPool, Failed> {
    let beside = args.proto.iter().filter_map(|file| file.parent());
    let here = beside.map(|directory| if directory == Path::new("") { Path::new(".") } else { directory });
    let mut paths: Vec<&Path> = args.import_path.iter().map(AsRef::as_ref).collect();
    if paths.is_empty() {
        paths = here.collect();
        paths.dedup();
    }
    let failed = |e: protox::Error| {
        let at = e.file().map_or_else(String::new, |file| format!("{file}: "));
        Failed::Usage(format!("--proto: {at}{e}"))
    };
    let mut compiler = protox::Compiler::new(paths).map_err(failed)?;
    compiler.include_imports(true);
    compiler.open_files(&args.proto).map_err(failed)?;
    Ok(compiler.descriptor_pool())
}

/// The method; where it is not, what there is.
fn find(pool: &DescriptorPool, service: &str, method: &str) -> Result<MethodDescriptor, Failed> {
    let found = pool.get_service_by_name(service).ok_or_else(|| {
        let known: Vec<_> = pool.services().map(|s| s.full_name().to_owned()).collect();
        Failed::Usage(format!("--call: {}", no_service(service, &known)))
    })?;
    found.methods().find(|m| m.name() == method).ok_or_else(|| {
        let known: Vec<_> = found.methods().map(|m| m.name().to_owned()).collect();
        Failed::Usage(format!("--call: {service} has no method {method}; it has {}", known.join(", ")))
    })
}

/// There is no such service, but others.
fn no_service(service: &str, known: &[String]) -> String {
    let known = if known.is_empty() { "none at all".to_owned() } else { known.join(", ") };
    format!("there is no service {service}; there is {known}")
}

/// The request, encoded; where it does not fit, which of its fields does not.
fn request(message: &MessageDescriptor, data: &Value) -> Result<Vec<u8>, Failed> {
    match DynamicMessage::deserialize(message.clone(), data) {
        Ok(request) => Ok(request.encode_to_vec()),
        Err(error) => Err(Failed::Usage(format!("--data: {}", misfit(message, data, &error.to_string())))),
    }
}

/// The innermost field that does not fit, and what it should be.
fn misfit(message: &MessageDescriptor, data: &Value, error: &str) -> String {
    let name = message.full_name();
    let Some(object) = data.as_object() else { return format!("{name} is written as an object: {error}") };
    for (key, value) in object {
        let mut fields = message.fields();
        let Some(field) = fields.find(|f| f.json_name() == key || f.name() == key) else {
            let known: Vec<_> = message.fields().map(|f| f.name().to_owned()).collect();
            return format!("{name} has no field {key:?}; it has {}", known.join(", "));
        };
        let alone = Value::Object([(key.clone(), value.clone())].into_iter().collect());
        let Err(error) = DynamicMessage::deserialize(message.clone(), &alone) else { continue };
        if let (Kind::Message(inner), Value::Object(_), false) = (field.kind(), value, field.is_map()) {
            return misfit(&inner, value, &error.to_string());
        }
        let kind = match field.kind() {
            _ if field.is_map() => "a map".to_owned(),
            kind if field.is_list() => format!("a list of {kind:?}"),
            kind => format!("of type {kind:?}"),
        };
        return format!("field {key:?} of {name} is {kind}: {error}");
    }
    format!("{name}: {error}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "syntax = \"proto3\"; package a; \
        service S { rpc One(M) returns (M); rpc In(stream M) returns (M); } \
        message M { string text = 1; int32 n = 2; repeated bool flags = 3; M inner = 4; E e = 5; } \
        enum E { NONE = 0; SOME = 1; }";

    fn pool() -> DescriptorPool {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("s.proto");
        std::fs::write(&file, FILE).unwrap();
        let args = CallArgs {
            call: Some("a.S/One".to_owned()),
            data: None,
            streams: 1,
            proto: vec![file],
            import_path: Vec::new(),
            descriptor_set: None,
        };
        compile(&args).unwrap()
    }

    fn encoded(data: &str) -> Result<Vec<u8>, String> {
        let method = find(&pool(), "a.S", "One").unwrap();
        request(&method.input(), &serde_json::from_str(data).unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn json_becomes_the_request() {
        assert_eq!(encoded("{}").unwrap(), b"");
        let text = r#"{"text": "hi", "n": 3, "flags": [true], "inner": {"n": 1}, "e": "SOME"}"#;
        assert_eq!(encoded(text).unwrap(), b"\x0a\x02hi\x10\x03\x1a\x01\x01\x22\x02\x10\x01\x28\x01");
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let says = |data: &str| encoded(data).unwrap_err();
        assert!(says(r#"{"txt": ""}"#).contains("no field \"txt\"; it has text, n, flags, inner, e"));
        let wrong = says(r#"{"text": "hi", "inner": {"n": "many"}}"#);
        assert!(wrong.contains("field \"n\" of a.M is of type int32"), "{wrong}");
        let wrong = says(r#"{"flags": [1]}"#);
        assert!(wrong.contains("field \"flags\" of a.M is a list of bool"), "{wrong}");
        assert!(says("[]").contains("a.M is written as an object"));
    }

    #[test]
    fn names_are_read_and_missed_ones_are_told() {
        assert_eq!(names("a.S/One").unwrap(), ("a.S", "One"));
        assert_eq!(names("/a.S/One").unwrap(), ("a.S", "One"));
        assert_eq!(names("a.S.One").unwrap(), ("a.S", "One"));
        assert!(names("One").is_err() && names("a.S/").is_err());
        let says = |service: &str, method: &str| find(&pool(), service, method).unwrap_err().to_string();
        assert_eq!(says("a.S", "Two"), "--call: a.S has no method Two; it has One, In");
        assert_eq!(says("S", "One"), "--call: there is no service S; there is a.S");
    }
}

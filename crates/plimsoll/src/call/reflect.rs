//! What is a gRPC service like? The server is asked, once, before a run.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use model::{Metadata, Spec};
use prost_reflect::DescriptorPool;
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::FileDescriptorProto;
use protocols::grpc::inquiry::Inquiry;
use protocols::grpc::reflection::{self, Told};
use rustls::{ClientConnection, StreamOwned};

use super::no_service;

/// How long the server may take for any part of its answers.
const PATIENCE: Duration = Duration::from_secs(10);
/// The most files that one service may need.
const MOST_FILES: usize = 10_000;
const READ_ROOM: usize = 64 * 1024;

/// Either kind of byte stream.
trait Wire: Read + Write {}
impl<T: Read + Write> Wire for T {}

/// Why there is no answer.
enum Refused {
    /// The server does not have this version of reflection.
    Unknown,
    Because(String),
}

/// A server in the midst of describing itself.
struct Conversation {
    inquiry: Inquiry,
    wire: Box<dyn Wire>,
    unsaid: Vec<u8>,
    pending: Vec<u8>,
}

/// All that the server tells of a service: the file that defines it, and those that it needs.
pub(super) fn pool(
    spec: &Spec,
    addresses: &[SocketAddr],
    ca_pem: Option<&str>,
    metadata: &[Metadata],
    service: &str,
) -> Result<DescriptorPool, String> {
    let cannot = |why: String| format!("--call: cannot ask {} for {service}: {why}", spec.target);
    for path in reflection::METHODS {
        let wire = connect(spec, addresses, ca_pem).map_err(cannot)?;
        let mut unsaid = Vec::new();
        let inquiry = Inquiry::new(&spec.target, path, metadata, &mut unsaid);
        let mut conversation = Conversation { inquiry, wire, unsaid, pending: Vec::new() };
        match conversation.files(service) {
            Ok(files) => return assemble(files).map_err(cannot),
            Err(Refused::Unknown) => {}
            Err(Refused::Because(why)) => return Err(cannot(why)),
        }
    }
    Err(cannot(
        "it has no server reflection; name its files with --proto FILE or --descriptor-set FILE".to_owned(),
    ))
}

fn connect(spec: &Spec, addresses: &[SocketAddr], ca_pem: Option<&str>) -> Result<Box<dyn Wire>, String> {
    let address = addresses.first().ok_or("it has no address")?;
    let socket = TcpStream::connect_timeout(address, PATIENCE).map_err(|e| e.to_string())?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    socket.set_write_timeout(Some(PATIENCE)).map_err(|e| e.to_string())?;
    if !spec.target.scheme.is_tls() {
        return Ok(Box::new(socket));
    }
    let tls = worker::trust::client(&spec.target, ca_pem, spec.insecure).map_err(|e| e.to_string())?;
    let session = ClientConnection::new(tls.config, tls.name).map_err(|e| e.to_string())?;
    Ok(Box::new(StreamOwned::new(session, socket)))
}

impl Conversation {
    fn files(&mut self, service: &str) -> Result<Vec<FileDescriptorProto>, Refused> {
        let mut files = BTreeMap::new();
        let mut asked = BTreeSet::new();
        let mut question = reflection::file_of_symbol(service);
        loop {
            match self.ask(&question)? {
                Told::Files(came) => {
                    for bytes in came {
                        let file = FileDescriptorProto::decode(&*bytes)
                            .map_err(|e| Refused::Because(format!("it sent a broken descriptor: {e}")))?;
                        files.insert(file.name().to_owned(), file);
                    }
                }
                Told::Services(_) => return Err(Refused::Because("it answered another question".to_owned())),
                Told::Refused(words) if asked.is_empty() => {
                    return Err(Refused::Because(match self.ask(&reflection::list_services())? {
                        Told::Services(known) => no_service(service, &known),
                        _ => words,
                    }));
                }
                Told::Refused(words) => return Err(Refused::Because(words)),
            }
            // Servers may send what a file imports with it, or wait until they are asked.
            let missing =
                files.values().flat_map(|file| &file.dependency).find(|name| !files.contains_key(*name));
            let Some(name) = missing.cloned() else { return Ok(files.into_values().collect()) };
            if !asked.insert(name.clone()) || asked.len() > MOST_FILES {
                return Err(Refused::Because(format!("it does not tell what {name} is")));
            }
            question = reflection::file_by_name(&name);
        }
    }

    /// One question and its answer.
    fn ask(&mut self, question: &[u8]) -> Result<Told, Refused> {
        let failed = |e: std::io::Error| Refused::Because(e.to_string());
        self.inquiry.say(question, &mut self.unsaid);
        let mut room = vec![0; READ_ROOM];
        loop {
            if let Some(answer) = self.inquiry.answer() {
                return Told::read(&answer)
                    .ok_or_else(|| Refused::Because("its answer is none to what was asked".to_owned()));
            }
            self.wire.write_all(&self.unsaid).and_then(|()| self.wire.flush()).map_err(failed)?;
            self.unsaid.clear();
            let n = self.wire.read(&mut room).map_err(failed)?;
            if n == 0 {
                return Err(Refused::Because("it closed the connection".to_owned()));
            }
            self.pending.extend_from_slice(&room[..n]);
            match self.inquiry.hear(&self.pending, &mut self.unsaid) {
                Ok(used) => drop(self.pending.drain(..used)),
                Err(_) if self.inquiry.is_unimplemented() => return Err(Refused::Unknown),
                Err(failure) => return Err(Refused::Because(failure.text)),
            }
        }
    }
}

fn assemble(files: Vec<FileDescriptorProto>) -> Result<DescriptorPool, String> {
    let mut pool = DescriptorPool::new();
    pool.add_file_descriptor_protos(files).map_err(|e| format!("what it told does not fit together: {e}"))?;
    Ok(pool)
}

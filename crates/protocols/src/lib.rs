//! A file per protocol: pure state machines, client side and, where the node speaks it, server side.
//!
//! A machine is handed bytes and cues and appends bytes and facts. It never sees a socket, a clock or a
//! counter, so it can be driven by a test, a fuzzer or the reactor alike, and a connection that is idle
//! owns nothing but its slot.

mod body;
mod bson;
mod extended_json;
mod frame;
pub mod fuzz;
pub mod grpc;
mod h2;
mod head;
pub mod http;
pub mod ignite;
mod line;
pub mod machine;
pub mod mongodb;
pub mod mqtt;
mod msgpack;
pub mod nats;
mod nonce;
mod numbered;
pub mod pgbench;
pub mod postgres;
mod protobuf;
mod quote;
pub mod redis;
mod scram;
pub mod serve;
pub mod sse;
pub mod tcp;
mod waiting;
pub mod ws;

pub use machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
pub use quote::quote;

use std::hash::{BuildHasher as _, RandomState};

use model::{Metadata, Operation, Scheme, Spec, Target};

/// What a driver is made from.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The server to talk to.
    pub target: Target,
    /// What a heartbeat says over tcp instead of an echo request.
    pub send: Option<Vec<u8>>,
    /// What its answer must start with.
    pub expect: Option<Vec<u8>>,
    /// Header fields of each request over HTTP/1.1, beside the driver's own or in their place.
    pub headers: Vec<Metadata>,
    /// The longest that a held connection will say nothing; `None`: there are no heartbeats, it may be for good.
    pub silence_seconds: Option<f64>,
    /// The real operation that connections will be told to carry out; `None`: they only beat.
    pub operation: Option<Operation>,
    /// Tells the names that this driver gives its connections from those of other workers and runs.
    pub salt: u64,
    /// Which of how many workers this is, from 0: clients that are numbered have no number twice.
    pub worker: u32,
    /// How many workers there are.
    pub workers: u32,
}

impl Plan {
    /// Nothing said but where to.
    pub fn to(target: Target) -> Self {
        Self {
            target,
            send: None,
            expect: None,
            headers: Vec::new(),
            silence_seconds: None,
            operation: None,
            salt: 0,
            worker: 0,
            workers: 1,
        }
    }

    /// Takes from a spec what drivers need. `\r`, `\n`, `\t`, `\\` and `\xNN` in `--send` and `--expect` are read.
    pub fn of(spec: &Spec) -> Self {
        Self {
            target: spec.target.clone(),
            send: spec.send.as_deref().map(unescape),
            expect: spec.expect.as_deref().map(unescape),
            headers: spec.headers.clone(),
            // a heartbeat that is late within the patience is no failure: no server should be told to make it one
            silence_seconds: spec.heartbeat_seconds.map(|interval| interval + spec.patience_seconds),
            operation: spec.operation.clone(),
            salt: RandomState::new().hash_one(()),
            worker: 0,
            workers: 1,
        }
    }
}

/// Reads backslash escapes; what is not one of them stands for itself.
fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let (byte, taken) = match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'r')) => (b'\r', 2),
            (b'\\', Some(b'n')) => (b'\n', 2),
            (b'\\', Some(b't')) => (b'\t', 2),
            (b'\\', Some(b'\\')) => (b'\\', 2),
            (b'\\', Some(b'x')) => match text.get(at + 2..at + 4).map(|hex| u8::from_str_radix(hex, 16)) {
                Some(Ok(byte)) => (byte, 4),
                _ => (b'\\', 1),
            },
            (byte, _) => (byte, 1),
        };
        out.push(byte);
        at += taken;
    }
    out
}

/// Something to be done with whichever driver a scheme names, with that driver's type known.
pub trait WithDriver {
    /// What comes of it.
    type Out;
    /// Called once, with the driver.
    fn run<D: Driver>(self, driver: D) -> Self::Out;
}

/// Makes the one list of drivers: their facts as a slice, and the way from a scheme to a type.
macro_rules! drivers {
    ($($driver:ty),* $(,)?) => {
        /// Every driver, in the order in which help and docs list them.
        pub static DRIVERS: &[&DriverFacts] = &[$(&<$driver as Driver>::FACTS),*];

        /// What each driver has to say of an operation.
        static CHECKS: &[(Scheme, fn(&Operation) -> Result<(), String>)] =
            &[$((<$driver as Driver>::FACTS.scheme, check::<$driver>)),*];

        /// Hands the driver of the plan's scheme to `then`; `None` if no driver speaks it.
        pub fn with_driver<W: WithDriver>(plan: &Plan, then: W) -> Option<W::Out> {
            let scheme = plan.target.scheme.plain();
            $(if <$driver as Driver>::FACTS.scheme == scheme {
                return Some(then.run(<$driver as Driver>::new(plan)));
            })*
            None
        }
    };
}

fn check<D: Driver>(operation: &Operation) -> Result<(), String> {
    match D::FACTS.operation {
        Some(_) => D::check(operation),
        None => Err(format!("connections of {} carry out no operation", D::FACTS.scheme)),
    }
}

/// What is wrong with an operation on this scheme, as something for a user to mend.
///
/// # Errors
/// What the driver wants instead, or that it has none.
pub fn check_operation(scheme: Scheme, operation: &Operation) -> Result<(), String> {
    CHECKS
        .iter()
        .find(|(of, _)| *of == scheme.plain())
        .map_or_else(|| Err(format!("no driver speaks {scheme}")), |(_, check)| check(operation))
}

drivers![
    tcp::Echo,
    http::KeepAlive,
    ws::WebSocket,
    sse::EventStream,
    redis::Redis,
    nats::Nats,
    mqtt::Mqtt,
    postgres::Postgres,
    mongodb::MongoDb,
    ignite::Ignite,
    grpc::Grpc,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_has_one_driver_and_every_driver_explains_itself() {
        for scheme in model::Scheme::ALL {
            let n = DRIVERS.iter().filter(|d| d.scheme == scheme.plain()).count();
            assert_eq!(n, 1, "{scheme}");
        }
        for facts in DRIVERS {
            assert!(facts.doc.len() > 20 && facts.heartbeat.len() > 10, "{}", facts.scheme);
        }
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape(r"PING\r\n"), b"PING\r\n");
        assert_eq!(unescape(r"\x00\xff\\ \q"), b"\x00\xff\\ \\q");
        assert_eq!(unescape("\\x4"), b"\\x4");
        assert_eq!(unescape("é\\x"), "é\\x".as_bytes());
    }
}

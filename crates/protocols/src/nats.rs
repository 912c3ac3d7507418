//! Does a NATS server hold the connection, and still answer on it? (NATS client protocol, <https://docs.nats.io/reference/reference-protocols/nats-protocol>)

use model::{Failure, FailureKind, Operation, Scheme, Target};
use serde_json::{Map, Value};

use crate::Plan;
use crate::line::Language;
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::nonce::{Nonces, hex};
use crate::quote::{against_protocol, login_refused, quote, turned_away};

/// INFO, PING, PONG, +OK and -ERR; its words may be written in either case.
const NATS: Language = Language { name: "the NATS message", starts: b"IiPp+-" };
/// The same, and MSG.
const WITH_MESSAGES: Language = Language { name: "the NATS message", starts: b"IiPp+-Mm" };

const PING: &[u8] = b"PING\r\n";
const PONG: &[u8] = b"PONG\r\n";

/// How a connection calls its one subscription.
const SUBSCRIPTION: &str = "1";
/// The largest message that a server can be set to take (`max_payload`).
const MOST_PAYLOAD: usize = 64 << 20;
/// An operation's payload without a text: 32 bytes.
const PAYLOAD: &str = "plimsoll asks whether it is back";

/// Holds connections to NATS, and asks with PING. Only where operations are asked for do they subscribe, each to a subject
/// of its own.
///
/// The server speaks first (INFO). What it thinks of our CONNECT it says only if it does not like it, so a PING goes
/// with it: with the PONG, the connection is ready. TLS, if the server requires it or the URL asks for it, comes between
/// INFO and CONNECT.
#[derive(Debug)]
pub struct Nats {
    /// CONNECT, SUB where there are operations, and the first PING.
    connect: Numbered,
    /// PUB.
    operation: Numbered,
    /// What an operation publishes, in bytes.
    payload: u32,
    /// TLS was asked for.
    secured: bool,
    target: Target,
    nonces: Nonces,
}

/// Bytes in which each connection writes its own number, if there is a place for it.
#[derive(Debug)]
struct Numbered {
    bytes: Vec<u8>,
    at: Option<usize>,
}

/// What one connection keeps: who it is, how far, how many answers are due, and what is still to be passed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    due: u32,
    /// Operations whose message is not back.
    operations: u32,
    number: u32,
    /// Of a message's payload, with its line end.
    skip: u32,
    phase: Phase,
}

const _: () = assert!(size_of::<Slot>() <= 20);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// INFO is due.
    #[default]
    Greeting,
    /// INFO was the last in clear; TLS is due.
    Securing,
    /// The PONG to the first PING is due.
    LoggingIn,
    /// It is ready.
    Open,
}

impl Driver for Nats {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Nats,
        doc: "A client of NATS, with the user and password, or the token, of the URL.",
        heartbeat: "A PING; the PONG counts. The server's own PINGs are answered.",
        beats: Beats::Asked,
        operation: Some(
            "A message of 32 bytes, or of the text, to a subject of the connection's own under _INBOX, awaited back by its subscription.",
        ),
    };

    fn new(plan: &Plan) -> Self {
        let target = plan.target.clone();
        let secured = target.query("tls") == Some("true");
        let mut options = Map::new();
        for (name, value) in [("verbose", false), ("pedantic", false), ("tls_required", secured)] {
            options.insert(name.to_owned(), Value::Bool(value));
        }
        // 1: the server may send INFO again when its cluster changes
        options.insert("protocol".to_owned(), Value::from(1));
        let password = target.password();
        let texts = match (target.user(), password) {
            (None, token) => [("auth_token", token), ("user", None)],
            (user, password) => [("pass", password), ("user", user)],
        };
        let ours = [("name", "plimsoll"), ("lang", "rust"), ("version", env!("CARGO_PKG_VERSION"))];
        for (name, text) in ours.map(|(name, text)| (name, Some(text))).into_iter().chain(texts) {
            if let Some(text) = text {
                options.insert(name.to_owned(), Value::from(text));
            }
        }
        let login = format!("CONNECT {}\r\n", Value::Object(options));
        let subject = format!("_INBOX.{:016x}.", plan.salt);
        let connect = match plan.operation {
            Some(_) => {
                Numbered::new(&format!("{login}SUB {subject}"), &format!(" {SUBSCRIPTION}\r\nPING\r\n"))
            }
            None => Numbered { bytes: [login.as_bytes(), PING].concat(), at: None },
        };
        let payload = plan.operation.as_ref().and_then(|o| o.text.as_deref()).unwrap_or(PAYLOAD);
        let operation =
            Numbered::new(&format!("PUB {subject}"), &format!(" {}\r\n{payload}\r\n", payload.len()));
        Self { connect, operation, payload: payload.len() as u32, secured, target, nonces: Nonces::default() }
    }

    fn check(operation: &Operation) -> Result<(), String> {
        match &operation.text {
            Some(text) if text.len() > MOST_PAYLOAD => {
                Err(format!("the text has {} bytes; NATS takes messages of up to {MOST_PAYLOAD}", text.len()))
            }
            _ => Ok(()),
        }
    }
}

impl Numbered {
    fn new(before: &str, after: &str) -> Self {
        let number = "00000000";
        Self { bytes: [before, number, after].concat().into_bytes(), at: Some(before.len()) }
    }

    fn say(&self, number: u32, out: &mut Out) {
        let start = out.bytes.len();
        out.bytes.extend_from_slice(&self.bytes);
        if let Some(at) = self.at {
            out.bytes[start + at..start + at + 8].copy_from_slice(&hex(number));
        }
    }
}

impl Machine for Nats {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected if slot.phase == Phase::Securing => self.log_in(slot, out),
            Cue::Connected => slot.number = self.nonces.next(),
            Cue::Ask => {
                slot.due = slot.due.saturating_add(1);
                out.bytes.extend_from_slice(PING);
            }
            Cue::Operate => {
                slot.operations = slot.operations.saturating_add(1);
                self.operation.say(slot.number, out);
            }
            Cue::Finish => out.facts.push(Fact::Done),
            Cue::Bytes(bytes) => return self.read(slot, bytes, out),
        }
        Ok(0)
    }
}

impl Nats {
    fn read(&self, slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let mut used = 0;
        // what comes in clear behind the INFO that begins TLS is no part of the protocol
        while used < bytes.len() && slot.phase != Phase::Securing {
            let rest = &bytes[used..];
            if slot.skip > 0 {
                let n = rest.len().min(slot.skip as usize);
                slot.skip -= n as u32;
                used += n;
                if slot.skip == 0 {
                    slot.operations -= 1;
                    out.facts.push(Fact::Operated);
                }
                continue;
            }
            let language = if slot.operations > 0 { WITH_MESSAGES } else { NATS };
            let Some((line, taken)) = language.line(rest)? else { break };
            used += taken;
            self.message(slot, line, out)?;
        }
        Ok(used)
    }

    fn log_in(&self, slot: &mut Slot, out: &mut Out) {
        self.connect.say(slot.number, out);
        slot.phase = Phase::LoggingIn;
    }

    fn message(&self, slot: &mut Slot, line: &[u8], out: &mut Out) -> Result<(), Failure> {
        let word = line.split(|&b| b == b' ' || b == b'\t').next().unwrap_or_default();
        let is = |name: &[u8]| word.eq_ignore_ascii_case(name);
        match slot.phase {
            _ if is(b"-ERR") => return Err(self.refusal(slot, line)),
            Phase::Greeting if is(b"INFO") => {
                out.facts.push(Fact::Upgraded);
                // A server that wants TLS would take CONNECT for a broken handshake and hang up without a word.
                if says(line, "tls_required") || (self.secured && says(line, "tls_available")) {
                    slot.phase = Phase::Securing;
                    out.facts.push(Fact::StartTls);
                } else if self.secured {
                    return Err(Failure::new(
                        FailureKind::Tls,
                        "the server's INFO offers no TLS; set it up there, or leave out ?tls=true",
                    ));
                } else {
                    self.log_in(slot, out);
                }
            }
            Phase::Greeting => return Err(NATS.not_spoken(line)),
            _ if is(b"INFO") || is(b"+OK") => {}
            _ if is(b"PING") => out.bytes.extend_from_slice(PONG),
            Phase::LoggingIn if is(b"PONG") => {
                if self.target.login.is_some() {
                    out.facts.push(Fact::LoggedIn);
                }
                out.facts.push(Fact::Ready);
                slot.phase = Phase::Open;
            }
            Phase::Open if is(b"PONG") && slot.due > 0 => {
                slot.due -= 1;
                out.facts.push(Fact::Answered);
            }
            Phase::Open if is(b"MSG") && slot.operations > 0 => {
                let mut fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
                let is_ours = fields.nth(2) == Some(SUBSCRIPTION.as_bytes());
                let length = fields.next_back().unwrap_or_default();
                if !is_ours || length != self.payload.to_string().as_bytes() {
                    return Err(NATS.not_spoken(line));
                }
                slot.skip = self.payload + 2;
            }
            _ => return Err(NATS.not_spoken(line)),
        }
        Ok(())
    }

    /// The words of -ERR are the only sign of its kind; the specification lists them.
    fn refusal(&self, slot: &Slot, line: &[u8]) -> Failure {
        let said = format!("the server said {}", quote(line, 200));
        let words = String::from_utf8_lossy(line).to_ascii_lowercase();
        let has = |part: &str| words.contains(part);
        if has("permissions violation") {
            against_protocol(format!(
                "{said} to the operation; let its user publish and subscribe to _INBOX.> there"
            ))
        } else if has("authorization") || has("authentication") {
            login_refused(said, &self.target)
        } else if has("connections exceeded") {
            turned_away(line)
        } else if slot.phase == Phase::Open && (has("shutdown") || has("stale") || has("slow consumer")) {
            Failure::new(FailureKind::Closed, said)
        } else {
            against_protocol(said)
        }
    }
}

/// Whether INFO says so of itself: as the server writes it, without blanks. Inside a string of this JSON the quotes would
/// be escaped.
fn says(info: &[u8], name: &str) -> bool {
    let mark = format!("\"{name}\":true");
    info.windows(mark.len()).any(|part| part == mark.as_bytes())
}

//! Does a server that speaks like MongoDB let a client in, and does it still answer?
//!
//! MongoDB manual, "Wire Protocol": every message is an OP_MSG with one document. The login is that of the driver
//! specifications, "Authentication", by SCRAM-SHA-256. What is read is passed over as it comes: only the few fields that
//! tell how it went are kept, and those only until the message ends.

use model::{Failure, FailureKind, Operation, Scheme, Target};
use serde_json::Value;

use crate::Plan;
use crate::bson::{self, Document, Element};
use crate::extended_json;
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::nonce::Nonces;
use crate::quote::{against_protocol, login_refused, quote, turned_away};
use crate::scram::{self, Hash, MECHANISM, Scram, Secret};
use crate::waiting::Waiting;

/// The only kind of message: OP_MSG.
const OP_MSG: u32 = 2013;
/// Before a message's elements: its head (length, number, which it answers, kind), flags, the kind of its one section,
/// and the document's length.
const HEAD: u32 = 16 + 4 + 1 + 4;
/// The longest message that a server takes or sends.
const MOST: u32 = 48_000_000;
/// The flag that a CRC-32C of four bytes follows. TCP has its own: it is passed over.
const CHECKSUM: u32 = 1;
/// The flags that must be understood. The other of them, moreToCome, is for who allows answers without a question.
const REQUIRED: u32 = 0xffff;
/// A field that is longer than this is not looked at.
const MOST_FIELD: usize = 4_096;
/// Of a server's words, so many bytes are shown.
const MOST_WORDS: usize = 200;
/// The operation that asks for nothing in particular.
const OPERATION: &str = r#"{"find": "plimsoll", "limit": 1}"#;

/// Holds connections to MongoDB, or to whatever speaks its protocol, and asks with the command `ping`.
///
/// One connection is one connection: there is no pool, and nothing watches the servers of a cluster beside it.
#[derive(Debug)]
pub struct MongoDb {
    target: Target,
    auth_source: String,
    /// The messages that all connections send alike, but for the number of each.
    hello: Vec<u8>,
    ping: Vec<u8>,
    operation: Vec<u8>,
    scram: Scram,
    secret: Secret,
    nonces: Nonces,
}

/// What one connection keeps: what is due, and how much of an answer is still to be read.
#[derive(Debug, Default)]
pub struct Slot {
    /// What the answer that is being read has told so far, beside whether it is well.
    told: Option<Box<Told>>,
    /// Until the login is over: what a server that knows the password will say.
    signature: Option<Box<Hash>>,
    waiting: Waiting,
    nonce: u32,
    /// How many messages were sent: the number of the last one.
    asked: u32,
    answered: u32,
    /// Bytes of the answer that are still to come.
    left: u32,
    /// Of those, the next that tell nothing.
    skip: u32,
    phase: Phase,
    /// Bytes behind the document of the answer that is being read: its checksum.
    tail: u8,
    /// It says that all is well.
    ok: bool,
}

const _: () = assert!(size_of::<Slot>() <= 64);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// The answer to the first message is due.
    #[default]
    Hello,
    /// The server's first message of SCRAM is due.
    ScramFirst,
    /// The server must prove itself.
    ScramLast,
    /// It has, and says once more that the login is over.
    ScramEnd,
    /// It is ready.
    Open,
}

/// What an answer tells, in the fields of that name.
#[derive(Debug, Default)]
struct Told {
    code: Option<f64>,
    code_name: String,
    errmsg: Vec<u8>,
    /// `writeErrors` or `writeConcernError`: it is well otherwise.
    not_written: bool,
    conversation: i32,
    done: bool,
    payload: Vec<u8>,
    /// By what this user may log in, if the server says so.
    mechanisms: Option<Vec<String>>,
}

impl Driver for MongoDb {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::MongoDb,
        doc: "A client of MongoDB, or of what speaks like it, logged in with SCRAM-SHA-256 if the URL has a user; one connection, without a pool and without a monitor beside it.",
        heartbeat: "The command ping, {\"ping\": 1}; the answer with ok: 1 counts.",
        beats: Beats::Asked,
        operation: Some(
            "The command {\"find\": \"plimsoll\", \"limit\": 1}, or the text, a command as MongoDB's extended JSON, in the URL's database (else test).",
        ),
    };

    fn new(plan: &Plan) -> Self {
        Self::with_secret(plan, Secret::new())
    }

    fn check(operation: &Operation) -> Result<(), String> {
        operation.text.as_deref().map_or(Ok(()), |text| extended_json::command(text).map(drop))
    }
}

impl MongoDb {
    /// With a secret that is known, the same nonces come again.
    pub(crate) fn with_secret(plan: &Plan, secret: Secret) -> Self {
        let target = plan.target.clone();
        let auth_source = target.auth_source().unwrap_or_default();
        let user = target.user().unwrap_or_default();
        let database = target.database().unwrap_or_default();
        let text = plan.operation.as_ref().and_then(|operation| operation.text.as_deref());
        Self {
            hello: message(&hello(&auth_source, user)),
            ping: message(&Document::default().int("ping", 1).text("$db", "admin")),
            // a text that is no command was refused before
            operation: message(&operation(text, &database).unwrap_or_default()),
            scram: Scram::new(user, target.password().unwrap_or_default()),
            secret,
            nonces: Nonces::default(),
            auth_source,
            target,
        }
    }
}

/// The first message. `isMaster` is what `hello` was called before 4.4, and what every server knows.
fn hello(auth_source: &str, user: &str) -> Document {
    let us = Document::default().text("name", "plimsoll").text("version", env!("CARGO_PKG_VERSION"));
    let client = Document::default()
        .document("application", &Document::default().text("name", "plimsoll"))
        .document("driver", &us)
        .document("os", &Document::default().text("type", "Linux"));
    let hello = Document::default().int("isMaster", 1).boolean("helloOk", true).document("client", &client);
    let hello = if user.is_empty() {
        hello
    } else {
        hello.text("saslSupportedMechs", &format!("{auth_source}.{user}"))
    };
    hello.text("$db", "admin")
}

/// The operation of these words. A find is to leave no cursor open on the server, unless they say otherwise.
fn operation(text: Option<&str>, database: &str) -> Result<Document, String> {
    let mut command = extended_json::command(text.unwrap_or(OPERATION))?;
    if command.keys().next().is_some_and(|name| name == "find") {
        command.entry("singleBatch").or_insert(Value::Bool(true));
    }
    command.entry("$db").or_insert(Value::from(database));
    extended_json::document(&command)
}

/// An OP_MSG that has no number yet.
fn message(document: &Document) -> Vec<u8> {
    let document = document.bytes();
    let length = 16 + 4 + 1 + document.len() as u32;
    let head = [length, 0, 0, OP_MSG, 0].map(u32::to_le_bytes);
    [head.as_flattened(), &[0], &document].concat()
}

impl Machine for MongoDb {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => {
                slot.nonce = self.nonces.next();
                slot.say(&self.hello, out);
            }
            Cue::Ask => {
                slot.waiting.ask();
                slot.say(&self.ping, out);
            }
            Cue::Operate => {
                slot.waiting.operate();
                slot.say(&self.operation, out);
            }
            Cue::Finish => out.facts.push(Fact::Done),
            Cue::Bytes(bytes) => return self.read(slot, bytes, out),
        }
        Ok(0)
    }
}

impl MongoDb {
    fn read(&self, slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            let taken = if slot.left == 0 { slot.begin(rest)? } else { slot.go_on(rest)? };
            if taken == 0 {
                break;
            }
            used += taken;
            if slot.left == 0 {
                self.answer(slot, out)?;
            }
        }
        Ok(used)
    }

    /// Takes an answer that has come to its end.
    fn answer(&self, slot: &mut Slot, out: &mut Out) -> Result<(), Failure> {
        slot.answered = slot.answered.wrapping_add(1);
        let told = slot.told.take().map(|told| *told).unwrap_or_default();
        if !slot.ok || told.not_written {
            return Err(self.refusal(slot, &told));
        }
        match slot.phase {
            Phase::Hello => {
                out.facts.push(Fact::Upgraded);
                if self.target.user().is_none() {
                    slot.phase = Phase::Open;
                    out.facts.push(Fact::Ready);
                } else {
                    has_our_mechanism(told.mechanisms.as_deref())?;
                    slot.say(&message(&self.sasl_start(slot)), out);
                    slot.phase = Phase::ScramFirst;
                }
            }
            Phase::ScramFirst => {
                let nonce = self.secret.nonce(slot.nonce);
                let (last, signature) = self.scram.last(&nonce, &told.payload).map_err(|why| {
                    against_protocol(format!("the server's first message of SCRAM-SHA-256 {why}"))
                })?;
                slot.signature = Some(Box::new(signature));
                slot.say(&message(&self.sasl_continue(told.conversation, last.as_bytes())), out);
                slot.phase = Phase::ScramLast;
            }
            Phase::ScramLast => {
                if !slot.signature.take().is_some_and(|signature| scram::is_signed(&told.payload, &signature))
                {
                    return Err(Failure::new(
                        FailureKind::LoginRefused,
                        "the server could not prove that it knows the password itself",
                    ));
                }
                if told.done {
                    slot.log_in(out);
                } else {
                    // a server before 4.4 does not know that this exchange may be left out
                    slot.say(&message(&self.sasl_continue(told.conversation, b"")), out);
                    slot.phase = Phase::ScramEnd;
                }
            }
            Phase::ScramEnd if told.done => slot.log_in(out),
            Phase::ScramEnd => {
                return Err(against_protocol("the server does not come to an end with SCRAM-SHA-256"));
            }
            Phase::Open => out.facts.extend(slot.waiting.answer()),
        }
        Ok(())
    }

    fn sasl_start(&self, slot: &Slot) -> Document {
        let first = self.scram.first(&self.secret.nonce(slot.nonce));
        Document::default()
            .int("saslStart", 1)
            .text("mechanism", MECHANISM)
            .binary("payload", 0, first.as_bytes())
            .document("options", &Document::default().boolean("skipEmptyExchange", true))
            .text("$db", &self.auth_source)
    }

    fn sasl_continue(&self, conversation: i32, payload: &[u8]) -> Document {
        Document::default()
            .int("saslContinue", 1)
            .int("conversationId", conversation)
            .binary("payload", 0, payload)
            .text("$db", &self.auth_source)
    }

    /// What an answer that is not well means for the connection. The codes are those of MongoDB's `error_codes.yml`.
    fn refusal(&self, slot: &Slot, told: &Told) -> Failure {
        let code = told.code.unwrap_or_default();
        let name = if told.code_name.is_empty() { "an error" } else { &told.code_name };
        let said = format!("the server answered {name} (code {code}): {}", quote(&told.errmsg, MOST_WORDS));
        let words = String::from_utf8_lossy(&told.errmsg).to_ascii_lowercase();
        let logging_in = !matches!(slot.phase, Phase::Hello | Phase::Open);
        match code as i32 {
            _ if words.contains("too many") && words.contains("connection") => turned_away(&told.errmsg),
            // ShutdownInProgress, InterruptedAtShutdown, InterruptedDueToReplStateChange
            91 | 11600 | 11602 if slot.phase == Phase::Open => Failure::new(FailureKind::Closed, said),
            91 | 11600 | 11602 => turned_away(&told.errmsg),
            _ if logging_in => {
                login_refused(format!("{said} to a login with authSource={}", self.auth_source), &self.target)
            }
            // Unauthorized, AuthenticationFailed
            13 | 18 => login_refused(said, &self.target),
            _ if slot.waiting.is_operation() => against_protocol(format!("{said} to the operation")),
            _ => against_protocol(said),
        }
    }
}

/// Whether a user may log in as this driver can. A server says nothing of a user whom it does not know.
fn has_our_mechanism(offered: Option<&[String]>) -> Result<(), Failure> {
    match offered {
        Some(offered) if !offered.iter().any(|offered| offered == MECHANISM) => {
            let offered = quote(offered.join(", ").as_bytes(), MOST_WORDS);
            Err(Failure::new(
                FailureKind::LoginRefused,
                format!(
                    "the server lets this user in by {offered}, not by {MECHANISM}; add it on the server: \
                     db.updateUser(USER, {{mechanisms: [\"{MECHANISM}\"], pwd: PASSWORD}})"
                ),
            ))
        }
        _ => Ok(()),
    }
}

impl Slot {
    /// Sends a message under the next number.
    fn say(&mut self, message: &[u8], out: &mut Out) {
        self.asked = self.asked.wrapping_add(1);
        out.bytes.extend_from_slice(&message[..4]);
        out.bytes.extend_from_slice(&self.asked.to_le_bytes());
        out.bytes.extend_from_slice(&message[8..]);
    }

    fn log_in(&mut self, out: &mut Out) {
        self.phase = Phase::Open;
        out.facts.extend([Fact::LoggedIn, Fact::Ready]);
    }

    /// Takes what stands before an answer's elements; 0: more must come first.
    fn begin(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        let Some(length) = bytes.first_chunk().map(|length| u32::from_le_bytes(*length)) else {
            return Ok(0);
        };
        if !(HEAD + 1..=MOST).contains(&length) {
            return Err(not_spoken(bytes));
        }
        let Some(head) = bytes.first_chunk::<{ HEAD as usize }>() else { return Ok(0) };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (answers, kind, flags, section, document) = (word(8), word(12), word(16), head[20], word(21));
        if kind != OP_MSG {
            return Err(not_spoken(bytes));
        }
        if self.answered == self.asked {
            return Err(against_protocol("the server sent a message though nothing was asked"));
        }
        let due = self.answered.wrapping_add(1);
        if answers != due {
            return Err(against_protocol(format!(
                "the server answered message {answers} where {due} was due"
            )));
        }
        if flags & REQUIRED & !CHECKSUM != 0 {
            return Err(against_protocol(format!(
                "the server's answer has the flags {flags:#x}, of which no more than {CHECKSUM:#x} was to be expected"
            )));
        }
        self.tail = if flags & CHECKSUM != 0 { 4 } else { 0 };
        self.left = length - HEAD;
        self.ok = false;
        // what the length of the document counts beside its elements has been taken
        if section != 0 || document != 4 + self.left - u32::from(self.tail) {
            return Err(self.broken());
        }
        Ok(HEAD as usize)
    }

    /// Takes an element whole if it tells something, else its head, or passes over what is left of one that does not; 0:
    /// more must come first.
    fn go_on(&mut self, bytes: &[u8]) -> Result<usize, Failure> {
        if self.skip > 0 {
            let taken = bytes.len().min(self.skip as usize);
            self.skip -= taken as u32;
            self.left -= taken as u32;
            return Ok(taken);
        }
        // the elements without the document's end, and the checksum
        let elements = self.left.saturating_sub(1 + u32::from(self.tail)) as usize;
        if elements == 0 {
            if bytes[0] != 0 {
                return Err(self.broken());
            }
            self.left -= 1;
            self.skip = u32::from(self.tail);
            return Ok(1);
        }
        let Some(element) = bson::element(bytes).map_err(|_| self.broken())? else {
            return if bytes.len() < elements { Ok(0) } else { Err(self.broken()) };
        };
        let end = element.value + element.size;
        if end > elements {
            return Err(self.broken());
        }
        let taken = if !self.wants(&element) {
            if element.size > MOST_FIELD && matches!(element.name, b"writeErrors" | b"writeConcernError") {
                self.told.get_or_insert_default().not_written = true;
            }
            self.skip = element.size as u32;
            element.value
        } else {
            let Some(value) = bytes.get(element.value..end) else { return Ok(0) };
            if element.name == b"ok" {
                self.ok = bson::number(element.kind, value) == Some(1.0);
            } else {
                self.told.get_or_insert_default().note(&element, value);
            }
            end
        };
        self.left -= taken as u32;
        Ok(taken)
    }

    fn wants(&self, element: &Element<'_>) -> bool {
        let logging_in: &[&[u8]] = match self.phase {
            Phase::Hello => &[b"saslSupportedMechs"],
            Phase::Open => &[],
            _ => &[b"conversationId", b"done", b"payload"],
        };
        let any: &[&[u8]] = &[b"ok", b"code", b"codeName", b"errmsg", b"writeErrors", b"writeConcernError"];
        element.size <= MOST_FIELD && (any.contains(&element.name) || logging_in.contains(&element.name))
    }

    fn broken(&self) -> Failure {
        let number = self.answered.wrapping_add(1);
        against_protocol(format!(
            "the server's answer to message {number} is not one BSON document of its length"
        ))
    }
}

/// What came is another protocol's.
fn not_spoken(bytes: &[u8]) -> Failure {
    let said = quote(bytes, 16);
    against_protocol(format!(
        "the server said {said}, which is no message of MongoDB's protocol; check that MongoDB listens there"
    ))
}

impl Told {
    fn note(&mut self, element: &Element<'_>, value: &[u8]) {
        let text = bson::content(element.kind, value).unwrap_or_default();
        let number = bson::number(element.kind, value);
        match element.name {
            b"code" => self.code = number,
            b"codeName" => {
                let letters = text.iter().filter(|byte| byte.is_ascii_alphanumeric()).take(MOST_WORDS);
                self.code_name = letters.map(|byte| char::from(*byte)).collect();
            }
            b"errmsg" => self.errmsg = text.to_vec(),
            b"conversationId" => self.conversation = number.unwrap_or_default() as i32,
            b"done" => self.done = number == Some(1.0),
            b"payload" => self.payload = text.to_vec(),
            b"saslSupportedMechs" => {
                let texts = bson::elements(value).filter_map(|(e, value)| bson::content(e.kind, value));
                self.mechanisms =
                    Some(texts.map(|text| String::from_utf8_lossy(text).into_owned()).collect());
            }
            // the first of a list tells enough
            b"writeErrors" => {
                if let Some((_, first)) = bson::elements(value).next() {
                    self.not_written(first);
                }
            }
            b"writeConcernError" => self.not_written(value),
            _ => {}
        }
    }

    /// Takes the fields of an error within an answer that is well.
    fn not_written(&mut self, error: &[u8]) {
        self.not_written = true;
        for (element, value) in bson::elements(error) {
            if matches!(element.name, b"code" | b"codeName" | b"errmsg") {
                self.note(&element, value);
            }
        }
    }
}

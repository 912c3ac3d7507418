//! Does a node of Apache Ignite 3 hold a thin client's connection, and still answer on it?
//!
//! The client protocol in its version 3.0.0, as Ignite 3.1 speaks it; it is written down in its sources alone
//! (package `org.apache.ignite.internal.client.proto`). After a magic word, a message is a length of four bytes and
//! values of MessagePack, one after another. Each request has a number, and answers come in any order.

use model::{Failure, FailureKind, Operation, Scheme, Target};

use crate::Plan;
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::msgpack::{Value, put_number, put_text, take};
use crate::numbered::{Numbered, Request};
use crate::quote::{against_protocol, escaped, login_refused, quote};

/// What both sides begin with.
const MAGIC: &[u8; 4] = b"IGNI";
/// The version that is spoken here.
const VERSION: [u8; 3] = [3, 0, 0];
/// The code of a client that is neither JDBC nor ODBC.
const GENERAL_CLIENT: u8 = 2;
/// A binary of no bytes: nothing beyond the version is asked for.
const NO_FEATURES: [u8; 2] = [0xc4, 0];

// Requests (`ClientOp`).
const HEARTBEAT: u8 = 1;
const SQL_EXEC: u8 = 50;
const SQL_CURSOR_CLOSE: u8 = 52;

// What an answer is marked with (`ResponseFlags`).
const ASSIGNMENT_CHANGED: i64 = 1;
const NOTIFICATION: i64 = 2;
const ERROR: i64 = 4;
const SERVER_OPERATION: i64 = 8;

/// The longest answer to a handshake: names, and an error's words.
const LONGEST_GREETING: u32 = 64 * 1024;
/// The longest answer to a request: a page of rows. Letters in the place of a length are more.
const LONGEST: u32 = 64 << 20;
/// In so many bytes stands all of an answer that is looked at, if it is no error: five numbers.
const HEAD: usize = 5 * 9;
/// In so many bytes stand an error's words; a stack trace may follow.
const ERROR_HEAD: usize = 64 * 1024;

/// The error of a version that is not spoken (`ErrorGroups.Client`).
const PROTOCOL_COMPATIBILITY: i64 = 0x3_0003;
/// The group of errors that is about logins (`ErrorGroups.Authentication`): the upper half of a code.
const AUTHENTICATION: i64 = 15;

/// Holds thin clients of a node, and asks with its heartbeat.
#[derive(Debug)]
pub struct Ignite {
    handshake: Vec<u8>,
    /// What of SQL_EXEC comes after its number.
    statement: Vec<u8>,
    target: Target,
}

/// What one client keeps: what it waits for, and how much of an answer is still to be passed over.
#[derive(Debug, Default)]
pub struct Slot {
    requests: Numbered,
    skip: u32,
    /// What is said once that was passed over.
    then: Option<Fact>,
    greeted: bool,
}

const _: () = assert!(size_of::<Slot>() <= 32);

impl Driver for Ignite {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Ignite,
        doc: "A thin client of a node of Apache Ignite 3, with the user and password of the URL; it is ready once the node has answered its handshake.",
        heartbeat: "A HEARTBEAT request; the answer with its number counts.",
        beats: Beats::Asked,
        operation: Some(
            "A statement of SQL, `SELECT 1` or the text: its first page of rows must come, and if it leaves a cursor open, that is closed.",
        ),
    };

    fn new(plan: &Plan) -> Self {
        let target = plan.target.clone();
        let mut handshake = MAGIC.to_vec();
        put_message(&mut handshake, |out| {
            out.extend_from_slice(&VERSION);
            out.push(GENERAL_CLIENT);
            out.extend_from_slice(&NO_FEATURES);
            let login = [
                ("authn-type", "basic"),
                ("authn-identity", target.user().unwrap_or_default()),
                ("authn-secret", target.password().unwrap_or_default()),
            ];
            let extensions = if target.login.is_some() { &login[..] } else { &[] };
            put_number(out, extensions.len() as u64);
            for (name, value) in extensions {
                put_text(out, name);
                put_text(out, value);
            }
        });

        let text = plan.operation.as_ref().and_then(|operation| operation.text.as_deref());
        // no transaction; the server's own schema, page size, timeouts and time zone; no properties
        let mut statement = b"\xc0\xc0\xc0\xc0\xc0\xc0\0\xc4\0".to_vec();
        put_text(&mut statement, text.unwrap_or("SELECT 1"));
        // no arguments; nothing was observed before
        statement.extend_from_slice(b"\xc0\0");
        Self { handshake, statement, target }
    }

    fn check(operation: &Operation) -> Result<(), String> {
        match operation.text.as_deref().map(str::trim) {
            Some("") => {
                Err("ignite carries out a statement of SQL, such as \"SELECT 1\"; this text is empty"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// Appends a message with its length before it.
fn put_message(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let length_at = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - length_at - 4) as u32;
    out[length_at..length_at + 4].copy_from_slice(&length.to_be_bytes());
}

/// Appends a request with its number.
fn put_request(out: &mut Vec<u8>, slot: &mut Slot, code: u8, request: Request, rest: &[u8]) {
    let number = slot.requests.add(request);
    put_message(out, |out| {
        out.push(code);
        put_number(out, u64::from(number));
        out.extend_from_slice(rest);
    });
}

impl Machine for Ignite {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => out.bytes.extend_from_slice(&self.handshake),
            Cue::Ask => put_request(&mut out.bytes, slot, HEARTBEAT, Request::Heartbeat, &[]),
            Cue::Operate => put_request(&mut out.bytes, slot, SQL_EXEC, Request::Operation, &self.statement),
            Cue::Finish => out.facts.push(Fact::Done),
            Cue::Bytes(bytes) => {
                let mut used = 0;
                while used < bytes.len() {
                    let rest = &bytes[used..];
                    let taken = match slot.greeted {
                        _ if slot.skip > 0 => slot.pass_over(rest, out),
                        false => self.greeting(slot, rest, out)?,
                        true => answer(slot, rest, out)?,
                    };
                    if taken == 0 {
                        break;
                    }
                    used += taken;
                }
                return Ok(used);
            }
        }
        Ok(0)
    }
}

impl Ignite {
    /// Takes the answer to the handshake; 0: more must come first.
    fn greeting(&self, slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let magic = bytes.len().min(MAGIC.len());
        if bytes[..magic] != MAGIC[..magic] {
            return Err(not_spoken(bytes));
        }
        let Some(body) = message(&bytes[magic..], LONGEST_GREETING)? else { return Ok(0) };
        let length = body.length as usize;
        let Some(mut body) = body.come.get(..length) else { return Ok(0) };

        let mut version = [0; 3];
        for part in &mut version {
            let Some(Value::Integer(number)) = take(&mut body) else { return Err(not_spoken(bytes)) };
            *part = number;
        }
        match take(&mut body) {
            Some(Value::Nil) => {}
            // an error begins with the name under which it stands in the node's log
            Some(Value::Bytes(_)) => {
                let error = Error::of(body).ok_or_else(|| not_spoken(bytes))?;
                return Err(self.refusal(&error, version));
            }
            _ => return Err(not_spoken(bytes)),
        }
        slot.greeted = true;
        let login = self.target.login.is_some();
        out.facts.extend([if login { Fact::LoggedIn } else { Fact::Upgraded }, Fact::Ready]);
        Ok(MAGIC.len() + 4 + length)
    }

    /// Why a node will not have us. It would keep the connection open, and say nothing on it ever again.
    fn refusal(&self, error: &Error<'_>, [major, minor, patch]: [i64; 3]) -> Failure {
        let words = format!("the node refused the handshake with {}", error.words());
        if error.code >> 16 == AUTHENTICATION {
            login_refused(words, &self.target)
        } else if error.code == PROTOCOL_COMPATIBILITY {
            against_protocol(format!(
                "{words}; it speaks version {major}.{minor}.{patch} of the client protocol, and plimsoll 3.0.0"
            ))
        } else {
            Failure::new(FailureKind::ServerRefused, words)
        }
    }
}

/// What has come of a message.
struct Message<'a> {
    length: u32,
    come: &'a [u8],
}

/// Takes a message's length; `None`: it has not come whole. What can be none is told at its first byte.
fn message(bytes: &[u8], longest: u32) -> Result<Option<Message<'_>>, Failure> {
    let come = bytes.len().min(4);
    let mut length = [0; 4];
    length[..come].copy_from_slice(&bytes[..come]);
    let length = u32::from_be_bytes(length);
    if length > longest {
        return Err(not_spoken(bytes));
    }
    Ok((come == 4).then(|| Message { length, come: &bytes[4..] }))
}

/// Takes as much of an answer as is looked at; 0: more must come first.
fn answer(slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
    let Some(message) = message(bytes, LONGEST)? else { return Ok(0) };
    let length = message.length as usize;
    let Some(mut head) = message.come.get(..length.min(HEAD)) else { return Ok(0) };
    let (Some(number), Some(flags)) = (integer(&mut head), integer(&mut head)) else {
        return Err(not_spoken(bytes));
    };

    if flags & SERVER_OPERATION != 0 {
        return Err(against_protocol(
            "the node asked for an operation, as it may ask executors of its jobs only",
        ));
    }
    if flags & NOTIFICATION != 0 {
        return Ok(slot.pass(message.length, Some(Fact::Heard)));
    }
    // what has changed, and the node's clock
    let numbers = if flags & ASSIGNMENT_CHANGED != 0 { 2 } else { 1 };
    for _ in 0..numbers {
        integer(&mut head).ok_or_else(|| not_spoken(bytes))?;
    }
    if flags & ERROR != 0 {
        let read = length.min(HEAD) - head.len();
        let Some(body) = message.come.get(read..length.min(ERROR_HEAD)) else { return Ok(0) };
        return Err(refused(body).unwrap_or_else(|| not_spoken(bytes)));
    }

    let request = u32::try_from(number).ok().and_then(|number| slot.requests.answer(number));
    let then = match request {
        None => {
            return Err(against_protocol(format!(
                "the node answered a request with the number {number}, which does not wait for an answer"
            )));
        }
        Some(Request::Heartbeat) => Some(Fact::Answered),
        Some(Request::Close) => Some(Fact::Operated),
        Some(Request::Operation) => match take(&mut head) {
            Some(Value::Nil) => Some(Fact::Operated),
            Some(Value::Integer(cursor)) => {
                let mut rest = Vec::with_capacity(9);
                put_number(&mut rest, cursor as u64);
                put_request(&mut out.bytes, slot, SQL_CURSOR_CLOSE, Request::Close, &rest);
                None
            }
            _ => return Err(not_spoken(bytes)),
        },
    };
    Ok(slot.pass(message.length, then))
}

fn integer(bytes: &mut &[u8]) -> Option<i64> {
    match take(bytes)? {
        Value::Integer(number) => Some(number),
        _ => None,
    }
}

/// The failure that an answer with an error means; `None`: it cannot be read.
fn refused(mut body: &[u8]) -> Option<Failure> {
    let Value::Bytes(_) = take(&mut body)? else { return None };
    Some(against_protocol(format!("the node answered a request with {}", Error::of(body)?.words())))
}

/// An error, behind its name in the node's log (`TraceableException`).
struct Error<'a> {
    code: i64,
    class: &'a [u8],
    message: &'a [u8],
    /// A stack trace, or how to have one sent.
    hint: &'a [u8],
}

impl<'a> Error<'a> {
    fn of(mut body: &'a [u8]) -> Option<Self> {
        let code = integer(&mut body)?;
        let mut text = || match take(&mut body)? {
            Value::Text(text) => Some(text),
            Value::Nil => Some(&b""[..]),
            _ => None,
        };
        let (class, message) = (text()?, text()?);
        // of a long stack trace, not all has come
        Some(Self { code, class, message, hint: text().unwrap_or_default() })
    }

    /// In the node's own words.
    fn words(&self) -> String {
        let (class, message) = (escaped(self.class, 100), escaped(self.message, 200));
        let hint = match self.hint {
            b"" => String::new(),
            hint => format!(" ({})", escaped(hint, 100)),
        };
        format!("{class} 0x{:08x}: {message}{hint}", self.code)
    }
}

impl Slot {
    /// Has so many bytes passed over, and then something said; gives how many their length takes.
    fn pass(&mut self, length: u32, then: Option<Fact>) -> usize {
        self.skip = length;
        self.then = then;
        4
    }

    /// Passes over what tells nothing, and says what its end means.
    fn pass_over(&mut self, bytes: &[u8], out: &mut Out) -> usize {
        let taken = bytes.len().min(self.skip as usize);
        self.skip -= taken as u32;
        if self.skip == 0 {
            out.facts.extend(self.then.take());
        }
        taken
    }
}

/// The failure of a server that speaks another language, or breaks off in this one.
fn not_spoken(said: &[u8]) -> Failure {
    let said = quote(said, 40);
    against_protocol(format!(
        "the server said {said}, which is no message of Ignite 3; check that its client connector listens there"
    ))
}

//! Does a gRPC server hold the connection, still answer on it, and carry out calls? ("gRPC over HTTP2",
//! <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>, over RFC 9113)

mod away;
pub(crate) mod framing;
mod head;
pub mod inquiry;
pub mod reflection;
pub(crate) mod status;

use std::borrow::Cow;

use model::{Call, CallKind, Failure, FailureKind, Operation, Scheme};

use crate::Plan;
use crate::h2::session::{Event, Session};
use crate::h2::{self, Broken, PROTOCOL_ERROR, STREAM_CLOSED, frame};
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::protobuf;
use crate::quote::against_protocol;
use framing::Framing;
use head::Answer;

/// The echo of the node, called where nothing else is.
const TALK: &str = "/plimsoll.v1.Messaging/Talk";
/// The field of its message.
const TEXT: u32 = 1;
/// The longest request; servers take no more than 4 MiB unless they are told to.
const MOST_REQUEST: usize = 16 * 1024 * 1024;
/// The most streams that one connection is asked to keep open.
const MOST_STREAMS: u32 = 10_000;

/// Holds HTTP/2 connections of gRPC and asks with PING; an operation is a call.
///
/// A bidirectional method's streams are opened as soon as the connection is ready, and kept.
#[derive(Debug)]
pub struct Grpc {
    path: String,
    kind: CallKind,
    /// The header block that begins a call.
    head: Vec<u8>,
    /// The request with its prefix.
    message: Vec<u8>,
    /// How many streams each connection keeps open.
    streams: u32,
}

/// What one connection keeps; its streams are boxed, and there only while they are open.
#[derive(Debug, Default)]
pub struct Slot {
    session: Session<Talk>,
    asked: u32,
    answered: u32,
    /// Calls that wait until the server allows one more stream.
    waiting: u32,
    /// Which stream the next message goes to.
    turn: u32,
    finished: bool,
}

const _: () = assert!(size_of::<Slot>() <= 80);

/// What is kept of one stream.
#[derive(Debug, Default)]
struct Talk {
    /// Bytes of requests that wait for room: the tail of so many as are under way.
    unsent: u64,
    /// Messages that are not answered yet.
    due: u32,
    /// Messages that came.
    came: u32,
    framing: Framing,
    /// The answer has begun.
    begun: bool,
}

impl Driver for Grpc {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Grpc,
        doc: "An HTTP/2 connection of gRPC; it is ready once the server's settings came.",
        heartbeat: "An HTTP/2 PING; its acknowledgement counts.",
        beats: Beats::Asked,
        operation: Some(
            "A message on an open stream of the node's plimsoll.v1.Messaging/Talk, with the text, answered by its echo; or the method of --call.",
        ),
    };

    fn new(plan: &Plan) -> Self {
        let call = match &plan.operation {
            Some(Operation { call: Some(call), .. }) => Cow::Borrowed(call),
            Some(Operation { text, .. }) => Cow::Owned(talk(text.as_deref())),
            None => Cow::Owned(Call { streams: 0, ..talk(None) }),
        };
        Self {
            head: head::request(&plan.target, &call.path, &call.metadata),
            message: framing::framed(&call.request),
            path: call.path.clone(),
            kind: call.kind,
            streams: if call.kind == CallKind::Bidirectional { call.streams } else { 0 },
        }
    }

    fn check(operation: &Operation) -> Result<(), String> {
        let Some(call) = &operation.call else { return Ok(()) };
        if operation.text.is_some() {
            return Err("what a call says is its --data; leave the text out".to_owned());
        }
        if call.request.len() > MOST_REQUEST {
            return Err(format!(
                "the request has {} bytes; at most {MOST_REQUEST} are sent",
                call.request.len()
            ));
        }
        if !(1..=MOST_STREAMS).contains(&call.streams) {
            return Err(format!("a connection keeps 1 to {MOST_STREAMS} streams, not {}", call.streams));
        }
        call.metadata.iter().try_for_each(head::check_metadata)
    }
}

/// The call that is made where none is named.
fn talk(text: Option<&str>) -> Call {
    let mut request = Vec::new();
    protobuf::put_bytes(&mut request, TEXT, text.unwrap_or("plimsoll").as_bytes());
    Call { path: TALK.to_owned(), request, kind: CallKind::Bidirectional, metadata: Vec::new(), streams: 1 }
}

impl Machine for Grpc {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => greet(&mut out.bytes),
            Cue::Ask => {
                frame::write(&mut out.bytes, frame::PING, 0, 0, &u64::from(slot.asked).to_be_bytes());
                slot.asked = slot.asked.wrapping_add(1);
            }
            Cue::Operate => self.operate(slot, out)?,
            Cue::Finish => {
                frame::go_away(&mut out.bytes, 0, h2::NO_ERROR, "");
                slot.finished = true;
                out.facts.push(Fact::Done);
            }
            Cue::Bytes(bytes) if slot.finished => return Ok(bytes.len()),
            Cue::Bytes(bytes) => {
                let mut used = 0;
                while used < bytes.len() {
                    let next = slot.session.next(&bytes[used..], &mut out.bytes);
                    let Some((event, taken)) = next.map_err(|what| away::broken(what, &mut out.bytes))?
                    else {
                        break;
                    };
                    self.take(slot, event, out)?;
                    used += taken;
                }
                return Ok(used);
            }
        }
        Ok(0)
    }
}

/// Begins a connection. The server is asked to keep no table of headers, so that its answers are read without one.
pub(crate) fn greet(out: &mut Vec<u8>) {
    out.extend_from_slice(h2::PREFACE);
    frame::settings(out, &[(frame::HEADER_TABLE_SIZE, 0), (frame::ENABLE_PUSH, 0)]);
}

impl Grpc {
    fn operate(&self, slot: &mut Slot, out: &mut Out) -> Result<(), Failure> {
        if self.kind != CallKind::Bidirectional {
            slot.waiting += 1;
            return self.start(slot, out);
        }
        let streams = slot.session.streams();
        let at = slot.turn as usize % streams.len().max(1);
        slot.turn = slot.turn.wrapping_add(1);
        let Some(stream) = streams.get_mut(at) else { return Ok(()) };
        stream.work.due += 1;
        stream.work.unsent += self.message.len() as u64;
        self.push(slot, at, out);
        Ok(())
    }

    /// Makes the calls that wait, as far as the server allows so many at a time.
    fn start(&self, slot: &mut Slot, out: &mut Out) -> Result<(), Failure> {
        while slot.waiting > 0 && slot.session.streams().len() < slot.session.most_streams as usize {
            slot.waiting -= 1;
            let at = self.open(slot, out)?;
            let work = &mut slot.session.streams()[at].work;
            work.due = 1;
            work.unsent = self.message.len() as u64;
            self.push(slot, at, out);
        }
        Ok(())
    }

    /// Begins a call.
    fn open(&self, slot: &mut Slot, out: &mut Out) -> Result<usize, Failure> {
        let Some(id) = slot.session.next_id() else {
            return Err(against_protocol("all 2^30 streams that HTTP/2 gives a connection were used"));
        };
        put_block(&mut out.bytes, id, &self.head);
        Ok(slot.session.open(id, Talk::default()))
    }

    /// Sends of what waits on a stream as much as the windows allow.
    fn push(&self, slot: &mut Slot, at: usize, out: &mut Out) {
        let length = self.message.len() as u64;
        loop {
            let unsent = slot.session.streams()[at].work.unsent;
            if unsent == 0 {
                return;
            }
            // All requests are the same: where in one of them we are is what is left of it.
            let left = (unsent - 1) % length + 1;
            let bytes = &self.message[(length - left) as usize..];
            let end = self.kind != CallKind::Bidirectional;
            let sent = slot.session.send(at, bytes, end, &mut out.bytes);
            slot.session.streams()[at].work.unsent -= sent as u64;
            if sent < bytes.len() {
                return;
            }
        }
    }

    fn take(&self, slot: &mut Slot, event: Event<'_>, out: &mut Out) -> Result<(), Failure> {
        match event {
            Event::Quiet => Ok(()),
            Event::Settled => self.settled(slot, out),
            Event::Pong(payload) => {
                pong(slot, u64::from_be_bytes(payload), out);
                Ok(())
            }
            Event::Room => {
                for at in 0..slot.session.streams().len() {
                    self.push(slot, at, out);
                }
                self.start(slot, out)
            }
            Event::Headers { stream, block, end } => {
                let answer = Answer::read(&block).map_err(|what| away::broken(what, &mut out.bytes))?;
                match slot.session.find(stream) {
                    Some(at) => self.headers(slot, at, &answer, end, out),
                    None if stream <= slot.session.last() && !stream.is_multiple_of(2) => Ok(()),
                    None => Err(broken(PROTOCOL_ERROR, "headers on a stream that was never opened", out)),
                }
            }
            Event::Data { stream, bytes, end } => match slot.session.find(stream) {
                Some(at) => self.data(slot, at, bytes, end, out),
                None => Ok(()),
            },
            Event::Reset { stream, code } => match slot.session.find(stream) {
                Some(_) => Err(away::stream(&self.path, code)),
                None => Ok(()),
            },
            Event::Away { code, words } => Err(away::connection(code, words)),
        }
    }

    /// The connection stands: opens the streams that it is to keep.
    fn settled(&self, slot: &mut Slot, out: &mut Out) -> Result<(), Failure> {
        let most = slot.session.most_streams;
        if self.streams > most {
            let text = format!(
                "the server allows {most} streams on a connection, and {} were asked for; ask for fewer with --streams",
                self.streams
            );
            return Err(Failure::new(FailureKind::ServerRefused, text));
        }
        out.facts.extend([Fact::Upgraded, Fact::Ready]);
        for _ in 0..self.streams {
            self.open(slot, out)?;
        }
        Ok(())
    }

    fn headers(
        &self,
        slot: &mut Slot,
        at: usize,
        answer: &Answer,
        end: bool,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let work = &mut slot.session.streams()[at].work;
        if !work.begun && !end && answer.is_interim() {
            return Ok(());
        }
        if !work.begun {
            answer.check(&self.path)?;
            work.begun = true;
        } else if !end {
            return Err(broken(PROTOCOL_ERROR, "headers in the midst of an answer", out));
        }
        if !end {
            return Ok(());
        }
        answer.end(&self.path)?;
        let work = slot.session.close(at, &mut out.bytes);
        let came = work.came;
        if !work.framing.is_between() {
            return Err(self.ended("in the midst of a message"));
        }
        match self.kind {
            CallKind::Bidirectional => {
                let text =
                    format!("the server ended the stream of {} with OK, and was to keep it", self.path);
                return Err(Failure::new(FailureKind::Closed, text));
            }
            CallKind::Unary if came != 1 => {
                return Err(self.ended(&format!("with {came} messages, not with one")));
            }
            _ => out.facts.push(Fact::Operated),
        }
        self.start(slot, out)
    }

    fn data(
        &self,
        slot: &mut Slot,
        at: usize,
        bytes: &[u8],
        end: bool,
        out: &mut Out,
    ) -> Result<(), Failure> {
        let work = &mut slot.session.streams()[at].work;
        if !work.begun {
            return Err(broken(STREAM_CLOSED, "an answer without headers", out));
        }
        let Ok(messages) = work.framing.follow(bytes) else {
            return Err(against_protocol(format!(
                "the server compressed its answer to {}, which it was not allowed to",
                self.path
            )));
        };
        work.came = work.came.saturating_add(messages);
        if self.kind == CallKind::Bidirectional {
            for _ in 0..messages {
                out.facts.push(if work.due > 0 { Fact::Operated } else { Fact::Heard });
                work.due = work.due.saturating_sub(1);
            }
        }
        if end {
            return Err(self.ended("without a status"));
        }
        slot.session.took(at, bytes.len(), &mut out.bytes);
        Ok(())
    }

    fn ended(&self, how: &str) -> Failure {
        against_protocol(format!("the server ended the answer to {} {how}", self.path))
    }
}

fn broken(code: u32, what: &'static str, out: &mut Out) -> Failure {
    away::broken(Broken::new(code, what), &mut out.bytes)
}

/// A Ping's answer stands for those before it, too: it was sent later than they were received.
fn pong(slot: &mut Slot, seq: u64, out: &mut Out) {
    let Ok(seq) = u32::try_from(seq) else { return };
    let due = slot.asked.wrapping_sub(slot.answered);
    let later = seq.wrapping_sub(slot.answered);
    if later < due {
        out.facts.extend((0..=later).map(|_| Fact::Answered));
        slot.answered = seq.wrapping_add(1);
    }
}

/// Appends a header block, in as many frames as it takes (RFC 9113, section 6.10).
pub(crate) fn put_block(out: &mut Vec<u8>, stream: u32, block: &[u8]) {
    let mut parts = block.chunks(frame::MOST_PAYLOAD).peekable();
    let mut kind = frame::HEADERS;
    while let Some(part) = parts.next() {
        let flags = if parts.peek().is_none() { frame::END_HEADERS } else { 0 };
        frame::write(out, kind, flags, stream, part);
        kind = frame::CONTINUATION;
    }
}

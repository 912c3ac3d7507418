//! What does the node answer on an HTTP/2 connection? The calls of its gRPC services.
//!
//! What came is credited to the client only once it was answered, so that at most one window waits here for a client
//! that does not read.

mod calls;
mod descriptors;

use super::request::Status;
use crate::grpc::framing::{self, Framing, PREFIX};
use crate::grpc::put_block;
use crate::grpc::status::{INTERNAL, OK, RESOURCE_EXHAUSTED, UNIMPLEMENTED, escaped};
use crate::h2::hpack::{self, Memory};
use crate::h2::session::{Event, Session};
use crate::h2::{self, Broken, PROTOCOL_ERROR, REFUSED_STREAM, frame};
use calls::Method;

/// The most streams that one connection may have open.
const MOST_STREAMS: u32 = 1000;
/// The longest request of a method that does more than echo.
const MOST_REQUEST: u32 = 8 * 1024;
/// `:status` with another code than 200, by the number of its name.
const STATUS: u8 = 8;

/// What is kept of one connection; it is boxed, and its streams too.
#[derive(Debug)]
pub(super) struct Connection {
    session: Session<Work>,
    memory: Memory,
    phase: Phase,
}

const _: () = assert!(size_of::<Connection>() <= 80);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The client's preface is due.
    New,
    /// The same, and it will be told that the node is full.
    Refusing,
    /// Frames flow.
    Open,
    /// The client has said good-bye; what it began is finished.
    Leaving,
}

/// What is kept of one call.
#[derive(Debug)]
struct Work {
    waiting: Option<Box<Waiting>>,
    framing: Framing,
    /// Messages that came, as far as they are counted: none, one, or more.
    came: u8,
    method: Method,
}

const _: () = assert!(size_of::<crate::h2::session::Stream<Work>>() <= 40);

/// Bytes that wait, there only while there are some.
#[derive(Debug, Default)]
struct Waiting {
    /// Received, and not answered yet.
    inbox: Vec<u8>,
    /// To be sent once the client's windows allow it.
    outbox: Vec<u8>,
}

/// What is looked at in the headers of a call.
#[derive(Debug, Default)]
struct Request {
    post: bool,
    grpc: bool,
    packed: bool,
    method: Option<Method>,
}

impl Connection {
    /// One that begins; `full`: only to be turned away.
    pub(super) fn new(full: bool) -> Self {
        let phase = if full { Phase::Refusing } else { Phase::New };
        Self { session: Session::default(), memory: Memory::new(), phase }
    }

    /// Says good-bye.
    pub(super) fn finish(&self, out: &mut Vec<u8>) {
        if matches!(self.phase, Phase::Open | Phase::Leaving) {
            frame::go_away(out, self.session.last(), h2::NO_ERROR, "the node ends");
        }
    }

    /// Takes a frame: how many bytes it had, 0 while it is not all there, `None` if the connection is closed.
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        if matches!(self.phase, Phase::New | Phase::Refusing) {
            return self.greet(bytes, out);
        }
        let taken = self.frame(bytes, out).unwrap_or_else(|broken| {
            frame::go_away(out, self.session.last(), broken.code, broken.what);
            None
        })?;
        let over = self.phase == Phase::Leaving && self.session.streams().is_empty();
        (!over).then_some(taken)
    }

    fn greet(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Option<usize> {
        let wrong = !bytes.starts_with(&h2::PREFACE[..bytes.len().min(h2::PREFACE.len())]);
        if bytes.len() < h2::PREFACE.len() && !wrong {
            return Some(0);
        }
        // No table of headers, as soon as the client knows: it would be kept for each connection.
        frame::settings(out, &[(frame::HEADER_TABLE_SIZE, 0), (frame::MAX_CONCURRENT_STREAMS, MOST_STREAMS)]);
        if wrong {
            frame::go_away(out, 0, PROTOCOL_ERROR, "no HTTP/2 preface; gRPC is spoken here");
            return None;
        }
        if self.phase == Phase::Refusing {
            let words = String::from_utf8_lossy(Status::FULL.words());
            frame::go_away(out, 0, h2::ENHANCE_YOUR_CALM, words.trim_end());
            return None;
        }
        self.phase = Phase::Open;
        Some(h2::PREFACE.len())
    }

    /// Takes one frame; `Ok(Some(0))`: it is not all there.
    fn frame(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<usize>, Broken> {
        let Some((event, taken)) = self.session.next(bytes, out)? else { return Ok(Some(0)) };
        match event {
            Event::Quiet | Event::Settled | Event::Pong(_) => {}
            Event::Room => {
                // From the last one: a stream that ends gives its place to the last.
                for at in (0..self.session.streams().len()).rev() {
                    self.pump(at, out);
                }
            }
            Event::Headers { stream, block, end } => self.headers(stream, &block, end, out)?,
            Event::Data { stream, bytes, .. } => {
                if let Some(at) = self.session.find(stream) {
                    self.data(at, bytes, out);
                }
            }
            Event::Reset { stream, .. } => {
                if let Some(at) = self.session.find(stream) {
                    self.session.close(at, out);
                }
            }
            Event::Away { .. } => self.phase = Phase::Leaving,
        }
        Ok(Some(taken))
    }

    fn headers(&mut self, id: u32, block: &[u8], end: bool, out: &mut Vec<u8>) -> Result<(), Broken> {
        let mut request = Request::default();
        // Read in any case: the client may have given its headers numbers.
        hpack::read(block, &mut self.memory, |name, value| match name {
            b":method" => request.post = value == b"POST",
            b":path" => request.method = Method::named(value),
            b"content-type" => request.grpc = value.starts_with(b"application/grpc"),
            b"grpc-encoding" => request.packed = value != b"identity",
            _ => {}
        })?;
        if let Some(at) = self.session.find(id) {
            if !end {
                return Err(Broken::new(PROTOCOL_ERROR, "headers in the midst of a request"));
            }
            self.pump(at, out);
            return Ok(());
        }
        if id.is_multiple_of(2) {
            return Err(Broken::new(PROTOCOL_ERROR, "a stream with an even number"));
        }
        if id <= self.session.last() {
            // It was on its way when the stream ended.
            return Ok(());
        }
        if self.session.streams().len() >= MOST_STREAMS as usize {
            self.session.pass(id);
            frame::write(out, frame::RST_STREAM, 0, id, &REFUSED_STREAM.to_be_bytes());
            return Ok(());
        }
        let (http, status) = match &request {
            Request { post: false, .. } => (b"405", None),
            Request { grpc: false, .. } => (b"415", None),
            Request { packed: true, .. } => (b"200", Some("only grpc-encoding identity is taken here")),
            Request { method: None, .. } => (b"200", Some("unknown method")),
            Request { method: Some(method), .. } => {
                let work = Work { waiting: None, framing: Framing::default(), came: 0, method: *method };
                let at = self.session.open(id, work);
                self.session.streams()[at].ended = end;
                put_block(out, id, &answer(b"200"));
                if end {
                    self.pump(at, out);
                }
                return Ok(());
            }
        };
        self.session.pass(id);
        let mut block = answer(http);
        if let Some(words) = status {
            put_status(&mut block, UNIMPLEMENTED, words);
        }
        put_end(out, id, &block, end);
        Ok(())
    }

    fn data(&mut self, at: usize, bytes: &[u8], out: &mut Vec<u8>) {
        let stream = &mut self.session.streams()[at];
        let work = &mut stream.work;
        let Ok(messages) = work.framing.follow(bytes) else {
            return self.end(
                at,
                UNIMPLEMENTED,
                "a compressed message, though no encoding was agreed on",
                out,
            );
        };
        work.came = work.came.saturating_add(messages.min(2) as u8);
        if work.method.is_unary() && work.came > 1 {
            return self.end(at, INTERNAL, "more than one message for a method that takes one", out);
        }
        let mut kept = bytes;
        if work.method.echoes() && work.waiting.is_none() {
            let sent = self.session.send(at, bytes, false, out);
            self.session.took(at, sent, out);
            kept = &bytes[sent..];
        }
        if !kept.is_empty() {
            let work = &mut self.session.streams()[at].work;
            let waiting = work.waiting.get_or_insert_default();
            let to = if work.method.echoes() { &mut waiting.outbox } else { &mut waiting.inbox };
            to.extend_from_slice(kept);
        }
        self.pump(at, out);
    }

    /// Sends and answers what can be, and ends the stream if that is all.
    fn pump(&mut self, at: usize, out: &mut Vec<u8>) {
        let stream = &mut self.session.streams()[at];
        if stream.work.waiting.is_none() && !stream.ended {
            return;
        }
        let method = stream.work.method;
        let mut waiting = stream.work.waiting.take().unwrap_or_default();
        loop {
            let sent = self.session.send(at, &waiting.outbox, false, out);
            waiting.outbox.drain(..sent);
            if method.echoes() {
                self.session.took(at, sent, out);
            }
            // One answer at a time: an answer is longer than its question.
            if !waiting.outbox.is_empty() || waiting.inbox.len() < PREFIX {
                break;
            }
            let length = waiting.inbox[1..PREFIX].iter().fold(0, |n, &byte| n << 8 | u32::from(byte));
            if length > MOST_REQUEST {
                return self.end(at, RESOURCE_EXHAUSTED, "a request of more than 8 KiB", out);
            }
            let Some((message, taken)) = framing::first(&waiting.inbox) else { break };
            match method.answer(message) {
                Ok(answer) => waiting.outbox = framing::framed(&answer),
                Err((code, words)) => return self.end(at, code, words, out),
            }
            waiting.inbox.drain(..taken);
            self.session.took(at, taken, out);
        }
        let stream = &mut self.session.streams()[at];
        if !waiting.outbox.is_empty() || !stream.ended {
            if !waiting.outbox.is_empty() || !waiting.inbox.is_empty() {
                stream.work.waiting = Some(waiting);
            }
            return;
        }
        if !stream.work.framing.is_between() {
            return self.end(at, INTERNAL, "a request that ends in the midst of a message", out);
        }
        if method.is_unary() && stream.work.came != 1 {
            return self.end(at, INTERNAL, "no message for a method that takes one", out);
        }
        self.end(at, OK, "", out);
    }

    /// Ends a call whose answer has begun; what of it waits is dropped.
    fn end(&mut self, at: usize, code: u32, words: &str, out: &mut Vec<u8>) {
        let stream = &self.session.streams()[at];
        let mut block = hpack::begin();
        put_status(&mut block, code, words);
        put_end(out, stream.id, &block, stream.ended);
        self.session.close(at, out);
    }
}

/// The header block that begins an answer.
fn answer(status: &[u8; 3]) -> Vec<u8> {
    let mut block = hpack::begin();
    if status == b"200" {
        hpack::put_known(&mut block, hpack::STATUS_200);
    } else {
        hpack::put_value(&mut block, STATUS, status);
    }
    hpack::put_value(&mut block, hpack::CONTENT_TYPE, b"application/grpc");
    block
}

/// Appends the trailers' headers.
fn put_status(block: &mut Vec<u8>, code: u32, words: &str) {
    hpack::put(block, b"grpc-status", code.to_string().as_bytes());
    if !words.is_empty() {
        hpack::put(block, b"grpc-message", escaped(words).as_bytes());
    }
}

/// Ends a stream with headers; a client that has not ended it may stop sending (RFC 9113, section 8.1).
fn put_end(out: &mut Vec<u8>, id: u32, block: &[u8], ended: bool) {
    frame::write(out, frame::HEADERS, frame::END_HEADERS | frame::END_STREAM, id, block);
    if !ended {
        frame::write(out, frame::RST_STREAM, 0, id, &h2::NO_ERROR.to_be_bytes());
    }
}

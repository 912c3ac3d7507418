//! What does the node answer? The server side of tcp, http, ws, sse and grpc, as one machine.
//!
//! An idle connection owns nothing but its slot. A request, or a WebSocket frame, is answered when all of it is
//! there; until then its bytes stay unconsumed with the caller, at most about 2 MiB of them.

mod grpc;
mod request;
mod socket;

use std::fmt;

use model::Failure;

use crate::machine::{Cue, Fact, Machine, Out};
use crate::nonce::unhex;
use crate::sse::{NUDGE, NUDGED};
use grpc::Connection;
use request::{Request, Status};
use socket::Socket;

/// The largest request body and the largest WebSocket message that are taken.
pub const MOST_BODY: usize = 1024 * 1024;

/// The largest request head that is taken.
pub const MOST_HEAD: usize = 16 * 1024;

/// The longest line that is waited for on an event stream.
const MOST_NUDGE: usize = 64;

/// The serving side of every protocol that the node speaks.
///
/// An echo slot returns every byte (RFC 862). An HTTP slot answers HTTP/1.1 (RFC 9112) and HTTP/1.0:
///
/// | path | method | answer |
/// | --- | --- | --- |
/// | `/` | GET, HEAD | a line of text |
/// | `/healthz` | GET, HEAD | `ok` |
/// | `/metrics` | GET, HEAD | OpenMetrics text, as the caller gives it |
/// | `/echo` | POST | the body of the request |
/// | `/ws` | GET | an upgrade to a WebSocket (RFC 6455) that echoes each message |
/// | `/events` | GET | an event stream (WHATWG HTML, section 9.2) that ends when the connection does |
///
/// The event stream is not sent in chunks: it ends with the connection (RFC 9112, section 6.3, item 8), so that
/// a heartbeat costs its own bytes only. It answers nudges, see [`crate::sse::EventStream`].
///
/// A gRPC slot answers HTTP/2 (RFC 9113): `plimsoll.v1.Messaging` with `Echo` and `Talk`, `grpc.health.v1.Health/Check`,
/// and server reflection, which describes them all; their files stand in `proto/`.
///
/// [`Cue::Ask`] keeps a quiet connection alive: a Ping on a WebSocket, a comment on an event stream, nothing
/// elsewhere. The machine never fails: what is wrong is answered in the protocol's words and then [`Fact::Done`].
pub struct Service {
    server_name: String,
    status: Box<dyn Fn() -> String>,
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

/// What the node keeps of one connection.
#[derive(Debug)]
pub struct Slot(State);

const _: () = assert!(size_of::<Slot>() <= 16);

#[derive(Debug)]
enum State {
    /// Every byte comes back.
    Echo,
    /// The next request is due, or on its way.
    Http {
        /// `100 Continue` has been sent for the request on its way.
        continued: bool,
    },
    /// The next request will be told that the node is full.
    Refusing,
    /// Upgraded.
    Socket(Socket),
    /// An event stream.
    Events,
    /// HTTP/2 with calls of gRPC.
    Grpc(Box<Connection>),
    /// All is said: whatever still comes is not looked at.
    Closed,
}

impl Slot {
    /// A connection on which every byte comes back.
    pub fn echo() -> Self {
        Self(State::Echo)
    }

    /// A connection that starts with HTTP; the same as the default.
    pub fn http() -> Self {
        Self(State::Http { continued: false })
    }

    /// A connection whose first HTTP request is answered with 503, and which then ends.
    pub fn refusing() -> Self {
        Self(State::Refusing)
    }

    /// A connection of gRPC.
    pub fn grpc() -> Self {
        Self(State::Grpc(Box::new(Connection::new(false))))
    }

    /// A connection of gRPC that is greeted with GOAWAY, and then ends.
    pub fn refusing_grpc() -> Self {
        Self(State::Grpc(Box::new(Connection::new(true))))
    }
}

impl Default for Slot {
    fn default() -> Self {
        Self::http()
    }
}

/// What is answered to one request, besides its framing.
struct Answer<'a> {
    status: Status,
    /// Further header lines, each with its line end.
    lines: &'a str,
    body: &'a [u8],
}

impl Machine for Service {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match (cue, &mut slot.0) {
            (Cue::Ask, State::Socket(socket)) => socket.ask(out),
            (Cue::Ask, State::Events) => out.bytes.extend_from_slice(b": beat\n\n"),
            (Cue::Connected | Cue::Ask | Cue::Operate, _) | (Cue::Finish, State::Closed) => {}
            (Cue::Finish, state) => {
                match state {
                    State::Socket(socket) => socket.finish(out),
                    State::Grpc(connection) => connection.finish(&mut out.bytes),
                    _ => {}
                }
                close(state, out);
            }
            (Cue::Bytes(bytes), state) => {
                let mut used = 0;
                while used < bytes.len() {
                    let taken = self.step(state, &bytes[used..], out);
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

impl Service {
    /// A service that names itself so, and asks `status` for the text of `/metrics` each time it is wanted.
    pub fn new(server_name: impl Into<String>, status: Box<dyn Fn() -> String>) -> Self {
        Self { server_name: server_name.into(), status }
    }

    /// Takes one message off the front; 0 while it is not all there.
    fn step(&self, state: &mut State, bytes: &[u8], out: &mut Out) -> usize {
        match state {
            State::Echo => {
                out.bytes.extend_from_slice(bytes);
                bytes.len()
            }
            State::Http { .. } | State::Refusing => match self.request(state, bytes, out) {
                Ok(taken) => taken,
                Err(status) => {
                    self.answer(None, false, &Answer { status, lines: "", body: status.words() }, out);
                    close(state, out);
                    bytes.len()
                }
            },
            State::Socket(socket) => match socket.frame(bytes, out) {
                Some(taken) => taken,
                None => {
                    close(state, out);
                    bytes.len()
                }
            },
            State::Events => events(state, bytes, out),
            State::Grpc(connection) => connection.take(bytes, &mut out.bytes).unwrap_or_else(|| {
                close(state, out);
                bytes.len()
            }),
            State::Closed => bytes.len(),
        }
    }

    fn request(&self, state: &mut State, bytes: &[u8], out: &mut Out) -> Result<usize, Status> {
        let Some(request) = Request::read(bytes)? else { return Ok(0) };
        if matches!(state, State::Refusing) {
            let answer =
                Answer { status: Status::FULL, lines: "Retry-After: 1\r\n", body: Status::FULL.words() };
            self.answer(Some(&request), false, &answer, out);
            close(state, out);
            return Ok(bytes.len());
        }
        if request.expects_continue && matches!(state, State::Http { continued: false }) {
            out.bytes.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            *state = State::Http { continued: true };
        }
        let Some((body, taken)) = request.body(bytes)? else { return Ok(0) };
        *state = State::Http { continued: false };
        self.route(state, &request, &body, out);
        if !request.keep && matches!(state, State::Http { .. }) {
            close(state, out);
        }
        Ok(taken)
    }

    fn route(&self, state: &mut State, request: &Request<'_>, body: &[u8], out: &mut Out) {
        const TEXT: &str = "Content-Type: text/plain; charset=utf-8\r\n";
        let readable = |status: Status, lines, body| Answer { status, lines, body };
        let text;
        let answer = match (request.path, request.method) {
            ("/", "GET" | "HEAD") => readable(
                Status::OK,
                TEXT,
                b"plimsoll's node: /ws echoes, /events beats, /echo returns a POST, /metrics counts\n"
                    .as_slice(),
            ),
            ("/healthz", "GET" | "HEAD") => readable(Status::OK, TEXT, b"ok\n"),
            ("/metrics", "GET" | "HEAD") => {
                text = (self.status)();
                readable(
                    Status::OK,
                    "Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n",
                    text.as_bytes(),
                )
            }
            ("/echo", "POST") => readable(Status::OK, "Content-Type: application/octet-stream\r\n", body),
            ("/ws", "GET") => match socket::agree(request) {
                Ok(accept) => {
                    out.bytes.extend_from_slice(
                        format!(
                            "HTTP/1.1 101 Switching Protocols\r\nServer: {}\r\nUpgrade: websocket\r\n\
                             Connection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n\r\n",
                            self.server_name
                        )
                        .as_bytes(),
                    );
                    *state = State::Socket(Socket::default());
                    return;
                }
                Err(status) => readable(
                    status,
                    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
                    status.words(),
                ),
            },
            ("/events", "GET") => {
                out.bytes.extend_from_slice(
                    format!(
                        "HTTP/1.1 200 OK\r\nServer: {}\r\nContent-Type: text/event-stream\r\n\
                         Cache-Control: no-store\r\n{NUDGE}: 1\r\nConnection: close\r\n\r\n",
                        self.server_name
                    )
                    .as_bytes(),
                );
                *state = State::Events;
                return;
            }
            ("/" | "/healthz" | "/metrics", _) => refused(Status::WRONG_METHOD, "Allow: GET, HEAD\r\n"),
            ("/ws" | "/events", _) => refused(Status::WRONG_METHOD, "Allow: GET\r\n"),
            ("/echo", _) => refused(Status::WRONG_METHOD, "Allow: POST\r\n"),
            _ => refused(Status::NOT_FOUND, ""),
        };
        self.answer(Some(request), request.keep, &answer, out);
    }

    /// Writes a response with its length (RFC 9112, section 6.2); a HEAD gets the same without the body.
    fn answer(&self, request: Option<&Request<'_>>, keep: bool, answer: &Answer<'_>, out: &mut Out) {
        let connection = match (keep, request.map(|r| r.minor)) {
            (false, _) => "Connection: close\r\n",
            (true, Some(0)) => "Connection: keep-alive\r\n",
            (true, _) => "",
        };
        let head = format!(
            "HTTP/1.1 {} {}\r\nServer: {}\r\n{}{connection}Content-Length: {}\r\n\r\n",
            answer.status.code(),
            answer.status.reason(),
            self.server_name,
            answer.lines,
            answer.body.len()
        );
        out.bytes.extend_from_slice(head.as_bytes());
        if request.is_none_or(|r| r.method != "HEAD") {
            out.bytes.extend_from_slice(answer.body);
        }
    }
}

fn refused(status: Status, lines: &str) -> Answer<'_> {
    Answer { status, lines, body: status.words() }
}

fn close(state: &mut State, out: &mut Out) {
    *state = State::Closed;
    out.facts.push(Fact::Done);
}

/// Answers one nudge; another line is passed over, and what is no line ends the stream.
fn events(state: &mut State, bytes: &[u8], out: &mut Out) -> usize {
    let Some(end) = bytes.iter().take(MOST_NUDGE).position(|&b| b == b'\n') else {
        if bytes.len() < MOST_NUDGE {
            return 0;
        }
        close(state, out);
        return bytes.len();
    };
    let line = bytes[..end].strip_suffix(b"\r").unwrap_or(&bytes[..end]);
    let seq = line.strip_prefix(NUDGE.as_bytes()).and_then(|rest| rest.strip_prefix(b" "));
    if let Some(seq) = seq.filter(|seq| unhex(seq).is_some()) {
        out.bytes.push(b':');
        out.bytes.extend_from_slice(NUDGED);
        out.bytes.extend_from_slice(seq);
        out.bytes.extend_from_slice(b"\n\n");
    }
    end + 1
}

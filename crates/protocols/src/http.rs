//! Does an HTTP/1.1 server keep the connection, and still answer on it? (RFC 9110, RFC 9112)

use model::{Failure, Operation, Scheme};

use crate::Plan;
use crate::body::Body;
use crate::head::{self, Head};
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::quote::{against_protocol, quote};
use crate::waiting::Waiting;

/// The methods that an operation may have: of CONNECT nothing comes back in HTTP.
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];

/// Holds keep-alive connections and asks with GET (RFC 9112, section 9.3).
///
/// A connection is ready as soon as it stands: HTTP has no greeting. Asks and operations may be pipelined (section
/// 9.3.2).
#[derive(Debug)]
pub struct KeepAlive {
    request: Vec<u8>,
    operation: Vec<u8>,
    /// The operation is a HEAD, whose answer has no body whatever its length says.
    without_body: bool,
}

/// What one keep-alive connection keeps: which answers are due, and where in one it stands.
#[derive(Debug, Default)]
pub struct Slot {
    waiting: Waiting,
    body: Body,
}

const _: () = assert!(size_of::<Slot>() <= 24);

impl Driver for KeepAlive {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Http,
        doc: "An HTTP/1.1 connection kept alive between requests; it is ready as soon as it is open.",
        heartbeat: "A GET of the URL's path; any 2xx or 3xx answer counts once its body is complete.",
        beats: Beats::Asked,
        operation: Some(
            "A GET of the URL's path, or the text as METHOD /path or METHOD /path BODY, or a POST of what --data says; any 2xx or 3xx answer counts once its body is complete.",
        ),
    };

    fn new(plan: &Plan) -> Self {
        let mut request = head::get(plan, &["Accept: */*"]);
        request.extend_from_slice(b"\r\n");
        let text = plan.operation.as_ref().and_then(|o| o.text.as_deref());
        let call = text.and_then(Call::read);
        Self {
            operation: call.as_ref().map_or_else(|| request.clone(), |call| call.request(plan)),
            without_body: call.is_some_and(|call| call.method == "HEAD"),
            request,
        }
    }

    fn check(operation: &Operation) -> Result<(), String> {
        match &operation.text {
            Some(text) if Call::read(text).is_none() => Err(format!(
                "{} is no request; write METHOD /path or METHOD /path BODY, with the method {}",
                quote(text.as_bytes(), 80),
                METHODS.join(", ")
            )),
            _ => Ok(()),
        }
    }
}

/// A request as an operation's text has it.
struct Call<'a> {
    method: &'a str,
    path: &'a str,
    body: Option<&'a str>,
}

impl<'a> Call<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (method, rest) = text.split_once(' ')?;
        // Servers may want to be told that nothing follows these (RFC 9110, section 8.6).
        let none = matches!(method, "POST" | "PUT" | "PATCH").then_some("");
        let (path, body) = rest.split_once(' ').map_or((rest, none), |(path, body)| (path, Some(body)));
        (METHODS.contains(&method) && path.starts_with('/')).then_some(Self { method, path, body })
    }

    fn request(&self, plan: &Plan) -> Vec<u8> {
        let length = self.body.map(|body| format!("Content-Length: {}", body.len()));
        let json = self.body.is_some_and(|body| serde_json::from_str::<serde_json::Value>(body).is_ok());
        let kind =
            if json { "Content-Type: application/json" } else { "Content-Type: text/plain; charset=utf-8" };
        let mut lines = vec!["Accept: */*"];
        lines.extend(length.as_deref().into_iter().flat_map(|length| [kind, length]));
        let mut request = head::request(self.method, self.path, plan, &lines);
        request.extend_from_slice(b"\r\n");
        request.extend_from_slice(self.body.unwrap_or_default().as_bytes());
        request
    }
}

impl Machine for KeepAlive {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => out.facts.push(Fact::Ready),
            Cue::Ask => {
                slot.waiting.ask();
                out.bytes.extend_from_slice(&self.request);
            }
            Cue::Operate => {
                slot.waiting.operate();
                out.bytes.extend_from_slice(&self.operation);
            }
            Cue::Finish => out.facts.push(Fact::Done),
            Cue::Bytes(bytes) => return self.read(slot, bytes, out),
        }
        Ok(0)
    }
}

impl KeepAlive {
    fn read(&self, slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let mut used = 0;
        while used < bytes.len() {
            if slot.body.ended() {
                let Some(head) = Head::read(&bytes[used..])? else { break };
                used += head.length;
                if head.is_interim() {
                    continue;
                }
                slot.body = self.judge(&slot.waiting, &head, &bytes[used..])?;
            } else {
                let taken = slot.body.take(&bytes[used..]).map_err(|what| {
                    against_protocol(format!("the body of the server's answer cannot be read: {what}"))
                })?;
                let Some((n, _)) = taken else { break };
                used += n;
            }
            if slot.body.ended() {
                out.facts.extend(slot.waiting.answer());
            }
        }
        Ok(used)
    }

    /// The body of a welcome answer, or why the answer is not welcome.
    fn judge(&self, waiting: &Waiting, head: &Head<'_>, rest: &[u8]) -> Result<Body, Failure> {
        if waiting.is_empty() {
            // Servers say 408 or 503 before they close an idle connection (RFC 9110, section 15.5.9).
            return Err(if head.code >= 400 {
                head.refusal(rest)
            } else {
                against_protocol(format!(
                    "the server answered {} though nothing was asked",
                    head.status_line()
                ))
            });
        }
        if head.code >= 400 {
            let hint = if waiting.is_operation() {
                "an operation must be answered with 2xx or 3xx"
            } else {
                "name a path in the URL that answers 2xx"
            };
            return Err(head.unwelcome(rest, hint));
        }
        if head.code == 101 {
            return Err(head.unwelcome(rest, "no upgrade was asked for; use ws:// for a WebSocket"));
        }
        if self.without_body && waiting.is_operation() {
            return Ok(Body::Ended);
        }
        match head.body()? {
            Body::UntilClose => Err(against_protocol(format!(
                "the server answered {} with a body that only ends when it closes, so it does not keep the \
                 connection alive; name a path that answers with a Content-Length or in chunks",
                head.status_line()
            ))),
            body => Ok(body),
        }
    }
}

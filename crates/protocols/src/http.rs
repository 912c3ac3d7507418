//! Does an HTTP/1.1 server keep the connection, and still answer on it? (RFC 9110, RFC 9112)

use model::{Failure, Scheme};

use crate::Plan;
use crate::body::Body;
use crate::head::{self, Head};
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::quote::against_protocol;

/// Holds keep-alive connections and asks with GET (RFC 9112, section 9.3).
///
/// A connection is ready as soon as it stands: HTTP has no greeting. Asks may be pipelined (section 9.3.2).
#[derive(Debug)]
pub struct KeepAlive {
    request: Vec<u8>,
}

/// What one keep-alive connection keeps: how many answers are due, and where in one it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    due: u32,
    body: Body,
}

const _: () = assert!(size_of::<Slot>() <= 12);

impl Driver for KeepAlive {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Http,
        doc: "An HTTP/1.1 connection kept alive between requests; it is ready as soon as it is open.",
        heartbeat: "A GET of the URL's path; any 2xx or 3xx answer counts once its body is complete.",
        beats: Beats::Asked,
        operation: None,
    };

    fn new(plan: &Plan) -> Self {
        let mut request = head::get(&plan.target, &["Accept: */*"]);
        request.extend_from_slice(b"\r\n");
        Self { request }
    }
}

impl Machine for KeepAlive {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => out.facts.push(Fact::Ready),
            Cue::Ask => {
                slot.due = slot.due.saturating_add(1);
                out.bytes.extend_from_slice(&self.request);
            }
            Cue::Operate => {}
            Cue::Finish => out.facts.push(Fact::Done),
            Cue::Bytes(bytes) => return read(slot, bytes, out),
        }
        Ok(0)
    }
}

fn read(slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
    let mut used = 0;
    while used < bytes.len() {
        if slot.body.ended() {
            let Some(head) = Head::read(&bytes[used..])? else { break };
            used += head.length;
            if head.is_interim() {
                continue;
            }
            slot.body = judge(slot.due, &head, &bytes[used..])?;
        } else {
            let taken = slot.body.take(&bytes[used..]).map_err(|what| {
                against_protocol(format!("the body of the server's answer cannot be read: {what}"))
            })?;
            let Some((n, _)) = taken else { break };
            used += n;
        }
        if slot.body.ended() {
            slot.due -= 1;
            out.facts.push(Fact::Answered);
        }
    }
    Ok(used)
}

/// The body of a welcome answer, or why the answer is not welcome.
fn judge(due: u32, head: &Head<'_>, rest: &[u8]) -> Result<Body, Failure> {
    if due == 0 {
        // Servers say 408 or 503 before they close an idle connection (RFC 9110, section 15.5.9).
        return Err(if head.code >= 400 {
            head.refusal(rest)
        } else {
            against_protocol(format!("the server answered {} though nothing was asked", head.status_line()))
        });
    }
    if head.code >= 400 {
        return Err(head.unwelcome(rest, "name a path in the URL that answers 2xx"));
    }
    if head.code == 101 {
        return Err(head.unwelcome(rest, "no upgrade was asked for; use ws:// for a WebSocket"));
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

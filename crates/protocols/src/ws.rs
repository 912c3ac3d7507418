//! Does a WebSocket server hold the connection, and still answer on it? (RFC 6455)

use model::{Failure, FailureKind, Scheme};

use crate::Plan;
use crate::frame::{self, CLOSE, CONTINUATION, Frame, PING, PONG, TEXT};
use crate::head::{self, Head};
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::nonce::{LINE, Nonces, hex, line, splitmix, unhex};
use crate::quote::{against_protocol, quote};

/// Holds WebSocket connections and asks with Ping (RFC 6455, section 5.5.2).
///
/// An operation is a text message. A line of our own is answered by the message that is that line; what else the server
/// sends is heard. A text of the user's is answered by whatever message comes next, as servers have answers of their
/// own. Messages are compared as they pass, and not kept.
#[derive(Debug)]
pub struct WebSocket {
    /// The upgrade request up to the value of the key, which each connection has of its own.
    request: Vec<u8>,
    /// What an operation says, if not a line of its own.
    text: Option<String>,
    nonces: Nonces,
}

/// What one WebSocket keeps: who it is, what is due, and where in the server's messages it stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    /// Payload of the current data frame that is still to be skipped.
    left: u64,
    nonce: u32,
    asked: u32,
    answered: u32,
    /// How many messages were sent, and how many of them were answered.
    sent: u32,
    returned: u32,
    /// How many bytes of the message under way are those of the line that is due; [`OTHER`] if one was not.
    same: u8,
    phase: Phase,
    /// A message's first frame has begun, and its last byte has not come.
    under_way: bool,
    /// A message's first frame has come and its last one has not.
    open: bool,
}

const _: () = assert!(size_of::<Slot>() <= 32);

/// A message that is not the line that is due.
const OTHER: u8 = u8::MAX;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// The answer to the upgrade request is due.
    #[default]
    Upgrading,
    /// Frames flow.
    Open,
    /// We have said good-bye: whatever still comes is not looked at.
    Finished,
}

impl Driver for WebSocket {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Ws,
        doc: "A WebSocket (RFC 6455) without extensions; it is ready once the server has agreed to the upgrade.",
        heartbeat: "A Ping; the Pong with its payload counts, and answers every Ping before it too.",
        beats: Beats::Asked,
        operation: Some(
            "A text message: a line of 32 bytes that must come back unchanged, or the text, which the next data message answers.",
        ),
    };

    fn new(plan: &Plan) -> Self {
        let mut request =
            head::get(plan, &["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]);
        request.extend_from_slice(b"Sec-WebSocket-Key: ");
        let text = plan.operation.as_ref().and_then(|o| o.text.clone());
        Self { request, text, nonces: Nonces::default() }
    }
}

impl Machine for WebSocket {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => {
                slot.nonce = self.nonces.next();
                out.bytes.extend_from_slice(&self.request);
                out.bytes.extend_from_slice(key(slot.nonce).as_bytes());
                out.bytes.extend_from_slice(b"\r\n\r\n");
            }
            Cue::Ask if slot.phase == Phase::Open => {
                let payload = ping(slot.nonce, slot.asked);
                slot.asked = slot.asked.wrapping_add(1);
                slot.send(PING, &payload, out);
            }
            Cue::Operate if slot.phase == Phase::Open => {
                let line = line(slot.nonce, slot.sent);
                slot.sent = slot.sent.wrapping_add(1);
                slot.send(TEXT, self.text.as_ref().map_or(&line[..], |text| text.as_bytes()), out);
            }
            Cue::Ask | Cue::Operate => {}
            Cue::Finish => {
                if slot.phase == Phase::Open {
                    slot.send(CLOSE, &1000_u16.to_be_bytes(), out);
                }
                slot.phase = Phase::Finished;
                out.facts.push(Fact::Done);
            }
            Cue::Bytes(bytes) => return self.read(slot, bytes, out),
        }
        Ok(0)
    }
}

/// The key that this connection sends: made again when the answer to it is checked.
fn key(nonce: u32) -> String {
    let half = splitmix(u64::from(nonce));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&half.to_be_bytes());
    bytes[8..].copy_from_slice(&splitmix(half).to_be_bytes());
    frame::key(bytes)
}

/// The payload of this connection's `seq`-th Ping.
fn ping(nonce: u32, seq: u32) -> [u8; 16] {
    let mut payload = [0; 16];
    payload[..8].copy_from_slice(&hex(nonce));
    payload[8..].copy_from_slice(&hex(seq));
    payload
}

/// Frames broke a rule; `what` completes "the server sent …".
fn broken(what: &str) -> Failure {
    against_protocol(format!("the server sent {what}, which RFC 6455 forbids"))
}

impl WebSocket {
    fn read(&self, slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            let taken = match slot.phase {
                Phase::Upgrading => slot.upgrade(rest, out)?,
                Phase::Open if slot.left > 0 => slot.pass(rest),
                Phase::Open => slot.frame(rest, out)?,
                Phase::Finished => rest.len(),
            };
            if taken == 0 {
                break;
            }
            used += taken;
            if slot.phase == Phase::Open && slot.under_way && slot.left == 0 && !slot.open {
                slot.under_way = false;
                out.facts.push(slot.message(self.text.is_some()));
            }
        }
        Ok(used)
    }
}

impl Slot {
    /// Appends a frame. Clients must mask (section 5.3). The key need not be secret here: it guards proxies against
    /// scripts that choose the payload, and no script chooses ours.
    fn send(&self, opcode: u8, payload: &[u8], out: &mut Out) {
        let mask = splitmix(u64::from(self.nonce) << 32 | u64::from(self.asked)) as u32;
        frame::write(&mut out.bytes, true, opcode, Some(mask.to_be_bytes()), payload);
    }

    /// Checks the answer to the upgrade request (section 4.1, the list after "Once the client's opening").
    fn upgrade(&mut self, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let Some(head) = Head::read(bytes)? else { return Ok(0) };
        if head.is_interim() {
            return Ok(head.length);
        }
        if head.code != 101 {
            let hint = "name a path in the URL that upgrades to a WebSocket";
            return Err(head.unwelcome(&bytes[head.length..], hint));
        }
        let fields = &head.fields;
        let wrong = if !fields.has_token("upgrade", "websocket") {
            "no Upgrade: websocket"
        } else if !fields.has_token("connection", "upgrade") {
            "no Connection: Upgrade"
        } else if !fields
            .values("sec-websocket-accept")
            .eq([frame::accept(key(self.nonce).as_bytes()).as_bytes()])
        {
            "a Sec-WebSocket-Accept that does not belong to our key"
        } else if fields.values("sec-websocket-extensions").any(|v| !v.is_empty()) {
            "an extension that was not asked for"
        } else if fields.values("sec-websocket-protocol").any(|v| !v.is_empty()) {
            "a subprotocol that was not asked for"
        } else {
            self.phase = Phase::Open;
            out.facts.extend([Fact::Upgraded, Fact::Ready]);
            return Ok(head.length);
        };
        Err(against_protocol(format!(
            "the server answered {} with {wrong}; check that nothing between rewrites the upgrade",
            head.status_line()
        )))
    }

    /// Passes over the payload of a data frame, and compares it with the line that is due.
    fn pass(&mut self, bytes: &[u8]) -> usize {
        let n = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len());
        self.left -= n as u64;
        if self.same != OTHER {
            let line = line(self.nonce, self.returned);
            let same = line[usize::from(self.same)..].starts_with(&bytes[..n]);
            // a line has far fewer bytes than OTHER
            self.same = if same { self.same + n as u8 } else { OTHER };
        }
        n
    }

    /// What a message was whose last byte has passed.
    fn message(&mut self, any_answers: bool) -> Fact {
        let same = std::mem::take(&mut self.same);
        let due = self.returned != self.sent;
        if due && (any_answers || usize::from(same) == LINE) {
            self.returned = self.returned.wrapping_add(1);
            Fact::Operated
        } else {
            Fact::Heard
        }
    }

    /// Takes a control frame whole, or the start of a data frame.
    fn frame(&mut self, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let Some(frame) = Frame::read(bytes).map_err(broken)? else { return Ok(0) };
        if frame.mask.is_some() {
            return Err(broken("a masked frame"));
        }
        if frame.is_control() {
            let Some((payload, end)) = frame.payload(bytes) else { return Ok(0) };
            self.control(frame.opcode, payload, out)?;
            return Ok(end);
        }
        if self.open != (frame.opcode == CONTINUATION) {
            return Err(broken(if self.open {
                "a new message before the last one had ended"
            } else {
                "the continuation of no message"
            }));
        }
        self.open = !frame.fin;
        self.under_way = true;
        self.left = frame.length;
        Ok(frame.head)
    }

    fn control(&mut self, opcode: u8, payload: &[u8], out: &mut Out) -> Result<(), Failure> {
        match opcode {
            PING => self.send(PONG, payload, out),
            PONG => self.pong(payload, out),
            _ => {
                let (code, reason) = frame::close_code(payload).map_err(broken)?;
                self.phase = Phase::Finished;
                self.send(CLOSE, &payload[..payload.len().min(2)], out);
                let kind = if matches!(code, 1008 | 1013) {
                    FailureKind::ServerRefused
                } else {
                    FailureKind::Closed
                };
                let reason =
                    if reason.is_empty() { String::new() } else { format!(": {}", quote(reason, 125)) };
                let text = format!("the server closed the WebSocket with code {code}{reason}");
                return Err(Failure::new(kind, text));
            }
        }
        Ok(())
    }

    /// A server may answer only the last of several Pings (section 5.5.3), so a Pong answers all up to its own.
    /// One with another payload is unsolicited and allowed.
    fn pong(&mut self, payload: &[u8], out: &mut Out) {
        if payload.len() != 16 || payload[..8] != hex(self.nonce) {
            return;
        }
        let Some(seq) = unhex(&payload[8..]) else { return };
        let due = self.asked.wrapping_sub(self.answered);
        let later = seq.wrapping_sub(self.answered);
        if later >= due {
            return;
        }
        for _ in 0..=later {
            out.facts.push(Fact::Answered);
        }
        self.answered = seq.wrapping_add(1);
    }
}

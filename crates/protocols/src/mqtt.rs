//! Does an MQTT broker hold the connection, and still answer on it? (OASIS MQTT 3.1.1 and 5.0)

use model::{Failure, FailureKind, Scheme, Target};

use crate::Plan;
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::nonce::{Nonces, hex};
use crate::quote::{against_protocol, login_refused, quote};

// First bytes of control packets (3.1.1 and 5.0, section 2.1): the type, and the flags that it must have.
const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PINGREQ: u8 = 0xc0;
const PINGRESP: u8 = 0xd0;
const DISCONNECT: u8 = 0xe0;

/// The longest packet that is waited for: nothing that is due comes near it.
const LONGEST: usize = 64 * 1024;

/// Holds sessions with a broker, without a subscription, and asks with PINGREQ.
///
/// Every connection has a client identifier of its own, as a broker ends the older of two that share one. The
/// keep-alive is the longest silence that the run allows itself, not the heartbeat's interval alone; the broker gives
/// half as much again (section 3.1.2.10).
#[derive(Debug)]
pub struct Mqtt {
    /// CONNECT, in which each connection writes its own number at the end of the client identifier.
    connect: Vec<u8>,
    number_at: usize,
    five: bool,
    target: Target,
    nonces: Nonces,
}

/// What one connection keeps: how many answers are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    due: u32,
    accepted: bool,
}

const _: () = assert!(size_of::<Slot>() <= 8);

impl Driver for Mqtt {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Mqtt,
        doc: "A session with an MQTT broker, version 3.1.1, or 5 with ?version=5; with the user and password of the URL.",
        heartbeat: "A PINGREQ; the PINGRESP counts.",
        beats: Beats::Asked,
        operation: None,
    };

    fn new(plan: &Plan) -> Self {
        let target = plan.target.clone();
        let five = target.query("version") == Some("5");
        let password = target.password();
        // 3.1.1 allows no password without a user (section 3.1.2.9)
        let user = target.user().or(password.map(|_| ""));

        let clean = 0x02;
        let flags = clean | if user.is_some() { 0x80 } else { 0 } | if password.is_some() { 0x40 } else { 0 };
        let keep_alive = plan.silence_seconds.map_or(0, |s| s.ceil().clamp(1.0, 65_535.0) as u16);
        let mut body = Vec::new();
        string(&mut body, "MQTT");
        body.extend_from_slice(&[if five { 5 } else { 4 }, flags]);
        body.extend_from_slice(&keep_alive.to_be_bytes());
        if five {
            let properties = 0;
            body.push(properties);
        }
        // Letters and digits, at most 23: what every broker must take (section 3.1.3.1).
        string(&mut body, &format!("pl{:012x}{:08x}", plan.salt >> 16, 0));
        let number_ends = body.len();
        for text in [user, password].into_iter().flatten() {
            string(&mut body, text);
        }

        let mut connect = vec![CONNECT];
        length(&mut connect, body.len());
        let number_at = connect.len() + number_ends - 8;
        connect.append(&mut body);
        Self { connect, number_at, five, target, nonces: Nonces::default() }
    }
}

/// Appends a string with its length before it; what is longer than the protocol can say is cut, and refused then.
fn string(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&text.as_bytes()[..usize::from(length)]);
}

/// Appends a length of seven bits to a byte, the lowest first (section 2.2.3). Three strings stay far below the most.
fn length(out: &mut Vec<u8>, mut length: usize) {
    while length > 0x7f {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
}

impl Machine for Mqtt {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => {
                let number = out.bytes.len() + self.number_at;
                out.bytes.extend_from_slice(&self.connect);
                out.bytes[number..number + 8].copy_from_slice(&hex(self.nonces.next()));
            }
            Cue::Ask => {
                slot.due = slot.due.saturating_add(1);
                out.bytes.extend_from_slice(&[PINGREQ, 0]);
            }
            Cue::Operate => {}
            Cue::Finish => {
                if slot.accepted {
                    out.bytes.extend_from_slice(&[DISCONNECT, 0]);
                }
                out.facts.push(Fact::Done);
            }
            Cue::Bytes(bytes) => {
                let mut used = 0;
                while let Some((body, taken)) = self.packet(slot, &bytes[used..])? {
                    self.take(slot, bytes[used], body, out)?;
                    used += taken;
                }
                return Ok(used);
            }
        }
        Ok(0)
    }
}

impl Mqtt {
    /// The body of the first packet, and how many bytes it takes with its head; `None`: it has not come whole.
    fn packet<'a>(&self, slot: &Slot, bytes: &'a [u8]) -> Result<Option<(&'a [u8], usize)>, Failure> {
        let Some((&first, rest)) = bytes.split_first() else { return Ok(None) };
        let fits = |length: usize| match first {
            CONNACK if !slot.accepted => length == 2 || (self.five && length > 2),
            PINGRESP => slot.due > 0 && length == 0,
            DISCONNECT => self.five && slot.accepted,
            _ => false,
        };
        let wrong = || {
            let version = if self.five { "5" } else { "3.1.1" };
            let said = quote(bytes, 40);
            against_protocol(format!("the server sent {said}, which MQTT {version} does not allow here"))
        };
        // Whether some length fits the type is known with the first byte.
        if ![0, 2].into_iter().any(fits) {
            return Err(wrong());
        }
        let mut length = 0;
        for (i, &byte) in rest.iter().take(4).enumerate() {
            length |= usize::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 != 0 {
                continue;
            }
            if !fits(length) || length > LONGEST {
                return Err(wrong());
            }
            let head = i + 2;
            return Ok(bytes.get(head..head + length).map(|body| (body, head + length)));
        }
        if rest.len() >= 4 { Err(wrong()) } else { Ok(None) }
    }

    fn take(&self, slot: &mut Slot, first: u8, body: &[u8], out: &mut Out) -> Result<(), Failure> {
        match (first, body) {
            (CONNACK, &[_, 0, ..]) => {
                slot.accepted = true;
                let login = self.target.login.is_some();
                out.facts.extend([if login { Fact::LoggedIn } else { Fact::Upgraded }, Fact::Ready]);
                Ok(())
            }
            (CONNACK, &[_, code, ..]) => Err(self.refusal("refused the connection with", code)),
            (DISCONNECT, body) => {
                Err(self.refusal("ended the connection with", body.first().copied().unwrap_or(0)))
            }
            _ => {
                slot.due -= 1;
                out.facts.push(Fact::Answered);
                Ok(())
            }
        }
    }

    /// The failure that a code means: up to 5 those of 3.1.1 (table 3.1), from 0x80 on those of 5.0 (section 2.4).
    fn refusal(&self, how: &str, code: u8) -> Failure {
        use FailureKind::{Closed, LoginRefused, Protocol, ServerRefused};
        let (kind, words) = match code {
            0x01 | 0x84 => {
                (Protocol, "unacceptable protocol version; choose one with ?version=3.1.1 or ?version=5")
            }
            0x02 | 0x85 => (ServerRefused, "client identifier not valid"),
            0x03 | 0x88 => (ServerRefused, "server unavailable"),
            0x04 | 0x86 => (LoginRefused, "bad user name or password"),
            0x05 | 0x87 => (LoginRefused, "not authorized"),
            0x81 => (Protocol, "malformed packet"),
            0x82 => (Protocol, "protocol error"),
            0x83 => (ServerRefused, "implementation specific error"),
            0x89 => (ServerRefused, "server busy"),
            0x8a => (ServerRefused, "banned"),
            0x8b => (Closed, "server shutting down"),
            0x8c => (LoginRefused, "bad authentication method"),
            0x8d => (Closed, "keep alive timeout"),
            0x8e => (Closed, "session taken over"),
            0x95 => (Protocol, "packet too large"),
            0x96 => (ServerRefused, "message rate too high"),
            0x97 => (ServerRefused, "quota exceeded"),
            0x98 => (Closed, "administrative action"),
            0x9c => (ServerRefused, "use another server"),
            0x9d => (ServerRefused, "server moved"),
            0x9f => (ServerRefused, "connection rate exceeded"),
            0xa0 => (Closed, "maximum connect time"),
            0x80 => (ServerRefused, "unspecified error"),
            _ => (Closed, "a reason that has no name here"),
        };
        let text = format!("the server {how} code 0x{code:02x}, {words}");
        if kind == LoginRefused { login_refused(text, &self.target) } else { Failure::new(kind, text) }
    }
}

//! Does an MQTT broker hold the connection, and still answer on it? (OASIS MQTT 3.1.1 and 5.0)

use model::{Failure, FailureKind, Operation, Scheme, Target};

use crate::Plan;
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::nonce::{Nonces, hex};
use crate::quote::{against_protocol, login_refused, quote};

// First bytes of control packets (3.1.1 and 5.0, section 2.1): the type, and the flags that it must have.
const CONNECT: u8 = 0x10;
const CONNACK: u8 = 0x20;
const PUBLISH: u8 = 0x30;
const PUBACK: u8 = 0x40;
const SUBSCRIBE: u8 = 0x82;
const SUBACK: u8 = 0x90;
const PINGREQ: u8 = 0xc0;
const PINGRESP: u8 = 0xd0;
const DISCONNECT: u8 = 0xe0;

/// The longest packet that is waited for whole: nothing that is due comes near it.
const LONGEST: usize = 64 * 1024;
/// The longest packet that there is (section 2.2.3).
const MOST: usize = 0x0fff_ffff;
/// What the eight digits of a connection's number are written over.
const NUMBER: &str = "00000000";
/// The packet identifier of SUBSCRIBE, which is free again once the connection is ready.
const FIRST: u16 = 1;
/// What an operation publishes without a text: 32 bytes.
const PAYLOAD: &str = "plimsoll asks whether it is back";
/// The longest text of an operation, so that its packet's length can be said.
const MOST_PAYLOAD: usize = MOST - 1024;

/// Holds sessions with a broker, and asks with PINGREQ. Only where operations are asked for do they subscribe, each to a
/// topic of its own.
///
/// Every connection has a client identifier of its own, as a broker ends the older of two that share one. The
/// keep-alive is the longest silence that the run allows itself, not the heartbeat's interval alone; the broker gives
/// half as much again (section 3.1.2.10).
#[derive(Debug)]
pub struct Mqtt {
    connect: Numbered,
    /// SUBSCRIBE; `None`: there will be no operation.
    subscribe: Option<Numbered>,
    /// PUBLISH.
    operation: Numbered,
    /// The topic up to the connection's number.
    topic: String,
    /// The quality of service of subscription and messages: 0 or 1.
    qos: u8,
    five: bool,
    target: Target,
    nonces: Nonces,
}

/// A packet in which each connection writes its own number.
#[derive(Debug)]
struct Numbered {
    bytes: Vec<u8>,
    at: usize,
}

/// What one connection keeps: who it is, how far, which answers are due, and what is still to be passed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    due: u32,
    /// Operations whose message is not back.
    operations: u32,
    number: u32,
    /// Of a message that has begun.
    skip: u32,
    /// The packet identifier of the newest operation.
    newest: u16,
    /// How many of the newest have no PUBACK.
    unacknowledged: u16,
    /// The identifier that the message under way is to be acknowledged with; 0: none.
    acknowledge: u16,
    phase: Phase,
}

const _: () = assert!(size_of::<Slot>() <= 24);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// CONNACK is due.
    #[default]
    Connecting,
    /// SUBACK is due.
    Subscribing,
    /// It is ready.
    Open,
}

impl Driver for Mqtt {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Mqtt,
        doc: "A session with an MQTT broker, version 3.1.1, or 5 with ?version=5; with the user and password of the URL.",
        heartbeat: "A PINGREQ; the PINGRESP counts.",
        beats: Beats::Asked,
        operation: Some(
            "A message of 32 bytes, or of the text, to a topic of the connection's own under plimsoll/, awaited back by its subscription; with QoS 0, or 1 with ?qos=1.",
        ),
    };

    fn new(plan: &Plan) -> Self {
        let target = plan.target.clone();
        let five = target.query("version") == Some("5");
        let qos = u8::from(target.query("qos") == Some("1"));
        let topic = format!("plimsoll/{:016x}/", plan.salt);
        let payload = plan.operation.as_ref().and_then(|o| o.text.as_deref()).unwrap_or(PAYLOAD);
        Self {
            connect: connect(&target, plan, five),
            subscribe: plan.operation.as_ref().map(|_| subscribe(&topic, qos, five)),
            operation: publish(&topic, qos, five, payload),
            topic,
            qos,
            five,
            target,
            nonces: Nonces::default(),
        }
    }

    fn check(operation: &Operation) -> Result<(), String> {
        match &operation.text {
            Some(text) if text.len() > MOST_PAYLOAD => {
                Err(format!("the text has {} bytes; MQTT takes messages of up to {MOST_PAYLOAD}", text.len()))
            }
            _ => Ok(()),
        }
    }
}

/// CONNECT (section 3.1): the number stands at the end of the client identifier.
fn connect(target: &Target, plan: &Plan, five: bool) -> Numbered {
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
    no_properties(&mut body, five);
    // Letters and digits, at most 23: what every broker must take (section 3.1.3.1).
    string(&mut body, &format!("pl{:012x}{NUMBER}", plan.salt >> 16));
    let number_ends = body.len();
    for text in [user, password].into_iter().flatten() {
        string(&mut body, text);
    }
    Numbered::packet(CONNECT, &body, number_ends)
}

/// SUBSCRIBE (section 3.8) to the one topic, whose number follows.
fn subscribe(topic: &str, qos: u8, five: bool) -> Numbered {
    let mut body = FIRST.to_be_bytes().to_vec();
    no_properties(&mut body, five);
    string(&mut body, &format!("{topic}{NUMBER}"));
    let number_ends = body.len();
    body.push(qos);
    Numbered::packet(SUBSCRIBE, &body, number_ends)
}

/// PUBLISH (section 3.3); the packet identifier, if there is one, follows the number.
fn publish(topic: &str, qos: u8, five: bool, payload: &str) -> Numbered {
    let mut body = Vec::new();
    string(&mut body, &format!("{topic}{NUMBER}"));
    let number_ends = body.len();
    if qos > 0 {
        body.extend_from_slice(&FIRST.to_be_bytes());
    }
    no_properties(&mut body, five);
    body.extend_from_slice(payload.as_bytes());
    Numbered::packet(PUBLISH | qos << 1, &body, number_ends)
}

/// Appends that there are no properties, which only version 5 has.
fn no_properties(body: &mut Vec<u8>, five: bool) {
    if five {
        body.push(0);
    }
}

impl Numbered {
    /// The packet of this first byte and body, in which the number's last digit stands before `number_ends`.
    fn packet(first: u8, body: &[u8], number_ends: usize) -> Self {
        let mut bytes = vec![first];
        length(&mut bytes, body.len());
        let at = bytes.len() + number_ends - NUMBER.len();
        bytes.extend_from_slice(body);
        Self { bytes, at }
    }

    /// Appends it; gives what follows the number.
    fn say<'a>(&self, number: u32, out: &'a mut Out) -> &'a mut [u8] {
        let start = out.bytes.len() + self.at;
        out.bytes.extend_from_slice(&self.bytes);
        let (digits, after) = out.bytes[start..].split_at_mut(NUMBER.len());
        digits.copy_from_slice(&hex(number));
        after
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
                slot.number = self.nonces.next();
                self.connect.say(slot.number, out);
            }
            Cue::Ask => {
                slot.due = slot.due.saturating_add(1);
                out.bytes.extend_from_slice(&[PINGREQ, 0]);
            }
            Cue::Operate => {
                slot.operations = slot.operations.saturating_add(1);
                let after = self.operation.say(slot.number, out);
                if self.qos > 0 {
                    slot.newest = slot.newest.checked_add(1).unwrap_or(FIRST);
                    slot.unacknowledged = slot.unacknowledged.saturating_add(1);
                    after[..2].copy_from_slice(&slot.newest.to_be_bytes());
                }
            }
            Cue::Finish => {
                if slot.phase != Phase::Connecting {
                    out.bytes.extend_from_slice(&[DISCONNECT, 0]);
                }
                out.facts.push(Fact::Done);
            }
            Cue::Bytes(bytes) => return self.read(slot, bytes, out),
        }
        Ok(0)
    }
}

impl Mqtt {
    fn read(&self, slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            let taken = if slot.skip > 0 {
                let n = rest.len().min(slot.skip as usize);
                slot.skip -= n as u32;
                slot.came_back_if_whole(out);
                n
            } else {
                self.packet(slot, rest, out)?
            };
            if taken == 0 {
                break;
            }
            used += taken;
        }
        Ok(used)
    }

    /// Takes a packet whole, or the start of a message; 0: more must come first.
    fn packet(&self, slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        // Whether some length fits the type is known with the first byte.
        if ![0, 2, 3, MOST].into_iter().any(|length| self.fits(slot, bytes[0], length)) {
            return Err(self.not_allowed(bytes));
        }
        let mut length = 0;
        for (i, &byte) in bytes[1..].iter().take(4).enumerate() {
            length |= usize::from(byte & 0x7f) << (7 * i);
            if byte & 0x80 != 0 {
                continue;
            }
            if !self.fits(slot, bytes[0], length) {
                return Err(self.not_allowed(bytes));
            }
            let head = i + 2;
            if is_publish(bytes[0]) {
                return self.begin(slot, bytes, head, length, out);
            }
            let Some(body) = bytes.get(head..head + length) else { return Ok(0) };
            self.take(slot, bytes[0], body, out)?;
            return Ok(head + length);
        }
        if bytes.len() > 4 { Err(self.not_allowed(bytes)) } else { Ok(0) }
    }

    /// Whether a packet of this first byte and length may come now.
    fn fits(&self, slot: &Slot, first: u8, length: usize) -> bool {
        let longer = |than| self.five && (than..=LONGEST).contains(&length);
        match first {
            CONNACK => slot.phase == Phase::Connecting && (length == 2 || longer(3)),
            SUBACK => slot.phase == Phase::Subscribing && (length == 3 || longer(4)),
            PUBACK => slot.unacknowledged > 0 && (length == 2 || longer(3)),
            PINGRESP => slot.due > 0 && length == 0,
            DISCONNECT => slot.phase != Phase::Connecting && longer(0),
            _ if is_publish(first) => {
                slot.operations > 0
                    && first >> 1 & 3 <= self.qos
                    && length >= self.before_payload(first) + usize::from(self.five)
            }
            _ => false,
        }
    }

    /// How many bytes of a message's body come before its properties and its payload.
    fn before_payload(&self, first: u8) -> usize {
        let identifier = if first >> 1 & 3 == 0 { 0 } else { 2 };
        2 + self.topic.len() + NUMBER.len() + identifier
    }

    /// Takes a message up to its payload, which is passed over with its properties.
    fn begin(
        &self,
        slot: &mut Slot,
        bytes: &[u8],
        head: usize,
        length: usize,
        out: &mut Out,
    ) -> Result<usize, Failure> {
        let before = self.before_payload(bytes[0]);
        let Some(body) = bytes.get(head..head + before) else { return Ok(0) };
        let topic_length = ((self.topic.len() + NUMBER.len()) as u16).to_be_bytes();
        let identifier = body
            .strip_prefix(&topic_length)
            .and_then(|rest| rest.strip_prefix(self.topic.as_bytes()))
            .and_then(|rest| rest.strip_prefix(&hex(slot.number)))
            .ok_or_else(|| self.not_allowed(bytes))?;
        slot.acknowledge = match identifier {
            [high, low] => u16::from_be_bytes([*high, *low]),
            _ => 0,
        };
        slot.skip = (length - before) as u32;
        slot.came_back_if_whole(out);
        Ok(head + before)
    }

    fn not_allowed(&self, bytes: &[u8]) -> Failure {
        let version = if self.five { "5" } else { "3.1.1" };
        let said = quote(bytes, 40);
        against_protocol(format!("the server sent {said}, which MQTT {version} does not allow here"))
    }

    fn take(&self, slot: &mut Slot, first: u8, body: &[u8], out: &mut Out) -> Result<(), Failure> {
        match (first, body) {
            (CONNACK, &[_, 0, ..]) => {
                let login = self.target.login.is_some();
                out.facts.push(if login { Fact::LoggedIn } else { Fact::Upgraded });
                slot.phase = match &self.subscribe {
                    Some(subscribe) => {
                        subscribe.say(slot.number, out);
                        Phase::Subscribing
                    }
                    None => {
                        out.facts.push(Fact::Ready);
                        Phase::Open
                    }
                };
                Ok(())
            }
            (CONNACK, &[_, code, ..]) => Err(self.refusal("refused the connection with", code)),
            // one topic, so one code, behind the properties
            (SUBACK, &[high, low, .., code]) if u16::from_be_bytes([high, low]) == FIRST => {
                if code >= 0x80 {
                    return Err(operation_refused("subscription to", code));
                }
                slot.phase = Phase::Open;
                out.facts.push(Fact::Ready);
                Ok(())
            }
            (PUBACK, &[high, low, ref more @ ..]) if u16::from_be_bytes([high, low]) == slot.oldest() => {
                slot.unacknowledged -= 1;
                match more.first() {
                    Some(&code) if code >= 0x80 => Err(operation_refused("message to", code)),
                    _ => Ok(()),
                }
            }
            (DISCONNECT, body) => {
                Err(self.refusal("ended the connection with", body.first().copied().unwrap_or(0)))
            }
            (PINGRESP, _) => {
                slot.due -= 1;
                out.facts.push(Fact::Answered);
                Ok(())
            }
            _ => Err(against_protocol(format!(
                "the server acknowledged with {} what was not sent, or not next",
                quote(body, 40)
            ))),
        }
    }

    /// The failure that a code means.
    fn refusal(&self, how: &str, code: u8) -> Failure {
        let (kind, words) = meaning(code);
        let text = format!("the server {how} code 0x{code:02x}, {words}");
        if kind == FailureKind::LoginRefused {
            login_refused(text, &self.target)
        } else {
            Failure::new(kind, text)
        }
    }
}

impl Slot {
    /// Reports a message of which nothing more is to come.
    fn came_back_if_whole(&mut self, out: &mut Out) {
        if self.skip > 0 {
            return;
        }
        self.operations -= 1;
        if self.acknowledge != 0 {
            out.bytes.extend_from_slice(&[PUBACK, 2]);
            out.bytes.extend_from_slice(&self.acknowledge.to_be_bytes());
            self.acknowledge = 0;
        }
        out.facts.push(Fact::Operated);
    }

    /// The packet identifier that must be acknowledged next (section 4.6). Identifiers go from 1 to 65535 and round.
    fn oldest(&self) -> u16 {
        let back = self.unacknowledged.saturating_sub(1);
        match self.newest.checked_sub(back) {
            Some(identifier) if identifier > 0 => identifier,
            _ => self.newest.wrapping_sub(back).wrapping_sub(1),
        }
    }
}

/// Whether a packet is a message of QoS 0 or 1 that is neither sent again nor kept from before.
fn is_publish(first: u8) -> bool {
    matches!(first, 0x30 | 0x32)
}

/// The failure of an operation, not of the connection that it ends.
fn operation_refused(what: &str, code: u8) -> Failure {
    let (_, words) = meaning(code);
    against_protocol(format!(
        "the operation's {what} its own topic was refused with code 0x{code:02x}, {words}; let this user \
         publish and subscribe to plimsoll/# there"
    ))
}

/// What a code says: up to 5 those of 3.1.1 (table 3.1), from 0x80 on those of 5.0 (section 2.4).
fn meaning(code: u8) -> (FailureKind, &'static str) {
    use FailureKind::{Closed, LoginRefused, Protocol, ServerRefused};
    match code {
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
        0x8f => (Protocol, "topic filter invalid"),
        0x90 => (Protocol, "topic name invalid"),
        0x93 => (Protocol, "receive maximum exceeded"),
        0x95 => (Protocol, "packet too large"),
        0x96 => (ServerRefused, "message rate too high"),
        0x97 => (ServerRefused, "quota exceeded"),
        0x98 => (Closed, "administrative action"),
        0x99 => (Protocol, "payload format invalid"),
        0x9b => (Protocol, "QoS not supported"),
        0x9c => (ServerRefused, "use another server"),
        0x9d => (ServerRefused, "server moved"),
        0x9f => (ServerRefused, "connection rate exceeded"),
        0xa0 => (Closed, "maximum connect time"),
        0x80 => (ServerRefused, "unspecified error"),
        _ => (Closed, "a reason that has no name here"),
    }
}

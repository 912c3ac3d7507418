//! Does a server that speaks bytes over TCP still answer? An echo, or words of your own.

use model::{Failure, Scheme};

use crate::Plan;
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::nonce::{Nonces, line};
use crate::quote::{against_protocol, quote};
use crate::waiting::Waiting;

/// Holds plain byte streams. A connection is ready as soon as it stands.
///
/// Without `--send`, an ask is a line of 32 bytes that no other connection sends, and its answer is that very
/// line (an echo, as RFC 862 has it).
///
/// With `--send`, an ask is those bytes, and its answer starts with `--expect`, if that is given. Where it ends:
/// - if `--send` ends in a line end, so does the answer: it is the expected bytes and the rest of the line in
///   which they end;
/// - otherwise it is exactly the expected bytes;
/// - with neither a line end nor `--expect`, nothing tells: whatever comes answers all that was asked.
///
/// What comes while nothing is asked is heard (a greeting), once between two asks however long it is.
#[derive(Debug)]
pub struct Echo {
    words: Option<Words>,
    /// What an operation says, if not a line of its own.
    message: Option<Vec<u8>>,
    nonces: Nonces,
}

#[derive(Debug)]
struct Words {
    send: Vec<u8>,
    expect: Vec<u8>,
    ends: Ends,
}

/// Where an answer to `--send` ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    WithLine,
    WithExpected,
    Unknown,
}

/// What one byte stream keeps: who it is, what is due, and how far the answer to the oldest ask has come.
#[derive(Debug, Default)]
pub struct Slot {
    nonce: u32,
    asked: u32,
    answered: u32,
    waiting: Waiting,
    /// How many bytes of the oldest answer have matched.
    at: u32,
    /// What came since the last ask has been reported.
    heard: bool,
}

const _: () = assert!(size_of::<Slot>() <= 40);

impl Driver for Echo {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Tcp,
        doc: "A byte stream over TCP to an echo server, or to any server with --send and --expect.",
        heartbeat: "A line of 32 bytes that must come back unchanged, or --send, answered by what starts with --expect.",
        beats: Beats::Asked,
        operation: Some(
            "A line of 32 bytes that must come back unchanged, or the text, or --send again where that is given.",
        ),
    };

    fn new(plan: &Plan) -> Self {
        let words = plan.send.as_ref().map(|send| {
            let expect = plan.expect.clone().unwrap_or_default();
            let ends = if send.ends_with(b"\n") {
                Ends::WithLine
            } else if expect.is_empty() {
                Ends::Unknown
            } else {
                Ends::WithExpected
            };
            Words { send: send.clone(), expect, ends }
        });
        let text = plan.operation.as_ref().and_then(|o| o.text.as_ref());
        let message = text.map(|text| text.clone().into_bytes()).filter(|m| words.is_none() && !m.is_empty());
        Self { words, message, nonces: Nonces::default() }
    }
}

impl Machine for Echo {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => {
                slot.nonce = self.nonces.next();
                out.facts.push(Fact::Ready);
            }
            Cue::Ask => {
                slot.waiting.ask();
                match &self.words {
                    None => out.bytes.extend_from_slice(&line(slot.nonce, slot.asked)),
                    Some(words) => out.bytes.extend_from_slice(&words.send),
                }
                slot.asked = slot.asked.wrapping_add(1);
                slot.heard = false;
            }
            Cue::Operate => {
                slot.waiting.operate();
                match (&self.words, &self.message) {
                    (Some(words), _) => out.bytes.extend_from_slice(&words.send),
                    (None, Some(message)) => out.bytes.extend_from_slice(message),
                    (None, None) => out.bytes.extend_from_slice(&line(slot.nonce, slot.asked)),
                }
                slot.asked = slot.asked.wrapping_add(1);
                slot.heard = false;
            }
            Cue::Finish => out.facts.push(Fact::Done),
            Cue::Bytes(bytes) => {
                match &self.words {
                    None => self.read_echo(slot, bytes, out)?,
                    Some(words) => words.read(slot, bytes, out)?,
                }
                return Ok(bytes.len());
            }
        }
        Ok(0)
    }
}

impl Slot {
    fn answer(&mut self, out: &mut Out) {
        self.answered = self.answered.wrapping_add(1);
        self.at = 0;
        out.facts.extend(self.waiting.answer());
    }
}

impl Echo {
    fn read_echo(&self, slot: &mut Slot, mut bytes: &[u8], out: &mut Out) -> Result<(), Failure> {
        const HINT: &str =
            "tcp:// expects an echo; use --send TEXT --expect TEXT for a server with its own language";
        while !bytes.is_empty() {
            if slot.answered == slot.asked {
                let came = quote(bytes, 80);
                return Err(against_protocol(format!(
                    "the server said {came} though nothing was asked; {HINT}"
                )));
            }
            let line = line(slot.nonce, slot.answered);
            let whole = self.message.as_deref().filter(|_| slot.waiting.is_operation()).unwrap_or(&line[..]);
            let want = &whole[slot.at as usize..];
            let n = want.len().min(bytes.len());
            if bytes[..n] != want[..n] {
                let came = quote(bytes, 80);
                return Err(against_protocol(format!("the answer was {came} and not what was sent; {HINT}")));
            }
            slot.at += n as u32;
            bytes = &bytes[n..];
            if slot.at as usize == whole.len() {
                slot.answer(out);
            }
        }
        Ok(())
    }
}

impl Words {
    fn read(&self, slot: &mut Slot, mut bytes: &[u8], out: &mut Out) -> Result<(), Failure> {
        while !bytes.is_empty() {
            if slot.answered == slot.asked {
                if !slot.heard {
                    slot.heard = true;
                    out.facts.push(Fact::Heard);
                }
                return Ok(());
            }
            let want = &self.expect[slot.at as usize..];
            let n = want.len().min(bytes.len());
            if bytes[..n] != want[..n] {
                return Err(against_protocol(format!(
                    "the answer to --send was {}, which does not start with --expect {}; check the two against \
                     the server's language",
                    quote(bytes, 80),
                    quote(&self.expect, 80)
                )));
            }
            slot.at += n as u32;
            bytes = &bytes[n..];
            if n < want.len() {
                return Ok(());
            }
            match self.ends {
                Ends::WithExpected => slot.answer(out),
                Ends::WithLine if self.expect.ends_with(b"\n") => slot.answer(out),
                Ends::WithLine => match bytes.iter().position(|&b| b == b'\n') {
                    Some(at) => {
                        bytes = &bytes[at + 1..];
                        slot.answer(out);
                    }
                    None => return Ok(()),
                },
                Ends::Unknown => {
                    while slot.answered != slot.asked {
                        slot.answer(out);
                    }
                    // What follows is the rest of the answer, not a greeting.
                    slot.heard = true;
                }
            }
        }
        Ok(())
    }
}

//! Does a server of events hold its streams open, and still speak on them? (WHATWG HTML, section 9.2)

use model::{Failure, FailureKind, Scheme};

use crate::Plan;
use crate::body::Body;
use crate::head::{self, Head};
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::nonce::hex;
use crate::quote::{against_protocol, quote};

/// With this header in its answer, a server offers to answer nudges.
pub(crate) const NUDGE: &str = "plimsoll-nudge";

/// How the comment that answers a nudge starts, behind its colon; the sequence number follows.
pub(crate) const NUDGED: &[u8; 7] = b" nudge ";

/// Holds event streams (WHATWG HTML, section 9.2.5) and listens: each event or comment is heard.
///
/// The protocol has no way to ask. Plimsoll's own node adds one: if the head of its answer has
/// `plimsoll-nudge: 1`, the line `plimsoll-nudge SEQ` (8 hexadecimal digits, CRLF) sent behind the request is
/// answered at once with the comment `: nudge SEQ`.
#[derive(Debug)]
pub struct EventStream {
    request: Vec<u8>,
}

/// What one event stream keeps: where in the body and in a line it stands, and which nudges are due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Slot {
    body: Body,
    asked: u32,
    answered: u32,
    phase: Phase,
    line: Line,
    /// How many bytes have matched: of `data` in a field's name, of the expected nudge in a comment.
    matched: u8,
    /// The event under way has data, so that an empty line sends it off.
    has_data: bool,
    /// The last line ended in CR: an LF that follows belongs to it.
    after_cr: bool,
}

const _: () = assert!(size_of::<Slot>() <= 24);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// The answer to the request is due.
    #[default]
    Opening,
    /// Events flow, and nudges are not offered.
    Listening,
    /// Events flow, and nudges are answered.
    Nudging,
}

/// Where in a line of the stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Line {
    /// Before the first byte of the stream, where a byte order mark may stand; `matched` counts its bytes.
    #[default]
    Mark,
    /// Before its first character.
    Start,
    /// In a field's name, which so far is the start of `data`.
    Name,
    /// In a comment that so far is the answer to the oldest nudge.
    Comment,
    /// In a comment that says something else.
    OtherComment,
    /// In a comment that starts as an answer to a nudge, but to another one.
    WrongNudge,
    /// In what does not matter.
    Rest,
}

impl Driver for EventStream {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Sse,
        doc: "A stream of server-sent events; it is ready once the server has begun to answer with one.",
        heartbeat: "Whatever the server sends: an event or a comment. Only plimsoll's own node can also be asked.",
        beats: Beats::Arriving,
        operation: None,
    };

    fn new(plan: &Plan) -> Self {
        let mut request = head::get(plan, &["Accept: text/event-stream", "Cache-Control: no-cache"]);
        request.extend_from_slice(b"\r\n");
        Self { request }
    }
}

impl Machine for EventStream {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected => out.bytes.extend_from_slice(&self.request),
            Cue::Ask if slot.phase == Phase::Nudging => {
                out.bytes.extend_from_slice(NUDGE.as_bytes());
                out.bytes.push(b' ');
                out.bytes.extend_from_slice(&hex(slot.asked));
                out.bytes.extend_from_slice(b"\r\n");
                slot.asked = slot.asked.wrapping_add(1);
            }
            Cue::Ask => out.facts.push(Fact::CannotAsk),
            Cue::Operate => {}
            Cue::Finish => out.facts.push(Fact::Done),
            Cue::Bytes(bytes) => return slot.read(bytes, out),
        }
        Ok(0)
    }
}

impl Slot {
    fn read(&mut self, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            if self.phase == Phase::Opening {
                let Some(head) = Head::read(rest)? else { break };
                used += head.length;
                if !head.is_interim() {
                    self.open(&head, &bytes[used..], out)?;
                }
            } else {
                let taken = self
                    .body
                    .take(rest)
                    .map_err(|what| against_protocol(format!("the event stream cannot be read: {what}")))?;
                let Some((n, payload)) = taken else { break };
                used += n;
                self.lines(payload, out)?;
            }
            if self.phase != Phase::Opening && self.body.ended() {
                return Err(Failure::new(FailureKind::Closed, "the server ended the event stream"));
            }
        }
        Ok(used)
    }

    fn open(&mut self, head: &Head<'_>, rest: &[u8], out: &mut Out) -> Result<(), Failure> {
        if head.code != 200 {
            return Err(
                head.unwelcome(rest, "name a path in the URL that answers 200 with text/event-stream")
            );
        }
        let kind = head.fields.values("content-type").next().unwrap_or_default();
        let essence = kind.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
        if !essence.eq_ignore_ascii_case(b"text/event-stream") {
            return Err(against_protocol(format!(
                "the server answered with the content type {} and not text/event-stream; name a path in the URL \
                 that serves events",
                quote(kind, 80)
            )));
        }
        self.body = head.body()?;
        self.phase = if head.fields.has_token(NUDGE, "1") { Phase::Nudging } else { Phase::Listening };
        out.facts.extend([Fact::Upgraded, Fact::Ready]);
        Ok(())
    }

    fn lines(&mut self, payload: &[u8], out: &mut Out) -> Result<(), Failure> {
        for &byte in payload {
            let behind_cr = std::mem::take(&mut self.after_cr);
            match byte {
                b'\n' if behind_cr => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    self.end_line(out)?;
                }
                _ => self.character(byte),
            }
        }
        Ok(())
    }

    fn character(&mut self, byte: u8) {
        self.line = match self.line {
            Line::Mark => {
                let mark = "\u{feff}".as_bytes();
                if byte == mark[usize::from(self.matched)] {
                    self.matched = (self.matched + 1) % mark.len() as u8;
                    if self.matched == 0 { Line::Start } else { Line::Mark }
                } else if self.matched == 0 {
                    self.first(byte)
                } else {
                    Line::Rest
                }
            }
            Line::Start => self.first(byte),
            Line::Name => self.name(byte),
            Line::Comment => self.comment(byte),
            same => same,
        };
    }

    fn first(&mut self, byte: u8) -> Line {
        self.matched = 0;
        if byte == b':' { Line::Comment } else { self.name(byte) }
    }

    fn name(&mut self, byte: u8) -> Line {
        const DATA: &[u8] = b"data";
        if DATA.get(usize::from(self.matched)) == Some(&byte) {
            self.matched += 1;
            return Line::Name;
        }
        if byte == b':' && usize::from(self.matched) == DATA.len() {
            self.has_data = true;
        }
        Line::Rest
    }

    fn comment(&mut self, byte: u8) -> Line {
        let at = usize::from(self.matched);
        let want = match NUDGED.get(at) {
            Some(&want) => Some(want),
            None => hex(self.answered).get(at - NUDGED.len()).copied(),
        };
        if want == Some(byte) {
            self.matched += 1;
            Line::Comment
        } else if at < NUDGED.len() {
            Line::OtherComment
        } else {
            Line::WrongNudge
        }
    }

    fn end_line(&mut self, out: &mut Out) -> Result<(), Failure> {
        let line = std::mem::replace(&mut self.line, Line::Start);
        let matched = usize::from(std::mem::take(&mut self.matched));
        let nudging = self.phase == Phase::Nudging;
        match line {
            // An empty line sends the event off; one without data goes nowhere.
            Line::Start | Line::Mark if matched == 0 => {
                if std::mem::take(&mut self.has_data) {
                    out.facts.push(Fact::Heard);
                }
            }
            // A field's name without a colon counts with an empty value.
            Line::Name => self.has_data |= matched == b"data".len(),
            Line::Comment if nudging && matched == NUDGED.len() + 8 && self.answered != self.asked => {
                self.answered = self.answered.wrapping_add(1);
                out.facts.push(Fact::Answered);
            }
            Line::Comment if nudging && matched >= NUDGED.len() => return Err(wrong_nudge()),
            Line::WrongNudge if nudging => return Err(wrong_nudge()),
            Line::Comment | Line::OtherComment | Line::WrongNudge => out.facts.push(Fact::Heard),
            Line::Start | Line::Mark | Line::Rest => {}
        }
        Ok(())
    }
}

fn wrong_nudge() -> Failure {
    against_protocol(
        "the node answered another nudge than the oldest one; report this as a defect of plimsoll",
    )
}

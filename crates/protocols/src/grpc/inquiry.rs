//! How is a server asked something before a run? One bidirectional call, whose answers are kept.

use model::{Failure, Metadata, Target};

use super::framing;
use super::head::{self, Answer};
use super::{away, greet, put_block};
use crate::h2::session::{Event, Session};
use crate::quote::against_protocol;

/// The most that may come before it is read: larger than any set of descriptors should be.
const MOST_ANSWER: usize = 16 * 1024 * 1024;
/// The call is the only one of its connection.
const STREAM: u32 = 1;

/// One call on a connection of its own.
#[derive(Debug)]
pub struct Inquiry {
    path: String,
    session: Session<()>,
    begun: bool,
    /// The server said that it has no such method.
    unimplemented: bool,
    /// Requests that the server's windows do not allow yet.
    unsent: Vec<u8>,
    /// Answers that were not read yet.
    came: Vec<u8>,
}

impl Inquiry {
    /// Begins a connection and the call.
    pub fn new(target: &Target, path: &str, metadata: &[Metadata], out: &mut Vec<u8>) -> Self {
        let mut session = Session::default();
        greet(out);
        put_block(out, STREAM, &head::request(target, path, metadata));
        session.open(STREAM, ());
        let (unsent, came) = (Vec::new(), Vec::new());
        Self { path: path.to_owned(), session, begun: false, unimplemented: false, unsent, came }
    }

    /// Sends a message.
    pub fn say(&mut self, message: &[u8], out: &mut Vec<u8>) {
        self.unsent.extend_from_slice(&framing::framed(message));
        self.push(out);
    }

    /// Takes what came; says how much of it is done with.
    ///
    /// # Errors
    /// What ended the call, which is never meant to end.
    pub fn hear(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<usize, Failure> {
        let mut used = 0;
        while used < bytes.len() {
            let next = self.session.next(&bytes[used..], out).map_err(|what| away::broken(what, out))?;
            let Some((event, taken)) = next else { break };
            used += taken;
            match event {
                Event::Quiet | Event::Pong(_) => {}
                Event::Settled | Event::Room => self.push(out),
                Event::Headers { block, end, .. } => {
                    let answer = Answer::read(&block).map_err(|what| away::broken(what, out))?;
                    self.headers(&answer, end)?;
                }
                Event::Data { bytes, end, .. } => {
                    if end || self.came.len() + bytes.len() > MOST_ANSWER {
                        let how = if end { "ended its answer without a status" } else { "answered too much" };
                        return Err(against_protocol(format!("the server {how} to {}", self.path)));
                    }
                    self.came.extend_from_slice(bytes);
                    self.session.took(0, bytes.len(), out);
                }
                Event::Reset { code, .. } => return Err(away::stream(&self.path, code)),
                Event::Away { code, words } => return Err(away::connection(code, words)),
            }
        }
        Ok(used)
    }

    /// The next message that came whole.
    pub fn answer(&mut self) -> Option<Vec<u8>> {
        let (message, taken) = framing::first(&self.came)?;
        let message = message.to_vec();
        self.came.drain(..taken);
        Some(message)
    }

    /// Whether the call failed because the server has no such method.
    pub fn is_unimplemented(&self) -> bool {
        self.unimplemented
    }

    fn headers(&mut self, answer: &Answer, end: bool) -> Result<(), Failure> {
        if !self.begun && !answer.is_interim() {
            answer.check(&self.path)?;
            self.begun = true;
        }
        if !end {
            return Ok(());
        }
        self.unimplemented = answer.is_unimplemented();
        answer.end(&self.path)?;
        Err(against_protocol(format!("the server ended {} before it was asked to", self.path)))
    }

    fn push(&mut self, out: &mut Vec<u8>) {
        let sent = self.session.send(0, &self.unsent, false, out);
        self.unsent.drain(..sent);
    }
}

//! What is a protocol to the rest of Plimsoll? Cues in, bytes and facts out.

use model::{Failure, Operation, Scheme};

use crate::Plan;

/// What a machine is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cue<'a> {
    /// The byte stream stands (TCP is open and TLS, if any, is done). Given once, first; and once more when the TLS
    /// that [`Fact::StartTls`] asked for is done.
    Connected,
    /// Bytes from the peer: what was left unconsumed of earlier ones, then new ones. Never empty.
    Bytes(&'a [u8]),
    /// Client: make one round trip (a heartbeat or a verify). Server: send whatever keeps a quiet
    /// connection alive, if the protocol has it. Only given to a client after [`Fact::Ready`].
    Ask,
    /// Client: carry out one real operation (a message and its echo, a query, a call), as [`Plan::operation`] has it.
    /// Only given after [`Fact::Ready`], and only where the plan has one and [`DriverFacts::operation`] says that the
    /// driver can.
    Operate,
    /// Say good-bye, if the protocol has a way; the stream is closed once the bytes are out.
    Finish,
}

/// What a machine has to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// Client: the protocol's greeting is done (an upgrade, a stream head); login may still follow.
    Upgraded,
    /// Client: the server goes on in TLS from here. The stream is secured, then [`Cue::Connected`] comes again. What
    /// the peer sent in clear behind this point is no part of the protocol: leave it unconsumed, and the connection
    /// is given up.
    StartTls,
    /// Client: the server has accepted the login; it may still have things to prepare or to tell.
    LoggedIn,
    /// Client: handshakes and login are done, the connection is ready. Said exactly once.
    Ready,
    /// Client: the oldest unanswered [`Cue::Ask`] was answered. Answers are counted in order.
    Answered,
    /// Client: the oldest unanswered [`Cue::Operate`] was answered, and well. Told apart from [`Fact::Answered`] even
    /// where both are under way. What the server refused is a failure of the connection.
    Operated,
    /// Client: the server sent something of its own accord (an event, a comment heartbeat).
    Heard,
    /// Client: this server has no way to answer a [`Cue::Ask`] on this protocol; that cue sent nothing.
    CannotAsk,
    /// Either side: all is said; close the stream in good order once the bytes are out.
    Done,
}

/// Where a machine appends what it wants sent and what it has to report. Lent by the caller.
#[derive(Debug, Default)]
pub struct Out {
    /// Bytes for the peer, in order.
    pub bytes: Vec<u8>,
    /// Facts for whoever runs the experiment, in order.
    pub facts: Vec<Fact>,
}

/// One side of one protocol: a pure state machine over one slot per connection.
pub trait Machine {
    /// All that one connection keeps while idle. Keep it small: a million of them are held.
    type Slot: Default;

    /// Takes one cue. For [`Cue::Bytes`], returns how many of the bytes were consumed: the rest is handed in
    /// again, with more behind it, when more arrives. For other cues the return value is 0.
    /// Whole messages must be consumed at once (not one per call), and large bodies need not be kept whole.
    ///
    /// # Errors
    /// A [`Failure`] ends the connection: what was appended to `out` before is still sent, as far as it can be.
    fn on(&self, slot: &mut Self::Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure>;
}

/// How a driver's heartbeats come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beats {
    /// The client asks, the server answers.
    Asked,
    /// The server sends of its own accord; the client listens for it.
    Arriving,
}

/// What help, docs and completions say of a driver.
#[derive(Debug)]
pub struct DriverFacts {
    /// The scheme without TLS.
    pub scheme: Scheme,
    /// One sentence: what a connection of this driver is.
    pub doc: &'static str,
    /// One sentence: what a heartbeat is, and what counts as its answer.
    pub heartbeat: &'static str,
    /// How heartbeats come about.
    pub beats: Beats,
    /// One sentence: what an operation is, on its own and with a text of the user's; `None`: it has none.
    pub operation: Option<&'static str>,
}

/// The client side of one protocol.
pub trait Driver: Machine + 'static {
    /// What help and docs say of it.
    const FACTS: DriverFacts;

    /// Makes the driver for one target; called once per worker.
    fn new(plan: &Plan) -> Self;

    /// What is wrong with the plan's operation, as something for a user to mend. Asked before [`Driver::new`].
    ///
    /// # Errors
    /// What the text should have been.
    fn check(_operation: &Operation) -> Result<(), String> {
        Ok(())
    }
}

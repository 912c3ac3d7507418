//! What does the reactor keep of one connection? As little as it can while nothing is under way.

use std::os::fd::OwnedFd;

use model::Failure;

use crate::tls::Tls;

/// How a connection ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// The peer closed in good order, right after these words, quoted; empty: it had said nothing.
    PeerClosed(String),
    /// It failed.
    Failed(Failure),
    /// We closed it on purpose.
    Done,
}

/// Bytes that wait: only allocated while there are some.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Received, but not yet a whole message (plain text).
    pub(crate) partial: Vec<u8>,
    /// Received, but not yet a whole TLS record or handshake flight.
    pub(crate) sealed: Vec<u8>,
    /// To be sent once the socket takes more.
    pub(crate) unsent: Vec<u8>,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.partial.is_empty() && self.sealed.is_empty() && self.unsent.is_empty()
    }
}

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// `connect()` is under way.
    Connecting,
    /// The TLS handshake is under way.
    Securing,
    /// The machine has the stream.
    Open,
    /// To be closed as soon as what is unsent has gone out.
    Closing,
}

/// One place in the slab.
pub(crate) struct Conn<S, N> {
    /// `None`: the place is free.
    pub(crate) socket: Option<OwnedFd>,
    /// Counts how often the place was taken, so that a late event of an earlier tenant is told apart.
    pub(crate) tenancy: u32,
    pub(crate) state: State,
    pub(crate) tls: Option<Box<Tls>>,
    pub(crate) waiting: Option<Box<Waiting>>,
    /// The machine's.
    pub(crate) slot: S,
    /// The owner's.
    pub(crate) note: N,
}

impl<S, N> Conn<S, N> {
    pub(crate) fn waiting(&mut self) -> &mut Waiting {
        self.waiting.get_or_insert_default()
    }

    pub(crate) fn has_unsent(&self) -> bool {
        self.waiting.as_ref().is_some_and(|w| !w.unsent.is_empty())
    }

    /// Gives the buffers back once nothing waits in them.
    pub(crate) fn settle(&mut self) {
        if self.waiting.as_ref().is_some_and(|w| w.is_empty()) {
            self.waiting = None;
        }
    }
}

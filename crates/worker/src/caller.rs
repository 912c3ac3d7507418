//! Makes a worker's connections: from the next source, to the target's next address, with the trust that all share.

use std::net::SocketAddr;

use fleet::Assignment;
use protocols::Driver;
use reactor::Reactor;
use reactor::clock::Nanos;
use reactor::tls::ClientTls;
use rustix::io::Errno;

use crate::sources::Sources;
use crate::{WorkerError, trust};

/// Where connections come from and go to.
pub(crate) struct Caller {
    addresses: Vec<SocketAddr>,
    next_address: usize,
    sources: Sources,
    tls: Option<ClientTls>,
    /// No attempt is expected to find a port: only one source is tried then, not a whole round.
    pub(crate) ports_exhausted: bool,
}

impl Caller {
    /// # Errors
    /// What in the target's name or the certificates cannot be used.
    pub(crate) fn new(assignment: &Assignment, now: Nanos) -> Result<Self, WorkerError> {
        Ok(Self {
            addresses: assignment.addresses.clone(),
            next_address: assignment.index as usize,
            sources: Sources::new(assignment.sources.clone(), now >> 10),
            tls: trust::from_the_start(assignment)?,
            ports_exhausted: false,
        })
    }

    /// Begins one connection; gives its place.
    ///
    /// # Errors
    /// `EADDRNOTAVAIL` if a whole round of sources found no port, else what the kernel said to the first.
    pub(crate) fn connect<D: Driver, N: Default>(
        &mut self,
        reactor: &mut Reactor<D, N>,
        note: impl Fn() -> N,
    ) -> Result<u32, Errno> {
        let address = self.addresses[self.next_address % self.addresses.len()];
        self.next_address += 1;
        // A port of ours may be taken (a TIME-WAIT, a stranger); the next one seldom is.
        let tries = if self.ports_exhausted { 1 } else { self.sources.round().max(1) };
        for _ in 0..tries {
            match reactor.connect(address, self.sources.next(), self.tls.as_ref(), note()) {
                Err(Errno::ADDRNOTAVAIL) => {}
                done => return done,
            }
        }
        Err(Errno::ADDRNOTAVAIL)
    }
}

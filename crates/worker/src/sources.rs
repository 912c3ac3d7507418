//! Which address and port does the next connection come from?
//!
//! Where the kernel lets a socket name its own port range (Linux 6.3), each worker walks ports that are its
//! alone: `connect()` never searches, so a pair of addresses fills to its last port at an even speed. (Left to
//! itself, `connect()` tries one parity of the range first and slows down by more than ten times past half of
//! it; see `__inet_hash_connect` in net/ipv4/inet_hashtables.c.)

use fleet::PortShare;
use reactor::socket::Source;

/// A walk over all ports of all sources of one worker, round and round.
#[derive(Debug)]
pub(crate) struct Sources {
    shares: Vec<PortShare>,
    share: usize,
    /// Steps made within the current share.
    step: u64,
    /// Where in each share the walk begins, so that two runs in a row do not meet each other's TIME-WAITs.
    offset: u64,
}

impl Sources {
    pub(crate) fn new(shares: Vec<PortShare>, offset: u64) -> Self {
        Self { shares, share: 0, step: 0, offset }
    }

    /// How many different sources a whole round has.
    pub(crate) fn round(&self) -> u64 {
        self.shares.iter().map(width).sum()
    }

    /// The next source.
    pub(crate) fn next(&mut self) -> Source {
        let Some(share) = self.shares.get(self.share) else {
            return Source { address: None, port: None };
        };
        let width = width(share);
        let port =
            share.ports.map(|(first, _)| (u64::from(first) + (self.offset + self.step) % width) as u16);
        let source = Source { address: share.address, port };
        self.step += 1;
        if self.step >= width {
            self.step = 0;
            self.share = (self.share + 1) % self.shares.len();
        }
        source
    }
}

/// How many connections a share is good for in one round.
fn width(share: &PortShare) -> u64 {
    match share.ports {
        Some((first, last)) => u64::from(last.saturating_sub(first)) + 1,
        None => share.most.max(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_round_visits_every_port_of_every_source_once() {
        let shares = vec![
            PortShare { address: Some([127, 0, 0, 2].into()), ports: Some((100, 109)), most: 10 },
            PortShare { address: Some([127, 0, 0, 3].into()), ports: Some((100, 104)), most: 5 },
        ];
        let mut sources = Sources::new(shares, 7);
        let seen: HashSet<_> =
            (0..sources.round()).map(|_| sources.next()).map(|s| (s.address, s.port)).collect();
        assert_eq!(seen.len(), 15);
        assert!(seen.iter().all(|(_, port)| (100..=109).contains(&port.unwrap())));
    }
}

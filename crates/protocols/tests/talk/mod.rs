//! One connection of a driver, answered by hand: what the tests of drivers stand on.

#![allow(dead_code, reason = "each test takes what it needs of it")]

use model::{Failure, FailureKind, Operation, Target};
use protocols::{Cue, Driver, Fact, Out, Plan};

/// One connection of a driver that the test answers by hand.
pub(crate) struct Talk<D: Driver> {
    driver: D,
    pub(crate) slot: D::Slot,
    pub(crate) pending: Vec<u8>,
    pub(crate) said: Vec<u8>,
    pub(crate) facts: Vec<Fact>,
}

impl<D: Driver> Talk<D> {
    pub(crate) fn with(plan: &Plan) -> Self {
        let mut talk = Self {
            driver: D::new(plan),
            slot: D::Slot::default(),
            pending: Vec::new(),
            said: Vec::new(),
            facts: Vec::new(),
        };
        talk.cue(Cue::Connected).unwrap();
        talk
    }

    pub(crate) fn to(url: &str) -> Self {
        Self::with(&plan(url))
    }

    pub(crate) fn cue(&mut self, cue: Cue<'_>) -> Result<usize, Failure> {
        let mut out = Out::default();
        let result = self.driver.on(&mut self.slot, cue, &mut out);
        self.said.append(&mut out.bytes);
        self.facts.append(&mut out.facts);
        result
    }

    pub(crate) fn ask(&mut self, n: usize) {
        for _ in 0..n {
            self.cue(Cue::Ask).unwrap();
        }
    }

    pub(crate) fn operate(&mut self, n: usize) {
        for _ in 0..n {
            self.cue(Cue::Operate).unwrap();
        }
    }

    /// Hands in bytes; gives the facts that came of them.
    pub(crate) fn hears(&mut self, bytes: impl AsRef<[u8]>) -> Result<Vec<Fact>, Failure> {
        self.pending.extend_from_slice(bytes.as_ref());
        let pending = std::mem::take(&mut self.pending);
        self.facts.clear();
        let used = self.cue(Cue::Bytes(&pending))?;
        self.pending = pending[used..].to_vec();
        Ok(std::mem::take(&mut self.facts))
    }

    /// Hands in bytes in pieces of these sizes, over and over; gives all that was said, the facts, and how it failed.
    pub(crate) fn hears_in_pieces(
        mut self,
        bytes: &[u8],
        sizes: &[usize],
    ) -> (Vec<u8>, Vec<Fact>, Option<Failure>) {
        let (mut facts, mut rest, mut sizes) = (Vec::new(), bytes, sizes.iter().cycle());
        while !rest.is_empty() {
            let (piece, after) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
            rest = after;
            match self.hears(piece) {
                Ok(more) => facts.extend(more),
                Err(failure) => {
                    facts.append(&mut self.facts);
                    return (self.said, facts, Some(failure));
                }
            }
        }
        (self.said, facts, None)
    }

    pub(crate) fn fails(&mut self, bytes: impl AsRef<[u8]>, kind: FailureKind, words: &str) {
        let failure = self.hears(bytes).unwrap_err();
        assert_eq!(failure.kind, kind, "{failure:?}");
        assert!(failure.text.contains(words), "{failure:?}");
    }
}

/// A plan with an operation, with a text or without.
pub(crate) fn operating(url: &str, text: Option<&str>) -> Plan {
    let operation = Some(Operation { text: text.map(str::to_owned), ..Operation::default() });
    Plan { operation, salt: 0xabcd_ef01_2345_6789, ..plan(url) }
}

pub(crate) fn plan(url: &str) -> Plan {
    Plan::to(Target::parse(url).unwrap())
}

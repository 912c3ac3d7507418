//! What is the next answer to, where a server answers in order?

use std::collections::VecDeque;

use crate::machine::Fact;

/// How many are told apart without memory of their own.
const FIRST: u32 = u32::BITS;

/// The round trips of one connection that wait for their answers, the oldest first: heartbeats and operations.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Those behind the first. Only a connection that a server lets wait for long borrows this.
    #[expect(clippy::box_collection, reason = "a million idle connections keep a pointer each, not a deque")]
    later: Option<Box<VecDeque<bool>>>,
    /// A bit for each of the first, the oldest highest; 1: an operation.
    operations: u32,
    /// How many those are.
    count: u32,
}

impl Waiting {
    /// Notes a heartbeat.
    pub(crate) fn ask(&mut self) {
        self.note(false);
    }

    /// Notes an operation.
    pub(crate) fn operate(&mut self) {
        self.note(true);
    }

    fn note(&mut self, operation: bool) {
        if self.count < FIRST {
            self.operations = self.operations << 1 | u32::from(operation);
            self.count += 1;
        } else {
            self.later.get_or_insert_default().push_back(operation);
        }
    }

    /// What the oldest is, answered now; `None`: nothing waits.
    pub(crate) fn answer(&mut self) -> Option<Fact> {
        let before = self.count.checked_sub(1)?;
        let operation = self.is_operation();
        self.count = before;
        match self.later.as_mut().and_then(|later| later.pop_front()) {
            Some(next) => self.note(next),
            None => self.later = None,
        }
        Some(if operation { Fact::Operated } else { Fact::Answered })
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether the oldest is an operation.
    pub(crate) fn is_operation(&self) -> bool {
        self.count > 0 && self.operations >> (self.count - 1) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_in_the_order_of_what_was_asked() {
        let mut waiting = Waiting::default();
        assert_eq!(waiting.answer(), None);
        waiting.ask();
        waiting.operate();
        waiting.operate();
        assert_eq!(waiting.answer(), Some(Fact::Answered));
        assert!(waiting.is_operation());
        waiting.ask();
        let rest: Vec<_> = std::iter::from_fn(|| waiting.answer()).collect();
        assert_eq!(rest, [Fact::Operated, Fact::Operated, Fact::Answered]);
        assert_eq!(waiting.answer(), None);
    }

    #[test]
    fn however_many_wait_none_is_taken_for_another() {
        let mut waiting = Waiting::default();
        let mut asked = VecDeque::new();
        for i in 0..10_000_u32 {
            // some are answered meanwhile, and now and then all
            if i % 3 == 0 || i % 1_000 > 900 {
                assert_eq!(waiting.answer(), asked.pop_front(), "{i}");
                assert_eq!(waiting.answer(), asked.pop_front(), "{i}");
            }
            if i % 7 == 0 {
                waiting.ask();
                asked.push_back(Fact::Answered);
            } else {
                waiting.operate();
                asked.push_back(Fact::Operated);
            }
        }
        let most = asked.len();
        assert!(most > 100 && waiting.later.is_some(), "{most} wait");
        assert_eq!(std::iter::from_fn(|| waiting.answer()).collect::<VecDeque<_>>(), asked);
        assert!(waiting.is_empty() && waiting.later.is_none(), "what was borrowed is given back");
    }
}

//! What is the next answer to, where a server answers in order?

use crate::machine::Fact;

/// The round trips of one connection that wait for their answers, the oldest first: heartbeats and operations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// A bit for each of the last 32, the newest lowest; 1: an operation.
    operations: u32,
    count: u32,
}

impl Waiting {
    /// Notes a heartbeat.
    pub(crate) fn ask(&mut self) {
        self.operations <<= 1;
        self.count = self.count.saturating_add(1);
    }

    /// Notes an operation.
    pub(crate) fn operate(&mut self) {
        self.ask();
        self.operations |= 1;
    }

    /// What the oldest is, answered now; `None`: nothing waits.
    ///
    /// Behind 32 others it is taken for a heartbeat. A connection that waits for so many is about to be given up.
    pub(crate) fn answer(&mut self) -> Option<Fact> {
        let before = self.count.checked_sub(1)?;
        let operation = self.is_operation();
        self.count = before;
        Some(if operation { Fact::Operated } else { Fact::Answered })
    }

    /// Whether the oldest is an operation.
    pub(crate) fn is_operation(self) -> bool {
        (1..=32).contains(&self.count) && self.operations >> (self.count - 1) & 1 == 1
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
    fn more_than_are_told_apart_are_still_counted() {
        let mut waiting = Waiting::default();
        for _ in 0..40 {
            waiting.operate();
        }
        let answers: Vec<_> = std::iter::from_fn(|| waiting.answer()).collect();
        assert_eq!(answers.len(), 40);
        assert_eq!(answers.iter().filter(|a| **a == Fact::Operated).count(), 32);
    }
}

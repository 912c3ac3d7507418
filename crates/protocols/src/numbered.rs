//! Which request is an answer to, where a server answers in any order?

use std::collections::VecDeque;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Heartbeat,
    Operation,
    /// To give back what an operation has left open.
    Close,
}

/// How many are told apart without memory of their own.
const NEWEST: u32 = u32::BITS;

/// The requests of one connection that wait for their answers, each with its number.
#[derive(Debug, Default)]
pub(crate) struct Numbered {
    /// Those that wait and are older than the newest, by rising number. Only a connection that a server lets wait for
    /// long borrows this.
    #[expect(clippy::box_collection, reason = "a million idle connections keep a pointer each, not a deque")]
    older: Option<Box<VecDeque<(u32, Request)>>>,
    /// The next request's number; they begin at 0.
    next: u32,
    /// A bit for each of the newest, the last one lowest; 1: it waits.
    waiting: u32,
    /// Which of them are operations.
    operations: u32,
    /// Which of them close what one has left.
    closes: u32,
}

impl Numbered {
    /// Notes a request and gives its number.
    pub(crate) fn add(&mut self, request: Request) -> u32 {
        if self.waits(NEWEST - 1) {
            let leaves = (self.next.wrapping_sub(NEWEST), self.kind(NEWEST - 1));
            self.older.get_or_insert_default().push_back(leaves);
        }
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.waiting = self.waiting << 1 | 1;
        self.operations = self.operations << 1 | u32::from(request == Request::Operation);
        self.closes = self.closes << 1 | u32::from(request == Request::Close);
        number
    }

    /// What has this number, answered now; `None`: it does not wait.
    pub(crate) fn answer(&mut self, number: u32) -> Option<Request> {
        let newer = self.next.wrapping_sub(1).wrapping_sub(number);
        if newer >= NEWEST {
            return self.answer_older(number);
        }
        if !self.waits(newer) {
            return None;
        }
        self.waiting &= !(1 << newer);
        Some(self.kind(newer))
    }

    fn answer_older(&mut self, number: u32) -> Option<Request> {
        let older = self.older.as_mut()?;
        // Counted from the first, as numbers begin anew after the last that there is.
        let first = older.front()?.0;
        let place = older
            .binary_search_by_key(&number.wrapping_sub(first), |(number, _)| number.wrapping_sub(first))
            .ok()?;
        let (_, request) = older.remove(place)?;
        if older.is_empty() {
            self.older = None;
        }
        Some(request)
    }

    /// Whether the one waits after which so many came.
    fn waits(&self, newer: u32) -> bool {
        self.waiting >> newer & 1 == 1
    }

    fn kind(&self, newer: u32) -> Request {
        if self.operations >> newer & 1 == 1 {
            Request::Operation
        } else if self.closes >> newer & 1 == 1 {
            Request::Close
        } else {
            Request::Heartbeat
        }
    }
}

#[cfg(test)]
mod tests {
    use Request::{Close, Heartbeat, Operation};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_come_in_any_order_and_once() {
        let mut numbered = Numbered::default();
        assert_eq!(numbered.answer(0), None, "nothing was asked");
        let numbers: Vec<u32> =
            [Heartbeat, Operation, Close, Heartbeat].into_iter().map(|r| numbered.add(r)).collect();
        assert_eq!(numbers, [0, 1, 2, 3]);
        assert_eq!(numbered.answer(2), Some(Close));
        assert_eq!(numbered.answer(0), Some(Heartbeat));
        assert_eq!(numbered.answer(0), None, "again");
        assert_eq!(numbered.answer(4), None, "not asked yet");
        assert_eq!(numbered.answer(u32::MAX), None);
        assert_eq!(numbered.answer(3), Some(Heartbeat));
        assert_eq!(numbered.answer(1), Some(Operation));
    }

    #[test]
    fn however_many_wait_none_is_taken_for_another() {
        let kinds = [Operation, Heartbeat, Operation, Close, Operation];
        let mut numbered = Numbered { next: u32::MAX - 500, ..Numbered::default() };
        let asked: Vec<(u32, Request)> =
            kinds.into_iter().cycle().take(1_000).map(|request| (numbered.add(request), request)).collect();
        assert_eq!(asked.last().unwrap().0, 498, "the numbers began anew");
        assert!(numbered.older.is_some());
        for (number, request) in asked.iter().step_by(3).chain(asked.iter().skip(1).step_by(3).rev()) {
            assert_eq!(numbered.answer(*number), Some(*request));
            assert_eq!(numbered.answer(*number), None, "again");
        }
        for (number, request) in asked.iter().skip(2).step_by(3) {
            assert_eq!(numbered.answer(*number), Some(*request));
        }
        assert!(numbered.older.is_none(), "what was borrowed is given back");
        assert!(asked.iter().all(|(number, _)| numbered.answer(*number).is_none()), "no more are due");
    }

    proptest! {
        #[test]
        fn each_is_told_by_its_number(kinds in prop::collection::vec(0..3usize, 1..100), seed: u64) {
            let mut numbered = Numbered::default();
            let mut waiting: Vec<(u32, Request)> = kinds
                .iter()
                .map(|kind| [Heartbeat, Operation, Close][*kind])
                .map(|request| (numbered.add(request), request))
                .collect();
            waiting.sort_by_key(|(number, _)| (u64::from(*number) + 1).wrapping_mul(seed | 1));
            for (number, request) in waiting {
                prop_assert_eq!(numbered.answer(number), Some(request));
                prop_assert_eq!(numbered.answer(number), None);
            }
        }
    }
}

//! Which request is an answer to, where a server answers in any order?

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    Heartbeat,
    Operation,
    /// To give back what an operation has left open.
    Close,
}

/// The requests of one connection that wait for their answers, each with its number.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Numbered {
    /// The next request's number; they begin at 0.
    next: u32,
    /// A bit for each of the last 32, the newest lowest; 1: it waits.
    waiting: u32,
    /// Which of them are operations.
    operations: u32,
    /// Which of them close what one has left.
    closes: u32,
    /// How many wait that are older.
    older: u32,
}

impl Numbered {
    /// Notes a request and gives its number.
    pub(crate) fn add(&mut self, request: Request) -> u32 {
        let number = self.next;
        self.next = self.next.wrapping_add(1);
        self.older = self.older.saturating_add(self.waiting >> 31);
        self.waiting = self.waiting << 1 | 1;
        self.operations = self.operations << 1 | u32::from(request == Request::Operation);
        self.closes = self.closes << 1 | u32::from(request == Request::Close);
        number
    }

    /// What has this number, answered now; `None`: it does not wait.
    ///
    /// Behind 32 others it is taken for a heartbeat. A connection on which so many go unanswered is about to be given
    /// up.
    pub(crate) fn answer(&mut self, number: u32) -> Option<Request> {
        let newer = self.next.checked_sub(1)?.checked_sub(number)?;
        let Some(bit) = 1u32.checked_shl(newer) else {
            self.older = self.older.checked_sub(1)?;
            return Some(Request::Heartbeat);
        };
        if self.waiting & bit == 0 {
            return None;
        }
        self.waiting &= !bit;
        Some(if self.operations & bit != 0 {
            Request::Operation
        } else if self.closes & bit != 0 {
            Request::Close
        } else {
            Request::Heartbeat
        })
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
    fn more_than_are_told_apart_are_still_counted() {
        let mut numbered = Numbered::default();
        let numbers: Vec<u32> = (0..40).map(|_| numbered.add(Operation)).collect();
        let answers: Vec<_> = numbers.iter().filter_map(|n| numbered.answer(*n)).collect();
        assert_eq!(answers.len(), 40);
        assert_eq!(answers.iter().filter(|a| **a == Operation).count(), 32);
        assert_eq!(numbered.answer(0), None, "no more are due");
    }

    proptest! {
        #[test]
        fn each_is_told_by_its_number(kinds in prop::collection::vec(0..3usize, 1..32), seed: u64) {
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

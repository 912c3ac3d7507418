//! Which size to try next? The search for the breaking point, as a pure state machine.
//!
//! Grow by doubling until a stage fails or the cap passes. Then narrow down between the largest size that
//! passed and the smallest that failed: first try exactly what the failed stage verified, since most servers
//! stop at a number rather than collapse; if it passes, try about 1% more, to see whether it is really the
//! line; else halve. Once both are within half a percent, the last good size is confirmed: held once more.
//! Where it does not hold a second time, 2% less is confirmed instead, at most three times.

use model::result::Purpose;

/// How often a line that was not confirmed is lowered.
const MOST_LOWERINGS: u32 = 3;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Hold this many and verify each.
    Try {
        /// Connections to hold.
        connections: u64,
        /// `Ramp` while growing, `Bisect` after.
        purpose: Purpose,
    },
    /// Hold the last good size once more, for the whole hold time.
    Confirm {
        /// Connections to hold.
        connections: u64,
    },
    /// It is over.
    Finished {
        /// The largest size that passed and was not disproved; 0: none.
        line: u64,
    },
}

/// What the size that is tried next was chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The double of the last one, or the cap.
    Grow,
    /// What the failed stage verified.
    AsVerified,
    /// A little more than what the failed stage verified.
    SlightlyMore,
    /// Between good and bad.
    Halve,
    /// The line once more.
    Confirm,
    /// Nothing.
    Finished,
}

/// One search. Ask [`next`](Self::next), run it, [`report`](Self::report) it, until `Finished`.
#[derive(Debug, Clone)]
pub struct Search {
    cap: u64,
    /// The largest size that passed.
    good: u64,
    /// The smallest size that failed; `None`: none has.
    bad: Option<u64>,
    /// Every size that passed, for the case that the line is not confirmed.
    passed: Vec<u64>,
    step: Step,
    size: u64,
    lowered: u32,
}

impl Search {
    /// A search from `start` connections (at least 1) up to `cap`; a `start` above `cap` begins with `cap`.
    pub fn new(cap: u64, start: u64) -> Self {
        let step = if cap == 0 { Step::Finished } else { Step::Grow };
        Self { cap, good: 0, bad: None, passed: Vec::new(), step, size: start.max(1).min(cap), lowered: 0 }
    }

    /// What to do next; the same until something is reported.
    pub fn next(&self) -> Next {
        let connections = self.size;
        match self.step {
            Step::Grow => Next::Try { connections, purpose: Purpose::Ramp },
            Step::AsVerified | Step::SlightlyMore | Step::Halve => {
                Next::Try { connections, purpose: Purpose::Bisect }
            }
            Step::Confirm => Next::Confirm { connections },
            Step::Finished => Next::Finished { line: self.good },
        }
    }

    /// Takes in how the stage went that [`next`](Self::next) asked for: how many connections were `asked`
    /// for, how many `verified`, and whether it `passed`.
    pub fn report(&mut self, asked: u64, verified: u64, passed: bool) {
        match (self.step, passed) {
            (Step::Finished, _) => {}
            (Step::Confirm, true) => self.finish(asked),
            (Step::Confirm, false) => self.lower(asked),
            (step, true) => self.advance(step, asked),
            (step, false) => self.retreat(step, asked, verified),
        }
    }

    /// The stage passed.
    fn advance(&mut self, step: Step, asked: u64) {
        self.good = self.good.max(asked);
        self.passed.push(asked);
        match step {
            Step::Grow if asked >= self.cap => self.go(Step::Confirm, asked),
            Step::Grow => self.go(Step::Grow, asked.saturating_mul(2).min(self.cap)),
            Step::AsVerified if !self.near_enough() => {
                let more = self.good + (self.good / 100).max(1);
                if self.bad.is_some_and(|bad| more < bad) {
                    self.go(Step::SlightlyMore, more);
                } else {
                    self.halve();
                }
            }
            _ => self.halve(),
        }
    }

    /// The stage failed.
    fn retreat(&mut self, step: Step, asked: u64, verified: u64) {
        let bad = self.bad.map_or(asked, |bad| bad.min(asked));
        self.bad = Some(bad);
        // A server that always loses a few would be followed down by those few: no two such steps in a row.
        let worth_trying = step != Step::AsVerified && self.good < verified && verified < bad;
        if worth_trying && !self.near_enough() {
            self.go(Step::AsVerified, verified);
        } else {
            self.halve();
        }
    }

    /// Halves what is left between good and bad, or confirms.
    fn halve(&mut self) {
        match self.bad {
            Some(bad) if !self.near_enough() => self.go(Step::Halve, self.good + (bad - self.good) / 2),
            _ if self.good == 0 => self.finish(0),
            _ => self.go(Step::Confirm, self.good),
        }
    }

    /// Whether good and bad are within half a percent, or next to each other.
    fn near_enough(&self) -> bool {
        self.bad.is_none_or(|bad| bad.saturating_sub(self.good) <= (self.good / 200).max(1))
    }

    /// The line did not hold a second time.
    fn lower(&mut self, asked: u64) {
        self.bad = Some(self.bad.map_or(asked, |bad| bad.min(asked)));
        self.passed.retain(|&size| size < asked);
        let less = asked - (asked / 50).max(1).min(asked);
        if self.lowered < MOST_LOWERINGS && less > 0 {
            self.lowered += 1;
            self.go(Step::Confirm, less);
        } else {
            self.finish(self.passed.iter().copied().max().unwrap_or(0));
        }
    }

    fn go(&mut self, step: Step, size: u64) {
        self.step = step;
        self.size = size;
    }

    fn finish(&mut self, line: u64) {
        self.step = Step::Finished;
        self.good = line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Runs a search against a server that verifies `server(asked)` of what is asked; gives the line and the
    /// sizes tried.
    fn run(cap: u64, start: u64, mut server: impl FnMut(u64) -> u64) -> (u64, Vec<u64>) {
        let mut search = Search::new(cap, start);
        let mut tried = Vec::new();
        loop {
            let asked = match search.next() {
                Next::Try { connections, .. } | Next::Confirm { connections } => connections,
                Next::Finished { line } => return (line, tried),
            };
            assert!(asked > 0 && asked <= cap, "asked for {asked} of at most {cap}");
            assert!(tried.len() < 200, "no end: {tried:?}");
            tried.push(asked);
            let verified = server(asked);
            search.report(asked, verified, verified == asked);
        }
    }

    #[test]
    fn a_server_that_stops_at_a_number_is_found_exactly() {
        let (line, tried) = run(1_000_000, 100, |asked| asked.min(987));
        assert_eq!(line, 987);
        assert_eq!(tried, [100, 200, 400, 800, 1_600, 987, 996, 991, 987]);
    }

    #[test]
    fn what_never_breaks_is_confirmed_at_the_cap() {
        assert_eq!(run(1_000, 300, |asked| asked), (1_000, vec![300, 600, 1_000, 1_000]));
        assert_eq!(run(1_000, 5_000, |asked| asked), (1_000, vec![1_000, 1_000]));
        assert_eq!(run(1, 1, |asked| asked), (1, vec![1, 1]));
        assert_eq!(run(0, 10, |asked| asked), (0, vec![]));
    }

    #[test]
    fn a_server_that_holds_none() {
        assert_eq!(run(1, 1, |_| 0), (0, vec![1]));
        let (line, tried) = run(1_000_000, 1_000, |_| 0);
        assert_eq!((line, tried.len()), (0, 10));
    }

    #[test]
    fn a_line_that_does_not_hold_twice_is_lowered_at_most_three_times() {
        // 1,000 pass once each; every confirmation fails.
        let mut search = Search::new(1_000, 1_000);
        search.report(1_000, 1_000, true);
        for expected in [1_000, 980, 961, 942] {
            assert_eq!(search.next(), Next::Confirm { connections: expected });
            search.report(expected, 0, false);
        }
        assert_eq!(search.next(), Next::Finished { line: 0 });

        let mut search = Search::new(1_000, 500);
        search.report(500, 500, true);
        search.report(1_000, 1_000, true);
        search.report(1_000, 990, false);
        assert_eq!(search.next(), Next::Confirm { connections: 980 });
        search.report(980, 980, true);
        assert_eq!(search.next(), Next::Finished { line: 980 });
    }

    #[test]
    fn asking_twice_changes_nothing() {
        let search = Search::new(10, 2);
        assert_eq!(search.next(), Next::Try { connections: 2, purpose: Purpose::Ramp });
        assert_eq!(search.next(), search.next());
    }

    /// Whether a line is the true one, to within 1% below it.
    fn found(line: u64, truth: u64) -> bool {
        line <= truth && (truth - line) as f64 <= (truth as f64 * 0.01).max(1.0)
    }

    /// Doublings to get there, three per halving of what is left, and the confirmations.
    fn bound(cap: u64) -> usize {
        let log = (u64::BITS - cap.leading_zeros()) as usize;
        log + 3 * log + 6
    }

    proptest! {
        #[test]
        fn a_hard_cap(cap in 1..3_000_000u64, start in 1..5_000_000u64, limit in 0..3_000_000u64) {
            let (line, tried) = run(cap, start, |asked| asked.min(limit));
            let truth = limit.min(cap);
            prop_assert!(found(line, truth), "{line} of {truth}: {tried:?}");
            prop_assert!(tried.len() <= bound(cap), "{} trials", tried.len());
        }

        #[test]
        fn a_collapse(
            cap in 1..3_000_000u64,
            start in 1..100_000u64,
            limit in 0..3_000_000u64,
            left in 0.0..1.0f64,
        ) {
            let server = |asked| if asked <= limit { asked } else { (limit as f64 * left) as u64 };
            let (line, tried) = run(cap, start, server);
            let truth = limit.min(cap);
            prop_assert!(found(line, truth), "{line} of {truth}: {tried:?}");
            prop_assert!(tried.len() <= bound(cap), "{} trials", tried.len());
        }

        #[test]
        fn it_ends_whatever_the_server_does(
            cap in 1..3_000_000u64,
            start in 1..100_000u64,
            seed in any::<u64>(),
        ) {
            let mut state = seed | 1;
            let (line, tried) = run(cap, start, |asked| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                if state >> 63 == 0 { asked } else { (state >> 20) % asked }
            });
            prop_assert!(line <= cap);
            prop_assert!(tried.len() <= bound(cap), "{} trials", tried.len());
        }

        #[test]
        fn small_losses_are_not_followed_down(cap in 100..3_000_000u64, start in 1..100_000u64) {
            let server = |asked: u64| if asked < 50 { asked } else { asked - asked.div_ceil(100) };
            let (_, tried) = run(cap, start, server);
            prop_assert!(tried.len() <= bound(cap), "{} trials", tried.len());
        }
    }
}

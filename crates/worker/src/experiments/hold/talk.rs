//! Who has said what, and when is each next message due? The schedule of a talk, and what came of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use model::Sample;
use model::talk::{Arrivals, TalkSpec, Talked};
use reactor::clock::{self, Nanos};

use super::super::share;

/// A talk under way: every connection that stood when it began says its messages on a schedule of its own, whether
/// or not those before were answered.
pub(crate) struct Talk {
    spec: TalkSpec,
    instant: Nanos,
    gap: f64,
    /// By place in the slab; what stood there when the talk began.
    speakers: Vec<Option<Speaker>>,
    /// When each speaker's next message is due, the earliest first.
    due: BinaryHeap<Reverse<(Nanos, u32)>>,
    /// Speakers with a message unsent or unanswered.
    speaking: u64,
    last_due: Nanos,
    last_answer: Nanos,
    talked: Talked,
}

#[derive(Debug, Clone, Copy)]
struct Speaker {
    sent: u32,
    answered: u32,
    /// The intended time of the oldest message that is not answered.
    oldest: Nanos,
}

impl Talk {
    /// Begins at `instant` with the connections at `places`; this is worker `index` of `workers`.
    pub(crate) fn new(spec: TalkSpec, instant: Nanos, places: &[u32], index: u32, workers: u32) -> Self {
        let clients = places.len() as u64;
        let last = places.last().map_or(0, |place| *place as usize + 1);
        let mut talk = Self {
            spec,
            instant,
            gap: spec.gap_seconds() * clock::SECOND as f64,
            speakers: vec![None; last],
            due: BinaryHeap::with_capacity(places.len()),
            speaking: clients,
            last_due: instant,
            last_answer: instant,
            talked: Talked { clients, ..Talked::default() },
        };
        // The workers' connections lie between each other's.
        let all = clients * u64::from(workers);
        for (number, place) in (0..).zip(places) {
            let first = spec.first_seconds(number * u64::from(workers) + u64::from(index), all);
            let due = instant + clock::from_seconds(first);
            talk.speakers[*place as usize] = Some(Speaker { sent: 0, answered: 0, oldest: due });
            talk.due.push(Reverse((due, *place)));
        }
        talk
    }

    /// When the next message is due.
    pub(crate) fn next_due(&self) -> Nanos {
        self.due.peek().map_or(Nanos::MAX, |Reverse((due, _))| *due)
    }

    /// The place whose message is due by `now`, and its intended time; it counts as sent.
    pub(crate) fn take(&mut self, now: Nanos) -> Option<(u32, Nanos)> {
        loop {
            let Reverse((due, place)) = *self.due.peek()?;
            if due > now {
                return None;
            }
            self.due.pop();
            // Nobody is there any more to say what is left.
            let Some(mut speaker) = self.speakers[place as usize] else { continue };
            if speaker.sent == speaker.answered {
                speaker.oldest = due;
            }
            speaker.sent += 1;
            self.speakers[place as usize] = Some(speaker);
            self.last_due = self.last_due.max(due);
            if speaker.sent < self.spec.messages {
                self.due.push(Reverse((due + self.pause(place, speaker.sent), place)));
            }
            return Some((place, due));
        }
    }

    /// What lies between message `number` of a speaker and the one before: the same whenever it is asked.
    fn pause(&self, place: u32, number: u32) -> Nanos {
        match self.spec.arrivals {
            Arrivals::Constant => self.gap as Nanos,
            Arrivals::Poisson => {
                let seed = self.instant ^ u64::from(place) << 32 ^ u64::from(number);
                (-share(seed).ln() * self.gap) as Nanos
            }
        }
    }

    /// The oldest message of a speaker is answered; false: nothing of it was.
    pub(crate) fn answered(&mut self, place: u32, now: Nanos, sample: &mut Sample) -> bool {
        let Some(Some(mut speaker)) = self.speakers.get(place as usize).copied() else { return false };
        if speaker.answered == speaker.sent {
            return false;
        }
        sample.messages.record(now.saturating_sub(speaker.oldest));
        sample.counters.messages_answered += 1;
        speaker.answered += 1;
        speaker.oldest += self.pause(place, speaker.answered);
        self.speakers[place as usize] = Some(speaker);
        self.last_answer = now;
        if speaker.answered == self.spec.messages {
            self.talked.succeeded += 1;
            self.speaking -= 1;
        }
        true
    }

    /// A connection is gone; what it had still to say is never said.
    pub(crate) fn lost(&mut self, place: u32) {
        if let Some(speaker) = self.speakers.get_mut(place as usize).and_then(Option::take)
            && speaker.answered < self.spec.messages
        {
            self.speaking -= 1;
        }
    }

    /// Those whose oldest message has waited longer than the patience, and for how long.
    pub(crate) fn silent(&self, now: Nanos, patience: Nanos) -> Vec<(u32, Nanos)> {
        let waits = |(place, speaker): (u32, &Option<Speaker>)| {
            let speaker = speaker.filter(|s| s.answered < s.sent)?;
            let waited = now.saturating_sub(speaker.oldest);
            (waited > patience).then_some((place, waited))
        };
        (0..).zip(&self.speakers).filter_map(waits).collect()
    }

    /// What came of it, once all is said and answered.
    pub(crate) fn over(&self) -> Option<Talked> {
        (self.speaking == 0).then(|| Talked {
            due_seconds: clock::to_seconds(self.last_due - self.instant),
            answered_seconds: clock::to_seconds(self.last_answer.saturating_sub(self.instant)),
            ..self.talked.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use model::talk::Start;

    use super::*;

    const SECOND: Nanos = clock::SECOND;

    fn spec(arrivals: Arrivals) -> TalkSpec {
        TalkSpec { messages: 3, rate_per_second: 1.0, arrivals, start: Start::Spread }
    }

    #[test]
    fn each_speaks_on_its_own_schedule_and_latency_counts_from_it() {
        let mut talk = Talk::new(spec(Arrivals::Constant), 10 * SECOND, &[2, 5], 0, 1);
        let mut sample = Sample::default();
        assert_eq!(talk.take(9 * SECOND), None);
        assert_eq!(talk.take(13 * SECOND), Some((2, 10 * SECOND)));
        assert_eq!(talk.take(13 * SECOND), Some((5, 10 * SECOND + SECOND / 2)));
        assert_eq!(talk.take(13 * SECOND), Some((2, 11 * SECOND)), "late as the generator is");
        assert!(talk.answered(2, 13 * SECOND, &mut sample) && talk.answered(2, 13 * SECOND, &mut sample));
        assert!(!talk.answered(2, 13 * SECOND, &mut sample), "nothing more was said");
        let seen = sample.messages.summary().unwrap();
        assert!((seen.min_ms - 2_000.0).abs() < 2.0 && (seen.max_ms - 3_000.0).abs() < 3.0, "{seen:?}");
        assert_eq!(talk.silent(14 * SECOND, 3 * SECOND), [(5, 3 * SECOND + SECOND / 2)]);

        talk.lost(5);
        assert_eq!(talk.over(), None);
        assert_eq!(talk.take(13 * SECOND), Some((2, 12 * SECOND)), "the lost one is passed over");
        assert!(talk.answered(2, 13 * SECOND, &mut sample));
        assert_eq!(talk.take(99 * SECOND), None);
        assert_eq!(
            talk.over(),
            Some(Talked { clients: 2, succeeded: 1, due_seconds: 2.0, answered_seconds: 3.0 })
        );
    }

    #[test]
    fn random_pauses_have_the_mean_that_was_asked_and_are_the_same_at_both_ends() {
        let talk = Talk::new(spec(Arrivals::Poisson), SECOND, &[0], 0, 1);
        let pauses: Vec<f64> = (0..10_000).map(|n| clock::to_seconds(talk.pause(7, n))).collect();
        let mean = pauses.iter().sum::<f64>() / 1e4;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        let long = pauses.iter().filter(|p| **p > 1.0).count();
        assert!((3_500..3_860).contains(&long), "a share of 1/e: {long}");
        assert_eq!(talk.pause(7, 3), talk.pause(7, 3));
    }
}

//! What is a talk, and what was seen of it? All connect, wait for one another, and then every connection speaks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::histogram::Latency;

/// What each connection says, and when.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TalkSpec {
    /// How many messages each connection sends.
    pub messages: u32,
    /// How many of them a second, each connection.
    pub rate_per_second: f64,
    /// What lies between two messages of a connection.
    pub arrivals: Arrivals,
    /// When the connections send their first one.
    pub start: Start,
}

/// What lies between two messages of one connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Arrivals {
    /// Always the same time.
    #[default]
    Constant,
    /// A random time, as if each user spoke independently of what was before (exponential, a Poisson process).
    Poisson,
}

/// When the connections send their first message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Start {
    /// Evenly over the first interval.
    #[default]
    Spread,
    /// All at one instant.
    Together,
}

impl TalkSpec {
    /// The seconds between two messages of one connection: the mean, if they are random.
    pub fn gap_seconds(&self) -> f64 {
        1.0 / self.rate_per_second
    }

    /// How long after the instant connection `number` of `connections` sends its first message.
    pub fn first_seconds(&self, number: u64, connections: u64) -> f64 {
        match self.start {
            Start::Spread => self.gap_seconds() * number as f64 / connections.max(1) as f64,
            Start::Together => 0.0,
        }
    }
}

/// What one worker saw of a talk: made to be merged.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Talked {
    /// Connections that stood when the talk began.
    pub clients: u64,
    /// Those of them whose every message was answered.
    pub succeeded: u64,
    /// From the talk's instant to the time at which the last message was due.
    pub due_seconds: f64,
    /// From the talk's instant to the last answer; 0: there was none.
    pub answered_seconds: f64,
}

impl Talked {
    /// Adds what another worker saw.
    pub fn merge(&mut self, other: &Self) {
        self.clients += other.clients;
        self.succeeded += other.succeeded;
        self.due_seconds = self.due_seconds.max(other.due_seconds);
        self.answered_seconds = self.answered_seconds.max(other.answered_seconds);
    }
}

/// How a talk went.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TalkResult {
    /// When it began, in seconds of the run.
    pub t_seconds: f64,
    /// Connections that stood when the talk began.
    pub clients: u64,
    /// Those of them whose every message was answered.
    pub succeeded: u64,
    /// Messages that all clients together had to send.
    pub messages: u64,
    /// Messages that were sent.
    pub sent: u64,
    /// Messages that were answered.
    pub answered: u64,
    /// When the last message was due, counted from the talk's instant: no talk can be shorter.
    pub ideal_seconds: f64,
    /// When the last answer came, counted from the talk's instant; `None`: there was none.
    pub seconds: Option<f64>,
    /// How late the generator sent: from each message's intended time until it was sent.
    pub schedule_lag: Option<Latency>,
    /// From each message's intended time until its answer.
    pub latency: Option<Latency>,
    /// How many answers took longer than the objective.
    pub late: u64,
    /// Both sides in the quiet before it, while all spoke, and in the quiet after it.
    pub spells: Vec<Spell>,
}

impl TalkResult {
    /// Messages that were answered in each second of the talk; `None`: it had no length.
    pub fn rate_per_second(&self) -> Option<f64> {
        self.seconds.filter(|s| *s > 0.0).map(|s| self.answered as f64 / s)
    }
}

/// A part of the run, and what both sides needed in it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spell {
    /// `before`, `during` or `after`.
    pub name: String,
    /// How long it was.
    pub seconds: f64,
    /// CPUs that the target used, on average.
    pub target_cpus: Option<f64>,
    /// CPUs that the generator used, on average.
    pub generator_cpus: Option<f64>,
    /// The most user memory of the target's processes.
    pub target_user_bytes: Option<u64>,
    /// The most threads of the target's processes.
    pub target_threads: Option<u64>,
    /// The most user memory of the generator's processes.
    pub generator_user_bytes: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_messages_are_spread_over_one_interval_or_come_together() {
        let spread = TalkSpec {
            messages: 20,
            rate_per_second: 2.0,
            arrivals: Arrivals::Constant,
            start: Start::Spread,
        };
        assert_eq!(spread.first_seconds(0, 4), 0.0);
        assert_eq!(spread.first_seconds(3, 4), 0.375);
        let together = TalkSpec { start: Start::Together, ..spread };
        assert_eq!(together.first_seconds(3, 4), 0.0);
    }

    #[test]
    fn the_longest_worker_decides_how_long_a_talk_was() {
        let mut all = Talked { clients: 2, succeeded: 2, due_seconds: 19.5, answered_seconds: 19.6 };
        all.merge(&Talked { clients: 3, succeeded: 1, due_seconds: 19.9, answered_seconds: 12.0 });
        assert_eq!(all, Talked { clients: 5, succeeded: 3, due_seconds: 19.9, answered_seconds: 19.6 });
    }
}

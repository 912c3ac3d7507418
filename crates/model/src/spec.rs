//! What is asked for: one experiment, complete, as every worker receives it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::churn::ChurnSpec;
use crate::operation::{Metadata, Operation};
use crate::storm::StormSpec;
use crate::sweep::SweepSpec;
use crate::talk::TalkSpec;
use crate::target::Target;

/// A hold: how many connections, at what cost each, and what ends it? Or, with `storm`: what if all come at once?
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Spec {
    /// The server under test.
    pub target: Target,
    /// How many connections are asked for (the most to try, with `until_it_breaks`).
    pub connections: u64,
    /// Over how many plateaus they are opened.
    pub stages: u32,
    /// New connections per second over all workers; `None`: as fast as the target takes them.
    pub rate_per_second: Option<f64>,
    /// One heartbeat per connection and this many seconds; `None`: no heartbeats.
    pub heartbeat_seconds: Option<f64>,
    /// How long the last stage is held.
    pub hold_seconds: f64,
    /// Grow until a stage fails, then bisect and confirm.
    pub until_it_breaks: bool,
    /// The latency within which every round trip of a verify pass must come back.
    pub objective_seconds: f64,
    /// How long one handshake or round trip may take before it counts as failed.
    pub patience_seconds: f64,
    /// Source addresses to connect from, as asked for; empty: chosen by the plan.
    pub sources: Vec<String>,
    /// How many workers were asked for; `None`: chosen by the plan.
    pub workers: Option<u32>,
    /// What a heartbeat says over tcp and tls instead of an echo request.
    pub send: Option<String>,
    /// What the answer to `send` must start with.
    pub expect: Option<String>,
    /// Header fields of each request over http, ws and sse, beside those that HTTP asks for, or in their place.
    #[serde(default)]
    pub headers: Vec<Metadata>,
    /// Certificate authority to trust besides the system's, as a PEM file.
    pub ca: Option<String>,
    /// Do not check the server's certificate.
    pub insecure: bool,
    /// The node was started beside the run.
    pub serve: bool,
    /// Thresholds that end the run with exit code 99 when they hold.
    pub fail_if: Vec<String>,
    /// What each connection is told to do: in a hold, to verify it with; `None`: it only shows that it lives.
    #[serde(default)]
    pub operation: Option<Operation>,
    /// They come at one instant, and come back; `None`: a hold.
    #[serde(default)]
    pub storm: Option<StormSpec>,
    /// Once all stand, each of them speaks; `None`: they only beat.
    #[serde(default)]
    pub talk: Option<TalkSpec>,
    /// They work, at rising client counts; `None`: another experiment.
    #[serde(default)]
    pub sweep: Option<SweepSpec>,
    /// They belong to an application's pool; `None`: another experiment.
    #[serde(default)]
    pub churn: Option<ChurnSpec>,
}

impl Spec {
    /// A hold of so many connections, all else as the command line has it when it says nothing.
    pub fn new(target: Target, connections: u64) -> Self {
        Self {
            target,
            connections,
            stages: 10,
            rate_per_second: None,
            heartbeat_seconds: Some(10.0),
            hold_seconds: 30.0,
            until_it_breaks: false,
            objective_seconds: 1.0,
            patience_seconds: 10.0,
            sources: Vec::new(),
            workers: None,
            send: None,
            expect: None,
            headers: Vec::new(),
            ca: None,
            insecure: false,
            serve: false,
            fail_if: Vec::new(),
            operation: None,
            storm: None,
            talk: None,
            sweep: None,
            churn: None,
        }
    }

    /// The cumulative size of each stage of a plain ramp: equal steps, the last exactly `connections`.
    pub fn stage_sizes(&self) -> Vec<u64> {
        let stages = u64::from(self.stages.max(1)).min(self.connections.max(1));
        (1..=stages)
            .map(|k| (u128::from(self.connections) * u128::from(k) / u128::from(stages)) as u64)
            .collect()
    }

    /// The share of `total` that falls to worker `index` of `workers`: sizes differ by at most one.
    pub fn share(total: u64, index: u32, workers: u32) -> u64 {
        let workers = u64::from(workers.max(1));
        total / workers + u64::from(u64::from(index) < total % workers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shares_add_up(total in 0..10_000_000u64, workers in 1..200u32) {
            let shares: Vec<u64> = (0..workers).map(|w| Spec::share(total, w, workers)).collect();
            prop_assert_eq!(shares.iter().sum::<u64>(), total);
            prop_assert!(shares.iter().max().unwrap() - shares.iter().min().unwrap() <= 1);
        }

        #[test]
        fn a_share_never_shrinks_as_the_total_grows(total in 0..1_000_000u64, workers in 1..100u32) {
            for w in 0..workers {
                prop_assert!(Spec::share(total, w, workers) <= Spec::share(total + 1, w, workers));
            }
        }
    }
}

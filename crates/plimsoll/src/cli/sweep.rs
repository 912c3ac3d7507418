//! What can be typed after `plimsoll sweep`?

use clap::Args;
use model::units;

use super::talk::ArrivalsArg;
use super::{RunArgs, parse_positive_duration, parse_positive_rate};
use crate::call::CallArgs;
use crate::workload::WorkloadArgs;

const SWEEP_EXAMPLES: &str = "\
Examples:
  plimsoll sweep tcp://127.0.0.1:7000 --serve -c 1..1000
  plimsoll sweep postgres://bench@127.0.0.1/bench --init --scale 10
  plimsoll sweep postgres://bench@127.0.0.1/bench --builtin select-only -c 1,8,64,500
  plimsoll sweep postgres://127.0.0.1:5432/bench postgres://127.0.0.1:6432/bench --label direct --label pooled \\
      --script single.sql -c 8..1000 --html sweep.html
  plimsoll sweep redis://127.0.0.1 --message 'GET greeting' -c auto..500
  plimsoll sweep http://127.0.0.1:8080/ -c 64 --rate 5000/s --arrivals poisson
  plimsoll sweep http://127.0.0.1:8080/orders --data @order.json --metadata 'authorization=Bearer TOKEN' -c 8..256

-c takes client counts (8,16,32), a range that doubles (8..1000), or auto..1000: a range that doubles, and then more
counts around the peak. At each count all clients connect, work for --warm-up, and are measured for --measure.
A client begins its next operation as soon as the last was answered; with --rate, operations come due at that
rate over all clients, whether or not one is free, and latency counts from then.

Several URLs are measured in turns at each count, so that whatever drifts hits them alike.

Exit code 3 if at some count a client could not connect or was lost.";

#[derive(Debug, Args)]
#[command(after_help = SWEEP_EXAMPLES)]
pub(crate) struct SweepArgs {
    /// The server under test, or several ways to it: SCHEME://HOST[:PORT][/PATH]
    #[arg(env = "PLIMSOLL_URL", required = true, value_delimiter = ' ')]
    pub(crate) url: Vec<String>,

    /// What each URL is called in the results, in their order; default: its scheme, host and port
    #[arg(long, value_name = "NAME", env = "PLIMSOLL_LABEL")]
    pub(crate) label: Vec<String>,

    /// Client counts: 8,16,32 or 8..1000 or auto..1000
    #[arg(short = 'c', long = "connections", value_name = "N,N|N..N", value_parser = parse_clients, default_value = "auto..256", env = "PLIMSOLL_CONNECTIONS")]
    pub(crate) connections: Clients,

    /// Operations that come due in a given time, over all clients: 5000/s; default: each as soon as the last is done
    #[arg(long, value_name = "R", value_parser = parse_positive_rate, env = "PLIMSOLL_RATE")]
    pub(crate) rate: Option<f64>,

    /// With --rate: what lies between two operations that come due
    #[arg(long, value_enum, default_value_t = ArrivalsArg::Constant, requires = "rate", env = "PLIMSOLL_ARRIVALS")]
    pub(crate) arrivals: ArrivalsArg,

    /// What an operation says, as docs/protocols.md has it for the scheme; default: what the scheme has of its own
    #[arg(long, value_name = "TEXT", env = "PLIMSOLL_MESSAGE", conflicts_with = "call")]
    pub(crate) message: Option<String>,

    #[command(flatten)]
    pub(crate) call: CallArgs,

    #[command(flatten)]
    pub(crate) workload: WorkloadArgs,

    /// How long all clients work at each count before they are measured
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = units::parse_duration_seconds, env = "PLIMSOLL_WARM_UP")]
    pub(crate) warm_up: f64,

    /// How long they are measured at each count
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_positive_duration, env = "PLIMSOLL_MEASURE")]
    pub(crate) measure: f64,

    /// How often each count is measured
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100), env = "PLIMSOLL_REPEAT")]
    pub(crate) repeat: u32,

    /// Latency within which 99% of the operations should stay: where they do not, the server is saturated
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_positive_duration, env = "PLIMSOLL_OBJECTIVE")]
    pub(crate) objective: f64,

    #[command(flatten)]
    pub(crate) run: RunArgs,
}

/// The client counts of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Clients {
    /// Rising, none twice.
    pub(crate) counts: Vec<u64>,
    /// Whether more are to be tried around the peak.
    pub(crate) adaptive: bool,
}

fn parse_clients(text: &str) -> Result<Clients, String> {
    let count = |text: &str| match units::parse_count(text) {
        Ok(0) => Err("0 clients: a sweep needs at least one".to_owned()),
        Ok(n) => Ok(n),
        Err(e) => Err(e.to_string()),
    };
    let Some((first, last)) = text.split_once("..") else {
        let mut counts = text.split(',').map(count).collect::<Result<Vec<_>, _>>()?;
        counts.sort_unstable();
        counts.dedup();
        return Ok(Clients { counts, adaptive: false });
    };
    let adaptive = first == "auto";
    let (first, last) = (if adaptive { 1 } else { count(first)? }, count(last)?);
    if first > last {
        return Err(format!("a range must rise, but {first} is more than {last}"));
    }
    let mut counts: Vec<u64> =
        std::iter::successors(Some(first), |n| n.checked_mul(2)).take_while(|n| *n < last).collect();
    counts.push(last);
    Ok(Clients { counts, adaptive })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_counts_are_a_list_or_a_range_that_doubles() {
        let counts = |text| parse_clients(text).map(|c| (c.counts, c.adaptive));
        assert_eq!(counts("8,1,8,1k"), Ok((vec![1, 8, 1_000], false)));
        assert_eq!(counts("8..100"), Ok((vec![8, 16, 32, 64, 100], false)));
        assert_eq!(counts("auto..8"), Ok((vec![1, 2, 4, 8], true)));
        assert_eq!(counts("5..5"), Ok((vec![5], false)));
        for wrong in ["0", "8..4", "", "8..", "auto", "1,x"] {
            assert!(counts(wrong).is_err(), "{wrong}");
        }
    }
}

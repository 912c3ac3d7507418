//! Does the generator's kernel search long for free ports?

use model::result::{Finding, Side, Stage, Status};
use model::{RunResult, units};

use crate::{Limit, LimitFacts, client_ephemeral_ports, evidence};

/// The kernel's search for a local port. Plimsoll avoids it: it gives each socket a port of its own where the
/// kernel lets it, and else plans for half of the range.
pub(crate) struct ClientPortSearch;

static FACTS: LimitFacts = LimitFacts {
    id: "client.port-search",
    side: Side::Client,
    question: "Does the generator's kernel search long for free ports?",
    doc: "A connect() without a port looks for one among half of the range first, the odd or the even ones. \
          Past half of the range for one pair of addresses it walks all those in use before it finds a free \
          one: nothing fails, but connecting slows down by more than ten times. Plimsoll does not let it \
          search where Linux is 6.3 or later; other clients of the server may.",
    how_to_see: "sysctl net.ipv4.ip_local_port_range; ss -tn dst ADDRESS | wc -l; perf top \
        (__inet_check_established)",
    remedy_doc: "More source addresses (--source), a wider range, or Linux 6.3 (IP_LOCAL_PORT_RANGE).",
};

/// Slower by this factor is no chance.
const SLOWED: f64 = 3.0;

impl Limit for ClientPortSearch {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let mut finding = match (half(run), run.settings.connections_per_source) {
            (None, _) | (_, 0) => {
                FACTS.finding(Status::Unknown, "how many ports one source has is not known")
            }
            (Some(half), planned) if planned > half => {
                FACTS.finding(Status::Clear, "each socket is given a port of its own: nothing is searched")
            }
            (Some(half), _) => searched(run, half),
        };
        finding.evidence = read(run);
        finding.remedy = client_ephemeral_ports::remedy(run);
        finding
    }
}

/// Half of the ports that a pair of addresses has.
fn half(run: &RunResult) -> Option<u64> {
    let (low, high) = run.settings.host.port_range?;
    let ports = (u64::from(high) + 1).saturating_sub(low.into());
    Some((ports.saturating_sub(run.settings.host.reserved_ports) / 2).max(1))
}

fn searched(run: &RunResult, half: u64) -> Finding {
    let ceiling = half.saturating_mul(client_ephemeral_ports::pairs(run));
    let most = per_pair(run, evidence::peak(run));
    let (most_said, half_said) = (units::count(most), units::count(half));
    let (status, summary) = if let Some(slowed) = slowed(run, half) {
        let summary = format!(
            "past {half_said} for one pair of addresses opening slowed to {} connections a second",
            units::count(slowed.rate as u64)
        );
        (Status::Hit, summary)
    } else {
        let status = if most > half { Status::Near } else { evidence::status_by_ceiling(run, ceiling) };
        (
            status,
            format!("up to {most_said} for one pair of addresses; the search is quick up to {half_said}"),
        )
    };
    evidence::with_ceiling(FACTS.finding(status, summary), run, ceiling)
}

/// Connections over each pair of addresses that the plan uses.
fn per_pair(run: &RunResult, connections: u64) -> u64 {
    let pairs = (run.settings.sources.len() as u64).max(1) * client_ephemeral_ports::destinations(run);
    connections.div_ceil(pairs)
}

/// How a stage opened its connections.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// Connections per second.
    rate: f64,
    /// CPU seconds of the generator for each.
    cpu_seconds: f64,
}

fn pace(stage: &Stage) -> Option<Pace> {
    let opening = stage.establishing?;
    let established = Some(stage.established as f64).filter(|n| *n > 0.0)?;
    let cpu_seconds = opening.generator_cpu_seconds? / established;
    (opening.seconds > 0.0).then_some(Pace { rate: established / opening.seconds, cpu_seconds })
}

/// The first stage past half of the range that opened its connections several times more slowly than any
/// before it, and with as many times more CPU of the generator's for each. A slow server costs us no CPU.
fn slowed(run: &RunResult, half: u64) -> Option<Pace> {
    let (below, past): (Vec<&Stage>, Vec<&Stage>) =
        run.stages.iter().partition(|stage| per_pair(run, stage.ready) <= half);
    let paces: Vec<Pace> = below.into_iter().filter_map(pace).collect();
    let slowest = paces.iter().map(|p| p.rate).reduce(f64::min)?;
    let dearest = paces.iter().map(|p| p.cpu_seconds).reduce(f64::max)?;
    past.into_iter()
        .filter_map(pace)
        .find(|p| p.rate * SLOWED <= slowest && p.cpu_seconds >= dearest * SLOWED && p.cpu_seconds > 0.0)
}

fn read(run: &RunResult) -> Vec<String> {
    let settings = &run.settings;
    let mut out = Vec::new();
    if let (Some((low, high)), Some(half)) = (settings.host.port_range, half(run)) {
        out.push(format!(
            "net.ipv4.ip_local_port_range {low} {high}, {} of them reserved: half are {}",
            units::count(settings.host.reserved_ports),
            units::count(half)
        ));
        if settings.connections_per_source > half {
            out.push(format!(
                "the plan gives a source {} connections, each its own port (IP_LOCAL_PORT_RANGE)",
                units::count(settings.connections_per_source)
            ));
        } else {
            out.push(format!(
                "the plan gives a source {} connections: the kernel picks their ports",
                units::count(settings.connections_per_source)
            ));
        }
        if let Some(pace) = slowed(run, half) {
            let cpu = units::milliseconds(pace.cpu_seconds * 1e3);
            out.push(format!("past half, the generator used {cpu} of CPU for each connection it opened"));
        }
    }
    if !evidence::not_begun(run) {
        let most = evidence::peak(run);
        let (most, each) = (units::count(most), units::count(per_pair(run, most)));
        out.push(format!("at most {most} connections were held, {each} for each pair of addresses"));
    }
    out
}

#[cfg(test)]
mod tests {
    use model::RunResult;
    use model::result::Status;

    use crate::testing::{self, finding};

    const ID: &str = "client.port-search";

    /// 20,000 connections from one address with 28,232 ports, which the kernel searches.
    fn past_half() -> RunResult {
        let mut run = testing::sized(20_000, 10);
        run.settings.sources.clear();
        run.settings.sources_available = 1;
        run
    }

    #[test]
    fn ports_of_their_own_are_not_searched() {
        let mut run = past_half();
        run.settings.connections_per_source = 26_821;
        let found = finding(run, ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Clear, None));
        assert!(found.summary.contains("a port of its own"), "{}", found.summary);
    }

    #[test]
    fn half_of_the_range_for_each_pair_is_the_ceiling() {
        let mut run = past_half();
        let found = finding(run.clone(), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Near, Some(14_116)));
        run.settings.host.reserved_ports = 232;
        run.settings.connections_per_source = 14_000;
        assert_eq!(finding(run.clone(), ID).ceiling_connections, Some(14_000));
        run.settings.destinations = 3;
        let found = finding(run.clone(), ID);
        assert_eq!((found.status, found.ceiling_connections), (Status::Clear, Some(42_000)));
        run.settings.host.port_range = None;
        assert_eq!(finding(run, ID).status, Status::Unknown);
    }

    #[test]
    fn slower_with_more_cpu_of_our_own_is_the_search() {
        let mut run = past_half();
        testing::open_at(&mut run, 2.0, 2.0);
        let found = finding(run.clone(), ID);
        assert_eq!(found.status, Status::Hit);
        assert!(found.summary.ends_with("slowed to 1,000 connections a second"), "{}", found.summary);
        // A server that became slow costs the generator nothing.
        testing::open_at(&mut run, 2.0, 0.06);
        assert_eq!(finding(run.clone(), ID).status, Status::Near);
        testing::open_at(&mut run, 0.1, 0.05);
        assert_eq!(finding(run, ID).status, Status::Near);
    }
}

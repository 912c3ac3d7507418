//! Does the generator run out of local ports?

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use model::result::{Finding, Side, Status};
use model::{FailureKind, RunResult, units};

use crate::{Limit, LimitFacts, evidence, nice};

/// Local ports per pair of source and destination.
pub(crate) struct ClientEphemeralPorts;

static FACTS: LimitFacts = LimitFacts {
    id: "client.ephemeral-ports",
    side: Side::Client,
    question: "Does the generator run out of local ports?",
    doc: "A connection is told apart by its addresses and ports. From one source address to one destination \
          there are as many as ports in the local range, 28,232 by default; then connect() fails with \
          EADDRNOTAVAIL. A tool that binds its source shares that source's ports over all destinations.",
    how_to_see: "sysctl net.ipv4.ip_local_port_range net.ipv4.ip_local_reserved_ports; ss -s",
    remedy_doc: "More source addresses (--source), or a wider range.",
};

impl Limit for ClientEphemeralPorts {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let failed = evidence::failures(run, &[FailureKind::NoPorts]);
        let mut finding = match ceiling(run) {
            None if failed == 0 => {
                FACTS.finding(Status::Unknown, "how many ports one source has is not known")
            }
            None => FACTS.finding(Status::Hit, hit_summary(failed)),
            Some(ceiling) => {
                let status = if failed > 0 { Status::Hit } else { evidence::status_by_ceiling(run, ceiling) };
                let summary = if failed > 0 { hit_summary(failed) } else { clear_summary(run) };
                evidence::with_ceiling(FACTS.finding(status, summary), run, ceiling)
            }
        };
        finding.evidence = read(run, failed);
        finding.remedy = remedy(run);
        finding
    }
}

/// Ports of one source, times the pairs that there can be.
fn ceiling(run: &RunResult) -> Option<u64> {
    let per_source = Some(run.settings.connections_per_source).filter(|n| *n > 0)?;
    Some(per_source.saturating_mul(pairs(run)))
}

/// Pairs of a source and a destination: as many as sources can be had (or were named with `--source`).
/// Destinations count only where no source is bound: the kernel then uses a port once for each of them.
pub(crate) fn pairs(run: &RunResult) -> u64 {
    let settings = &run.settings;
    let sources = if run.spec.sources.is_empty() {
        settings.sources_available.max(settings.sources.len() as u64)
    } else {
        settings.sources.len() as u64
    };
    sources.max(1).saturating_mul(destinations(run))
}

/// Destinations that a source's ports can be used for again.
pub(crate) fn destinations(run: &RunResult) -> u64 {
    if run.settings.sources.is_empty() { run.settings.destinations.max(1) } else { 1 }
}

fn hit_summary(failed: u64) -> String {
    format!("{} connections found no local port left", units::count(failed))
}

fn clear_summary(run: &RunResult) -> String {
    let settings = &run.settings;
    format!(
        "{} connections for each source address, of which {} can be had",
        units::count(settings.connections_per_source),
        units::count(settings.sources_available.max(settings.sources.len() as u64).max(1))
    )
}

fn read(run: &RunResult, failed: u64) -> Vec<String> {
    let settings = &run.settings;
    let mut out = Vec::new();
    if let Some((low, high)) = settings.host.port_range {
        let ports = u64::from(high.saturating_sub(low)) + 1;
        out.push(format!("net.ipv4.ip_local_port_range {low} {high}: {} ports", units::count(ports)));
    }
    if settings.host.reserved_ports > 0 {
        let reserved = units::count(settings.host.reserved_ports);
        out.push(format!("net.ipv4.ip_local_reserved_ports takes {reserved} of them out"));
    }
    out.push(format!(
        "the plan uses {} ({}), {} connections each, to {}",
        evidence::counted((settings.sources.len() as u64).max(1), "source address", "source addresses"),
        if settings.sources.is_empty() { "the kernel's choice" } else { "bound" },
        units::count(settings.connections_per_source),
        evidence::counted(settings.destinations.max(1), "destination", "destinations"),
    ));
    if failed > 0 {
        out.push(format!(
            "connect() gave EADDRNOTAVAIL {}; at most {} connections were held at once",
            evidence::times(failed),
            units::count(evidence::peak(run))
        ));
    }
    out
}

/// More sources, or more ports for each.
pub(crate) fn remedy(run: &RunResult) -> Vec<String> {
    let settings = &run.settings;
    let wanted = nice::lifted(evidence::asked(run));
    // What was not enough in this run must become more, whatever the arithmetic says.
    let failed = evidence::failures(run, &[FailureKind::NoPorts]) > 0;
    let least = if failed { settings.sources.len() as u64 + 1 } else { 1 };
    let sources = wanted.div_ceil(settings.connections_per_source.max(1)).max(least);
    let mut out = vec![format!(
        "# {} connections need {} of {} each",
        units::count(wanted),
        evidence::counted(sources, "source address", "source addresses"),
        units::count(settings.connections_per_source)
    )];
    // Each with its port in a run of today, without it in a stored one.
    let ip = |a: &String| a.parse().map(|a: SocketAddr| a.ip()).or_else(|_| a.parse::<IpAddr>()).ok();
    let loopback = run.target.addresses.iter().filter_map(ip).any(|a| a.is_loopback());
    if loopback || (run.target.addresses.is_empty() && settings.same_host) {
        let first = Ipv4Addr::new(127, 0, 0, 2);
        let last = Ipv4Addr::from_bits(first.to_bits() + (sources - 1).min(16_000_000) as u32);
        let range = if first == last { first.to_string() } else { format!("{first}-{last}") };
        out.push(format!("plimsoll hold {} -c {wanted} --source {range}", run.target.url));
    } else {
        out.extend(add_addresses(run, sources));
    }
    if settings.host.port_range.is_none_or(|(low, high)| high.saturating_sub(low) < 60_000) {
        out.push("sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"".to_owned());
    }
    out
}

/// Lines that give the host more addresses beside its own, where that is known.
fn add_addresses(run: &RunResult, sources: u64) -> Vec<String> {
    let own = run.settings.sources.iter().find_map(|a| a.parse::<Ipv4Addr>().ok());
    let first = own.unwrap_or(Ipv4Addr::new(192, 0, 2, 10));
    let more = sources.saturating_sub(1).clamp(1, 200);
    let address = |k: u64| Ipv4Addr::from_bits(first.to_bits().wrapping_add(k as u32));
    let (from, to) = (address(1), address(more));
    let what = if own.is_some() { "of your network" } else { "of your network, in place of these" };
    let mut out = vec![
        format!("# take free addresses {what}, and your device in place of eth0; undo with 'ip addr del'"),
        "DEV=eth0".to_owned(),
    ];
    const LISTED: u64 = 8;
    out.extend((1..=more.min(LISTED)).map(|k| format!("ip addr add {}/32 dev $DEV", address(k))));
    if more > LISTED {
        out.push(format!("# and so on, up to {to}"));
    }
    out.push(format!(
        "plimsoll hold {} -c {} --source {first},{from}-{to}",
        run.target.url,
        nice::lifted(evidence::asked(run))
    ));
    out
}

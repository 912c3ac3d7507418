//! Does it fit on this machine, and how is it shared out? Processes, descriptors, ports and memory, before the
//! first socket is opened.

use std::net::IpAddr;

use model::observation::Settings;
use model::units;
use model::{Spec, Target};
use thiserror::Error;

use crate::message::PortShare;

/// Descriptors that a worker needs beside its connections: epoll, pipes, and room for a library's own.
pub const BASE_DESCRIPTORS: u64 = 32;

/// Kernel memory of one loopback connection, both ends: two each of the slab objects TCP (2,368 bytes),
/// sock_inode_cache (832), filp and dentry (192 each), eventpoll_epi (128) and their companions, as counted in
/// /proc/slabinfo of Linux 6.18. What processes add of their own is not known before it is measured.
pub const LOOPBACK_BYTES: u64 = 7_800;

/// The same for the client's end alone.
pub const CLIENT_BYTES: u64 = 3_900;

/// A worker is not worth its start for fewer connections than this.
const WORTH_A_WORKER: u64 = 500;

/// So many clients that never rest are worth a worker of their own: at 8 on two CPUs, two workers get a fifth more out of
/// PostgreSQL than one.
const AT_WORK_WORTH_A_WORKER: u64 = 4;

/// Where nothing is known of the listener, this many connections wait at most for its first word. The smallest
/// backlog in common use is 50.
const CAUTIOUS_WINDOW: u64 = 32;

/// The most connections that wait for the server's first word, however long its queue.
const WIDEST_WINDOW: u64 = 2_048;

/// The source addresses that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sources {
    /// These and no others.
    These(Vec<IpAddr>),
    /// All of 127.0.0.0/8: the target is on IPv4 loopback.
    Loopback,
}

/// What this machine has, as the plan needs it.
#[derive(Debug, Clone)]
pub struct Means<'a> {
    /// Settings of host and process.
    pub settings: &'a Settings,
    /// Where connections can come from.
    pub sources: Sources,
    /// The sources were named by the user, so even a single one is bound.
    pub sources_given: bool,
    /// A socket may name its own port range (Linux 6.3): the half-range cliff does not exist.
    pub ports_can_be_chosen: bool,
    /// CPUs of this machine.
    pub cpus: u32,
    /// Memory that is free for the run; `None`: unknown.
    pub memory_available_bytes: Option<u64>,
    /// Descriptors allocated over the whole host.
    pub files: Option<u64>,
    /// What each accept queue of the target holds, and how many there are; `None`: not visible.
    pub backlog: Option<(u64, u64)>,
}

/// How the connections are shared out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The most connections that will be asked for.
    pub connections: u64,
    /// How many workers.
    pub workers: u32,
    /// Where each worker connects from.
    pub sources: Vec<Vec<PortShare>>,
    /// Connections that may wait for the server's first word, per worker.
    pub window: u32,
    /// Source addresses in use; empty: one, unbound.
    pub addresses: Vec<IpAddr>,
}

/// Why it cannot fit, each with the line that would make it fit.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{limit}: {what}\n  {remedy}")]
pub struct Shortfall {
    /// Which limit of the catalogue it is.
    pub limit: &'static str,
    /// What is short, and by how much.
    pub what: String,
    /// The line that would make it fit.
    pub remedy: String,
}

/// Ports of the kernel's range that a source address can use.
pub fn usable_ports(settings: &Settings) -> u64 {
    let (low, high) = settings.host.port_range.unwrap_or((32_768, 60_999));
    (u64::from(high) + 1).saturating_sub(u64::from(low)).saturating_sub(settings.host.reserved_ports)
}

/// Connections that one source address is planned to hold.
pub fn per_source(means: &Means<'_>) -> u64 {
    let ports = usable_ports(means.settings);
    if means.ports_can_be_chosen {
        // A twentieth stays free for strangers' sockets and for what still is in TIME-WAIT.
        (ports - ports / 20).max(1)
    } else {
        (ports / 2).max(1)
    }
}

/// How many source addresses there are in all.
pub fn sources_available(means: &Means<'_>) -> u64 {
    match &means.sources {
        Sources::These(list) => list.len().max(1) as u64,
        // 127.1.0.1 to 127.255.255.254.
        Sources::Loopback => 255 * 65_536 - 2,
    }
}

/// Makes the plan for as many connections as the spec asks for.
///
/// # Errors
/// Everything that is short, at once.
pub fn plan(spec: &Spec, means: &Means<'_>) -> Result<Plan, Vec<Shortfall>> {
    let connections = spec.connections;
    let mut short = Vec::new();
    let limit = means.settings.worker.nofile_hard.unwrap_or(1024);
    let per_worker = limit.saturating_sub(BASE_DESCRIPTORS).max(1);
    let needed = connections.div_ceil(per_worker).max(1);
    let workers = match spec.workers {
        Some(workers) => {
            let workers = u64::from(workers.max(1));
            if workers < needed {
                short.push(Shortfall {
                    limit: "client.nofile",
                    what: format!(
                        "{} connections over {workers} workers need {} descriptors each, but a process may have {}",
                        units::count(connections),
                        units::count(connections.div_ceil(workers) + BASE_DESCRIPTORS),
                        units::count(limit)
                    ),
                    remedy: format!("--workers {needed}"),
                });
            }
            workers
        }
        None => {
            let worth = if spec.sweep.is_some() { AT_WORK_WORTH_A_WORKER } else { WORTH_A_WORKER };
            needed.max(u64::from(means.cpus.max(1)).min(connections.div_ceil(worth))).max(1)
        }
    };
    let per_source = per_source(means);
    let available = sources_available(means);
    if connections.div_ceil(per_source) > available {
        short.push(no_room_for_ports(connections, per_source, available, spec, means));
    }
    check_host(connections, spec, means, &mut short);
    // Dealt only once it is known to fit: the lists of what does not could fill this machine's memory by themselves.
    if !short.is_empty() {
        return Err(short);
    }
    let (addresses, sources) = share_sources(connections, workers, means);
    let window = match means.backlog {
        Some((backlog, sockets)) => (backlog * sockets / 2).clamp(1, WIDEST_WINDOW),
        None => CAUTIOUS_WINDOW,
    };
    Ok(Plan {
        connections,
        workers: workers as u32,
        sources,
        window: (window / workers).clamp(1, 256) as u32,
        addresses,
    })
}

/// Deals sources and ports: every worker has a slice of the ports of every source that is its alone.
fn share_sources(connections: u64, workers: u64, means: &Means<'_>) -> (Vec<IpAddr>, Vec<Vec<PortShare>>) {
    let per_source = per_source(means);
    let needed = connections.div_ceil(per_source).max(1);
    let addresses: Vec<IpAddr> = match &means.sources {
        Sources::These(list) if means.sources_given => list.clone(),
        // One address is enough: no bind() at all.
        _ if needed == 1 => Vec::new(),
        Sources::These(list) => list.clone(),
        Sources::Loopback => {
            // Half as full as they could be: room for a second run while the first one's TIME-WAITs last.
            (0..needed * 2)
                .map(|i| {
                    IpAddr::from([127, 1 + (i / 65_024) as u8, (i / 254 % 256) as u8, (i % 254 + 1) as u8])
                })
                .collect()
        }
    };
    let bound: Vec<Option<IpAddr>> =
        if addresses.is_empty() { vec![None] } else { addresses.iter().copied().map(Some).collect() };
    let (low, high) = means.settings.host.port_range.unwrap_or((32_768, 60_999));
    let width = u64::from(high) + 1 - u64::from(low);
    let shares = (0..workers)
        .map(|w| {
            bound
                .iter()
                .map(|&address| PortShare {
                    address,
                    ports: means.ports_can_be_chosen.then(|| {
                        let first = u64::from(low) + width * w / workers;
                        let last = u64::from(low) + width * (w + 1) / workers - 1;
                        (first as u16, last as u16)
                    }),
                    most: (per_source / workers).max(1),
                })
                .collect()
        })
        .collect();
    (addresses, shares)
}

fn no_room_for_ports(
    connections: u64,
    per_source: u64,
    available: u64,
    spec: &Spec,
    means: &Means<'_>,
) -> Shortfall {
    let (low, high) = means.settings.host.port_range.unwrap_or((32_768, 60_999));
    let more = connections.div_ceil(per_source) - available;
    let cliff = if means.ports_can_be_chosen {
        String::new()
    } else {
        " (half of the range: past it, connect() on this kernel searches for each port)".to_owned()
    };
    let wider = (u64::from(high) + 1 - u64::from(low)) < 60_000;
    let widen =
        if wider { "\n  sysctl -w net.ipv4.ip_local_port_range=\"1024 65535\"   # wider range" } else { "" };
    Shortfall {
        limit: "client.ephemeral-ports",
        what: format!(
            "{} connections to {} need {} source addresses with {} ports each{cliff}, but {available} can be used",
            units::count(connections),
            spec.target.authority(),
            connections.div_ceil(per_source),
            units::count(per_source)
        ),
        remedy: format!(
            "--source ADDR-ADDR   # {more} more address{} of this machine (ip addr add ADDR/PREFIX dev IF){widen}",
            if more == 1 { "" } else { "es" }
        ),
    }
}

fn check_host(connections: u64, spec: &Spec, means: &Means<'_>, short: &mut Vec<Shortfall>) {
    let ends = if means.settings.same_host { 2 } else { 1 };
    let each = if means.settings.same_host { LOOPBACK_BYTES } else { CLIENT_BYTES };
    if let Some(available) = means.memory_available_bytes {
        let fits = available / each;
        // What grows until it breaks is meant to meet this limit.
        if connections > fits && !spec.until_it_breaks {
            short.push(Shortfall {
                limit: "host.memory",
                what: format!(
                    "{} connections need at least {} of memory ({} each in the kernel alone, {}), but {} is available",
                    units::count(connections),
                    units::bytes((connections * each) as f64),
                    units::bytes(each as f64),
                    if ends == 2 { "both ends on this machine" } else { "this end" },
                    units::bytes(available as f64)
                ),
                remedy: format!(
                    "-c {}   # or a machine with more memory{}",
                    fits / 1000 * 1000,
                    if ends == 2 { ", or the target on another machine" } else { "" }
                ),
            });
        }
    }
    if let (Some(most), Some(now)) = (means.settings.host.file_max, means.files) {
        let needed = now + connections * ends + 1_000;
        if needed > most {
            short.push(Shortfall {
                limit: "host.file-max",
                what: format!(
                    "{} connections need {} open files on this host, but fs.file-max is {}",
                    units::count(connections),
                    units::count(needed),
                    units::count(most)
                ),
                remedy: format!("sysctl -w fs.file-max={}", needed.next_multiple_of(100_000)),
            });
        }
    }
}

/// Reads `--source`: addresses and ranges (`10.0.0.2`, `10.0.0.2-10.0.0.9`).
///
/// # Errors
/// Says which part is no address or range, or of another family than the target.
pub fn parse_sources(texts: &[String], target: &Target) -> Result<Vec<IpAddr>, String> {
    let mut out = Vec::new();
    let address = |text: &str| {
        text.trim()
            .parse::<IpAddr>()
            .map_err(|_| format!("--source: {text:?} is not an address; write ADDR or ADDR-ADDR"))
    };
    for text in texts.iter().flat_map(|t| t.split(',')) {
        match text.split_once('-') {
            None => out.push(address(text)?),
            Some((first, last)) => match (address(first)?, address(last)?) {
                (IpAddr::V4(first), IpAddr::V4(last))
                    if first <= last && u32::from(last) - u32::from(first) < 65_536 =>
                {
                    out.extend((u32::from(first)..=u32::from(last)).map(|a| IpAddr::V4(a.into())));
                }
                _ => {
                    return Err(format!(
                        "--source: {text:?} is not a range of at most 65,536 IPv4 addresses, lowest first"
                    ));
                }
            },
        }
    }
    if let Ok(host) = target.host.parse::<IpAddr>()
        && let Some(other) = out.iter().find(|a| a.is_ipv4() != host.is_ipv4())
    {
        return Err(format!("--source: {other} is of another family than the target {host}"));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    use model::sweep::SweepSpec;
    use model::talk::Arrivals;

    fn settings() -> Settings {
        let mut s = Settings { same_host: true, ..Settings::default() };
        s.host.port_range = Some((32_768, 60_999));
        s.host.file_max = Some(2_466_177);
        s.worker.nofile_hard = Some(20_000);
        s
    }

    fn means(settings: &Settings) -> Means<'_> {
        Means {
            settings,
            sources: Sources::Loopback,
            sources_given: false,
            ports_can_be_chosen: true,
            cpus: 2,
            memory_available_bytes: Some(24 << 30),
            files: Some(1_000),
            backlog: Some((4_096, 1)),
        }
    }

    fn spec(connections: u64) -> Spec {
        Spec::new(Target::parse("tcp://127.0.0.1:7000").unwrap(), connections)
    }

    #[test]
    fn a_million_on_loopback_fits_and_no_two_workers_share_a_port() {
        let settings = settings();
        let plan = plan(&spec(1_000_000), &means(&settings)).unwrap();
        assert_eq!(plan.workers, 51);
        let mut seen = HashSet::new();
        let mut room = 0;
        for shares in &plan.sources {
            for share in shares {
                let (first, last) = share.ports.unwrap();
                room += u64::from(last - first) + 1;
                assert!((first..=last).all(|port| seen.insert((share.address, port))));
            }
        }
        assert!(room >= 1_000_000 * 19 / 10, "{room}");
        assert!(plan.addresses.iter().all(IpAddr::is_loopback));
    }

    #[test]
    fn clients_at_work_have_a_worker_for_each_cpu_sooner_than_held_ones() {
        let settings = settings();
        let workers = |spec: &Spec| plan(spec, &means(&settings)).unwrap().workers;
        assert_eq!((workers(&spec(8)), workers(&spec(501))), (1, 2));
        let at_work = |clients| Spec {
            sweep: Some(SweepSpec {
                clients: vec![clients],
                adaptive: false,
                warm_up_seconds: 1.0,
                measure_seconds: 1.0,
                repeat: 1,
                rate_per_second: None,
                arrivals: Arrivals::Constant,
                label: String::new(),
            }),
            ..spec(clients)
        };
        assert_eq!((workers(&at_work(4)), workers(&at_work(8)), workers(&at_work(1_000))), (1, 2, 2));
    }

    #[test]
    fn one_address_is_never_bound_when_it_is_enough() {
        let settings = settings();
        let plan = plan(&spec(25_000), &means(&settings)).unwrap();
        assert!(plan.addresses.is_empty());
        assert!(plan.sources.iter().flatten().all(|s| s.address.is_none()));
    }

    #[test]
    fn an_old_kernel_keeps_to_half_of_the_range() {
        let settings = settings();
        let old = Means {
            ports_can_be_chosen: false,
            sources: Sources::These(vec!["10.0.0.1".parse().unwrap()]),
            ..means(&settings)
        };
        assert!(plan(&spec(14_000), &old).is_ok());
        let short = plan(&spec(15_000), &old).unwrap_err();
        assert!(short[0].what.contains("half of the range"), "{}", short[0]);
        assert!(short[0].remedy.contains("--source"));
    }

    #[test]
    fn what_does_not_fit_is_said_at_once_with_the_line_that_lifts_it() {
        let settings = settings();
        let mut asked = spec(10_000_000);
        asked.workers = Some(2);
        let short = plan(&asked, &means(&settings)).unwrap_err();
        let text: String = short.iter().map(ToString::to_string).collect();
        assert!(text.contains("--workers 501"), "{text}");
        assert!(text.contains("72.6 GiB") && text.contains("available"), "{text}");
        assert!(text.contains("sysctl -w fs.file-max="), "{text}");
    }

    #[test]
    fn sources_are_read() {
        let target = Target::parse("tcp://10.9.9.9:1").unwrap();
        let read = |s: &str| parse_sources(&[s.to_owned()], &target);
        assert_eq!(read("10.0.0.1,10.0.0.3-10.0.0.5").unwrap().len(), 4);
        assert!(read("10.0.0.9-10.0.0.1").is_err());
        assert!(read("eth0").unwrap_err().contains("ADDR-ADDR"));
        assert!(read("::1").unwrap_err().contains("family"));
    }
}

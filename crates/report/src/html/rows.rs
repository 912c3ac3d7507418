//! Which words stand in the page's tables?

use model::RunResult;
use model::result::{Cost, Status};
use model::units;

use crate::ladder;
use crate::latencies::measured;
use crate::words::{self, UNKNOWN};

/// A headline figure.
pub(super) struct Tile {
    pub(super) name: &'static str,
    pub(super) value: String,
    pub(super) note: String,
}

/// A limit on the ladder.
pub(super) struct LimitRow {
    pub(super) id: String,
    pub(super) side: &'static str,
    pub(super) status: &'static str,
    pub(super) class: &'static str,
    pub(super) ceiling: String,
    pub(super) interval: String,
    pub(super) summary: String,
    pub(super) evidence: Vec<String>,
    pub(super) remedy: String,
    pub(super) open: bool,
}

/// What one side pays for a connection.
pub(super) struct CostRow {
    pub(super) class: &'static str,
    pub(super) cells: [String; 7],
}

/// One latency.
pub(super) struct LatencyRow {
    pub(super) name: String,
    pub(super) meaning: &'static str,
    pub(super) cells: [String; 6],
}

/// One stage.
pub(super) struct StageRow {
    pub(super) purpose: &'static str,
    pub(super) cells: [String; 9],
    pub(super) end: String,
    pub(super) class: &'static str,
}

/// One kind of failure.
pub(super) struct FailureRow {
    pub(super) count: String,
    pub(super) kind: &'static str,
    pub(super) side: &'static str,
    pub(super) says: &'static str,
    pub(super) example: String,
}

/// A `--fail-if` expression.
pub(super) struct ThresholdRow {
    pub(super) class: &'static str,
    pub(super) word: &'static str,
    pub(super) expression: String,
    pub(super) value: String,
}

/// One fact about where it ran.
pub(super) struct FactRow {
    pub(super) name: &'static str,
    pub(super) value: String,
}

pub(super) fn tiles(r: &RunResult) -> Vec<Tile> {
    let c = &r.connections;
    let memory = |name, cost: &Cost| Tile {
        name,
        value: words::bytes_each(cost.user_bytes_per_connection),
        note: words::bytes_interval(cost.user_bytes_per_connection),
    };
    let (kernel_name, kernel) = words::kernel(r);
    let rate = r.establish.rate_per_second;
    vec![
        Tile {
            name: "held",
            value: units::count(c.held),
            note: format!("of {} asked", units::count(c.requested)),
        },
        Tile { name: "verified", value: units::count(c.verified), note: "a round trip on each".to_owned() },
        memory("target, each", &r.cost.target),
        memory("generator, each", &r.cost.generator),
        Tile { name: kernel_name, value: words::bytes_each(kernel), note: words::bytes_interval(kernel) },
        Tile {
            name: "established",
            value: if rate > 0.0 { words::per_second(rate) } else { UNKNOWN.to_owned() },
            note: if rate > 0.0 {
                format!("over {}", units::seconds(r.establish.seconds))
            } else {
                String::new()
            },
        },
        Tile {
            name: "heartbeat p99",
            value: r.heartbeat.latency.map_or_else(|| UNKNOWN.to_owned(), |l| units::milliseconds(l.p99_ms)),
            note: match r.heartbeat.missed {
                0 if r.heartbeat.sent == 0 => "none sent".to_owned(),
                n => format!("{} missed", units::count(n)),
            },
        },
        Tile {
            name: "verify p99",
            value: r.verify.latency.map_or_else(|| UNKNOWN.to_owned(), |l| units::milliseconds(l.p99_ms)),
            note: format!("objective {}", units::seconds(r.spec.objective_seconds)),
        },
    ]
}

pub(super) fn limits(r: &RunResult) -> Vec<LimitRow> {
    let row = |f: &model::result::Finding| LimitRow {
        id: words::clean(&f.id),
        side: words::side(f.side),
        status: ladder::word(f.status),
        class: match f.status {
            Status::Hit => "hit",
            Status::Near => "near",
            Status::Clear => "clear",
            Status::Unknown => "unknown",
        },
        ceiling: ladder::ceiling(f),
        interval: ladder::ceiling_interval(f).unwrap_or_default(),
        summary: words::clean(&f.summary),
        evidence: f.evidence.iter().map(|e| words::clean(e)).collect(),
        remedy: f.remedy.iter().map(|l| words::clean(l)).collect::<Vec<_>>().join("\n"),
        open: ladder::is_pressing(f.status),
    };
    ladder::in_order(&r.limits).into_iter().map(row).collect()
}

pub(super) fn costs(r: &RunResult) -> Vec<CostRow> {
    let row = |name: &str, class, cost: &Cost| CostRow {
        class,
        cells: [
            name.to_owned(),
            words::bytes_each(cost.user_bytes_per_connection),
            words::bytes_interval(cost.user_bytes_per_connection),
            words::number_each(cost.descriptors_per_connection),
            words::number_each(cost.threads_per_connection),
            words::cpu_each(cost.cpu_seconds_per_second.per_connection),
            words::cpu_percent_or_unknown(cost.cpu_seconds_per_second.idle_stage),
        ],
    };
    let (kernel_name, kernel) = words::kernel(r);
    let blank = String::new;
    vec![
        row("target", "c-target", &r.cost.target),
        row("generator", "c-generator", &r.cost.generator),
        CostRow {
            class: "c-kernel",
            cells: [
                kernel_name.to_owned(),
                words::bytes_each(kernel),
                words::bytes_interval(kernel),
                blank(),
                blank(),
                blank(),
                blank(),
            ],
        },
    ]
}

pub(super) fn latencies(r: &RunResult) -> Vec<LatencyRow> {
    let row = |m: crate::latencies::Measured| {
        let l = m.latency;
        let ms = units::milliseconds;
        LatencyRow {
            name: m.name,
            meaning: m.meaning,
            cells: [
                units::count(l.count),
                ms(l.p50_ms),
                ms(l.p90_ms),
                ms(l.p99_ms),
                ms(l.p999_ms),
                ms(l.max_ms),
            ],
        }
    };
    measured(r).into_iter().map(row).collect()
}

pub(super) fn stages(r: &RunResult) -> Vec<StageRow> {
    let p99 =
        |l: Option<model::Latency>| l.map_or_else(|| UNKNOWN.to_owned(), |l| units::milliseconds(l.p99_ms));
    let memory = |g: &Option<model::Group>| words::bytes_or_unknown(g.as_ref().and_then(|g| g.user_bytes));
    let row = |s: &model::result::Stage| StageRow {
        purpose: words::purpose(s.purpose),
        cells: [
            units::count(s.connections),
            units::count(s.ready),
            units::count(s.verified),
            units::count(s.failed.values().sum()),
            units::seconds(s.seconds),
            if s.established == 0 { "–".to_owned() } else { p99(s.ready_latency) },
            p99(s.latency),
            memory(&s.target),
            memory(&s.generator),
        ],
        end: words::stage_end(s),
        class: match (s.valid, s.passed) {
            (false, _) => "near",
            (true, false) => "hit",
            (true, true) => "clear",
        },
    };
    r.stages.iter().map(row).collect()
}

pub(super) fn failures(r: &RunResult) -> Vec<FailureRow> {
    let c = &r.connections;
    let row = |(kind, n): (model::FailureKind, u64)| FailureRow {
        count: units::count(n),
        kind: kind.id(),
        side: words::origin(kind),
        says: kind.says(),
        example: c.failed_example.get(&kind).map(|e| words::clean(e)).unwrap_or_default(),
    };
    words::failures(&c.failed).into_iter().map(row).collect()
}

pub(super) fn thresholds(r: &RunResult) -> Vec<ThresholdRow> {
    let row = |t: &model::result::Threshold| {
        let (class, word) = match (t.held, t.value) {
            (true, _) => ("hit", "fails"),
            (false, Some(_)) => ("clear", "passes"),
            (false, None) => ("unknown", "unknown"),
        };
        let value = t
            .value
            .map_or_else(|| "not measured in this run".to_owned(), |v| format!("was {}", words::figure(v)));
        ThresholdRow { class, word, expression: words::clean(&t.expression), value }
    };
    r.thresholds.iter().map(row).collect()
}

pub(super) fn facts(r: &RunResult) -> Vec<FactRow> {
    let s = &r.settings;
    let h = &s.host;
    let number = |n: Option<u64>| n.map(units::count);
    let names = |all: &[String]| all.iter().map(|a| words::clean(a)).collect::<Vec<_>>().join(", ");
    let processes: Vec<String> = r
        .target
        .processes
        .iter()
        .map(|p| format!("{} ({}, {})", words::clean(&p.name), p.pid, words::clean(&p.role)))
        .collect();
    let nofile = |p: &model::observation::ProcessSettings| {
        p.nofile_soft.map(|soft| {
            let hard = p.nofile_hard.map_or_else(|| UNKNOWN.to_owned(), units::count);
            format!("{} soft, {hard} hard", units::count(soft))
        })
    };
    let facts = [
        ("generator's host", Some(format!("{}: {}", words::clean(&r.host.name), words::host(&r.host)))),
        (
            "target's host",
            r.target
                .host
                .as_ref()
                .map(|h| format!("{}: {}, seen by its observer", words::clean(&h.name), words::host(h))),
        ),
        ("target", Some(words::clean(&r.target.url))),
        ("target's addresses", Some(names(&r.target.addresses))),
        (
            "target's processes",
            Some(if processes.is_empty() { UNKNOWN.to_owned() } else { processes.join(", ") }),
        ),
        ("same host", Some(if s.same_host { "yes, one kernel for both ends" } else { "no" }.to_owned())),
        ("target's descriptors", s.target.first().and_then(nofile)),
        ("a worker's descriptors", nofile(&s.worker)),
        ("sources", Some(names(&s.sources))),
        (
            "connections per source",
            Some(units::count(s.connections_per_source)).filter(|_| s.connections_per_source > 0),
        ),
        ("ip_local_port_range", h.port_range.map(|(low, high)| format!("{low} to {high}"))),
        ("somaxconn", number(h.somaxconn)),
        ("tcp_max_syn_backlog", number(h.tcp_max_syn_backlog)),
        (
            "fs.file-max",
            h.file_max.map(|n| if n > 1 << 60 { "unlimited".to_owned() } else { units::count(n) }),
        ),
        ("fs.nr_open", number(h.nr_open)),
        ("nf_conntrack_max", number(h.conntrack_max)),
        ("tcp_mem", h.tcp_mem_pages.map(|[a, b, c]| format!("{a} {b} {c} pages"))),
        ("threads-max", number(h.threads_max)),
    ];
    facts
        .into_iter()
        .filter_map(|(name, value)| value.filter(|v| !v.is_empty()).map(|value| FactRow { name, value }))
        .collect()
}

pub(super) fn workers(r: &RunResult) -> Vec<[String; 5]> {
    let row = |w: &model::result::WorkerSeen| {
        let sources: Vec<String> = w.sources.iter().map(|s| words::clean(s)).collect();
        [
            w.id.to_string(),
            format!("{} ({})", words::clean(&w.host), w.pid),
            units::count(w.share),
            if sources.is_empty() { "the kernel's choice".to_owned() } else { sources.join(", ") },
            w.died.as_deref().map_or_else(String::new, words::clean),
        ]
    };
    r.workers.iter().map(row).collect()
}

/// The most memory that each side was seen to use.
pub(super) fn peaks(r: &RunResult) -> String {
    format!(
        "Most user memory seen: target {}, generator {}.",
        words::bytes_or_unknown(r.cost.target.peak_user_bytes),
        words::bytes_or_unknown(r.cost.generator.peak_user_bytes)
    )
}

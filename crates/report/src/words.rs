//! How is a figure or an outcome put into words? Shared by every output, so that all say the same.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use model::result::{Host, Purpose, Side, Stage};
use model::units;
use model::{Estimate, FailureKind, RunResult};

/// What is said where nothing could be seen.
pub(crate) const UNKNOWN: &str = "unknown";

/// Stages that an estimate needs before an interval can be promised.
const STAGES_FOR_INTERVAL: u32 = 5;

/// How a run ended, as far as colour goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The target held what was asked.
    Good,
    /// It cannot be said: interrupted, or the generator was the limit.
    Doubtful,
    /// The target did not hold, or a threshold held.
    Bad,
}

/// How this run ended.
pub(crate) fn outcome(result: &RunResult) -> Outcome {
    match result.exit_code() {
        0 => Outcome::Good,
        4 | 130 => Outcome::Doubtful,
        _ => Outcome::Bad,
    }
}

/// What the exit code means, in two or three words.
pub(crate) fn exit_meaning(code: u8) -> &'static str {
    match code {
        0 => "held",
        3 => "not held",
        4 => "not to be trusted",
        99 => "threshold crossed",
        130 => "interrupted",
        _ => "could not run",
    }
}

/// The verdict, or what can be said where there is none.
pub(crate) fn verdict(result: &RunResult) -> String {
    let sentence = clean(result.verdict.sentence.trim());
    if sentence.is_empty() {
        "No verdict: the run ended before anything was measured.".to_owned()
    } else {
        sentence
    }
}

/// `2026-07-30T10:12:03Z` as `2026-07-30 10:12:03 UTC`; anything else as it stands.
pub(crate) fn date(rfc3339: &str) -> String {
    match (rfc3339.get(..10), rfc3339.get(11..19), rfc3339.ends_with('Z')) {
        (Some(day), Some(time), true) => clean(&format!("{day} {time} UTC")),
        _ => clean(rfc3339),
    }
}

/// Text from outside, on one line, with its control characters made visible: a server must not be able to
/// move the cursor of whoever reads what it said.
pub(crate) fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\t' => out.push(' '),
            '\r' => {}
            // Bidirectional overrides can make a line read as something else.
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => out.push('\u{fffd}'),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out
}

/// A command as it can be pasted into a shell.
pub(crate) fn command_line(words: &[String]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| quote(&clean(word))).collect();
    quoted.join(" ")
}

fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Bytes per connection: `3.42 KiB`.
pub(crate) fn bytes_each(estimate: Option<Estimate>) -> String {
    estimate.map_or_else(|| UNKNOWN.to_owned(), |e| units::bytes(e.value))
}

/// The 95% interval of bytes: `3.39 to 3.45 KiB`, or why there is none.
pub(crate) fn bytes_interval(estimate: Option<Estimate>) -> String {
    estimate.map_or_else(String::new, |e| interval(&e, units::bytes))
}

/// A plain number per connection: `1.00`.
pub(crate) fn number_each(estimate: Option<Estimate>) -> String {
    // A slope of -0.0001 threads is nought, and is written so.
    estimate.map_or_else(|| UNKNOWN.to_owned(), |e| units::three_digits(nought(e.value)))
}

/// CPU that one held connection costs: `1.20 µs/s`.
pub(crate) fn cpu_each(estimate: Option<Estimate>) -> String {
    estimate.map_or_else(
        || UNKNOWN.to_owned(),
        |e| format!("{} µs/s", units::three_digits(nought(e.value * 1e6))),
    )
}

/// The interval of an estimate in the words of `write`, or why there is none.
fn interval(estimate: &Estimate, write: impl Fn(f64) -> String) -> String {
    match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => {
            let (low, high) = (write(low), write(high));
            let unit = |text: &str| text.rsplit_once(' ').map(|(_, unit)| unit.to_owned());
            match low.rsplit_once(' ') {
                Some((number, _)) if unit(&low) == unit(&high) => format!("{number} to {high}"),
                _ => format!("{low} to {high}"),
            }
        }
        _ if estimate.stages < STAGES_FOR_INTERVAL => {
            format!("needs {STAGES_FOR_INTERVAL} stages, had {}", estimate.stages)
        }
        _ => "no interval".to_owned(),
    }
}

fn nought(x: f64) -> f64 {
    if x.abs() < 0.005 { 0.0 } else { x }
}

/// CPU used by one side, where 100% is one CPU: `8.1%`, `173%`.
pub(crate) fn cpu_percent(cpus: f64) -> String {
    let percent = cpus * 100.0;
    if percent >= 9.95 { format!("{percent:.0}%") } else { format!("{:.1}%", percent.max(0.0)) }
}

/// The same where it may be unknown.
pub(crate) fn cpu_percent_or_unknown(cpus: Option<f64>) -> String {
    cpus.map_or_else(|| UNKNOWN.to_owned(), cpu_percent)
}

/// Bytes where they may be unknown.
pub(crate) fn bytes_or_unknown(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| UNKNOWN.to_owned(), |b| units::bytes(b as f64))
}

/// A count in the fewest characters that a chart's axis needs: `950`, `20k`, `1.5M`.
pub(crate) fn short_count(n: f64) -> String {
    for (factor, suffix) in [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if n.abs() >= factor {
            return format!("{}{suffix}", short_number(n / factor));
        }
    }
    short_number(n)
}

/// A number with at most two decimals and no trailing noughts.
pub(crate) fn short_number(n: f64) -> String {
    let text = format!("{n:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// A rate: `8,065/s`.
pub(crate) fn per_second(rate: f64) -> String {
    if rate >= 10.0 {
        format!("{}/s", units::count(rate.round() as u64))
    } else {
        format!("{}/s", units::three_digits(rate))
    }
}

/// Whose failure a kind is, as an adjective of "side".
pub(crate) fn origin(kind: FailureKind) -> &'static str {
    match kind.origin() {
        model::failure::Origin::Generator => "generator",
        model::failure::Origin::Target => "target",
        model::failure::Origin::Unknown => "either",
    }
}

/// Whose limit it is.
pub(crate) fn side(side: Side) -> &'static str {
    match side {
        Side::Client => "client",
        Side::Host => "host",
        Side::Server => "server",
        Side::Between => "between",
    }
}

/// A machine in one line: `6.12.9, 8 CPUs, 31.2 GiB`.
pub(crate) fn host(host: &Host) -> String {
    let kernel = if host.kernel.is_empty() { UNKNOWN.to_owned() } else { clean(&host.kernel) };
    let cpus = if host.cpus == 1 { "1 CPU".to_owned() } else { format!("{} CPUs", host.cpus) };
    format!("{kernel}, {cpus}, {}", units::bytes(host.memory_bytes as f64))
}

/// The line in one sentence.
pub(crate) fn line(result: &RunResult) -> String {
    let reason = clean(&result.line.reason);
    match (result.line.connections, reason.is_empty()) {
        (0, true) => "0: no stage was verified".to_owned(),
        (0, false) => format!("0: {reason}"),
        (n, true) => units::count(n),
        (n, false) => format!("{}: {reason}", units::count(n)),
    }
}

/// Where kernel memory is counted: both ends share a kernel, or the generator's alone is seen.
pub(crate) fn kernel(result: &RunResult) -> (&'static str, Option<Estimate>) {
    match result.cost.shared_kernel_bytes_per_connection {
        Some(both) => ("kernel, both ends", Some(both)),
        None => match result.cost.target.kernel_bytes_per_connection {
            Some(target) => ("kernel, target's", Some(target)),
            None => ("kernel, generator's", result.cost.generator.kernel_bytes_per_connection),
        },
    }
}

/// Why the target's side is unknown and how to see it; `None` where it is seen.
pub(crate) fn hidden(result: &RunResult) -> Option<String> {
    result.settings.target_hidden.as_deref().map(clean)
}

/// A figure of unknown kind: whole numbers in groups, all others with three digits that mean something.
pub(crate) fn figure(x: f64) -> String {
    if x.abs() >= 100.0 || x.fract() == 0.0 {
        let sign = if x < 0.0 { "-" } else { "" };
        return format!("{sign}{}", units::count(x.abs().round() as u64));
    }
    let places = (2.0 - x.abs().log10().floor()).clamp(0.0, 9.0) as usize;
    let text = format!("{x:.places$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Failures, the most frequent first.
pub(crate) fn failures(failed: &BTreeMap<FailureKind, u64>) -> Vec<(FailureKind, u64)> {
    let mut all: Vec<(FailureKind, u64)> = failed.iter().map(|(&kind, &n)| (kind, n)).collect();
    all.sort_by_key(|&(kind, n)| (Reverse(n), kind));
    all
}

/// Why a stage was run; empty for a step of the ramp.
pub(crate) fn purpose(purpose: Purpose) -> &'static str {
    match purpose {
        Purpose::Ramp => "",
        Purpose::Bisect => "bisect",
        Purpose::Confirm => "confirm",
    }
}

/// How a stage ended: passed, or why not, or why it cannot be trusted.
pub(crate) fn stage_end(stage: &Stage) -> String {
    let because = |why: &Option<String>, what: &str| match why {
        Some(why) => format!("{what}: {}", clean(why)),
        None => what.to_owned(),
    };
    match (stage.valid, stage.passed) {
        (false, _) => because(&stage.why_invalid, "not to be trusted"),
        (true, false) => because(&stage.why_failed, "failed"),
        (true, true) => "passed".to_owned(),
    }
}

/// The heartbeats of a run in one line.
pub(crate) fn heartbeats(result: &RunResult) -> String {
    let h = &result.heartbeat;
    match h.interval_seconds {
        Some(every) => format!(
            "heartbeats every {}: {} sent, {} answered, {} missed",
            units::seconds(every),
            units::count(h.sent),
            units::count(h.answered),
            units::count(h.missed)
        ),
        None if h.sent == 0 => "heartbeats: none sent".to_owned(),
        None => format!("heartbeats: {} answered of {}", units::count(h.answered), units::count(h.sent)),
    }
}

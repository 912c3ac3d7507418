//! What does a sweep say in the verdict, which of its measurements decide, and what was full at its peak?

use model::RunResult;
use model::sweep::{Broke, Count, Difference, Peak, Reading, Shape, SweepResult};
use model::units;

use crate::{busy, evidence, sides};

/// From this share of what may be used on, CPUs are full.
const FULL: f64 = 0.95;

/// A thread that fills its CPU is seen to use so much of one, no less and no more.
const ONE_CPU: std::ops::RangeInclusive<f64> = 0.95..=1.02;

/// Below this share of what is busy on a full host, it does not matter what the generator takes.
const LITTLE: f64 = 0.1;

/// Whether at every count every client connected and none was lost.
pub(crate) fn held(sweep: &SweepResult) -> bool {
    !sweep.points.is_empty() && sweep.reading.broke.is_none()
}

/// The stages whose trust decides: where it broke; where nothing was found, all; and those beyond the peak, if nothing
/// beyond it could be used to see that it is one.
pub(crate) fn deciding(sweep: &SweepResult) -> Vec<usize> {
    let Reading { counts, peak, broke, .. } = &sweep.reading;
    let top = peak.map_or(0, |peak| peak.clients);
    let seen_beyond = counts.iter().any(|count| count.good && count.clients > top);
    let decides = |clients: u64| {
        broke.as_ref().is_some_and(|broke| broke.clients == clients) || (!seen_beyond && clients > top)
    };
    sweep.points.iter().filter(|point| decides(point.clients)).map(|point| point.stage).collect()
}

/// The sweep in words: "peaks at 2,410/s with 64 clients; 99% within 1.00 s up to 128 clients; …".
pub(crate) fn outcome(run: &RunResult, sweep: &SweepResult) -> String {
    let reading = &sweep.reading;
    let mut parts = vec![throughput(run, reading)];
    if reading.peak.is_some() {
        let objective = units::seconds(run.spec.objective_seconds);
        parts.push(match reading.saturation {
            None => format!("99% within {objective} at no client count"),
            Some(saturation) if saturation.missed_at.is_none() => {
                format!("99% within {objective} at every client count")
            }
            Some(saturation) => {
                format!("99% within {objective} up to {}", clients(saturation.clients))
            }
        });
    }
    parts.extend(reading.broke.as_ref().map(broke));
    parts.extend(full_at_the_peak(run).map(|full| format!("full at the peak: {full}")));
    for beside in 0..run.beside.len() {
        parts.extend(against(run, beside));
    }
    parts.extend(broke_beside(run));
    parts.join("; ")
}

fn throughput(run: &RunResult, reading: &Reading) -> String {
    let Some(peak) = reading.peak else {
        return "nothing was answered at a client count that can be used".to_owned();
    };
    let Peak { clients: at, clients_low: low, clients_high: high, per_second } = peak;
    let rate = rate(per_second.value);
    if let Some(due) = run.spec.sweep.as_ref().and_then(|sweep| sweep.rate_per_second) {
        return format!("answers {rate} of the {} that come due, with {}", self::rate(due), clients(at));
    }
    match reading.shape {
        Some(Shape::Growing) => format!("throughput still grows at {}: {rate}", clients(at)),
        Some(Shape::Queueing) => match reading.level.filter(|level| level.clients_low > high) {
            None => format!("throughput levels off at {rate} from {} on", clients(low)),
            Some(level) => format!(
                "peaks at {rate} with {}, and stays at {} from {} on",
                clients(at),
                self::rate(level.per_second.value),
                clients(level.clients_low)
            ),
        },
        Some(Shape::Falling) | None if low < high => format!(
            "peaks at {rate} with {} ({} to {} cannot be told from it)",
            clients(at),
            units::count(low),
            units::count(high)
        ),
        Some(Shape::Falling) | None => format!("peaks at {rate} with {}", clients(at)),
    }
}

fn broke(broke: &Broke) -> String {
    let words = evidence::quoted(&broke.by);
    format!(
        "at {} {} could not connect or were lost: {words}",
        clients(broke.clients),
        units::count(broke.clients.saturating_sub(broke.served))
    )
}

fn clients(n: u64) -> String {
    if n == 1 { "1 client".to_owned() } else { format!("{} clients", units::count(n)) }
}

/// Operations a second, as exact as they are told.
fn rate(per_second: f64) -> String {
    if per_second >= 100.0 {
        format!("{}/s", units::count(per_second.round() as u64))
    } else {
        format!("{}/s", units::three_digits(per_second))
    }
}

/// One way beside against the first: at the peak of the first, else at the largest count that both have.
fn against(run: &RunResult, beside: usize) -> Option<String> {
    let name = |run: &RunResult| run.spec.sweep.as_ref().map(|sweep| sweep.label.clone()).unwrap_or_default();
    let other = run.beside.get(beside)?;
    let at_peak = run.sweep.as_ref()?.reading.peak?.clients;
    let of_it = || run.differences.iter().filter(|difference| difference.beside == beside);
    let told: &Difference =
        of_it().find(|difference| difference.clients == at_peak).or_else(|| of_it().next_back())?;
    let share = told.share?;
    let (first, second, at) = (name(run), name(other), clients(told.clients));
    let own = other.sweep.as_ref().and_then(|sweep| sweep.reading.peak);
    let own = own.map_or(String::new(), |peak| {
        format!(" (its own best: {} with {})", rate(peak.per_second.value), clients(peak.clients))
    });
    let percent = |share: f64| format!("{:.1}%", share.abs() * 100.0);
    let said = match (told.seen, share.low, share.high) {
        (true, Some(low), Some(high)) => {
            let (least, most) = (low.abs().min(high.abs()), low.abs().max(high.abs()));
            let how = if share.value < 0.0 { "less" } else { "more" };
            format!(
                "answers {} {how} than {first} ({} to {})",
                percent(share.value),
                percent(least),
                percent(most)
            )
        }
        _ => format!("cannot be told from {first}"),
    };
    Some(format!("{second} {said} at {at}{own}"))
}

/// Where the ways beside broke.
fn broke_beside(run: &RunResult) -> impl Iterator<Item = String> {
    run.beside.iter().filter_map(|way| {
        let broken = way.sweep.as_ref()?.reading.broke.as_ref()?;
        let label = &way.spec.sweep.as_ref()?.label;
        Some(format!("on {label}, {}", broke(broken)))
    })
}

/// What was full where throughput was highest, in words; `None`: nothing that was seen.
pub(crate) fn full_at_the_peak(run: &RunResult) -> Option<String> {
    let reading = &run.sweep.as_ref()?.reading;
    // A plateau begins where what limits it is full.
    let at = reading.peak?.clients;
    full_at(run, reading.counts.iter().find(|count| count.clients == at)?)
}

/// Which CPUs were full at a client count.
pub(crate) fn full_at(run: &RunResult, count: &Count) -> Option<String> {
    let there = sides::from_the_target(run);
    let on = there.as_ref().unwrap_or(run);
    let of_host = f64::from(run.host.cpus);
    if run.settings.same_host && there.is_none() && of_host > 0.0 {
        let busy = count.host_cpus.filter(|busy| *busy >= FULL * of_host);
        if let Some(busy) = busy {
            let with = count.target_cpus.map_or(String::new(), |cpus| format!(", {cpus:.2} with the target"));
            return Some(format!("the host's CPUs ({busy:.2} of {of_host:.0}{with})"));
        }
    }
    let (cpus, allowed) = (count.target_cpus?, busy::allowed(on));
    if cpus >= FULL * allowed {
        return Some(format!("the CPUs that the target may use ({cpus:.2} of {allowed:.2})"));
    }
    let alone = count.target_processes == Some(1) && allowed > 1.0 && ONE_CPU.contains(&cpus);
    alone.then(|| format!("one CPU ({cpus:.2} of {allowed:.2}), as of a server that works in one thread"))
}

/// From this share of what is busy on a full host on, it is others that decide.
const OTHERS: f64 = 0.25;

/// What to know before trusting a sweep's figures.
pub(crate) fn warnings(run: &RunResult) -> Vec<String> {
    let Some(sweep) = &run.sweep else { return Vec::new() };
    let reading = &sweep.reading;
    let broke = reading.broke.as_ref().map(|broke| broke.clients);
    let left_out = |count: &Count| {
        let why = count.why_not.as_ref().filter(|_| broke != Some(count.clients))?;
        let what = if count.good { "a repeat is left out" } else { "left out of the curve" };
        Some(format!("at {} {what}: {why}", clients(count.clients)))
    };
    reading.counts.iter().filter_map(left_out).chain(shared(run, reading)).collect()
}

/// That the generator, or others, took part of the CPUs that were full at the peak.
fn shared(run: &RunResult, reading: &Reading) -> Option<String> {
    let at = reading.peak?.clients;
    let count = reading.counts.iter().find(|count| count.clients == at)?;
    let (busy, generator) = (count.host_cpus?, count.generator_cpus?);
    let full = busy >= FULL * f64::from(run.host.cpus);
    let others = busy - generator - count.target_cpus?;
    if full && others >= OTHERS * busy {
        return Some(format!(
            "at the peak {others:.2} of the {busy:.2} CPUs that were busy on the generator's host were so with neither \
             the target nor the generator: measure again where nothing else runs"
        ));
    }
    (sides::share_a_host(run) && full && generator >= LITTLE * busy).then(|| {
        format!(
            "at the peak the generator took {generator:.2} of the {busy:.2} CPUs that were busy on this host; on one of \
             its own the target may do more"
        )
    })
}

#[cfg(test)]
mod tests;

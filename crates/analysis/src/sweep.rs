//! What does the curve of throughput against clients say?

use std::collections::BTreeMap;

use model::sweep::{Broke, Count, Level, Peak, Reading, Saturation, Shape, SweepPoint};
use model::{FailureKind, RunResult, units};

use crate::batch::Mean;
use crate::usl;

/// By Little's law, in a closed loop, so many of the clients may be missing.
const LITTLE_OFF: f64 = 0.05;

/// Throughput that lies within this share of the peak's is as good as that.
const LEVEL: f64 = 0.05;

/// So many times as many clients, at level throughput, show that they queue.
const TELLING_GROWTH: f64 = 1.5;

/// Of an open loop: so many of what came due may be left over.
const MOST_UNMET: f64 = 0.01;

/// The same where throughput fell before: a slow fall looks level for a while.
const TELLING_GROWTH_AFTER_A_FALL: f64 = 3.0;

/// How many counts are tried around the peak.
const MORE_COUNTS: usize = 4;

/// The peak is known well enough if its neighbours are no further than this.
const NEAR_ENOUGH: f64 = 1.15;

/// What the curve of a sweep says; empty if nothing was measured.
///
/// Interval and correlation of each count are those of [`batch`](crate::batch). The peak, its range and the law come from
/// the counts that are good alone.
pub fn reading(run: &RunResult) -> Reading {
    let Some(sweep) = &run.sweep else { return Reading::default() };
    let mut repeats: BTreeMap<u64, Vec<&SweepPoint>> = BTreeMap::new();
    for point in &sweep.points {
        repeats.entry(point.clients).or_default().push(point);
    }
    let counted: Vec<Counted<'_>> =
        repeats.into_iter().map(|(clients, points)| Counted::of(run, clients, points)).collect();
    let good: Vec<(u64, Mean)> =
        counted.iter().filter(|c| c.count.good).filter_map(|c| Some((c.count.clients, c.mean?))).collect();
    let open = is_open(run);
    let law = if open {
        Err("operations came due at a rate of their own (--rate): the law is one of clients that never pause"
            .to_owned())
    } else {
        usl::fit(&good.iter().map(point_of_the_law).collect::<Vec<_>>())
    };
    let (usl, usl_refused) = match law {
        Ok(law) => (Some(law), None),
        Err(why) => (None, Some(why)),
    };
    Reading {
        peak: peak(&good),
        saturation: saturation(run, &counted),
        usl,
        usl_refused,
        shape: if open { None } else { shape(&good) },
        level: if open { None } else { level(&good) },
        broke: counted.iter().find_map(|counted| counted.points.iter().find_map(|point| broke(run, point))),
        counts: counted.into_iter().map(|counted| counted.count).collect(),
    }
}

/// Throughput at a client count, by the repeats that can be used; `None`: nothing was measured.
pub fn mean_at(run: &RunResult, clients: u64) -> Option<Mean> {
    let points = run.sweep.as_ref()?.points.iter().filter(|point| point.clients == clients).collect();
    Counted::of(run, clients, points).mean
}

fn is_open(run: &RunResult) -> bool {
    run.spec.sweep.as_ref().is_some_and(|sweep| sweep.rate_per_second.is_some())
}

fn point_of_the_law((clients, mean): &(u64, Mean)) -> usl::Point {
    let error = mean.variance.unwrap_or_default().sqrt();
    usl::Point { clients: *clients as f64, per_second: mean.value, error }
}

/// All repeats of one client count.
struct Counted<'a> {
    points: Vec<&'a SweepPoint>,
    mean: Option<Mean>,
    count: Count,
}

impl<'a> Counted<'a> {
    fn of(run: &RunResult, clients: u64, points: Vec<&'a SweepPoint>) -> Self {
        let mut why = Vec::new();
        let usable: Vec<&SweepPoint> = points
            .iter()
            .copied()
            .filter(|point| match why_not(run, point) {
                None => true,
                Some(this) => {
                    if !why.contains(&this) {
                        why.push(this);
                    }
                    false
                }
            })
            .collect();
        let broke = points.iter().any(|point| !all_served(point) || failures(run, point) > 0);
        let good = !usable.is_empty() && !broke;
        let used = if good { usable } else { points.clone() };
        let slices: Vec<(&[u64], f64)> = used.iter().map(|p| (p.slices.as_slice(), p.seconds)).collect();
        let mean = Mean::of(&slices);
        let mut count = summed(run, clients, &used);
        count.per_second = mean.as_ref().map(Mean::estimate);
        count.little_clients = mean.map_or(0.0, |mean| mean.value * count.mean_ms / 1e3);
        count.good = good;
        count.why_not = (!why.is_empty()).then(|| why.join("; "));
        Self { points, mean, count }
    }
}

/// What is put together from all repeats, but for throughput.
fn summed(run: &RunResult, clients: u64, used: &[&SweepPoint]) -> Count {
    let latencies: Vec<_> = used.iter().filter_map(|p| p.latency).collect();
    let answered: u64 = latencies.iter().map(|l| l.count).sum();
    let mean = latencies.iter().map(|l| l.mean_ms * l.count as f64).sum::<f64>() / answered.max(1) as f64;
    let mut medians: Vec<f64> = latencies.iter().map(|l| l.p50_ms).collect();
    medians.sort_by(f64::total_cmp);
    let cpus = |of: fn(&SweepPoint) -> Option<f64>| {
        let seconds: f64 = used.iter().map(|p| p.cpu.seconds).sum();
        let all: Option<f64> = used.iter().map(|p| of(p)).sum();
        all.filter(|_| seconds > 0.0).map(|all| all / seconds)
    };
    let targets = used.iter().filter_map(|p| run.stages.get(p.stage)?.target.as_ref());
    Count {
        clients,
        mean_ms: mean,
        p50_ms: medians.get(medians.len() / 2).copied().unwrap_or_default(),
        p95_ms: latencies.iter().map(|l| l.p95_ms).fold(0.0, f64::max),
        p99_ms: latencies.iter().map(|l| l.p99_ms).fold(0.0, f64::max),
        target_cpus: cpus(|p| p.cpu.target_cpu_seconds),
        generator_cpus: cpus(|p| p.cpu.generator_cpu_seconds),
        host_cpus: cpus(|p| p.host_cpu_seconds),
        target_user_bytes: targets.clone().filter_map(|group| group.user_bytes).max(),
        target_processes: targets.map(|group| group.processes).max(),
        ..Count::default()
    }
}

/// Whether every client stood to the end and had an answer.
fn all_served(point: &SweepPoint) -> bool {
    stood(point) && point.served >= point.clients
}

/// Connections that failed while a count was measured, be it between the last one's handshake and the first's work.
fn failures(run: &RunResult, point: &SweepPoint) -> u64 {
    run.stages.get(point.stage).map_or(0, |stage| stage.failed.values().sum())
}

/// Whether every client connected and none was lost.
fn stood(point: &SweepPoint) -> bool {
    point.connected >= point.clients && point.lost == 0
}

/// Why a measurement is not used; `None`: it is.
fn why_not(run: &RunResult, point: &SweepPoint) -> Option<String> {
    let stage = run.stages.get(point.stage);
    if let Some(why) = stage.and_then(|stage| stage.why_invalid.clone()) {
        return Some(why);
    }
    let asked = units::count(point.clients);
    if point.connected < point.clients {
        return Some(format!("{} of {asked} clients connected", units::count(point.connected)));
    }
    let lost = point.lost.max(failures(run, point));
    if lost > 0 {
        return Some(format!("{} of {asked} clients were lost", units::count(lost)));
    }
    if point.served < point.clients {
        return Some(format!("{} of {asked} clients had an answer", units::count(point.served)));
    }
    little(run, point)
}

/// Says so if by Little's law clients are missing: they were neither answered nor asking.
fn little(run: &RunResult, point: &SweepPoint) -> Option<String> {
    let latency = point.latency.filter(|_| !is_open(run) && point.seconds > 0.0)?;
    let seconds = latency.mean_ms / 1e3;
    let at_work = point.per_second() * seconds;
    // Who is in the midst of an operation at either end is counted once or not at all.
    let tolerated = LITTLE_OFF.max(seconds / point.seconds);
    let off = (at_work / point.clients as f64 - 1.0).abs();
    (off > tolerated).then(|| {
        format!(
            "by Little's law (throughput times mean latency) {at_work:.1} clients were at work, not {}: measure for \
             longer",
            units::count(point.clients)
        )
    })
}

fn peak(good: &[(u64, Mean)]) -> Option<Peak> {
    let top = top(good)?;
    let (clients, best) = good[top];
    let alike = |i: &usize| good[*i].1.like(&best);
    let low = (0..top).rev().take_while(alike).last().unwrap_or(top);
    let high = (top + 1..good.len()).take_while(alike).last().unwrap_or(top);
    Some(Peak { clients, clients_low: good[low].0, clients_high: good[high].0, per_second: best.estimate() })
}

/// Which of the counts has the highest throughput; `None`: nothing was answered.
fn top(good: &[(u64, Mean)]) -> Option<usize> {
    let answered = good.iter().enumerate().filter(|(_, (_, mean))| mean.value > 0.0);
    answered.max_by(|a, b| a.1.1.value.total_cmp(&b.1.1.value)).map(|(i, _)| i)
}

/// The largest count that kept the objective as did all below it.
fn saturation(run: &RunResult, counted: &[Counted<'_>]) -> Option<Saturation> {
    let objective_ms = run.spec.objective_seconds * 1e3;
    let kept = |point: &SweepPoint| {
        let late = point.latency.is_none_or(|latency| latency.p99_ms > objective_ms);
        let left = point.unmet.unwrap_or(0) as f64 > MOST_UNMET * point.due.unwrap_or(0) as f64;
        all_served(point) && !late && !left
    };
    let missed = counted.iter().position(|c| !c.points.iter().all(|point| kept(point)));
    let last = &counted[..missed.unwrap_or(counted.len())].last()?;
    Some(Saturation {
        clients: last.count.clients,
        p99_ms: last.count.p99_ms,
        missed_at: missed.map(|at| counted[at].count.clients),
        confirmed: last.points.len() >= 2,
    })
}

/// What lies beyond the peak, as far as the largest good count; `None`: that is too near to tell.
fn shape(good: &[(u64, Mean)]) -> Option<Shape> {
    let best = good[top(good)?].1;
    let (most, last) = good.last()?;
    if level(good).is_some() {
        return Some(Shape::Queueing);
    }
    if !as_good(last, &best) {
        return Some(Shape::Falling);
    }
    (level_from(good, &best)? == *most && good.len() >= 2).then_some(Shape::Growing)
}

/// Whether a throughput is as good as another, as far as can be told.
fn as_good(mean: &Mean, other: &Mean) -> bool {
    mean.value >= (1.0 - LEVEL) * other.value || mean.like(other)
}

/// From which count on all others are as good as that, too.
fn level_from(good: &[(u64, Mean)], other: &Mean) -> Option<u64> {
    Some(good.iter().rev().take_while(|(_, mean)| as_good(mean, other)).last()?.0)
}

/// Where throughput stays up to the largest good count, if that is far enough to tell: as high as at the peak, or lower.
fn level(good: &[(u64, Mean)]) -> Option<Level> {
    let best = good[top(good)?].1;
    let (most, last) = good.last()?;
    let (from, telling) = if as_good(last, &best) {
        (level_from(good, &best)?, TELLING_GROWTH)
    } else {
        // neither above the last nor below it
        let same = |mean: &Mean| as_good(mean, last) && as_good(last, mean);
        let from = good.iter().rev().take_while(|(_, mean)| same(mean)).last()?.0;
        (from, TELLING_GROWTH_AFTER_A_FALL)
    };
    let far = *most as f64 >= telling * from as f64;
    far.then(|| Level { clients_low: from, clients_high: *most, per_second: last.estimate() })
}

/// How a count broke, if clients could not connect or were lost.
fn broke(run: &RunResult, point: &SweepPoint) -> Option<Broke> {
    if stood(point) && failures(run, point) == 0 {
        return None;
    }
    let stage = run.stages.get(point.stage);
    let failed = stage.map(|stage| &stage.failed);
    // A refusal says what it was; what else failed may be no more than what followed.
    let telling = |(kind, count): &(&FailureKind, &u64)| (**kind == FailureKind::ServerRefused, **count);
    let most = failed.and_then(|failed| failed.iter().max_by_key(telling)).map(|(kind, _)| *kind);
    let said = most.or_else(|| point.failed_example.keys().next().copied()).map(|kind| {
        let words = point.failed_example.get(&kind).map(|words| words.trim()).filter(|w| !w.is_empty());
        words.map_or_else(|| kind.says().to_owned(), str::to_owned)
    });
    Some(Broke {
        clients: point.clients,
        served: point.connected.saturating_sub(point.lost).min(stage.map_or(u64::MAX, |stage| stage.ready)),
        by: said.unwrap_or_else(|| "for no reason that was seen".to_owned()),
    })
}

/// The client count that would tell most about where the peak is; `None`: it is known well enough, or enough were tried.
///
/// Where throughput levels off, that is where it begins to.
pub fn next_around_the_peak(points: &[SweepPoint]) -> Option<u64> {
    let most = points.iter().map(|point| point.clients).max()?;
    let first_pass = points.iter().position(|point| point.clients == most)?;
    let mut means: BTreeMap<u64, Vec<(&[u64], f64)>> = BTreeMap::new();
    for point in points.iter().filter(|point| all_served(point)) {
        means.entry(point.clients).or_default().push((&point.slices, point.seconds));
    }
    let good: Vec<(u64, Mean)> =
        means.into_iter().filter_map(|(clients, repeats)| Some((clients, Mean::of(&repeats)?))).collect();
    let known = |clients: u64| points[..first_pass].iter().any(|point| point.clients == clients);
    let mut more: Vec<u64> = points[first_pass..].iter().map(|p| p.clients).collect();
    more.retain(|clients| *clients != most && !known(*clients));
    more.sort_unstable();
    more.dedup();
    if more.len() >= MORE_COUNTS {
        return None;
    }
    let low = peak(&good)?.clients_low;
    let at = good.iter().position(|(clients, _)| *clients == low)?;
    let gap = |from: Option<usize>, to: usize| {
        let (from, to) = (good.get(from?)?.0, good.get(to)?.0);
        let between = ((from as f64 * to as f64).sqrt().round() as u64).clamp(from, to);
        let wide = to as f64 > from as f64 * NEAR_ENOUGH && between > from && between < to;
        wide.then_some((to as f64 / from as f64, between))
    };
    let gaps = [gap(at.checked_sub(1), at), gap(Some(at), at + 1)].into_iter().flatten();
    gaps.reduce(|a, b| if b.0 > a.0 * 1.001 { b } else { a }).map(|(_, clients)| clients)
}

#[cfg(test)]
mod tests;

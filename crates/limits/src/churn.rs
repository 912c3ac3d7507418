//! What does a churn say in the verdict, and of itself?

use analysis::churn::{best, chosen, meets};
use model::churn::Cell;
use model::result::{Finding, Status};
use model::{ChurnResult, ChurnSpec, RunResult, Scheme, units};

use crate::LimitFacts;

/// A churn of which something was seen.
pub(crate) fn of(run: &RunResult) -> Option<(&ChurnSpec, &ChurnResult)> {
    let seen = run.churn.as_ref().filter(|seen| !seen.cells.is_empty())?;
    Some((run.spec.churn.as_ref()?, seen))
}

/// Whether some cell met the objective.
pub(crate) fn held(run: &RunResult) -> bool {
    of(run).is_some_and(|(asked, seen)| chosen(asked, seen).is_some())
}

/// The churn in words: "with minimum 0 the first operation after 35.0 s idle took 145 ms, with 10 4.00 ms; …".
pub(crate) fn outcome(run: &RunResult) -> String {
    let Some((asked, seen)) = of(run) else { return "no cell was finished".to_owned() };
    let Some(good) = chosen(asked, seen).or_else(|| best(seen.cells.iter())) else {
        return "no cell was finished".to_owned();
    };
    // What it is compared with: the worst of the cells that have a smaller minimum, at the same distance.
    let first = |cell: &Cell| cell.first.map_or(f64::INFINITY, |l| l.p50_ms);
    let below = seen.cells.iter().filter(|cell| {
        cell.min_pool < good.min_pool && cell.network_delay_seconds == good.network_delay_seconds
    });
    let worst = below.max_by(|a, b| first(a).total_cmp(&first(b)));
    let idle = units::seconds(asked.idle_seconds);
    let number = |cell: &Cell| units::count(u64::from(cell.min_pool));
    let mut out = match worst {
        Some(worst) => format!(
            "with minimum {} the first operation after {idle} idle took {}, with {} {}",
            number(worst),
            first_said(worst),
            number(good),
            first_said(good)
        ),
        None => {
            format!(
                "with minimum {} the first operation after {idle} idle took {}",
                number(good),
                first_said(good)
            )
        }
    };
    let hour = |cell: &Cell| cell.created_per_hour().map(|n| units::count(n.round() as u64));
    match (worst.and_then(hour), hour(good)) {
        (Some(before), Some(after)) if before != after => {
            out.push_str(&format!("; {before} connections made an hour become {after}"));
        }
        (_, Some(made)) => out.push_str(&format!("; {made} connections are made an hour")),
        (_, None) => {}
    }
    let objective = units::milliseconds(asked.objective_seconds * 1e3);
    if meets(good, asked.objective_seconds) {
        out.push_str(&match setting(run.spec.target.scheme) {
            Some(name) if good.min_pool > 0 => format!("; set {name}{}{}", good.min_pool, kept(asked, good)),
            _ => format!("; that meets the objective of {objective}"),
        });
    } else {
        let p99 = good.operation.map_or("unknown".to_owned(), |l| units::milliseconds(l.p99_ms));
        out.push_str(&format!(
            "; no cell meets the objective of {objective}: p99 of a burst is {p99} at best"
        ));
        let lost = good.timeouts + good.failed;
        if lost > 0 {
            out.push_str(&format!(", and {} operations were not answered", units::count(lost)));
        }
    }
    out
}

/// The idle time-out, where several were tried.
fn kept(asked: &ChurnSpec, good: &Cell) -> String {
    match good.idle_timeout_seconds {
        Some(seconds) if asked.idle_timeout_seconds.len() > 1 => {
            format!(" and an idle time-out of {}", units::seconds(seconds))
        }
        _ => String::new(),
    }
}

/// What is said where a run cannot tell: the command that would.
pub(crate) fn unknown(facts: &LimitFacts, why: impl Into<String>, command: &str) -> Finding {
    let mut finding = facts.finding(Status::Unknown, why);
    finding.remedy = vec!["# a run that shows it:".to_owned(), command.to_owned()];
    finding
}

fn first_said(cell: &Cell) -> String {
    cell.first.map_or("unknown".to_owned(), |l| units::milliseconds(l.p50_ms))
}

/// The minimum in the words of the pool that was run.
fn setting(scheme: Scheme) -> Option<&'static str> {
    match scheme.plain() {
        Scheme::MongoDb => Some("minPoolSize="),
        Scheme::Postgres | Scheme::Redis => Some("min_idle="),
        _ => None,
    }
}

/// What to know before the figures of a churn are trusted.
pub(crate) fn warnings(run: &RunResult) -> Vec<String> {
    /// A generator that begins so much of an operation's time late has made it itself.
    const MUCH_OF: f64 = 0.25;
    let Some((_, seen)) = of(run) else { return Vec::new() };
    let mut out = Vec::new();
    for cell in &seen.cells {
        let name = format!("minimum {} of {}", cell.min_pool, cell.max_pool);
        if let (Some(lag), Some(all)) = (cell.lag, cell.operation)
            && lag.p50_ms > MUCH_OF * all.p50_ms
        {
            out.push(format!(
                "{name}: the generator itself began operations {} late (median) of the {} that they took: give it more \
                 CPU, or make the burst smaller",
                units::milliseconds(lag.p50_ms),
                units::milliseconds(all.p50_ms)
            ));
        }
        if let Some(words) = &cell.failed_example {
            out.push(format!("{name}: {words}"));
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use model::{Latency, Spec, Target};

    use super::*;

    /// A grid of two minimums, of which the larger meets the objective.
    pub(crate) fn run() -> RunResult {
        let target = Target::parse("mongodb://app@10.0.0.5/shop").unwrap();
        let mut run = RunResult::new("churn", Spec::new(target, 100));
        run.spec.churn = Some(ChurnSpec {
            min_pool: vec![0, 10],
            max_pool: vec![50],
            idle_timeout_seconds: vec![30.0],
            max_lifetime_seconds: vec![],
            wait_timeout_seconds: None,
            burst: 20,
            idle_seconds: 35.0,
            bursts: 3,
            network_delay_seconds: vec![],
            objective_seconds: 0.1,
            instances: 4,
            server_limit: Some(500),
        });
        let cells = vec![cell(0, 145.0, 40), cell(10, 4.0, 1)];
        run.churn = Some(ChurnResult { library: "a pool".to_owned(), cells, ..ChurnResult::default() });
        run
    }

    fn cell(min_pool: u32, first_ms: f64, created: u64) -> Cell {
        let latency =
            |ms: f64| Some(Latency { count: 60, p50_ms: ms, p99_ms: ms, max_ms: ms, ..Latency::default() });
        Cell {
            min_pool,
            max_pool: 50,
            idle_timeout_seconds: Some(30.0),
            bursts: 3,
            first: latency(first_ms),
            operation: latency(first_ms + 5.0),
            wait: latency(0.5),
            created_in_cycles: created,
            cycles_seconds: 72.0,
            most_connections: 20,
            ..Cell::default()
        }
    }

    fn judged(mut run: RunResult) -> RunResult {
        analysis::conclude(&mut run);
        crate::judge(&mut run);
        run
    }

    #[test]
    fn the_verdict_compares_and_names_the_setting() {
        let run = judged(run());
        assert_eq!(
            run.verdict.sentence,
            "with minimum 0 the first operation after 35.0 s idle took 145 ms, with 10 4.00 ms; 2,000 connections made \
             an hour become 50; set minPoolSize=10"
        );
        assert_eq!(run.exit_code(), 0);
        let ids: Vec<&str> = run.limits.iter().map(|f| f.id.as_str()).collect();
        assert!(ids.iter().all(|id| id.starts_with("pool.")) && ids.len() == 3, "{ids:?}");
    }

    #[test]
    fn a_grid_that_fails_says_what_it_was_at_best_and_why() {
        let mut run = run();
        let cells = &mut run.churn.as_mut().unwrap().cells;
        cells.truncate(1);
        cells[0].timeouts = 7;
        let run = judged(run);
        assert_eq!(run.exit_code(), 3);
        assert_eq!(run.verdict.first_limit.as_deref(), Some("pool.too-small"));
        let said = &run.verdict.sentence;
        assert!(
            said.contains("no cell meets the objective of 100 ms: p99 of a burst is 150 ms at best"),
            "{said}"
        );
        assert!(
            said.contains("pool.too-small: 7 operations found no connection in time in a pool of 50"),
            "{said}"
        );
        assert!(said.contains("lift it with `maxPoolSize=20`"), "{said}");
    }

    #[test]
    fn an_empty_churn_is_said_to_be_one() {
        let mut run = run();
        run.churn = None;
        run.interrupted = true;
        let run = judged(run);
        assert!(run.verdict.sentence.ends_with("no cell was finished"), "{}", run.verdict.sentence);
        assert_eq!(run.exit_code(), 130);
    }
}

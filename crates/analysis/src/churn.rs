//! What follows from a grid of pool settings? Advice, each piece with its arithmetic.
//!
//! Only cells that were run decide: what a setting would do that nobody tried is not computed, but what to try is said.

use model::churn::{Advice, Cell};
use model::{ChurnResult, ChurnSpec, RunResult, units};

/// Fills what a churn's cells are judged as, and its advice; whatever stood there is replaced.
pub fn advise(result: &mut RunResult) {
    let Some(asked) = result.spec.churn.clone() else { return };
    let Some(seen) = &mut result.churn else { return };
    let preferred = chosen(&asked, seen).map(std::ptr::from_ref);
    let judged: Vec<(bool, bool)> = seen
        .cells
        .iter()
        .map(|cell| (meets(cell, asked.objective_seconds), preferred.is_some_and(|p| std::ptr::eq(p, cell))))
        .collect();
    for (cell, judged) in seen.cells.iter_mut().zip(judged) {
        (cell.meets, cell.chosen) = judged;
    }
    if seen.cells.is_empty() {
        seen.advice.clear();
        return;
    }
    let mut advice = minimum(&asked, seen);
    advice.extend(idle_timeout(&asked, seen));
    advice.extend(budget(&asked, seen));
    seen.advice = advice;
}

/// Whether every operation of a cell was answered, the first after idle and 99% of all within the objective.
pub fn meets(cell: &Cell, objective_seconds: f64) -> bool {
    let objective_ms = objective_seconds * 1e3;
    cell.bursts > 0
        && cell.timeouts == 0
        && cell.failed == 0
        && cell.first.is_some_and(|first| first.max_ms <= objective_ms)
        && cell.operation.is_some_and(|all| all.p99_ms <= objective_ms)
}

/// Of the cells that meet the objective, the one with the least minimum; of equal ones, the one that makes the fewest
/// connections, then the smallest. Where several distances were tried, the greatest at which one does decides.
pub fn chosen<'a>(asked: &ChurnSpec, seen: &'a ChurnResult) -> Option<&'a Cell> {
    distances(seen).into_iter().rev().find_map(|delay| chosen_at(asked, seen, delay))
}

/// The distances of a grid, the nearest first.
fn distances(seen: &ChurnResult) -> Vec<f64> {
    let mut all: Vec<f64> = seen.cells.iter().map(|cell| cell.network_delay_seconds).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

fn at(seen: &ChurnResult, delay: f64) -> impl Iterator<Item = &Cell> {
    seen.cells.iter().filter(move |cell| cell.network_delay_seconds == delay)
}

fn chosen_at<'a>(asked: &ChurnSpec, seen: &'a ChurnResult, delay: f64) -> Option<&'a Cell> {
    let good = at(seen, delay).filter(|cell| meets(cell, asked.objective_seconds));
    good.min_by(|a, b| {
        let made = |cell: &Cell| cell.created_per_hour().unwrap_or(0.0);
        a.min_pool.cmp(&b.min_pool).then(made(a).total_cmp(&made(b))).then(a.max_pool.cmp(&b.max_pool))
    })
}

/// The cell whose operations took the least time: the fewest lost, then the lowest p99.
pub fn best<'a>(cells: impl Iterator<Item = &'a Cell>) -> Option<&'a Cell> {
    let p99 = |cell: &Cell| cell.operation.map_or(f64::INFINITY, |all| all.p99_ms);
    cells.min_by(|a, b| {
        let lost = |cell: &Cell| cell.timeouts + cell.failed;
        lost(a).cmp(&lost(b)).then(p99(a).total_cmp(&p99(b)))
    })
}

/// How many connections the server takes: as it was told to us, else as it says itself.
pub fn server_limit(asked: &ChurnSpec, seen: &ChurnResult) -> Option<u64> {
    asked.server_limit.or(seen.server_limit)
}

/// A cell in words: "minimum 10 of 50: first after idle at most 4.00 ms, p99 of a burst 12.0 ms".
fn told(cell: &Cell) -> String {
    let ms = |ms: Option<f64>| ms.map_or("unknown".to_owned(), units::milliseconds);
    let mut out = format!("minimum {} of {}", number(cell.min_pool), number(cell.max_pool));
    if let Some(seconds) = cell.idle_timeout_seconds {
        out.push_str(&format!(", idle time-out {}", units::seconds(seconds)));
    }
    out.push_str(&format!(
        ": the first after idle took at most {}, p99 of a burst {}",
        ms(cell.first.map(|l| l.max_ms)),
        ms(cell.operation.map(|l| l.p99_ms))
    ));
    if cell.timeouts + cell.failed > 0 {
        out.push_str(&format!(
            ", {} operations were not answered",
            units::count(cell.timeouts + cell.failed)
        ));
    }
    out
}

fn number(n: u32) -> String {
    units::count(u64::from(n))
}

/// Where several distances were tried: "50.0 ms away: ".
fn away(seen: &ChurnResult, delay: f64) -> String {
    if distances(seen).len() < 2 {
        String::new()
    } else {
        format!("{} away: ", units::milliseconds(delay * 1e3))
    }
}

fn minimum(asked: &ChurnSpec, seen: &ChurnResult) -> Vec<Advice> {
    let objective = format!("the objective is {}", units::milliseconds(asked.objective_seconds * 1e3));
    let each = distances(seen).into_iter().map(|delay| {
        let about = "minimum".to_owned();
        let where_ = away(seen, delay);
        if let Some(cell) = chosen_at(asked, seen, delay) {
            let below = at(seen, delay).filter(|other| other.min_pool < cell.min_pool);
            let mut because = vec![told(cell)];
            because.extend(best(below).map(|below| format!("{}: too long", told(below))));
            because.push(objective.clone());
            let says = format!("{where_}keep a minimum of {}", number(cell.min_pool));
            return Advice { about, says, because };
        }
        let mut because: Vec<String> = best(at(seen, delay)).map(told).into_iter().collect();
        because.push(objective.clone());
        let most = at(seen, delay).map(|cell| cell.min_pool).max().unwrap_or(0);
        let price = seen.prices.iter().find(|p| p.network_delay_seconds == delay).and_then(|p| p.ready_ms);
        if let Some(ready) = price {
            because.push(format!("a connection that must be made first adds {}", units::milliseconds(ready)));
        }
        because.push(if most < asked.burst {
            format!(
                "what more than {} standing connections would bring was not tried, and does not follow from these cells; \
                 a burst of {} has one for each operation with --min-pool {}",
                number(most),
                number(asked.burst),
                number(asked.burst)
            )
        } else {
            "with a standing connection for each operation it took too long still: look at the server, or at the distance, \
             not at the pool"
                .to_owned()
        });
        Advice { about, says: format!("{where_}none of the minimums that were tried meets the objective"), because }
    });
    each.collect()
}

fn idle_timeout(asked: &ChurnSpec, seen: &ChurnResult) -> Option<Advice> {
    let gap = asked.idle_seconds;
    let mut because = vec![format!("nothing comes for {} between bursts", units::seconds(gap))];
    let short =
        |cell: &&Cell| cell.idle_timeout_seconds.is_some_and(|t| t <= gap) && cell.created_in_cycles > 0;
    let made = |cell: &Cell| cell.created_per_hour().unwrap_or(0.0);
    if let Some(worst) = seen.cells.iter().filter(short).max_by(|a, b| made(a).total_cmp(&made(b))) {
        let timeout = worst.idle_timeout_seconds.unwrap_or(gap);
        because.push(format!(
            "with {} and a minimum of {}, {} connections an hour were made ({} in {})",
            units::seconds(timeout),
            number(worst.min_pool),
            units::count(made(worst).round() as u64),
            units::count(worst.created_in_cycles),
            units::seconds(worst.cycles_seconds)
        ));
    } else if !seen.cells.iter().any(|cell| cell.idle_timeout_seconds.is_some_and(|t| t <= gap)) {
        // Nothing that was tried is shorter than the gaps: there is nothing to advise.
        return server_closes_first(asked, seen);
    }
    let mut says = format!("let connections be idle for more than {}", units::seconds(gap));
    if let Some(server) = seen.server_idle_seconds {
        because.push(format!("the server itself closes after {}", units::seconds(server)));
        if server <= gap {
            return server_closes_first(asked, seen);
        }
        says.push_str(&format!(", and for less than {}", units::seconds(server)));
    }
    Some(Advice { about: "idle-timeout".to_owned(), says, because })
}

/// No setting of the pool keeps a connection that the server closes.
fn server_closes_first(asked: &ChurnSpec, seen: &ChurnResult) -> Option<Advice> {
    let server = seen.server_idle_seconds.filter(|server| *server <= asked.idle_seconds)?;
    let (gap, server) = (units::seconds(asked.idle_seconds), units::seconds(server));
    Some(Advice {
        about: "idle-timeout".to_owned(),
        says: format!(
            "raise the server's own idle time-out above {gap}, or let the pool close before {server}"
        ),
        because: vec![
            format!("nothing comes for {gap} between bursts"),
            format!(
                "the server itself closes after {server}, and the pool finds out with the next operation"
            ),
        ],
    })
}

/// Connections that the pools of all instances may open, and those that they keep, whatever is asked of them.
pub fn worst_and_reserved(asked: &ChurnSpec, seen: &ChurnResult) -> Option<(u64, u64)> {
    let cell = chosen(asked, seen).or_else(|| best(seen.cells.iter()))?;
    let instances = u64::from(asked.instances);
    Some((instances * u64::from(cell.max_pool), instances * u64::from(cell.min_pool)))
}

fn budget(asked: &ChurnSpec, seen: &ChurnResult) -> Option<Advice> {
    let (worst, reserved) = worst_and_reserved(asked, seen)?;
    let limit = server_limit(asked, seen)?;
    let instances = u64::from(asked.instances.max(1));
    let fits = limit / instances;
    let says = if worst <= limit {
        format!(
            "the server has room: {} of {} connections at the worst",
            units::count(worst),
            units::count(limit)
        )
    } else {
        format!("keep the maximum of each instance at {} or less", units::count(fits))
    };
    let of = if asked.server_limit.is_some() { "as it was told" } else { "by its own word" };
    let each = |total: u64| units::count(total / instances);
    let because = vec![
        format!("{} instances × maximum {} = {}", units::count(instances), each(worst), units::count(worst)),
        format!(
            "{} instances × minimum {} = {}",
            units::count(instances),
            each(reserved),
            units::count(reserved)
        ),
        format!("the server takes {} ({of}), {} for each instance", units::count(limit), units::count(fits)),
    ];
    Some(Advice { about: "budget".to_owned(), says, because })
}

#[cfg(test)]
mod tests {
    use model::Latency;

    use super::*;

    fn asked() -> ChurnSpec {
        ChurnSpec {
            min_pool: vec![0, 10],
            max_pool: vec![50],
            idle_timeout_seconds: vec![3.0],
            max_lifetime_seconds: vec![],
            wait_timeout_seconds: None,
            burst: 20,
            idle_seconds: 35.0,
            bursts: 3,
            network_delay_seconds: vec![],
            objective_seconds: 0.1,
            instances: 20,
            server_limit: Some(500),
        }
    }

    fn cell(min_pool: u32, first_ms: f64, created: u64) -> Cell {
        let latency =
            |ms: f64| Some(Latency { count: 3, p50_ms: ms, p99_ms: ms, max_ms: ms, ..Latency::default() });
        Cell {
            min_pool,
            max_pool: 50,
            idle_timeout_seconds: Some(3.0),
            bursts: 3,
            first: latency(first_ms),
            operation: latency(first_ms + 5.0),
            created_in_cycles: created,
            cycles_seconds: 72.0,
            ..Cell::default()
        }
    }

    fn advised(asked: &ChurnSpec, cells: Vec<Cell>) -> Vec<Advice> {
        let target = model::Target::parse("mongodb://127.0.0.1").unwrap();
        let mut run = RunResult::new("churn", model::Spec::new(target, 50));
        run.spec.churn = Some(asked.clone());
        run.churn = Some(ChurnResult { cells, ..ChurnResult::default() });
        advise(&mut run);
        run.churn.unwrap().advice
    }

    #[test]
    fn the_least_minimum_that_meets_the_objective_is_advised_with_its_arithmetic() {
        let advice = advised(&asked(), vec![cell(0, 145.0, 40), cell(10, 4.0, 2), cell(30, 3.0, 0)]);
        let says: Vec<&str> = advice.iter().map(|a| a.says.as_str()).collect();
        assert_eq!(
            says,
            [
                "keep a minimum of 10",
                "let connections be idle for more than 35.0 s",
                "keep the maximum of each instance at 25 or less"
            ]
        );
        assert!(
            advice[0].because[1].contains("minimum 0 of 50") && advice[0].because[1].ends_with("too long")
        );
        assert!(
            advice[1].because[1].contains("2,000 connections an hour were made (40 in 72.0 s)"),
            "{advice:?}"
        );
        assert_eq!(advice[2].because[0], "20 instances × maximum 50 = 1,000");
        assert_eq!(advice[2].because[1], "20 instances × minimum 10 = 200");
    }

    #[test]
    fn where_none_does_what_was_not_tried_is_not_computed() {
        let advice = advised(&asked(), vec![cell(0, 145.0, 40), cell(10, 120.0, 2)]);
        assert!(advice[0].says.starts_with("none of the minimums"), "{advice:?}");
        assert!(advice[0].because.iter().any(|b| b.contains("--min-pool 20")), "{advice:?}");
        let all = ChurnSpec { burst: 10, ..asked() };
        let advice = advised(&all, vec![cell(10, 120.0, 2)]);
        assert!(advice[0].because.iter().any(|b| b.contains("not at the pool")), "{advice:?}");
    }

    #[test]
    fn an_operation_that_was_not_answered_meets_no_objective() {
        let good = cell(0, 1.0, 0);
        assert!(meets(&good, 0.1));
        assert!(!meets(&Cell { timeouts: 1, ..good.clone() }, 0.1));
        assert!(!meets(&Cell { failed: 1, ..good.clone() }, 0.1));
        assert!(!meets(&Cell { bursts: 0, ..good }, 0.1));
    }

    #[test]
    fn each_distance_has_its_own_minimum_and_the_greatest_decides() {
        let far = |cell: Cell| Cell { network_delay_seconds: 0.05, ..cell };
        let cells = vec![cell(0, 9.0, 0), far(cell(0, 400.0, 9)), far(cell(10, 55.0, 1))];
        let advice = advised(&asked(), cells.clone());
        assert_eq!(advice[0].says, "0 µs away: keep a minimum of 0");
        assert_eq!(advice[1].says, "50.0 ms away: keep a minimum of 10");
        let seen = ChurnResult { cells, ..ChurnResult::default() };
        assert_eq!(chosen(&asked(), &seen).unwrap().min_pool, 10);
    }

    #[test]
    fn a_server_that_closes_sooner_is_told() {
        let seen = ChurnResult {
            cells: vec![cell(0, 1.0, 0)],
            server_idle_seconds: Some(30.0),
            ..ChurnResult::default()
        };
        assert!(
            idle_timeout(&asked(), &seen).unwrap().says.contains("server's own idle time-out above 35.0 s")
        );
    }
}

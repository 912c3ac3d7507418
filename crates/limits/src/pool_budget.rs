//! Do the pools of all instances together fit into the server?

use model::result::{Finding, Side, Status};
use model::{RunResult, units};

use crate::pools::{self, Values};
use crate::{Limit, LimitFacts, churn};

/// The server's connections, shared out.
pub(crate) struct PoolBudget;

static FACTS: LimitFacts = LimitFacts {
    id: "pool.budget",
    side: Side::Client,
    question: "Do the pools of all instances together fit into the server?",
    doc: "Each instance of an application has a pool of its own, and nobody adds them up. Instances times minimum is what the \
          server holds even while nothing is asked of it; instances times maximum is what it must hold in the worst moment, \
          which is also when a new release runs beside the old one and doubles the instances.",
    how_to_see: "SHOW max_connections and count(*) of pg_stat_activity; CONFIG GET maxclients and INFO clients; \
        connections.available of MongoDB's serverStatus; times the replicas of the deployment",
    remedy_doc: "A smaller maximum for each instance, a pooler in front of the server, or a higher limit of the server's.",
};

/// What shows it.
const ASK: &str = "plimsoll churn URL --instances N --server-limit N";

impl Limit for PoolBudget {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let Some((asked, seen)) = churn::of(run) else {
            return churn::unknown(&FACTS, "only a churn sees an application's pool", ASK);
        };
        let totals = analysis::churn::worst_and_reserved(asked, seen);
        let (Some(limit), Some((worst, reserved))) = (analysis::churn::server_limit(asked, seen), totals)
        else {
            let why = "how many connections the server takes is not known; say it with --server-limit";
            return churn::unknown(&FACTS, why, ASK);
        };
        let instances = u64::from(asked.instances.max(1));
        let said = |total: u64| format!("{} of {}", units::count(total), units::count(limit));
        let mut finding = if reserved > limit {
            FACTS.finding(Status::Hit, format!("the minimums alone take {} connections", said(reserved)))
        } else if worst > limit {
            FACTS.finding(Status::Near, format!("at the worst the pools want {} connections", said(worst)))
        } else {
            FACTS.finding(Status::Clear, format!("at the worst the pools take {} connections", said(worst)))
        };
        finding.ceiling_connections = Some(limit);
        finding.evidence =
            seen.advice.iter().filter(|a| a.about == "budget").flat_map(|a| a.because.clone()).collect();
        let share = (limit / instances).max(1);
        let min = (reserved > limit).then_some(share);
        finding.remedy =
            pools::lines(run.spec.target.scheme, Values { min, max: Some(share), idle_seconds: None });
        finding
    }
}

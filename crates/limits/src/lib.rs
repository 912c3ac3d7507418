//! Pure: a file per limit, and the ladder.
//!
//! A limit is one question about one run, answered from the run's document alone: no socket, no clock, no
//! file, no /proc. To add one: write its file, and put its line into [`LIMITS`].
//!
//! Order of use: `analysis::conclude`, then [`judge`]. Both may be repeated on a stored run.

mod busy;
mod churn;
mod evidence;
mod lifting;
mod nice;
mod pools;
mod sides;
mod storm;
mod sweep;
mod sysctl;
mod talk;
mod verdict;
mod views;
mod warnings;

mod cgroup;
mod client_cpu;
mod client_ephemeral_ports;
mod client_memory;
mod client_nofile;
mod client_port_search;
mod host_conntrack;
mod host_cpu;
mod host_file_max;
mod host_memory;
mod host_tcp_memory;
mod listen_accept_queue;
mod listen_syn_queue;
mod pool_budget;
mod pool_churn;
mod pool_too_small;
mod pooler_queue;
mod server_accept_rate;
mod server_cpu;
mod server_handshake_cpu;
mod server_heap;
mod server_idle_timeout;
mod server_max_connections;
mod server_memory;
mod server_nofile;
mod server_stall;
mod server_threads;

#[cfg(test)]
mod known_cause_tests;
#[cfg(test)]
mod server_testing;
#[cfg(test)]
mod server_tests;
#[cfg(test)]
mod sweep_testing;
#[cfg(test)]
mod table_tests;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod verdict_tests;

use model::RunResult;
use model::result::{Finding, Side, Status};

pub use lifting::{Place, Setting, lifting};
pub use verdict::verdict;

/// One question about one run. Pure; asked once, after sampling has ended, or of a stored run.
pub trait Limit: Sync {
    /// What is known of it without any run.
    fn facts(&self) -> &'static LimitFacts;

    /// Where the run stands with it.
    ///
    /// Called by [`ladder`]; a run without stages is one that has not begun (`doctor`): then the answer comes
    /// from settings alone, and is never `Hit`. May not look at `run.limits` or `run.verdict`.
    fn judge(&self, run: &RunResult) -> Finding;
}

/// What is known of a limit without any run; the documentation's table is made from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitFacts {
    /// Its name in the catalogue: `server.nofile`.
    pub id: &'static str,
    /// Whose it is.
    pub side: Side,
    /// What it answers; ends in a question mark.
    pub question: &'static str,
    /// What it is, and how it shows.
    pub doc: &'static str,
    /// Where to read it by hand.
    pub how_to_see: &'static str,
    /// What lifts it, in words; a finding has the lines for its host.
    pub remedy_doc: &'static str,
}

impl LimitFacts {
    /// A finding of this limit, still without ceiling, evidence and remedy.
    fn finding(&self, status: Status, summary: impl Into<String>) -> Finding {
        Finding {
            id: self.id.to_owned(),
            side: self.side,
            status,
            summary: summary.into(),
            ceiling_connections: None,
            ceiling_low: None,
            ceiling_high: None,
            evidence: Vec::new(),
            remedy: Vec::new(),
        }
    }
}

/// Every limit that a run is judged by; of causes and symptoms of the same ceiling, the cause first.
pub static LIMITS: &[&dyn Limit] = &[
    &client_ephemeral_ports::ClientEphemeralPorts,
    // The host's table of files is full for every process at once: both nofile limits look like it.
    &host_file_max::HostFileMax,
    &client_nofile::ClientNofile,
    &client_cpu::ClientCpu,
    &server_nofile::ServerNofile,
    &server_threads::ServerThreads,
    &server_memory::ServerMemory,
    &host_memory::HostMemory,
    &host_tcp_memory::HostTcpMemory,
    // That the generator found no memory is what a full host looks like from here.
    &client_memory::ClientMemory,
    &server_heap::ServerHeap,
    &server_idle_timeout::ServerIdleTimeout,
    &server_max_connections::ServerMaxConnections,
    // It ends growth and breaks nothing.
    &pooler_queue::PoolerQueue,
    &host_conntrack::HostConntrack,
    &server_handshake_cpu::ServerHandshakeCpu,
    &server_accept_rate::ServerAcceptRate,
    &host_cpu::HostCpu,
    &server_cpu::ServerCpu,
    &server_stall::ServerStall,
    // A server that does not accept in time fills its queues, the half-open connections' last.
    &listen_accept_queue::ListenAcceptQueue,
    &listen_syn_queue::ListenSynQueue,
    // It slows down and breaks nothing.
    &client_port_search::ClientPortSearch,
    // What an application's own pool does; only a churn sees it.
    &pool_budget::PoolBudget,
    &pool_too_small::PoolTooSmall,
    &pool_churn::PoolChurn,
];

/// The ladder: the finding of every limit that concerns the run, lowest ceiling first, those without a ceiling last; of equal ones those
/// that were hit first.
pub fn ladder(run: &RunResult) -> Vec<Finding> {
    let there = sides::from_the_target(run);
    let asked = LIMITS.iter().filter(|limit| concerns(limit.facts(), run));
    let mut findings: Vec<Finding> = asked.map(|limit| sides::judge(*limit, run, there.as_ref())).collect();
    findings.sort_by_key(|f| (f.ceiling_connections.unwrap_or(u64::MAX), f.status));
    findings
}

/// Whether a limit has to do with a run at all: a churn has pools and no stages, all others have stages and no pools.
fn concerns(facts: &LimitFacts, run: &RunResult) -> bool {
    facts.id.starts_with("pool.") == run.spec.churn.is_some()
}

/// Fills `limits` of a run that `analysis::conclude` has been through, and with [`verdict()`] what follows
/// from them, of the ways `beside` as well; whatever stood there is replaced.
pub fn judge(result: &mut RunResult) {
    result.beside.iter_mut().for_each(judge);
    result.limits = ladder(result);
    verdict(result);
}

/// What would break for `spec.connections`, before the first one is opened: the ladder from settings alone.
///
/// A ceiling below what is asked has the status `Near` and the summary "would stop at N of M asked".
pub fn doctor(settings_only: &RunResult) -> Vec<Finding> {
    ladder(settings_only)
}

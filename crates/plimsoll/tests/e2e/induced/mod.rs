//! Is each limit named first, every time, when it is induced for real? And do the lines that lift it lift it?

mod client;
mod databases;
mod host;
mod server;

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{Ended, PLIMSOLL, directory, say, start_command, tool};
use model::RunResult;
use model::result::{Finding, Status};
use testkit::cgroup::Cgroup;

/// How often each limit is induced. Only the last stage of a ramp goes beyond it: each further one would wait out the
/// patience once more.
const REPEATS: usize = 3;
/// In the environment: how often instead, where time is short.
const REPEATS_ASKED: &str = "INDUCE_REPEATS";

fn repeats() -> usize {
    let asked = std::env::var(REPEATS_ASKED).ok().and_then(|n| n.parse().ok());
    asked.unwrap_or(REPEATS).max(1)
}

fn finding<'a>(result: &'a RunResult, id: &str) -> &'a Finding {
    result.limits.iter().find(|f| f.id == id).unwrap_or_else(|| panic!("{id} is not on the ladder"))
}

/// Runs it as often as that; each time this limit is named first, with evidence and a remedy. Gives the last.
fn named_first(id: &str, mut run: impl FnMut() -> Ended) -> Finding {
    let mut last = None;
    for repeat in 1..=repeats() {
        let ended = run();
        let result = ended.result();
        let said = &result.verdict.sentence;
        let named = finding(&result, id);
        let first = result.verdict.first_limit.as_deref();
        assert_eq!(first, Some(id), "in repeat {repeat}: {said}; {named:?}");
        assert_eq!(named.status, Status::Hit, "in repeat {repeat}: {named:?}");
        assert!(!named.evidence.is_empty() && !named.remedy.is_empty(), "in repeat {repeat}: {named:?}");
        last = Some(named.clone());
    }
    last.expect("it was repeated")
}

/// Runs the lines of a remedy that are commands, exactly as they were printed.
fn apply(finding: &Finding, commands: &[&str]) {
    let is_command = |line: &&String| commands.iter().any(|c| line.starts_with(c));
    let lines: Vec<&String> = finding.remedy.iter().filter(is_command).collect();
    assert!(!lines.is_empty(), "no line of the remedy can be run: {:?}", finding.remedy);
    for line in lines {
        let done = Command::new("sh").args(["-euc", line]).output().expect("sh is there");
        assert!(done.status.success(), "{line}: {}", String::from_utf8_lossy(&done.stderr));
    }
}

/// The run passes: everything is held, and this limit is not met any more.
fn passes(id: &str, ended: &Ended) {
    ended.expect_code(0);
    let result = ended.result();
    assert!(result.verdict.held, "{}", result.verdict.sentence);
    assert_ne!(finding(&result, id).status, Status::Hit, "{}", result.verdict.sentence);
}

/// Runs an experiment in a network namespace of its own, after some lines of shell have prepared it. `None`: this machine
/// has none.
fn run_in_namespace(prepare: &str, words: &[&str]) -> Option<Ended> {
    let possible = tool("unshare").args(["-n", "ip", "link", "set", "lo", "up"]).output();
    if !possible.is_ok_and(|done| done.status.success()) {
        say("skipped: no network namespace can be made here");
        return None;
    }
    let directory = directory();
    let result = directory.path().join("result.json");
    let script = format!("ip link set lo up\n{prepare}\nexec \"$0\" \"$@\"");
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-euc", &script, PLIMSOLL]).args(words);
    command.arg("--quiet").arg("--json").arg(result);
    Some(start_command(directory, command).finish())
}

/// A control group with a limit, of its own for each test. `None`, having said why: this machine allows none.
fn group<L>(make: fn(&str, L) -> Result<Cgroup, String>, limit: L) -> Option<Cgroup> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let made = make(&format!("plimsoll-induced-{}-{number}", std::process::id()), limit);
    made.inspect_err(|why| say(&format!("skipped: {why}"))).ok()
}

/// The ladder's figure from a run that broke nothing, against the number at which it broke.
fn foretold(id: &str, smaller: &Ended, found: u64, tolerated_percent: u64) {
    smaller.expect_code(0);
    let told = finding(&smaller.result(), id).clone();
    let ceiling = told.ceiling_connections.unwrap_or_else(|| panic!("nothing was foretold: {told:?}"));
    say(&format!("{id}: {ceiling} foretold, {found} found"));
    assert!(ceiling.abs_diff(found) * 100 <= found * tolerated_percent, "{found} found: {told:?}");
}

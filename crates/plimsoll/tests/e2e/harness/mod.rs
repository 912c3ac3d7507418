//! What the end-to-end tests stand on: the real binary started, watched from outside, waited for and read.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::thread::sleep;
use std::time::Duration;

use model::RunResult;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use tempfile::TempDir;
use testkit::limited::{Limits, Running, Signal};

/// The binary under test.
pub(crate) const PLIMSOLL: &str = env!("CARGO_BIN_EXE_plimsoll");

/// No run of these tests takes longer than this, whatever happens.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long anything may take that a busy machine merely delays.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// Seconds of the monotonic clock.
pub(crate) fn now() -> f64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// Waits until `look` gives something.
///
/// # Panics
/// If it does not within `patience`.
pub(crate) fn wait_until<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Option<T>) -> T {
    let end = now() + patience.as_secs_f64();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(now() < end, "waited {patience:?} in vain until {what}");
        sleep(Duration::from_millis(5));
    }
}

/// Held for reading by each test that starts something, and for writing by a test that must be alone.
static COMPANY: RwLock<()> = RwLock::new(());

thread_local! {
    /// What this test, which has its thread, holds of [`COMPANY`].
    static PLACE: RefCell<Place> = const { RefCell::new(Place::None) };
}

enum Place {
    None,
    /// Until the test's thread ends.
    InCompany {
        _guard: RwLockReadGuard<'static, ()>,
    },
    Alone,
}

/// While it lives, nothing is started by any other test: for tests that judge rates, latencies or memory.
pub(crate) struct Alone {
    _guard: RwLockWriteGuard<'static, ()>,
}

/// Waits until no other test has anything running.
pub(crate) fn alone() -> Alone {
    PLACE.set(Place::None);
    // a test that failed while it held it has said so itself
    let alone = Alone { _guard: COMPANY.write().unwrap_or_else(PoisonError::into_inner) };
    PLACE.set(Place::Alone);
    alone
}

impl Drop for Alone {
    fn drop(&mut self) {
        PLACE.set(Place::None);
    }
}

/// Waits until no other test is alone, unless it is this one that is.
fn in_company() {
    if PLACE.with_borrow(|place| matches!(place, Place::None)) {
        let guard = COMPANY.read().unwrap_or_else(PoisonError::into_inner);
        PLACE.set(Place::InCompany { _guard: guard });
    }
}

/// A program of this machine, to be run as a child of this process: never beside a test that is alone.
pub(crate) fn tool(program: &str) -> Command {
    in_company();
    Command::new(program)
}

/// An empty directory, removed with its guard.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

/// A free port of 127.0.0.1 outside the range from which clients get theirs, so that no connection of another test
/// takes it meanwhile.
pub(crate) fn port() -> u16 {
    testkit::loopback::free_port().expect("a free port")
}

/// The root of the repository.
pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A command that nothing in the environment changes; what it keeps between runs goes to `state`.
fn without_surroundings(mut command: Command, state: &Path) -> Command {
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"PLIMSOLL_") {
            command.env_remove(name);
        }
    }
    command.env("XDG_STATE_HOME", state).stdin(Stdio::null());
    command
}

/// The binary with arguments, started but not waited for.
pub(crate) struct Going {
    pub(crate) running: Running,
    pub(crate) directory: TempDir,
    began: f64,
}

/// Starts `plimsoll WORDS…`.
pub(crate) fn start(words: &[&str]) -> Going {
    start_in(directory(), words)
}

/// Starts `plimsoll WORDS…` with a directory in which it may find something.
pub(crate) fn start_in(directory: TempDir, words: &[&str]) -> Going {
    let mut command = Command::new(PLIMSOLL);
    command.args(words);
    start_command(directory, command)
}

/// Starts a command that ends in the binary; what it says goes to files, so that it never waits for us.
pub(crate) fn start_command(directory: TempDir, command: Command) -> Going {
    in_company();
    let mut command = without_surroundings(command, directory.path());
    let file = |name: &str| File::create(directory.path().join(name)).expect("a file for what it says");
    command.stdout(file("stdout")).stderr(file("stderr"));
    let began = now();
    let running = Running::start(&mut command).expect("the binary starts");
    Going { running, directory, began }
}

/// Starts a hold that writes `result.json` and says on standard error how far it is.
pub(crate) fn start_hold(url: &str, flags: &[&str]) -> Going {
    start_hold_by(Command::new(PLIMSOLL), url, flags)
}

/// The same by a command that ends in the binary: under lowered limits, in a control group.
pub(crate) fn start_hold_by(mut command: Command, url: &str, flags: &[&str]) -> Going {
    let directory = directory();
    command.arg("hold").arg(url).args(flags).arg("--json").arg(directory.path().join("result.json"));
    start_command(directory, command)
}

/// Runs a quiet hold to its end.
pub(crate) fn hold(url: &str, flags: &[&str]) -> Ended {
    start_hold(url, &[flags, &["--quiet"]].concat()).finish()
}

/// Runs `plimsoll WORDS…` to its end.
pub(crate) fn run(words: &[&str]) -> Ended {
    start(words).finish()
}

/// Runs something whose measurement must be trusted, once more if the machine was too busy with other things.
///
/// A run that says that the generator itself came late is right to say so on a machine that builds something beside.
pub(crate) fn trusted(mut run: impl FnMut() -> Ended) -> Ended {
    for _ in 0..3 {
        let ended = run();
        let late = ended.code == 4 && ended.result().verdict.first_limit.as_deref() == Some("client.cpu");
        if !late {
            return ended;
        }
    }
    run()
}

impl Going {
    /// What it has said on standard error so far.
    pub(crate) fn stderr(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.path().join("stderr")).unwrap_or_default())
            .into_owned()
    }

    /// Waits until it has finished so many stages; after the last of a ramp it holds.
    pub(crate) fn wait_for_stages(&mut self, stages: usize) {
        let mut end = None;
        wait_until("the stages were over", PATIENCE, || {
            end = end.or(self.running.wait_for(Duration::ZERO).expect("it can be waited for"));
            let said = self.stderr();
            assert!(end.is_none(), "it ended before stage {stages} with {end:?}: {said}");
            (said.matches("stage of ").count() >= stages).then_some(())
        });
    }

    /// Its worker processes.
    pub(crate) fn workers(&self) -> Vec<u32> {
        let words = |pid: &u32| fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut children = children_of(self.running.pid());
        children.retain(|pid| words(pid).split(|b| *b == 0).nth(1) == Some(b"worker"));
        children
    }

    /// Waits for its end.
    pub(crate) fn finish(self) -> Ended {
        self.finish_within(PATIENCE)
    }

    /// Waits for its end for so long.
    pub(crate) fn finish_within(mut self, patience: Duration) -> Ended {
        let status = self.running.wait_for(patience).expect("it can be waited for");
        let seconds = now() - self.began;
        let read = |name: &str| {
            let bytes = fs::read(self.directory.path().join(name)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let (stdout, stderr) = (read("stdout"), read("stderr"));
        let status = status.unwrap_or_else(|| panic!("it still ran after {patience:?}: {stdout}{stderr}"));
        assert!(!stderr.contains("panicked"), "{stderr}");
        let code = status.code().unwrap_or_else(|| panic!("it was ended by a signal: {status}: {stderr}"));
        Ended { code, seconds, stdout, stderr, directory: self.directory }
    }
}

/// The binary at its end.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) seconds: f64,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) directory: TempDir,
}

impl Ended {
    /// Where the result was written.
    pub(crate) fn file(&self) -> PathBuf {
        self.directory.path().join("result.json")
    }

    /// The result that it wrote, which is what the schema in docs/ promises.
    pub(crate) fn result(&self) -> RunResult {
        let bytes = fs::read(self.file()).unwrap_or_default();
        let document: Value = serde_json::from_slice(&bytes)
            .unwrap_or_else(|e| panic!("no JSON was written: {e}: exit {}: {}", self.code, self.stderr));
        let schema = fs::read(repository().join("docs/result.schema.json")).expect("the schema");
        let schema: Value = serde_json::from_slice(&schema).expect("the schema is JSON");
        let validator = jsonschema::validator_for(&schema).expect("the schema is one");
        let errors: Vec<String> =
            validator.iter_errors(&document).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(errors.is_empty(), "not what docs/result.schema.json says: {errors:#?}");
        report::read(&bytes).expect("what was written can be read")
    }

    /// Everything that it said.
    pub(crate) fn said(&self) -> String {
        format!("exit {} after {:.1} s\n{}{}", self.code, self.seconds, self.stdout, self.stderr)
    }

    /// Asserts the exit code; if it is another, everything that was said is shown.
    pub(crate) fn expect_code(&self, code: i32) {
        assert_eq!(self.code, code, "{}", self.said());
    }

    /// Asserts that each of these words was said.
    pub(crate) fn expect_words(&self, words: &[&str]) {
        for word in words {
            assert!(self.said().contains(word), "{word:?} is missing: {}", self.said());
        }
    }
}

/// `plimsoll serve`, listening.
pub(crate) struct Node {
    pub(crate) running: Running,
    pub(crate) port: u16,
    scheme: &'static str,
    directory: TempDir,
}

impl Node {
    /// Starts a node for one scheme, in one process unless the flags say otherwise.
    pub(crate) fn start(scheme: &'static str, flags: &[&str]) -> Self {
        Self::start_under(Limits::default(), scheme, flags)
    }

    /// The same, listening at another address.
    pub(crate) fn start_at(address: &str, scheme: &'static str, flags: &[&str]) -> Self {
        Self::start_with(Limits::default(), address, scheme, flags)
    }

    /// The same under lowered limits.
    pub(crate) fn start_under(limits: Limits, scheme: &'static str, flags: &[&str]) -> Self {
        Self::start_with(limits, "127.0.0.1", scheme, flags)
    }

    fn start_with(limits: Limits, address: &str, scheme: &'static str, flags: &[&str]) -> Self {
        let (directory, port) = (directory(), port());
        let mut command = limits.command(PLIMSOLL);
        command.arg("serve").arg(format!("{scheme}://{address}:{port}"));
        if !flags.contains(&"--processes") {
            command.args(["--processes", "1"]);
        }
        command.args(flags);
        let Going { running, directory, .. } = start_command(directory, command);
        let node = Self { running, port, scheme, directory };
        wait_until("the node listens", SOON, || {
            fs::read_to_string(node.directory.path().join("stdout"))
                .is_ok_and(|said| said.contains("Ctrl-C ends it"))
                .then_some(())
        });
        node
    }

    pub(crate) fn url(&self) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.port)
    }

    /// The file of the certificate that it signed itself.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.directory.path().join("plimsoll/node-cert.pem")
    }

    /// Its processes.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let pid = self.running.pid();
        [vec![pid], children_of(pid)].concat()
    }
}

/// A real server, started by its script in targets/ and stopped with its guard.
pub(crate) struct Stranger {
    name: &'static str,
    pub(crate) port: u16,
}

impl Stranger {
    /// `None`, having said why: it is not to be had on this machine. In CI it must be.
    pub(crate) fn start(name: &'static str) -> Option<Self> {
        Self::start_with(name, &[])
    }

    /// The same with settings of its own, which its script reads from the environment.
    pub(crate) fn start_with(name: &'static str, settings: &[(&str, &str)]) -> Option<Self> {
        in_company();
        let installed = script(name, &["install"], &[]);
        if !installed.status.success() {
            let why = String::from_utf8_lossy(&installed.stderr).into_owned();
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{name} cannot be installed: {why}");
            say(&format!("skipped, as {name} cannot be installed here: {why}"));
            return None;
        }
        let port = port();
        // from here on it is stopped, whatever happens
        let stranger = Self { name, port };
        let started = script(name, &["start", &port.to_string()], settings);
        assert!(started.status.success(), "{name}: {}", String::from_utf8_lossy(&started.stderr));
        Some(stranger)
    }

    /// Where its script keeps what belongs to it.
    pub(crate) fn state(&self) -> PathBuf {
        repository().join(format!("target/targets/{}-{}", self.name, self.port))
    }

    /// Stops it and starts it again on what it has kept.
    pub(crate) fn restart(&self) {
        let again = script(self.name, &["restart", &self.port.to_string()], &[]);
        assert!(again.status.success(), "{}: {}", self.name, String::from_utf8_lossy(&again.stderr));
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        script(self.name, &["stop", &self.port.to_string()], &[]);
    }
}

fn script(name: &str, words: &[&str], settings: &[(&str, &str)]) -> Output {
    let path = repository().join("targets").join(format!("{name}.sh"));
    Command::new("bash").arg(path).args(words).envs(settings.iter().copied()).output().expect("bash is there")
}

#[expect(clippy::print_stderr, reason = "a test that is skipped says why")]
pub(crate) fn say(line: &str) {
    eprintln!("{line}");
}

/// The processes that a process has started and that have not ended.
pub(crate) fn children_of(parent: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
    let lists = tasks.map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>())
        .collect()
}

/// Whether a process is there and is not just waiting to be collected.
pub(crate) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['Z', 'X']))
}

/// Descriptors that a process has open.
pub(crate) fn descriptors(pid: u32) -> u64 {
    fs::read_dir(format!("/proc/{pid}/fd")).map_or(0, |entries| entries.count() as u64)
}

/// Memory of a process, shared pages by their share (`Pss` of smaps_rollup), in bytes.
pub(crate) fn proportional_bytes(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("its memory can be read");
    let kib = text.lines().find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix(" kB"));
    kib.and_then(|kib| kib.trim().parse::<u64>().ok()).expect("smaps_rollup has Pss") * 1024
}

/// Established connections whose far end is this port of 127.0.0.1: the clients' ends, as another tool counts them.
pub(crate) fn established_to(port: u16) -> u64 {
    let filter = format!("dst 127.0.0.1:{port}");
    match Command::new("ss").args(["-Htn", "state", "established"]).args(filter.split(' ')).output() {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).lines().count() as u64
        }
        _ => established_by_proc(port),
    }
}

/// The same from /proc/net/tcp, where there is no `ss`.
fn established_by_proc(port: u16) -> u64 {
    let text = fs::read_to_string("/proc/net/tcp").expect("/proc/net/tcp can be read");
    let remote = format!("0100007F:{port:04X}");
    let fields = |line: &str| line.split_whitespace().skip(2).take(2).map(str::to_owned).collect::<Vec<_>>();
    text.lines().filter(|line| fields(line) == [remote.as_str(), "01"]).count() as u64
}

/// Sends a signal to a process that is not this one's child.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = rustix::process::Pid::from_raw(pid as i32).expect("a process id");
    rustix::process::kill_process(pid, signal.into()).expect("the signal can be sent");
}

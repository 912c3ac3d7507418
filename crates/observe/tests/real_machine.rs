//! The observer on this machine: a server in a process of its own, with known figures.
//!
//! The server is this test program started again (see `server`); it is told what to do over its standard
//! input, a line at a time, and answers each line with one.

#![expect(clippy::unwrap_used, reason = "a test's helpers may stop it")]

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use model::Observation;
use observe::{Finder, Observer, Root};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with};
use rustix::time::{ClockId, clock_gettime};

const MIB: u64 = 1024 * 1024;

/// The server's side. Does nothing in an ordinary test run.
#[test]
fn server() {
    let Some(backlog) = std::env::var_os("OBSERVE_TEST_BACKLOG") else { return };
    let backlog = backlog.to_str().unwrap().parse().unwrap();
    let listener = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
    bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    listen(&listener, backlog).unwrap();
    let address: SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
    println!("\nanswer {address}");
    let (mut memory, mut files, mut children, mut threads) = (vec![], vec![], vec![], vec![]);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (what, count) = line.split_once(' ').unwrap();
        let count: usize = count.parse().unwrap();
        match what {
            "touch" => memory.push(vec![1u8; count]),
            "files" => files.extend((0..count).map(|_| std::fs::File::open("/dev/null").unwrap())),
            "children" => {
                children.extend((0..count).map(|_| Command::new("sleep").arg("60").spawn().unwrap()));
            }
            "threads" => threads.extend((0..count).map(|_| std::thread::spawn(std::thread::park))),
            "spin" => (0..count).for_each(|_| drop(std::thread::spawn(spin))),
            "accept" => (0..count).for_each(|_| files.push(rustix::net::accept(&listener).unwrap().into())),
            // Burns CPU in a child, which is then waited for.
            "burn" => drop(
                Command::new("timeout")
                    .args([&format!("0.{count}"), "sh", "-c", "while :; do :; done"])
                    .status(),
            ),
            _ => break,
        }
        println!("\nanswer {what}");
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Keeps a CPU busy until the end of this process.
fn spin() {
    loop {
        std::hint::spin_loop();
    }
}

/// A running server.
struct Server {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Server {
    fn start(backlog: i32) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "server", "--nocapture"])
            .env("OBSERVE_TEST_BACKLOG", backlog.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        let mut server = Self { child, to, from, address: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)) };
        server.address = server.answer().parse().unwrap();
        server
    }

    fn answer(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert_ne!(self.from.read_line(&mut line).unwrap(), 0, "the server has ended");
            if let Some(answer) = line.strip_prefix("answer ") {
                return answer.trim().to_owned();
            }
        }
    }

    fn ask(&mut self, what: &str, count: usize) {
        writeln!(self.to, "{what} {count}").unwrap();
        assert_eq!(self.answer(), what);
    }

    fn observer(&self) -> Observer {
        Observer::new(Root::host(), std::process::id(), Finder::Port(vec![self.address]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = writeln!(self.to, "end 0");
        let _ = self.child.wait();
    }
}

fn observe(observer: &mut Observer) -> Observation {
    let seen = observer.observe();
    assert_eq!(observer.target_hidden(), None);
    seen
}

#[test]
fn a_listening_process_is_found_with_its_tree() {
    let mut server = Server::start(50);
    let mut observer = server.observer();
    let alone = observer.target_processes();
    assert_eq!(alone.len(), 1, "{alone:?}");
    assert_eq!((alone[0].pid, alone[0].role.as_str()), (server.child.id(), "listens"));
    server.ask("children", 3);
    let tree = observer.target_processes();
    assert_eq!(tree.len(), 4, "{tree:?}");
    assert_eq!(tree.iter().filter(|p| p.role == "child" && p.name == "sleep").count(), 3, "{tree:?}");
    let seen = observe(&mut observer);
    assert_eq!(seen.target.unwrap().processes, 4);
    assert!(observer.same_host());
    // The generator is this test, without the server's tree that descends from it.
    let settings = observer.settings();
    assert_eq!(settings.worker.pid, std::process::id());
    assert_eq!(settings.target.len(), 1);
    assert!(settings.target[0].nofile_soft > Some(0));
    let path = format!("/proc/{}/limits", server.child.id());
    let limits = std::fs::read_to_string(path).unwrap();
    assert!(limits.contains(&settings.target[0].nofile_hard.unwrap().to_string()));
}

#[test]
fn the_accept_queue_grows_and_is_drained() {
    let mut server = Server::start(23);
    let mut observer = server.observer();
    let empty = observe(&mut observer).listener.unwrap();
    assert_eq!((empty.sockets, empty.queued, empty.backlog), (1, 0, 23));
    let clients: Vec<_> = (0..11).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    assert_eq!(observer.glance().listener.unwrap().queued, 11);
    server.ask("accept", 7);
    assert_eq!(observer.glance().listener.unwrap().queued, 4);
    drop(clients);
}

#[test]
fn memory_grows_by_what_is_touched() {
    let mut server = Server::start(1);
    let mut observer = server.observer();
    let before = observe(&mut observer).target.unwrap();
    server.ask("touch", 64 * 1024 * 1024);
    let after = observe(&mut observer).target.unwrap();
    let grown = after.user_bytes.unwrap() - before.user_bytes.unwrap();
    // Shared pages of the program itself count less as other tests start it as well.
    assert!((63 * MIB..65 * MIB).contains(&grown), "grown by {grown}");
    assert!(after.page_table_bytes > Some(0));
}

#[test]
fn descriptors_and_threads_are_counted_exactly() {
    let mut server = Server::start(1);
    let mut observer = server.observer();
    let before = observe(&mut observer).target.unwrap();
    server.ask("files", 701);
    server.ask("threads", 13);
    let after = observe(&mut observer).target.unwrap();
    assert_eq!(after.descriptors.unwrap() - before.descriptors.unwrap(), 701);
    assert_eq!(after.most_descriptors, after.descriptors);
    assert_eq!(after.threads - before.threads, 13);
    // Both ways of counting agree.
    let entries = std::fs::read_dir(format!("/proc/{}/fd", server.child.id())).unwrap().count();
    assert_eq!(after.descriptors, Some(entries as u64));
}

#[test]
fn a_thread_that_never_rests_is_the_busiest() {
    let mut server = Server::start(1);
    let mut observer = server.observer();
    assert_eq!(observe(&mut observer).target.unwrap().busiest_thread_cpus, None);
    std::thread::sleep(std::time::Duration::from_millis(300));
    let resting = observe(&mut observer).target.unwrap().busiest_thread_cpus.unwrap();
    server.ask("spin", 1);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let spinning = observe(&mut observer).target.unwrap().busiest_thread_cpus.unwrap();
    // Other tests take turns on the same CPUs.
    assert!(resting < 0.05 && (0.1..1.1).contains(&spinning), "{resting}, then {spinning}");
}

#[test]
fn the_time_of_ended_children_is_kept() {
    let mut server = Server::start(1);
    let mut observer = server.observer();
    let before = observer.glance().target_cpu_seconds.unwrap();
    server.ask("burn", 4);
    let after = observer.glance().target_cpu_seconds.unwrap();
    // Other tests take turns on the same CPUs, so 0.4 s of wall time may be less of CPU time.
    assert!((0.02..0.6).contains(&(after - before)), "{before} to {after}");
}

#[test]
fn a_port_that_nobody_listens_on_and_an_address_elsewhere() {
    let pid = std::process::id();
    let mut observer =
        Observer::new(Root::host(), pid, Finder::Port(vec!["192.0.2.1:7000".parse().unwrap()]));
    assert_eq!(observer.observe().target, None);
    assert!(observer.target_hidden().unwrap().contains("the target is remote"));
    assert!(!observer.same_host());
    let mut observer = Observer::new(Root::host(), pid, Finder::Port(vec!["127.0.0.1:1".parse().unwrap()]));
    assert_eq!(observer.observe().listener, None);
    assert!(observer.target_hidden().unwrap().contains("listens on 127.0.0.1:1"));
}

#[test]
fn this_machine_is_read_without_a_warning() {
    let server = Server::start(1);
    let mut observer = server.observer();
    let host = observer.host();
    assert!(!host.name.is_empty() && !host.kernel.is_empty() && host.memory_bytes > 0);
    let allowed = std::thread::available_parallelism().unwrap().get();
    assert_eq!(host.cpus as usize, allowed);
    let seen = observe(&mut observer);
    assert!(seen.host.memory_available_bytes > Some(0) && seen.host.slab_bytes > Some(0));
    assert!(seen.host.files > Some(0) && seen.host.cpu_busy_seconds > Some(0.0));
    assert!(seen.host.tcp_in_use.is_some() && seen.tcp.retransmits.is_some());
    assert!(seen.tcp.listen_overflows.is_some());
    let settings = observer.host_settings();
    assert!(settings.port_range.is_some() && settings.somaxconn > Some(0) && settings.file_max > Some(0));
    assert!(settings.tcp_mem_pages.is_some() && settings.pid_max > Some(0));
    assert_eq!(observer.take_warnings(), Vec::<String>::new());
}

/// The look of `another_users_target_is_hidden`, as another user. Does nothing in an ordinary test run.
#[test]
fn as_nobody() {
    let Some(target) = std::env::var_os("OBSERVE_TEST_TARGET") else { return };
    let (pid, address) = target.to_str().unwrap().split_once(' ').unwrap();
    let own = std::process::id();
    let mut by_port = Observer::new(Root::host(), own, Finder::Port(vec![address.parse().unwrap()]));
    let seen = by_port.observe();
    assert!(seen.target.is_none() && seen.listener.is_some());
    let reason = by_port.target_hidden().unwrap();
    assert!(reason.contains("run Plimsoll as the same user or as root, or name the process with --pid"));

    let mut by_pid = Observer::new(Root::host(), own, Finder::Pid(pid.parse().unwrap()));
    let target = by_pid.observe().target.unwrap();
    assert_eq!((target.processes, target.user_bytes), (1, None));
    assert!(target.page_table_bytes > Some(0) && target.threads > 0);
    let warnings = by_pid.take_warnings().join("\n");
    assert!(
        warnings.contains(&format!("failed to read /proc/{pid}/smaps_rollup: permission denied")),
        "{warnings}"
    );
    println!("\nanswer hidden");
}

#[test]
fn another_users_target_is_hidden() {
    use std::os::unix::process::CommandExt;
    let server = Server::start(1);
    let looked = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "as_nobody", "--nocapture"])
        .env("OBSERVE_TEST_TARGET", format!("{} {}", server.child.id(), server.address))
        .uid(65_534)
        .gid(65_534)
        .output();
    match looked {
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => {
            println!("skipped: only root can look as another user");
        }
        looked => {
            let looked = looked.unwrap();
            let said = String::from_utf8_lossy(&looked.stdout).into_owned();
            assert!(said.contains("answer hidden"), "{said}{}", String::from_utf8_lossy(&looked.stderr));
        }
    }
}

/// A cgroup v1 that is removed again.
struct Box1(std::path::PathBuf);

impl Box1 {
    fn new(controller: &str, name: &str) -> Option<Self> {
        let path = std::path::Path::new("/sys/fs/cgroup").join(controller).join(name);
        std::fs::create_dir(&path).ok()?;
        let made = Self(path);
        made.0.join("cgroup.procs").exists().then_some(made)
    }

    fn write(&self, file: &str, value: impl ToString) {
        std::fs::write(self.0.join(file), value.to_string()).unwrap();
    }
}

impl Drop for Box1 {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn limits_of_a_real_cgroup_are_read_where_they_are_set() {
    let name = format!("plimsoll-observe-{}", std::process::id());
    let groups = Box1::new("memory", &name).zip(Box1::new("pids", &name)).zip(Box1::new("cpu", &name));
    let Some(((memory, pids), cpu)) = groups else {
        println!("skipped: cgroup v1 cannot be written here");
        return;
    };
    let inner = Box1::new("pids", &format!("{name}/inner")).unwrap();
    memory.write("memory.limit_in_bytes", 256 * MIB);
    pids.write("pids.max", 77);
    cpu.write("cpu.cfs_quota_us", 50_000);
    let server = Server::start(1);
    for group in [&memory, &inner, &cpu] {
        group.write("cgroup.procs", server.child.id());
    }
    let cgroup = observe(&mut server.observer()).target.unwrap().cgroup.unwrap();
    assert_eq!(cgroup.path, format!("/{name}"));
    assert_eq!((cgroup.memory_limit_bytes, cgroup.pids_limit), (Some(256 * MIB), Some(77)));
    assert_eq!((cgroup.cpu_limit, cgroup.oom_kills), (Some(0.5), Some(0)));
    // The server and its test thread.
    assert_eq!(cgroup.pids, Some(2));
    assert!(cgroup.memory_bytes.is_some() && cgroup.throttled_seconds.is_some());
    let mut by_cgroup = Observer::new(Root::host(), std::process::id(), Finder::Cgroup(cgroup.path))
        .listening_at(vec![server.address]);
    // It is a descendant of this test, and so of the generator: what is named by its cgroup may not be.
    assert!(by_cgroup.target_processes().is_empty());
    assert!(by_cgroup.target_hidden().unwrap().contains("no process is in the cgroup"));
    // A cgroup can only be removed when it is empty: the server first, the inner group before the outer.
    drop(server);
    drop(inner);
}

/// What looking costs. Not a test of anything: run it with
/// `cargo test --release -p plimsoll-observe --test real_machine cost -- --ignored --nocapture`.
#[test]
#[ignore = "measures for some seconds and prints figures"]
fn cost() {
    let micros = |what: &mut dyn FnMut()| {
        let now = || clock_gettime(ClockId::Monotonic);
        let one = |what: &mut dyn FnMut()| {
            let before = now();
            what();
            let after = now();
            (after.tv_sec - before.tv_sec) * 1_000_000 + (after.tv_nsec - before.tv_nsec) / 1000
        };
        let mut all: Vec<i64> = (0..21).map(|_| one(what)).collect();
        all.sort_unstable();
        all[10]
    };
    for (processes, files, touched) in [(1, 0, 0), (1, 10_000, 0), (100, 10_000, 0), (100, 10_000, 10 * MIB)]
    {
        let mut servers: Vec<Server> = (0..processes).map(|_| Server::start(1)).collect();
        for server in &mut servers {
            server.ask("files", files);
            server.ask("touch", usize::try_from(touched).unwrap());
        }
        let mut observer = servers[0].observer();
        observer.observe();
        let observe = micros(&mut || _ = observer.observe());
        let glance = micros(&mut || _ = observer.glance());
        println!(
            "{processes} processes, {files} descriptors and {} MiB each: observe {observe} us, glance {glance} us",
            touched / MIB
        );
    }
    // Whether the listener's queue costs what there are connections.
    let mut server = Server::start(4096);
    let mut clients = vec![];
    for connections in [0, 4_000, 4_000] {
        clients.extend((0..connections).map(|_| TcpStream::connect(server.address).unwrap()));
        server.ask("accept", connections);
        let mut observer = server.observer();
        observer.glance();
        let glance = micros(&mut || _ = observer.glance());
        println!("{} connections: glance {glance} us", clients.len());
    }
}

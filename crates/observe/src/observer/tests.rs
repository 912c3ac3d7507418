//! The observer on a `/proc` built by hand.

use std::net::IpAddr;

use super::*;
use crate::fake::Fake;
use crate::reader::Error;

/// What a fake kernel says about sockets.
struct Says(Vec<Listening>);

impl Sockets for Says {
    fn listening(&self, port: u16) -> Result<Vec<Listening>, Error> {
        Ok(self.0.iter().filter(|s| s.port == port).copied().collect())
    }

    fn is_local(&self, address: IpAddr) -> bool {
        address.is_loopback()
    }
}

fn socket(inode: u64) -> Listening {
    Listening {
        address: "127.0.0.1".parse().unwrap(),
        port: 7000,
        v6_only: false,
        inode,
        queued: 3,
        backlog: 128,
    }
}

/// Plimsoll (10) was started by a shell (2) and has a worker (11). A chat server with a master (20) and two
/// children (21, 22), the second with a helper (23), listens through its children. A database (30) listens
/// elsewhere.
fn ship() -> Fake {
    let fake = Fake::new();
    fake.process(1, 0, "init");
    fake.process(2, 1, "bash");
    fake.process(10, 2, "plimsoll");
    fake.process(11, 10, "plimsoll");
    fake.process(20, 1, "chat");
    fake.process(21, 20, "chat");
    fake.process(22, 20, "chat");
    fake.process(23, 22, "helper");
    fake.process(30, 1, "database");
    for pid in [21, 22] {
        fake.link(&format!("proc/{pid}/fd/5"), "socket:[500]");
    }
    fake.link("proc/30/fd/5", "socket:[600]");
    fake
}

fn at(address: &str) -> Finder {
    Finder::Port(vec![address.parse().unwrap()])
}

fn observer(fake: &Fake, find: Finder) -> Observer {
    Observer::new(fake.root(), 10, find).with_sockets(Says(vec![socket(500)]))
}

fn pids(observer: &mut Observer) -> Vec<u32> {
    observer.target_processes().iter().map(|p| p.pid).collect()
}

#[test]
fn by_port_from_those_that_listen_up_to_their_master_and_down_to_all_descendants() {
    let fake = ship();
    let mut observer = observer(&fake, at("127.0.0.1:7000"));
    let seen = observer.target_processes();
    let role = |pid, name: &str, role: &str| ProcessSeen { pid, name: name.into(), role: role.into() };
    let expected = [
        role(20, "chat", "parent"),
        role(21, "chat", "listens"),
        role(22, "chat", "listens"),
        role(23, "helper", "child"),
    ];
    assert_eq!(seen, expected);
    assert_eq!(observer.target_hidden(), None);

    let seen = observer.observe();
    let target = seen.target.unwrap();
    assert_eq!((target.processes, target.user_bytes), (4, Some((4 * 1000 + 20 + 21 + 22 + 23) * 1024)));
    assert_eq!((target.descriptors, target.most_descriptors), (Some(6), Some(2)));
    let generator = seen.generator.unwrap();
    assert_eq!((generator.processes, generator.user_bytes), (2, Some((2 * 1000 + 10 + 11) * 1024)));
    assert_eq!(seen.listener, Some(Listener { sockets: 1, queued: 3, backlog: 128 }));

    let settings = observer.settings();
    assert_eq!(settings.target.iter().map(|p| p.pid).collect::<Vec<_>>(), [21, 22]);
    assert_eq!((settings.worker.pid, settings.same_host, settings.target_hidden), (10, true, None));
    assert_eq!(observer.take_warnings(), Vec::<String>::new());
}

#[test]
fn by_pid_name_and_cgroup() {
    let fake = ship();
    assert_eq!(pids(&mut observer(&fake, Finder::Pid(22))), [22, 23]);
    let called = |names: &[&str]| Finder::Name(names.iter().map(|name| (*name).to_owned()).collect());
    assert_eq!(pids(&mut observer(&fake, called(&["chat"]))), [20, 21, 22, 23]);
    assert_eq!(pids(&mut observer(&fake, called(&["database", "chat"]))), [20, 21, 22, 23, 30]);
    fake.file("sys/fs/cgroup/box/cgroup.procs", "21\n");
    fake.file("sys/fs/cgroup/box/deeper/cgroup.procs", "30\n10\n99\n");
    for path in ["/box", "box", "/sys/fs/cgroup/box/"] {
        assert_eq!(pids(&mut observer(&fake, Finder::Cgroup(path.into()))), [21, 30], "{path}");
    }
}

#[test]
fn the_accept_queue_of_a_target_that_was_named() {
    let fake = ship();
    let mut observer = observer(&fake, Finder::Pid(20)).listening_at(vec!["127.0.0.1:7000".parse().unwrap()]);
    assert_eq!(observer.glance().listener.map(|l| l.queued), Some(3));
    let listens = observer.settings().target.iter().map(|p| p.pid).collect::<Vec<_>>();
    assert_eq!(listens, [21, 22]);
}

#[test]
fn hidden_targets_say_how_to_make_them_seen() {
    let fake = ship();
    for (find, words) in [
        (at("192.0.2.1:7000"), "the target is remote: its memory and descriptors are unknown"),
        (at("127.0.0.1:7001"), "no process in this network namespace listens on 127.0.0.1:7001"),
        (Finder::Pid(99), "no process 99 is alive"),
        (
            Finder::Name(vec!["database".into(), "nothing".into()]),
            "no process on this machine is called \"nothing\"",
        ),
        (Finder::Name(vec!["plimsoll".into()]), "no process on this machine is called"),
        (Finder::Cgroup("/nowhere".into()), "no process is in the cgroup \"/nowhere\""),
    ] {
        let mut observer = observer(&fake, find.clone());
        let seen = observer.observe();
        assert_eq!(seen.target, None, "{find:?}");
        assert!(seen.generator.is_some());
        let reason = observer.target_hidden().unwrap().to_owned();
        assert!(reason.contains(words), "{reason}");
        assert_eq!(observer.settings().target_hidden, Some(reason));
    }
    assert!(!observer(&fake, at("192.0.2.1:7000")).same_host());

    // The socket is there, but its owner is not to be seen.
    fake.remove("proc/21/fd");
    fake.remove("proc/22/fd");
    let mut observer = observer(&fake, at("127.0.0.1:7000"));
    assert_eq!(observer.observe().target, None);
    let reason = observer.target_hidden().unwrap();
    assert!(reason.contains("as the same user or as root, or name the process with --pid"), "{reason}");
    assert!(observer.same_host());
}

#[test]
fn a_target_in_this_very_process_cannot_be_told_apart() {
    let fake = ship();
    fake.remove("proc/21/fd");
    fake.remove("proc/22/fd");
    fake.link("proc/10/fd/9", "socket:[500]");
    let mut observer = observer(&fake, at("127.0.0.1:7000"));
    assert_eq!(observer.observe().target, None);
    assert!(observer.target_hidden().unwrap().contains("in this very process"));
}

/// `plimsoll hold --serve`: the node is our child and executes the same file as we do.
#[test]
fn a_target_that_is_our_child_is_not_the_generator() {
    let fake = ship();
    fake.remove("proc/21/fd");
    fake.remove("proc/22/fd");
    fake.process(12, 10, "plimsoll");
    fake.process(13, 12, "plimsoll");
    // Plimsoll made the socket and handed it to the node.
    for pid in [10, 12, 13] {
        fake.link(&format!("proc/{pid}/fd/9"), "socket:[500]");
    }
    let mut observer = observer(&fake, at("127.0.0.1:7000"));
    assert_eq!(pids(&mut observer), [12, 13]);
    let generator = observer.observe().generator.unwrap();
    assert_eq!(generator.user_bytes, Some((2 * 1000 + 10 + 11) * 1024));
    // The node ends; its time becomes that of our ended children, but is not the generator's.
    let before = observer.glance().generator_cpu_seconds.unwrap();
    let target = observer.glance().target_cpu_seconds.unwrap();
    fake.remove("proc/12");
    fake.remove("proc/13");
    // 12 had 12 + 120 ticks and 13 had 13 + 130; 10 had 100 of ended children.
    fake.file("proc/10/stat", "10 (plimsoll) S 2 1 1 0 -1 0 0 0 0 0 10 0 375 0 20 0 2 0 1010 0 0");
    let after = observer.glance();
    assert_eq!(after.generator_cpu_seconds, Some(before));
    assert_eq!(after.target_cpu_seconds, Some(target));
}

#[test]
fn children_come_and_go_and_the_time_stays() {
    let fake = ship();
    let mut observer = observer(&fake, at("127.0.0.1:7000"));
    let first = observer.glance().target_cpu_seconds.unwrap();
    assert!((first - 86.0 * 11.0 / 100.0).abs() < 1e-9, "{first}");
    // 22 ends and nobody waits for it; its helper is handed to init but stays the target's. 24 is born.
    fake.remove("proc/22");
    fake.file("proc/23/stat", "23 (helper) S 1 1 1 0 -1 0 0 0 0 0 23 0 230 0 20 0 2 0 1023 0 0");
    fake.process(24, 20, "chat");
    let second = observer.glance().target_cpu_seconds.unwrap();
    assert!((second - first - 24.0 * 11.0 / 100.0).abs() < 1e-9, "{second}");
    assert_eq!(pids(&mut observer), [20, 21, 23, 24]);
    // A pid that is used again is another process.
    fake.file("proc/23/stat", "23 (other) S 1 1 1 0 -1 0 0 0 0 0 23 0 230 0 20 0 2 0 5555 0 0");
    assert_eq!(pids(&mut observer), [20, 21, 24]);
}

#[test]
fn a_target_that_has_died_is_seen_to_have_no_processes() {
    let fake = ship();
    let mut observer = observer(&fake, at("127.0.0.1:7000"));
    let before = observer.observe().target.unwrap();
    for pid in [20, 21, 22, 23] {
        fake.remove(&format!("proc/{pid}"));
    }
    let after = observer.observe().target.unwrap();
    assert_eq!((after.processes, after.user_bytes), (0, Some(0)));
    assert!((after.cpu_seconds - before.cpu_seconds).abs() < 1e-9);
    // Another one takes over its socket.
    fake.process(40, 1, "chat");
    fake.link("proc/40/fd/5", "socket:[501]");
    observer = observer.with_sockets(Says(vec![socket(501)]));
    assert_eq!(pids(&mut observer), [40]);
}

#[test]
fn malformed_processes_are_left_out_with_a_warning_given_once() {
    let fake = ship();
    fake.file("proc/30/stat", "30 database\n");
    let mut observer = observer(&fake, at("127.0.0.1:7000"));
    observer.observe();
    let warnings = observer.take_warnings();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("proc/30/stat, line 1: expected PID (NAME) STATE"), "{warnings:?}");
    observer.observe();
    assert_eq!(observer.take_warnings(), Vec::<String>::new());
}

#[test]
fn an_empty_machine() {
    let mut observer = Observer::new(Root::at("/nonexistent"), 10, Finder::Pid(7));
    assert_eq!(observer.observe(), Observation::default());
    assert_eq!(observer.host(), Host::default());
    assert_eq!(observer.glance(), Glance::default());
    assert_eq!(observer.take_warnings(), Vec::<String>::new());
}

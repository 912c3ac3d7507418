//! Limits of the server: its process, its settings, its control group.

use std::fs;
use std::net::TcpStream;
use std::thread::sleep;
use std::time::Duration;

use testkit::cgroup::Cgroup;
use testkit::limited::Signal;

use super::{apply, foretold, group, named_first, passes, repeats};
use crate::harness::{
    Going, Node, PLIMSOLL, SOON, Stranger, alone, directory, hold, is_alive, port, signal, start_command,
    start_hold, tool, trusted, wait_until,
};

#[test]
fn descriptors_of_a_server_and_the_line_that_raises_them() {
    let Some(server) = Stranger::start_with("asyncio-ws", &[("NOFILE", "300")]) else { return };
    let url = format!("ws://127.0.0.1:{}/", server.port);
    let run = || hold(&url, &["-c", "360", "--stages", "4", "--hold", "1s", "--heartbeat", "1s"]);
    let named = named_first("server.nofile", run);
    apply(&named, &["prlimit", "for pid"]);
    passes("server.nofile", &run());
}

#[test]
fn clients_of_redis_and_the_line_that_allows_more() {
    // What it says as it turns a client away must come before that client asks: else it is taken for a wrong answer.
    let _alone = alone();
    let Some(server) = Stranger::start_with("redis", &[("MAXCLIENTS", "200")]) else { return };
    let url = format!("tcp://127.0.0.1:{}", server.port);
    let run = || {
        let ping = ["--send", "PING\\r\\n", "--expect", "+PONG"];
        let size = ["-c", "240", "--stages", "4", "--hold", "1s", "--heartbeat", "1s"];
        hold(&url, &[&size[..], &ping].concat())
    };
    let named = named_first("server.max-connections", run);
    assert_eq!(named.ceiling_connections, Some(200), "{named:?}");
    assert!(named.evidence.iter().any(|e| e.contains("max number of clients reached")), "{named:?}");
    let mut on_its_port = named.clone();
    for line in &mut on_its_port.remedy {
        // the only word that this test adds: its server does not listen on the port that redis-cli takes by default
        *line = line.replace("redis-cli ", &format!("redis-cli -p {} ", server.port));
    }
    apply(&on_its_port, &["redis-cli"]);
    passes("server.max-connections", &run());
}

#[test]
fn connections_of_a_worker_of_nginx() {
    let settings = [("WORKERS", "1"), ("WORKER_CONNECTIONS", "200")];
    let Some(server) = Stranger::start_with("nginx", &settings) else { return };
    let url = format!("http://127.0.0.1:{}/", server.port);
    // It makes room by closing idle ones: that takes several stages to be told from a timeout.
    let named = named_first("server.max-connections", || {
        hold(&url, &["-c", "400", "--stages", "8", "--hold", "1s", "--heartbeat", "1s"])
    });
    assert!(named.remedy.iter().any(|line| line.contains("worker_connections 480;")), "{named:?}");
}

#[test]
fn connections_that_haproxy_takes() {
    let Some(server) = Stranger::start_with("haproxy", &[("MAXCONN", "200")]) else { return };
    let url = format!("http://127.0.0.1:{}/", server.port);
    let named = named_first("server.max-connections", || {
        hold(&url, &["-c", "240", "--stages", "4", "--hold", "1s", "--heartbeat", "1s"])
    });
    assert_eq!(named.ceiling_connections, Some(200), "{named:?}");
    assert!(named.remedy.iter().any(|line| line.starts_with("maxconn 290")), "{named:?}");
}

#[test]
fn threads_of_a_server_in_a_control_group() {
    let Some(server) = Stranger::start("threads") else { return };
    let url = format!("tcp://127.0.0.1:{}", server.port);
    let Some(group) = group(Cgroup::with_task_limit, 200) else { return };
    let found = hold(&url, &["-c", "1", "--stages", "1", "--hold", "0s"]).result();
    let pid = found.target.processes[0].pid;
    group.add(pid).expect("it can be moved");
    // The threads of the connections before end in their own time.
    let threads = || fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    let rested = || wait_until("its threads had ended", SOON, || (threads() <= 2).then_some(()));
    let run = || {
        rested();
        hold(&url, &["-c", "240", "--stages", "4", "--hold", "1s", "--heartbeat", "1s"])
    };
    let named = named_first("server.threads", run);
    assert!(named.ceiling_connections.is_some_and(|c| c.abs_diff(199) <= 4), "{named:?}");
    apply(&named, &["echo "]);
    passes("server.threads", &run());
}

#[test]
fn an_idle_timeout_and_the_heartbeat_that_avoids_it() {
    let node = Node::start("tcp", &["--idle-timeout", "1500ms"]);
    let words = ["-c", "300", "--stages", "3", "--hold", "4s"];
    named_first("server.idle-timeout", || hold(&node.url(), &[&words[..], &["--heartbeat", "off"]].concat()));
    passes("server.idle-timeout", &hold(&node.url(), &[&words[..], &["--heartbeat", "500ms"]].concat()));
}

#[test]
fn the_keep_alive_timeout_of_nginx() {
    let Some(server) = Stranger::start_with("nginx", &[("KEEPALIVE_TIMEOUT", "2s")]) else { return };
    let url = format!("http://127.0.0.1:{}/", server.port);
    let named = named_first("server.idle-timeout", || {
        hold(&url, &["-c", "300", "--stages", "1", "--hold", "5s", "--heartbeat", "off"])
    });
    assert!(named.remedy.iter().any(|line| line.contains("keepalive_timeout")), "{named:?}");
}

#[test]
fn a_node_that_stops_for_a_while() {
    let _alone = alone();
    let node = Node::start("tcp", &[]);
    let pid = node.running.pid();
    named_first("server.stall", || {
        let flags = ["-c", "500", "--stages", "2", "--hold", "7s", "--heartbeat", "500ms"];
        let mut going = start_hold(&node.url(), &flags);
        going.wait_for_stages(2);
        for process in node.processes() {
            signal(process, Signal::Stop);
        }
        sleep(Duration::from_secs(3));
        for process in node.processes() {
            signal(process, Signal::Continue);
        }
        assert!(is_alive(pid));
        going.finish()
    });
}

#[test]
fn the_heap_of_a_virtual_machine_and_a_larger_one() {
    // A new one each time: what an earlier run left on the heap as garbage would be in the way of the next.
    let run = |heap: &str| {
        let server = Stranger::start_with("jvm", &[("HEAP", heap)])?;
        let url = format!("tcp://127.0.0.1:{}", server.port);
        Some(hold(&url, &["-c", "1500", "--stages", "3", "--hold", "1s", "--heartbeat", "1s"]))
    };
    // A machine without Java has said so by now.
    let Some(first) = run("24m") else { return };
    let mut first = Some(first);
    let mut peaks = Vec::new();
    let named = named_first("server.heap", || {
        let ended = first.take().or_else(|| run("24m")).expect("it could be started before");
        peaks.push(ended.result().connections.held);
        ended
    });
    let ceiling = named.ceiling_connections.expect("what a connection keeps was measured");
    let held = peaks[repeats() - 1];
    assert!(ceiling.abs_diff(held) * 100 <= 15 * held, "{held} were held: {named:?}");
    let line = named.remedy.iter().find_map(|line| line.strip_prefix("-Xmx")).expect("a larger heap");
    passes("server.heap", &run(line).expect("it could be started before"));
}

/// A node in the group that takes so much memory for each connection that a group of 64 MB has room for about a thousand.
const BALLAST: [&str; 2] = ["--ballast", "64KiB"];
const ROOM_BYTES: u64 = 64 << 20;

fn node_in(group: &Cgroup, scheme: &'static str, flags: &[&str]) -> Node {
    let node = Node::start(scheme, flags);
    for pid in node.processes() {
        group.add(pid).expect("it can be moved");
    }
    node
}

#[test]
fn memory_of_a_server_in_a_control_group_and_the_line_that_raises_it() {
    let Some(group) = group(Cgroup::with_memory_limit, ROOM_BYTES) else { return };
    // It is killed each time.
    let run = || {
        let node = node_in(&group, "tcp", &BALLAST);
        hold(&node.url(), &["-c", "1200", "--stages", "2", "--hold", "1s", "--heartbeat", "1s"])
    };
    let named = named_first("server.memory", run);
    assert!(named.evidence.iter().any(|e| e.contains("out-of-memory kills rose by 1")), "{named:?}");
    apply(&named, &["echo "]);
    passes("server.memory", &run());
}

/// A node in a control group that is started again whenever it is killed, as a container's keeper would.
struct Kept<'a> {
    group: &'a Cgroup,
    port: u16,
    _shell: Going,
}

impl<'a> Kept<'a> {
    fn start(group: &'a Cgroup, flags: &[&str]) -> Self {
        let port = port();
        let mut command = group.command("sh");
        command.args(["-c", "while :; do \"$0\" \"$@\"; done", PLIMSOLL, "serve"]);
        command.arg(format!("tcp://127.0.0.1:{port}")).args(["--processes", "1"]).args(flags);
        let kept = Self { group, port, _shell: start_command(directory(), command) };
        wait_until("the node listens", SOON, || TcpStream::connect(("127.0.0.1", port)).ok());
        kept
    }
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        // The shell is the first of them, and starts no other once it is gone.
        for pid in self.group.processes().unwrap_or_default() {
            signal(pid, Signal::Kill);
        }
    }
}

#[test]
fn the_room_in_a_memory_limit_is_foretold() {
    let Some(group) = group(Cgroup::with_memory_limit, ROOM_BYTES) else { return };
    let held = ["--hold", "1s", "--heartbeat", "1s"];
    let smaller = {
        let node = node_in(&group, "tcp", &BALLAST);
        hold(&node.url(), &[&["-c", "300", "--stages", "3"], &held[..]].concat())
    };
    let kept = Kept::start(&group, &BALLAST);
    let url = format!("tcp://127.0.0.1:{}", kept.port);
    let broken = hold(&url, &[&["-c", "2000", "--until-it-breaks"], &held[..]].concat()).result();
    assert!(broken.line.broke, "{}", broken.verdict.sentence);
    assert_eq!(broken.verdict.first_limit.as_deref(), Some("server.memory"), "{}", broken.verdict.sentence);
    foretold("server.memory", &smaller, broken.line.connections, 15);
}

#[test]
fn cpu_of_a_server_in_a_control_group_and_the_line_that_raises_it() {
    let _alone = alone();
    // The least that the kernel grants: however fast the machine, it is not enough.
    let Some(group) = group(Cgroup::with_cpu_quota, 0.01) else { return };
    let node = node_in(&group, "tcp", &[]);
    let size = ["-c", "1200", "--stages", "1", "--hold", "1s", "--heartbeat", "2s", "--objective", "300ms"];
    let run = || trusted(|| hold(&node.url(), &size));
    let named = named_first("server.cpu", run);
    apply(&named, &["echo "]);
    passes("server.cpu", &run());
}

#[test]
fn handshakes_on_too_little_cpu_and_the_line_that_gives_more() {
    let _alone = alone();
    // The kernel counts CPU in hundredths of a second: there must be enough of them to tell the quota from less.
    let Some(group) = group(Cgroup::with_cpu_quota, 0.05) else { return };
    let node = node_in(&group, "tls", &[]);
    let size = ["-c", "1000", "--stages", "1", "--hold", "1s", "--heartbeat", "1s"];
    let run =
        || trusted(|| hold(&node.url(), &[&size[..], &["--insecure", "--objective", "100ms"]].concat()));
    let named = named_first("server.handshake-cpu", run);
    apply(&named, &["echo "]);
    passes("server.handshake-cpu", &run());
}

/// A server whose only thread needs 3 ms of CPU for each connection that it accepts, one after the other: its peers are
/// those that fork, or set up a session, before they accept the next.
const SLOW_ACCEPT: &str = "
import base64, hashlib, selectors, socket, sys, time
server = socket.create_server(('127.0.0.1', int(sys.argv[1])), backlog=4096)
ready = selectors.DefaultSelector()
ready.register(server, selectors.EVENT_READ)
MAGIC = b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
def upgrade(client):
    end = time.thread_time() + 0.003
    while time.thread_time() < end:
        pass
    asked = client.recv(4096)
    key = next(l.split(b': ')[1] for l in asked.split(b'\\r\\n') if l.lower().startswith(b'sec-websocket-key'))
    said = base64.b64encode(hashlib.sha1(key + MAGIC).digest())
    client.sendall(b'HTTP/1.1 101 Switching Protocols\\r\\nUpgrade: websocket\\r\\nConnection: Upgrade\\r\\n'
                   b'Sec-WebSocket-Accept: ' + said + b'\\r\\n\\r\\n')
def answer(client):
    asked = client.recv(4096)
    if not asked or asked[0] & 15 == 8:
        ready.unregister(client)
        client.close()
        return
    while len(asked) >= 6:
        size, mask = asked[1] & 127, asked[2:6]
        payload = bytes(b ^ mask[i % 4] for i, b in enumerate(asked[6:6 + size]))
        client.sendall(bytes([0x8a, size]) + payload)
        asked = asked[6 + size:]
while True:
    for key, _ in ready.select():
        try:
            if key.fileobj is server:
                client = server.accept()[0]
                ready.register(client, selectors.EVENT_READ)
                upgrade(client)
            else:
                answer(key.fileobj)
        except (OSError, StopIteration):
            pass
";

#[test]
fn a_thread_that_accepts_too_slowly_and_a_slower_ramp() {
    let _alone = alone();
    let port = port();
    let mut command = tool("python3");
    command.args(["-c", SLOW_ACCEPT, &port.to_string()]);
    let _server = start_command(directory(), command);
    wait_until("the server listens", SOON, || TcpStream::connect(("127.0.0.1", port)).ok());
    let url = format!("ws://127.0.0.1:{port}/");
    let size = ["-c", "1000", "--stages", "1", "--hold", "1s", "--heartbeat", "1s"];
    let named = named_first("server.accept-rate", || hold(&url, &size));
    assert!(named.evidence.iter().any(|e| e.contains("waited to be accepted")), "{named:?}");
    // The slower ramp is a command of Plimsoll's own; all that is added is how long to hold.
    let line =
        named.remedy.iter().find_map(|line| line.strip_prefix("plimsoll hold ")).expect("a slower ramp");
    let words: Vec<&str> = line.split(' ').collect();
    passes("server.accept-rate", &trusted(|| hold(words[0], &[&words[1..], &size[2..]].concat())));
}

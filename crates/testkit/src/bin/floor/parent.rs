//! Who starts the servers and the clients, gives the word, and holds the watch?

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt};

use crate::plan::{PATIENCE_SECONDS, Plan};
use crate::sys;

/// How long something took, and for how many connections.
struct Figure {
    seconds: f64,
    rate_per_second: f64,
}

impl Figure {
    fn new(connections: u64, seconds: f64) -> Self {
        Self { seconds, rate_per_second: connections as f64 / seconds.max(1e-9) }
    }

    fn json(&self) -> String {
        format!("{{\"seconds\":{:.6},\"rate_per_second\":{:.1}}}", self.seconds, self.rate_per_second)
    }
}

/// Makes the run and prints its figures.
pub(crate) fn run(plan: &Plan) -> Result<(), String> {
    let mut plan = plan.clone();
    let nofile = sys::raise_nofile().map_err(|e| format!("failed to raise the descriptor limit: {e}"))?;
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    plan.fit(cpus, nofile)?;
    let deadline = sys::now() + PATIENCE_SECONDS;

    let (_reserved, port) = reserve_port().map_err(|e| format!("failed to find a free port: {e}"))?;
    let mut servers = Vec::new();
    for _ in 0..plan.processes {
        servers.push(Process::start(&plan, "server", &["--as-server".into(), port.to_string()])?);
    }
    for server in &mut servers {
        server.line(deadline)?;
    }
    let mut clients = Vec::new();
    for number in 0..plan.processes {
        let role = ["--as-client".into(), port.to_string(), number.to_string()];
        clients.push(Process::start(&plan, "client", &role)?);
    }

    let start = sys::now();
    all(&mut clients, "establish\n", deadline)?;
    loop {
        let mut accepted = 0;
        for server in &mut servers {
            server.order("c")?;
            let answer = server.line(deadline)?;
            accepted += answer.parse::<u64>().map_err(|_| format!("a server said {answer:?}"))?;
        }
        if accepted >= plan.connections {
            break;
        }
        if sys::now() > deadline {
            return Err(format!("only {accepted} of {} connections were accepted in time", plan.connections));
        }
    }
    let establish = Figure::new(plan.connections, sys::now() - start);

    let mut verify = None;
    if plan.verify {
        let start = sys::now();
        all(&mut clients, "verify\n", deadline)?;
        verify = Some(Figure::new(plan.connections, sys::now() - start));
    }

    for process in servers.iter_mut().chain(&mut clients) {
        process.order("q\n")?;
        process.wait(deadline)?;
    }
    print(&plan, &establish, verify.as_ref()).map_err(|e| format!("failed to print: {e}"))
}

fn print(plan: &Plan, establish: &Figure, verify: Option<&Figure>) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if plan.json {
        writeln!(
            out,
            "{{\"mode\":\"{}\",\"connections\":{},\"processes\":{},\"sources\":{},\"per_source\":{},\"establish\":{},\"verify\":{}}}",
            plan.mode.name(),
            plan.connections,
            plan.processes,
            plan.sources(),
            plan.per_source,
            establish.json(),
            verify.map_or_else(|| "null".to_owned(), Figure::json),
        )
    } else {
        writeln!(
            out,
            "{} {} connections, {} processes at each end, {} source addresses",
            plan.connections,
            plan.mode.name(),
            plan.processes,
            plan.sources()
        )?;
        writeln!(
            out,
            "established in {:.2} s: {:.0} connections/s",
            establish.seconds, establish.rate_per_second
        )?;
        if let Some(verify) = verify {
            writeln!(
                out,
                "verified in {:.2} s: {:.0} round trips/s",
                verify.seconds, verify.rate_per_second
            )?;
        }
        Ok(())
    }
}

/// Finds a free port and keeps it for the servers: bound but not listening, it receives nothing.
fn reserve_port() -> Result<(OwnedFd, u16), Errno> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
    let address = SocketAddrV4::try_from(getsockname(&socket)?).map_err(|_| Errno::AFNOSUPPORT)?;
    Ok((socket, address.port()))
}

/// Gives all the same order and waits until each has carried it out.
fn all(processes: &mut [Process], order: &str, deadline: f64) -> Result<(), String> {
    for process in &mut *processes {
        process.order(order)?;
    }
    for process in processes {
        process.line(deadline)?;
    }
    Ok(())
}

/// A child, with whom lines are exchanged. Killed when dropped.
struct Process {
    what: &'static str,
    child: Child,
    orders: ChildStdin,
    answers: ChildStdout,
    line: Vec<u8>,
}

impl Process {
    fn start(plan: &Plan, what: &'static str, role: &[String]) -> Result<Self, String> {
        let fail = |e: std::io::Error| format!("failed to start a {what}: {e}");
        let mut child = Command::new(std::env::current_exe().map_err(fail)?)
            .args(plan.arguments())
            .args(role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(fail)?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("a {what} has no pipes"));
        };
        Ok(Self { what, child, orders, answers, line: Vec::new() })
    }

    fn order(&mut self, word: &str) -> Result<(), String> {
        self.orders.write_all(word.as_bytes()).map_err(|e| format!("a {} is gone: {e}", self.what))
    }

    /// Waits for one line.
    fn line(&mut self, deadline: f64) -> Result<String, String> {
        loop {
            if let Some(end) = self.line.iter().position(|b| *b == b'\n') {
                let rest = self.line.split_off(end + 1);
                let line = std::mem::replace(&mut self.line, rest);
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if !self.readable(deadline)? {
                return Err(format!("a {} did not answer within {PATIENCE_SECONDS} s", self.what));
            }
            let mut buffer = [0u8; 256];
            let n =
                self.answers.read(&mut buffer).map_err(|e| format!("failed to hear a {}: {e}", self.what))?;
            if n == 0 {
                return Err(format!("a {} ended before its time", self.what));
            }
            self.line.extend_from_slice(&buffer[..n]);
        }
    }

    /// Waits until it has something to say, or has gone; false: the deadline has passed.
    fn readable(&self, deadline: f64) -> Result<bool, String> {
        let left = deadline - sys::now();
        if left <= 0.0 {
            return Ok(false);
        }
        let patience = Timespec { tv_sec: left as i64, tv_nsec: 0 };
        match poll(&mut [PollFd::new(&self.answers, PollFlags::IN)], Some(&patience)) {
            Ok(n) => Ok(n > 0),
            Err(Errno::INTR) => Ok(true),
            Err(e) => Err(format!("failed to wait for a {}: {e}", self.what)),
        }
    }

    /// Waits for its end, which shows as the end of its answers.
    fn wait(&mut self, deadline: f64) -> Result<(), String> {
        let mut buffer = [0u8; 256];
        while self.readable(deadline)? {
            match self.answers.read(&mut buffer) {
                Ok(0) => {
                    let status =
                        self.child.wait().map_err(|e| format!("failed to wait for a {}: {e}", self.what))?;
                    return if status.success() {
                        Ok(())
                    } else {
                        Err(format!("a {} ended with {status}", self.what))
                    };
                }
                Ok(_) => {}
                Err(e) => return Err(format!("failed to hear a {}: {e}", self.what)),
            }
        }
        Err(format!("a {} did not end in time", self.what))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // one that has ended was waited for and is left alone by the standard library
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

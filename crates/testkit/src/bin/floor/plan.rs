//! What is asked of the floor, and which share falls to which process?

use std::net::Ipv4Addr;
use std::ops::Range;

/// Descriptors that a process needs besides its connections.
const SPARE_DESCRIPTORS: u64 = 16;
/// Seconds after which any process of a run gives up.
pub(crate) const PATIENCE_SECONDS: f64 = 120.0;
/// Length of the message that goes round.
pub(crate) const MESSAGE: usize = 32;

pub(crate) const USAGE: &str = "\
usage: plimsoll-floor --connections N [--processes P] [--per-source K] [--mode tcp|ws|sse] [--verify] [--json]

  --connections N   connections to establish on loopback; suffixes k and M are read
  --processes P     processes at each end (default: as few as the descriptor limit allows, at least one per CPU)
  --per-source K    at most this many connections per source address (default 10k)
  --mode MODE       tcp: connect only. ws, sse: also a fixed request and a fixed answer (default tcp)
  --verify          then send one 32-byte message round over every connection
  --json            print the figures as JSON
";

/// What this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Starts the others and holds the watch.
    Parent,
    /// Accepts and echoes on a port.
    Server(u16),
    /// Connects to a port; has a number.
    Client(u16, u64),
}

/// What is exchanged before a connection counts as established.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing.
    Tcp,
    /// An upgrade request and a 101.
    Ws,
    /// A request and the head of an endless answer.
    Sse,
}

impl Mode {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Ws => "ws",
            Self::Sse => "sse",
        }
    }

    /// The request that opens a connection and its answer; `None` if connecting is all.
    pub(crate) const fn greeting(self) -> Option<(&'static [u8], &'static [u8])> {
        match self {
            Self::Tcp => None,
            Self::Ws => Some((
                b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                  Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            )),
            Self::Sse => Some((
                b"GET /events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n",
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n",
            )),
        }
    }
}

/// What was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) role: Role,
    pub(crate) mode: Mode,
    pub(crate) connections: u64,
    pub(crate) processes: u64,
    pub(crate) per_source: u64,
    pub(crate) verify: bool,
    pub(crate) json: bool,
}

impl Plan {
    /// Reads the command line. The role arguments are for the children that the parent starts.
    pub(crate) fn read(arguments: &[String]) -> Result<Self, String> {
        let mut plan = Self {
            role: Role::Parent,
            mode: Mode::Tcp,
            connections: 0,
            processes: 0,
            per_source: 10_000,
            verify: false,
            json: false,
        };
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--connections" => plan.connections = count(value()?)?,
                "--processes" => plan.processes = count(value()?)?,
                "--per-source" => plan.per_source = count(value()?)?,
                "--mode" => plan.mode = mode(value()?)?,
                "--verify" => plan.verify = true,
                "--json" => plan.json = true,
                "--as-server" => plan.role = Role::Server(port(value()?)?),
                "--as-client" => plan.role = Role::Client(port(value()?)?, count(value()?)?),
                other => return Err(format!("unknown argument {other:?}")),
            }
        }
        if plan.connections == 0 {
            return Err("--connections must be at least 1".into());
        }
        if plan.per_source == 0 {
            return Err("--per-source must be at least 1".into());
        }
        Ok(plan)
    }

    /// Chooses the number of processes if none was given, and checks that every share fits a descriptor table.
    pub(crate) fn fit(&mut self, cpus: u64, nofile: u64) -> Result<(), String> {
        // the kernel deals connections out to the servers by a hash, so some get more than their share
        let most = |processes: u64| {
            let share = self.connections.div_ceil(processes);
            share + share / 10 + SPARE_DESCRIPTORS
        };
        if self.processes == 0 {
            self.processes = (1..=1000)
                .find(|p| most(*p) <= nofile)
                .ok_or("too many connections for the descriptor limit")?
                .max(cpus.min(self.connections));
        }
        if most(self.processes) > nofile {
            return Err(format!(
                "{} connections in {} processes at each end need {} descriptors in one process, the limit is {nofile}; \
                 ask for more --processes",
                self.connections,
                self.processes,
                most(self.processes)
            ));
        }
        if self.processes > self.connections {
            return Err("there are more processes than connections".into());
        }
        if self.sources() > 60_000 {
            return Err("too few connections per source address: raise --per-source".into());
        }
        Ok(())
    }

    /// The connections that client process `number` makes.
    pub(crate) const fn share(&self, number: u64) -> Range<u64> {
        number * self.connections / self.processes..(number + 1) * self.connections / self.processes
    }

    /// How many source addresses are used.
    pub(crate) const fn sources(&self) -> u64 {
        self.connections.div_ceil(self.per_source)
    }

    /// The source address of one connection: all addresses get equally many, give or take one.
    pub(crate) fn source(&self, connection: u64) -> Ipv4Addr {
        let number = connection * self.sources() / self.connections;
        // 127.1.0.1 and up, without .0 and .255
        let [_, _, high, low] = ((number / 254) as u32 * 256 + (number % 254) as u32 + 1).to_be_bytes();
        Ipv4Addr::new(127, 1, high, low)
    }

    /// The arguments that make a child plan the same.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let mut words = Vec::new();
        for (name, value) in [
            ("--connections", self.connections),
            ("--processes", self.processes),
            ("--per-source", self.per_source),
        ] {
            words.extend([name.to_owned(), value.to_string()]);
        }
        words.extend(["--mode".to_owned(), self.mode.name().to_owned()]);
        words
    }
}

fn count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1_000),
        None => text.strip_suffix('M').map_or((text, 1), |digits| (digits, 1_000_000)),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(factor))
        .ok_or_else(|| format!("{text:?} is not a count (examples: 500, 10k, 1M)"))
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("{text:?} is not a port"))
}

fn mode(text: &str) -> Result<Mode, String> {
    [Mode::Tcp, Mode::Ws, Mode::Sse]
        .into_iter()
        .find(|m| m.name() == text)
        .ok_or_else(|| format!("{text:?} is not a mode (tcp, ws, sse)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Plan, String> {
        Plan::read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn shares_cover_every_connection_once() {
        let mut plan = read("--connections 100003 --processes 7").unwrap();
        plan.fit(2, 20_000).unwrap();
        let mut next = 0;
        for number in 0..plan.processes {
            let share = plan.share(number);
            assert_eq!(share.start, next);
            next = share.end;
        }
        assert_eq!(next, 100_003);
    }

    #[test]
    fn no_source_gets_more_than_asked() {
        let mut plan = read("--connections 10007 --processes 3 --per-source 19").unwrap();
        plan.fit(2, 20_000).unwrap();
        let mut per_source = std::collections::HashMap::new();
        for connection in 0..plan.connections {
            *per_source.entry(plan.source(connection)).or_insert(0u64) += 1;
        }
        assert_eq!(per_source.len() as u64, plan.sources());
        assert!(per_source.values().all(|n| *n <= 19));
        assert!(per_source.keys().all(|a| a.is_loopback() && a.octets()[3] != 0 && a.octets()[3] != 255));
    }

    #[test]
    fn processes_follow_the_descriptor_limit() {
        let mut plan = read("--connections 210k").unwrap();
        plan.fit(2, 20_000).unwrap();
        assert!((11..=14).contains(&plan.processes), "{}", plan.processes);
        let mut small = read("--connections 210k --processes 2").unwrap();
        assert!(small.fit(2, 20_000).unwrap_err().contains("more --processes"));
        let mut one = read("--connections 1").unwrap();
        one.fit(2, 20_000).unwrap();
        assert_eq!(one.processes, 1);
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        assert!(read("--connections many").unwrap_err().contains("not a count"));
        assert!(read("--connections 5 --mode udp").unwrap_err().contains("not a mode"));
        assert!(read("--json").unwrap_err().contains("at least 1"));
        assert!(read("--connections").unwrap_err().contains("needs a value"));
        assert_eq!(read("--connections 1M").unwrap().connections, 1_000_000);
    }
}

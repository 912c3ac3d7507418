//! How is each limit made to happen on purpose, small and bounded?
//!
//! A recipe is lines for `sh -eu`, made of Plimsoll's own commands, that end in a hold, or a churn. Printed, they can be pasted; run
//! by `--induce`, that writes its result where it is told to by `PLIMSOLL_JSON`.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::Failed;

/// How one limit is made to happen.
pub(crate) struct Recipe {
    /// The limit's name in the catalogue.
    pub(crate) id: &'static str,
    /// What is done, or why it is not done here.
    pub(crate) says: &'static str,
    /// What the machine must have; `None`: it is never run, only told.
    needs: Option<&'static [Need]>,
    /// The lines.
    lines: &'static str,
}

/// What a machine may lack.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Need {
    /// `prlimit`, of util-linux.
    Prlimit,
    /// The right to make a network namespace: the settings in it are its own.
    Namespace,
    /// `iptables`, usable in a network namespace.
    Iptables,
    /// A control group, v1 or v2, that grants this resource.
    Cgroup(&'static str),
}

impl Need {
    /// A command that succeeds where it is there.
    fn check(self) -> String {
        match self {
            Self::Prlimit => "command -v prlimit".to_owned(),
            Self::Namespace => "unshare --net true".to_owned(),
            Self::Iptables => "unshare --net iptables -L -n".to_owned(),
            Self::Cgroup(controller) => format!(
                "[ -w /sys/fs/cgroup/{controller}/cgroup.procs ] || {{ [ -w /sys/fs/cgroup/cgroup.procs ] && \
                 grep -qw {controller} /sys/fs/cgroup/cgroup.subtree_control; }}"
            ),
        }
    }

    /// What is said where it is not.
    fn lacking(self) -> String {
        match self {
            Self::Prlimit => "there is no `prlimit`; it comes with util-linux".to_owned(),
            Self::Namespace => "a network namespace of its own cannot be made; run it as root".to_owned(),
            Self::Iptables => "`iptables` cannot be used; install it, and run this as root".to_owned(),
            Self::Cgroup(controller) => format!(
                "no control group with the controller `{controller}` can be made under /sys/fs/cgroup; run it as root"
            ),
        }
    }
}

/// What every recipe begins with: nothing that it starts outlives it.
const BEGIN: &str = r#"DIR=$(mktemp -d) STARTED= GROUP=
end() {
    kill -CONT $STARTED; kill $STARTED; wait; rm -r "$DIR"; [ -z "$GROUP" ] || rmdir "$GROUP"
}
trap 'end 2>/dev/null || :' EXIT
trap 'exit 130' INT TERM
start() { "$@" & STARTED="$STARTED $!"; }
node() {
    "$@" >"$DIR/said" & NODE=$! STARTED="$STARTED $!"
    until grep -qs Ctrl-C "$DIR/said"; do kill -0 $NODE; sleep 0.1; done
}"#;

/// What those begin with that need a control group: `group CONTROLLER FILE VALUE` of v1, then `FILE VALUE` of v2.
const BEGIN_GROUP: &str = r#"group() {
    GROUP=/sys/fs/cgroup/$1/plimsoll-$$
    [ -d /sys/fs/cgroup/$1 ] || { GROUP=/sys/fs/cgroup/plimsoll-$$; shift 2; }
    mkdir "$GROUP"; echo "$3" >"$GROUP/$2"
}
inside() { echo 0 >"$GROUP/cgroup.procs"; exec "$@"; }"#;

/// No recipe runs longer than this.
const SECONDS: u32 = 120;

/// A recipe for every limit of the catalogue, in its order.
pub(crate) static RECIPES: &[Recipe] = &[
    Recipe {
        id: "client.ephemeral-ports",
        says: "In a network namespace with 200 local ports, one run takes 120 of them, and a second one wants 180.",
        needs: Some(&[Need::Namespace]),
        lines: r#"ip link set lo up
echo 40000 40199 >/proc/sys/net/ipv4/ip_local_port_range
node "$PLIMSOLL" serve tcp://127.0.0.1:7611
start env -u PLIMSOLL_JSON "$PLIMSOLL" hold tcp://127.0.0.1:7611 --source 127.0.0.2 -c 120 --stages 1 --hold 20s
sleep 2
start "$PLIMSOLL" hold tcp://127.0.0.1:7611 --source 127.0.0.2 -c 180 --stages 6 --hold 1s --heartbeat 1s
wait $!"#,
    },
    Recipe {
        id: "client.port-search",
        says: "Not run: where sockets can name their own port range (Linux 6.3) Plimsoll never lets connect() search. \
               On an older kernel, one source past half of its range shows it in the time that opening takes:",
        needs: None,
        lines: r#"node "$PLIMSOLL" serve tcp://127.0.0.1:7612
start "$PLIMSOLL" hold tcp://127.0.0.1:7612 --source 127.0.0.2 -c 28k --stages 20
wait $!"#,
    },
    Recipe {
        id: "client.nofile",
        says: "While a worker opens 600 connections, its limit of descriptors is lowered to 300.",
        needs: Some(&[Need::Prlimit]),
        lines: r#"node "$PLIMSOLL" serve tcp://127.0.0.1:7613
start "$PLIMSOLL" hold tcp://127.0.0.1:7613 --workers 1 -c 600 --rate 100 --hold 1s --heartbeat 1s
HOLD=$!
sleep 1.5
prlimit --pid $(cat /proc/$HOLD/task/*/children) --nofile=300
wait $HOLD"#,
    },
    Recipe {
        id: "client.memory",
        says: "Not run: the generator takes about 80 bytes for a connection, so that a control group small enough would \
               end it before the first one. With TLS, which takes more, and a group of 100 MB:",
        needs: None,
        lines: r#"group memory memory.limit_in_bytes 100M memory.max 100M
node "$PLIMSOLL" serve tls://127.0.0.1:7614
start inside "$PLIMSOLL" hold tls://127.0.0.1:7614 --insecure -c 20k
wait $!"#,
    },
    Recipe {
        id: "client.cpu",
        says: "The generator runs in a control group that may use a twentieth of a CPU.",
        needs: Some(&[Need::Cgroup("cpu")]),
        lines: r#"group cpu cpu.cfs_quota_us 5000 cpu.max '5000 100000'
node "$PLIMSOLL" serve tcp://127.0.0.1:7615
start inside "$PLIMSOLL" hold tcp://127.0.0.1:7615 -c 2000 --stages 4 --hold 3s --heartbeat 500ms
wait $!"#,
    },
    Recipe {
        id: "server.nofile",
        says: "The node may open 600 descriptors, and 1,200 connections are tried.",
        needs: Some(&[Need::Prlimit]),
        lines: r#"node prlimit --nofile=600 "$PLIMSOLL" serve tcp://127.0.0.1:7616 --processes 1
start "$PLIMSOLL" hold tcp://127.0.0.1:7616 --until-it-breaks -c 1200 --hold 1s --heartbeat 1s
wait $!"#,
    },
    Recipe {
        id: "server.threads",
        says: "Not run: the node takes no thread for a connection. With a server of yours that does, which may have 200:",
        needs: None,
        lines: r#"systemd-run --scope --property=TasksMax=200 YOUR_SERVER & sleep 5
"$PLIMSOLL" hold tcp://127.0.0.1:PORT --until-it-breaks -c 1000 --hold 5s --heartbeat 1s"#,
    },
    Recipe {
        id: "server.heap",
        says: "Not run: the node has no managed heap. With a Java server of yours, whose heap may have 64 MB:",
        needs: None,
        lines: r#"java -Xmx64m -jar YOUR_SERVER.jar & sleep 5
"$PLIMSOLL" hold tcp://127.0.0.1:PORT --until-it-breaks -c 100k --hold 5s --heartbeat 1s"#,
    },
    Recipe {
        id: "server.memory",
        says: "The node takes 64 KiB for each connection, in a control group of 64 MB: after about 1,000 it is killed.",
        needs: Some(&[Need::Cgroup("memory")]),
        lines: r#"group memory memory.limit_in_bytes 64M memory.max 64M
node inside "$PLIMSOLL" serve tcp://127.0.0.1:7617 --processes 1 --ballast 64KiB
start "$PLIMSOLL" hold tcp://127.0.0.1:7617 -c 2000 --hold 2s --heartbeat 1s
wait $!"#,
    },
    Recipe {
        id: "server.idle-timeout",
        says: "The node closes what is silent for 2 seconds, and nothing is said for 6.",
        needs: Some(&[]),
        lines: r#"node "$PLIMSOLL" serve tcp://127.0.0.1:7618 --idle-timeout 2s
start "$PLIMSOLL" hold tcp://127.0.0.1:7618 -c 500 --stages 2 --hold 6s --heartbeat off
wait $!"#,
    },
    Recipe {
        id: "server.stall",
        says: "The node is stopped for 2 seconds while it holds 1,000 connections.",
        needs: Some(&[]),
        lines: r#"node "$PLIMSOLL" serve tcp://127.0.0.1:7619 --processes 1
start "$PLIMSOLL" hold tcp://127.0.0.1:7619 -c 1000 --stages 2 --hold 10s --heartbeat 500ms
HOLD=$!
sleep 5; kill -STOP $NODE; sleep 2; kill -CONT $NODE
wait $HOLD"#,
    },
    Recipe {
        id: "server.cpu",
        says: "The node may use a tenth of a CPU, and must answer up to 8,000 heartbeats a second within 200 ms.",
        needs: Some(&[Need::Cgroup("cpu")]),
        lines: r#"group cpu cpu.cfs_quota_us 10000 cpu.max '10000 100000'
node inside "$PLIMSOLL" serve tcp://127.0.0.1:7620 --processes 1
start "$PLIMSOLL" hold tcp://127.0.0.1:7620 -c 4000 --stages 8 --hold 3s --heartbeat 500ms --objective 200ms
wait $!"#,
    },
    Recipe {
        id: "server.handshake-cpu",
        says: "The node may use a tenth of a CPU, and 800 connections begin with a TLS handshake.",
        needs: Some(&[Need::Cgroup("cpu")]),
        lines: r#"group cpu cpu.cfs_quota_us 10000 cpu.max '10000 100000'
node inside "$PLIMSOLL" serve tls://127.0.0.1:7621 --processes 1
start "$PLIMSOLL" hold tls://127.0.0.1:7621 --insecure -c 800 --stages 4 --hold 2s --heartbeat 1s --objective 50ms
wait $!"#,
    },
    Recipe {
        id: "server.accept-rate",
        says: "Not run: where CPUs are few, those who connect leave the accepting thread none that it could fill. With \
               four CPUs or more, one thread of the node accepts and does the TLS handshakes of five runs:",
        needs: None,
        lines: r#"node "$PLIMSOLL" serve tls://127.0.0.1:7622 --processes 1 --backlog 16
for n in 1 2 3 4; do
    start env -u PLIMSOLL_JSON "$PLIMSOLL" hold tls://127.0.0.1:7622 --insecure -c 1500 --stages 1 --hold 1s
done
start "$PLIMSOLL" hold tls://127.0.0.1:7622 --insecure -c 1500 --stages 2 --hold 2s --heartbeat 10s
wait $!"#,
    },
    Recipe {
        id: "server.max-connections",
        says: "The node turns away what comes beyond 100 connections, and 500 are tried.",
        needs: Some(&[]),
        lines: r#"node "$PLIMSOLL" serve tcp://127.0.0.1:7623 --max-connections 100
start "$PLIMSOLL" hold tcp://127.0.0.1:7623 --until-it-breaks -c 500 --hold 1s --heartbeat 1s
wait $!"#,
    },
    Recipe {
        id: "pooler.queue",
        says: "Not run: it takes a pooler. With a PgBouncer of yours on port 6432 whose default_pool_size is 2, more \
               clients than that wait while they work:",
        needs: None,
        lines: r#"start "$PLIMSOLL" sweep postgres://bench@127.0.0.1:6432/bench --message 'SELECT pg_sleep(0.01)' -c 1..64 --measure 3s
wait $!"#,
    },
    Recipe {
        id: "listen.accept-queue",
        says: "The node's queue holds 8 connections, and it is stopped for 3 seconds while six more runs connect.",
        needs: Some(&[]),
        lines: r#"node "$PLIMSOLL" serve tcp://127.0.0.1:7624 --processes 1 --backlog 8
start "$PLIMSOLL" hold tcp://127.0.0.1:7624 -c 600 --stages 3 --rate 200 --hold 2s --heartbeat 1s
HOLD=$!
sleep 1.5; kill -STOP $NODE
for n in 1 2 3 4 5 6; do
    start env -u PLIMSOLL_JSON "$PLIMSOLL" hold tcp://127.0.0.1:7624 -c 20 --stages 1 --hold 1s
done
sleep 3; kill -CONT $NODE
wait $HOLD"#,
    },
    Recipe {
        id: "listen.syn-queue",
        says: "In a network namespace, 20 connections from an address that never hears the answer stay half open, and \
               fill a queue of 16.",
        needs: Some(&[Need::Namespace, Need::Iptables]),
        lines: r#"ip link set lo up
echo 0 >/proc/sys/net/ipv4/tcp_syncookies
iptables -A INPUT -d 127.0.0.9 -p tcp --tcp-flags SYN,ACK SYN,ACK -j DROP
node "$PLIMSOLL" serve tcp://127.0.0.1:7625 --backlog 16 --processes 1
start "$PLIMSOLL" hold tcp://127.0.0.1:7625 --source 127.0.0.1 -c 400 --rate 100 --stages 4 --hold 1s --heartbeat 1s
HOLD=$!
sleep 1.5
for n in $(seq 20); do
    start env -u PLIMSOLL_JSON "$PLIMSOLL" hold tcp://127.0.0.1:7625 --source 127.0.0.9 -c 1 --stages 1 --hold 1s
done
wait $HOLD"#,
    },
    Recipe {
        id: "host.file-max",
        says: "Not run: fs.file-max is one figure for the whole host, and root is above it. On a machine that is yours \
               alone, as another user than root:",
        needs: None,
        lines: r#"sudo sysctl -w fs.file-max=$(($(cut -f1 /proc/sys/fs/file-nr) + 1000))
node "$PLIMSOLL" serve tcp://127.0.0.1:7626
start "$PLIMSOLL" hold tcp://127.0.0.1:7626 --until-it-breaks -c 2000 --hold 1s --heartbeat 1s
wait $!"#,
    },
    Recipe {
        id: "host.conntrack",
        says: "Not run: net.netfilter.nf_conntrack_max is one figure for all namespaces of a host, and lowering it drops \
               everyone's new connections. On a machine that is yours alone, as root:",
        needs: None,
        lines: r#"iptables -A INPUT -m conntrack --ctstate NEW -j ACCEPT
sysctl -w net.netfilter.nf_conntrack_max=$(($(cat /proc/sys/net/netfilter/nf_conntrack_count) + 300))
node "$PLIMSOLL" serve tcp://127.0.0.1:7627
start "$PLIMSOLL" hold tcp://127.0.0.1:7627 --until-it-breaks -c 1000 --hold 1s --heartbeat 1s
wait $!"#,
    },
    Recipe {
        id: "host.tcp-memory",
        says: "Not run: net.ipv4.tcp_mem is one figure for all namespaces of a host, and lowering it stalls everyone's \
               connections. On a machine that is yours alone, as root:",
        needs: None,
        lines: r#"sysctl -w net.ipv4.tcp_mem='100 150 200'
node "$PLIMSOLL" serve tcp://127.0.0.1:7628
start "$PLIMSOLL" hold tcp://127.0.0.1:7628 -c 5000 --hold 5s --heartbeat 500ms
wait $!"#,
    },
    Recipe {
        id: "host.memory",
        says: "Not run: a host without memory kills whatever it likes best. On a machine that is yours alone, with 1 GB \
               for each connection:",
        needs: None,
        lines: r#"node "$PLIMSOLL" serve tcp://127.0.0.1:7629 --ballast 1GiB
start "$PLIMSOLL" hold tcp://127.0.0.1:7629 --until-it-breaks -c 1000 --hold 1s --heartbeat 1s
wait $!"#,
    },
    Recipe {
        id: "host.cpu",
        says: "Not run: everything else on this host would be slow, and the generator too, whose own lateness is then \
               named first. On a machine that is yours alone, eight busy loops for each CPU:",
        needs: None,
        lines: r#"node "$PLIMSOLL" serve tcp://127.0.0.1:7630
for n in $(seq $((8 * $(nproc)))); do start timeout 15 sh -c 'while :; do :; done'; done
start "$PLIMSOLL" hold tcp://127.0.0.1:7630 -c 2000 --stages 4 --hold 3s --heartbeat 500ms
wait $!"#,
    },
    Recipe {
        id: "pool.budget",
        says: "Not run: the node speaks no protocol whose pool keeps a minimum. With a Redis of yours, said to take a hundred:",
        needs: None,
        lines: r#"start "$PLIMSOLL" churn redis://127.0.0.1:6379 --min-pool 10 --idle 100ms --instances 40 --server-limit 100
wait $!"#,
    },
    Recipe {
        id: "pool.too-small",
        says: "Not run: the node speaks no protocol whose pool has a maximum. With a Redis of yours:",
        needs: None,
        lines: r#"start "$PLIMSOLL" churn redis://127.0.0.1:6380 --max-pool 2 --burst 200 --wait-timeout 2ms --idle 100ms
wait $!"#,
    },
    Recipe {
        id: "pool.churn",
        says: "Connections may be idle for 200 ms, and every half second ten requests come that should be answered within \
               a millisecond of their instant.",
        needs: Some(&[]),
        lines: r#"node "$PLIMSOLL" serve http://127.0.0.1:7636
start "$PLIMSOLL" churn http://127.0.0.1:7636/healthz --idle-timeout 200ms --burst 10 --idle 500ms --bursts 4 \
    --network-delay 10ms --objective 5ms
wait $!"#,
    },
];

/// The recipe for a limit.
pub(crate) fn recipe(id: &str) -> Option<&'static Recipe> {
    RECIPES.iter().find(|recipe| recipe.id == id)
}

impl Recipe {
    /// Whether it is run where the machine has what it needs.
    pub(crate) fn runs(&self) -> bool {
        self.needs.is_some()
    }

    fn in_namespace(&self) -> bool {
        self.needs.is_some_and(|needs| needs.contains(&Need::Namespace))
    }

    /// All that the shell is given.
    fn script(&self) -> String {
        let grouped = self.lines.contains("group ");
        let ours = self.lines.contains("node ");
        let parts = [ours.then_some(BEGIN), grouped.then_some(BEGIN_GROUP), Some(self.lines)];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// The words before the script: the shell, bounded in time.
    fn shell(&self) -> Vec<String> {
        let seconds = SECONDS.to_string();
        let mut words = vec!["timeout", "--foreground", "-k", "10", &seconds];
        if self.in_namespace() {
            words.extend(["unshare", "--net"]);
        }
        words.extend(["sh", "-eu"]);
        words.into_iter().map(str::to_owned).collect()
    }

    /// The lines as they are pasted, for a binary of this name or path.
    pub(crate) fn pasted(&self, plimsoll: &str) -> Vec<String> {
        let shell = format!("PLIMSOLL={plimsoll} {} <<'END'", self.shell().join(" "));
        let script = self.script();
        std::iter::once(shell.as_str()).chain(script.lines()).chain(["END"]).map(str::to_owned).collect()
    }

    /// Why this machine cannot run it; `None`: it can.
    pub(crate) fn lacking(&self) -> Option<String> {
        let there = |need: &Need| {
            let mut command = Command::new("sh");
            command.arg("-c").arg(need.check());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            command.status().is_ok_and(|status| status.success())
        };
        self.needs?.iter().find(|need| !there(need)).map(|need| need.lacking())
    }

    /// Makes it happen; the hold's result is then in `result`. What the recipe's commands have to complain about goes
    /// to standard error.
    pub(crate) fn run(&self, plimsoll: &Path, result: &Path) -> Result<(), Failed> {
        let words = self.shell();
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("-c").arg(self.script());
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"PLIMSOLL_") {
                command.env_remove(name);
            }
        }
        command.env("PLIMSOLL", plimsoll).env("PLIMSOLL_JSON", result).env("PLIMSOLL_QUIET", "true");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        // How the hold ended stands in its result: of a limit that was met, it is no zero.
        command.status().map_err(|e| Failed::CannotRun(format!("cannot start `timeout`: {e}")))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_has_a_recipe_or_a_reason() {
        for facts in limits::LIMITS.iter().map(|limit| limit.facts()) {
            let recipe = recipe(facts.id).unwrap_or_else(|| panic!("{} has no recipe; write it", facts.id));
            assert_eq!(recipe.says.starts_with("Not run: "), !recipe.runs(), "{}", recipe.id);
            assert!(!recipe.says.contains("  "), "{}: {}", recipe.id, recipe.says);
        }
    }

    #[test]
    fn no_two_recipes_share_a_name_or_a_port() {
        let mut seen = std::collections::BTreeSet::new();
        for recipe in RECIPES {
            assert!(seen.insert(recipe.id.to_owned()), "{} is there twice", recipe.id);
            let port = recipe.lines.split("://127.0.0.1:").nth(1).unwrap_or_default();
            let port: String = port.chars().take_while(char::is_ascii_digit).collect();
            assert!(port.is_empty() || seen.insert(port), "{}: another recipe has its port", recipe.id);
        }
    }

    #[test]
    fn the_shell_reads_every_recipe() {
        for recipe in RECIPES {
            let read = Command::new("sh").arg("-n").arg("-c").arg(recipe.script()).status().unwrap();
            assert!(read.success(), "{}", recipe.id);
            let pasted = recipe.pasted("plimsoll");
            assert!(pasted[0].starts_with("PLIMSOLL=plimsoll timeout ") && pasted[pasted.len() - 1] == "END");
            let namespace = recipe.lines.contains("/proc/sys/net") && recipe.runs();
            assert_eq!(
                pasted[0].contains("unshare --net"),
                namespace,
                "{}: settings are the host's",
                recipe.id
            );
        }
    }

    #[test]
    fn what_is_only_told_lacks_nothing() {
        let told = RECIPES.iter().find(|recipe| !recipe.runs()).unwrap();
        assert_eq!(told.lacking(), None);
    }
}

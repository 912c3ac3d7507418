//! Which processes are the target?

use std::collections::BTreeSet;
use std::net::SocketAddr;

use crate::cgroup;
use crate::process;
use crate::reader::{Error, Root, Warnings};
use crate::sock_diag::Listening;
use crate::table::{Process, Table};

/// How the target's processes are told from all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finder {
    /// Those that listen at one of these addresses, and their trees.
    Port(Vec<SocketAddr>),
    /// This one and its descendants.
    Pid(u32),
    /// Those whose name (`comm`) or executable is one of these, and their descendants. Plimsoll's own are not
    /// among them.
    Name(Vec<String>),
    /// Those in this cgroup and the groups below it: its path below the mount.
    Cgroup(String),
}

impl Finder {
    /// Finds the processes that the target's trees start from, or says why they cannot be seen and how to
    /// make them seen. `listening` are the target's sockets as far as there are any on this machine.
    pub(crate) fn roots(
        &self,
        root: &Root,
        table: &Table,
        own_pid: u32,
        listening: &[Listening],
    ) -> Result<BTreeSet<u32>, String> {
        match self {
            Self::Port(addresses) => owners_of(root, table, own_pid, listening, addresses),
            Self::Pid(pid) => match table.get(*pid) {
                Some(process) if !process.zombie => Ok(BTreeSet::from([*pid])),
                _ => Err(format!(
                    "no process {pid} is alive on this machine; look its id up again, or leave --pid out to \
                     find the target by its port"
                )),
            },
            Self::Name(names) => {
                let mut ours = table.ancestors(own_pid);
                ours.extend(table.tree([own_pid], &BTreeSet::new()));
                let mut found = BTreeSet::new();
                for name in names {
                    let called =
                        |p: &&Process| !p.zombie && !ours.contains(&p.pid) && is_called(root, p, name);
                    let these: Vec<u32> = table.iter().filter(called).map(|p| p.pid).collect();
                    // What is seen without them would be taken for the whole target.
                    if these.is_empty() {
                        return Err(format!(
                            "no process on this machine is called {name:?}; name one of the target's with --pid, \
                             or run as its user or as root"
                        ));
                    }
                    found.extend(these);
                }
                Ok(found)
            }
            Self::Cgroup(path) => {
                let mut found = members_of_cgroup(root, path, &mut Warnings::default());
                found.retain(|pid| !table.tree([own_pid], &BTreeSet::new()).contains(pid));
                if found.is_empty() {
                    return Err(format!(
                        "no process is in the cgroup {path:?}; look the path up in /proc/PID/cgroup of one of \
                         the target's processes, or name one with --pid"
                    ));
                }
                Ok(found)
            }
        }
    }
}

/// `comm` is cut after 15 bytes; an executable's name is not, but may be hidden.
fn is_called(root: &Root, process: &Process, name: &str) -> bool {
    process.name == name
        || (process.name.len() == 15 && name.starts_with(&process.name))
        || process::executable_name(root, process.pid).is_some_and(|executable| executable == name)
}

/// The processes in a cgroup and in all below it; empty if there is no such group.
pub(crate) fn members_of_cgroup(root: &Root, path: &str, warnings: &mut Warnings) -> BTreeSet<u32> {
    for directory in cgroup::directories(path) {
        let mut found = BTreeSet::new();
        let mut open = vec![root.join(directory)];
        while let Some(directory) = open.pop() {
            if let Some(text) = warnings.keep(root.read(directory.join("cgroup.procs"))) {
                for line in text.lines() {
                    found.extend(warnings.keep(line.value::<u32>(0, "a process id").map(Some)));
                }
            }
            let below = std::fs::read_dir(&directory).into_iter().flatten().flatten();
            // Not along links: v1 has some from one controller's mount to another's.
            open.extend(below.filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        }
        if !found.is_empty() {
            return found;
        }
    }
    BTreeSet::new()
}

fn owners_of(
    root: &Root,
    table: &Table,
    own_pid: u32,
    listening: &[Listening],
    addresses: &[SocketAddr],
) -> Result<BTreeSet<u32>, String> {
    let inodes: BTreeSet<u64> = listening.iter().map(|s| s.inode).collect();
    let mut owners = owners(root, table.iter().map(|p| p.pid), &inodes);
    if owners.remove(&own_pid) && owners.is_empty() {
        return Err("the target listens in this very process: the two cannot be told apart; run it as a \
                    process of its own"
            .into());
    }
    if owners.is_empty() {
        return Err(format!(
            "a process listens on {}, but which one cannot be seen: it belongs to another user or runs in another \
             container; run Plimsoll as the same user or as root, or name the process with --pid",
            list(addresses)
        ));
    }
    let mut never = table.ancestors(own_pid);
    never.extend([own_pid, 1]);
    Ok(owners.into_iter().map(|owner| climb(root, table, owner, &never)).collect())
}

/// Which of the processes have one of the sockets open. What may not be seen does not count.
pub(crate) fn owners(
    root: &Root,
    pids: impl IntoIterator<Item = u32>,
    inodes: &BTreeSet<u64>,
) -> BTreeSet<u32> {
    let owns = |pid: &u32| {
        let sockets: Result<_, Error> = process::sockets(root, *pid);
        sockets.is_ok_and(|s| s.unwrap_or_default().iter().any(|inode| inodes.contains(inode)))
    };
    if inodes.is_empty() { BTreeSet::new() } else { pids.into_iter().filter(owns).collect() }
}

/// From a process that listens up to the first of its kind: while the parent executes the same file.
fn climb(root: &Root, table: &Table, from: u32, never: &BTreeSet<u32>) -> u32 {
    let executable = process::executable(root, from);
    let mut seen = BTreeSet::from([from]);
    let mut at = from;
    while let Some(parent) = table.get(at).map(|p| p.parent)
        && executable.is_some()
        && !never.contains(&parent)
        && process::executable(root, parent) == executable
        && seen.insert(parent)
    {
        at = parent;
    }
    at
}

/// Addresses in words.
pub(crate) fn list(addresses: &[SocketAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(" or ")
}

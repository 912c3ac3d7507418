//! What is seen at this moment, of all sides at once?

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use model::observation::{
    HostReading, HostSettings, Listener, Observation, ProcessSettings, Settings, TcpCounters,
};
use model::result::{Host, ProcessSeen};

use serde::{Deserialize, Serialize};

use crate::find::{self, Finder};
use crate::group::Watched;
use crate::listener::{self, Kernel, Sockets};
use crate::reader::{Root, Warnings};
use crate::sock_diag::Listening;
use crate::table::{Process, Table};
use crate::{host, process, settings, tcp};

/// Observes the target, the generator and the host they share.
///
/// Nothing fails: what is absent is `None`, what is malformed or forbidden is `None` and a warning, to be
/// had from [`Observer::take_warnings`].
pub struct Observer {
    root: Root,
    own_pid: u32,
    find: Finder,
    sockets: Box<dyn Sockets + Send>,
    /// Where the target listens.
    addresses: Vec<SocketAddr>,
    /// Those of the addresses that are this machine's; `None`: not yet asked.
    local: Option<Vec<SocketAddr>>,
    descriptors_by_size: Option<bool>,
    target: Watched,
    generator: Watched,
    /// The target's processes at the last look: pid and start time. They stay the target's until they end,
    /// even when their parent ends before them and they leave its tree.
    members: BTreeMap<u32, u64>,
    /// Whether the target's processes were ever seen.
    seen: bool,
    hidden: Option<String>,
    /// The sockets whose owners were looked for last.
    searched: Option<BTreeSet<u64>>,
    warnings: Warnings,
}

/// A cheap look: no memory, no descriptors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Glance {
    /// CPU seconds of the target's processes since their start, the ended ones' included; `None`: they
    /// cannot be seen from here.
    pub target_cpu_seconds: Option<f64>,
    /// CPU seconds of the generator's processes.
    pub generator_cpu_seconds: Option<f64>,
    /// The host of the generator.
    pub host: HostReading,
    /// TCP counters of that host.
    pub tcp: TcpCounters,
    /// The target's listening sockets; `None`: they cannot be seen from here.
    pub listener: Option<Listener>,
}

/// Who is who at one moment.
struct Sight {
    table: Table,
    target: BTreeSet<u32>,
    generator: BTreeSet<u32>,
    listening: Vec<Listening>,
}

impl Sight {
    fn processes<'a>(&'a self, pids: &'a BTreeSet<u32>) -> Vec<&'a Process> {
        pids.iter().filter_map(|pid| self.table.get(*pid)).collect()
    }
}

impl Observer {
    /// An observer that has not looked yet. The generator is `own_pid` and its descendants, except for the
    /// target's processes, should they be among them (`--serve`).
    pub fn new(root: Root, own_pid: u32, find: Finder) -> Self {
        let addresses = if let Finder::Port(addresses) = &find { addresses.clone() } else { vec![] };
        Self {
            root,
            own_pid,
            find,
            sockets: Box::new(Kernel),
            addresses,
            local: None,
            descriptors_by_size: None,
            target: Watched::default(),
            generator: Watched::default(),
            members: BTreeMap::new(),
            seen: false,
            hidden: None,
            searched: None,
            warnings: Warnings::default(),
        }
    }

    /// Tells where the target listens, when it is not found by that: its accept queue is then read as well.
    #[must_use]
    pub fn listening_at(mut self, addresses: Vec<SocketAddr>) -> Self {
        self.addresses = addresses;
        self
    }

    #[cfg(test)]
    fn with_sockets(mut self, sockets: impl Sockets + Send + 'static) -> Self {
        self.sockets = Box::new(sockets);
        self
    }

    /// Everything at this moment. The processes' memory makes it the costly one: the kernel walks their page
    /// tables.
    pub fn observe(&mut self) -> Observation {
        let sight = self.look();
        let by_size = self.descriptors_by_size();
        let (target, generator) = (sight.processes(&sight.target), sight.processes(&sight.generator));
        let (root, warnings) = (&self.root, &mut self.warnings);
        Observation {
            target: self.seen.then(|| self.target.read(root, &target, by_size, warnings)),
            generator: (!generator.is_empty())
                .then(|| self.generator.read(root, &generator, by_size, warnings)),
            host: host::read(root, warnings),
            tcp: tcp::read(root, warnings),
            listener: listener::summary(&sight.listening),
            target_host: None,
            servers: Vec::new(),
        }
    }

    /// What can be had cheaply at this moment.
    pub fn glance(&mut self) -> Glance {
        let sight = self.look();
        Glance {
            target_cpu_seconds: self.seen.then(|| self.target.cpu_seconds()),
            generator_cpu_seconds: (!sight.generator.is_empty()).then(|| self.generator.cpu_seconds()),
            host: host::read(&self.root, &mut self.warnings),
            tcp: tcp::read(&self.root, &mut self.warnings),
            listener: listener::summary(&sight.listening),
        }
    }

    /// How full the target's accept queues are now, and no more: two questions to the kernel, cheap enough for many
    /// times a second. `None`: they cannot be seen from here.
    pub fn listener(&mut self) -> Option<Listener> {
        let local = self.local();
        listener::summary(&listener::of_target(self.sockets.as_ref(), &local).ok()?)
    }

    /// The kernel's TCP counters now, and no more.
    pub fn tcp(&mut self) -> TcpCounters {
        tcp::read(&self.root, &mut self.warnings)
    }

    /// The machine that the generator runs on.
    pub fn host(&mut self) -> Host {
        host::identity(&self.root, self.own_pid, &mut self.warnings)
    }

    /// Its settings.
    pub fn host_settings(&mut self) -> HostSettings {
        settings::read(&self.root, &mut self.warnings)
    }

    /// The limits of any process, and what it has open now.
    pub fn process_settings(&mut self, pid: u32) -> ProcessSettings {
        let by_size = self.descriptors_by_size();
        process::settings(&self.root, pid, by_size, &mut self.warnings)
    }

    /// All settings that can be read here, those of the target's listening processes among them. What the
    /// plan knows (sources, destinations, a worker's needs) is left to be filled in; `worker` is this
    /// process, whose limits the workers inherit.
    pub fn settings(&mut self) -> Settings {
        let listening: Vec<u32> =
            self.target_processes().into_iter().filter(|p| p.role == "listens").map(|p| p.pid).collect();
        Settings {
            host: self.host_settings(),
            worker: self.process_settings(self.own_pid),
            target: listening.into_iter().map(|pid| self.process_settings(pid)).collect(),
            target_hidden: self.hidden.clone(),
            same_host: self.same_host(),
            ..Settings::default()
        }
    }

    /// The target's processes now; empty where they cannot be seen, see [`Observer::target_hidden`].
    /// Reads a link for each of their descriptors, so it is for before and after the run.
    pub fn target_processes(&mut self) -> Vec<ProcessSeen> {
        let sight = self.look();
        let inodes = sight.listening.iter().map(|s| s.inode).collect();
        let owners = find::owners(&self.root, sight.target.iter().copied(), &inodes);
        // Without a known socket, those that were named are taken to be the ones that listen.
        let listens = |p: &Process| match owners.is_empty() {
            true => !sight.target.contains(&p.parent),
            false => owners.contains(&p.pid),
        };
        let alive: Vec<&Process> = sight.processes(&sight.target).into_iter().filter(|p| !p.zombie).collect();
        let above: BTreeSet<u32> =
            alive.iter().filter(|p| listens(p)).flat_map(|p| sight.table.ancestors(p.pid)).collect();
        let role = |p: &Process| match (listens(p), above.contains(&p.pid)) {
            (true, _) => "listens",
            (false, true) => "parent",
            (false, false) => "child",
        };
        let seen = |p: &&Process| ProcessSeen { pid: p.pid, name: p.name.clone(), role: role(p).into() };
        alive.iter().map(seen).collect()
    }

    /// Why the target's processes could not be seen at the last look, and how to make them seen; `None`: they
    /// could.
    pub fn target_hidden(&self) -> Option<&str> {
        self.hidden.as_deref()
    }

    /// Whether the target runs on this machine, so that both share its kernel and memory: its processes are
    /// seen, or one of its addresses is this machine's.
    pub fn same_host(&mut self) -> bool {
        self.seen || !self.local().is_empty()
    }

    /// Takes the warnings that came up since the last call; each comes up once.
    pub fn take_warnings(&mut self) -> Vec<String> {
        self.warnings.take()
    }

    fn local(&mut self) -> Vec<SocketAddr> {
        let sockets = &self.sockets;
        let ours = || self.addresses.iter().filter(|a| sockets.is_local(a.ip())).copied().collect();
        self.local.get_or_insert_with(ours).clone()
    }

    fn descriptors_by_size(&mut self) -> bool {
        *self.descriptors_by_size.get_or_insert_with(|| process::descriptors_by_size(&self.root))
    }

    /// One pass over all processes: who is the target, who the generator, and what CPU time they used.
    fn look(&mut self) -> Sight {
        let table = Table::read(&self.root, &mut self.warnings);
        let local = self.local();
        let mut unheard = None;
        let listening = listener::of_target(self.sockets.as_ref(), &local).unwrap_or_else(|error| {
            self.warnings.warn(&error);
            unheard = Some(format!(
                "the kernel does not tell who listens on {}; name the target's process with --pid",
                find::list(&local)
            ));
            vec![]
        });
        let target = self.target(&table, &listening, unheard);
        self.members = target.iter().filter_map(|pid| Some((*pid, table.get(*pid)?.started))).collect();
        self.seen |= !target.is_empty();
        let generator = table.tree([self.own_pid], &target);
        let sight = Sight { table, target, generator, listening };
        let ended = self.target.book(&sight.processes(&sight.target), &[]);
        self.generator.book(&sight.processes(&sight.generator), &ended);
        sight
    }

    /// The target's processes: those that were, as far as they live, with their descendants; looked for anew
    /// when there are none, or when a socket appeared or went.
    fn target(&mut self, table: &Table, listening: &[Listening], unheard: Option<String>) -> BTreeSet<u32> {
        let ourselves = BTreeSet::from([self.own_pid]);
        if let Finder::Cgroup(path) = &self.find {
            let mut members = find::members_of_cgroup(&self.root, path, &mut self.warnings);
            let generator = table.tree([self.own_pid], &BTreeSet::new());
            members.retain(|pid| table.get(*pid).is_some() && !generator.contains(pid));
            if !members.is_empty() {
                self.hidden = None;
                return members;
            }
        }
        let same = |(pid, started): (&u32, &u64)| table.get(*pid).is_some_and(|p| p.started == *started);
        let kept: Vec<u32> = self.members.iter().filter(|m| same(*m)).map(|(pid, _)| *pid).collect();
        let mut target = table.tree(kept, &ourselves);
        let is_port = matches!(self.find, Finder::Port(_));
        if is_port && listening.is_empty() {
            if target.is_empty() {
                self.hidden = Some(unheard.unwrap_or_else(|| self.nobody_listens()));
                self.searched = None;
            }
            return target;
        }
        let inodes: BTreeSet<u64> = listening.iter().map(|s| s.inode).collect();
        let vanished = target.is_empty() && !self.members.is_empty();
        let search =
            if is_port { vanished || self.searched.as_ref() != Some(&inodes) } else { target.is_empty() };
        if search {
            match self.find.roots(&self.root, table, self.own_pid, listening) {
                Ok(roots) => {
                    target.extend(table.tree(roots, &ourselves));
                    self.hidden = None;
                }
                Err(reason) if target.is_empty() => self.hidden = Some(reason),
                Err(_) => {}
            }
            self.searched = Some(inodes);
        }
        target
    }

    fn nobody_listens(&mut self) -> String {
        let addresses = find::list(&self.addresses);
        if self.local().is_empty() {
            format!(
                "no process on this machine listens on {addresses}; the target is remote: its memory and \
                 descriptors are unknown; run `plimsoll observe` there, and name it with --observer"
            )
        } else {
            format!(
                "no process in this network namespace listens on {addresses}; start the target, or, if it \
                 runs in a container, name its process with --pid"
            )
        }
    }
}

#[cfg(test)]
mod tests;

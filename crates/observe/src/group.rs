//! What does a group of processes use together?

use model::observation::Group;

use crate::cpu::{Account, Ended};
use crate::reader::{Root, Warnings};
use crate::table::Process;
use crate::threads::Threads;
use crate::{cgroup, jvm, process};

/// What must be remembered of a group from look to look: its CPU account, and its threads'.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    account: Account,
    threads: Threads,
}

impl Watched {
    /// Books the CPU time of a new reading; see [`Account::update`].
    pub(crate) fn book(&mut self, members: &[&Process], foreign: &[Ended]) -> Vec<Ended> {
        self.account.update(members, foreign)
    }

    /// CPU seconds in all, as last booked.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        self.account.ticks() as f64 / rustix::param::clock_ticks_per_second() as f64
    }

    /// Reads all that can be read of the members: the costly reading. A process that ends meanwhile is left
    /// out; if any figure of one that lives cannot be read, the group's is unknown, not too small.
    pub(crate) fn read(
        &mut self,
        root: &Root,
        members: &[&Process],
        descriptors_by_size: bool,
        warnings: &mut Warnings,
    ) -> Group {
        let mut group = Group {
            user_bytes: Some(0),
            page_table_bytes: Some(0),
            descriptors: Some(0),
            most_descriptors: Some(0),
            cpu_seconds: self.cpu_seconds(),
            ..Group::default()
        };
        for member in members.iter().filter(|m| !m.zombie) {
            let pid = member.pid;
            let mut user = warnings.keep(process::user_bytes(root, pid));
            let mut descriptors = warnings.keep(process::descriptors(root, pid, descriptors_by_size));
            // Read last: without it the process has ended.
            let Some(status) = warnings.keep(root.read(format!("proc/{pid}/status"))) else { continue };
            let page_tables = match process::page_table_bytes(&status) {
                Ok(None) => {
                    user = user.or(Some(0));
                    descriptors = descriptors.or(Some(0));
                    Some(0)
                }
                known => warnings.keep(known),
            };
            group.processes += 1;
            group.threads = group.threads.saturating_add(member.threads);
            group.user_bytes = add(group.user_bytes, user);
            group.page_table_bytes = add(group.page_table_bytes, page_tables);
            group.descriptors = add(group.descriptors, descriptors);
            group.most_descriptors = group.most_descriptors.zip(descriptors).map(|(most, d)| most.max(d));
        }
        group.busiest_thread_cpus = self.threads.busiest_cpus(root, members, warnings);
        group.heap = jvm::heap(root, members, warnings);
        let oldest = members.iter().min_by_key(|m| (m.started, m.pid));
        group.cgroup = oldest.and_then(|first| cgroup::read(root, first.pid, warnings));
        group
    }
}

fn add(sum: Option<u64>, more: Option<u64>) -> Option<u64> {
    Some(sum?.saturating_add(more?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::table::Table;

    fn read(fake: &Fake, warnings: &mut Warnings) -> Group {
        let table = Table::read(&fake.root(), warnings);
        let members: Vec<&Process> = table.iter().collect();
        let mut watched = Watched::default();
        watched.book(&members, &[]);
        watched.read(&fake.root(), &members, false, warnings)
    }

    #[test]
    fn threads_are_remembered_from_look_to_look() {
        let fake = Fake::new();
        fake.process(5, 1, "chat");
        let stat = |ticks| format!("5 (chat) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 2 0 1005 0 0");
        let mut watched = Watched::default();
        let mut look = |uptime: &str, ticks: u64| {
            fake.file("proc/uptime", uptime);
            fake.file("proc/5/task/5/stat", &stat(ticks));
            let mut warnings = Warnings::default();
            let table = Table::read(&fake.root(), &mut warnings);
            let members: Vec<&Process> = table.iter().collect();
            watched.read(&fake.root(), &members, false, &mut warnings).busiest_thread_cpus
        };
        assert_eq!(look("7.00 1.00\n", 7), None);
        assert_eq!(look("9.00 1.00\n", 7 + rustix::param::clock_ticks_per_second()), Some(0.5));
    }

    #[test]
    fn sums_and_the_most() {
        let fake = Fake::new();
        fake.process(5, 1, "chat");
        fake.process(6, 5, "chat");
        fake.file("proc/6/fd/1", "");
        let mut warnings = Warnings::default();
        let group = read(&fake, &mut warnings);
        assert_eq!(
            group,
            Group {
                processes: 2,
                user_bytes: Some((1005 + 1006) * 1024),
                page_table_bytes: Some(80 * 1024),
                descriptors: Some(3),
                most_descriptors: Some(2),
                threads: 4,
                cpu_seconds: 1.21,
                ..Group::default()
            }
        );
        assert_eq!(warnings.take(), Vec::<String>::new());
    }

    #[test]
    fn one_that_cannot_be_read_makes_the_sum_unknown() {
        let fake = Fake::new();
        fake.process(5, 1, "chat");
        fake.process(6, 5, "chat");
        fake.remove("proc/6/smaps_rollup");
        let group = read(&fake, &mut Warnings::default());
        assert_eq!((group.user_bytes, group.descriptors), (None, Some(2)));
        fake.file("proc/6/smaps_rollup", "x\nPss: y kB\n");
        let mut warnings = Warnings::default();
        assert_eq!(read(&fake, &mut warnings).user_bytes, None);
        assert!(warnings.take()[0].contains("proc/6/smaps_rollup, line 2"));
    }

    #[test]
    fn one_that_is_ending_uses_nothing() {
        let fake = Fake::new();
        fake.process(5, 1, "chat");
        fake.process(6, 5, "chat");
        fake.process(7, 5, "chat");
        for file in ["smaps_rollup", "fd"] {
            fake.remove(&format!("proc/6/{file}"));
            fake.remove(&format!("proc/7/{file}"));
        }
        // 6 has given its memory back already, 7 has gone since the pass over all processes.
        fake.file("proc/6/status", "Name:\tchat\nThreads:\t1\n");
        fake.remove("proc/7/status");
        let mut warnings = Warnings::default();
        let group = read(&fake, &mut warnings);
        assert_eq!((group.processes, group.user_bytes, group.descriptors), (2, Some(1005 * 1024), Some(1)));
        assert_eq!(warnings.take(), Vec::<String>::new());
    }

    #[test]
    fn a_zombie_uses_nothing_but_the_time_it_used() {
        let fake = Fake::new();
        fake.process(5, 1, "chat");
        fake.file("proc/6/stat", "6 (chat) Z 5 1 1 0 -1 0 0 0 0 0 300 0 0 0 20 0 1 0 1006 0 0");
        let group = read(&fake, &mut Warnings::default());
        assert_eq!((group.processes, group.threads, group.user_bytes), (1, 2, Some(1005 * 1024)));
        assert!((group.cpu_seconds - 3.55).abs() < 1e-9);
    }
}

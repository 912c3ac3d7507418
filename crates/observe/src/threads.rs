//! Is one thread of a group as busy as a thread can be?
//!
//! A server that uses one CPU of sixteen looks idle from afar, and is full if a single thread does all of it.
//! So the threads are looked at one by one: `/proc/PID/task/TID/stat` (proc_pid_task(5)). The time between
//! two looks is read where theirs is, in `/proc/uptime` (proc_uptime(5)): no clock of our own is needed.

use std::collections::BTreeMap;

use crate::reader::{Root, Warnings};
use crate::table::{self, Process};

/// Looking at more threads than this at every look would cost more than it tells.
const MOST_THREADS: u64 = 256;

/// A shorter time than this holds too few ticks to divide by it.
const SHORTEST_SECONDS: f64 = 0.1;

/// The threads of a group at the last look that another can be compared with.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    last: Option<Look>,
}

#[derive(Debug)]
struct Look {
    /// Seconds since boot.
    uptime: f64,
    /// Ticks by thread: its id and start time.
    ticks: BTreeMap<(u32, u64), u64>,
}

impl Threads {
    /// The CPUs that the busiest thread used since the last look: at most 1, but for the coarseness of ticks.
    ///
    /// `None`: this is the first look, the last one was only just now, there are too many threads to look at
    /// each, or they cannot be read.
    pub(crate) fn busiest_cpus(
        &mut self,
        root: &Root,
        members: &[&Process],
        warnings: &mut Warnings,
    ) -> Option<f64> {
        let alive = || members.iter().filter(|m| !m.zombie);
        if alive().fold(0, |sum: u64, m| sum.saturating_add(m.threads)) > MOST_THREADS {
            self.last = None;
            return None;
        }
        let uptime = uptime(root, warnings)?;
        let seconds = self.last.as_ref().map(|last| uptime - last.uptime);
        if seconds.is_some_and(|s| (0.0..SHORTEST_SECONDS).contains(&s)) {
            // The next look will span this time as well.
            return None;
        }
        let mut ticks = BTreeMap::new();
        for member in alive() {
            ticks.extend(of_process(root, member.pid, warnings)?);
        }
        let last = self.last.replace(Look { uptime, ticks });
        let (last, now) = (last?, self.last.as_ref()?);
        // A thread that is new has used all of its time since.
        let used =
            |(id, ticks): (&(u32, u64), &u64)| ticks.saturating_sub(last.ticks.get(id).copied().unwrap_or(0));
        let most = now.ticks.iter().map(used).max()?;
        let seconds = seconds.filter(|s| *s > 0.0)?;
        Some(most as f64 / rustix::param::clock_ticks_per_second() as f64 / seconds)
    }
}

/// Ticks of each thread of a process; nothing of one that has ended, `None` where they cannot be listed.
fn of_process(root: &Root, pid: u32, warnings: &mut Warnings) -> Option<BTreeMap<(u32, u64), u64>> {
    let threads = match root.numbered(format!("proc/{pid}/task")) {
        Ok(Some(threads)) => threads,
        Ok(None) => return Some(BTreeMap::new()),
        Err(error) => {
            warnings.warn(&error);
            return None;
        }
    };
    let ticks = threads.into_iter().filter_map(|thread| {
        let text = warnings.keep(root.read(format!("proc/{pid}/task/{thread}/stat")))?;
        let seen = warnings.keep(table::parse(&text).map(Some))?;
        Some(((thread, seen.started), seen.own_ticks))
    });
    Some(ticks.collect())
}

/// Seconds since boot: the first word of `/proc/uptime`.
fn uptime(root: &Root, warnings: &mut Warnings) -> Option<f64> {
    let text = warnings.keep(root.read("proc/uptime"))?;
    let seconds: f64 = warnings.keep(text.whole().value(0, "seconds since boot").map(Some))?;
    seconds.is_finite().then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;
    use crate::table::Table;

    fn uptime(fake: &Fake, seconds: f64) {
        fake.file("proc/uptime", &format!("{seconds:.2} 12.00\n"));
    }

    fn thread(fake: &Fake, pid: u32, thread: u32, ticks: u64) {
        let stat =
            format!("{thread} (a b) S 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 2 0 {} 0 0", 1000 + thread);
        fake.file(&format!("proc/{pid}/task/{thread}/stat"), &stat);
    }

    fn look(threads: &mut Threads, fake: &Fake) -> Option<f64> {
        let mut warnings = Warnings::default();
        let table = Table::read(&fake.root(), &mut warnings);
        let members: Vec<&Process> = table.iter().collect();
        let found = threads.busiest_cpus(&fake.root(), &members, &mut warnings);
        assert_eq!(warnings.take(), Vec::<String>::new());
        found
    }

    #[test]
    fn the_busiest_of_all_members_since_the_last_look() {
        let fake = Fake::new();
        let second = rustix::param::clock_ticks_per_second();
        for pid in [5, 6] {
            fake.process(pid, 1, "chat");
            thread(&fake, pid, pid, 1_000);
            thread(&fake, pid, pid + 10, 9_000);
        }
        uptime(&fake, 100.0);
        let mut threads = Threads::default();
        assert_eq!(look(&mut threads, &fake), None, "the first look has nothing to compare with");

        uptime(&fake, 102.0);
        thread(&fake, 5, 5, 1_000 + second / 2);
        thread(&fake, 6, 16, 9_000 + second);
        assert_eq!(look(&mut threads, &fake), Some(0.5));

        // Thread 16 ended; a new one took its number, and used little.
        uptime(&fake, 104.0);
        fake.remove("proc/6/task/16/stat");
        let stat = format!("16 (a) S 1 1 1 0 -1 0 0 0 0 0 {} 0 0 0 20 0 2 0 99999 0 0", second / 5);
        fake.file("proc/6/task/16/stat", &stat);
        assert_eq!(look(&mut threads, &fake), Some(0.1));

        uptime(&fake, 105.0);
        assert_eq!(look(&mut threads, &fake), Some(0.0));
    }

    #[test]
    fn a_look_just_after_another_is_none_and_its_time_is_not_lost() {
        let fake = Fake::new();
        let second = rustix::param::clock_ticks_per_second();
        fake.process(5, 1, "chat");
        thread(&fake, 5, 5, 0);
        uptime(&fake, 10.0);
        let mut threads = Threads::default();
        look(&mut threads, &fake);
        uptime(&fake, 10.05);
        thread(&fake, 5, 5, 5);
        assert_eq!(look(&mut threads, &fake), None);
        uptime(&fake, 11.0);
        thread(&fake, 5, 5, second);
        assert_eq!(look(&mut threads, &fake), Some(1.0));
    }

    #[test]
    fn too_many_threads_are_not_looked_at() {
        let fake = Fake::new();
        fake.process(5, 1, "chat");
        thread(&fake, 5, 5, 0);
        uptime(&fake, 10.0);
        let mut threads = Threads::default();
        look(&mut threads, &fake);
        fake.file("proc/5/stat", "5 (chat) S 1 1 1 0 -1 0 0 0 0 0 5 0 0 0 20 0 257 0 1005 0 0");
        uptime(&fake, 12.0);
        assert_eq!(look(&mut threads, &fake), None);
        fake.process(5, 1, "chat");
        uptime(&fake, 14.0);
        assert_eq!(look(&mut threads, &fake), None, "the time in between is not known");
        uptime(&fake, 16.0);
        assert_eq!(look(&mut threads, &fake), Some(0.0));
    }

    #[test]
    fn without_uptime_or_threads_nothing_is_known() {
        let fake = Fake::new();
        fake.process(5, 1, "chat");
        let mut threads = Threads::default();
        assert_eq!((look(&mut threads, &fake), look(&mut threads, &fake)), (None, None));
        uptime(&fake, 10.0);
        look(&mut threads, &fake);
        uptime(&fake, 20.0);
        assert_eq!(look(&mut threads, &fake), None);
        fake.file("proc/uptime", "soon\n");
        let mut warnings = Warnings::default();
        assert_eq!(super::uptime(&fake.root(), &mut warnings), None);
        assert!(warnings.take()[0].contains("proc/uptime, line 1: expected seconds since boot"));
    }
}

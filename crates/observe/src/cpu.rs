//! How much CPU time has a group of processes used, those that have ended included?

use std::collections::BTreeMap;

use crate::table::Process;

/// The CPU account of a group; its total never falls.
///
/// A process's time moves to its parent's `cutime` and `cstime` when the parent waits for it, so the sum of
/// own and ended children's times over a group is kept, except that time is lost when nobody waits (the
/// parent ignores SIGCHLD, or the process was handed to init). What was lost is carried on here, from the
/// last reading before the end.
#[derive(Debug, Default)]
pub(crate) struct Account {
    last: BTreeMap<(u32, u64), Times>,
    carried: i128,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    parent: u32,
    own: u64,
    children: u64,
}

/// A process that has ended since the last reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended {
    /// Who inherits its time: its parent, or whoever inherits the parent's, should that have ended with it.
    pub(crate) heir: u32,
    pub(crate) ticks: u64,
}

impl Account {
    /// Takes a new reading of the group. `foreign` are processes of another group that have ended meanwhile:
    /// where a member of this group was the parent, their time is not this group's. Returns who has ended.
    pub(crate) fn update(&mut self, group: &[&Process], foreign: &[Ended]) -> Vec<Ended> {
        let now: BTreeMap<(u32, u64), Times> = group
            .iter()
            .map(|p| {
                let times = Times { parent: p.parent, own: p.own_ticks, children: p.ended_children_ticks };
                ((p.pid, p.started), times)
            })
            .collect();
        let gone: BTreeMap<u32, Times> = self
            .last
            .iter()
            .filter(|(id, _)| !now.contains_key(id))
            .map(|((pid, _), t)| (*pid, *t))
            .collect();
        let ended: Vec<Ended> = gone
            .values()
            .map(|t| Ended { heir: heir(&gone, t.parent), ticks: t.own.saturating_add(t.children) })
            .collect();
        // What the survivors have inherited from ended children, seen and unseen.
        let inherited: i128 = now
            .iter()
            .filter_map(|(id, t)| Some(i128::from(t.children) - i128::from(self.last.get(id)?.children)))
            .filter(|grown| *grown > 0)
            .sum();
        let from_others: i128 = foreign
            .iter()
            .filter(|e| now.keys().any(|(pid, _)| *pid == e.heir))
            .map(|e| i128::from(e.ticks))
            .sum::<i128>()
            .min(inherited);
        let left: i128 = ended.iter().map(|e| i128::from(e.ticks)).sum();
        self.carried += (left - (inherited - from_others)).max(0) - from_others;
        self.last = now;
        ended
    }

    /// Ticks in all.
    pub(crate) fn ticks(&self) -> u64 {
        let alive: i128 = self.last.values().map(|t| i128::from(t.own) + i128::from(t.children)).sum();
        u64::try_from((alive + self.carried).max(0)).unwrap_or(u64::MAX)
    }
}

/// The first ancestor that has not ended as well.
fn heir(gone: &BTreeMap<u32, Times>, parent: u32) -> u32 {
    let mut at = parent;
    // A tree is no deeper than it has members.
    for _ in gone {
        match gone.get(&at) {
            Some(times) => at = times.parent,
            None => break,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn process(pid: u32, parent: u32, own: u64, children: u64) -> Process {
        Process {
            pid,
            name: String::new(),
            parent,
            zombie: false,
            threads: 1,
            started: 1,
            own_ticks: own,
            ended_children_ticks: children,
        }
    }

    fn read(account: &mut Account, group: &[Process], foreign: &[Ended]) -> u64 {
        account.update(&group.iter().collect::<Vec<_>>(), foreign);
        account.ticks()
    }

    #[test]
    fn a_child_that_was_waited_for_is_not_counted_twice() {
        let mut account = Account::default();
        assert_eq!(read(&mut account, &[process(1, 0, 10, 0), process(2, 1, 50, 5)], &[]), 65);
        // It ran 7 more ticks before it ended.
        assert_eq!(read(&mut account, &[process(1, 0, 10, 62)], &[]), 72);
        assert_eq!(read(&mut account, &[process(1, 0, 11, 62)], &[]), 73);
    }

    #[test]
    fn a_child_that_nobody_waited_for_is_not_lost() {
        let mut account = Account::default();
        read(&mut account, &[process(1, 0, 10, 0), process(2, 1, 50, 5)], &[]);
        assert_eq!(read(&mut account, &[process(1, 0, 10, 0)], &[]), 65);
        assert_eq!(read(&mut account, &[process(1, 0, 12, 0)], &[]), 67);
        assert_eq!(read(&mut account, &[], &[]), 67);
    }

    #[test]
    fn a_target_that_was_our_child_is_not_ours() {
        let mut generator = Account::default();
        read(&mut generator, &[process(1, 0, 10, 0)], &[]);
        let ended = [Ended { heir: 1, ticks: 1000 }];
        assert_eq!(read(&mut generator, &[process(1, 0, 20, 1000)], &ended), 20);
        assert_eq!(read(&mut generator, &[process(1, 0, 25, 1000)], &[]), 25);
    }

    proptest! {
        /// Times of one process never fall, processes come and go, with and without being waited for.
        #[test]
        fn the_total_never_falls(
            steps in prop::collection::vec(
                prop::collection::vec((any::<bool>(), 0u64..100, 0u64..100), 6), 1..20),
        ) {
            let mut account = Account::default();
            let mut times = [(0u64, 0u64); 6];
            let mut gone = [false; 6];
            let mut last = 0;
            for step in steps {
                let mut group = vec![];
                for (i, (alive, own, children)) in step.into_iter().enumerate() {
                    times[i].0 += own;
                    times[i].1 += children;
                    gone[i] |= !alive && i > 0;
                    if !gone[i] {
                        group.push(process(u32::try_from(i).unwrap() + 1, 1, times[i].0, times[i].1));
                    }
                }
                let total = read(&mut account, &group, &[]);
                prop_assert!(total >= last, "{} fell to {}", last, total);
                last = total;
            }
        }
    }
}

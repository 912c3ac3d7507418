//! Which processes are there, and who is whose child? One pass over `/proc/PID/stat` (proc_pid_stat(5)).

use std::collections::{BTreeMap, BTreeSet};

use crate::reader::{Error, Root, Text, Warnings};

/// What `/proc/PID/stat` says of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) parent: u32,
    /// Ended, but not yet waited for by its parent.
    pub(crate) zombie: bool,
    pub(crate) threads: u64,
    /// Ticks since boot; with the pid it identifies a process for ever.
    pub(crate) started: u64,
    /// Ticks it has run itself (utime + stime, all threads).
    pub(crate) own_ticks: u64,
    /// Ticks of the children that it has waited for, and of theirs (cutime + cstime).
    pub(crate) ended_children_ticks: u64,
}

/// All processes of a moment.
#[derive(Debug, Default)]
pub(crate) struct Table {
    processes: BTreeMap<u32, Process>,
    children: BTreeMap<u32, Vec<u32>>,
}

impl Table {
    /// Reads all processes. Those that end meanwhile are left out.
    pub(crate) fn read(root: &Root, warnings: &mut Warnings) -> Self {
        let pids = root.pids().unwrap_or_else(|error| {
            warnings.warn(&error);
            vec![]
        });
        Self::new(pids.into_iter().filter_map(|pid| {
            let text = warnings.keep(root.read(format!("proc/{pid}/stat")))?;
            warnings.keep(parse(&text).map(Some))
        }))
    }

    pub(crate) fn new(processes: impl IntoIterator<Item = Process>) -> Self {
        let mut table = Self::default();
        for process in processes {
            table.children.entry(process.parent).or_default().push(process.pid);
            table.processes.insert(process.pid, process);
        }
        table
    }

    pub(crate) fn get(&self, pid: u32) -> Option<&Process> {
        self.processes.get(&pid)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Process> {
        self.processes.values()
    }

    /// The given processes and all their descendants, as far as they are alive. What is in `except` is left
    /// out together with its descendants.
    pub(crate) fn tree(&self, roots: impl IntoIterator<Item = u32>, except: &BTreeSet<u32>) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut open: Vec<u32> = roots.into_iter().collect();
        while let Some(pid) = open.pop() {
            if self.processes.contains_key(&pid) && !except.contains(&pid) && found.insert(pid) {
                open.extend(self.children.get(&pid).into_iter().flatten());
            }
        }
        found
    }

    /// The parent, its parent, and so on.
    pub(crate) fn ancestors(&self, pid: u32) -> BTreeSet<u32> {
        let mut found = BTreeSet::new();
        let mut at = self.get(pid).map(|p| p.parent);
        while let Some(pid) = at.filter(|&pid| pid != 0 && found.insert(pid)) {
            at = self.get(pid).map(|p| p.parent);
        }
        found
    }
}

/// Parses `/proc/PID/stat`. The name stands in brackets and may itself hold brackets, blanks and line breaks.
pub(crate) fn parse(text: &Text) -> Result<Process, Error> {
    let all = text.whole();
    let (pid, rest) = all.text.split_once(" (").ok_or_else(|| all.malformed("PID (NAME) STATE …"))?;
    let (name, rest) = rest.rsplit_once(") ").ok_or_else(|| all.malformed("PID (NAME) STATE …"))?;
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    // The man page counts fields from 1; the first word after the name is field 3. Times may be negative in
    // broken kernels; they are then taken as 0.
    let field = |number: usize, expected| -> Result<u64, Error> {
        let value: Option<i128> = words.get(number - 3).and_then(|word| word.parse().ok());
        value.and_then(|v| u64::try_from(v.max(0)).ok()).ok_or_else(|| all.malformed(expected))
    };
    Ok(Process {
        pid: pid.trim().parse().map_err(|_| all.malformed("a process id in field 1"))?,
        name: name.to_owned(),
        parent: u32::try_from(field(4, "a process id in field 4")?)
            .map_err(|_| all.malformed("a process id in field 4"))?,
        zombie: matches!(words.first(), Some(&"Z" | &"X")),
        threads: field(20, "the number of threads in field 20")?,
        started: field(22, "the start time in field 22")?,
        own_ticks: field(14, "utime in field 14")?.saturating_add(field(15, "stime in field 15")?),
        ended_children_ticks: field(16, "cutime in field 16")?
            .saturating_add(field(17, "cstime in field 17")?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Text {
        Text { path: "/proc/7/stat".into(), text: text.to_owned() }
    }

    #[test]
    fn a_name_may_hold_anything() {
        let line = "7 (a) b\n(c) S 1 7 7 0 -1 4194560 1 2 3 4 100 20 3 -4 20 0 9 0 555 1 1 1\n";
        let process = parse(&text(line)).unwrap();
        assert_eq!(process.name, "a) b\n(c");
        assert_eq!((process.pid, process.parent, process.threads, process.started), (7, 1, 9, 555));
        assert_eq!((process.own_ticks, process.ended_children_ticks), (120, 3));
        assert!(!process.zombie);
    }

    #[test]
    fn a_short_line_is_named() {
        let error = parse(&text("7 (a) S 1 7 7\n")).unwrap_err().to_string();
        assert!(error.contains("/proc/7/stat, line 1: expected"), "{error}");
    }

    fn process(pid: u32, parent: u32) -> Process {
        let line = format!("{pid} (p) S {parent} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 1");
        parse(&text(&line)).unwrap()
    }

    #[test]
    fn trees_and_ancestors() {
        let table = Table::new([
            process(1, 0),
            process(2, 1),
            process(3, 2),
            process(4, 3),
            process(5, 2),
            process(6, 1),
        ]);
        assert_eq!(table.tree([2], &BTreeSet::new()), BTreeSet::from([2, 3, 4, 5]));
        assert_eq!(table.tree([2], &BTreeSet::from([3])), BTreeSet::from([2, 5]));
        assert_eq!(table.tree([2, 99], &BTreeSet::new()).len(), 4);
        assert_eq!(table.ancestors(4), BTreeSet::from([1, 2, 3]));
    }

    #[test]
    fn a_circle_of_parents_ends() {
        let table = Table::new([process(2, 3), process(3, 2)]);
        assert_eq!(table.ancestors(2), BTreeSet::from([2, 3]));
        assert_eq!(table.tree([2], &BTreeSet::new()), BTreeSet::from([2, 3]));
    }

    proptest::proptest! {
        #[test]
        fn never_panics(words in "[0-9]{1,3} \\(.{0,5}\\) [SZ]( [-0-9]{1,22}){0,25}", junk in ".{0,200}") {
            let _ = parse(&text(&words));
            let _ = parse(&text(&junk));
        }
    }
}

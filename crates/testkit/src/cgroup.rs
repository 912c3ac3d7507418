//! How is a process starved on purpose, of CPU, memory or threads? With a control group, in version 1 or 2.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

/// Where control groups are mounted.
const ROOT: &str = "/sys/fs/cgroup";
/// The period over which the kernel grants the quota.
const PERIOD_MICROSECONDS: u64 = 100_000;

/// A control group that limits one thing. Its processes move back to the parent group and it is removed when dropped.
#[derive(Debug)]
pub struct Cgroup {
    path: PathBuf,
    /// Where the processes go afterwards.
    parent: PathBuf,
}

impl Cgroup {
    /// Makes a group whose processes together may use `cpus` CPUs (0.1: a tenth of one).
    ///
    /// # Errors
    /// The reason, where this machine does not allow it; a test then says so and is skipped.
    pub fn with_cpu_quota(name: &str, cpus: f64) -> Result<Self, String> {
        let quota = (cpus * PERIOD_MICROSECONDS as f64).round() as u64;
        let (period, quota) = (PERIOD_MICROSECONDS.to_string(), quota.to_string());
        let old = [("cpu.cfs_period_us", period.as_str()), ("cpu.cfs_quota_us", &quota)];
        Self::under(Path::new(ROOT), "cpu", name, &old, ("cpu.max", &format!("{quota} {period}")))
    }

    /// Makes a group that may have so many tasks (threads) at a time.
    ///
    /// # Errors
    /// The reason, where this machine does not allow it; a test then says so and is skipped.
    pub fn with_task_limit(name: &str, tasks: u64) -> Result<Self, String> {
        let tasks = tasks.to_string();
        Self::under(Path::new(ROOT), "pids", name, &[("pids.max", &tasks)], ("pids.max", &tasks))
    }

    /// Makes a group that may have so much memory, that of its sockets included where the kernel counts it.
    ///
    /// # Errors
    /// The reason, where this machine does not allow it; a test then says so and is skipped.
    pub fn with_memory_limit(name: &str, bytes: u64) -> Result<Self, String> {
        let bytes = bytes.to_string();
        Self::under(
            Path::new(ROOT),
            "memory",
            name,
            &[("memory.limit_in_bytes", &bytes)],
            ("memory.max", &bytes),
        )
    }

    /// A group of one controller: what is written where version 1 is mounted, and what in version 2.
    fn under(
        root: &Path,
        controller: &str,
        name: &str,
        old: &[(&str, &str)],
        new: (&str, &str),
    ) -> Result<Self, String> {
        if root.join(controller).join("cgroup.procs").exists() {
            let group = Self::make(&root.join(controller), name)?;
            old.iter().try_for_each(|(file, value)| group.write(file, value))?;
            return Ok(group);
        }
        for parent in [root.to_owned(), root.join("unified")] {
            let controllers = fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
            if controllers.split_whitespace().any(|c| c == controller) {
                let granted = fs::write(parent.join("cgroup.subtree_control"), format!("+{controller}"));
                granted.map_err(|e| {
                    format!("failed to grant the {controller} controller below {parent:?}: {e}")
                })?;
                let group = Self::make(&parent, name)?;
                group.write(new.0, new.1)?;
                return Ok(group);
            }
        }
        Err(format!("no {controller} controller under {}", root.display()))
    }

    fn make(parent: &Path, name: &str) -> Result<Self, String> {
        let path = parent.join(name);
        match fs::create_dir(&path) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => {
                Err(format!("failed to make {}: {e}", path.display()))
            }
            _ => Ok(Self { path, parent: parent.to_owned() }),
        }
    }

    fn write(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.path.join(file);
        fs::write(&path, value).map_err(|e| format!("failed to write {value:?} to {}: {e}", path.display()))
    }

    /// Leaves the group's processes so many bytes of memory more than they have now.
    ///
    /// # Errors
    /// The reason, if the kernel does not tell what they have, or does not take the limit.
    pub fn leave_memory(&self, bytes: u64) -> Result<(), String> {
        let old = self.path.join("memory.usage_in_bytes");
        let path = if old.exists() { old } else { self.path.join("memory.current") };
        let text =
            fs::read_to_string(&path).map_err(|e| format!("failed to read {}: {e}", path.display()))?;
        let used: u64 = text.trim().parse().map_err(|e| format!("{} says {text:?}: {e}", path.display()))?;
        self.set_memory(used + bytes)
    }

    /// Gives the group another limit of memory.
    ///
    /// # Errors
    /// The reason, if the kernel does not take it.
    pub fn set_memory(&self, bytes: u64) -> Result<(), String> {
        let old = self.path.join("memory.limit_in_bytes").exists();
        self.write(if old { "memory.limit_in_bytes" } else { "memory.max" }, &bytes.to_string())
    }

    /// Moves a process into the group. Children that it starts from then on are in it too.
    ///
    /// # Errors
    /// The reason, if the kernel does not take it.
    pub fn add(&self, pid: u32) -> Result<(), String> {
        self.write("cgroup.procs", &pid.to_string())
    }

    /// The command that runs `program` in the group from its first moment on. Arguments are added to it as usual; the
    /// process id is the program's own, as the shell makes way for it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("sh");
        command
            .args(["-euc", "echo $$ > \"$0\"; exec \"$@\""])
            .arg(self.path.join("cgroup.procs"))
            .arg(program);
        command
    }

    /// The processes in the group.
    ///
    /// # Errors
    /// The reason, if they cannot be read.
    pub fn processes(&self) -> Result<Vec<u32>, String> {
        let path = self.path.join("cgroup.procs");
        let text =
            fs::read_to_string(&path).map_err(|e| format!("failed to read {}: {e}", path.display()))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// How often its processes were held back because the quota was used up.
    ///
    /// # Errors
    /// The reason, if it cannot be read.
    pub fn throttled(&self) -> Result<u64, String> {
        let path = self.path.join("cpu.stat");
        let text =
            fs::read_to_string(&path).map_err(|e| format!("failed to read {}: {e}", path.display()))?;
        text.lines()
            .find_map(|line| line.strip_prefix("nr_throttled ")?.parse().ok())
            .ok_or_else(|| format!("{} has no nr_throttled", path.display()))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // a group can be removed once the last process has left; an ending one takes a moment
        for _ in 0..100 {
            for pid in self.processes().unwrap_or_default() {
                let _ = fs::write(self.parent.join("cgroup.procs"), pid.to_string());
            }
            match fs::remove_dir(&self.path) {
                Err(e) if e.kind() == io::ErrorKind::ResourceBusy => sleep(Duration::from_millis(10)),
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limited::Running;

    #[test]
    fn a_busy_process_is_held_back_and_nothing_is_left_behind() {
        let name = format!("plimsoll-test-{}", std::process::id());
        let group = match Cgroup::with_cpu_quota(&name, 0.1) {
            Ok(group) => group,
            Err(why) => {
                eprintln!("skipped: {why}");
                return;
            }
        };
        let busy = Running::start(group.command("sh").args(["-c", "while :; do :; done"])).unwrap();
        let idle = Running::start(Command::new("sleep").arg("100")).unwrap();
        group.add(idle.pid()).unwrap();
        sleep(Duration::from_millis(100));
        assert_eq!(group.processes().unwrap(), [busy.pid(), idle.pid()]);
        sleep(Duration::from_millis(500));
        assert!(group.throttled().unwrap() > 0);
        let path = group.path.clone();
        drop(group);
        assert!(!path.exists());
        drop((busy, idle));
    }

    #[test]
    fn a_machine_without_the_controller_gives_a_reason() {
        let why = Cgroup::under(Path::new("/proc/self"), "cpu", "x", &[], ("cpu.max", "1 2")).unwrap_err();
        assert!(why.contains("no cpu controller"), "{why}");
    }
}

//! How is a process starved of CPU on purpose? With a control group that has a quota, in version 1 or 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

/// The period over which the kernel grants the quota.
const PERIOD_MICROSECONDS: u64 = 100_000;

/// A control group with a CPU quota. Its processes move back to the parent group and it is removed when dropped.
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
        Self::under(Path::new("/sys/fs/cgroup"), name, cpus)
    }

    fn under(root: &Path, name: &str, cpus: f64) -> Result<Self, String> {
        let quota = (cpus * PERIOD_MICROSECONDS as f64).round() as u64;
        if root.join("cpu/cpu.cfs_quota_us").exists() || root.join("cpu/cgroup.procs").exists() {
            let group = Self::make(&root.join("cpu"), name)?;
            group.write("cpu.cfs_period_us", &PERIOD_MICROSECONDS.to_string())?;
            group.write("cpu.cfs_quota_us", &quota.to_string())?;
            return Ok(group);
        }
        for parent in [root.to_owned(), root.join("unified")] {
            let controllers = fs::read_to_string(parent.join("cgroup.controllers")).unwrap_or_default();
            if controllers.split_whitespace().any(|c| c == "cpu") {
                let granted = fs::write(parent.join("cgroup.subtree_control"), "+cpu");
                granted.map_err(|e| format!("failed to grant the cpu controller below {parent:?}: {e}"))?;
                let group = Self::make(&parent, name)?;
                group.write("cpu.max", &format!("{quota} {PERIOD_MICROSECONDS}"))?;
                return Ok(group);
            }
        }
        Err(format!("no cpu controller under {}", root.display()))
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

    /// Moves a process into the group. Children that it starts from then on are in it too.
    ///
    /// # Errors
    /// The reason, if the kernel does not take it.
    pub fn add(&self, pid: u32) -> Result<(), String> {
        self.write("cgroup.procs", &pid.to_string())
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
    use std::process::Command;

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
        let busy = Running::start(Command::new("sh").args(["-c", "while :; do :; done"])).unwrap();
        group.add(busy.pid()).unwrap();
        assert_eq!(group.processes().unwrap(), [busy.pid()]);
        sleep(Duration::from_millis(500));
        assert!(group.throttled().unwrap() > 0);
        let path = group.path.clone();
        drop(group);
        assert!(!path.exists());
        drop(busy);
    }

    #[test]
    fn a_machine_without_the_controller_gives_a_reason() {
        let why = Cgroup::under(Path::new("/proc/self"), "x", 0.1).unwrap_err();
        assert!(why.contains("no cpu controller"), "{why}");
    }
}

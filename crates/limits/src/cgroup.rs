//! The lines that lift a limit of a control group at once: written to the very file that sets it (cgroups(7)), which
//! may be an ancestor's.

use model::RunResult;
use model::observation::Cgroup;

/// More memory.
pub(crate) fn memory(cgroup: &Cgroup, megabytes: u64) -> Option<String> {
    Some(format!("echo {megabytes}M > {}", cgroup.memory_limit_file.as_ref()?))
}

/// More CPUs.
pub(crate) fn cpus(cgroup: &Cgroup, cpus: u32) -> Option<String> {
    let (file, micros) = (cgroup.cpu_limit_file.as_ref()?, u64::from(cpus) * 100_000);
    // Version 1 has quota and period in two files, and its period is nearly always the default.
    Some(match file.ends_with("cpu.max") {
        true => format!("echo '{micros} 100000' > {file}"),
        false => format!("echo {micros} > {file}"),
    })
}

/// All CPUs of the host for a target that has a quota, at once and for good; nothing for one that has none.
pub(crate) fn all_cpus_for_target(run: &RunResult) -> Vec<String> {
    let group = run.before.target.as_ref().and_then(|g| g.cgroup.as_ref());
    let Some(group) = group.filter(|c| c.cpu_limit.is_some()) else { return Vec::new() };
    let all = run.host.cpus.max(1);
    let mut out = vec!["# all CPUs of this host, at once:".to_owned()];
    out.extend(cpus(group, all));
    out.push("# to keep it, where systemd starts the server (systemctl edit NAME):".to_owned());
    out.push("[Service]".to_owned());
    out.push(format!("CPUQuota={}%", all * 100));
    out
}

/// More tasks.
pub(crate) fn tasks(cgroup: &Cgroup, tasks: u64) -> Option<String> {
    Some(format!("echo {tasks} > {}", cgroup.pids_limit_file.as_ref()?))
}

//! The lines that lift a limit of a control group at once: written to the very file that sets it (cgroups(7)), which
//! may be an ancestor's.

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

/// More tasks.
pub(crate) fn tasks(cgroup: &Cgroup, tasks: u64) -> Option<String> {
    Some(format!("echo {tasks} > {}", cgroup.pids_limit_file.as_ref()?))
}

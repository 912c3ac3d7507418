//! How is the host doing, and what is it?

use model::observation::HostReading;
use model::result::Host;

use crate::cgroup;
use crate::reader::{Error, Root, Text, Warnings};

/// Reads the host: `/proc/meminfo`, `/proc/net/sockstat`, `/proc/sys/fs/file-nr`, `/proc/stat`,
/// `/proc/pressure`, `/proc/vmstat` and the size of the connection-tracking table.
pub(crate) fn read(root: &Root, warnings: &mut Warnings) -> HostReading {
    let mut reading = HostReading::default();
    if let Some(text) = warnings.keep(root.read("proc/meminfo")) {
        reading.memory_available_bytes = warnings.keep(text.bytes_of("MemAvailable:"));
        reading.slab_bytes = warnings.keep(text.bytes_of("Slab:"));
    }
    let v6 = warnings.keep(root.read("proc/net/sockstat6"));
    let v6_in_use = v6.and_then(|text| warnings.keep(sockstat(&text, "TCP6:", "inuse")));
    if let Some(text) = warnings.keep(root.read("proc/net/sockstat")) {
        let mut value = |key| warnings.keep(sockstat(&text, "TCP:", key));
        reading.tcp_in_use = value("inuse").map(|v4| v4.saturating_add(v6_in_use.unwrap_or(0)));
        reading.tcp_time_wait = value("tw");
        let pages = value("mem");
        reading.socket_buffer_bytes = pages.map(|p| p.saturating_mul(rustix::param::page_size() as u64));
    }
    reading.files = warnings.keep(root.number("proc/sys/fs/file-nr"));
    reading.conntrack = warnings.keep(root.number("proc/sys/net/netfilter/nf_conntrack_count"));
    reading.tasks =
        warnings.keep(root.read("proc/loadavg")).and_then(|text| warnings.keep(tasks(&text).map(Some)));
    if let Some(text) = warnings.keep(root.read("proc/stat")) {
        let ticks = warnings.keep(busy_ticks(&text));
        reading.cpu_busy_seconds = ticks.map(|t| t as f64 / rustix::param::clock_ticks_per_second() as f64);
    }
    let mut pressure = |what: &str| {
        let text = warnings.keep(root.read(format!("proc/pressure/{what}")))?;
        warnings.keep(pressure_seconds(&text))
    };
    reading.cpu_pressure_seconds = pressure("cpu");
    reading.memory_pressure_seconds = pressure("memory");
    if let Some(text) = warnings.keep(root.read("proc/vmstat")) {
        reading.oom_kills = warnings.keep(text.number_of("oom_kill"));
    }
    reading
}

/// What the machine is, as far as process `pid` may use it: CPUs are those of its affinity (`Cpus_allowed_list`
/// in `/proc/PID/status`, as sched_getaffinity(2) tells), or fewer if its cgroup's quota allows fewer.
pub(crate) fn identity(root: &Root, pid: u32, warnings: &mut Warnings) -> Host {
    let mut line = |path: &str| {
        let text = warnings.keep(root.read(path));
        text.map(|t| t.text.trim().to_owned()).unwrap_or_default()
    };
    let name = line("proc/sys/kernel/hostname");
    let kernel = line("proc/sys/kernel/osrelease");
    let status = warnings.keep(root.read(format!("proc/{pid}/status")));
    let cpus = status.and_then(|text| warnings.keep(allowed_cpus(&text))).unwrap_or(0);
    let quota = cgroup::read(root, pid, warnings).and_then(|c| c.cpu_limit);
    // A float that is too large becomes the largest number, and never counts.
    let cpus = quota.map_or(cpus, |quota| cpus.min(quota.ceil().max(1.0) as u32));
    let memory = warnings.keep(root.read("proc/meminfo"));
    let memory_bytes = memory.and_then(|text| warnings.keep(text.bytes_of("MemTotal:"))).unwrap_or(0);
    Host { name, kernel, cpus, memory_bytes }
}

/// A value of a line like `TCP: inuse 5 orphan 0 tw 0 alloc 8 mem 1`.
fn sockstat(text: &Text, line: &str, key: &str) -> Result<Option<u64>, Error> {
    text.find(line).map(|line| line.after(key, "pairs of a name and a number")).transpose()
}

/// The fourth word of `/proc/loadavg` is runnable and existing threads: `2/217` (proc_loadavg(5)).
fn tasks(text: &Text) -> Result<u64, Error> {
    let line = text.whole();
    let existing =
        line.text.split_ascii_whitespace().nth(3).and_then(|word| word.split_once('/')?.1.parse().ok());
    existing.ok_or_else(|| line.malformed("1-minute 5-minute 15-minute RUNNABLE/EXISTING LAST"))
}

/// Ticks of all CPUs but idle and iowait: the line `cpu` of `/proc/stat` (proc_stat(5)). Guests' ticks are
/// part of user and nice already.
fn busy_ticks(text: &Text) -> Result<Option<u64>, Error> {
    const IDLE_AND_IOWAIT: std::ops::RangeInclusive<usize> = 4..=5;
    let Some(line) = text.find("cpu") else { return Ok(None) };
    let mut ticks = 0u64;
    // Old kernels lack the last of user, nice, system, idle, iowait, irq, softirq, steal.
    for at in (1..=8).filter(|at| !IDLE_AND_IOWAIT.contains(at)) {
        if at <= 3 || line.word(at).is_some() {
            ticks = ticks.saturating_add(line.value(at, "numbers of ticks")?);
        }
    }
    Ok(Some(ticks))
}

/// Seconds in which some task waited: `some … total=MICROSECONDS` (Documentation/accounting/psi.rst).
fn pressure_seconds(text: &Text) -> Result<Option<f64>, Error> {
    let Some(line) = text.find("some") else { return Ok(None) };
    let micros: u64 = line.after("total", "total=MICROSECONDS")?;
    Ok(Some(micros as f64 / 1e6))
}

/// Counts a list like `0-3,8`.
fn allowed_cpus(text: &Text) -> Result<Option<u32>, Error> {
    let Some(line) = text.find("Cpus_allowed_list:") else { return Ok(None) };
    let ranges = crate::settings::ranges(line.word(1).unwrap_or_default());
    let ranges = ranges.ok_or_else(|| line.malformed("a list of CPUs"))?;
    let count: u64 = ranges.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
    Ok(Some(u32::try_from(count).unwrap_or(u32::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn full() -> Fake {
        let fake = Fake::new();
        fake.file(
            "proc/meminfo",
            "MemTotal:  2000 kB\nMemFree: 10 kB\nMemAvailable:  1000 kB\nSlab:  300 kB\nHugePages_Total: 0\n",
        );
        fake.file(
            "proc/net/sockstat",
            "sockets: used 18\nTCP: inuse 21 orphan 0 tw 3 alloc 30 mem 134\nUDP: inuse 9 mem 0\n",
        );
        fake.file("proc/net/sockstat6", "TCP6: inuse 4\nUDP6: inuse 0\n");
        fake.file("proc/sys/fs/file-nr", "618\t0\t2466183\n");
        fake.file("proc/stat", "cpu  100 10 20 5000 700 3 4 5 60 7\ncpu0 1 1 1 1 1 1 1 1 0 0\n");
        fake.file(
            "proc/pressure/cpu",
            "some avg10=60.55 avg60=16.39 avg300=3.92 total=17259461\nfull avg10=0.00 total=0\n",
        );
        fake.file("proc/pressure/memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n");
        fake.file("proc/vmstat", "nr_free_pages 1\noom_kill 2\n");
        fake.file("proc/sys/net/netfilter/nf_conntrack_count", "5\n");
        fake.file("proc/loadavg", "0.10 0.20 0.30 2/217 4711\n");
        fake
    }

    #[test]
    fn a_reading() {
        let mut warnings = Warnings::default();
        let reading = read(&full().root(), &mut warnings);
        assert_eq!(
            reading,
            HostReading {
                memory_available_bytes: Some(1000 * 1024),
                slab_bytes: Some(300 * 1024),
                socket_buffer_bytes: Some(134 * rustix::param::page_size() as u64),
                tcp_in_use: Some(25),
                tcp_time_wait: Some(3),
                files: Some(618),
                cpu_busy_seconds: Some(142.0 / rustix::param::clock_ticks_per_second() as f64),
                cpu_pressure_seconds: Some(17.259461),
                memory_pressure_seconds: Some(0.0),
                oom_kills: Some(2),
                conntrack: Some(5),
                tasks: Some(217),
            }
        );
        assert_eq!(warnings.take(), Vec::<String>::new());
    }

    #[test]
    fn nothing_there_is_nothing_known() {
        let mut warnings = Warnings::default();
        assert_eq!(read(&Fake::new().root(), &mut warnings), HostReading::default());
        assert_eq!(identity(&Fake::new().root(), 7, &mut warnings), Host::default());
        assert_eq!(warnings.take(), Vec::<String>::new());
    }

    #[test]
    fn malformed_files_are_named_and_cost_only_their_own_figures() {
        let fake = full();
        fake.file("proc/net/sockstat", "sockets: used 18\nTCP: inuse 21 orphan 0 tw\n");
        fake.file("proc/stat", "cpu 1 2 x\n");
        fake.file("proc/pressure/cpu", "\nsome avg10=0\n");
        let mut warnings = Warnings::default();
        let reading = read(&fake.root(), &mut warnings);
        assert_eq!((reading.tcp_in_use, reading.tcp_time_wait), (Some(25), None));
        assert_eq!((reading.cpu_busy_seconds, reading.cpu_pressure_seconds), (None, None));
        assert_eq!(reading.files, Some(618));
        let warnings = warnings.take().join("\n");
        for named in ["net/sockstat, line 2", "proc/stat, line 1", "pressure/cpu, line 2"] {
            assert!(warnings.contains(named), "{warnings}");
        }
    }

    #[test]
    fn cpus_are_those_that_may_be_used() {
        let fake = full();
        fake.file("proc/sys/kernel/hostname", "ship\n");
        fake.file("proc/sys/kernel/osrelease", "6.18.44\n");
        fake.file("proc/7/status", "Name:\tx\nCpus_allowed_list:\t0-3,8\n");
        let expected =
            Host { name: "ship".into(), kernel: "6.18.44".into(), cpus: 5, memory_bytes: 2000 * 1024 };
        let mut warnings = Warnings::default();
        assert_eq!(identity(&fake.root(), 7, &mut warnings), expected);
        fake.file("proc/7/cgroup", "0::/box\n");
        fake.file("sys/fs/cgroup/cgroup.controllers", "cpu\n");
        fake.file("sys/fs/cgroup/box/cpu.max", "150000 100000\n");
        assert_eq!(identity(&fake.root(), 7, &mut warnings).cpus, 2);
        fake.file("proc/7/status", "Name:\tx\nCpus_allowed_list:\t3-0\n");
        identity(&fake.root(), 7, &mut warnings);
        assert!(warnings.take()[0].contains("proc/7/status, line 2: expected a list of CPUs"));
    }

    proptest::proptest! {
        #[test]
        fn any_text(text in "(cpu|some|TCP:|Cpus_allowed_list:)? ?[ -~\n]{0,80}") {
            let text = Text { path: "x".into(), text };
            let _ = (busy_ticks(&text), pressure_seconds(&text), allowed_cpus(&text), sockstat(&text, "TCP:", "mem"));
        }
    }
}

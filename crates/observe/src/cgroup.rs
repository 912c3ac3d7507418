//! What do the control groups allow, and what is in use? (cgroups(7), v1 and v2)

use model::observation::Cgroup;

use crate::reader::{Error, Root, Text, Warnings};

/// Where `/proc/PID/cgroup` says that a process is, for one controller.
struct Place {
    v2: bool,
    /// The path below the mount, `/` for the root.
    path: String,
    /// Directories from the process's own group up to the mount.
    levels: Vec<String>,
}

/// Reads the cgroup of a process; `None` if it is in the root group and that limits nothing.
///
/// A limit may be set on any ancestor; the smallest counts, and the use is read where that limit is set.
pub(crate) fn read(root: &Root, pid: u32, warnings: &mut Warnings) -> Option<Cgroup> {
    let membership = warnings.keep(root.read(format!("proc/{pid}/cgroup")))?;
    let mut place = |controller: &str| warnings.keep(place(root, &membership, controller));
    let (memory, cpu, pids) = (place("memory"), place("cpu"), place("pids"));
    let named = [&memory, &pids, &cpu].into_iter().flatten();
    let mut cgroup = Cgroup {
        path: named.map(|p| &p.path).find(|path| *path != "/").cloned().unwrap_or_else(|| "/".into()),
        ..Cgroup::default()
    };
    if let Some(place) = memory {
        let (name, current) = match place.v2 {
            true => ("memory.max", "memory.current"),
            false => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        };
        let (level, limit) = tightest(&place, |dir| warnings.keep(limit_in(root, &format!("{dir}/{name}"))));
        cgroup.memory_limit_bytes = limit;
        cgroup.memory_limit_file = limit.map(|_| file(level, name));
        cgroup.memory_bytes = warnings.keep(root.number(format!("{level}/{current}")));
        let events = if place.v2 { "memory.events" } else { "memory.oom_control" };
        let own = &place.levels[0];
        cgroup.oom_kills = warnings.keep(number_of(root, &format!("{own}/{events}"), "oom_kill"));
    }
    if let Some(place) = cpu {
        let quota = |dir: &str| if place.v2 { cpu_max(root, dir) } else { cfs_quota(root, dir) };
        let (level, limit) = tightest(&place, |dir| warnings.keep(quota(dir)));
        cgroup.cpu_limit = limit;
        let name = if place.v2 { "cpu.max" } else { "cpu.cfs_quota_us" };
        cgroup.cpu_limit_file = limit.map(|_| file(level, name));
        let (key, per_second) = if place.v2 { ("throttled_usec", 1e6) } else { ("throttled_time", 1e9) };
        let throttled = warnings.keep(number_of(root, &format!("{level}/cpu.stat"), key));
        cgroup.throttled_seconds = throttled.map(|t| t as f64 / per_second);
    }
    if let Some(place) = pids {
        let (level, limit) =
            tightest(&place, |dir| warnings.keep(limit_in(root, &format!("{dir}/pids.max"))));
        cgroup.pids_limit = limit;
        cgroup.pids_limit_file = limit.map(|_| file(level, "pids.max"));
        cgroup.pids = warnings.keep(root.number(format!("{level}/pids.current")));
    }
    let limits =
        cgroup.memory_limit_bytes.is_some() || cgroup.cpu_limit.is_some() || cgroup.pids_limit.is_some();
    (limits || cgroup.path != "/").then_some(cgroup)
}

/// The absolute name of a file in a directory that is known below the root.
fn file(directory: &str, name: &str) -> String {
    format!("/{directory}/{name}")
}

/// The directories that hold a cgroup's processes, v1 and v2, by its path below the mount.
pub(crate) fn directories(path: &str) -> Vec<String> {
    let path = path.strip_prefix("/sys/fs/cgroup").unwrap_or(path).trim_matches('/');
    ["", "/unified", "/memory", "/pids", "/cpu", "/cpuacct", "/systemd"]
        .map(|mount| format!("sys/fs/cgroup{mount}/{path}"))
        .to_vec()
}

/// Finds a controller's hierarchy and the process's place in it.
///
/// A line is `NUMBER:CONTROLLERS:PATH`; v2 has number 0 and no controllers. The mounts are where systemd and
/// container runtimes put them. A path that does not exist below the mount is one of the host seen from
/// within a container, where the mount itself is the container's group.
fn place(root: &Root, membership: &Text, controller: &str) -> Result<Option<Place>, Error> {
    let mut v2 = None;
    for line in membership.lines() {
        let mut parts = line.text.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            return Err(line.malformed("NUMBER:CONTROLLERS:PATH"));
        };
        if controllers.is_empty() {
            v2 = Some(path);
        } else if controllers.split(',').any(|c| c == controller) {
            let mounts = [controller, controllers].map(|name| format!("sys/fs/cgroup/{name}"));
            return Ok(mounts
                .iter()
                .find(|m| root.join(m).is_dir())
                .map(|m| Place::new(root, false, m, path)));
        }
    }
    let mounts = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];
    let mount = mounts.into_iter().find(|m| root.join(m).join("cgroup.controllers").exists());
    // `..`: outside of what this cgroup namespace shows.
    Ok(v2
        .zip(mount)
        .filter(|(path, _)| !path.contains("/.."))
        .map(|(path, m)| Place::new(root, true, m, path)))
}

impl Place {
    fn new(root: &Root, v2: bool, mount: &str, path: &str) -> Self {
        let path = path.trim_end_matches('/');
        let visible = if root.join(format!("{mount}{path}")).is_dir() { path } else { "" };
        let mut levels = vec![format!("{mount}{visible}")];
        let mut at = visible;
        while let Some((above, _)) = at.rsplit_once('/') {
            levels.push(format!("{mount}{above}"));
            at = above;
        }
        Self { v2, path: if path.is_empty() { "/".into() } else { path.to_owned() }, levels }
    }
}

/// The smallest limit over all levels and the level that sets it; without any, the process's own level.
fn tightest<T: PartialOrd>(place: &Place, mut limit: impl FnMut(&str) -> Option<T>) -> (&str, Option<T>) {
    let mut found: (&str, Option<T>) = (&place.levels[0], None);
    for level in &place.levels {
        if let Some(here) = limit(level)
            && found.1.as_ref().is_none_or(|least| here < *least)
        {
            found = (level, Some(here));
        }
    }
    found
}

/// A limit that is a number, or `max`; v1 writes the largest number of pages instead.
fn limit_in(root: &Root, path: &str) -> Result<Option<u64>, Error> {
    let Some(text) = root.read(path)? else { return Ok(None) };
    if text.whole().word(0) == Some("max") {
        return Ok(None);
    }
    text.whole().value(0, "a number or \"max\"").map(|limit: u64| (limit < 1 << 62).then_some(limit))
}

/// CPUs that v2 allows: `cpu.max` holds quota (or `max`) and period.
fn cpu_max(root: &Root, directory: &str) -> Result<Option<f64>, Error> {
    let Some(text) = root.read(format!("{directory}/cpu.max"))? else { return Ok(None) };
    if text.whole().word(0) == Some("max") {
        return Ok(None);
    }
    let quota: u64 = text.whole().value(0, "QUOTA PERIOD or max PERIOD")?;
    let period: u64 = text.whole().value(1, "QUOTA PERIOD or max PERIOD")?;
    Ok((period > 0).then(|| quota as f64 / period as f64))
}

/// CPUs that v1 allows: a quota of -1 is none.
fn cfs_quota(root: &Root, directory: &str) -> Result<Option<f64>, Error> {
    let Some(text) = root.read(format!("{directory}/cpu.cfs_quota_us"))? else { return Ok(None) };
    let quota: i64 = text.whole().value(0, "a quota in microseconds, or -1")?;
    let period = root.number(format!("{directory}/cpu.cfs_period_us"))?;
    Ok(period.filter(|&p| p > 0 && quota > 0).map(|period| quota as f64 / period as f64))
}

fn number_of(root: &Root, path: &str, key: &str) -> Result<Option<u64>, Error> {
    root.read(path)?.map_or(Ok(None), |text| text.number_of(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn read_ok(fake: &Fake) -> Option<Cgroup> {
        let mut warnings = Warnings::default();
        let cgroup = read(&fake.root(), 7, &mut warnings);
        assert_eq!(warnings.take(), Vec::<String>::new());
        cgroup
    }

    #[test]
    fn v2_takes_the_tightest_limit_of_all_ancestors() {
        let fake = Fake::new();
        fake.file("proc/7/cgroup", "0::/system.slice/chat.service\n");
        fake.file("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");
        let slice = |file: &str, text: &str| fake.file(&format!("sys/fs/cgroup/system.slice/{file}"), text);
        slice("memory.max", "1000000\n");
        slice("memory.current", "900000\n");
        slice("cpu.max", "max 100000\n");
        slice("pids.max", "max\n");
        slice("chat.service/memory.max", "2000000\n");
        slice("chat.service/memory.current", "5000\n");
        slice("chat.service/memory.events", "low 0\nhigh 0\nmax 9\noom 3\noom_kill 2\n");
        slice("chat.service/cpu.max", "150000 100000\n");
        slice("chat.service/cpu.stat", "usage_usec 77\nnr_throttled 1\nthrottled_usec 2500000\n");
        slice("chat.service/pids.max", "512\n");
        slice("chat.service/pids.current", "17\n");
        assert_eq!(
            read_ok(&fake),
            Some(Cgroup {
                path: "/system.slice/chat.service".into(),
                memory_bytes: Some(900_000),
                memory_limit_bytes: Some(1_000_000),
                memory_limit_file: Some("/sys/fs/cgroup/system.slice/memory.max".into()),
                oom_kills: Some(2),
                throttled_seconds: Some(2.5),
                cpu_limit: Some(1.5),
                cpu_limit_file: Some("/sys/fs/cgroup/system.slice/chat.service/cpu.max".into()),
                pids: Some(17),
                pids_limit: Some(512),
                pids_limit_file: Some("/sys/fs/cgroup/system.slice/chat.service/pids.max".into()),
            })
        );
    }

    fn v1(fake: &Fake) {
        fake.file("proc/7/cgroup", "9:name=systemd:/\n5:cpu,cpuacct:/box\n4:memory:/box\n3:pids:/\n0::/\n");
        let file = |path: &str, text: &str| fake.file(&format!("sys/fs/cgroup/{path}"), text);
        file("memory/memory.limit_in_bytes", "9223372036854771712\n");
        file("memory/box/memory.limit_in_bytes", "4096000\n");
        file("memory/box/memory.usage_in_bytes", "4095\n");
        file("memory/box/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
        file("cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n");
        file("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
        file("cpu,cpuacct/box/cpu.stat", "nr_periods 5\nnr_throttled 1\nthrottled_time 1500000000\n");
        file("pids/pids.current", "99\n");
    }

    #[test]
    fn v1_has_a_hierarchy_for_each_controller() {
        let fake = Fake::new();
        v1(&fake);
        assert_eq!(
            read_ok(&fake),
            Some(Cgroup {
                path: "/box".into(),
                memory_bytes: Some(4095),
                memory_limit_bytes: Some(4_096_000),
                memory_limit_file: Some("/sys/fs/cgroup/memory/box/memory.limit_in_bytes".into()),
                oom_kills: Some(1),
                throttled_seconds: Some(1.5),
                cpu_limit: Some(0.5),
                cpu_limit_file: Some("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us".into()),
                pids: Some(99),
                pids_limit: None,
                pids_limit_file: None,
            })
        );
    }

    #[test]
    fn v1_without_limits() {
        let fake = Fake::new();
        v1(&fake);
        fake.file("sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
        fake.file("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
        let cgroup = read_ok(&fake).unwrap();
        assert_eq!((cgroup.memory_limit_bytes, cgroup.cpu_limit), (None, None));
        assert_eq!(cgroup.memory_bytes, Some(4095));
    }

    #[test]
    fn the_root_group_without_limits_is_none() {
        let fake = Fake::new();
        fake.file("proc/7/cgroup", "0::/\n");
        fake.file("sys/fs/cgroup/cgroup.controllers", "cpu memory pids\n");
        assert_eq!(read_ok(&fake), None);
        // In a cgroup namespace the root may be limited.
        fake.file("sys/fs/cgroup/memory.max", "1000\n");
        assert_eq!(read_ok(&fake).unwrap().memory_limit_bytes, Some(1000));
    }

    #[test]
    fn the_host_path_seen_from_within_a_container() {
        let fake = Fake::new();
        fake.file("proc/7/cgroup", "4:memory:/docker/0123\n");
        fake.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "5000\n");
        let cgroup = read_ok(&fake).unwrap();
        assert_eq!((cgroup.path.as_str(), cgroup.memory_limit_bytes), ("/docker/0123", Some(5000)));
    }

    #[test]
    fn malformed_is_none_and_a_warning_that_names_path_and_line() {
        let fake = Fake::new();
        v1(&fake);
        fake.file("sys/fs/cgroup/memory/box/memory.oom_control", "oom_kill_disable 0\noom_kill many\n");
        fake.file("sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "lots\n");
        let mut warnings = Warnings::default();
        let cgroup = read(&fake.root(), 7, &mut warnings).unwrap();
        assert_eq!((cgroup.oom_kills, cgroup.cpu_limit), (None, None));
        assert_eq!(cgroup.memory_limit_bytes, Some(4_096_000));
        let warnings = warnings.take().join("\n");
        assert!(warnings.contains("memory/box/memory.oom_control, line 2: expected a number"), "{warnings}");
        assert!(warnings.contains("box/cpu.cfs_quota_us, line 1: expected a quota"), "{warnings}");
        fake.file("proc/7/cgroup", "0::/\nnonsense\n");
        let mut warnings = Warnings::default();
        assert_eq!(read(&fake.root(), 7, &mut warnings), None);
        assert!(warnings.take()[0].contains("proc/7/cgroup, line 2: expected NUMBER:CONTROLLERS:PATH"));
    }

    proptest::proptest! {
        #[test]
        fn any_membership(text in "([0-9]{1,2}:(memory|cpu)?:/?[a-z./]{0,20}\n){0,4}.{0,40}", file in ".{0,40}") {
            let fake = Fake::new();
            fake.file("proc/7/cgroup", &text);
            fake.file("sys/fs/cgroup/cgroup.controllers", "");
            for name in ["memory.max", "memory.events", "cpu.max", "cpu.stat"] {
                fake.file(&format!("sys/fs/cgroup/{name}"), &file);
            }
            let _ = read(&fake.root(), 7, &mut Warnings::default());
        }
    }
}

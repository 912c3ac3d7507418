//! What does one process use, and what may it use? (proc_pid(5))

use std::path::PathBuf;

use model::observation::ProcessSettings;

use crate::reader::{Error, Root, Text, Warnings, absent};

/// Resident memory with shared pages divided among those that share them: `Pss` in `/proc/PID/smaps_rollup`
/// (proc_pid_smaps(5)). The kernel walks the process's page tables for it and holds its memory map's lock
/// meanwhile, so it is not for every tick.
pub(crate) fn user_bytes(root: &Root, pid: u32) -> Result<Option<u64>, Error> {
    root.read(format!("proc/{pid}/smaps_rollup"))?.map_or(Ok(None), |text| text.bytes_of("Pss:"))
}

/// Memory of its page tables: `VmPTE` in its `status` (proc_pid_status(5)). `None`: it has no memory at all,
/// because it is ending, or belongs to the kernel.
pub(crate) fn page_table_bytes(status: &Text) -> Result<Option<u64>, Error> {
    status.bytes_of("VmPTE:")
}

/// Open descriptors: since Linux 6.2 the size of `/proc/PID/fd` (`by_size`), its entries before
/// (proc_pid_fd(5)). The size costs the same for one descriptor as for a million, and needs no permission.
pub(crate) fn descriptors(root: &Root, pid: u32, by_size: bool) -> Result<Option<u64>, Error> {
    let path = root.join(format!("proc/{pid}/fd"));
    if by_size {
        match std::fs::metadata(&path) {
            Ok(directory) if directory.len() > 0 => return Ok(Some(directory.len())),
            Ok(_) => {}
            Err(e) => return absent(path, e),
        }
    }
    match std::fs::read_dir(&path) {
        Ok(entries) => Ok(Some(entries.count() as u64)),
        Err(e) => absent(path, e),
    }
}

/// Whether the size of `/proc/PID/fd` tells the number of descriptors: Linux 6.2 and later.
pub(crate) fn descriptors_by_size(root: &Root) -> bool {
    let release = root.read("proc/sys/kernel/osrelease").ok().flatten();
    release.is_some_and(|text| {
        let mut numbers =
            text.text.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap_or(0));
        (numbers.next(), numbers.next()) >= (Some(6), Some(2))
    })
}

/// The inodes of the sockets it has open, from the links in `/proc/PID/fd`: `socket:[inode]`.
pub(crate) fn sockets(root: &Root, pid: u32) -> Result<Option<Vec<u64>>, Error> {
    let path = root.join(format!("proc/{pid}/fd"));
    let entries = match std::fs::read_dir(&path) {
        Ok(entries) => entries,
        Err(e) => return absent(path, e),
    };
    let inode = |path: PathBuf| -> Option<u64> {
        let link = std::fs::read_link(path).ok()?;
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    Ok(Some(entries.filter_map(|entry| inode(entry.ok()?.path())).collect()))
}

/// Which file it executes, whatever its path is called: device and inode of `/proc/PID/exe`.
pub(crate) fn executable(root: &Root, pid: u32) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let file = std::fs::metadata(root.join(format!("proc/{pid}/exe"))).ok()?;
    Some((file.dev(), file.ino()))
}

/// The last part of the path of the file that it executes.
pub(crate) fn executable_name(root: &Root, pid: u32) -> Option<String> {
    let link = std::fs::read_link(root.join(format!("proc/{pid}/exe"))).ok()?;
    let name = link.file_name()?.to_str()?;
    // The kernel's mark for a file that was replaced while it runs.
    Some(name.strip_suffix(" (deleted)").unwrap_or(name).to_owned())
}

/// Its limits and what it had open before the run (`limits`, `comm` and `fd` in `/proc/PID`). A limit that
/// is `unlimited` is `None`.
pub(crate) fn settings(root: &Root, pid: u32, by_size: bool, warnings: &mut Warnings) -> ProcessSettings {
    let name = warnings.keep(root.read(format!("proc/{pid}/comm")));
    let limits = warnings.keep(root.read(format!("proc/{pid}/limits")));
    let mut limit = |name: &str, column: usize| -> Option<u64> {
        limits.as_ref().and_then(|text| warnings.keep(parse_limit(text, name, column)))
    };
    ProcessSettings {
        pid,
        name: name.map(|text| text.text.trim_end_matches('\n').to_owned()).unwrap_or_default(),
        nofile_soft: limit("Max open files", 0),
        nofile_hard: limit("Max open files", 1),
        nproc_soft: limit("Max processes", 0),
        descriptors: warnings.keep(descriptors(root, pid, by_size)),
    }
}

/// A limit from `/proc/PID/limits`: column 0 is the soft one, 1 the hard one.
fn parse_limit(text: &Text, name: &str, column: usize) -> Result<Option<u64>, Error> {
    let found = text.lines().find_map(|line| Some((line, line.text.strip_prefix(name)?)));
    let Some((line, rest)) = found else { return Ok(None) };
    match rest.split_ascii_whitespace().nth(column) {
        Some("unlimited") => Ok(None),
        Some(number) => number.parse().map(Some).map_err(|_| line.malformed("a limit or \"unlimited\"")),
        None => Err(line.malformed("a limit or \"unlimited\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max processes             unlimited            96365                processes
Max open files            1024                 20000                files
";

    #[test]
    fn settings_of_a_process() {
        let fake = Fake::new();
        fake.file("proc/7/limits", LIMITS);
        fake.file("proc/7/comm", "chat server\n");
        fake.file("proc/7/fd/0", "");
        fake.file("proc/7/fd/1", "");
        let mut warnings = Warnings::default();
        let settings = settings(&fake.root(), 7, false, &mut warnings);
        assert_eq!(
            settings,
            ProcessSettings {
                pid: 7,
                name: "chat server".into(),
                nofile_soft: Some(1024),
                nofile_hard: Some(20_000),
                descriptors: Some(2),
                nproc_soft: None,
            }
        );
        assert_eq!(warnings.take(), Vec::<String>::new());
    }

    #[test]
    fn an_absent_process_has_nothing() {
        let root = Fake::new().root();
        assert!(user_bytes(&root, 7).unwrap().is_none());
        assert!(descriptors(&root, 7, false).unwrap().is_none());
        assert!(descriptors(&root, 7, true).unwrap().is_none());
        assert!(sockets(&root, 7).unwrap().is_none());
        assert!(executable(&root, 7).is_none());
    }

    #[test]
    fn malformed_memory_names_path_and_line() {
        let fake = Fake::new();
        fake.file("proc/7/smaps_rollup", "5585-7ffd ---p 0 0 0 [rollup]\nRss: 4 kB\nPss: lots kB\n");
        let error = user_bytes(&fake.root(), 7).unwrap_err().to_string();
        assert!(error.contains("proc/7/smaps_rollup, line 3: expected a number of kB"), "{error}");
        fake.file("proc/7/status", "Name: x\nVmPTE: 4 MB\n");
        let status = fake.root().read("proc/7/status").unwrap().unwrap();
        let error = page_table_bytes(&status).unwrap_err().to_string();
        assert!(error.contains("proc/7/status, line 2: expected the unit kB"), "{error}");
    }

    #[test]
    fn the_kernel_release_decides_how_descriptors_are_counted() {
        let fake = Fake::new();
        assert!(!descriptors_by_size(&fake.root()));
        for (release, by_size) in
            [("5.15.0-91-generic\n", false), ("6.1.0", false), ("6.2", true), ("7.0", true)]
        {
            fake.file("proc/sys/kernel/osrelease", release);
            assert_eq!(descriptors_by_size(&fake.root()), by_size, "{release}");
        }
    }

    #[test]
    fn sockets_are_told_by_their_links() {
        let fake = Fake::new();
        fake.link("proc/7/fd/0", "/dev/null");
        fake.link("proc/7/fd/1", "socket:[123]");
        fake.link("proc/7/fd/2", "pipe:[124]");
        fake.link("proc/7/fd/3", "socket:[x]");
        assert_eq!(sockets(&fake.root(), 7).unwrap(), Some(vec![123]));
    }

    proptest::proptest! {
        #[test]
        fn limits_never_panic(text in "(Max open files|Max processes)?[ 0-9a-z\n]{0,80}") {
            let text = Text { path: "limits".into(), text };
            let _ = (parse_limit(&text, "Max open files", 1), text.bytes_of("Pss:"), text.number_of("Max"));
        }
    }
}

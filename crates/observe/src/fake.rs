//! A `/proc` and `/sys` built by hand, for tests.

use std::fs;
use std::path::Path;

use tempfile::TempDir;

use crate::reader::Root;

/// A tree in a directory that vanishes with it (unless only its root is kept: then it is empty).
pub(crate) struct Fake {
    directory: TempDir,
}

impl Fake {
    /// An empty tree.
    pub(crate) fn new() -> Self {
        Self { directory: TempDir::new().unwrap() }
    }

    /// Where it is.
    pub(crate) fn root(&self) -> Root {
        Root::at(self.directory.path())
    }

    /// Writes a file and the directories above it.
    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Makes a symbolic link, as in `/proc/PID/fd`.
    pub(crate) fn link(&self, path: &str, to: impl AsRef<Path>) {
        let path = self.directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(to, path).unwrap();
    }

    /// Removes a file, a link or a directory with all that is in it.
    pub(crate) fn remove(&self, path: &str) {
        let path = self.directory.path().join(path);
        fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path)).unwrap();
    }

    /// Writes the files of a process that executes `/usr/bin/NAME`, with 1 tick of its own and 10 of its
    /// ended children for each of its pid, `1000 + pid` kB of memory, and 2 threads.
    pub(crate) fn process(&self, pid: u32, parent: u32, name: &str) {
        let stat = format!(
            "{pid} ({name}) S {parent} 1 1 0 -1 0 0 0 0 0 {pid} 0 {} 0 20 0 2 0 {} 0 0",
            pid * 10,
            1000 + pid
        );
        self.file(&format!("proc/{pid}/stat"), &stat);
        self.file(&format!("proc/{pid}/comm"), &format!("{name}\n"));
        self.file(
            &format!("proc/{pid}/status"),
            &format!("Name:\t{name}\nVmPTE:\t      40 kB\nThreads:\t2\n"),
        );
        self.file(
            &format!("proc/{pid}/smaps_rollup"),
            &format!("1000-2000 ---p 00000000 00:00 0 [rollup]\nRss:  9999 kB\nPss:  {} kB\n", 1000 + pid),
        );
        self.file(&format!("usr/bin/{name}"), "");
        let exe = format!("proc/{pid}/exe");
        if fs::symlink_metadata(self.directory.path().join(&exe)).is_err() {
            self.link(&exe, self.directory.path().join(format!("usr/bin/{name}")));
        }
        self.file(&format!("proc/{pid}/fd/0"), "");
    }
}

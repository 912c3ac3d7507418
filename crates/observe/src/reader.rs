//! How is a kernel file read, and what is said when it is not as expected?

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::io::Errno;

/// Where `/proc` and `/sys` are: `/` for this machine, another directory in tests or for a mounted host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root(PathBuf);

/// Why a kernel file could not be used. Completes "failed to …".
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is there, but not for us.
    #[error("read {}: permission denied; run as the same user or as root", path.display())]
    Denied {
        /// The file.
        path: PathBuf,
    },
    /// The file is there, but reading it failed.
    #[error("read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// The file says something else than it should.
    #[error("understand {}, line {line}: expected {expected}, found {found:?}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What should stand there.
        expected: &'static str,
        /// What does, cut short.
        found: String,
    },
    /// A file that is not text says something else than it should.
    #[error("understand {}: {what}", path.display())]
    Undecodable {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The kernel did not answer a question about sockets (sock_diag(7)).
    #[error("list listening sockets (sock_diag): {0}")]
    SockDiag(#[source] io::Error),
}

impl Root {
    /// This machine's own `/proc` and `/sys`.
    pub fn host() -> Self {
        Self(PathBuf::from("/"))
    }

    /// `proc` and `sys` below a directory.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// The full path of a file below the root: `proc/stat`.
    pub fn join(&self, below: impl AsRef<Path>) -> PathBuf {
        self.0.join(below)
    }

    /// Reads a file; `None` if it is absent, or belongs to a process that has ended.
    pub(crate) fn read(&self, below: impl AsRef<Path>) -> Result<Option<Text>, Error> {
        let path = self.join(below);
        // One read() for the text and one for its end: most of these files fit into a page.
        let mut bytes = Vec::with_capacity(4096);
        match File::open(&path).and_then(|mut file| file.read_to_end(&mut bytes)) {
            Ok(_) => {}
            Err(e) => return absent(path, e),
        }
        // Process names are arbitrary bytes.
        let text = String::from_utf8(bytes)
            .unwrap_or_else(|not_utf8| String::from_utf8_lossy(not_utf8.as_bytes()).into_owned());
        Ok(Some(Text { path, text }))
    }

    /// Reads a file that holds one number.
    pub(crate) fn number(&self, below: impl AsRef<Path>) -> Result<Option<u64>, Error> {
        self.read(below)?.map(|text| text.whole().value(0, "a number")).transpose()
    }

    /// Reads the ids of all processes: the numbers among the names in `proc`.
    pub(crate) fn pids(&self) -> Result<Vec<u32>, Error> {
        Ok(self.numbered("proc")?.unwrap_or_default())
    }

    /// The numbers among the names in a directory; `None` if it is absent, or its process has ended.
    pub(crate) fn numbered(&self, below: impl AsRef<Path>) -> Result<Option<Vec<u32>>, Error> {
        let path = self.join(below);
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(e) => return absent(path, e),
        };
        Ok(Some(entries.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect()))
    }
}

/// Tells an absent file (`None`) from one that cannot be read (an error).
pub(crate) fn absent<T>(path: PathBuf, error: io::Error) -> Result<Option<T>, Error> {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Ok(None),
        ErrorKind::PermissionDenied => Err(Error::Denied { path }),
        // ESRCH: the process has ended. EOPNOTSUPP: switched off in this kernel (PSI).
        _ if matches!(Errno::from_io_error(&error), Some(Errno::SRCH | Errno::OPNOTSUPP | Errno::NODEV)) => {
            Ok(None)
        }
        _ => Err(Error::Unreadable { path, source: error }),
    }
}

/// A file's text, which knows where it came from.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

/// One line of a file, split into words on demand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line<'a> {
    path: &'a Path,
    number: usize,
    pub(crate) text: &'a str,
}

impl Text {
    /// The lines that are not blank.
    pub(crate) fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()).map(|(i, text)| Line {
            path: &self.path,
            number: i + 1,
            text,
        })
    }

    /// The whole text as one line, for files that have only one (or a name with a line break in it).
    pub(crate) fn whole(&self) -> Line<'_> {
        Line { path: &self.path, number: 1, text: &self.text }
    }

    /// The line whose first word is `key`.
    pub(crate) fn find(&self, key: &str) -> Option<Line<'_>> {
        self.lines().find(|line| line.word(0) == Some(key))
    }

    /// The number that follows `key` at the start of a line.
    pub(crate) fn number_of(&self, key: &str) -> Result<Option<u64>, Error> {
        self.find(key).map(|line| line.value(1, "a number")).transpose()
    }

    /// The number of kB that follows `key` at the start of a line, in bytes.
    pub(crate) fn bytes_of(&self, key: &str) -> Result<Option<u64>, Error> {
        let Some(line) = self.find(key) else { return Ok(None) };
        let kib: u64 = line.value(1, "a number of kB")?;
        if line.word(2) != Some("kB") {
            return Err(line.malformed("the unit kB"));
        }
        Ok(Some(kib.saturating_mul(1024)))
    }
}

impl<'a> Line<'a> {
    /// The word at a place, counted from 0.
    pub(crate) fn word(&self, at: usize) -> Option<&'a str> {
        self.text.split_ascii_whitespace().nth(at)
    }

    /// The word at a place, parsed.
    pub(crate) fn value<T: FromStr>(&self, at: usize, expected: &'static str) -> Result<T, Error> {
        self.word(at).and_then(|word| word.parse().ok()).ok_or_else(|| self.malformed(expected))
    }

    /// The value after a word that stands anywhere in the line: `inuse 5`, or before `=`: `total=5`.
    pub(crate) fn after<T: FromStr>(&self, key: &str, expected: &'static str) -> Result<T, Error> {
        self.text
            .split(|c: char| c.is_ascii_whitespace() || c == '=')
            .skip_while(|word| *word != key)
            .nth(1)
            .and_then(|word| word.parse().ok())
            .ok_or_else(|| self.malformed(expected))
    }

    /// The error that this line is not what it should be.
    pub(crate) fn malformed(&self, expected: &'static str) -> Error {
        Error::Malformed {
            path: self.path.to_owned(),
            line: self.number,
            expected,
            found: self.text.chars().take(80).collect(),
        }
    }
}

/// Warnings not yet taken, each given once.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    pending: Vec<String>,
    given: HashSet<String>,
}

impl Warnings {
    /// More different warnings than this help nobody, and a run may be long.
    const MOST: usize = 100;

    /// Turns an error into `None` and a warning.
    pub(crate) fn keep<T>(&mut self, result: Result<Option<T>, Error>) -> Option<T> {
        result.unwrap_or_else(|error| {
            self.warn(&error);
            None
        })
    }

    /// Adds a warning, unless it was given before.
    pub(crate) fn warn(&mut self, error: &Error) {
        let text = format!("failed to {error}");
        if self.given.len() < Self::MOST && self.given.insert(text.clone()) {
            self.pending.push(text);
        }
    }

    /// Takes what is pending.
    pub(crate) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.pending)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn fail(error: io::Error) -> Result<Option<()>, Error> {
        absent("/proc/7/x".into(), error)
    }

    #[test]
    fn absent_is_not_forbidden_is_not_broken() {
        for errno in [Errno::NOENT, Errno::SRCH, Errno::OPNOTSUPP, Errno::NOTDIR] {
            assert!(matches!(fail(errno.into()), Ok(None)), "{errno:?}");
        }
        let denied = fail(Errno::ACCESS.into()).unwrap_err().to_string();
        assert_eq!(denied, "read /proc/7/x: permission denied; run as the same user or as root");
        assert!(matches!(fail(Errno::PERM.into()), Err(Error::Denied { .. })));
        assert!(matches!(fail(Errno::IO.into()), Err(Error::Unreadable { .. })));
    }

    #[test]
    fn names_need_not_be_utf8() {
        let fake = Fake::new();
        fake.file("proc/x", "");
        std::fs::write(fake.root().join("proc/x"), b"a\xffb\n").unwrap();
        assert_eq!(fake.root().read("proc/x").unwrap().unwrap().text, "a\u{fffd}b\n");
    }

    #[test]
    fn numbers() {
        let fake = Fake::new();
        fake.file("proc/x", "18446744073709551615\n");
        assert_eq!(fake.root().number("proc/x").unwrap(), Some(u64::MAX));
        assert_eq!(fake.root().number("proc/y").unwrap(), None);
        fake.file("proc/x", "");
        let error = fake.root().number("proc/x").unwrap_err().to_string();
        assert!(error.ends_with("proc/x, line 1: expected a number, found \"\""), "{error}");
    }

    #[test]
    fn warnings_are_given_once_and_not_without_end() {
        let mut warnings = Warnings::default();
        for at in 0..300 {
            let path = PathBuf::from(format!("/proc/{}/x", at % 150));
            assert!(warnings.keep::<()>(Err(Error::Denied { path })).is_none());
        }
        let taken = warnings.take();
        assert_eq!(taken.len(), Warnings::MOST);
        assert!(taken[0].starts_with("failed to read /proc/0/x: permission denied"));
        assert!(warnings.take().is_empty());
    }
}

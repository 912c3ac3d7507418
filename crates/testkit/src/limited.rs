//! How is a program run under lowered limits, and how is it made sure that it ends?

use std::ffi::OsStr;
use std::io;
use std::process::{Child, Command, ExitStatus};
use std::thread::sleep;
use std::time::Duration;

/// Limits to lower, soft and hard alike, so that the program cannot raise them again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    /// Open descriptors (`ulimit -n`).
    pub nofile: Option<u64>,
    /// Processes and threads of the user (`ulimit -u`). Not enforced for root.
    pub nproc: Option<u64>,
    /// Address space in KiB (`ulimit -v`).
    pub address_space_kib: Option<u64>,
}

impl Limits {
    /// Only the descriptor limit.
    pub const fn nofile(n: u64) -> Self {
        Self { nofile: Some(n), nproc: None, address_space_kib: None }
    }

    /// The command that runs `program` under these limits. Arguments are added to it as usual; the process id is
    /// the program's own, as the shell makes way for it.
    pub fn command(self, program: impl AsRef<OsStr>) -> Command {
        let mut script = String::new();
        for (flag, value) in [("-n", self.nofile), ("-u", self.nproc), ("-v", self.address_space_kib)] {
            if let Some(value) = value {
                script.push_str(&format!("ulimit {flag} {value} && "));
            }
        }
        script.push_str("exec \"$@\"");
        let mut command = Command::new("sh");
        command.arg("-c").arg(script).arg("limited").arg(program);
        command
    }
}

/// A child that is killed, and waited for, when dropped.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Starts a command.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Self> {
        command.spawn().map(Self)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Waits for its end; `None`: it still ran after `patience`.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn wait_for(&mut self, patience: Duration) -> io::Result<Option<ExitStatus>> {
        const PAUSE: Duration = Duration::from_millis(10);
        for _ in 0..=patience.as_millis() / PAUSE.as_millis() {
            if let Some(status) = self.0.try_wait()? {
                return Ok(Some(status));
            }
            sleep(PAUSE);
        }
        self.0.try_wait()
    }

    /// Sends it a signal; one that has ended is left alone.
    ///
    /// # Errors
    /// If the signal cannot be sent.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.0.try_wait()?.is_some() {
            return Ok(());
        }
        // not yet waited for, so the id cannot belong to another process
        let pid = rustix::process::Pid::from_child(&self.0);
        Ok(rustix::process::kill_process(pid, signal.into())?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // one that has ended and was waited for is left alone by the standard library
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A signal that tests send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGINT, as from Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

impl From<Signal> for rustix::process::Signal {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Interrupt => Self::INT,
            Signal::Terminate => Self::TERM,
            Signal::Kill => Self::KILL,
            Signal::Stop => Self::STOP,
            Signal::Continue => Self::CONT,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_lowered_for_good_and_arguments_arrive() {
        let out = Limits::nofile(64)
            .command("sh")
            .args(["-c", "ulimit -Sn; ulimit -Hn; echo \"$1\"", "sh", "two words"])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8_lossy(&out.stdout), "64\n64\ntwo words\n");
        let none = Limits::default().command("true").status().unwrap();
        assert!(none.success());
    }

    #[test]
    fn what_runs_can_be_signalled_waited_for_and_ends_with_its_guard() {
        let mut sleeper = Running::start(Command::new("sleep").arg("100")).unwrap();
        assert_eq!(sleeper.wait_for(Duration::from_millis(30)).unwrap(), None);
        sleeper.signal(Signal::Terminate).unwrap();
        let status = sleeper.wait_for(Duration::from_secs(5)).unwrap().expect("it was told to end");
        assert!(!status.success());
        sleeper.signal(Signal::Kill).unwrap();

        let guarded = Running::start(Command::new("sleep").arg("100")).unwrap();
        let proc_entry = std::path::PathBuf::from(format!("/proc/{}", guarded.pid()));
        assert!(proc_entry.exists());
        drop(guarded);
        assert!(!proc_entry.exists());
    }
}

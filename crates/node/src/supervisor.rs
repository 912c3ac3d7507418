//! How do several processes make one node? Started together on the same ports, ended together.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use reactor::socket;
use rustix::process::{Pid, Signal, kill_process};

use crate::board::Board;
use crate::process::{Errand, READY, serve};
use crate::{Config, NodeError};

/// Runs the node until SIGTERM or SIGINT; `child` makes the command that runs [`crate::run_child`], and
/// `listening` is called once every process can be connected to.
///
/// # Errors
/// What kept it from serving, or which of its processes ended.
pub fn run(config: &Config, child: impl Fn() -> Command, listening: impl FnOnce()) -> Result<(), NodeError> {
    for listen in &config.listen {
        // Processes that share a port would quietly share it with a stranger of the same user, too.
        socket::listen(listen.address, 1, false)
            .map_err(|e| NodeError::Listen(listen.address, io::Error::from(e).to_string()))?;
    }
    let board = Board::new(config.processes)?;
    if config.processes <= 1 {
        return serve(config, 0, board, listening);
    }
    let setup = |e: io::Error| NodeError::Setup(e.to_string());
    let (mut stopped, stop) = UnixStream::pair().map_err(setup)?;
    for signal in [signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT] {
        let end = stop.try_clone().map_err(setup)?;
        signal_hook::low_level::pipe::register(signal, end).map_err(setup)?;
    }
    let mut children = Children(Vec::new());
    let (say, heard) = mpsc::channel();
    for process in 0..config.processes {
        let mut started = child().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(setup)?;
        let errand = Errand { config: config.clone(), process, board: board.path() };
        let line = serde_json::to_string(&errand).map_err(|e| NodeError::Setup(e.to_string()))?;
        if let Some(mut input) = started.stdin.take() {
            writeln!(input, "{line}").map_err(setup)?;
        }
        if let Some(output) = started.stdout.take() {
            let say = say.clone();
            watch(process, output, say).map_err(setup)?;
        }
        children.0.push(started);
    }
    let mut waiting = config.processes;
    while waiting > 0 {
        match heard.recv() {
            Ok(News::Ready) => waiting -= 1,
            Ok(News::Ended(process)) => return Err(children.why_ended(process)),
            Err(_) => return Err(NodeError::ChildEnded("all at once".to_owned())),
        }
    }
    listening();
    // From here on, whichever comes first: a signal, or a process that ends.
    thread::Builder::new()
        .spawn(move || {
            let _ = io::Read::read(&mut stopped, &mut [0]);
            let _ = say.send(News::Ready);
        })
        .map_err(setup)?;
    match heard.recv() {
        Ok(News::Ended(process)) => Err(children.why_ended(process)),
        _ => {
            children.end();
            Ok(())
        }
    }
}

enum News {
    Ready,
    Ended(u32),
}

fn watch(process: u32, output: std::process::ChildStdout, say: mpsc::Sender<News>) -> io::Result<()> {
    thread::Builder::new().stack_size(64 * 1024).spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line == READY {
                let _ = say.send(News::Ready);
            }
        }
        let _ = say.send(News::Ended(process));
    })?;
    Ok(())
}

struct Children(Vec<Child>);

impl Children {
    fn why_ended(&mut self, process: u32) -> NodeError {
        let status = match self.0[process as usize].wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        NodeError::ChildEnded(format!("process {process}: {status}"))
    }

    /// Asks all to end in good order, and waits until they have.
    fn end(&mut self) {
        for child in &self.0 {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
        self.0.clear();
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.end();
    }
}

//! How do workers on this machine hear and speak? As child processes, over their standard input and output.

use std::fs::File;
use std::io::{self, BufReader, Read as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use crate::message::{self, Order, Report};

/// What reached the coordinator.
#[derive(Debug)]
pub enum Event {
    /// A worker said something.
    Report(u32, Report),
    /// A worker's pipe closed: how its process ended.
    Gone(u32, String),
    /// The user asked to stop (sent through [`Crew::stopper`]).
    Stop,
}

/// What travels from a worker's thread to the coordinator. Reports wait as they came: decoded, their histograms take
/// a hundred times the room, and a busy coordinator may be behind by many.
enum News {
    Frame(u32, Vec<u8>),
    Gone(u32, String),
    Stop,
}

/// A way to ask the coordinator to stop, from another thread.
#[derive(Clone)]
pub struct Stopper(Sender<News>);

impl Stopper {
    /// Puts [`Event::Stop`] into the stream of events.
    pub fn stop(&self) {
        let _ = self.0.send(News::Stop);
    }
}

struct Member {
    child: Child,
    /// `None`: it died, or was told to drain.
    orders: Option<ChildStdin>,
}

/// The workers as the coordinator has them.
pub struct Crew {
    members: Vec<Member>,
    news: Receiver<News>,
    sender: Sender<News>,
}

impl Crew {
    /// Starts `count` workers, each by the command that `make` gives.
    ///
    /// # Errors
    /// What starting a process says.
    pub fn start(count: u32, mut make: impl FnMut() -> Command) -> io::Result<Self> {
        let (sender, news) = mpsc::channel();
        let mut crew = Self { members: Vec::new(), news, sender };
        for index in 0..count {
            let mut child = make().stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let orders = child.stdin.take();
            if let Some(output) = child.stdout.take() {
                let sender = crew.sender.clone();
                thread::Builder::new().stack_size(128 * 1024).name(format!("worker {index}")).spawn(
                    move || {
                        let mut from = BufReader::new(output);
                        let end = loop {
                            match message::read_frame(&mut from) {
                                Ok(Some(frame)) => {
                                    if sender.send(News::Frame(index, frame)).is_err() {
                                        return;
                                    }
                                }
                                Ok(None) => break String::new(),
                                Err(error) => break error.to_string(),
                            }
                        };
                        let _ = sender.send(News::Gone(index, end));
                    },
                )?;
            }
            crew.members.push(Member { child, orders });
        }
        Ok(crew)
    }

    /// The process id of a worker.
    pub fn pid(&self, index: u32) -> u32 {
        self.members[index as usize].child.id()
    }

    /// Tells one worker; a worker that has died hears nothing, and its [`Event::Gone`] says so.
    pub fn tell(&mut self, index: u32, order: &Order) {
        if let Some(orders) = &mut self.members[index as usize].orders
            && message::write(orders, order).is_err()
        {
            self.members[index as usize].orders = None;
        }
    }

    /// A way to put [`Event::Stop`] into the stream of events from another thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(self.sender.clone())
    }

    /// The next event, if one comes in time.
    pub fn next(&mut self, timeout: Duration) -> Option<Event> {
        match self.news.recv_timeout(timeout) {
            Ok(News::Frame(index, frame)) => Some(match message::decode(&frame) {
                Ok(report) => Event::Report(index, report),
                Err(error) => Event::Report(index, Report::Failed(error.to_string())),
            }),
            Ok(News::Gone(index, words)) => Some(Event::Gone(index, self.how_it_ended(index, words))),
            Ok(News::Stop) => Some(Event::Stop),
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    fn how_it_ended(&mut self, index: u32, words: String) -> String {
        let member = &mut self.members[index as usize];
        member.orders = None;
        let status = match member.child.wait() {
            Ok(status) => match (status.signal(), status.code()) {
                (Some(signal), _) => format!("killed by signal {signal}"),
                (_, Some(code)) => format!("ended with exit code {code}"),
                _ => status.to_string(),
            },
            Err(error) => error.to_string(),
        };
        if words.is_empty() { status } else { format!("{status}: {words}") }
    }
}

impl Drop for Crew {
    /// No worker outlives its coordinator.
    fn drop(&mut self) {
        for member in &mut self.members {
            member.orders = None;
            let _ = member.child.kill();
            let _ = member.child.wait();
        }
    }
}

/// A worker's end: orders in, reports out.
pub struct Link {
    orders: File,
    reports: File,
    partial: Vec<u8>,
}

impl Link {
    /// Takes over this process's standard input and output, past the buffers of the standard library: what is
    /// readable must be seen by epoll.
    ///
    /// # Errors
    /// What `dup(2)` says.
    pub fn stdio() -> io::Result<Self> {
        let orders = File::from(io::stdin().as_fd().try_clone_to_owned()?);
        let reports = File::from(io::stdout().as_fd().try_clone_to_owned()?);
        Ok(Self { orders, reports, partial: Vec::new() })
    }

    /// The descriptor that becomes readable when an order waits.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.orders.as_fd()
    }

    /// Waits for the next order.
    ///
    /// # Errors
    /// What the pipe says; `UnexpectedEof`: the coordinator is gone.
    pub fn wait(&mut self) -> io::Result<Order> {
        loop {
            if let Some(order) = self.next_order()? {
                return Ok(order);
            }
            self.read_more()?;
        }
    }

    /// Reads what is at hand, once; waits if there is nothing.
    ///
    /// # Errors
    /// What the pipe says; `UnexpectedEof`: the coordinator is gone.
    pub fn read_more(&mut self) -> io::Result<()> {
        let mut buffer = [0; 4096];
        match self.orders.read(&mut buffer)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            n => {
                self.partial.extend_from_slice(&buffer[..n]);
                Ok(())
            }
        }
    }

    /// Takes the next whole order out of what was read.
    ///
    /// # Errors
    /// `InvalidData` for a broken frame.
    pub fn next_order(&mut self) -> io::Result<Option<Order>> {
        let Some(head) = self.partial.first_chunk::<4>() else { return Ok(None) };
        let end = 4 + u32::from_le_bytes(*head) as usize;
        if self.partial.len() < end {
            return Ok(None);
        }
        let order = message::decode(&self.partial[4..end])?;
        self.partial.drain(..end);
        Ok(Some(order))
    }

    /// Sends a report.
    ///
    /// # Errors
    /// What the pipe says: the coordinator is gone.
    pub fn say(&mut self, report: &Report) -> io::Result<()> {
        message::write(&mut self.reports, report)
    }
}

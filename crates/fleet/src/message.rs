//! What do coordinator and workers say to each other?
//!
//! A frame is its length (u32, little endian), the version of this vocabulary (u8) and a postcard body.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr};

use model::storm::Wave;
use model::sweep::Loaded;
use model::talk::Talked;
use model::{RoundKind, Sample, Spec};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// The version of the vocabulary below; both ends must speak the same.
pub const VERSION: u8 = 4;

/// The longest frame that is believed: histograms of one report stay far below it.
const LONGEST: u32 = 16 * 1024 * 1024;

/// Ports of one source address that belong to one worker alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortShare {
    /// The source address; `None`: unbound, the kernel's choice.
    pub address: Option<IpAddr>,
    /// First and last port, both included; `None`: the kernel searches for one.
    pub ports: Option<(u16, u16)>,
    /// How many connections may come from here.
    pub most: u64,
}

/// All that a worker has to know to derive its share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    /// What is asked of all workers together.
    pub spec: Spec,
    /// Which worker this is, from 0.
    pub index: u32,
    /// Of how many.
    pub workers: u32,
    /// The most connections this worker will ever be asked for.
    pub capacity: u64,
    /// Addresses of the target.
    pub addresses: Vec<SocketAddr>,
    /// Where to connect from.
    pub sources: Vec<PortShare>,
    /// How many connections may be between `connect()` and the server's first word.
    pub window: u32,
    /// PEM text of a certificate authority to trust besides the system's.
    pub ca_pem: Option<String>,
}

/// What a worker is told. All but [`Order::Start`] carry totals over all workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Given first.
    Start(Box<Assignment>),
    /// Hold this many connections over all workers: open or drop what differs.
    Open {
        /// The total.
        total: u64,
    },
    /// Make a round trip on every single connection.
    Verify,
    /// Let this many connections over all workers come, as the spec has it for this round.
    Wave {
        /// The total.
        total: u64,
        /// Which round.
        kind: RoundKind,
        /// Its instant, in nanoseconds of `CLOCK_MONOTONIC`, a little ahead: all workers of a machine share that clock.
        at: u64,
    },
    /// Let every connection that stands say its messages, as the spec has it.
    Talk {
        /// The instant at which the schedule begins, in nanoseconds of `CLOCK_MONOTONIC`.
        at: u64,
    },
    /// Let every connection that stands work, as the spec's sweep has it.
    Load {
        /// When the work begins, in nanoseconds of `CLOCK_MONOTONIC`, a little ahead.
        at: u64,
        /// When the measured part begins.
        from: u64,
        /// When it ends; no operation is begun from then on.
        until: u64,
    },
    /// Drop every connection at once, without a good-bye.
    Drop,
    /// Send no more heartbeats and wait for the answers that are due.
    Quiet,
    /// Close all connections and end.
    Drain,
}

/// What a worker has to say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Report {
    /// It is ready for [`Order::Open`] and [`Order::Wave`].
    Started,
    /// Counters and latencies.
    Sample(Box<Sample>),
    /// Every attempt of the last [`Order::Open`] has succeeded or failed.
    Opened,
    /// The pass is over: this many came back.
    Verified {
        /// Connections of this worker whose round trip came back.
        verified: u64,
    },
    /// Every connection of the last [`Order::Wave`] has made a round trip, or failed.
    WaveOver(Box<Wave>),
    /// Every message of the last [`Order::Talk`] was answered, or its connection is lost.
    TalkOver(Box<Talked>),
    /// The work of the last [`Order::Load`] is over, and the operations that were begun are answered or given up.
    Loaded(Box<Loaded>),
    /// Every connection is dropped.
    Dropped,
    /// No answer is due any more.
    Quiet,
    /// All connections are closed; the worker ends.
    Drained,
    /// It cannot go on.
    Failed(String),
}

/// Writes one message.
///
/// # Errors
/// What the pipe says.
pub fn write<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(body.len() + 5);
    frame.extend_from_slice(&(body.len() as u32 + 1).to_le_bytes());
    frame.push(VERSION);
    frame.extend_from_slice(&body);
    to.write_all(&frame)?;
    to.flush()
}

/// Reads one frame, for [`decode`]; `None` at the end of the stream.
///
/// # Errors
/// What the pipe says, and `InvalidData` for a length that no frame has.
pub fn read_frame(from: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match from.read_exact(&mut length) {
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length);
    if length == 0 || length > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    let mut frame = vec![0; length as usize];
    from.read_exact(&mut frame)?;
    Ok(Some(frame))
}

/// Reads the part of a frame that follows its length.
///
/// # Errors
/// `InvalidData` for another version or a broken body.
pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> io::Result<T> {
    let invalid = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    match frame.split_first() {
        Some((&VERSION, body)) => postcard::from_bytes(body).map_err(|e| invalid(e.to_string())),
        Some((other, _)) => Err(invalid(format!("message version {other}, but this is version {VERSION}"))),
        None => Err(invalid("an empty frame".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut sample = Sample::default();
        sample.beats.record(1_000_000);
        sample.counters.failed.add_many(model::FailureKind::Reset, 3);
        let mut pipe = Vec::new();
        write(&mut pipe, &Report::Sample(Box::new(sample.clone()))).unwrap();
        write(&mut pipe, &Report::Opened).unwrap();
        let mut from = pipe.as_slice();
        let mut next = || read_frame(&mut from).unwrap().map(|frame| decode::<Report>(&frame).unwrap());
        assert_eq!(next(), Some(Report::Sample(Box::new(sample))));
        assert_eq!(next(), Some(Report::Opened));
        assert_eq!(next(), None);
    }

    #[test]
    fn another_version_and_broken_frames_are_told() {
        assert!(decode::<Report>(&[9, 0]).unwrap_err().to_string().contains("version 9"));
        assert!(decode::<Report>(&[VERSION, 200, 200]).is_err());
        assert!(read_frame(&mut [255u8, 255, 255, 255].as_slice()).is_err());
    }
}

//! What does one side keep of an HTTP/2 connection? Windows, the peer's settings, and its open streams.
//!
//! Whoever drives it takes one [`Event`] after the other. What belongs to the connection alone (settings, pings,
//! windows) is dealt with here.

use std::borrow::Cow;

use super::frame::{self, ACK, END_HEADERS, END_STREAM, Frame};
use super::{Broken, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, Front, PROTOCOL_ERROR, STREAM_CLOSED};
use super::{COMPRESSION_ERROR, ENHANCE_YOUR_CALM};

/// How large every window is at first (RFC 9113, section 6.9.2), and ours remain.
const WINDOW: u16 = u16::MAX;
/// What was taken is credited to the peer once it is so much.
const CREDIT: u16 = WINDOW / 2;
/// The longest header block that is waited for, with the heads of its frames.
const MOST_BLOCK: usize = 32 * 1024;

/// What a peer's frame means for whoever drives the session.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event<'a> {
    /// Nothing: it was dealt with.
    Quiet,
    /// The peer's first settings came: the connection stands.
    Settled,
    /// Our Ping came back.
    Pong([u8; 8]),
    /// Headers, still packed. The stream may be one that is not open, or no more.
    Headers { stream: u32, block: Cow<'a, [u8]>, end: bool },
    /// Bytes of a stream. They are held against the peer's windows until [`Session::took`].
    Data { stream: u32, bytes: &'a [u8], end: bool },
    /// The peer gave a stream up, which is no more.
    Reset { stream: u32, code: u32 },
    /// The peer says good-bye.
    Away { code: u32, words: &'a [u8] },
    /// More may be sent than before, if something waits.
    Room,
}

/// The bytes that a peer may still send, on a connection or one stream.
#[derive(Debug, Default)]
struct Credit {
    /// Received and not credited.
    held: u16,
    /// Of these, taken.
    taken: u16,
}

impl Credit {
    fn receive(&mut self, n: usize) -> Result<(), Broken> {
        let held = usize::from(self.held) + n;
        self.held = u16::try_from(held)
            .map_err(|_| Broken::new(FLOW_CONTROL_ERROR, "more bytes than its window allows"))?;
        Ok(())
    }

    /// Gives back what was taken, if it is worth a frame.
    fn take(&mut self, n: usize, stream: u32, out: &mut Vec<u8>) {
        self.taken = (usize::from(self.taken) + n).min(usize::from(self.held)) as u16;
        if self.taken >= CREDIT {
            frame::write(out, frame::WINDOW_UPDATE, 0, stream, &u32::from(self.taken).to_be_bytes());
            self.held -= self.taken;
            self.taken = 0;
        }
    }
}

/// One open stream, with what its driver keeps of it.
#[derive(Debug)]
pub(crate) struct Stream<T> {
    pub(crate) id: u32,
    /// What may still be sent; below 0 where the peer made its windows smaller.
    room: i32,
    credit: Credit,
    /// The peer will send no more.
    pub(crate) ended: bool,
    pub(crate) work: T,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Session<T> {
    streams: Vec<Stream<T>>,
    /// What may still be sent over all streams.
    room: i32,
    credit: Credit,
    /// The peer's settings.
    initial_room: i32,
    most_payload: u32,
    pub(crate) most_streams: u32,
    /// The highest stream that the client has opened so far.
    last: u32,
    begun: bool,
}

impl<T> Default for Session<T> {
    fn default() -> Self {
        Self {
            streams: Vec::new(),
            room: i32::from(WINDOW),
            credit: Credit::default(),
            initial_room: i32::from(WINDOW),
            most_payload: frame::MOST_PAYLOAD as u32,
            most_streams: u32::MAX,
            last: 0,
            begun: false,
        }
    }
}

impl<T> Session<T> {
    /// The open streams.
    pub(crate) fn streams(&mut self) -> &mut [Stream<T>] {
        &mut self.streams
    }

    /// Where in them one stands; `None`: it is not open.
    pub(crate) fn find(&self, id: u32) -> Option<usize> {
        self.streams.iter().position(|stream| stream.id == id)
    }

    /// The highest stream that the client has opened so far.
    pub(crate) fn last(&self) -> u32 {
        self.last
    }

    /// The number of the client's next stream; `None`: there are no more (section 5.1.1).
    pub(crate) fn next_id(&self) -> Option<u32> {
        let next = if self.last == 0 { 1 } else { self.last + 2 };
        (next <= i32::MAX as u32).then_some(next)
    }

    /// Notes that a client has opened a stream.
    pub(crate) fn open(&mut self, id: u32, work: T) -> usize {
        self.last = id;
        if self.streams.len() == self.streams.capacity() {
            // Most connections have one for good: no room is kept for more.
            self.streams.reserve_exact(self.streams.len().max(1));
        }
        let stream = Stream { id, room: self.initial_room, credit: Credit::default(), ended: false, work };
        self.streams.push(stream);
        self.streams.len() - 1
    }

    /// Notes that a stream was opened and is over already.
    pub(crate) fn pass(&mut self, id: u32) {
        self.last = id;
    }

    /// Forgets a stream that is over; what it still held is credited to the connection.
    pub(crate) fn close(&mut self, at: usize, out: &mut Vec<u8>) -> T {
        let stream = self.streams.swap_remove(at);
        self.credit.take(usize::from(stream.credit.held - stream.credit.taken), 0, out);
        if self.streams.is_empty() {
            self.streams = Vec::new();
        }
        stream.work
    }

    /// Sends of these bytes what the windows allow, and the end of the stream if that is all; says how many.
    pub(crate) fn send(&mut self, at: usize, bytes: &[u8], end: bool, out: &mut Vec<u8>) -> usize {
        let stream = &mut self.streams[at];
        let mut sent = 0;
        while sent < bytes.len() {
            let room = self.room.min(stream.room).max(0) as usize;
            let n = room.min(self.most_payload as usize).min(bytes.len() - sent);
            if n == 0 {
                return sent;
            }
            let ends = end && sent + n == bytes.len();
            let flags = if ends { END_STREAM } else { 0 };
            frame::write(out, frame::DATA, flags, stream.id, &bytes[sent..sent + n]);
            sent += n;
            self.room -= n as i32;
            stream.room -= n as i32;
        }
        if end && bytes.is_empty() {
            frame::write(out, frame::DATA, END_STREAM, stream.id, b"");
        }
        sent
    }

    /// Of what a stream received, so many bytes are dealt with: the peer may send as many more.
    pub(crate) fn took(&mut self, at: usize, n: usize, out: &mut Vec<u8>) {
        let stream = &mut self.streams[at];
        // Counted before it is credited, so that what a stream has taken is never credited twice.
        if stream.ended {
            stream.credit.taken = (usize::from(stream.credit.taken) + n) as u16;
        } else {
            stream.credit.take(n, stream.id, out);
        }
        self.credit.take(n, 0, out);
    }

    /// Takes one frame, or a header block in several; `None`: it is not all there.
    pub(crate) fn next<'a>(&mut self, bytes: &'a [u8], out: &mut Vec<u8>) -> Front<Event<'a>> {
        if !self.begun && bytes.get(3).is_some_and(|kind| *kind != frame::SETTINGS) {
            return Err(Broken::new(PROTOCOL_ERROR, "something else than HTTP/2 settings first"));
        }
        let Some((frame, mut taken)) = Frame::read(bytes)? else { return Ok(None) };
        let event = match frame.kind {
            frame::DATA => self.data(&frame, out)?,
            frame::HEADERS => {
                let Some((block, all)) = block(&frame, bytes, taken)? else { return Ok(None) };
                taken = all;
                let end = frame.has(END_STREAM);
                if let Some(at) = self.find(frame.stream) {
                    self.end(at, end)?;
                }
                Event::Headers { stream: frame.stream, block, end }
            }
            frame::PRIORITY => Event::Quiet,
            frame::RST_STREAM => self.reset(&frame)?,
            frame::SETTINGS => self.settings(&frame, out)?,
            frame::PUSH_PROMISE => {
                return Err(Broken::new(PROTOCOL_ERROR, "a promise, which nobody may here"));
            }
            frame::PING => ping(&frame, out)?,
            frame::GOAWAY => away(&frame)?,
            frame::WINDOW_UPDATE => self.window(&frame)?,
            frame::CONTINUATION => {
                return Err(Broken::new(PROTOCOL_ERROR, "the continuation of no header block"));
            }
            // An extension that nobody agreed to (section 4.1).
            _ => Event::Quiet,
        };
        Ok(Some((event, taken)))
    }

    /// Whether a stream was opened at some time; else nothing but headers may be sent on it (section 5.1).
    fn known(&self, stream: u32) -> Result<(), Broken> {
        if stream == 0 || stream.is_multiple_of(2) || stream > self.last {
            return Err(Broken::new(PROTOCOL_ERROR, "a frame on a stream that was never opened"));
        }
        Ok(())
    }

    fn end(&mut self, at: usize, end: bool) -> Result<(), Broken> {
        let stream = &mut self.streams[at];
        if stream.ended {
            return Err(Broken::new(STREAM_CLOSED, "a frame on a stream that it had ended"));
        }
        stream.ended = end;
        Ok(())
    }

    fn data<'a>(&mut self, frame: &Frame<'a>, out: &mut Vec<u8>) -> Result<Event<'a>, Broken> {
        self.known(frame.stream)?;
        let bytes = frame.content()?;
        self.credit.receive(frame.payload.len())?;
        let Some(at) = self.find(frame.stream) else {
            // It was on its way when the stream ended.
            self.credit.take(frame.payload.len(), 0, out);
            return Ok(Event::Quiet);
        };
        let end = frame.has(END_STREAM);
        self.end(at, end)?;
        self.streams[at].credit.receive(frame.payload.len())?;
        self.took(at, frame.payload.len() - bytes.len(), out);
        Ok(Event::Data { stream: frame.stream, bytes, end })
    }

    fn reset(&mut self, frame: &Frame<'_>) -> Result<Event<'static>, Broken> {
        self.known(frame.stream)?;
        let Ok(code) = frame.payload.try_into().map(u32::from_be_bytes) else {
            return Err(Broken::new(FRAME_SIZE_ERROR, "a RST_STREAM that does not have 4 bytes"));
        };
        Ok(Event::Reset { stream: frame.stream, code })
    }

    /// Takes the peer's settings, and says so (section 6.5).
    fn settings(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<Event<'static>, Broken> {
        if frame.stream != 0 {
            return Err(Broken::new(PROTOCOL_ERROR, "settings for one stream"));
        }
        let (values, rest) = frame.payload.as_chunks::<6>();
        if !rest.is_empty() || (frame.has(ACK) && !values.is_empty()) {
            return Err(Broken::new(FRAME_SIZE_ERROR, "settings that are cut off"));
        }
        if frame.has(ACK) {
            return match self.begun {
                true => Ok(Event::Quiet),
                false => Err(Broken::new(PROTOCOL_ERROR, "something else than HTTP/2 settings first")),
            };
        }
        for &[a, b, c, d, e, f] in values {
            let value = u32::from_be_bytes([c, d, e, f]);
            match u16::from_be_bytes([a, b]) {
                frame::ENABLE_PUSH if value > 1 => {
                    return Err(Broken::new(PROTOCOL_ERROR, "a SETTINGS_ENABLE_PUSH above 1"));
                }
                frame::MAX_CONCURRENT_STREAMS => self.most_streams = value,
                frame::INITIAL_WINDOW_SIZE => self.resize(value)?,
                frame::MAX_FRAME_SIZE if (1 << 14..1 << 24).contains(&value) => self.most_payload = value,
                frame::MAX_FRAME_SIZE => {
                    return Err(Broken::new(PROTOCOL_ERROR, "a SETTINGS_MAX_FRAME_SIZE out of range"));
                }
                _ => {}
            }
        }
        frame::write(out, frame::SETTINGS, ACK, 0, b"");
        Ok(if std::mem::replace(&mut self.begun, true) { Event::Room } else { Event::Settled })
    }

    /// The peer changes the window that each of its streams has (section 6.9.2).
    fn resize(&mut self, size: u32) -> Result<(), Broken> {
        let overflow = Broken::new(FLOW_CONTROL_ERROR, "a window of more than 2^31-1 bytes");
        let size = i32::try_from(size).map_err(|_| overflow)?;
        for stream in &mut self.streams {
            let room = i64::from(stream.room) + i64::from(size) - i64::from(self.initial_room);
            stream.room = i32::try_from(room).map_err(|_| overflow)?;
        }
        self.initial_room = size;
        Ok(())
    }

    fn window(&mut self, frame: &Frame<'_>) -> Result<Event<'static>, Broken> {
        let Ok(more) = frame.payload.try_into().map(u32::from_be_bytes) else {
            return Err(Broken::new(FRAME_SIZE_ERROR, "a WINDOW_UPDATE that does not have 4 bytes"));
        };
        let more = (more & 0x7fff_ffff) as i32;
        if more == 0 {
            return Err(Broken::new(PROTOCOL_ERROR, "a WINDOW_UPDATE by nothing"));
        }
        let room = if frame.stream == 0 {
            &mut self.room
        } else {
            self.known(frame.stream)?;
            let Some(at) = self.find(frame.stream) else { return Ok(Event::Quiet) };
            &mut self.streams[at].room
        };
        *room = room
            .checked_add(more)
            .ok_or(Broken::new(FLOW_CONTROL_ERROR, "a window of more than 2^31-1 bytes"))?;
        Ok(Event::Room)
    }
}

/// The header block that a frame begins, with its continuations (section 6.10); `None`: it is not all there.
fn block<'a>(first: &Frame<'a>, bytes: &'a [u8], mut taken: usize) -> Front<Cow<'a, [u8]>> {
    if first.stream == 0 {
        return Err(Broken::new(PROTOCOL_ERROR, "headers on no stream"));
    }
    let mut block = Cow::Borrowed(first.content()?);
    let mut complete = first.has(END_HEADERS);
    while !complete {
        // Also where each of them is empty: what is there so far is read again with each that comes.
        if taken > MOST_BLOCK {
            return Err(Broken::new(ENHANCE_YOUR_CALM, "a header block of more than 32 KiB"));
        }
        let Some((frame, more)) = Frame::read(&bytes[taken..])? else { return Ok(None) };
        if (frame.kind, frame.stream) != (frame::CONTINUATION, first.stream) {
            return Err(Broken::new(PROTOCOL_ERROR, "another frame within a header block"));
        }
        block.to_mut().extend_from_slice(frame.payload);
        complete = frame.has(END_HEADERS);
        taken += more;
    }
    if block.is_empty() {
        return Err(Broken::new(COMPRESSION_ERROR, "a header block without headers"));
    }
    Ok(Some((block, taken)))
}

/// Sends a Ping back, or takes our own (section 6.7).
fn ping(frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<Event<'static>, Broken> {
    let Ok(payload) = <[u8; 8]>::try_from(frame.payload) else {
        return Err(Broken::new(FRAME_SIZE_ERROR, "a PING that does not have 8 bytes"));
    };
    if frame.stream != 0 {
        return Err(Broken::new(PROTOCOL_ERROR, "a PING on a stream"));
    }
    if frame.has(ACK) {
        return Ok(Event::Pong(payload));
    }
    frame::write(out, frame::PING, ACK, 0, &payload);
    Ok(Event::Quiet)
}

fn away<'a>(frame: &Frame<'a>) -> Result<Event<'a>, Broken> {
    let Some((&[_, _, _, _, a, b, c, d], words)) = frame.payload.split_first_chunk::<8>() else {
        return Err(Broken::new(FRAME_SIZE_ERROR, "a GOAWAY that is cut off"));
    };
    if frame.stream != 0 {
        return Err(Broken::new(PROTOCOL_ERROR, "a GOAWAY on a stream"));
    }
    Ok(Event::Away { code: u32::from_be_bytes([a, b, c, d]), words })
}

//! What does the node answer on a WebSocket? Each message comes back (RFC 6455).

use super::MOST_BODY;
use super::request::{Request, Status};
use crate::frame::{self, BINARY, CLOSE, CONTINUATION, Frame, PING, PONG, TEXT};
use crate::machine::Out;

/// Close codes of RFC 6455, section 7.4.1.
const GOING_AWAY: u16 = 1001;
const PROTOCOL_ERROR: u16 = 1002;
const NOT_TEXT: u16 = 1007;
const TOO_BIG: u16 = 1009;

/// What is kept of one WebSocket: how large the message under way is, and where its text was cut.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Socket {
    /// Payload of the message under way, so far.
    size: u32,
    /// A message's first frame has come and its last one has not.
    open: bool,
    /// The message under way is text.
    text: bool,
    /// The client has spoken of itself since it was last to be asked: it lives, and no path on the way saw it idle.
    spoke: bool,
    /// The start of a character that the last frame of a text was cut in.
    cut: Cut,
}

/// Up to three bytes of an unfinished UTF-8 character, filled up with zeros.
type Cut = [u8; 3];

/// Answers an upgrade request with the accept value (RFC 6455, section 4.2).
pub(super) fn agree(request: &Request<'_>) -> Result<String, Status> {
    let fields = &request.fields;
    let upgrade = request.minor == 1
        && fields.has_token("upgrade", "websocket")
        && fields.has_token("connection", "upgrade")
        && fields.values("sec-websocket-version").eq([b"13"]);
    if !upgrade {
        return Err(Status::UPGRADE);
    }
    let mut keys = fields.values("sec-websocket-key");
    match (keys.next(), keys.next()) {
        (Some(key), None) if frame::is_key(key) => Ok(frame::accept(key)),
        _ => Err(Status::BAD_KEY),
    }
}

impl Socket {
    /// Pings a client that said nothing since the last time: the answer shows that the connection lives.
    pub(super) fn ask(&mut self, out: &mut Out) {
        if !std::mem::take(&mut self.spoke) {
            frame::write(&mut out.bytes, true, PING, None, b"");
        }
    }

    /// Says good-bye.
    pub(super) fn finish(&self, out: &mut Out) {
        say_close(GOING_AWAY, out);
    }

    /// Takes one frame: how many bytes it had, 0 while it is not all there, `None` if the WebSocket is closed.
    pub(super) fn frame(&mut self, bytes: &[u8], out: &mut Out) -> Option<usize> {
        match self.take(bytes, out) {
            Ok(taken) => Some(taken),
            Err(code) => {
                say_close(code, out);
                None
            }
        }
    }

    fn take(&mut self, bytes: &[u8], out: &mut Out) -> Result<usize, u16> {
        let Some(frame) = Frame::read(bytes).map_err(|_| PROTOCOL_ERROR)? else { return Ok(0) };
        let Some(mask) = frame.mask else { return Err(PROTOCOL_ERROR) };
        if !frame.is_control() {
            if self.open != (frame.opcode == CONTINUATION) {
                return Err(PROTOCOL_ERROR);
            }
            if frame.length + u64::from(self.size) > MOST_BODY as u64 {
                return Err(TOO_BIG);
            }
        }
        let Some((payload, end)) = frame.payload(bytes) else { return Ok(0) };
        self.spoke |= frame.opcode != PONG;
        match frame.opcode {
            PING => {
                reply(&frame, PONG, mask, payload, out);
            }
            PONG => {}
            CLOSE => {
                let mut plain = payload.to_vec();
                frame::apply(mask, &mut plain);
                return Err(match frame::close_code(&plain) {
                    Ok((code, reason)) if std::str::from_utf8(reason).is_ok() => code,
                    Ok(_) => NOT_TEXT,
                    Err(_) => PROTOCOL_ERROR,
                });
            }
            _ => self.echo(&frame, mask, payload, out)?,
        }
        Ok(end)
    }

    /// Returns a data frame as it came: a fragmented message comes back in the same fragments, so that none of it
    /// needs to be kept.
    fn echo(&mut self, frame: &Frame, mask: [u8; 4], payload: &[u8], out: &mut Out) -> Result<(), u16> {
        if !self.open {
            self.text = frame.opcode == TEXT;
        }
        debug_assert!(matches!(frame.opcode, CONTINUATION | TEXT | BINARY));
        let before = out.bytes.len();
        let plain = reply(frame, frame.opcode, mask, payload, out);
        if self.text {
            match text_goes_on(self.cut, &out.bytes[plain..]) {
                Some(cut) if !frame.fin || cut == Cut::default() => self.cut = cut,
                _ => {
                    out.bytes.truncate(before);
                    return Err(NOT_TEXT);
                }
            }
        }
        self.open = !frame.fin;
        // The frame's length was checked against MOST_BODY, so it fits.
        self.size = if frame.fin { 0 } else { self.size + payload.len() as u32 };
        Ok(())
    }
}

/// Sends a frame's payload back, unmasked; gives where in `out` the payload starts.
fn reply(frame: &Frame, opcode: u8, mask: [u8; 4], payload: &[u8], out: &mut Out) -> usize {
    frame::write(&mut out.bytes, frame.fin, opcode, None, payload);
    let start = out.bytes.len() - payload.len();
    frame::apply(mask, &mut out.bytes[start..]);
    start
}

fn say_close(code: u16, out: &mut Out) {
    // 1005 means that the peer gave no code, and must not be sent (section 7.4.1): ours is empty then, too.
    let code = code.to_be_bytes();
    let payload: &[u8] = if code == 1005_u16.to_be_bytes() { &[] } else { &code };
    frame::write(&mut out.bytes, true, CLOSE, None, payload);
}

/// Whether `bytes` go on as UTF-8 (section 8.1) behind a cut character; gives where they are cut themselves.
fn text_goes_on(cut: Cut, bytes: &[u8]) -> Option<Cut> {
    let kept = cut.iter().take_while(|&&b| b != 0).count();
    let mut bytes = bytes;
    if kept > 0 {
        let mut character = [0; 4];
        character[..kept].copy_from_slice(&cut[..kept]);
        let mut have = kept;
        loop {
            match std::str::from_utf8(&character[..have]) {
                Ok(_) => break,
                Err(e) if e.error_len().is_some() || have == 4 => return None,
                Err(_) => {}
            }
            let Some((&next, rest)) = bytes.split_first() else {
                let mut cut = Cut::default();
                cut[..have].copy_from_slice(&character[..have]);
                return Some(cut);
            };
            character[have] = next;
            have += 1;
            bytes = rest;
        }
    }
    match std::str::from_utf8(bytes) {
        Ok(_) => Some(Cut::default()),
        Err(e) if e.error_len().is_some() => None,
        Err(e) => {
            let tail = &bytes[e.valid_up_to()..];
            let mut cut = Cut::default();
            cut[..tail.len()].copy_from_slice(tail);
            Some(cut)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn text_may_be_cut_anywhere(text in "\\PC{0,12}", raw in prop::collection::vec(any::<u8>(), 0..6), cuts in prop::collection::vec(0..40usize, 0..4)) {
            let mut bytes = text.into_bytes();
            bytes.extend_from_slice(&raw);
            let mut cuts: Vec<_> = cuts.into_iter().map(|c| c.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let mut cut = Some(Cut::default());
            for pair in cuts.windows(2) {
                cut = cut.and_then(|cut| text_goes_on(cut, &bytes[pair[0]..pair[1]]));
            }
            prop_assert_eq!(cut == Some(Cut::default()), std::str::from_utf8(&bytes).is_ok());
        }
    }
}

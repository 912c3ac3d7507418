//! What does a client of the node ask for, and is all of it there? (RFC 9112, sections 3 and 6)

use std::borrow::Cow;

use httparse::EMPTY_HEADER;

use super::{MOST_BODY, MOST_HEAD};
use crate::body::Body;
use crate::head::{Fields, MOST_FIELDS};

/// The most bytes that a chunked body may have on the wire: room for its framing, but no more.
const MOST_CHUNKED: usize = 2 * MOST_BODY;

/// A status of RFC 9110, section 15, and a line of text for whoever reads the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Status(u16, &'static str, &'static str);

impl Status {
    pub(super) const OK: Self = Self(200, "OK", "");
    pub(super) const GARBAGE: Self = Self(400, "Bad Request", "this is not an HTTP/1.1 request\n");
    pub(super) const NO_HOST: Self = Self(400, "Bad Request", "the request needs exactly one Host\n");
    pub(super) const BAD_FRAMING: Self =
        Self(400, "Bad Request", "where the request's body ends is not clear\n");
    pub(super) const BAD_KEY: Self =
        Self(400, "Bad Request", "Sec-WebSocket-Key must be 16 bytes in base64\n");
    pub(super) const NOT_FOUND: Self = Self(404, "Not Found", "no such path\n");
    pub(super) const WRONG_METHOD: Self = Self(405, "Method Not Allowed", "this path takes another method\n");
    pub(super) const TOO_LARGE: Self = Self(413, "Content Too Large", "at most 1 MiB is taken\n");
    pub(super) const UPGRADE: Self =
        Self(426, "Upgrade Required", "this path speaks WebSocket, version 13\n");
    pub(super) const LARGE_HEAD: Self =
        Self(431, "Request Header Fields Too Large", "at most 16 KiB of head are taken\n");
    pub(super) const FULL: Self =
        Self(503, "Service Unavailable", "the node holds as many connections as it may\n");

    pub(super) fn code(self) -> u16 {
        self.0
    }

    pub(super) fn reason(self) -> &'static str {
        self.1
    }

    pub(super) fn words(self) -> &'static [u8] {
        self.2.as_bytes()
    }
}

/// A request whose head is there.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    /// Without its query.
    pub(super) path: &'a str,
    /// HTTP/1.x.
    pub(super) minor: u8,
    pub(super) fields: Fields<'a>,
    /// Whether the connection lasts beyond the answer (RFC 9112, section 9.3).
    pub(super) keep: bool,
    /// Whether the client waits for `100 Continue` (RFC 9110, section 10.1.1).
    pub(super) expects_continue: bool,
    head: usize,
    framing: Body,
}

/// A request's body, and how many bytes the request has with it.
pub(super) type Whole<'a> = (Cow<'a, [u8]>, usize);

impl<'a> Request<'a> {
    /// Reads the head at the front of `bytes`; `None` while its end is not there.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Option<Self>, Status> {
        let mut all = [EMPTY_HEADER; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut all);
        let head = match request.parse(bytes) {
            Ok(httparse::Status::Complete(head)) => head,
            Ok(httparse::Status::Partial) if bytes.len() <= MOST_HEAD => return Ok(None),
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(Status::LARGE_HEAD);
            }
            Err(_) => return Err(Status::GARBAGE),
        };
        if head > MOST_HEAD {
            return Err(Status::LARGE_HEAD);
        }
        let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version)
        else {
            return Err(Status::GARBAGE);
        };
        let count = request.headers.len();
        let fields = Fields::new(all, count);
        let hosts = fields.values("host").count();
        if hosts > 1 || (hosts == 0 && minor == 1) {
            return Err(Status::NO_HOST);
        }
        let framing = framing(&fields, minor)?;
        let keep = !fields.has_token("connection", "close")
            && (minor == 1 || fields.has_token("connection", "keep-alive"));
        let expects_continue = minor == 1 && !framing.ended() && fields.has_token("expect", "100-continue");
        let path = path(target);
        Ok(Some(Self { method, path, minor, fields, keep, expects_continue, head, framing }))
    }

    /// The whole body; `None` while it is not all there.
    pub(super) fn body<'b>(&self, bytes: &'b [u8]) -> Result<Option<Whole<'b>>, Status> {
        let rest = &bytes[self.head..];
        match self.framing {
            Body::Ended => Ok(Some((Cow::Borrowed(&[]), self.head))),
            Body::Left(length) => {
                let whole = rest.get(..length as usize);
                Ok(whole.map(|body| (Cow::Borrowed(body), self.head + body.len())))
            }
            mut chunks => {
                let (mut payload, mut used) = (Vec::new(), 0);
                while let Some((n, piece)) = chunks.take(&rest[used..]).map_err(|_| Status::BAD_FRAMING)? {
                    used += n;
                    payload.extend_from_slice(piece);
                    if payload.len() > MOST_BODY || used > MOST_CHUNKED {
                        return Err(Status::TOO_LARGE);
                    }
                }
                Ok(chunks.ended().then_some((Cow::Owned(payload), self.head + used)))
            }
        }
    }
}

/// How the body is delimited (RFC 9112, section 6.3). Whatever two readers could read differently is refused.
fn framing(fields: &Fields<'_>, minor: u8) -> Result<Body, Status> {
    let length = fields.content_length().map_err(|_| Status::BAD_FRAMING)?;
    let mut codings = fields.values("transfer-encoding");
    if let Some(coding) = codings.next() {
        let only = codings.next().is_none() && coding.eq_ignore_ascii_case(b"chunked");
        return if only && minor == 1 && length.is_none() {
            Ok(Body::ChunkSize)
        } else {
            Err(Status::BAD_FRAMING)
        };
    }
    match length.map(u32::try_from) {
        None => Ok(Body::Ended),
        Some(Ok(length)) if length as usize <= MOST_BODY => Ok(Body::of_length(length)),
        Some(_) => Err(Status::TOO_LARGE),
    }
}

/// The path of a target in origin form or in absolute form (RFC 9112, section 3.2).
fn path(target: &str) -> &str {
    let from_path = match target.split_once("://") {
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => target,
    };
    from_path.split('?').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (target, want) in [
            ("/", "/"),
            ("/ws?a=/b", "/ws"),
            ("http://h:1/metrics?x", "/metrics"),
            ("http://h", "/"),
            ("/?u=http://h/ws", "/"),
            ("*", "*"),
        ] {
            assert_eq!(path(target), want);
        }
    }
}

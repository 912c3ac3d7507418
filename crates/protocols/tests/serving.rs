//! The node's side against requests as real clients write them, good and bad.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

use protocols::serve::{MOST_BODY, Service, Slot};
use protocols::{Cue, Fact, Machine, Out};

/// One connection to the node.
struct Talk {
    node: Service,
    slot: Slot,
    pending: Vec<u8>,
    done: bool,
}

impl Talk {
    fn with(slot: Slot) -> Self {
        let node = Service::new("node/1", Box::new(|| "x 1\n# EOF\n".to_owned()));
        Self { node, slot, pending: Vec::new(), done: false }
    }

    fn http() -> Self {
        Self::with(Slot::default())
    }

    /// A WebSocket that has been agreed to.
    fn socket() -> Self {
        let mut talk = Self::http();
        let answer = talk.says(UPGRADE);
        assert!(answer.starts_with("HTTP/1.1 101 "), "{answer}");
        assert!(answer.contains("Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"), "{answer}");
        talk
    }

    fn cue(&mut self, cue: Cue<'_>) -> (usize, Vec<u8>) {
        let mut out = Out::default();
        let used = self.node.on(&mut self.slot, cue, &mut out).unwrap();
        assert!(out.facts.iter().all(|&f| f == Fact::Done) && out.facts.len() < 2, "{:?}", out.facts);
        self.done |= !out.facts.is_empty();
        (used, out.bytes)
    }

    fn answers(&mut self, bytes: impl AsRef<[u8]>) -> Vec<u8> {
        self.pending.extend_from_slice(bytes.as_ref());
        let pending = std::mem::take(&mut self.pending);
        let (used, answer) = self.cue(Cue::Bytes(&pending));
        self.pending = pending[used..].to_vec();
        answer
    }

    /// As text, for heads.
    fn says(&mut self, bytes: impl AsRef<[u8]>) -> String {
        String::from_utf8(self.answers(bytes)).unwrap()
    }
}

const UPGRADE: &str = "GET /ws?room=1 HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A masked frame; the mask is not zero, so that forgetting it shows.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![first];
    match payload.len() {
        n @ 0..126 => out.push(0x80 | n as u8),
        n @ 126..0x1_0000 => out.extend([&[0xfe][..], &(n as u16).to_be_bytes()].concat()),
        n => out.extend([&[0xff][..], &(n as u64).to_be_bytes()].concat()),
    }
    out.extend([1, 2, 3, 4]);
    out.extend(payload.iter().enumerate().map(|(i, b)| b ^ (i % 4 + 1) as u8));
    out
}

#[test]
fn echo_returns_every_byte() {
    let mut talk = Talk::with(Slot::echo());
    assert_eq!(talk.answers(b"\0hello\xff"), b"\0hello\xff");
    assert_eq!(talk.cue(Cue::Ask), (0, vec![]));
    assert_eq!(talk.cue(Cue::Finish), (0, vec![]));
    assert!(talk.done);
}

#[test]
fn the_paths() {
    let mut talk = Talk::http();
    for (request, status, words) in [
        ("GET / HTTP/1.1", "200 OK", "Content-Type: text/plain"),
        ("GET /healthz?now HTTP/1.1", "200 OK", "Content-Length: 3\r\n\r\nok\n"),
        (
            "GET http://h/metrics HTTP/1.1",
            "200 OK",
            "openmetrics-text; version=1.0.0; charset=utf-8\r\nContent-Length: 10\r\n\r\nx 1\n# EOF\n",
        ),
        ("GET /nowhere HTTP/1.1", "404 Not Found", "no such path"),
        ("DELETE / HTTP/1.1", "405 Method Not Allowed", "Allow: GET, HEAD\r\n"),
        ("GET /echo HTTP/1.1", "405 Method Not Allowed", "Allow: POST\r\n"),
        ("HEAD /events HTTP/1.1", "405 Method Not Allowed", "Allow: GET\r\n"),
        ("GET /ws HTTP/1.1", "426 Upgrade Required", "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"),
    ] {
        let answer = talk.says(format!("{request}\r\nhOsT: h\r\n\r\n"));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\nServer: node/1\r\n")), "{answer}");
        assert!(answer.contains(words), "{answer}");
        assert!(!talk.done && talk.pending.is_empty(), "the connection is kept");
    }
    let answer = talk.says("HEAD /healthz HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(answer.ends_with("Content-Length: 3\r\n\r\n"), "{answer}");
}

#[test]
fn how_long_a_connection_lasts() {
    for (request, done, words) in [
        ("GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: Close\r\n\r\n", true, "Connection: close\r\n"),
        ("GET /healthz HTTP/1.0\r\n\r\n", true, "Connection: close\r\n"),
        ("GET /healthz HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", false, "Connection: keep-alive\r\n"),
        ("GET /healthz HTTP/1.1\r\nHost: h\r\n\r\n", false, "ok\n"),
    ] {
        let mut talk = Talk::http();
        let answer = talk.says(request);
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(words), "{answer}");
        assert_eq!(talk.done, done, "{request}");
        assert_eq!(talk.says(request).is_empty(), done, "after the end nothing is answered");
        assert!(talk.pending.is_empty());
    }
}

#[test]
fn what_cannot_be_answered_ends_with_a_reason() {
    let chunked = "POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (request, status) in [
        ("\x16\x03\x01\x02".to_owned(), "400 Bad Request"),
        ("GET / HTTP/2.0\r\n\r\n".into(), "400 Bad Request"),
        ("GET / HTTP/1.1\r\n\r\n".into(), "400 Bad Request"),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n".into(), "400 Bad Request"),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n".into(), "400 Bad Request"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n".into(),
            "400 Bad Request",
        ),
        ("GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n".into(), "400 Bad Request"),
        (format!("{chunked}x\r\n"), "400 Bad Request"),
        (format!("{chunked}100001\r\n{}", "x".repeat(MOST_BODY + 1)), "413 Content Too Large"),
        ("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n".into(), "413 Content Too Large"),
        (
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n".into(),
            "413 Content Too Large",
        ),
        (format!("GET / HTTP/1.1\r\nX: {}", "x".repeat(17_000)), "431 Request Header Fields Too Large"),
        (
            format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(17_000)),
            "431 Request Header Fields Too Large",
        ),
        (format!("GET / HTTP/1.1\r\n{}\r\n", "X: y\r\n".repeat(200)), "431 Request Header Fields Too Large"),
    ] {
        let mut talk = Talk::http();
        let answer = talk.says(&request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{:.60}: {answer}", request);
        assert!(answer.contains("Connection: close\r\n") && talk.done && talk.pending.is_empty());
    }
}

#[test]
fn a_full_node() {
    let mut talk = Talk::with(Slot::refusing());
    assert_eq!(talk.says("GET / HTTP/1.1\r\n"), "");
    let answer = talk.says("Host: h\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 503 Service Unavailable\r\n") && talk.done);
    assert!(answer.contains("Retry-After: 1\r\n") && answer.contains("Connection: close\r\n"));
}

#[test]
fn posts_come_back() {
    let mut talk = Talk::http();
    let answer = talk.says("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET /healthz HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(
        answer.contains("Content-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK") && answer.ends_with("\r\n\r\nok\n"),
        "{answer}"
    );
    let answer = talk.says("POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n3;x\r\nhel\r\n2\r\nlo\r\n0\r\nT: x\r\n\r\n");
    assert!(answer.ends_with("Content-Length: 5\r\n\r\nhello"), "{answer}");
    for _ in 0..2 {
        assert_eq!(
            talk.says("POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 2\r\n\r\n"),
            "HTTP/1.1 100 Continue\r\n\r\n"
        );
        assert_eq!(talk.says("a"), "");
        assert!(talk.says("b").ends_with("\r\n\r\nab"));
    }
    let large = vec![b'x'; MOST_BODY];
    let head = format!("POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: {MOST_BODY}\r\n\r\n");
    assert_eq!(talk.answers(head), b"");
    let (first, second) = large.split_at(700_000);
    assert_eq!(talk.answers(first), b"");
    assert!(talk.answers(second).ends_with(&large));
    assert!(!talk.done && talk.pending.is_empty());
}

#[test]
fn websocket_upgrades_are_checked() {
    for (from, to, status) in [
        ("Upgrade: WebSocket", "Upgrade: h2c", "426"),
        ("keep-alive, Upgrade", "keep-alive", "426"),
        ("Version: 13", "Version: 8", "426"),
        ("HTTP/1.1", "HTTP/1.0", "426"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "short", "400"),
        ("dGhlIHNhbXBsZSBub25jZQ==", "", "400"),
    ] {
        let mut talk = Talk::http();
        let answer = talk.says(UPGRADE.replace(from, to));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{to}: {answer}");
    }
}

#[test]
fn websocket_messages_come_back() {
    let mut talk = Talk::socket();
    assert_eq!(talk.answers(frame(0x81, b"hi")), b"\x81\x02hi");
    assert_eq!(talk.answers(frame(0x82, b"\xff\xfe")), b"\x82\x02\xff\xfe");
    // A character cut between two fragments, and a ping between them.
    assert_eq!(talk.answers(frame(0x01, b"\xc3")), b"\x01\x01\xc3");
    assert_eq!(talk.answers(frame(0x89, b"p")), b"\x8a\x01p");
    assert_eq!(talk.answers(frame(0x80, b"\xa9")), b"\x80\x01\xa9");
    assert_eq!(talk.answers(frame(0x8a, b"unsolicited")), b"");
    // Who spoke since the last time need not be asked.
    assert_eq!(talk.cue(Cue::Ask), (0, vec![]));
    assert_eq!(talk.cue(Cue::Ask), (0, b"\x89\x00".to_vec()));
    let large = vec![7; MOST_BODY];
    let wire = frame(0x82, &large);
    assert_eq!(talk.answers(&wire[..MOST_BODY]), b"");
    let answer = talk.answers(&wire[MOST_BODY..]);
    assert_eq!(answer[..10], *b"\x82\x7f\0\0\0\0\0\x10\0\0");
    assert_eq!(answer[10..], large);
    assert_eq!(talk.cue(Cue::Finish), (0, b"\x88\x02\x03\xe9".to_vec()));
    assert!(talk.done && talk.pending.is_empty());
}

#[test]
fn websocket_rules_are_kept() {
    let half = frame(0x02, &vec![0; MOST_BODY / 2 + 1]);
    for (wire, code) in [
        (b"\x81\x01a".to_vec(), 1002_u16),
        (frame(0xc1, b"a"), 1002),
        (frame(0x80, b"a"), 1002),
        (frame(0x83, b"a"), 1002),
        (frame(0x09, b"a"), 1002),
        (frame(0x88, b"\x03"), 1002),
        (frame(0x88, b"\x03\xed"), 1002),
        (frame(0x88, b"\x03\xe8bye"), 1000),
        (frame(0x88, b"\x03\xe8\xff"), 1007),
        (frame(0x81, b"\xff"), 1007),
        (frame(0x81, b"\xc3"), 1007),
        (frame(0x82, &vec![0; MOST_BODY + 1])[..14].to_vec(), 1009),
        ([half.as_slice(), &[0x80], &half[1..]].concat(), 1009),
        ([frame(0x01, b"a"), frame(0x01, b"a")].concat(), 1002),
    ] {
        let mut talk = Talk::socket();
        let answer = talk.answers(&wire);
        assert!(answer.ends_with(&[&[0x88, 2], &code.to_be_bytes()[..]].concat()), "{code}");
        assert!(talk.done && talk.pending.is_empty());
        assert_eq!(talk.answers(frame(0x81, b"more")), b"");
    }
    let mut talk = Talk::socket();
    assert_eq!(talk.answers(frame(0x88, b"")), b"\x88\x00", "no code is answered with none");
}

#[test]
fn an_event_stream() {
    let mut talk = Talk::http();
    let head = talk.says("GET /events HTTP/1.1\r\nHost: h\r\n\r\nplimsoll-nudge 0000002a\r\n");
    for line in ["200 OK", "text/event-stream", "no-store", "plimsoll-nudge: 1", "Connection: close"] {
        assert!(head.contains(line), "{head}");
    }
    assert!(head.ends_with("\r\n\r\n: nudge 0000002a\n\n"));
    assert_eq!(talk.cue(Cue::Ask), (0, b": beat\n\n".to_vec()));
    assert_eq!(talk.says("plimsoll-nudge 0000002B\r\nGET / HTTP/1.1\r\nplimsoll-nu"), "");
    assert_eq!(talk.says("dge 0000002b\r\n"), ": nudge 0000002b\n\n");
    assert!(!talk.done);
    assert_eq!(talk.says("x".repeat(64)), "");
    assert!(talk.done && talk.pending.is_empty());
}

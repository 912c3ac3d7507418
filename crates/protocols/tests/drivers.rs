//! Each driver against answers as real servers write them, good and bad.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod talk;

use model::{FailureKind, Operation, Scheme};
use protocols::{Cue, Fact, Out, Plan, check_operation, http, sse, tcp, ws};
use talk::{Talk, operating, plan};

fn words(send: &str, expect: Option<&str>) -> Talk<tcp::Echo> {
    let bytes = |text: &str| text.as_bytes().to_vec();
    Talk::with(&Plan { send: Some(bytes(send)), expect: expect.map(bytes), ..plan("tcp://h:1") })
}

use Fact::{Answered, CannotAsk, Done, Heard, Operated, Ready, Upgraded};
use FailureKind::{Closed, Protocol, ServerRefused};

#[test]
fn an_echo_in_pieces_is_compared_byte_by_byte() {
    let mut talk = Talk::<tcp::Echo>::to("tcp://h:1");
    assert_eq!(talk.facts, [Ready]);
    talk.ask(2);
    let said = talk.said.clone();
    assert_eq!((said.len(), said[31], said[63]), (64, b'\n', b'\n'));
    assert_eq!(talk.hears(&said[..40]), Ok(vec![Answered]));
    assert!(talk.pending.is_empty(), "half an answer is not kept");
    assert_eq!(talk.hears(&said[40..63]), Ok(vec![]));
    talk.fails("\r", Protocol, r#""\r" and not what was sent"#);
}

#[test]
fn an_echo_operation_is_told_apart_from_heartbeats() {
    let mut talk = Talk::<tcp::Echo>::with(&operating("tcp://h:1", Some("hello, all")));
    talk.ask(1);
    talk.operate(1);
    talk.ask(1);
    let said = std::mem::take(&mut talk.said);
    assert_eq!(&said[32..42], b"hello, all");
    assert_eq!(talk.hears(&said[..35]), Ok(vec![Answered]));
    assert_eq!(talk.hears(&said[35..]), Ok(vec![Operated, Answered]));

    talk.operate(1);
    talk.fails("hello, you", Protocol, "not what was sent");
}

#[test]
fn bytes_that_nobody_asked_for_are_no_echo() {
    let mut talk = Talk::<tcp::Echo>::to("tcp://h:1");
    talk.fails("220 smtp ready\r\n", Protocol, "--send TEXT --expect TEXT");
}

#[test]
fn an_answer_to_a_line_is_a_line() {
    for expect in [Some("+PO"), Some("+PONG\r\n"), None, Some("")] {
        let mut talk = words("PING\r\n", expect);
        assert_eq!(talk.hears("hello\r\nwelcome\r\n"), Ok(vec![Heard]), "a greeting");
        talk.ask(3);
        assert_eq!(talk.said, b"PING\r\nPING\r\nPING\r\n");
        assert_eq!(talk.hears("+PONG\r\n+P"), Ok(vec![Answered]));
        assert_eq!(talk.hears("ONG\r"), Ok(vec![]));
        assert_eq!(talk.hears("\n+PONG\r\nbye"), Ok(vec![Answered, Answered, Heard]));
        assert_eq!(talk.hears(" bye"), Ok(vec![]));
    }
    let mut talk = words("PING\r\n", Some("+PONG"));
    talk.ask(1);
    talk.fails("-ERR max number of clients reached\r\n", Protocol, "-ERR max number");
    let mut talk = words("stats\n", Some("a\nEN"));
    talk.ask(1);
    assert_eq!(talk.hears("a\nEND\n"), Ok(vec![Answered]), "an expectation of several lines");
}

#[test]
fn an_answer_without_lines_is_as_long_as_what_is_expected() {
    let mut talk = words("ping", Some("pong"));
    talk.ask(2);
    assert_eq!(talk.hears("pongpo"), Ok(vec![Answered]));
    assert_eq!(talk.hears("ng!!"), Ok(vec![Answered, Heard]));
    let mut talk = words("ping", None);
    talk.ask(2);
    assert_eq!(talk.hears("anything"), Ok(vec![Answered, Answered]));
    talk.ask(1);
    assert_eq!(talk.hears("?"), Ok(vec![Answered]));
}

#[test]
fn http_bodies_are_passed_over() {
    let mut talk = Talk::<http::KeepAlive>::to("http://h/x?y");
    assert_eq!(talk.facts, [Ready]);
    assert!(talk.said.is_empty(), "nothing is asked unasked");
    talk.ask(5);
    let said = String::from_utf8(talk.said.clone()).unwrap();
    assert!(said.starts_with("GET /x?y HTTP/1.1\r\nHost: h\r\nUser-Agent: plimsoll/"), "{said}");
    assert_eq!(
        talk.hears("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"),
        Ok(vec![])
    );
    assert_eq!(talk.hears("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"), Ok(vec![]));
    assert_eq!(talk.hears(vec![b'x'; 999_999]), Ok(vec![]));
    assert!(talk.pending.is_empty(), "a body is not kept");
    assert_eq!(
        talk.hears("xHTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n"),
        Ok(vec![Answered; 3])
    );
    assert_eq!(
        talk.hears("HTTP/1.1 302 Found\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nT: x\r\n"),
        Ok(vec![])
    );
    assert_eq!(
        talk.hears("\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"),
        Ok(vec![Answered; 2])
    );
}

#[test]
fn http_says_why_an_answer_will_not_do() {
    let asked = || {
        let mut talk = Talk::<http::KeepAlive>::to("http://h/");
        talk.ask(1);
        talk
    };
    asked().fails(
        "HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\nall full",
        ServerRefused,
        r#""HTTP/1.1 503 Busy" and said "all full""#,
    );
    asked().fails("HTTP/1.1 429 Slow\r\n\r\n", ServerRefused, "429 Slow");
    asked().fails("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", Protocol, "answers 2xx");
    asked().fails("HTTP/1.0 200 OK\r\n\r\nbody", Protocol, "does not keep the connection alive");
    asked().fails("HTTP/1.1 101 Switching\r\n\r\n", Protocol, "use ws://");
    asked().fails("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", Protocol, "no valid size");
    asked().fails(
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        Protocol,
        "two different",
    );
    asked().fails("+PONG\r\n", Protocol, "did not answer in HTTP/1.1");
    asked().fails([b"HTTP/1.1 200 OK\r\nX: ".as_slice(), &[b'x'; 70_000]].concat(), Protocol, "64 KiB");
    let mut idle = Talk::<http::KeepAlive>::to("http://h/");
    idle.fails("HTTP/1.1 408 Request Timeout\r\n\r\n", ServerRefused, "408");
    let mut answered = asked();
    assert_eq!(answered.hears("HTTP/1.1 204 No Content\r\n\r\n"), Ok(vec![Answered]));
    answered.fails("HTTP/1.1 204 No Content\r\n\r\n", Protocol, "though nothing was asked");
}

#[test]
fn an_http_operation_is_a_request_of_its_own() {
    let said = |text: Option<&str>| {
        let mut talk = Talk::<http::KeepAlive>::with(&operating("http://h/x", text));
        talk.operate(1);
        String::from_utf8(talk.said).unwrap()
    };
    assert!(said(None).starts_with("GET /x HTTP/1.1\r\nHost: h\r\n"), "{}", said(None));
    let agent = concat!("User-Agent: plimsoll/", env!("CARGO_PKG_VERSION"), "\r\nAccept: */*\r\n");
    assert_eq!(said(Some("DELETE /a?b")), format!("DELETE /a?b HTTP/1.1\r\nHost: h\r\n{agent}\r\n"));
    assert_eq!(
        said(Some("POST /a {\"b\": [1, 2]}")),
        format!(
            "POST /a HTTP/1.1\r\nHost: h\r\n{agent}Content-Type: application/json\r\nContent-Length: 13\r\n\r\n\
             {{\"b\": [1, 2]}}"
        )
    );
    assert!(said(Some("PUT /a é b")).ends_with("text/plain; charset=utf-8\r\nContent-Length: 4\r\n\r\né b"));
    assert!(said(Some("POST /a")).ends_with("Content-Length: 0\r\n\r\n"));
    for bad in ["", "/x", "get /x", "GET x", "CONNECT /x", "GET  /x"] {
        let refused =
            check_operation(Scheme::Https, &Operation { text: Some(bad.to_owned()), ..Operation::default() });
        assert!(refused.unwrap_err().contains("write METHOD /path or METHOD /path BODY"), "{bad}");
    }
    assert_eq!(check_operation(Scheme::Http, &Operation { text: None, ..Operation::default() }), Ok(()));
}

#[test]
fn http_operations_are_answered_in_order_with_heartbeats() {
    let mut talk = Talk::<http::KeepAlive>::with(&operating("http://h/", Some("HEAD /a")));
    talk.operate(1);
    talk.ask(1);
    talk.operate(1);
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n";
    assert_eq!(talk.hears(answer), Ok(vec![Operated]), "a HEAD has no body, whatever its length says");
    assert_eq!(talk.hears(format!("{answer}ab")), Ok(vec![]));
    assert_eq!(talk.hears(format!("c{answer}")), Ok(vec![Answered, Operated]));
    let asked = || {
        let mut talk = Talk::<http::KeepAlive>::with(&operating("http://h/", Some("POST /a b")));
        talk.operate(1);
        talk
    };
    assert_eq!(asked().hears("HTTP/1.1 303 See Other\r\nContent-Length: 0\r\n\r\n"), Ok(vec![Operated]));
    let wrong = "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone";
    asked().fails(wrong, Protocol, r#""HTTP/1.1 404 Not Found" and said "none"; an operation must be"#);
    asked().fails("HTTP/1.1 503 Busy\r\n\r\n", ServerRefused, "503 Busy");
}

/// A WebSocket that has been agreed to, by the node's own words.
fn socket() -> Talk<ws::WebSocket> {
    agreed(&plan("ws://h/ws"))
}

fn agreed(plan: &Plan) -> Talk<ws::WebSocket> {
    let mut talk = Talk::<ws::WebSocket>::with(plan);
    let node = protocols::serve::Service::new("node", Box::new(String::new));
    let mut out = Out::default();
    protocols::Machine::on(&node, &mut Default::default(), Cue::Bytes(&talk.said), &mut out).unwrap();
    assert_eq!(talk.hears(&out.bytes), Ok(vec![Upgraded, Ready]));
    talk.said.clear();
    talk
}

/// The payloads of the masked frames that the client has said, with their opcodes.
fn unmask(mut said: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut out = Vec::new();
    while let [first, second, m0, m1, m2, m3, rest @ ..] = said {
        assert_eq!(second & 0x80, 0x80, "clients mask");
        let (payload, after) = rest.split_at(usize::from(second & 0x7f));
        let mask = [m0, m1, m2, m3];
        out.push((first & 0xf, payload.iter().enumerate().map(|(i, b)| b ^ mask[i % 4]).collect()));
        said = after;
    }
    assert!(said.is_empty());
    out
}

#[test]
fn a_pong_answers_every_ping_up_to_its_own() {
    let mut talk = socket();
    talk.ask(4);
    let pings = unmask(&talk.said);
    let pong = |n: usize| [&[0x8a, 16], pings[n].1.as_slice()].concat();
    assert_eq!(talk.hears(b"\x8a\x00\x8a\x05hello"), Ok(vec![]), "unsolicited");
    assert_eq!(talk.hears(pong(0)), Ok(vec![Answered]));
    assert_eq!(talk.hears(pong(0)), Ok(vec![]), "again");
    assert_eq!(talk.hears(pong(2)), Ok(vec![Answered, Answered]));
    let mut ahead = pong(3);
    ahead[17] = b'4';
    assert_eq!(talk.hears(ahead), Ok(vec![]), "never asked");
    assert_eq!(talk.hears(pong(3)), Ok(vec![Answered]));
}

#[test]
fn messages_are_heard_and_not_kept() {
    let mut talk = socket();
    assert_eq!(talk.hears(b"\x81\x02hi\x82\x00"), Ok(vec![Heard, Heard]));
    assert_eq!(
        talk.hears(b"\x01\x01a\x89\x02yo\x00\x01b\x80\x00"),
        Ok(vec![Heard]),
        "fragments around a ping"
    );
    assert_eq!(unmask(&talk.said), [(0xa, b"yo".to_vec())]);
    let mut large = b"\x82\x7f\0\0\0\0\x00\xa0\x00\x00".to_vec();
    large.resize(10 << 10, 0);
    for _ in 0..1023 {
        assert_eq!(talk.hears(&large), Ok(vec![]));
        assert!(talk.pending.is_empty(), "10 MiB are not kept");
        large.fill(0);
    }
    assert_eq!(talk.hears(vec![0; 10 << 10]), Ok(vec![]), "the head of the frame came besides");
    assert_eq!(talk.hears([0; 10]), Ok(vec![Heard]));
}

#[test]
fn a_websocket_line_is_known_when_it_comes_back() {
    let mut talk = agreed(&operating("ws://h/ws", None));
    talk.operate(2);
    talk.ask(1);
    let frames = unmask(&talk.said);
    assert_eq!(frames.iter().map(|(opcode, _)| *opcode).collect::<Vec<_>>(), [1, 1, 9]);
    let echo = |n: usize| [&[0x81, 32], frames[n].1.as_slice()].concat();
    let whole = echo(0);
    let (first, rest) = whole.split_at(9);
    assert_eq!(talk.hears(b"\x81\x05hello\x81\x00"), Ok(vec![Heard, Heard]), "other messages are no answers");
    assert_eq!(talk.hears(first), Ok(vec![]));
    assert!(talk.pending.is_empty(), "half a message is not kept");
    assert_eq!(talk.hears([rest, b"\x8a\x10", &frames[2].1].concat()), Ok(vec![Operated, Answered]));
    assert_eq!(talk.hears(echo(0)), Ok(vec![Heard]), "again");
    let line = &frames[1].1;
    assert_eq!(talk.hears([&b"\x81\x21"[..], line, b"!"].concat()), Ok(vec![Heard]), "a line and more");
    assert_eq!(talk.hears([&b"\x81\x1f"[..], &line[..31]].concat()), Ok(vec![Heard]), "less than a line");
    let fragments = [&b"\x01\x1f"[..], &line[..31], b"\x89\x00\x80\x01\n"].concat();
    assert_eq!(talk.hears(fragments), Ok(vec![Operated]), "around a ping");
    assert_eq!(talk.hears(echo(1)), Ok(vec![Heard]), "nothing is due");
}

#[test]
fn a_websocket_text_is_answered_by_any_message() {
    let mut talk = agreed(&operating("ws://h/ws", Some("hé?")));
    assert_eq!(talk.hears(b"\x81\x02hi"), Ok(vec![Heard]), "before it was asked");
    talk.operate(2);
    assert_eq!(unmask(&talk.said), [(1, "hé?".into()), (1, "hé?".into())]);
    assert_eq!(talk.hears(b"\x82\x02ok\x01\x01a\x80\x00\x81\x02hi"), Ok(vec![Operated, Operated, Heard]));
    let mut talk = socket();
    assert_eq!(talk.hears(b"\x82\x02ok"), Ok(vec![Heard]), "without an operation nothing is compared");
}

#[test]
fn a_close_is_echoed_and_told() {
    let mut talk = socket();
    talk.fails(b"\x88\x07\x03\xf5later", ServerRefused, r#"with code 1013: "later""#);
    assert_eq!(unmask(&talk.said), [(8, vec![3, 0xf5])]);
    socket().fails(b"\x88\x02\x03\xf0", ServerRefused, "1008");
    socket().fails(b"\x88\x00", Closed, "code 1005");
    socket().fails(b"\x88\x02\x03\xe9", Closed, "code 1001");
    let mut talk = socket();
    talk.cue(Cue::Finish).unwrap();
    assert_eq!(unmask(&talk.said), [(8, vec![3, 0xe8])]);
    assert_eq!(talk.facts, [Done]);
    assert_eq!(talk.hears(b"\x88\x02\x03\xe8rubbish"), Ok(vec![]), "after our good-bye nothing matters");
    assert!(talk.pending.is_empty());
}

#[test]
fn frames_that_break_the_rules() {
    for (bytes, rule) in [
        (&b"\x81\x81\0\0\0\0a"[..], "a masked frame"),
        (b"\xc1\x01a", "reserved bits"),
        (b"\x89\x7e\x00\x7e", "more than 125"),
        (b"\x09\x00", "fragmented control"),
        (b"\x82\x7f\xff\0\0\0\0\0\0\0", "highest bit"),
        (b"\x80\x00", "continuation of no message"),
        (b"\x01\x00\x01\x00", "before the last one had ended"),
        (b"\x83\x00", "unknown kind"),
        (b"\x88\x01\x03", "half a code"),
        (b"\x88\x02\x03\xed", "must not be sent"),
    ] {
        socket().fails(bytes, Protocol, rule);
    }
}

#[test]
fn an_upgrade_is_checked() {
    let answer = |lines: &str| format!("HTTP/1.1 101 Switching Protocols\r\n{lines}\r\n");
    let fails =
        |wire: String, kind, words: &str| Talk::<ws::WebSocket>::to("ws://h").fails(wire, kind, words);
    fails(answer(""), Protocol, "no Upgrade: websocket");
    fails(answer("Upgrade: WebSocket\r\n"), Protocol, "no Connection: Upgrade");
    fails(
        answer(
            "Upgrade: websocket\r\nConnection: x, upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
        ),
        Protocol,
        "does not belong",
    );
    fails("HTTP/1.1 503 Full\r\n\r\nqueue is full".into(), ServerRefused, "queue is full");
    fails("HTTP/1.1 403 Forbidden\r\n\r\n".into(), Protocol, "403 Forbidden");
    let mut talk = Talk::<ws::WebSocket>::to("ws://h");
    assert!(talk.facts.is_empty());
    assert_eq!(talk.hears("HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 1"), Ok(vec![]));
}

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n";

fn stream(lines: &str) -> Talk<sse::EventStream> {
    let mut talk = Talk::<sse::EventStream>::to("sse://h");
    assert!(String::from_utf8(talk.said.clone()).unwrap().contains("Accept: text/event-stream\r\n"));
    assert_eq!(talk.hears(format!("{STREAM}{lines}\r\n")), Ok(vec![Upgraded, Ready]));
    talk.said.clear();
    talk
}

#[test]
fn events_and_comments_are_heard() {
    // How many each stream is heard as, by the rules of WHATWG HTML, 9.2.6.
    for (text, heard) in [
        ("data: a\n\n", 1),
        ("data: a\r\ndata: b\r\n\r\ndata\r\r", 2),
        ("event: x\nid: 1\n\n", 0),
        ("event: x\nid: 1\ndata:\nretry: 5\n\n", 1),
        (":\n: beat\n\n:no end", 2),
        ("\u{feff}data: a\n\n", 1),
        ("\u{feff}\u{feff}data: a\n\n", 0),
        ("\u{feff}\n\n: a\n", 1),
        ("dat: a\n\ndatab: a\n\n data: a\n\nDATA: a\n\n", 0),
        ("data: a\n", 0),
        ("\n\n\r\r\n\n", 0),
        ("data: a\n\n\ndata: b\n\n", 2),
    ] {
        for split in 0..=text.len() {
            let mut talk = stream("");
            let (a, b) = text.as_bytes().split_at(split);
            let mut facts = Vec::new();
            for part in [a, b] {
                if !part.is_empty() {
                    facts.extend(talk.hears(part).unwrap());
                }
                assert!(talk.pending.is_empty(), "events are not kept");
            }
            assert_eq!(facts, vec![Heard; heard], "{text:?} at {split}");
        }
    }
}

#[test]
fn only_the_node_can_be_asked() {
    let mut talk = stream("");
    talk.facts.clear();
    talk.ask(1);
    assert_eq!((talk.facts.as_slice(), talk.said.len()), (&[CannotAsk][..], 0));
    assert_eq!(talk.hears(": nudge 00000000\n\n"), Ok(vec![Heard]), "a comment like any other");
}

#[test]
fn nudges_are_matched_in_order() {
    let mut talk = stream("plimsoll-nudge: 1\r\n");
    talk.ask(3);
    assert_eq!(
        talk.said,
        b"plimsoll-nudge 00000000\r\nplimsoll-nudge 00000001\r\nplimsoll-nudge 00000002\r\n"
    );
    assert_eq!(talk.hears(": nudge 00000000\n\n: beat\n\n: nudge 000"), Ok(vec![Answered, Heard]));
    assert_eq!(talk.hears("00001\n\n: nudg\n"), Ok(vec![Answered, Heard]));
    talk.fails(": nudge 00000003\n", Protocol, "another nudge");
    let mut talk = stream("plimsoll-nudge: 1\r\n");
    talk.fails(": nudge 00000000\n", Protocol, "another nudge");
}

#[test]
fn streams_in_chunks_and_their_ends() {
    let mut talk = stream("Transfer-Encoding: chunked\r\n");
    assert_eq!(talk.hears("7\r\ndata: a\r\n2\r\n\n\n\r\n1\r\n:\r\n"), Ok(vec![Heard]));
    talk.fails("1\r\n\n\r\n0\r\n\r\n", Closed, "ended the event stream");
    assert_eq!(talk.facts, [Heard]);
    stream("Transfer-Encoding: chunked\r\n").fails("data: a\r\n", Protocol, "no valid size");
}

#[test]
fn what_is_no_stream_says_so() {
    let fails =
        |wire: &str, kind, words: &str| Talk::<sse::EventStream>::to("sse://h").fails(wire, kind, words);
    fails(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n",
        Protocol,
        "\"text/html\" and not text/event-stream",
    );
    fails("HTTP/1.1 200 OK\r\n\r\n", Protocol, "not text/event-stream");
    fails("HTTP/1.1 204 No Content\r\n\r\n", Protocol, "204 No Content");
    fails("HTTP/1.1 429 Slow down\r\n\r\nlater", ServerRefused, "later");
}

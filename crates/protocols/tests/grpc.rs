//! gRPC, both ends, answered by hand: literal bytes of RFC 9113, what each refusal means, and what floods cost.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod talk;

use model::{Call, CallKind, FailureKind, Metadata, Operation};
use protocols::grpc::Grpc;
use protocols::grpc::inquiry::Inquiry;
use protocols::grpc::reflection::{self, METHODS, Told};
use protocols::serve::{Service, Slot};
use protocols::{Cue, Driver, Fact, Machine, Out, Plan};
use talk::{Talk, plan};

const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x0c\x04\0\0\0\0\0\0\x01\0\0\0\0\0\x02\0\0\0\0";
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
const SETTINGS_ACK: &[u8] = b"\0\0\0\x04\x01\0\0\0\0";
/// `:status: 200`, `content-type: application/grpc`, no end.
const HEAD: &[u8] = b"\0\0\x14\x01\x04\0\0\0\x01\x88\x0f\x10\x10application/grpc";
/// `grpc-status: 0`, and the stream ends.
const OK: &[u8] = b"\0\0\x0f\x01\x05\0\0\0\x01\0\x0bgrpc-status\x010";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// DATA with messages.
fn data(stream: u32, messages: &[&[u8]]) -> Vec<u8> {
    let framed = |m: &&[u8]| [&[0][..], &(m.len() as u32).to_be_bytes(), m].concat();
    frame(0, 0, stream, &messages.iter().flat_map(framed).collect::<Vec<_>>())
}

/// Trailers, or an answer that is nothing else.
fn status(head: bool, code: &str, words: &str) -> Vec<u8> {
    let mut block = if head { b"\x88\x0f\x10\x10application/grpc".to_vec() } else { Vec::new() };
    for (name, value) in [("grpc-status", code), ("grpc-message", words)] {
        block.extend([0, name.len() as u8]);
        block.extend(name.bytes());
        block.push(value.len() as u8);
        block.extend(value.bytes());
    }
    frame(1, 5, 1, &block)
}

fn away(code: u8, words: &[u8]) -> Vec<u8> {
    frame(7, 0, 0, &[&[0, 0, 0, 0, 0, 0, 0, code], words].concat())
}

fn call(kind: CallKind, streams: u32) -> Call {
    Call { path: "/a.B/C".to_owned(), request: b"hi".to_vec(), kind, metadata: Vec::new(), streams }
}

/// A connection that is ready, with its greeting forgotten.
fn ready(call: Option<Call>) -> Talk<Grpc> {
    let operation = call.map(|call| Operation { call: Some(call), ..Operation::default() });
    let mut talk = Talk::<Grpc>::with(&Plan { operation, ..plan("grpc://h") });
    assert_eq!(talk.said, GREETING);
    assert_eq!(talk.hears(SETTINGS).unwrap(), [Fact::Upgraded, Fact::Ready]);
    assert!(talk.said[GREETING.len()..].starts_with(SETTINGS_ACK));
    talk.said.clear();
    talk
}

#[test]
fn a_connection_is_ready_with_settings_and_beats_with_pings() {
    let mut talk = ready(None);
    talk.ask(2);
    assert_eq!(talk.said, b"\0\0\x08\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x08\x06\0\0\0\0\0\0\0\0\0\0\0\0\x01");
    assert_eq!(talk.hears(frame(6, 1, 0, &[0; 8])).unwrap(), [Fact::Answered]);
    assert_eq!(talk.hears(frame(6, 1, 0, &[0; 8])).unwrap(), [], "it was answered");
    assert_eq!(talk.hears(frame(6, 1, 0, b"\0\0\0\0\0\0\0\x01")).unwrap(), [Fact::Answered]);
    talk.said.clear();
    assert_eq!(talk.hears(frame(6, 0, 0, b"are you?")).unwrap(), []);
    assert_eq!(talk.said, frame(6, 1, 0, b"are you?"));
    talk.said.clear();
    talk.cue(Cue::Finish).unwrap();
    assert_eq!(talk.said, away(0, b""));
}

#[test]
fn a_unary_call_is_a_stream_of_its_own() {
    let mut talk = ready(Some(call(CallKind::Unary, 1)));
    talk.cue(Cue::Operate).unwrap();
    let agent = concat!("plimsoll/", env!("CARGO_PKG_VERSION"));
    let block = [
        &b"\x20\x83\x86\x04\x06/a.B/C\x01\x07h:50051\0\x02te\x08trailers\x0f\x10\x10application/grpc\x0f\x2b"
            [..],
        &[agent.len() as u8],
        agent.as_bytes(),
    ];
    let message = b"\0\0\x07\0\x01\0\0\0\x01\0\0\0\0\x02hi".to_vec();
    assert_eq!(talk.said, [frame(1, 4, 1, &block.concat()), message].concat());
    assert_eq!(talk.hears(HEAD).unwrap(), []);
    assert_eq!(talk.hears(data(1, &[b"back"])).unwrap(), []);
    assert_eq!(talk.hears(OK).unwrap(), [Fact::Operated]);
    // the next has the next number, and needs no message of the first
    talk.said.clear();
    talk.cue(Cue::Operate).unwrap();
    assert_eq!(talk.said[5..9], [0, 0, 0, 3]);
}

#[test]
fn calls_wait_until_the_server_allows_one_more() {
    let mut talk = ready(Some(call(CallKind::ServerStreaming, 1)));
    talk.hears(frame(4, 0, 0, b"\0\x03\0\0\0\x01")).unwrap();
    talk.said.clear();
    talk.cue(Cue::Operate).unwrap();
    let first = talk.said.len();
    talk.cue(Cue::Operate).unwrap();
    assert_eq!(talk.said.len(), first, "the second waits");
    talk.hears(HEAD).unwrap();
    talk.hears(data(1, &[b"1", b"2", b"3"])).unwrap();
    assert_eq!(talk.hears(OK).unwrap(), [Fact::Operated]);
    assert_eq!(talk.said.len(), 2 * first);
}

#[test]
fn messages_take_turns_on_streams_that_are_kept() {
    let mut talk = ready(Some(call(CallKind::Bidirectional, 2)));
    for _ in 0..3 {
        talk.cue(Cue::Operate).unwrap();
    }
    let message = data(1, &[b"hi"]);
    assert_eq!(talk.said, [message.clone(), data(3, &[b"hi"]), message].concat());
    talk.hears(HEAD).unwrap();
    assert_eq!(
        talk.hears(data(1, &[b"a", b"b", b"c"])).unwrap(),
        [Fact::Operated, Fact::Operated, Fact::Heard]
    );
    let failure = talk.hears(OK).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Closed);
}

#[test]
fn a_request_waits_for_room_and_owns_nothing_meanwhile() {
    let mut talk = ready(Some(Call { request: vec![7; 30], ..call(CallKind::Bidirectional, 1) }));
    // streams have 10 bytes each from now on: what was open has less by what it had more
    talk.hears(frame(4, 0, 0, b"\0\x04\0\0\0\x0a")).unwrap();
    talk.said.clear();
    talk.cue(Cue::Operate).unwrap();
    talk.cue(Cue::Operate).unwrap();
    assert_eq!(talk.said, frame(0, 0, 1, &[&b"\0\0\0\0\x1e"[..], &[7; 5]].concat()));
    talk.said.clear();
    talk.hears(frame(8, 0, 1, b"\0\0\0\x1b")).unwrap();
    let parts = [frame(0, 0, 1, &[7; 25]), frame(0, 0, 1, b"\0\0")];
    assert_eq!(talk.said, parts.concat(), "the rest of the first, and the start of the second");
}

#[test]
fn each_refusal_is_told_as_what_it_is() {
    use FailureKind::{Closed, LoginRefused, Protocol, ServerRefused};
    let refused = |answer: Vec<u8>, kind, words: &str| {
        let mut talk = ready(Some(call(CallKind::Unary, 1)));
        talk.cue(Cue::Operate).unwrap();
        talk.fails(answer, kind, words);
    };
    refused(
        status(true, "8", "50%25 of it"),
        ServerRefused,
        r#"/a.B/C with RESOURCE_EXHAUSTED: "50% of it""#,
    );
    refused(status(true, "14", ""), ServerRefused, "UNAVAILABLE");
    refused(status(true, "16", "no token"), LoginRefused, "--metadata");
    refused(status(true, "12", "unknown service a.B"), Protocol, "does not have this method");
    refused([HEAD, &status(false, "3", "no")].concat(), Protocol, "INVALID_ARGUMENT: \"no\"");
    refused([HEAD, OK].concat(), Protocol, "with 0 messages");
    refused([HEAD, &frame(0, 1, 1, b"")].concat(), Protocol, "without a status");
    refused([HEAD, &frame(0, 0, 1, b"\x01\0\0\0\0")].concat(), Protocol, "compressed");
    refused(frame(1, 4, 1, b"\x8d"), Protocol, r#"HTTP status "404""#);
    refused(frame(1, 4, 1, b"\x88\x0f\x10\x09text/html"), Protocol, "text/html");
    refused(frame(3, 0, 1, b"\0\0\0\x07"), ServerRefused, "REFUSED_STREAM");
    refused(away(11, b"too_many_pings"), Protocol, "--heartbeat off, or lower MinTime");
    refused(away(11, b"calm"), ServerRefused, "ENHANCE_YOUR_CALM: \"calm\"");
    refused(away(0, b"max_age"), Closed, "GOAWAY NO_ERROR: \"max_age\"");
    refused(away(1, b"bad"), Protocol, "PROTOCOL_ERROR: \"bad\"");
}

#[test]
fn what_http_2_forbids_ends_the_connection_with_words() {
    for (bytes, words) in [
        (&b"\0\x40\x01\x06\0\0\0\0\0"[..], "more than 16384"),
        (&frame(6, 0, 0, b"seven by"), ""),
        (&frame(6, 0, 0, b"7"), "8 bytes"),
        (&frame(6, 0, 1, b"01234567"), "PING on a stream"),
        (&frame(0, 0, 1, b""), "never opened"),
        (&frame(1, 4, 2, b"\x88"), "never opened"),
        (&frame(4, 0, 0, b"\0\x05\0\0\0\x01"), "MAX_FRAME_SIZE"),
        (&frame(4, 0, 0, b"\0\x04\xff\xff\xff\xff"), "2^31-1"),
        (&frame(4, 0, 0, b"\0"), "cut off"),
        (&frame(5, 4, 1, b"\0\0\0\x02\x88"), "promise"),
        (&frame(8, 0, 0, b"\0\0\0\0"), "by nothing"),
        (&frame(8, 0, 0, b"\x7f\xff\xff\xff"), "2^31-1"),
        (&frame(9, 4, 1, b"\x88"), "no header block"),
        (&[frame(1, 0, 1, b"\x88"), frame(0, 0, 1, b"")].concat(), "within a header block"),
    ] {
        let mut talk = ready(None);
        match words {
            "" => assert!(talk.hears(bytes).is_ok()),
            words => {
                talk.fails(bytes, FailureKind::Protocol, words);
                assert_eq!(talk.said[talk.said.len() - 17 + 3], 7, "the server is told");
            }
        }
    }
    Talk::<Grpc>::to("grpc://h").fails(
        b"HTTP/1.1 400 Bad Request\r\n",
        FailureKind::Protocol,
        "settings first",
    );
}

#[test]
fn more_streams_than_the_server_allows_are_refused_by_name() {
    let operation = Operation { call: Some(call(CallKind::Bidirectional, 3)), ..Operation::default() };
    let mut talk = Talk::<Grpc>::with(&Plan { operation: Some(operation), ..plan("grpc://h") });
    talk.fails(frame(4, 0, 0, b"\0\x03\0\0\0\x02"), FailureKind::ServerRefused, "--streams");
}

#[test]
fn what_cannot_be_sent_is_refused_before() {
    let check = |call: Call| Grpc::check(&Operation { call: Some(call), ..Operation::default() });
    let with = |name: &str, value: &str| Call {
        metadata: vec![Metadata { name: name.to_owned(), value: value.to_owned().into() }],
        ..call(CallKind::Unary, 1)
    };
    assert_eq!(check(with("authorization", "Bearer x")), Ok(()));
    assert!(check(with("Authorization", "x")).unwrap_err().contains("a-z"));
    assert!(check(with("grpc-timeout", "1S")).unwrap_err().contains("set by gRPC"));
    assert!(check(with("name", "läuft")).unwrap_err().contains("-bin"));
    assert!(check(call(CallKind::Bidirectional, 0)).unwrap_err().contains("1 to 10000"));
    let both = Operation {
        text: Some("x".to_owned()),
        call: Some(call(CallKind::Unary, 1)),
        ..Operation::default()
    };
    assert!(Grpc::check(&both).unwrap_err().contains("--data"));
}

/// A client of the node, by hand: what the node says to bytes.
struct Node {
    service: Service,
    slot: Slot,
    done: bool,
}

impl Node {
    fn greeted() -> Self {
        let service = Service::new("node", Box::new(String::new));
        let mut node = Self { service, slot: Slot::grpc(), done: false };
        let settings = b"\0\0\x0c\x04\0\0\0\0\0\0\x01\0\0\0\0\0\x03\0\0\x03\xe8";
        assert_eq!(node.hears(GREETING), [&settings[..], SETTINGS_ACK].concat());
        node
    }

    fn hears(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Out::default();
        let used = self.service.on(&mut self.slot, Cue::Bytes(bytes), &mut out).unwrap();
        assert_eq!(used, bytes.len());
        self.done |= out.facts.contains(&Fact::Done);
        out.bytes
    }
}

/// HEADERS that begin a call.
fn request(stream: u32, path: &str, end: u8) -> Vec<u8> {
    let block = [&b"\x83\x86\x04"[..], &[path.len() as u8], path.as_bytes(), b"\x5f\x10application/grpc"];
    frame(1, 4 | end, stream, &block.concat())
}

#[test]
fn the_node_echoes_and_ends_as_it_should() {
    let mut node = Node::greeted();
    assert_eq!(
        node.hears(&request(1, "/plimsoll.v1.Messaging/Talk", 0))[..9],
        *b"\0\0\x15\x01\x04\0\0\0\x01"
    );
    assert_eq!(node.hears(&data(1, &[b"a", b"bc"])), data(1, &[b"a", b"bc"]));
    let over = node.hears(&frame(0, 1, 1, b""));
    assert_eq!(over, b"\0\0\x10\x01\x05\0\0\0\x01\x20\0\x0bgrpc-status\x010");
    // What follows on a stream that is over is passed by, and does not use up the window.
    for _ in 0..20 {
        assert!(!node.done);
        node.hears(&frame(0, 0, 1, &[0; 16_000]));
    }
    let says = |node: &mut Node, bytes: &[u8]| String::from_utf8_lossy(&node.hears(bytes)).into_owned();
    let two = [request(3, "/plimsoll.v1.Messaging/Echo", 0), data(3, &[b"a", b"b"])].concat();
    assert!(says(&mut node, &two).contains("\u{2}13"), "INTERNAL");
    assert!(says(&mut node, &request(5, "/plimsoll.v1.Messaging/Shout", 1)).contains("unknown method"));
    let half = [request(7, "/grpc.health.v1.Health/Check", 0), frame(0, 1, 7, b"\0\0\0")].concat();
    assert!(says(&mut node, &half).contains("midst of a message"));
    let large = [request(9, "/grpc.health.v1.Health/Check", 0), frame(0, 0, 9, b"\0\x7f\0\0\0")].concat();
    assert!(says(&mut node, &large).contains("8 KiB"));
    assert!(!node.done);
    assert!(says(&mut node, &frame(1, 5, 12, b"\x83")).contains("even number"));
    assert!(node.done);
}

#[test]
fn the_node_describes_itself() {
    let target = model::Target::parse("grpc://h").unwrap();
    for path in METHODS {
        let mut out = Vec::new();
        let mut inquiry = Inquiry::new(&target, path, &[], &mut out);
        let service = Service::new("node", Box::new(String::new));
        let mut slot = Slot::grpc();
        let mut ask = |question: Vec<u8>| {
            inquiry.say(&question, &mut out);
            for _ in 0..3 {
                let mut answer = Out::default();
                service.on(&mut slot, Cue::Bytes(&out), &mut answer).unwrap();
                out.clear();
                assert_eq!(inquiry.hear(&answer.bytes, &mut out), Ok(answer.bytes.len()));
                if let Some(answer) = inquiry.answer() {
                    return Told::read(&answer).unwrap();
                }
            }
            panic!("no answer");
        };
        let Told::Services(services) = ask(reflection::list_services()) else { panic!("no services") };
        assert_eq!(services.len(), 4);
        let file = ask(reflection::file_of_symbol("plimsoll.v1.Messaging.Talk"));
        assert_eq!(file, ask(reflection::file_by_name("plimsoll/v1/messaging.proto")));
        assert!(matches!(file, Told::Files(files) if files.len() == 1));
        assert_eq!(
            ask(reflection::file_of_symbol("a.B")),
            Told::Refused("there is no such symbol".to_owned())
        );
    }
}

#[test]
fn floods_do_not_grow_the_node() {
    let mut node = Node::greeted();
    let ping = frame(6, 0, 0, b"01234567");
    for _ in 0..1000 {
        assert_eq!(node.hears(&ping).len(), ping.len());
        assert_eq!(node.hears(SETTINGS), SETTINGS_ACK);
    }
    // CVE-2023-44487: each stream is given up at once, and leaves nothing.
    for stream in (1..4001).step_by(2) {
        node.hears(&request(stream, "/plimsoll.v1.Messaging/Talk", 0));
        assert_eq!(node.hears(&frame(3, 0, stream, b"\0\0\0\x08")), b"");
    }
    // As many as are allowed are kept, and no more.
    let talk = |stream| request(stream, "/plimsoll.v1.Messaging/Talk", 0);
    for stream in (4001..6001).step_by(2) {
        node.hears(&talk(stream));
    }
    assert_eq!(node.hears(&talk(6001)), frame(3, 0, 6001, b"\0\0\0\x07"));
    assert!(!node.done);
    // CVE-2024-27316: a header block that never ends.
    let mut block = frame(1, 0, 6003, b"\x83");
    block.extend(frame(9, 0, 6003, b"").repeat(4000));
    let words = String::from_utf8_lossy(&node.hears(&block)).into_owned();
    assert!(words.contains("32 KiB") && node.done, "{words}");
}

#[test]
fn a_client_that_does_not_read_holds_back_one_window() {
    let mut node = Node::greeted();
    // No window for any stream.
    node.hears(&frame(4, 0, 0, b"\0\x04\0\0\0\0"));
    node.hears(&request(1, "/plimsoll.v1.Messaging/Talk", 0));
    for _ in 0..4 {
        assert_eq!(node.hears(&frame(0, 0, 1, &[0; 16_000])), b"", "nothing can be sent");
    }
    let words = String::from_utf8_lossy(&node.hears(&frame(0, 0, 1, &[0; 16_000]))).into_owned();
    assert!(words.contains("than its window") && node.done, "{words}");
}

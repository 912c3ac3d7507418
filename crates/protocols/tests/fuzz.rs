//! The fuzz entries, run for a bounded time with seeded noise and mutations of real transcripts.
//!
//! `PLIMSOLL_FUZZ_ROUNDS=1000000 cargo test --release -p plimsoll-protocols --test fuzz` looks longer.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

use model::{Operation, Target};
use protocols::fuzz::{self, Step};
use protocols::serve::{Service, Slot};
use protocols::{Cue, Driver, Machine, Out, Plan, grpc, http, sse, tcp, ws};

/// A few seconds for all machines together, without optimization.
const ROUNDS: usize = 6_000;

/// Xorshift: the same inputs on every run and machine.
struct Noise(u64);

impl Noise {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }

    fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.below(256) as u8).collect()
    }

    /// One to four small edits: a bit, a byte, a cut, a repeat, an insertion, bytes of another seed.
    fn mutate(&mut self, seed: &[u8], other: &[u8]) -> Vec<u8> {
        let mut out = seed.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(out.len() + 1);
            let end = (at + self.below(24)).min(out.len());
            match self.below(7) {
                0 if at < out.len() => out[at] ^= 1 << self.below(8),
                1 if at < out.len() => out[at] = b"\0\x01\x7e\x7f\x80\xff\r\n:0"[self.below(10)],
                2 => drop(out.drain(at..end)),
                3 => {
                    let copy = out[at..end].to_vec();
                    out.splice(at..at, copy);
                }
                4 => drop(out.splice(at..at, self.bytes(12)).count()),
                5 => out.truncate(at.max(1)),
                _ => {
                    let from = self.below(other.len());
                    let to = (from + self.below(64)).min(other.len());
                    out.splice(at..at, other[from..to].iter().copied());
                }
            }
        }
        out
    }
}

fn run(entry: fn(&[u8]), seeds: &[Vec<u8>]) {
    let mut noise = Noise(0x9e37_79b9_7f4a_7c15);
    for seed in seeds {
        for setup in 0..32 {
            let mut input = seed.clone();
            input[0] = setup;
            entry(&input);
        }
    }
    let rounds = std::env::var("PLIMSOLL_FUZZ_ROUNDS").map_or(ROUNDS, |n| n.parse().unwrap());
    for round in 0..rounds {
        let input = if round % 8 == 0 {
            noise.bytes(200)
        } else {
            let (seed, other) = (noise.below(seeds.len()), noise.below(seeds.len()));
            noise.mutate(&seeds[seed], &seeds[other])
        };
        entry(&input);
    }
}

/// A setup byte and a script.
fn script(setup: u8, steps: &[Step<'_>]) -> Vec<u8> {
    let mut out = vec![setup];
    for &step in steps {
        fuzz::write(step, &mut out);
    }
    out
}

fn plan(url: &str) -> Plan {
    Plan::to(Target::parse(url).unwrap())
}

/// What the node answers to a driver's first words, then to so many asks.
fn transcript<D: Driver>(url: &str, asks: usize) -> (Vec<u8>, Vec<u8>) {
    let driver = D::new(&plan(url));
    let node = Service::new("node", Box::new(|| "# EOF\n".to_owned()));
    let (mut client, mut server) =
        (D::Slot::default(), if url.starts_with("tcp") { Slot::echo() } else { Slot::http() });
    let (mut said, mut answered) = (Vec::new(), Vec::new());
    let mut cue = Cue::Connected;
    for _ in 0..=asks {
        let (mut ours, mut theirs) = (Out::default(), Out::default());
        driver.on(&mut client, cue, &mut ours).unwrap();
        if !ours.bytes.is_empty() {
            node.on(&mut server, Cue::Bytes(&ours.bytes), &mut theirs).unwrap();
            driver.on(&mut client, Cue::Bytes(&theirs.bytes), &mut Out::default()).unwrap();
        }
        said.append(&mut ours.bytes);
        answered.append(&mut theirs.bytes);
        cue = Cue::Ask;
    }
    (said, answered)
}

#[test]
fn tcp_driver() {
    let (_, answers) = transcript::<tcp::Echo>("tcp://h:1", 3);
    use Step::{Ask, Bytes, Finish, Operate};
    run(
        fuzz::tcp,
        &[
            script(5, &[Ask, Ask, Ask, Bytes(&answers), Finish]),
            script(0, &[Bytes(b"220 hello\r\n"), Ask, Ask, Bytes(b"+PONG\r\n+PONG\r\n"), Ask]),
            script(3, &[Ask, Ask, Bytes(b"pongpong!"), Ask, Bytes(b"pong"), Finish]),
            script(21, &[Ask, Operate, Ask, Bytes(&answers[..32]), Bytes(b"hello"), Bytes(&answers[64..])]),
        ],
    );
}

#[test]
fn http_driver() {
    let (_, answers) = transcript::<http::KeepAlive>("http://h/", 2);
    let chunked = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nA: b\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    use Step::{Ask, Bytes, Finish, Operate};
    run(
        fuzz::http,
        &[
            script(0, &[Ask, Ask, Bytes(&answers), Finish]),
            script(0, &[Ask, Ask, Ask, Bytes(chunked), Ask]),
            script(16, &[Operate, Ask, Operate, Bytes(chunked), Bytes(&answers), Finish]),
            script(
                17,
                &[Operate, Ask, Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"), Bytes(&answers)],
            ),
            script(0, &[Bytes(b"HTTP/1.1 408 Timeout\r\nContent-Length: 3\r\n\r\nbye")]),
        ],
    );
}

#[test]
fn ws_driver() {
    let (_, answers) = transcript::<ws::WebSocket>("ws://h/ws", 3);
    let head = answers.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    // the first connection's number is 0, and so is that of its first line
    let line = [&b"\x81\x20"[..], b"plimsoll 00000000 00000000 ....\n"].concat();
    let frames = b"\x81\x05hello\x01\x03hel\x89\x00\x80\x02lo\x82\x7e\x00\x80";
    use Step::{Ask, Bytes, Finish, Operate};
    run(
        fuzz::ws,
        &[
            script(0, &[Bytes(&answers[..head]), Ask, Ask, Ask, Bytes(&answers[head..]), Finish]),
            script(1, &[Ask, Ask, Ask, Bytes(&answers[head..])]),
            script(1, &[Bytes(frames), Bytes(&[7; 128]), Bytes(b"\x88\x07\x03\xf5later")]),
            script(9, &[Operate, Ask, Operate, Bytes(&line), Bytes(frames), Bytes(&answers[head..])]),
            script(17, &[Operate, Operate, Ask, Bytes(frames), Bytes(&[7; 128]), Finish]),
        ],
    );
}

#[test]
fn sse_driver() {
    let (_, answers) = transcript::<sse::EventStream>("sse://h/events", 3);
    let head = answers.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let chunked = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n\xef\xbb\xbfdata: 1\r\r\nda\r\n5\r\nta\n\n:\r\n0\r\n\r\n";
    use Step::{Ask, Bytes, Finish};
    run(
        fuzz::sse,
        &[
            script(0, &[Bytes(&answers[..head]), Ask, Ask, Ask, Bytes(&answers[head..]), Finish]),
            script(1, &[Ask, Ask, Bytes(&answers[head..]), Bytes(b": beat\n\nevent: x\r\ndata\r\n\r\n")]),
            script(0, &[Bytes(chunked)]),
        ],
    );
}

#[test]
fn postgres_driver() {
    let open = b"R\0\0\0\x08\0\0\0\0S\0\0\0\x09a\0bcd\0K\0\0\0\x0c\0\0\0\0\0\0\0\0Z\0\0\0\x05I";
    let empty = b"I\0\0\0\x04Z\0\0\0\x05I";
    let rows = b"T\0\0\0\x06\0\0D\0\0\0\x06\0\0C\0\0\0\x05\0C\0\0\0\x05\0Z\0\0\0\x05I";
    let refusal = b"E\0\0\0\x1cSFATAL\0C53300\0Msorry\0\0\0\0";
    let md5 = b"R\0\0\0\x0c\0\0\0\x05salt";
    let sasl = b"R\0\0\0\x17\0\0\0\x0aSCRAM-SHA-256\0\0";
    let first = b"R\0\0\0\x3a\0\0\0\x0br=aa7855e13839dd767cd5da7c1ff50365+,s=c2FsdA==,i=2";
    use Step::{Ask, Bytes, Finish, Operate};
    run(
        fuzz::postgres,
        &[
            script(1, &[Bytes(open), Ask, Ask, Bytes(empty), Bytes(empty), Finish]),
            script(2, &[Bytes(md5), Bytes(open), Ask, Bytes(empty), Bytes(refusal)]),
            script(2, &[Bytes(sasl), Bytes(first), Bytes(open)]),
            script(2, &[Bytes(b"Ecould not fork\n\0"), Bytes(refusal)]),
            script(0, &[Bytes(b"S"), Bytes(open)]),
            script(17, &[Bytes(open), Operate, Ask, Bytes(rows), Bytes(rows), Bytes(empty), Finish]),
            script(9, &[Bytes(open), Ask, Operate, Bytes(empty), Bytes(rows), Bytes(refusal)]),
            script(
                27,
                &[Bytes(open), Operate, Operate, Ask, Bytes(rows), Bytes(empty), Bytes(rows), Bytes(rows)],
            ),
            script(59, &[Bytes(open), Operate, Bytes(b"1\0\0\0\x042\0\0\0\x04n\0\0\0\x04"), Bytes(rows)]),
            script(
                91,
                &[Bytes(open), Operate, Bytes(b"1\0\0\0\x042\0\0\0\x04"), Bytes(rows), Bytes(rows), Finish],
            ),
        ],
    );
}

#[test]
fn pgbench_scripts() {
    let texts = protocols::pgbench::builtin::BUILTINS.iter().map(|builtin| builtin.text.as_bytes().to_vec());
    let all = b"/* a */ \\if :v > 1 and not (:v is null)\n\\set x random_zipfian(1, 10, 1.5) \\\n + hash(:v)\n\\elif 2\n\
                SELECT E'\\'', $a$;$a$, ':x'::text \\; SELECT 2;\n\\else\nSELECT 1\n\\endif\n-- end";
    run(fuzz::pgbench, &texts.chain([all.to_vec()]).collect::<Vec<_>>());
}

#[test]
fn mongodb_driver() {
    let answer = |to: u8, elements: &[u8]| {
        let length = elements.len() as u8 + 5;
        let head = [length + 21, 0, 0, 0, 7, 0, 0, 0, to, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0, 0];
        [&head[..], &[length, 0, 0, 0], elements, b"\0"].concat()
    };
    let ok = b"\x01ok\0\0\0\0\0\0\0\xf0\x3f";
    let more = [b"\x08readOnly\0\0\x03cursor\0\x05\0\0\0\0", &ok[..]].concat();
    let error = answer(2, b"\x01ok\0\0\0\0\0\0\0\0\0\x02errmsg\0\x03\0\0\0no\0\x10code\0\x12\0\0\0");
    let mechanisms = b"\x04saslSupportedMechs\0\x1a\0\0\0\x020\0\x0e\0\0\0SCRAM-SHA-256\0\0";
    let first = b"\x10conversationId\0\x01\0\0\0\x08done\0\0\x05payload\0\x31\0\0\0\0r=aa7855e13839dd767cd5da7c1ff50365+,s=c2FsdA==,i=2";
    let first = answer(2, &[&first[..], ok].concat());
    let hello = answer(1, &[&mechanisms[..], ok].concat());
    use Step::{Ask, Bytes, Finish};
    run(
        fuzz::mongodb,
        &[
            script(
                0,
                &[Bytes(&answer(1, ok)), Ask, Ask, Bytes(&answer(2, &more)), Bytes(&answer(3, ok)), Finish],
            ),
            script(0, &[Bytes(&answer(1, &more)), Ask, Bytes(&error)]),
            script(1, &[Bytes(&hello), Bytes(&first), Bytes(&answer(3, ok))]),
            script(1, &[Bytes(&hello), Bytes(&error)]),
        ],
    );
}

#[test]
fn redis_driver() {
    let values = b"*3\r\n:1\r\n*2\r\n$3\r\na\r\n\r\n$-1\r\n+c\r\n+PONG\r\n*0\r\n";
    use Step::{Ask, Bytes, Finish, Operate};
    run(
        fuzz::redis,
        &[
            script(0, &[Bytes(b"+PONG\r\n"), Ask, Ask, Bytes(b"+PONG\r\n+PONG\r\n"), Finish]),
            script(1, &[Bytes(b"+OK\r\n"), Ask, Bytes(b"-LOADING Redis is loading\r\n")]),
            script(1, &[Bytes(b"-WRONGPASS invalid username-password pair\r\n")]),
            script(0, &[Bytes(b"-ERR max number of clients reached\r\n")]),
            script(
                16,
                &[Bytes(b"+PONG\r\n"), Operate, Ask, Operate, Bytes(values), Bytes(b"-WRONGTYPE\r\n")],
            ),
            script(9, &[Bytes(b"+OK\r\n"), Operate, Ask, Bytes(b"$8\r\nplimsoll\r\n+PONG\r\n"), Finish]),
        ],
    );
}

#[test]
fn nats_driver() {
    let messages = b"MSG a 1 5\r\nhello\r\nPONG\r\nMSG a 1 b 5\r\nhello\r\n";
    let info = b"INFO {\"server_id\":\"a\",\"max_payload\":1048576,\"tls_required\":false}\r\n";
    use Step::{Ask, Bytes, Finish, Operate};
    run(
        fuzz::nats,
        &[
            script(
                0,
                &[Bytes(info), Bytes(b"PONG\r\nPING\r\n"), Ask, Ask, Bytes(b"PONG\r\nPONG\r\n"), Finish],
            ),
            script(1, &[Bytes(info), Bytes(b"+OK\r\npong\r\n"), Ask, Bytes(info), Bytes(b"PONG\r\n")]),
            script(1, &[Bytes(info), Bytes(b"-ERR 'Authorization Violation'\r\n")]),
            script(2, &[Bytes(b"INFO {\"tls_available\":true}\r\n"), Bytes(info)]),
            script(
                16,
                &[Bytes(info), Bytes(b"PONG\r\n"), Operate, Ask, Operate, Bytes(messages), Bytes(messages)],
            ),
        ],
    );
}

#[test]
fn mqtt_driver() {
    use Step::{Ask, Bytes, Finish, Operate};
    let five = b"\x20\x09\0\0\x06\x22\0\x0a\x21\0\x14";
    // to the topic of the first connection, with this behind it
    let message = |behind: &[u8]| {
        let topic = b"\0\x22plimsoll/0000000000000000/00000000";
        let first = if behind.is_empty() { 0x30 } else { 0x32 };
        let length = (topic.len() + behind.len() + 5) as u8;
        [&[first, length], &topic[..], behind, b"hello"].concat()
    };
    run(
        fuzz::mqtt,
        &[
            script(0, &[Bytes(b"\x20\x02\0\0"), Ask, Ask, Bytes(b"\xd0\0\xd0\0"), Finish]),
            script(1, &[Bytes(b"\x20\x02\0\x05")]),
            script(2, &[Bytes(five), Ask, Bytes(b"\xd0\0\xe0\x02\x8b\0")]),
            script(3, &[Bytes(b"\x20\x83\x01\0\0\x7f"), Bytes(&[0x1f; 128])]),
            script(
                16,
                &[
                    Bytes(b"\x20\x02\0\0\x90\x03\0\x01\0"),
                    Operate,
                    Ask,
                    Operate,
                    Bytes(&message(b"")),
                    Finish,
                ],
            ),
            script(
                21,
                &[
                    Bytes(b"\x20\x03\0\0\0\x90\x04\0\x01\0\x01"),
                    Operate,
                    Operate,
                    Bytes(b"\x40\x02\0\x01"),
                    Bytes(&message(b"\0\x07\0")),
                    Bytes(b"\x40\x03\0\x02\x10"),
                    Bytes(&message(b"\0\x08\0")),
                ],
            ),
        ],
    );
}

#[test]
fn ignite_driver() {
    use Step::{Ask, Bytes, Finish};
    let welcome = b"IGNI\0\0\0\x0f\x03\0\0\xc0\0\xd8\x030123456789";
    let rest = b"abcdef\xa1n\0\0\0\x14\0\x01\xcf\x01\xa2\x02op\x15\0\x18\xd3\0\0\0\0\0\0\0\0";
    let swapped = b"\0\0\0\x0b\x02\0\xd3\0\0\0\0\0\0\0\0\0\0\0\x0b\x01\0\xd3\0\0\0\0\0\0\0\0";
    let notified = b"\0\0\0\x04\x01\x02\xc0\xc0";
    let error = b"\0\0\0\x25\0\x04\xcf\x01\xa2\x02op\x15\0\x18\xd8\x030123456789abcdef\xce\0\x01\xff\xff\xa1c\xa1m\xc0\xc0";
    let refusal = b"IGNI\0\0\0\x21\x03\0\0\xd8\x030123456789abcdef\xce\0\x0f\0\x02\xa1c\xa1m\xc0\xc0";
    run(
        fuzz::ignite,
        &[
            script(0, &[Bytes(welcome), Ask, Ask, Ask, Bytes(rest), Bytes(swapped), Finish]),
            script(1, &[Bytes(welcome), Ask, Bytes(rest), Bytes(notified), Ask, Bytes(error)]),
            script(1, &[Bytes(refusal)]),
        ],
    );
}

#[test]
fn serving() {
    let (http, _) = transcript::<http::KeepAlive>("http://h/metrics", 2);
    let (ws, _) = transcript::<ws::WebSocket>("ws://h/ws", 2);
    let (sse, _) = transcript::<sse::EventStream>("sse://h/events", 2);
    let post = b"POST /echo HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nPOST /echo HTTP/1.0\r\nContent-Length: 2\r\n\r\nxy";
    let frames = b"\x01\x82\0\0\0\0h\xc3\x89\x80\0\0\0\0\x80\x81\0\0\0\0\xa9\x88\x82\0\0\0\0\x03\xe8";
    use Step::{Ask, Bytes, Finish};
    run(
        fuzz::serve,
        &[
            script(5, &[Bytes(&http), Ask, Finish]),
            script(5, &[Bytes(&ws), Ask, Finish]),
            script(5, &[Bytes(&sse), Ask, Finish]),
            script(5, &[Bytes(post), Ask]),
            script(2, &[Ask, Bytes(frames)]),
            script(4, &[Ask, Bytes(b"plimsoll-nudge 00000007\r\nhm\nplimsoll-nudge x\n")]),
        ],
    );
}

/// What a client says that makes an operation, and what the node answers.
fn call(call: model::Call) -> (Vec<u8>, Vec<u8>) {
    let operation = Operation { call: Some(call), ..Operation::default() };
    let driver = grpc::Grpc::new(&Plan { operation: Some(operation), ..plan("grpc://h") });
    let node = Service::new("node", Box::new(String::new));
    let (mut client, mut server) = (grpc::Slot::default(), Slot::grpc());
    let (mut said, mut answered) = (Vec::new(), Vec::new());
    for cue in [Cue::Connected, Cue::Ask, Cue::Operate, Cue::Operate, Cue::Finish] {
        let mut ours = Out::default();
        driver.on(&mut client, cue, &mut ours).unwrap();
        while !ours.bytes.is_empty() {
            let mut theirs = Out::default();
            node.on(&mut server, Cue::Bytes(&ours.bytes), &mut theirs).unwrap();
            said.append(&mut ours.bytes);
            if !theirs.bytes.is_empty() {
                driver.on(&mut client, Cue::Bytes(&theirs.bytes), &mut ours).unwrap();
            }
            answered.append(&mut theirs.bytes);
        }
    }
    (said, answered)
}

fn calls() -> [(Vec<u8>, Vec<u8>); 3] {
    use model::CallKind::{Bidirectional, Unary};
    let of = |path: &str, kind, request: &[u8]| {
        let (path, request) = (path.to_owned(), request.to_vec());
        call(model::Call { path, request, kind, metadata: Vec::new(), streams: 2 })
    };
    [
        of("/plimsoll.v1.Messaging/Talk", Bidirectional, b"\x0a\x05hello"),
        of("/plimsoll.v1.Messaging/Echo", Unary, b"\x0a\x05hello"),
        of("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Bidirectional, b"\x3a\0"),
    ]
}

#[test]
fn grpc_driver() {
    use Step::{Ask, Bytes, Finish};
    let away = b"\0\0\x0c\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0bcalm";
    let mut seeds = vec![
        script(1, &[Ask, Bytes(b"\0\0\x08\x06\x01\0\0\0\0\0\0\0\0\0\0\0\0"), Ask, Bytes(away)]),
        script(0, &[Bytes(b"HTTP/1.1 400 Bad Request\r\n\r\n")]),
    ];
    for ((_, answers), setup) in calls().into_iter().zip([6, 2, 6]) {
        let (settings, rest) = answers.split_at(9 + 12);
        seeds.push(script(setup, &[Bytes(settings), Ask, Ask, Bytes(rest), Finish]));
        seeds.push(script(setup + 1, &[Ask, Ask, Bytes(rest), Ask, Bytes(rest)]));
    }
    run(fuzz::grpc, &seeds);
}

#[test]
fn serving_grpc() {
    use Step::{Ask, Bytes, Finish};
    let mut seeds = vec![script(0, &[Bytes(b"GET / HTTP/1.1\r\n\r\n")])];
    for (said, _) in calls() {
        seeds.push(script(2, &[Bytes(&said), Ask, Finish]));
        let greeting = 24 + 9 + 12;
        seeds.push(script(3, &[Bytes(&said[greeting..]), Bytes(&said[greeting..]), Finish]));
    }
    run(fuzz::serve_grpc, &seeds);
}

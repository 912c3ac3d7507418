//! Does any sequence of bytes make a machine panic, loop, or say different things when it comes in other pieces?
//!
//! One entry for each machine. The fuzz targets in `fuzz/` call them with what libFuzzer makes up, and
//! `tests/fuzz.rs` with seeded mutations of real transcripts, so that the gate needs no nightly compiler.
//!
//! The first byte of the input chooses a setup; the rest is a [script](Step).

use model::{Call, CallKind, FailureKind, Operation, QueryMode, Scheme, Script, Scripts, Target};

use crate::h2::frame;
use crate::machine::{Cue, Driver, Fact, Machine, Out};
use crate::mongodb::MongoDb;
use crate::pgbench::{Book, Part};
use crate::postgres::Postgres;
use crate::scram::Secret;
use crate::serve::{Service, Slot};
use crate::{Plan, grpc, http, ignite, mqtt, nats, redis, sse, tcp, ws};

/// One step of a script, as it stands in the input: `0` asks, `1` finishes, `2` operates, and any other byte `n` is
/// followed by `n - 2` bytes from the peer (fewer at the end of the input).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step<'a> {
    /// [`Cue::Ask`]; left out before a client is ready.
    Ask,
    /// [`Cue::Operate`]; left out before a client is ready, and where its setup has no operation.
    Operate,
    /// [`Cue::Finish`].
    Finish,
    /// Bytes from the peer.
    Bytes(&'a [u8]),
}

/// What came of a script: the same, however its bytes were split.
#[derive(Debug, Default, PartialEq, Eq)]
struct Outcome {
    sent: Vec<u8>,
    facts: Vec<Fact>,
    failed: Option<FailureKind>,
}

/// Reads the next step off the front of the input.
fn next<'a>(script: &mut &'a [u8]) -> Option<Step<'a>> {
    let (&op, rest) = script.split_first()?;
    let (step, rest) = match op {
        0 => (Step::Ask, rest),
        1 => (Step::Finish, rest),
        2 => (Step::Operate, rest),
        n => {
            let (bytes, rest) = rest.split_at(rest.len().min(usize::from(n) - 2));
            (Step::Bytes(bytes), rest)
        }
    };
    *script = rest;
    Some(step)
}

/// Writes a step as [`Step`] says; bytes in as many steps as they need.
pub fn write(step: Step<'_>, script: &mut Vec<u8>) {
    match step {
        Step::Ask => script.push(0),
        Step::Finish => script.push(1),
        Step::Operate => script.push(2),
        Step::Bytes(bytes) => {
            for part in bytes.chunks(253) {
                script.push(part.len() as u8 + 2);
                script.extend_from_slice(part);
            }
        }
    }
}

/// Fuzzes [`tcp::Echo`].
pub fn tcp(input: &[u8]) {
    let words = |send: &str, expect: &str| {
        let expect = (!expect.is_empty()).then(|| expect.as_bytes().to_vec());
        Plan { send: Some(send.as_bytes().to_vec()), expect, ..plan("tcp://h:1") }
    };
    client::<tcp::Echo>(input, |setup| {
        let plan = match setup % 8 {
            0 => words("PING\r\n", "+PONG"),
            1 => words("PING\r\n", "+PONG\r\n"),
            2 => words("PING\r\n", ""),
            3 => words("ping", "pong"),
            4 => words("ping", ""),
            _ => plan("tcp://h:1"),
        };
        operating(setup, plan, "hello")
    });
}

/// Fuzzes [`http::KeepAlive`].
pub fn http(input: &[u8]) {
    client::<http::KeepAlive>(input, |setup| {
        operating(setup, plan("http://h/"), if setup % 2 == 0 { "POST /x {}" } else { "HEAD /" })
    });
}

/// Fuzzes [`ws::WebSocket`]: every other setup starts when the node has agreed to the upgrade.
pub fn ws(input: &[u8]) {
    client::<ws::WebSocket>(input, |setup| operating(setup, plan("ws://h/ws"), "hello"));
}

/// Fuzzes [`sse::EventStream`]: every other setup starts when the node has begun the stream.
pub fn sse(input: &[u8]) {
    client::<sse::EventStream>(input, |_| plan("sse://h/events"));
}

/// Fuzzes [`Postgres`], with a nonce that a script can know.
pub fn postgres(input: &[u8]) {
    client_of(
        input,
        |setup| {
            let plan = plan(match setup % 4 {
                0 => "postgres://u:p@h/d?sslmode=require",
                1 => "postgres://u@h/d",
                _ => "postgres://u:p@h/d",
            });
            if setup / 8 % 4 == 3 {
                scripted(setup, plan)
            } else {
                operating(setup, plan, "SELECT 1; SELECT 2")
            }
        },
        |plan| Postgres::with_secret(plan, Secret::known()),
    );
}

/// The plan with a script, in a mode that the setup chooses.
fn scripted(setup: u8, plan: Plan) -> Plan {
    let script = Script {
        name: "fuzz".to_owned(),
        text:
            "\\set a random(1, 9)\n\\if :a > 5\nBEGIN;\nSELECT :a;\nEND;\n\\elif :a > 2\nSELECT :a;\n\\endif"
                .to_owned(),
        weight: 1,
    };
    let mode = [QueryMode::Simple, QueryMode::Extended, QueryMode::Prepared][usize::from(setup / 32 % 3)];
    let scripts = Some(Scripts { scripts: vec![script], mode, variables: Default::default() });
    Plan { operation: Some(Operation { scripts, ..Operation::default() }), ..plan }
}

/// Fuzzes the reader of pgbench's scripts, and whoever runs what it has read.
pub fn pgbench(input: &[u8]) {
    let text = String::from_utf8_lossy(input).into_owned();
    let script = Script { name: "fuzz".to_owned(), text, weight: 1 };
    let variables = ["v", "default_seed"].map(|name| (name.to_owned(), "7".to_owned())).into();
    let scripts = Scripts { scripts: vec![script], mode: QueryMode::Extended, variables };
    let Ok(book) = Book::read(&scripts) else { return };
    let mut client = book.client(1, 1);
    let mut out = Vec::new();
    for _ in 0..3 {
        book.begin(&mut client);
        while let Ok(Some(number)) = book.next(&mut client) {
            for part in book.statements()[number].parts() {
                if let Part::Variable(variable) = part {
                    book.write(&client, *variable, &mut out);
                }
            }
        }
    }
}

/// Fuzzes [`MongoDb`] with a login, with a nonce that a script can know, and without.
pub fn mongodb(input: &[u8]) {
    client_of(
        input,
        |setup| plan(if setup % 2 == 0 { "mongodb://h" } else { "mongodb://user:pencil@h" }),
        |plan| MongoDb::with_secret(plan, Secret::known()),
    );
}

/// Fuzzes [`redis::Redis`], with a login and without.
pub fn redis(input: &[u8]) {
    client::<redis::Redis>(input, |setup| {
        let plan = plan(if setup % 2 == 0 { "redis://h" } else { "redis://user:password@h" });
        operating(setup, plan, "LRANGE list 0 -1")
    });
}

/// Fuzzes [`nats::Nats`], with a login and without, and up to TLS.
pub fn nats(input: &[u8]) {
    client::<nats::Nats>(input, |setup| {
        let plan = plan(match setup % 4 {
            0 => "nats://h",
            1 => "nats://user:password@h",
            _ => "nats://user:password@h?tls=true",
        });
        operating(setup, plan, "hello")
    });
}

/// Fuzzes [`mqtt::Mqtt`] in both versions, with a login and without.
pub fn mqtt(input: &[u8]) {
    client::<mqtt::Mqtt>(input, |setup| {
        let plan = plan(match setup % 8 {
            0 => "mqtt://h",
            1 => "mqtt://user:password@h",
            2 => "mqtt://h?version=5",
            3 => "mqtt://user:password@h?version=5",
            4 => "mqtt://h?qos=1",
            _ => "mqtt://h?version=5&qos=1",
        });
        operating(setup, plan, "hello")
    });
}

/// Fuzzes [`ignite::Ignite`], with a login and without.
pub fn ignite(input: &[u8]) {
    client::<ignite::Ignite>(input, |setup| {
        plan(if setup % 2 == 0 { "ignite://h" } else { "ignite://user:password@h" })
    });
}

/// Fuzzes [`grpc::Grpc`] with each kind of call, and without one: every other setup starts when the node has sent its
/// settings. Each ask is followed by an operation, where there is one.
pub fn grpc(input: &[u8]) {
    let call = |kind, streams| Call {
        path: "/a.B/C".to_owned(),
        request: b"request".to_vec(),
        kind,
        metadata: Vec::new(),
        streams,
    };
    client::<grpc::Grpc>(input, |setup| {
        let call = match setup / 2 % 4 {
            0 => None,
            1 => Some(call(CallKind::Unary, 1)),
            2 => Some(call(CallKind::ServerStreaming, 1)),
            _ => Some(call(CallKind::Bidirectional, 2)),
        };
        let operation = call.map(|call| Operation { call: Some(call), ..Operation::default() });
        Plan { operation, ..plan("grpc://h:1") }
    });
}

/// Fuzzes [`Service`] from each of its states but gRPC.
pub fn serve(input: &[u8]) {
    let Some((&setup, script)) = input.split_first() else { return };
    let slot = || match setup % 8 {
        0 => Slot::echo(),
        1 => Slot::refusing(),
        _ => Slot::http(),
    };
    let greeting = match setup % 8 {
        2 | 3 => greeting::<ws::WebSocket>(&plan("ws://h/ws")),
        4 => greeting::<sse::EventStream>(&plan("sse://h/events")),
        _ => Vec::new(),
    };
    serving(input, slot, &greeting, script);
}

/// Fuzzes [`Service`] where it speaks gRPC: every other setup starts when a client has greeted it.
pub fn serve_grpc(input: &[u8]) {
    let Some((&setup, script)) = input.split_first() else { return };
    let greeting = if setup % 2 == 1 { greeting::<grpc::Grpc>(&plan("grpc://h:1")) } else { Vec::new() };
    serving(input, || if setup % 8 == 0 { Slot::refusing_grpc() } else { Slot::grpc() }, &greeting, script);
}

fn serving(input: &[u8], slot: impl Fn() -> Slot, greeting: &[u8], script: &[u8]) {
    same_in_any_pieces(input, |piece| {
        let mut play = Play { piece, ..Play::new(node(), slot()) };
        play.bytes(greeting);
        play.script(script, |_, step| step == Step::Ask);
        play.outcome
    });
}

/// The node as tests serve it.
fn node() -> Service {
    Service::new("node", Box::new(|| "# EOF\n".to_owned()))
}

/// The plan with an operation: none, the driver's own, or this text, as the setup's next bits have it.
fn operating(setup: u8, plan: Plan, text: &str) -> Plan {
    let operation = match setup / 8 % 4 {
        0 => None,
        1 => Some(Operation { text: None, ..Operation::default() }),
        _ => Some(Operation { text: Some(text.to_owned()), ..Operation::default() }),
    };
    Plan { operation, ..plan }
}

fn plan(url: &str) -> Plan {
    match Target::parse(url) {
        Ok(target) => Plan::to(target),
        Err(error) => unreachable!("{error}"),
    }
}

/// What the first connection of a driver says when it stands.
fn greeting<D: Driver>(plan: &Plan) -> Vec<u8> {
    let mut out = Out::default();
    let connected = D::new(plan).on(&mut D::Slot::default(), Cue::Connected, &mut out);
    assert_eq!(connected, Ok(0));
    out.bytes
}

fn client<D: Driver>(input: &[u8], plan: impl Fn(u8) -> Plan) {
    client_of(input, plan, D::new);
}

fn client_of<D: Driver>(input: &[u8], plan: impl Fn(u8) -> Plan, make: impl Fn(&Plan) -> D) {
    let Some((&setup, script)) = input.split_first() else { return };
    let plan = plan(setup);
    let operates = plan.operation.is_some();
    let mut answer = Out::default();
    if setup % 2 == 1 && matches!(D::FACTS.scheme, Scheme::Ws | Scheme::Sse) {
        let agreed = node().on(&mut Slot::http(), Cue::Bytes(&greeting::<D>(&plan)), &mut answer);
        assert!(agreed.is_ok());
    }
    if setup % 2 == 1 && D::FACTS.scheme == Scheme::Grpc {
        frame::settings(&mut answer.bytes, &[]);
    }
    same_in_any_pieces(input, |piece| {
        let mut play = Play::new(make(&plan), D::Slot::default());
        play.cue(Cue::Connected);
        play.bytes(&answer.bytes);
        play.piece = piece;
        play.script(script, |facts, step| {
            facts.contains(&Fact::Ready) && (step != Step::Operate || operates)
        });
        let ready = play.outcome.facts.iter().filter(|&&f| f == Fact::Ready).count();
        assert!(ready <= 1, "ready is said once");
        play.outcome
    });
}

/// Plays the same with bytes as they stand in the script and in smaller pieces, and compares. The input's own
/// length chooses the size of the pieces, so that a fuzzer finds its way to each.
fn same_in_any_pieces(input: &[u8], play: impl Fn(usize) -> Outcome) {
    let piece = [1, 1, 2, 3, 7, 19][input.len() % 6];
    assert_eq!(play(piece), play(usize::MAX), "in pieces of {piece}");
}

/// One connection, driven as a reactor would.
struct Play<M: Machine> {
    machine: M,
    slot: M::Slot,
    pending: Vec<u8>,
    outcome: Outcome,
    /// The most new bytes that are handed in at once.
    piece: usize,
}

impl<M: Machine> Play<M> {
    fn new(machine: M, slot: M::Slot) -> Self {
        let outcome = Outcome::default();
        Self { machine, slot, pending: Vec::new(), outcome, piece: usize::MAX }
    }

    /// Plays a script; `may` says whether such a cue can be given to who has reported these facts.
    fn script(&mut self, mut script: &[u8], may: impl Fn(&[Fact], Step<'_>) -> bool) {
        while let Some(step) = next(&mut script) {
            match step {
                Step::Ask | Step::Operate if !may(&self.outcome.facts, step) => {}
                Step::Ask => self.cue(Cue::Ask),
                Step::Operate => self.cue(Cue::Operate),
                Step::Finish => self.cue(Cue::Finish),
                Step::Bytes(bytes) => self.bytes(bytes),
            }
        }
    }

    fn over(&self) -> bool {
        // Nothing is played in TLS.
        let last = [Fact::Done, Fact::StartTls];
        self.outcome.failed.is_some() || self.outcome.facts.iter().any(|fact| last.contains(fact))
    }

    fn bytes(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(self.piece) {
            if self.over() {
                return;
            }
            self.pending.extend_from_slice(piece);
            let pending = std::mem::take(&mut self.pending);
            let used = self.on(Cue::Bytes(&pending));
            assert!(used <= pending.len(), "{used} of {} bytes were consumed", pending.len());
            self.pending.extend_from_slice(&pending[used..]);
            if !self.pending.is_empty() && !self.over() {
                let before = (self.outcome.sent.len(), self.outcome.facts.len());
                let pending = std::mem::take(&mut self.pending);
                assert_eq!(self.on(Cue::Bytes(&pending)), 0, "what can be consumed is consumed at once");
                assert_eq!((self.outcome.sent.len(), self.outcome.facts.len()), before);
                self.pending = pending;
            }
        }
    }

    fn cue(&mut self, cue: Cue<'_>) {
        if !self.over() {
            assert_eq!(self.on(cue), 0, "a cue without bytes consumes none");
        }
    }

    fn on(&mut self, cue: Cue<'_>) -> usize {
        let mut out = Out::default();
        let result = self.machine.on(&mut self.slot, cue, &mut out);
        self.outcome.sent.append(&mut out.bytes);
        self.outcome.facts.append(&mut out.facts);
        result.unwrap_or_else(|failure| {
            assert!(!failure.text.is_empty(), "a machine's failure has words");
            self.outcome.failed = Some(failure.kind);
            0
        })
    }
}

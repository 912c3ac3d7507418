//! Each driver against the node's own side, over a wire that splits as it likes.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

use model::{Call, Failure, FailureKind, Operation, Target};
use proptest::prelude::*;
use protocols::serve::{Service, Slot};
use protocols::{Cue, Driver, Fact, Machine, Out, Plan, grpc, http, sse, tcp, ws};

/// One end of a connection: a machine, its slot, and what it has not consumed.
struct End<M: Machine> {
    machine: M,
    slot: M::Slot,
    pending: Vec<u8>,
    facts: Vec<Fact>,
    failed: Option<Failure>,
}

impl<M: Machine> End<M> {
    fn new(machine: M, slot: M::Slot) -> Self {
        Self { machine, slot, pending: Vec::new(), facts: Vec::new(), failed: None }
    }

    /// Gives a cue; returns what is to be sent.
    fn cue(&mut self, cue: Cue<'_>) -> Vec<u8> {
        let mut out = Out::default();
        match self.machine.on(&mut self.slot, cue, &mut out) {
            Ok(used) => drop(self.pending.drain(..used)),
            Err(failure) => self.failed = Some(failure),
        }
        self.facts.append(&mut out.facts);
        out.bytes
    }

    fn bytes(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.pending.extend_from_slice(bytes);
        let pending = self.pending.clone();
        self.cue(Cue::Bytes(&pending))
    }

    fn count(&self, fact: Fact) -> usize {
        self.facts.iter().filter(|&&f| f == fact).count()
    }
}

/// A driver and the node, and the bytes on their way.
struct Pair<D: Driver> {
    client: End<D>,
    server: End<Service>,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

impl<D: Driver> Pair<D> {
    fn new(plan: &Plan, slot: Slot) -> Self {
        let mut client = End::new(D::new(plan), D::Slot::default());
        let to_server = client.cue(Cue::Connected);
        let node = Service::new("node/1", Box::new(|| "# TYPE x gauge\nx 1\n# EOF\n".to_owned()));
        Self { client, server: End::new(node, slot), to_server, to_client: Vec::new() }
    }

    fn ask(&mut self) {
        self.to_server.append(&mut self.client.cue(Cue::Ask));
    }

    /// Lets the wire carry everything, in pieces of at most the given sizes, in turn, each way.
    fn settle(&mut self, pieces: &[usize]) {
        let mut sizes = pieces.iter().copied().cycle();
        while !self.to_server.is_empty() || !self.to_client.is_empty() {
            for _ in 0..2 {
                let n = sizes.next().unwrap().min(self.to_server.len());
                let piece: Vec<u8> = self.to_server.drain(..n).collect();
                if n > 0 {
                    self.to_client.append(&mut self.server.bytes(&piece));
                }
                let n = sizes.next().unwrap().min(self.to_client.len());
                let piece: Vec<u8> = self.to_client.drain(..n).collect();
                if n > 0 && self.client.failed.is_none() {
                    self.to_server.append(&mut self.client.bytes(&piece));
                }
            }
        }
    }
}

fn plan(url: &str) -> Plan {
    Plan::to(Target::parse(url).unwrap())
}

/// Several asks at once, twice over: all are answered, nothing is left pending, and the slots own nothing more.
fn holds<D: Driver>(plan: &Plan, slot: Slot, upgrades: bool, pieces: &[usize]) {
    let mut pair = Pair::<D>::new(plan, slot);
    pair.settle(pieces);
    let greeting: &[Fact] = if upgrades { &[Fact::Upgraded, Fact::Ready] } else { &[Fact::Ready] };
    assert_eq!(pair.client.facts, greeting);
    for asks in [1, 3] {
        for _ in 0..asks {
            pair.ask();
        }
        pair.settle(pieces);
    }
    assert_eq!(pair.client.failed, None);
    assert_eq!(pair.client.facts[greeting.len()..], [Fact::Answered; 4]);
    assert!(
        pair.client.pending.is_empty() && pair.server.pending.is_empty(),
        "an idle connection carries nothing"
    );
    // What the node sends to keep a quiet connection alive is no answer.
    pair.to_client.append(&mut pair.server.cue(Cue::Ask));
    pair.settle(pieces);
    assert_eq!((pair.client.count(Fact::Answered), pair.client.failed.clone()), (4, None));
    // Either side can say good-bye.
    pair.to_server.append(&mut pair.client.cue(Cue::Finish));
    pair.settle(pieces);
    assert_eq!(pair.client.facts.last(), Some(&Fact::Done));
    assert!(pair.server.cue(Cue::Finish).is_empty(), "it had said good-bye with the client");
    assert_eq!(pair.server.facts, [Fact::Done]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_driver_holds_against_the_node(pieces in prop::collection::vec(1..300usize, 1..12)) {
        holds::<tcp::Echo>(&plan("tcp://h:1"), Slot::echo(), false, &pieces);
        for path in ["", "/healthz", "/metrics"] {
            holds::<http::KeepAlive>(&plan(&format!("http://h{path}")), Slot::http(), false, &pieces);
        }
        holds::<ws::WebSocket>(&plan("ws://h"), Slot::http(), true, &pieces);
        holds::<grpc::Grpc>(&plan("grpc://h"), Slot::grpc(), true, &pieces);
    }

    #[test]
    fn nudges_are_answered_and_beats_are_heard(pieces in prop::collection::vec(1..100usize, 1..12), beats in 0..3usize) {
        let mut pair = Pair::<sse::EventStream>::new(&plan("sse://h"), Slot::http());
        pair.settle(&pieces);
        for _ in 0..3 {
            pair.ask();
        }
        for _ in 0..beats {
            pair.to_client.append(&mut pair.server.cue(Cue::Ask));
        }
        pair.settle(&pieces);
        prop_assert_eq!(pair.client.failed.clone(), None);
        prop_assert_eq!(pair.client.count(Fact::Answered), 3);
        prop_assert_eq!(pair.client.count(Fact::Heard), beats);
        prop_assert!(pair.client.pending.is_empty() && pair.server.pending.is_empty());
    }
}

#[test]
fn byte_by_byte() {
    holds::<tcp::Echo>(&plan("tcp://h:1"), Slot::echo(), false, &[1]);
    holds::<http::KeepAlive>(&plan("http://h"), Slot::http(), false, &[1]);
    holds::<ws::WebSocket>(&plan("ws://h"), Slot::http(), true, &[1]);
    holds::<grpc::Grpc>(&plan("grpc://h"), Slot::grpc(), true, &[1]);
}

#[test]
fn a_full_node_says_so_to_each_protocol() {
    fn refused<D: Driver>(url: &str) {
        let mut pair = Pair::<D>::new(&plan(url), Slot::refusing());
        if pair.client.facts.contains(&Fact::Ready) {
            pair.ask();
        }
        pair.settle(&[1000]);
        let failure = pair.client.failed.unwrap();
        assert_eq!(failure.kind, FailureKind::ServerRefused);
        assert!(
            failure.text.contains("503 Service Unavailable") && failure.text.contains("as many"),
            "{failure:?}"
        );
        assert_eq!(pair.server.facts, [Fact::Done]);
    }
    refused::<http::KeepAlive>("http://h");
    refused::<ws::WebSocket>("ws://h");
    refused::<sse::EventStream>("sse://h");
    let mut pair = Pair::<grpc::Grpc>::new(&plan("grpc://h"), Slot::refusing_grpc());
    pair.settle(&[1000]);
    let failure = pair.client.failed.unwrap();
    assert_eq!(failure.kind, FailureKind::ServerRefused);
    assert!(failure.text.contains("as many connections as it may"), "{failure:?}");
    assert_eq!(pair.server.facts, [Fact::Done]);
}

/// Operations between heartbeats, of each kind that the node serves: every one is answered, and told apart.
#[test]
fn calls_are_carried_out_beside_heartbeats() {
    use model::CallKind::{Bidirectional, Unary};
    let call = |path: &str, kind, size| {
        Some(Call { path: path.to_owned(), request: vec![7; size], kind, metadata: Vec::new(), streams: 3 })
    };
    for call in [
        None,
        call("/plimsoll.v1.Messaging/Talk", Bidirectional, 100_000),
        call("/plimsoll.v1.Messaging/Echo", Unary, 100_000),
        call("/grpc.health.v1.Health/Check", Unary, 0),
    ] {
        let operation = Some(Operation { call, ..Operation::default() });
        let plan = Plan { operation, ..plan("grpc://h") };
        let mut pair = Pair::<grpc::Grpc>::new(&plan, Slot::grpc());
        pair.settle(&[5000]);
        for _ in 0..4 {
            pair.ask();
            for _ in 0..3 {
                pair.to_server.append(&mut pair.client.cue(Cue::Operate));
            }
        }
        pair.settle(&[5000, 70, 20_000]);
        assert_eq!(pair.client.failed, None, "{plan:?}");
        assert_eq!((pair.client.count(Fact::Answered), pair.client.count(Fact::Operated)), (4, 12));
        assert!(pair.client.pending.is_empty() && pair.server.pending.is_empty());
    }
}

#[test]
fn the_wrong_path_is_named_as_such() {
    fn refused<D: Driver>(url: &str, words: &str) {
        let mut pair = Pair::<D>::new(&plan(url), Slot::http());
        if pair.client.facts.contains(&Fact::Ready) {
            pair.ask();
        }
        pair.settle(&[1000]);
        let failure = pair.client.failed.unwrap();
        assert_eq!(failure.kind, FailureKind::Protocol);
        assert!(
            failure.text.contains(words) && failure.text.contains("name a path in the URL"),
            "{failure:?}"
        );
    }
    refused::<http::KeepAlive>("http://h/nowhere", "404 Not Found");
    refused::<http::KeepAlive>("http://h/ws", "426 Upgrade Required");
    refused::<ws::WebSocket>("ws://h/healthz", "200 OK");
    refused::<sse::EventStream>("sse://h/healthz", "text/plain; charset=utf-8");
    refused::<sse::EventStream>("sse://h/nowhere", "404 Not Found");
}

#[test]
fn a_node_that_goes_away_says_so() {
    let mut pair = Pair::<ws::WebSocket>::new(&plan("ws://h"), Slot::http());
    pair.settle(&[1000]);
    pair.to_client = pair.server.cue(Cue::Finish);
    pair.settle(&[1000]);
    let failure = pair.client.failed.unwrap();
    assert_eq!(
        (failure.kind, failure.text.as_str()),
        (FailureKind::Closed, "the server closed the WebSocket with code 1001")
    );
    let mut pair = Pair::<grpc::Grpc>::new(&plan("grpc://h"), Slot::grpc());
    pair.settle(&[1000]);
    pair.to_client = pair.server.cue(Cue::Finish);
    pair.settle(&[1000]);
    let failure = pair.client.failed.unwrap();
    assert_eq!(failure.kind, FailureKind::Closed);
    assert!(failure.text.contains("GOAWAY NO_ERROR: \"the node ends\""), "{failure:?}");
}

#[test]
fn connections_of_one_driver_tell_each_other_apart() {
    let driver = tcp::Echo::new(&plan("tcp://h:1"));
    let mut slots = [tcp::Slot::default(), tcp::Slot::default()];
    let mut said = Vec::new();
    for slot in &mut slots {
        let mut out = Out::default();
        driver.on(slot, Cue::Connected, &mut out).unwrap();
        driver.on(slot, Cue::Ask, &mut out).unwrap();
        said.push(out.bytes);
    }
    assert_ne!(said[0], said[1]);
    let crossed = driver.on(&mut slots[0], Cue::Bytes(&said[1]), &mut Out::default()).unwrap_err();
    assert_eq!(crossed.kind, FailureKind::Protocol);
    assert!(crossed.text.contains("plimsoll ") && crossed.text.contains("--expect TEXT"), "{crossed:?}");
}

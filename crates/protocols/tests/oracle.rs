//! Do we and another implementation of RFC 6455 understand each other?

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use model::Target;
use proptest::prelude::*;
use protocols::serve::{Service, Slot};
use protocols::{Cue, Driver, Fact, Machine, Out, Plan, ws};
use tungstenite::protocol::frame::Frame;
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::{HandshakeError, Message, WebSocket};

/// Tungstenite's end of a wire in memory: what it reads, what it has written.
#[derive(Debug, Default)]
struct Wire {
    to_read: VecDeque<u8>,
    written: Vec<u8>,
}

impl Read for Wire {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.to_read.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { self.to_read.read(buf) }
    }
}

impl Write for Wire {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.written.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Tungstenite as the client of the node.
struct Client {
    socket: WebSocket<Wire>,
    node: Service,
    slot: Slot,
    done: bool,
}

impl Client {
    fn connect() -> Self {
        let node = Service::new("node", Box::new(String::new));
        let mut slot = Slot::http();
        let Err(HandshakeError::Interrupted(mut waiting)) = tungstenite::client("ws://h/ws", Wire::default())
        else {
            panic!("the answer cannot be there yet");
        };
        let mut out = Out::default();
        let wire = waiting.get_mut().get_mut();
        node.on(&mut slot, Cue::Bytes(&wire.written), &mut out).unwrap();
        wire.written.clear();
        wire.to_read.extend(out.bytes);
        let Ok((socket, response)) = waiting.handshake() else { panic!("tungstenite does not agree") };
        assert_eq!(response.status(), 101);
        Self { socket, node, slot, done: false }
    }

    /// Sends, and hands over what the node answers.
    fn say(&mut self, message: Message) {
        self.socket.send(message).unwrap();
        self.carry();
    }

    fn carry(&mut self) {
        let wire = self.socket.get_mut();
        let mut out = Out::default();
        let used = self.node.on(&mut self.slot, Cue::Bytes(&wire.written), &mut out).unwrap();
        assert_eq!(used, wire.written.len());
        wire.written.clear();
        wire.to_read.extend(out.bytes);
        self.done |= out.facts.contains(&Fact::Done);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn tungstenite_hears_the_node_echo(payload in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(any::<u8>(), 65_530..65_545),
    ], text in "\\PC{0,80}") {
        let mut client = Client::connect();
        for message in [Message::binary(payload.clone()), Message::text(text.clone())] {
            client.say(message.clone());
            prop_assert_eq!(client.socket.read().unwrap(), message);
        }
        // The same text in fragments, cut between any two bytes.
        let cut = payload.len() % (text.len() + 1);
        let (first, second) = text.as_bytes().split_at(cut);
        for (part, opcode, fin) in [(first, Data::Text, false), (second, Data::Continue, true)] {
            client.say(Message::Frame(Frame::message(part.to_vec(), OpCode::Data(opcode), fin)));
        }
        prop_assert_eq!(client.socket.read().unwrap(), Message::text(text));
        client.say(Message::Ping(b"still there?".as_slice().into()));
        prop_assert_eq!(client.socket.read().unwrap(), Message::Pong(b"still there?".as_slice().into()));
        client.socket.close(None).unwrap();
        client.carry();
        prop_assert!(client.done);
        prop_assert!(client.socket.read().unwrap().is_close());
    }
}

#[test]
fn tungstenite_serves_our_driver() {
    let plan = Plan::to(Target::parse("ws://h:8080/any").unwrap());
    let driver = ws::WebSocket::new(&plan);
    let mut slot = ws::Slot::default();
    let mut out = Out::default();
    driver.on(&mut slot, Cue::Connected, &mut out).unwrap();
    let wire = Wire { to_read: std::mem::take(&mut out.bytes).into(), written: Vec::new() };
    let mut server = tungstenite::accept(wire).unwrap();

    // What the server has written goes to our driver, and its answer back.
    let mut carry = |server: &mut WebSocket<Wire>, cue: Option<Cue<'_>>| {
        let mut out = Out::default();
        if let Some(cue) = cue {
            driver.on(&mut slot, cue, &mut out).unwrap();
        }
        let written = std::mem::take(&mut server.get_mut().written);
        if !written.is_empty() {
            assert_eq!(driver.on(&mut slot, Cue::Bytes(&written), &mut out), Ok(written.len()));
        }
        server.get_mut().to_read.extend(out.bytes);
        out.facts
    };
    assert_eq!(carry(&mut server, None), [Fact::Upgraded, Fact::Ready]);
    for _ in 0..3 {
        assert_eq!(carry(&mut server, Some(Cue::Ask)), []);
    }
    for _ in 0..3 {
        assert!(matches!(server.read(), Ok(Message::Ping(payload)) if payload.len() == 16));
    }
    server.flush().unwrap();
    let answered = carry(&mut server, None);
    assert_eq!(answered, [Fact::Answered; 3], "however many of the three it answers");
    server.send(Message::text("an event")).unwrap();
    server.send(Message::Ping(b"you?".as_slice().into())).unwrap();
    assert_eq!(carry(&mut server, None), [Fact::Heard]);
    assert_eq!(server.read().unwrap(), Message::Pong(b"you?".as_slice().into()));
    assert_eq!(carry(&mut server, Some(Cue::Finish)), [Fact::Done]);
    assert!(server.read().unwrap().is_close());
}

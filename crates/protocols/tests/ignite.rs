//! The driver of ignite against literal bytes, as a node of Ignite 3.1.0 sends them.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod talk;

use Fact::{Answered, Done, Heard, LoggedIn, Operated, Ready, Upgraded};
use FailureKind::{LoginRefused, Protocol, ServerRefused};
use model::{FailureKind, Operation, Scheme};
use proptest::prelude::*;
use protocols::ignite::Ignite;
use protocols::{Cue, Fact, Plan, check_operation};
use talk::{Talk, plan};

/// The answer to a handshake: version 3.0.0, no error, no idle timeout; then the node, its cluster, its clock.
const WELCOME: &[u8] = b"IGNI\0\0\0\x4f\x03\0\0\xc0\0\xd8\x03\rDrY\xc24\x07AJ+\x9b^\xce\xdb\x0e\x95\xa8plimsoll\
    \x01\xd8\x03\xcbHW*H\xcf\x84`\x1f\x000\xee\xe3\x053\x87\xa8plimsoll\xcf\x01\xa2\x02o\xaf\x8d\0\0\x03\x01\0\xc0\
    \xc0\xc4\x02*\n\0";
/// What the first answer on a connection has before the clock: since when partitions are where they are.
const SINCE: &[u8] = b"\xcf\x01\xa2\x02op\x15\0\x18";
const CLOCK: &[u8] = b"\xd3\0\0\0\0\0\0\0\0";
/// The name of an error in the node's log.
const TRACE: &[u8] = b"\xd8\x030123456789abcdef";
/// One row, `1`, and no cursor.
const ROWS: &[u8] = b"\xc0\xc3\xc2\xc2\xff\x01\x06\xa11\xc2\x04\0\n\xc2\x01\xc4\x03\0\x01\x01";
/// SQL_EXEC without its number: no transaction, the server's own settings, no properties.
const EXEC: &[u8] = b"\xc0\xc0\xc0\xc0\xc0\xc0\0\xc4\0";

fn message(parts: &[&[u8]]) -> Vec<u8> {
    let body = parts.concat();
    [&(body.len() as u32).to_be_bytes()[..], &body].concat()
}

/// The answer to a heartbeat.
fn answer(number: u8) -> Vec<u8> {
    message(&[&[number, 0], CLOCK])
}

fn texts(texts: &[&str]) -> Vec<u8> {
    texts.iter().flat_map(|text| [&[0xd9, text.len() as u8][..], text.as_bytes()].concat()).collect()
}

fn error(code: u32, class: &str, words: &str) -> Vec<u8> {
    let hint = "To see the full stack trace set clientConnector.sendServerExceptionStackTraceToClient:true";
    [TRACE, b"\xce", &code.to_be_bytes()[..], &texts(&[class, words, hint]), b"\xc0"].concat()
}

fn open(operation: Option<&str>) -> Talk<Ignite> {
    let operation = Some(Operation { text: operation.map(str::to_owned), ..Operation::default() });
    let mut talk = Talk::with(&Plan { operation, ..plan("ignite://h") });
    assert_eq!(talk.hears(WELCOME), Ok(vec![Upgraded, Ready]));
    talk.said.clear();
    talk
}

#[test]
fn it_is_ready_once_the_handshake_is_answered() {
    let mut talk = Talk::<Ignite>::to("ignite://h");
    assert_eq!(talk.said, b"IGNI\0\0\0\x07\x03\0\0\x02\xc4\0\0");
    assert!(talk.facts.is_empty());
    assert_eq!(talk.hears(&WELCOME[..50]), Ok(vec![]));
    assert_eq!(talk.hears(&WELCOME[50..]), Ok(vec![Upgraded, Ready]));
}

#[test]
fn it_logs_in_by_basic_authentication() {
    let mut talk = Talk::<Ignite>::to("ignite://me:p%40ss@h");
    let login = b"\xaaauthn-type\xa5basic\xaeauthn-identity\xa2me\xacauthn-secret\xa4p@ss";
    assert_eq!(talk.said, [&b"IGNI\0\0\0\x3c\x03\0\0\x02\xc4\0\x03"[..], login].concat());
    assert_eq!(talk.hears(WELCOME), Ok(vec![LoggedIn, Ready]));
}

#[test]
fn heartbeats_are_told_apart_by_their_numbers() {
    let mut talk = open(None);
    talk.ask(3);
    assert_eq!(talk.said, b"\0\0\0\x02\x01\0\0\0\0\x02\x01\x01\0\0\0\x02\x01\x02");
    let first = message(&[b"\x02\x01", SINCE, CLOCK]);
    assert_eq!(talk.hears(&first), Ok(vec![Answered]));
    assert_eq!(talk.hears([answer(0), answer(1)].concat()), Ok(vec![Answered; 2]));
    talk.fails(answer(1), Protocol, "a request with the number 1, which does not wait for an answer");
    open(None).fails(answer(0), Protocol, "the number 0");

    let mut talk = open(None);
    talk.ask(129);
    assert!(talk.said.ends_with(b"\0\0\0\x02\x01\x7f\0\0\0\x03\x01\xcc\x80"));
    assert_eq!(talk.hears(message(&[b"\xcc\x80\0", CLOCK])), Ok(vec![Answered]));
    talk.cue(Cue::Finish).unwrap();
    assert_eq!(talk.facts, [Done]);
}

#[test]
fn an_operation_is_a_statement_beside_the_heartbeats() {
    let mut talk = open(None);
    talk.ask(1);
    talk.cue(Cue::Operate).unwrap();
    talk.ask(1);
    let exec = message(&[b"\x32\x01", EXEC, b"\xa8SELECT 1\xc0\0"]);
    assert_eq!(talk.said, [&b"\0\0\0\x02\x01\0"[..], &exec, b"\0\0\0\x02\x01\x02"].concat());
    // a query takes longer than a heartbeat: its answer comes last
    assert_eq!(talk.hears([answer(2), answer(0)].concat()), Ok(vec![Answered; 2]));
    assert_eq!(talk.hears(message(&[b"\x01\0", CLOCK, ROWS])), Ok(vec![Operated]));

    let mut talk = open(Some("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)"));
    talk.cue(Cue::Operate).unwrap();
    let text = b"\xd9\x31CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)\xc0\0";
    assert_eq!(talk.said, message(&[b"\x32\0", EXEC, text]));
    assert_eq!(talk.hears(message(&[b"\0\0", CLOCK, b"\xc0\xc2\xc2\xc3\xff\0"])), Ok(vec![Operated]));
}

#[test]
fn a_cursor_that_is_left_open_is_closed() {
    let mut talk = open(Some("SELECT * FROM TABLE(SYSTEM_RANGE(1, 2000))"));
    talk.cue(Cue::Operate).unwrap();
    talk.said.clear();
    let rows =
        [&b"\xcd\x01\x2c\xc3\xc3\xc2\xff\x01\x06\xa1X\xc2\x05\0\x13\xc2\xcd\x04\0"[..], &[7; 4_000]].concat();
    let page = message(&[b"\0\0", CLOCK, &rows]);
    assert_eq!(talk.hears(&page[..100]), Ok(vec![]));
    assert!(talk.pending.is_empty(), "rows are not kept");
    assert_eq!(talk.said, b"\0\0\0\x05\x34\x01\xcd\x01\x2c");
    assert_eq!(talk.hears(&page[100..]), Ok(vec![]), "it is over when the cursor is closed");
    assert_eq!(talk.hears(message(&[b"\x01\0", CLOCK])), Ok(vec![Operated]));
}

#[test]
fn what_the_node_refuses_is_quoted() {
    let parse = error(0x40003, "org.apache.ignite.sql.SqlException", "Failed to parse query: at line 1");
    for number in [b"\0\x04", b"\x07\x04"] {
        let mut talk = open(Some("SELEC 1"));
        talk.cue(Cue::Operate).unwrap();
        let words =
            "org.apache.ignite.sql.SqlException 0x00040003: Failed to parse query: at line 1 (To see the";
        talk.fails(message(&[number, CLOCK, &parse]), Protocol, words);
    }
    // a stack trace is not waited for, and an error need not have words
    let long = [TRACE, b"\x05\xa1C\xc0\xdb\0\x01\xff\xff", &[b'x'; 0x1_ffff], b"\xc0"].concat();
    let sent = message(&[b"\0\x05", SINCE, CLOCK, &long]);
    open(None).fails(&sent[..64 * 1024 + 4], Protocol, "answered a request with C 0x00000005: ");
}

#[test]
fn a_handshake_that_is_refused_says_why() {
    let refusal =
        |code, class, words| [&b"IGNI"[..], &message(&[b"\x03\0\0", &error(code, class, words)])].concat();
    let version = refusal(0x30003, "org.apache.ignite.lang.IgniteException", "Unsupported version: 3.0.0");
    let mut talk = Talk::<Ignite>::to("ignite://h");
    talk.fails(&version, Protocol, "IgniteException 0x00030003: Unsupported version: 3.0.0 (To see");
    Talk::<Ignite>::to("ignite://h").fails(&version, Protocol, "speaks version 3.0.0 of the client protocol");
    let login = refusal(0xf0002, "org.apache.ignite.security.Invalid", "Authentication failed");
    Talk::<Ignite>::to("ignite://h").fails(&login, LoginRefused, "ignite://USER:PASSWORD@HOST");
    Talk::<Ignite>::to("ignite://a:b@h").fails(&login, LoginRefused, "Authentication failed");
    let other = refusal(0x1ffff, "C", "node is \x1b[1m stopping");
    Talk::<Ignite>::to("ignite://h").fails(
        &other,
        ServerRefused,
        "C 0x0001ffff: node is \\u{1b}[1m stopping",
    );
}

#[test]
fn what_comes_unasked() {
    let mut talk = open(None);
    talk.ask(1);
    assert_eq!(talk.hears(message(&[b"\0\x02", CLOCK, b"\x05"])), Ok(vec![Heard]));
    assert_eq!(talk.hears(message(&[b"\0\x06", CLOCK, &error(1, "C", "m")])), Ok(vec![Heard]));
    assert_eq!(talk.hears(answer(0)), Ok(vec![Answered]), "that was no answer");
    talk.fails(message(&[b"\0\x08\0", CLOCK]), Protocol, "executors of its jobs");
}

#[test]
fn garbage_is_told_at_its_first_bytes() {
    for garbage in ["H", "IGN!", "\x15\x03", "+PONG\r\n", "IGNI\x01"] {
        Talk::<Ignite>::to("ignite://h").fails(garbage, Protocol, "check that its client connector listens");
    }
    for garbage in [
        &b"H"[..],
        b"\x05",
        b"\0\0\0\0",
        b"\0\0\0\x01\0",
        b"\0\0\0\x02\0\0",
        b"\0\0\0\x02\xc0\0",
        b"\0\0\0\x04\0\x01\0\xc0",
        b"\0\0\0\x04\0\x04\0\xc0",
    ] {
        open(None).fails(garbage, Protocol, "is no message of Ignite 3");
    }
    for greeting in [&b"\x03\0"[..], b"\x03\0\0", b"\x03\0\xc0\xc0", b"\x03\0\0\xc3", b"\x03\0\0\xc4\0\xa1a"]
    {
        let sent = [&b"IGNI"[..], &message(&[greeting])].concat();
        Talk::<Ignite>::to("ignite://h").fails(sent, Protocol, "is no message of Ignite 3");
    }
    let mut talk = open(None);
    talk.cue(Cue::Operate).unwrap();
    talk.fails(message(&[b"\0\0", CLOCK, b"\xc3"]), Protocol, "is no message of Ignite 3");
}

#[test]
fn a_text_must_be_there() {
    let check = |text: &str| {
        check_operation(Scheme::Ignite, &Operation { text: Some(text.to_owned()), ..Operation::default() })
    };
    assert!(check(" \n").unwrap_err().contains("SELECT 1"));
    assert_eq!(check("SELECT 2"), Ok(()));
    assert_eq!(check_operation(Scheme::Ignite, &Operation::default()), Ok(()));
}

proptest! {
    #[test]
    fn any_split_gives_the_same(
        pieces in prop::collection::vec(1..40usize, 1..12),
        order in Just([0u8, 1, 2, 3]).prop_shuffle(),
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        // two heartbeats, a statement that leaves a cursor, one that leaves none
        let mut wire = Vec::new();
        for number in order {
            let rest: &[u8] = match number {
                1 => b"\x05\xc3\xc3\xc2\xff",
                3 => ROWS,
                _ => b"",
            };
            wire.extend(message(&[&[number, 0], CLOCK, rest]));
        }
        wire.extend(message(&[b"\x04\0", CLOCK]));
        wire.extend(&noise);
        let outcome = |sizes: &[usize]| {
            let mut talk = open(None);
            for cue in [Cue::Ask, Cue::Operate, Cue::Ask, Cue::Operate] {
                talk.cue(cue).unwrap();
            }
            let (said, facts, failure) = talk.hears_in_pieces(&wire, sizes);
            (said, facts, failure.map(|failure| failure.kind))
        };
        let whole = outcome(&[usize::MAX]);
        prop_assert_eq!(whole.1.iter().filter(|fact| **fact == Answered).count(), 2);
        prop_assert_eq!(whole.1.iter().filter(|fact| **fact == Operated).count(), 2);
        prop_assert_eq!(outcome(&pieces), whole);
    }
}

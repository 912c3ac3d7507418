//! The MongoDB driver against a server's bytes, written by hand from its manual ("Wire Protocol") and bsonspec.org.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod talk;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use model::{Failure, FailureKind, Operation};
use proptest::prelude::*;
use protocols::mongodb::{MongoDb, Slot};
use protocols::{Cue, Driver as _, Fact, Plan};
use sha2::{Digest as _, Sha256};
use talk::{Talk, plan};

use Fact::{Answered, Done, LoggedIn, Operated, Ready, Upgraded};
use FailureKind::{Closed, LoginRefused, Protocol, ServerRefused};

const URL: &str = "mongodb://ann:pencil@h/shop?authSource=admin";
/// The element `ok: 1.0`.
const OK: &[u8] = b"\x01ok\0\0\0\0\0\0\0\xf0\x3f";
const PING: &[u8] = b"\x33\0\0\0\x02\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\
    \x1e\0\0\0\x10ping\0\x01\0\0\0\x02$db\0\x06\0\0\0admin\0\0";

/// A document of these elements, behind its length.
fn document(elements: &[&[u8]]) -> Vec<u8> {
    let elements = elements.concat();
    [&(elements.len() as u32 + 5).to_le_bytes()[..], &elements, b"\0"].concat()
}

/// An OP_MSG as servers send it: its length, a number of theirs, which message it answers, 2013, flags, a section.
fn answer(to: u32, elements: &[&[u8]]) -> Vec<u8> {
    let document = document(elements);
    let head = [21 + document.len() as u32, 77, to, 2013, 0].map(u32::to_le_bytes);
    [head.as_flattened(), &[0], &document].concat()
}

fn text(name: &str, value: &str) -> Vec<u8> {
    let length = (value.len() as u32 + 1).to_le_bytes();
    [b"\x02", name.as_bytes(), b"\0", &length, value.as_bytes(), b"\0"].concat()
}

fn int(name: &str, value: i32) -> Vec<u8> {
    [b"\x10", name.as_bytes(), b"\0", &value.to_le_bytes()].concat()
}

fn error(to: u32, code: i32, name: &str, words: &str) -> Vec<u8> {
    // as FerretDB orders them; MongoDB has `ok` first, too
    let not_ok = b"\x01ok\0\0\0\0\0\0\0\0\0";
    answer(to, &[not_ok, &text("errmsg", words), &int("code", code), &text("codeName", name)])
}

/// One step of a login: the conversation's number is 9.
fn step(to: u32, done: bool, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_le_bytes();
    let payload = [b"\x05payload\0", &length[..], b"\0", payload].concat();
    answer(to, &[&int("conversationId", 9), b"\x08done\0", &[u8::from(done)], &payload, OK])
}

/// A connection that is ready: its next message is the second.
fn open(plan: &Plan) -> Talk<MongoDb> {
    let mut talk = Talk::with(plan);
    assert_eq!(talk.hears(answer(1, &[OK])), Ok(vec![Upgraded, Ready]));
    talk.said.clear();
    talk
}

fn operating(text: Option<&str>) -> Talk<MongoDb> {
    let operation = Operation { text: text.map(str::to_owned), ..Operation::default() };
    assert_eq!(MongoDb::check(&operation), Ok(()));
    open(&Plan { operation: Some(operation), ..plan("mongodb://h/shop") })
}

#[test]
fn it_is_greeted_and_pinged() {
    let mut talk = Talk::<MongoDb>::to("mongodb://h");
    let hello = b"\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0";
    assert_eq!(talk.said[1..21], hello[..]);
    assert!(talk.said[25..].starts_with(b"\x10isMaster\0\x01\0\0\0\x08helloOk\0\x01\x03client\0"));
    assert!(talk.said.ends_with(b"\x02$db\0\x06\0\0\0admin\0\0"));
    assert_eq!(usize::from(talk.said[0]), talk.said.len());
    talk.said.clear();
    // what FerretDB 1.24 answers to it
    let greeting = b"\xfb\0\0\0\x02\0\0\0\x01\0\0\0\xdd\x07\0\0\0\0\0\0\0\xe6\0\0\0\x08isWritablePrimary\0\x01\
        \x10maxBsonObjectSize\0\0\0\0\x01\x10maxMessageSizeBytes\0\0l\xdc\x02\x10maxWriteBatchSize\0\xa0\x86\x01\0\
        \tlocalTime\0\xe3\x9ar\x02\xa2\x01\0\0\x10logicalSessionTimeoutMinutes\0\x1e\0\0\0\x10connectionId\0*\0\0\0\
        \x10minWireVersion\0\0\0\0\0\x10maxWireVersion\0\x15\0\0\0\x08readOnly\0\0\x01ok\0\0\0\0\0\0\0\xf0?\0";
    assert_eq!(talk.hears(&greeting[..200]), Ok(vec![]));
    assert!(talk.pending.len() < 30, "what tells nothing is passed over");
    assert_eq!(talk.hears(&greeting[200..]), Ok(vec![Upgraded, Ready]));
    talk.ask(1);
    assert_eq!(talk.said, PING);
    talk.ask(1);
    assert_eq!(talk.said[PING.len() + 4..PING.len() + 8], [3, 0, 0, 0]);
    let both = [answer(2, &[OK]), answer(3, &[b"\x10ok\0\x01\0\0\0"])].concat();
    assert_eq!(talk.hears(both), Ok(vec![Answered, Answered]));
    talk.cue(Cue::Finish).unwrap();
    assert_eq!(talk.facts, [Done]);
}

fn code(key: &[u8], text: &[u8]) -> Vec<u8> {
    Hmac::<Sha256>::new_from_slice(key).unwrap().chain_update(text).finalize().into_bytes().to_vec()
}

/// What a message has between two marks.
fn between(said: &[u8], before: &[u8], after: &[u8]) -> Vec<u8> {
    let find = |from: usize, mark: &[u8]| {
        from + said[from..].windows(mark.len()).position(|part| part == mark).expect("the mark is there")
    };
    let start = find(0, before) + before.len();
    said[start..find(start, after)].to_vec()
}

/// The server's side of SCRAM-SHA-256 up to its proof, from the client's first message; panics unless the client knows
/// "pencil".
fn scram(talk: &mut Talk<MongoDb>) -> Vec<u8> {
    let said = std::mem::take(&mut talk.said);
    assert_eq!(said[4..8], [2, 0, 0, 0]);
    assert!(
        said[25..]
            .starts_with(b"\x10saslStart\0\x01\0\0\0\x02mechanism\0\x0e\0\0\0SCRAM-SHA-256\0\x05payload\0")
    );
    assert!(
        said.ends_with(b"\x03options\0\x19\0\0\0\x08skipEmptyExchange\0\x01\0\x02$db\0\x06\0\0\0admin\0\0")
    );
    let ours = String::from_utf8(between(&said, b"n,,", b"\x03options")).unwrap();
    let salt = b"salt of 16 bytes";
    let theirs = format!("{}srv,s={},i=15000", ours.strip_prefix("n=ann,").unwrap(), STANDARD.encode(salt));
    talk.hears(step(2, false, theirs.as_bytes())).unwrap();
    let said = std::mem::take(&mut talk.said);
    assert!(
        said[25..].starts_with(b"\x10saslContinue\0\x01\0\0\0\x10conversationId\0\x09\0\0\0\x05payload\0")
    );
    let last = String::from_utf8(between(&said, b"\0\0\0\0c=", b"\x02$db")).unwrap();
    let (without, proof) = last.split_once(",p=").unwrap();
    assert!(without.starts_with("biws,r=") && without.ends_with("srv"), "{without}");
    let mut salted = [0; 32];
    pbkdf2::pbkdf2_hmac::<Sha256>(b"pencil", salt, 15_000, &mut salted);
    let whole = format!("{ours},{theirs},c={without}");
    let key = code(&salted, b"Client Key");
    let signature = code(&Sha256::digest(&key), whole.as_bytes());
    let expected: Vec<u8> = key.iter().zip(signature).map(|(a, b)| a ^ b).collect();
    assert_eq!(STANDARD.decode(proof).unwrap(), expected, "the client knows the password");
    let proof = code(&code(&salted, b"Server Key"), whole.as_bytes());
    format!("v={}", STANDARD.encode(proof)).into_bytes()
}

#[test]
fn a_login_by_scram() {
    let mut talk = Talk::<MongoDb>::to(URL);
    assert!(
        talk.said.ends_with(b"\x02saslSupportedMechs\0\x0a\0\0\0admin.ann\0\x02$db\0\x06\0\0\0admin\0\0")
    );
    talk.said.clear();
    let mechanisms = [
        &b"\x04saslSupportedMechs\0"[..],
        &document(&[&text("0", "SCRAM-SHA-1"), &text("1", "SCRAM-SHA-256")]),
    ];
    assert_eq!(talk.hears(answer(1, &[&mechanisms.concat(), OK])), Ok(vec![Upgraded]));
    let proof = scram(&mut talk);
    assert_eq!(talk.hears(step(3, true, &proof)), Ok(vec![LoggedIn, Ready]));
    assert!(talk.said.is_empty());
    let kept = format!("{:?}", talk.slot);
    assert!(kept.contains("signature: None") && kept.contains("told: None"), "{kept}");
    talk.ask(1);
    assert_eq!(talk.said[8..], PING[8..]);
    assert_eq!(talk.hears(answer(4, &[OK])), Ok(vec![Answered]));
}

#[test]
fn a_server_that_wants_an_empty_exchange_has_it() {
    let mut talk = Talk::<MongoDb>::to(URL);
    talk.said.clear();
    // a server that says nothing of mechanisms is tried
    talk.hears(answer(1, &[OK])).unwrap();
    let proof = scram(&mut talk);
    assert_eq!(talk.hears(step(3, false, &proof)), Ok(vec![]));
    assert!(talk.said[25..].starts_with(
        b"\x10saslContinue\0\x01\0\0\0\x10conversationId\0\x09\0\0\0\x05payload\0\0\0\0\0\0\x02$db\0\x06\0\0\0admin\0"
    ));
    assert_eq!(talk.hears(step(4, true, b"")), Ok(vec![LoggedIn, Ready]));
}

#[test]
fn a_login_that_fails() {
    let begun = || {
        let mut talk = Talk::<MongoDb>::to(URL);
        talk.said.clear();
        talk.hears(answer(1, &[OK])).unwrap();
        talk
    };
    let wrong = error(2, 18, "AuthenticationFailed", "Authentication failed.");
    begun().fails(
        &wrong,
        LoginRefused,
        "the server answered AuthenticationFailed (code 18): \"Authentication failed.\" to a login with \
         authSource=admin; check the user and the password in the URL",
    );
    begun().fails(
        error(2, 334, "MechanismUnavailable", "off"),
        LoginRefused,
        "MechanismUnavailable (code 334)",
    );
    let mut talk = begun();
    scram(&mut talk);
    talk.fails(step(3, true, b"v=AAAA"), LoginRefused, "could not prove that it knows the password");
    let mut talk = begun();
    let proof = scram(&mut talk);
    talk.hears(step(3, false, &proof)).unwrap();
    talk.fails(step(4, false, b""), Protocol, "does not come to an end");
    begun().fails(step(2, false, b"r=x,s=YQ==,i=1"), Protocol, "does not continue our nonce");
    begun().fails(answer(2, &[OK]), Protocol, "the server's first message of SCRAM-SHA-256");
    let only = [&b"\x04saslSupportedMechs\0"[..], &document(&[&text("0", "SCRAM-SHA-1")])].concat();
    Talk::<MongoDb>::to(URL).fails(
        answer(1, &[&only, OK]),
        LoginRefused,
        "lets this user in by \"SCRAM-SHA-1\", not by SCRAM-SHA-256; add it on the server: db.updateUser(USER, {",
    );
}

#[test]
fn what_else_is_refused() {
    let full = error(1, 0, "", "Too many open connections");
    Talk::<MongoDb>::to("mongodb://h").fails(full, ServerRefused, "Too many open connections");
    let ending = error(1, 91, "ShutdownInProgress", "The server is in quiesce mode");
    Talk::<MongoDb>::to("mongodb://h").fails(ending, ServerRefused, "quiesce");
    let unknown = error(1, 59, "CommandNotFound", "no such command: 'isMaster'");
    Talk::<MongoDb>::to("mongodb://h").fails(
        unknown,
        Protocol,
        "CommandNotFound (code 59): \"no such command",
    );
    let asked = || {
        let mut talk = open(&plan("mongodb://h"));
        talk.ask(1);
        talk
    };
    let needed = error(2, 13, "Unauthorized", "Command ping requires authentication");
    asked().fails(needed, LoginRefused, "write a login into the URL: mongodb://USER:PASSWORD@HOST");
    asked().fails(error(2, 11600, "InterruptedAtShutdown", "bye"), Closed, "InterruptedAtShutdown");
    asked().fails(error(2, 1, "", "why"), Protocol, "the server answered an error (code 1): \"why\"");
    // not even an error's words
    asked().fails(answer(2, &[]), Protocol, "code 0");
    asked().fails(error(2, 1, "\x1b[31m", &"x".repeat(9_000)), Protocol, "31m (code 1): \"\"");
}

#[test]
fn what_is_no_answer() {
    for garbage in [
        &b"HTTP/1.1 400 Bad Request\r\n\r\n"[..],
        b"-ERR unknown command 'x', with args beginning with",
        b"\x19\0\0\0",
        b"\x01\x6c\xdc\x02\0\0\0\0",
    ] {
        Talk::<MongoDb>::to("mongodb://h").fails(garbage, Protocol, "check that MongoDB listens there");
    }
    let bent = |at: usize, byte: u8| {
        let mut bytes = answer(1, &[OK]);
        bytes[at] = byte;
        bytes
    };
    let fails =
        |bytes: Vec<u8>, words: &str| Talk::<MongoDb>::to("mongodb://h").fails(bytes, Protocol, words);
    fails(bent(12, 0xd4), "check that MongoDB listens there");
    fails(bent(8, 2), "answered message 2 where 1 was due");
    // moreToCome, a bit that must be known, a checksum that is not there, a section of another kind
    fails(bent(16, 2), "flags 0x2");
    fails(bent(17, 0x80), "flags 0x8000");
    fails(bent(16, 1), "not one BSON document");
    fails(bent(20, 1), "not one BSON document");
    // a document of another length, a value that reaches beyond it, one that does not end, an unknown kind
    fails(bent(21, 18), "not one BSON document");
    fails(bent(25, 0x13), "not one BSON document");
    fails(bent(36, 0xff), "code 0");
    fails(bent(37, 1), "not one BSON document");
    fails(bent(25, 0x77), "not one BSON document");
    let mut open = open(&plan("mongodb://h"));
    open.fails(answer(2, &[OK]), Protocol, "though nothing was asked");
}

#[test]
fn a_flag_that_may_be_passed_over_and_a_checksum() {
    let mut talk = open(&plan("mongodb://h"));
    talk.ask(2);
    let mut bytes = answer(2, &[OK]);
    (bytes[0], bytes[16], bytes[18]) = (bytes[0] + 4, 1, 1);
    bytes.extend_from_slice(b"\xde\xad\xbe");
    assert_eq!(talk.hears(&bytes), Ok(vec![]));
    assert_eq!(talk.hears([b"\xef", &answer(3, &[OK])[..]].concat()), Ok(vec![Answered, Answered]));
}

#[test]
fn operations_are_commands() {
    let said = |text: Option<&str>| {
        let mut talk = operating(text);
        talk.cue(Cue::Operate).unwrap();
        assert_eq!(talk.said[..4], (talk.said.len() as u32).to_le_bytes());
        talk.said[21..].to_vec()
    };
    let find = |name: &str, more: &[&[u8]]| {
        let (find, limit) = (text("find", name), int("limit", 1));
        document(&[&[&find[..], &limit][..], more].concat())
    };
    let shop = text("$db", "shop");
    assert_eq!(said(None), find("plimsoll", &[b"\x08singleBatch\0\x01", &shop]));
    assert_eq!(said(Some(r#"{"find": "c", "limit": 1}"#)), find("c", &[b"\x08singleBatch\0\x01", &shop]));
    let theirs = r#"{"find": "c", "limit": 1, "singleBatch": false, "$db": "shop"}"#;
    assert_eq!(said(Some(theirs)), find("c", &[b"\x08singleBatch\0\0", &shop]));
    assert_eq!(said(Some(r#"{"count": "c"}"#)), document(&[&text("count", "c"), &shop]));
    for wrong in ["find c", "[]", "{}", r#"{"find": {"$oid": "x"}}"#] {
        let said =
            MongoDb::check(&Operation { text: Some(wrong.to_owned()), ..Operation::default() }).unwrap_err();
        assert!(said.starts_with("the operation "), "{said}");
    }
    assert_eq!(MongoDb::check(&Operation::default()), Ok(()));
}

#[test]
fn operations_are_told_apart_from_heartbeats() {
    let mut talk = operating(None);
    talk.ask(1);
    talk.cue(Cue::Operate).unwrap();
    talk.ask(1);
    assert_eq!(talk.hears(answer(2, &[OK])), Ok(vec![Answered]));
    assert_eq!(talk.hears([answer(3, &[OK]), answer(4, &[OK])].concat()), Ok(vec![Operated, Answered]));
    talk.cue(Cue::Operate).unwrap();
    let unknown = error(5, 59, "CommandNotFound", "no such command: 'fnid'");
    talk.fails(unknown, Protocol, "CommandNotFound (code 59): \"no such command: 'fnid'\" to the operation");
}

#[test]
fn a_long_answer_is_passed_over() {
    let mut talk = operating(None);
    talk.cue(Cue::Operate).unwrap();
    let cursor = document(&[&text("x", &"y".repeat(20_000_000))]);
    let long = answer(2, &[b"\x03cursor\0", &cursor, OK]);
    for piece in long.chunks(65_536) {
        let facts = talk.hears(piece).unwrap();
        assert_eq!(facts.len(), usize::from(talk.pending.is_empty() && facts == [Operated]));
        assert!(talk.pending.len() < 4_096, "{} bytes are kept", talk.pending.len());
    }
    talk.ask(1);
    assert_eq!(talk.hears(answer(3, &[OK])), Ok(vec![Answered]));
}

#[test]
fn a_write_that_was_not_done_is_refused() {
    let failed = |elements: &[&[u8]], words: &str| {
        let mut talk = operating(Some(r#"{"insert": "c", "documents": [{"_id": 1}]}"#));
        talk.cue(Cue::Operate).unwrap();
        talk.fails(answer(2, elements), Protocol, words);
    };
    let first = document(&[&int("index", 0), &int("code", 11000), &text("errmsg", "E11000 duplicate key")]);
    let errors = document(&[b"\x030\0", &first]);
    failed(
        &[&int("n", 0), b"\x04writeErrors\0", &errors, OK],
        "(code 11000): \"E11000 duplicate key\" to the operation",
    );
    let concern =
        document(&[&int("code", 64), &text("codeName", "WriteConcernFailed"), &text("errmsg", "waiting")]);
    failed(&[OK, b"\x03writeConcernError\0", &concern], "WriteConcernFailed (code 64): \"waiting\"");
    let long = document(&[b"\x030\0", &document(&[&text("errmsg", &"x".repeat(5_000))])]);
    failed(&[b"\x04writeErrors\0", &long, OK], "an error (code 0)");
    let mut talk = operating(None);
    talk.cue(Cue::Operate).unwrap();
    assert_eq!(talk.hears(answer(2, &[b"\x04writeErrors\0\x05\0\0\0\0", OK])), Ok(vec![Operated]));
}

#[test]
fn an_idle_connection_is_small() {
    assert!(size_of::<Slot>() <= 64);
}

/// What comes of these bytes in these pieces: what was said, the facts, and how it failed.
fn outcome(bytes: &[u8], sizes: &[usize]) -> (Vec<u8>, Vec<Fact>, Option<Failure>) {
    let mut talk = Talk::<MongoDb>::to("mongodb://h");
    talk.hears(answer(1, &[OK])).unwrap();
    talk.ask(3);
    talk.hears_in_pieces(bytes, sizes)
}

proptest! {
    #[test]
    fn pieces_make_no_difference(
        pieces in prop::collection::vec(1..60usize, 1..20),
        end in 0..3usize,
        at in 0..200usize,
        bit in 0..8u32,
    ) {
        let cursor = document(&[&int("id", 0), &text("ns", "test.plimsoll")]);
        let last = [
            answer(4, &[OK]),
            error(4, 1, "InternalError", "no"),
            answer(4, &[b"\x0bregex\0^a\0i\0", b"\x0aok\0"]),
        ];
        let mut bytes = [answer(2, &[OK]), answer(3, &[b"\x03cursor\0", &cursor, OK]), last[end].clone()].concat();
        prop_assert_eq!(outcome(&bytes, &pieces), outcome(&bytes, &[usize::MAX]));
        // and where a bit is wrong; the words of a failure may quote as much as has come
        if let Some(byte) = bytes.get_mut(at) {
            *byte ^= 1 << bit;
        }
        let (split, whole) = (outcome(&bytes, &pieces), outcome(&bytes, &[usize::MAX]));
        prop_assert_eq!((&split.0, &split.1), (&whole.0, &whole.1));
        prop_assert_eq!(split.2.map(|f| f.kind), whole.2.map(|f| f.kind));
    }
}

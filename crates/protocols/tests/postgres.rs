//! The PostgreSQL driver against a server's bytes, written by hand from "Message Formats" of its documentation.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use model::{Failure, FailureKind, Operation, Scheme, Target};
use proptest::prelude::*;
use protocols::postgres::{Postgres, Slot};
use protocols::{Cue, Driver as _, Fact, Machine as _, Out, Plan, check_operation};
use sha2::{Digest as _, Sha256};

use Fact::{Answered, Done, LoggedIn, Operated, Ready, StartTls};
use FailureKind::{Closed, ClosedEarly, LoginRefused, Protocol, ServerRefused, Tls};

const URL: &str = "postgres://ann:pencil@h/shop";
const OK: &[u8] = b"R\0\0\0\x08\0\0\0\0";
const PREPARED: &[u8] =
    b"S\0\0\0\x13TimeZone\0Etc/X\0K\0\0\0\x0c\0\0\x04\xd2\xde\xad\xbe\xefN\0\0\0\x05\0Z\0\0\0\x05I";
const EMPTY: &[u8] = b"I\0\0\0\x04Z\0\0\0\x05I";
const QUERY: &[u8] = b"Q\0\0\0\x05\0";

/// One connection, answered by hand.
struct Talk {
    driver: Postgres,
    slot: Slot,
    pending: Vec<u8>,
    said: Vec<u8>,
    facts: Vec<Fact>,
}

impl Talk {
    fn to(url: &str) -> Self {
        Self::with(&Plan::to(Target::parse(url).unwrap()))
    }

    fn with(plan: &Plan) -> Self {
        let driver = Postgres::new(plan);
        let (slot, pending, said, facts) = <(Slot, Vec<u8>, Vec<u8>, Vec<Fact>)>::default();
        let mut talk = Self { driver, slot, pending, said, facts };
        talk.cue(Cue::Connected).unwrap();
        talk
    }

    /// A session that stands.
    fn open() -> Self {
        Self::to(URL).opened()
    }

    /// The same, whose operation is under way.
    fn operating(text: Option<&str>) -> Self {
        let operation = Some(Operation { text: text.map(str::to_owned), ..Operation::default() });
        let mut talk = Self::with(&Plan { operation, ..Plan::to(Target::parse(URL).unwrap()) }).opened();
        talk.cue(Cue::Operate).unwrap();
        talk
    }

    fn opened(self) -> Self {
        let mut talk = self;
        talk.hears(OK).unwrap();
        talk.hears(PREPARED).unwrap();
        talk.said.clear();
        talk.facts.clear();
        talk
    }

    fn cue(&mut self, cue: Cue<'_>) -> Result<usize, Failure> {
        let mut out = Out::default();
        let result = self.driver.on(&mut self.slot, cue, &mut out);
        self.said.append(&mut out.bytes);
        self.facts.append(&mut out.facts);
        result
    }

    fn hears(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.pending.extend_from_slice(bytes);
        let pending = std::mem::take(&mut self.pending);
        let used = self.cue(Cue::Bytes(&pending))?;
        self.pending = pending[used..].to_vec();
        Ok(())
    }

    fn fails(&mut self, bytes: &[u8], kind: FailureKind, words: &str) {
        let failure = self.hears(bytes).unwrap_err();
        assert_eq!(failure.kind, kind, "{failure:?}");
        assert!(failure.text.contains(words), "{failure:?}");
    }

    fn said(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.said)
    }
}

fn message(letter: u8, body: &[u8]) -> Vec<u8> {
    [&[letter][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

fn authentication(code: u32, rest: &[u8]) -> Vec<u8> {
    message(b'R', &[&code.to_be_bytes()[..], rest].concat())
}

fn error(severity: &str, code: &str, text: &str) -> Vec<u8> {
    let body = format!("S{severity}\0V{severity}\0C{code}\0M{text}\0Fproc.c\0L374\0RInitProcess\0\0");
    message(b'E', body.as_bytes())
}

fn code(key: &[u8], text: &[u8]) -> Vec<u8> {
    Hmac::<Sha256>::new_from_slice(key).unwrap().chain_update(text).finalize().into_bytes().to_vec()
}

/// The server's side of SCRAM-SHA-256 up to its proof; panics unless the client knows "pencil".
fn scram(talk: &mut Talk, salt: &[u8]) -> Vec<u8> {
    talk.hears(&authentication(10, b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0")).unwrap();
    let said = talk.said();
    assert!(said.starts_with(b"p\0\0\0\x3eSCRAM-SHA-256\0\0\0\0\x28n,,n=,r="), "{said:?}");
    let ours = String::from_utf8(said[26..].to_vec()).unwrap();
    let theirs = format!("{}srv,s={},i=4096", ours.strip_prefix("n=,").unwrap(), STANDARD.encode(salt));
    talk.hears(&authentication(11, theirs.as_bytes())).unwrap();
    let last = String::from_utf8(talk.said()[5..].to_vec()).unwrap();
    let (without, proof) = last.split_once(",p=").unwrap();
    let all = format!("{ours},{theirs},{without}");
    let salted = pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(b"pencil", salt, 4096);
    let client = code(&salted, b"Client Key");
    let mut proven = STANDARD.decode(proof).unwrap();
    let mask = code(&Sha256::digest(&client), all.as_bytes());
    proven.iter_mut().zip(mask).for_each(|(byte, other)| *byte ^= other);
    assert_eq!(proven, client, "the client's proof");
    let signature = code(&code(&salted, b"Server Key"), all.as_bytes());
    authentication(12, format!("v={}", STANDARD.encode(signature)).as_bytes())
}

#[test]
fn a_session_by_trust_and_its_empty_queries() {
    let mut talk = Talk::to("postgres://ann@h/shop");
    assert_eq!(talk.said(), b"\0\0\0\x3a\0\x03\0\0user\0ann\0database\0shop\0application_name\0plimsoll\0\0");
    talk.cue(Cue::Ask).unwrap();
    assert!(talk.said().is_empty(), "nothing is asked before it is ready");
    talk.hears(OK).unwrap();
    assert_eq!(talk.facts, [LoggedIn]);
    talk.hears(PREPARED).unwrap();
    assert_eq!(talk.facts, [LoggedIn, Ready]);
    talk.cue(Cue::Ask).unwrap();
    talk.cue(Cue::Ask).unwrap();
    assert_eq!(talk.said(), [QUERY, QUERY].concat());
    // settings and notifications come between, and are passed over, not kept
    talk.hears(b"S\0\0\0\x08a\0b").unwrap();
    assert!(talk.pending.is_empty());
    talk.hears(b"\0A\0\0\0\x0a\0\0\0\x01c\0").unwrap();
    talk.hears(&[EMPTY, EMPTY].concat()).unwrap();
    assert_eq!(talk.facts, [LoggedIn, Ready, Answered, Answered]);
    talk.cue(Cue::Finish).unwrap();
    assert_eq!((talk.said().as_slice(), talk.facts.last()), (&b"X\0\0\0\x04"[..], Some(&Done)));
    talk.hears(b"whatever").unwrap();
}

#[test]
fn a_password_in_clear_and_by_md5() {
    let mut talk = Talk::to(URL);
    talk.said();
    talk.hears(b"R\0\0\0\x08\0\0\0\x03").unwrap();
    assert_eq!(talk.said(), b"p\0\0\0\x0bpencil\0");
    talk.hears(OK).unwrap();
    let mut talk = Talk::to("postgres://md5_user:password@h");
    talk.said();
    talk.hears(b"R\0\0\0\x0c\0\0\0\x05\x2a\x3d\x8f\xe0").unwrap();
    assert_eq!(talk.said(), b"p\0\0\0\x28md562af4dd09bbb41884907a838a3233294\0");
    talk.hears(OK).unwrap();
    assert_eq!(talk.facts, [LoggedIn]);
}

#[test]
fn both_sides_prove_by_scram_that_they_know_the_password() {
    let mut talk = Talk::to(URL);
    talk.said();
    let last = scram(&mut talk, b"salt");
    talk.hears(&last).unwrap();
    talk.hears(OK).unwrap();
    talk.hears(PREPARED).unwrap();
    assert_eq!(talk.facts, [LoggedIn, Ready]);
    // the same driver's next connection, which meets another salt
    talk.slot = Slot::default();
    talk.cue(Cue::Connected).unwrap();
    talk.said();
    let last = scram(&mut talk, b"pepper");
    talk.hears(&last).unwrap();
    talk.hears(OK).unwrap();
}

#[test]
fn a_server_that_does_not_know_the_password() {
    let mut talk = Talk::to(URL);
    talk.said();
    let mut last = scram(&mut talk, b"salt");
    *last.last_mut().unwrap() ^= 1;
    talk.fails(&last, LoginRefused, "could not prove");
    // and one that would rather not say
    let mut talk = Talk::to(URL);
    talk.said();
    scram(&mut talk, b"salt");
    talk.fails(OK, Protocol, "out of turn");
    let mut talk = Talk::to(URL);
    talk.hears(&authentication(10, b"SCRAM-SHA-256\0\0")).unwrap();
    talk.fails(&authentication(11, b"r=other,s=YQ==,i=4096"), Protocol, "our nonce");
}

#[test]
fn logins_that_cannot_succeed_say_what_would_help() {
    for ask in [authentication(3, b""), authentication(5, b"salt"), authentication(10, b"SCRAM-SHA-256\0\0")]
    {
        Talk::to("postgres://ann@h").fails(&ask, LoginRefused, "postgres://USER:PASSWORD@HOST");
    }
    Talk::to(URL).fails(&authentication(7, b""), LoginRefused, "pg_hba.conf");
    Talk::to(URL).fails(&authentication(10, b"OAUTHBEARER\0\0"), LoginRefused, "OAUTHBEARER");
    let wrong = error("FATAL", "28P01", "password authentication failed for user \"ann\"");
    Talk::to(URL).fails(
        &wrong,
        LoginRefused,
        "FATAL 28P01: password authentication failed for user \"ann\"; check",
    );
    let database = error("FATAL", "3D000", "database \"shop\" does not exist");
    let mut talk = Talk::to(URL);
    talk.hears(OK).unwrap();
    talk.fails(&database, LoginRefused, "FATAL 3D000: database \"shop\"");
}

#[test]
fn refusals_are_quoted() {
    let full = error("FATAL", "53300", "sorry, too many clients already");
    Talk::to(URL).fails(&full, ServerRefused, "FATAL 53300: sorry, too many clients already");
    let pooler = error("FATAL", "08P01", "no more connections allowed (max_client_conn)");
    Talk::to(URL).fails(&pooler, ServerRefused, "FATAL 08P01: no more connections allowed");
    let starting = error("FATAL", "57P03", "the database system is starting up");
    Talk::to(URL).fails(&starting, ClosedEarly, "FATAL 57P03: the database system is starting up");
    for wrong in ["SASL authentication failed", "no such database: shop"] {
        Talk::to(URL).fails(&error("FATAL", "08P01", wrong), LoginRefused, wrong);
    }
    let broken = error("FATAL", "08P01", "invalid startup packet layout");
    Talk::to(URL).fails(&broken, Protocol, "invalid startup packet");
    let fork = b"Ecould not fork new process for connection: Resource temporarily unavailable\n\0";
    Talk::to(URL).fails(fork, ClosedEarly, "could not fork new process for connection");
    // what one node of a cluster heard from another
    let passed_on = "SERROR\0VERROR\0C08001\0Mconnection to the remote node h:5432 failed\0\
                     DFATAL:  sorry, too many clients already\0\0";
    for mut talk in [Talk::open(), Talk::operating(None)] {
        let words = "ERROR 08001: connection to the remote node h:5432 failed (FATAL:  sorry, too many clients already)";
        talk.fails(&message(b'E', passed_on.as_bytes()), ServerRefused, words);
    }
    // of two severities the one that is not in the server's language
    let german = b"SFATAL auf Deutsch\0VFATAL\0C53300\0Mzu viele\0\0";
    Talk::to(URL).fails(&message(b'E', german), ServerRefused, "FATAL 53300: zu viele");
}

#[test]
fn the_end_of_a_session_that_stood() {
    let ended = error("FATAL", "57P01", "terminating connection due to administrator command");
    Talk::open().fails(&ended, Closed, "FATAL 57P01: terminating connection");
    let mut talk = Talk::open();
    talk.cue(Cue::Ask).unwrap();
    talk.fails(&error("ERROR", "57014", "canceling statement"), Protocol, "ERROR 57014");
}

#[test]
fn the_rows_of_an_operation_are_passed_over() {
    let mut talk = Talk::operating(None);
    talk.cue(Cue::Ask).unwrap();
    assert_eq!(talk.said(), [b"Q\0\0\0\x0dSELECT 1\0", QUERY].concat());
    let description = message(b'T', b"\0\x01?column?\0\0\0\0\0\0\0\0\0\0\x17\0\x04\xff\xff\xff\xff\0\0");
    let row = message(b'D', b"\0\x01\0\0\0\x011");
    let complete = message(b'C', b"SELECT 1\0");
    let ready = message(b'Z', b"I");
    talk.hears(&[&description[..], &row, &row, &complete, &ready, EMPTY].concat()).unwrap();
    assert_eq!(talk.facts, [Operated, Answered]);

    // several statements, one of them without rows, one without a statement, and one that is told something
    let mut talk = Talk::operating(Some("UPDATE a SET b = 'é'; SELECT 1"));
    assert_eq!(talk.said(), [b"Q\0\0\0\x24", "UPDATE a SET b = 'é'; SELECT 1".as_bytes(), b"\0"].concat());
    let notice = message(b'N', b"SNOTICE\0C00000\0Mhm\0\0");
    let update = message(b'C', b"UPDATE 0\0");
    talk.hears(&[&update[..], &notice, &description, &row, &complete, b"I\0\0\0\x04"].concat()).unwrap();
    assert!(talk.facts.is_empty(), "more results may follow");
    talk.hears(&ready).unwrap();
    assert_eq!(talk.facts, [Operated]);

    // a row of 100 MB
    talk.cue(Cue::Operate).unwrap();
    talk.hears(b"D\x06\0\0\x04").unwrap();
    for _ in 0..(6 << 24) / 65_536 {
        talk.hears(&[b'Z'; 65_536]).unwrap();
        assert!(talk.pending.is_empty(), "rows are not kept");
    }
    talk.hears(&[complete, ready].concat()).unwrap();
    assert_eq!(talk.facts, [Operated, Operated]);
}

#[test]
fn an_operation_that_is_refused() {
    let missing = error("ERROR", "42P01", "relation \"a\" does not exist");
    let words = "the operation was answered with ERROR 42P01: relation \"a\" does not exist";
    Talk::operating(Some("SELECT * FROM a")).fails(&missing, Protocol, words);
    let denied = error("ERROR", "28000", "role may not do that");
    Talk::operating(Some("SET ROLE a")).fails(&denied, Protocol, "ERROR 28000");
    let ended = error("FATAL", "57P01", "terminating connection due to administrator command");
    Talk::operating(None).fails(&ended, Closed, "FATAL 57P01");
    for copy in [b'G', b'H', b'W'] {
        Talk::operating(Some("COPY a FROM STDIN")).fails(&message(copy, b"\0\0\0"), Protocol, "without COPY");
    }
    Talk::operating(None).fails(b"Z\0\0\0\x05I", Protocol, "no place");
    Talk::operating(None).fails(b"D\x40\0\0\x01", Protocol, "no place");
    let refused = |text: String| {
        check_operation(Scheme::Postgres, &Operation { text: Some(text), ..Operation::default() })
    };
    assert!(refused("SELECT '\0'".to_owned()).unwrap_err().contains("NUL"));
    assert!(refused(" ".repeat(2 << 20)).unwrap_err().contains("at most 1048576"));
    assert_eq!(refused("SELECT 1".to_owned()), Ok(()));
}

#[test]
fn what_has_no_place() {
    for garbage in [
        &b"HTTP/1.1 400 Bad Request\r\n"[..],
        b"-ERR unknown command\r\n",
        b"R\0\0\0\x03",
        b"R\0\0\x10\0\0\0\0\0",
        b"\0\0\0\0\0",
        EMPTY,
    ] {
        Talk::to(URL).fails(garbage, Protocol, "check that PostgreSQL listens there");
    }
    Talk::to(URL).fails(b"R\0\0\0\x04", Protocol, "too short");
    Talk::to(URL).fails(&[&b"E"[..], &[b'x'; 1_200]].concat(), Protocol, "no place");
    // an answer that nobody asked for, half an answer, rows
    Talk::open().fails(EMPTY, Protocol, "no place");
    let mut talk = Talk::open();
    talk.cue(Cue::Ask).unwrap();
    talk.fails(b"Z\0\0\0\x05I", Protocol, "no place");
    let mut talk = Talk::open();
    talk.cue(Cue::Ask).unwrap();
    talk.fails(b"D\0\0\0\x06\0\0", Protocol, "no place");
}

#[test]
fn encryption_is_asked_for_first() {
    let url = "postgres://ann:pencil@h/shop?sslmode=require";
    let mut talk = Talk::to(url);
    assert_eq!(talk.said(), b"\0\0\0\x08\x04\xd2\x16\x2f");
    // what follows in clear is left for whoever begins TLS
    talk.hears(b"SR\0\0\0\x08\0\0\0\0").unwrap();
    assert_eq!((talk.facts.as_slice(), talk.pending.as_slice()), (&[StartTls][..], OK));
    talk.pending.clear();
    talk.cue(Cue::Connected).unwrap();
    assert!(talk.said().starts_with(b"\0\0\0\x3a\0\x03\0\0user\0"));
    talk.hears(OK).unwrap();
    Talk::to(url).fails(b"N", Tls, "sslmode=disable");
    Talk::to(url).fails(b"H", Protocol, "check that PostgreSQL listens there");
    Talk::to(url).fails(&error("FATAL", "53300", "full"), ServerRefused, "FATAL 53300: full");
}

#[test]
fn a_session_keeps_nothing_of_its_login() {
    assert!(size_of::<Slot>() <= 40);
    let mut talk = Talk::to(URL);
    talk.said();
    let last = scram(&mut talk, b"salt");
    talk.hears(&last).unwrap();
    talk.hears(OK).unwrap();
    assert!(format!("{:?}", talk.slot).contains("kept: None"), "{:?}", talk.slot);
    assert!(!format!("{:?}", talk.slot).contains("pencil"));
}

proptest! {
    #[test]
    fn pieces_make_no_difference(cuts in proptest::collection::vec(1..40usize, 1..20), end in 0..4usize) {
        let ends = [
            Vec::new(),
            error("FATAL", "57P01", "terminating connection due to administrator command"),
            b"D\0\0\0\x06\0\0".to_vec(),
            EMPTY.to_vec(),
        ];
        let whole = [OK, PREPARED, EMPTY, EMPTY, &ends[end]].concat();
        let outcome = |sizes: &[usize]| {
            let mut talk = Talk::to("postgres://ann@h/shop");
            let (mut rest, mut sizes) = (&whole[..], sizes.iter().cycle());
            let mut asked = false;
            while !rest.is_empty() {
                let (piece, after) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
                rest = after;
                if let Err(failure) = talk.hears(piece) {
                    return (talk.facts, talk.said, Some(failure));
                }
                if !asked && talk.facts.contains(&Ready) {
                    asked = true;
                    talk.cue(Cue::Ask).unwrap();
                    talk.cue(Cue::Ask).unwrap();
                }
            }
            (talk.facts, talk.said, None)
        };
        // asks go out once it is ready, so a piece must end there
        let ready = OK.len() + PREPARED.len();
        let mut sizes: Vec<usize> = Vec::new();
        for cut in cuts {
            let before: usize = sizes.iter().sum();
            sizes.push(if before < ready { cut.min(ready - before) } else { cut });
        }
        let before: usize = sizes.iter().sum();
        if before < ready {
            sizes.push(ready - before);
        }
        sizes.push(whole.len());
        prop_assert_eq!(outcome(&sizes), outcome(&[ready, whole.len()]));
    }
}

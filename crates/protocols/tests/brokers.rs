//! The drivers of redis, nats and mqtt against literal bytes of their specifications and servers.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod talk;

use Fact::{Answered, Done, LoggedIn, Ready, Upgraded};
use FailureKind::{Closed, LoginRefused, Protocol, ServerRefused};
use model::FailureKind;
use proptest::prelude::*;
use protocols::mqtt::Mqtt;
use protocols::nats::Nats;
use protocols::redis::Redis;
use protocols::{Cue, Driver, Fact, Plan};
use talk::{Talk, plan};

fn greeted<D: Driver>(url: &str, greeting: &[u8]) -> Talk<D> {
    let mut talk = Talk::to(url);
    assert_eq!(talk.hears(greeting).unwrap().last(), Some(&Ready), "{url}");
    talk.said.clear();
    talk
}

#[test]
fn redis_is_ready_at_the_first_pong() {
    let mut talk = Talk::<Redis>::to("redis://h");
    assert_eq!((talk.said.as_slice(), talk.facts.len()), (&b"PING\r\n"[..], 0));
    assert_eq!(talk.hears("+PO"), Ok(vec![]));
    assert_eq!(talk.hears("NG\r\n"), Ok(vec![Upgraded, Ready]));
    talk.ask(2);
    assert_eq!(talk.said, b"PING\r\nPING\r\nPING\r\n");
    assert_eq!(talk.hears("+PONG\r\n+PONG\r\n"), Ok(vec![Answered; 2]));
    talk.fails("+PONG\r\n", Protocol, "\"+PONG\", which is not the RESP answer that was due");
}

#[test]
fn redis_logs_in_with_whatever_the_password_holds() {
    let mut talk = Talk::<Redis>::to("redis://me:p%40%0D%0Ass@h");
    assert_eq!(talk.said, b"*3\r\n$4\r\nAUTH\r\n$2\r\nme\r\n$6\r\np@\r\nss\r\n");
    assert_eq!(talk.hears("+OK\r\n"), Ok(vec![LoggedIn, Ready]));
    assert_eq!(Talk::<Redis>::to("redis://:pw@h").said, b"*2\r\n$4\r\nAUTH\r\n$2\r\npw\r\n");
}

#[test]
fn redis_refuses_in_its_own_words() {
    let open = || Talk::<Redis>::to("redis://h");
    let login = || Talk::<Redis>::to("redis://:hunter2@h");
    open().fails(
        "-ERR max number of clients reached\r\n",
        ServerRefused,
        "-ERR max number of clients reached",
    );
    open().fails("-NOAUTH Authentication required.\r\n", LoginRefused, "redis://USER:PASSWORD@HOST");
    open().fails("-LOADING Redis is loading the dataset in memory\r\n", ServerRefused, "-LOADING");
    open().fails("-ERR unknown command 'PING'\r\n", Protocol, "unknown command");
    open().fails("HTTP/1.1 400 Bad Request\r\n", Protocol, "HTTP/1.1 400");
    open().fails("\x15\x03", Protocol, "RESP");
    open().fails("+OK\r\n", Protocol, "+OK");
    login().fails(
        "-WRONGPASS invalid username-password pair\r\n",
        LoginRefused,
        "check the user and the password",
    );
    login().fails("-ERR invalid password\r\n", LoginRefused, "-ERR invalid password");
    login().fails("-ERR max number of clients reached\r\n", ServerRefused, "max number");
    login().fails("+PONG\r\n", Protocol, "+PONG");
}

const INFO: &[u8] =
    b"INFO {\"server_id\":\"NAEX\",\"version\":\"2.9.10\",\"proto\":1,\"max_payload\":1048576}\r\n";

#[test]
fn nats_greets_answers_and_asks() {
    let mut talk = Talk::<Nats>::to("nats://h");
    assert!(talk.said.is_empty(), "the server speaks first");
    assert_eq!(talk.hears(INFO), Ok(vec![Upgraded]));
    let said = String::from_utf8(std::mem::take(&mut talk.said)).unwrap();
    let options =
        r#"CONNECT {"verbose":false,"pedantic":false,"tls_required":false,"protocol":1,"name":"plimsoll","#;
    assert!(said.starts_with(options) && said.ends_with("}\r\nPING\r\n"), "{said}");
    assert!(!said.contains("user") && !said.contains("pass") && !said.contains("auth_token"), "{said}");
    assert_eq!(talk.hears("PONG\r\n"), Ok(vec![Ready]));
    talk.ask(2);
    assert_eq!(talk.hears("PING\r\nPONG\r\n+OK\r\nPO"), Ok(vec![Answered]));
    assert_eq!(talk.hears([b"NG\r\n", INFO].concat()), Ok(vec![Answered]), "a cluster that changed says so");
    assert_eq!(talk.said, b"PING\r\nPING\r\nPONG\r\n");
    talk.fails("PONG\r\n", Protocol, "PONG");
}

#[test]
fn nats_logs_in() {
    let connect = |url: &str| {
        let mut talk = Talk::<Nats>::to(url);
        talk.hears(INFO).unwrap();
        assert_eq!(talk.hears("PONG\r\n"), Ok(vec![LoggedIn, Ready]));
        String::from_utf8(talk.said).unwrap()
    };
    let said = connect("nats://me:p%22w@h");
    assert!(said.contains(r#""pass":"p\"w","user":"me"}"#), "{said}");
    let said = connect("nats://s3cret@h");
    assert!(said.contains(r#""auth_token":"s3cret"}"#) && !said.contains("user"), "{said}");
}

#[test]
fn nats_refuses_in_its_own_words() {
    let connecting = || {
        let mut talk = Talk::<Nats>::to("nats://h");
        talk.hears(INFO).unwrap();
        talk
    };
    connecting().fails("-ERR 'Authorization Violation'\r\n", LoginRefused, "nats://USER:PASSWORD@HOST");
    connecting().fails("-ERR 'Authentication Timeout'\r\n", LoginRefused, "Timeout");
    connecting().fails(
        "-ERR 'maximum connections exceeded'\r\n",
        ServerRefused,
        "maximum connections exceeded",
    );
    connecting().fails("-ERR 'Unknown Protocol Operation'\r\n", Protocol, "Unknown");
    Talk::<Nats>::to("nats://h").fails("-ERR 'maximum connections exceeded'\r\n", ServerRefused, "exceeded");
    Talk::<Nats>::to("nats://h").fails("PONG\r\n", Protocol, "PONG");
    Talk::<Nats>::to("nats://h").fails("220 smtp", Protocol, "NATS");
    Talk::<Nats>::to("nats://h").fails("INFO {\"tls_required\":true}\r\n", ServerRefused, "TLS");
    let mut open = greeted::<Nats>("nats://h", &[INFO, b"PONG\r\n"].concat());
    open.fails("-ERR 'Stale Connection'\r\n", Closed, "Stale");
}

#[test]
fn mqtt_connects_as_the_specification_has_it() {
    let of = |url: &str, silence_seconds| {
        Talk::<Mqtt>::with(&Plan { silence_seconds, salt: 0xabcd_ef01_2345_6789, ..plan(url) }).said
    };
    let nobody = of("mqtt://h", None);
    assert_eq!(nobody, b"\x10\x22\0\x04MQTT\x04\x02\0\0\0\x16plabcdef01234500000000");
    let user = of("mqtt://me:pw@h", Some(14.2));
    assert_eq!(user, b"\x10\x2a\0\x04MQTT\x04\xc2\0\x0f\0\x16plabcdef01234500000000\0\x02me\0\x02pw");
    let five = of("mqtt://me@h?version=5", Some(1e9));
    assert_eq!(five, b"\x10\x27\0\x04MQTT\x05\x82\xff\xff\0\0\x16plabcdef01234500000000\0\x02me");
    let long = of(&format!("mqtt://{}@h", "u".repeat(200)), None);
    assert_eq!(long[..3], [0x10, 0xec, 0x01], "34 and 202 bytes");
    let driver = Mqtt::new(&plan("mqtt://h"));
    let said = |_| {
        let mut out = protocols::Out::default();
        protocols::Machine::on(&driver, &mut Default::default(), Cue::Connected, &mut out).unwrap();
        out.bytes
    };
    assert_eq!(
        (0..100).map(said).collect::<std::collections::HashSet<_>>().len(),
        100,
        "each has its own name"
    );
}

#[test]
fn mqtt_is_ready_once_accepted_and_says_goodbye() {
    let mut talk = Talk::<Mqtt>::to("mqtt://h");
    assert_eq!(talk.hears(b"\x20\x02\0"), Ok(vec![]));
    assert_eq!(talk.hears(b"\0"), Ok(vec![Upgraded, Ready]));
    talk.said.clear();
    talk.ask(2);
    assert_eq!(talk.said, b"\xc0\0\xc0\0");
    assert_eq!(talk.hears(b"\xd0\0\xd0"), Ok(vec![Answered]));
    assert_eq!(talk.hears(b"\0"), Ok(vec![Answered]));
    talk.said.clear();
    talk.cue(Cue::Finish).unwrap();
    assert_eq!((talk.said.as_slice(), talk.facts.last()), (&b"\xe0\0"[..], Some(&Done)));
    assert_eq!(Talk::<Mqtt>::to("mqtt://a:b@h").hears(b"\x20\x02\0\0"), Ok(vec![LoggedIn, Ready]));
    let properties = b"\x20\x09\0\0\x06\x22\0\x0a\x21\0\x14";
    assert_eq!(Talk::<Mqtt>::to("mqtt://h?version=5").hears(properties), Ok(vec![Upgraded, Ready]));
}

#[test]
fn mqtt_codes_are_told_in_words() {
    let three = |bytes: &[u8], kind, words| Talk::<Mqtt>::to("mqtt://h").fails(bytes, kind, words);
    let five =
        |bytes: &[u8], kind, words| Talk::<Mqtt>::to("mqtt://a:b@h?version=5").fails(bytes, kind, words);
    three(b"\x20\x02\0\x01", Protocol, "?version=5");
    three(b"\x20\x02\0\x03", ServerRefused, "code 0x03, server unavailable");
    three(b"\x20\x02\0\x05", LoginRefused, "not authorized; write a login into the URL");
    five(b"\x20\x03\0\x87\0", LoginRefused, "not authorized; check the user");
    five(b"\x20\x03\0\x97\0", ServerRefused, "quota exceeded");
    five(b"\x20\x03\0\x9f\0", ServerRefused, "connection rate exceeded");
    five(b"\x20\x02\0\x01", Protocol, "unacceptable protocol version");
    three(b"\x20\x03\0\0\0", Protocol, "3.1.1 does not allow");
    three(b"\x30", Protocol, "does not allow");
    three(b"\xd0", Protocol, "does not allow");
    three(b"HTTP", Protocol, "HTTP");
    five(b"\x20\xff\xff\xff\x7f", Protocol, "does not allow");
    five(b"\x20\xff\xff\xff\xff", Protocol, "does not allow");
    let mut open = greeted::<Mqtt>("mqtt://h?version=5", b"\x20\x03\0\0\0");
    open.fails(b"\xe0\x02\x8b\0", Closed, "server shutting down");
    let mut open = greeted::<Mqtt>("mqtt://h", b"\x20\x02\0\0");
    open.fails(b"\xe0\0", Protocol, "does not allow");
}

/// What comes of the server's bytes, in the pieces that they are cut into: what was said, the facts, and how it failed.
fn outcome<D: Driver>(url: &str, wire: &[u8], pieces: &[usize]) -> (Vec<u8>, Vec<Fact>, Option<FailureKind>) {
    let mut talk = Talk::<D>::to(url);
    let (mut facts, mut rest) = (Vec::new(), wire);
    let mut sizes = pieces.iter().copied().cycle();
    while !rest.is_empty() {
        let (piece, after) = rest.split_at(sizes.next().unwrap().min(rest.len()));
        rest = after;
        match talk.hears(piece) {
            Ok(more) => facts.extend(more),
            Err(failure) => {
                facts.append(&mut talk.facts);
                return (talk.said, facts, Some(failure.kind));
            }
        }
    }
    (talk.said, facts, None)
}

proptest! {
    #[test]
    fn any_split_gives_the_same(pieces in prop::collection::vec(1..40usize, 1..12), noise in prop::collection::vec(any::<u8>(), 0..12)) {
        fn same<D: Driver>(url: &str, wire: &[u8], noise: &[u8], pieces: &[usize]) {
            let wire = [wire, noise].concat();
            assert_eq!(outcome::<D>(url, &wire, pieces), outcome::<D>(url, &wire, &[usize::MAX]), "{url}");
        }
        same::<Redis>("redis://h", b"+PONG\r\n", &noise, &pieces);
        same::<Redis>("redis://a:b@h", b"+OK\r\n-LOADING a\r\n", &noise, &pieces);
        same::<Nats>("nats://a:b@h", &[INFO, b"PING\r\n+OK\r\nPONG\r\nPING\r\n"].concat(), &noise, &pieces);
        same::<Nats>("nats://h", &[INFO, b"-ERR 'Authorization Violation'\r\n"].concat(), &noise, &pieces);
        same::<Mqtt>("mqtt://h", b"\x20\x02\0\0", &noise, &pieces);
        same::<Mqtt>("mqtt://h?version=5", b"\x20\x09\0\0\x06\x22\0\x0a\x21\0\x14\xe0\x02\x8b\0", &noise, &pieces);
    }
}

//! The drivers of redis, nats and mqtt against literal bytes of their specifications and servers.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

mod talk;

use Fact::{Answered, Done, LoggedIn, Operated, Ready, StartTls, Upgraded};
use FailureKind::{Closed, LoginRefused, Protocol, ServerRefused, Tls};
use model::{FailureKind, Operation, Scheme};
use proptest::prelude::*;
use protocols::mqtt::Mqtt;
use protocols::nats::Nats;
use protocols::redis::Redis;
use protocols::{Cue, Driver, Fact, Plan, check_operation};
use talk::{Talk, operating, plan};

fn greeted<D: Driver>(url: &str, greeting: &[u8]) -> Talk<D> {
    ready(&plan(url), greeting)
}

fn ready<D: Driver>(plan: &Plan, greeting: &[u8]) -> Talk<D> {
    let mut talk = Talk::with(plan);
    assert_eq!(talk.hears(greeting).unwrap().last(), Some(&Ready), "{}", plan.target);
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

#[test]
fn redis_answers_are_passed_over_whatever_they_are() {
    let mut talk: Talk<Redis> = ready(&operating("redis://h", None), b"+PONG\r\n");
    talk.operate(1);
    assert_eq!(talk.said, b"*2\r\n$4\r\nECHO\r\n$8\r\nplimsoll\r\n");
    assert_eq!(talk.hears("$8\r\nplims"), Ok(vec![]));
    assert!(talk.pending.is_empty(), "half an answer is not kept");
    assert_eq!(talk.hears("oll\r\n"), Ok(vec![Operated]));

    let mut talk: Talk<Redis> = ready(&operating("redis://h", Some("SET k \"a b\"")), b"+PONG\r\n");
    talk.ask(1);
    talk.operate(1);
    assert_eq!(talk.said, b"PING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$3\r\na b\r\n");
    assert_eq!(talk.hears("+PONG\r\n+OK\r\n"), Ok(vec![Answered, Operated]));
    for answer in [
        ":1000\r\n",
        "$-1\r\n",
        "*-1\r\n",
        "*0\r\n",
        "$0\r\n\r\n",
        "$6\r\n-ERR\r\n\r\n",
        "*3\r\n:1\r\n*2\r\n$3\r\na\r\n\r\n*0\r\n+c\r\n",
        "*1\r\n*1\r\n*1\r\n*2\r\n$-1\r\n:-5\r\n",
    ] {
        talk.operate(1);
        talk.ask(1);
        assert_eq!(talk.hears(format!("{answer}+PONG\r\n")), Ok(vec![Operated, Answered]), "{answer:?}");
    }
    talk.operate(1);
    assert_eq!(talk.hears("*2\r\n$30000000\r\n"), Ok(vec![]));
    for _ in 0..300 {
        assert_eq!(talk.hears(vec![b'x'; 100_000]), Ok(vec![]));
        assert!(talk.pending.is_empty(), "30 MB are not kept");
    }
    assert_eq!(talk.hears("\r\n:1\r\n"), Ok(vec![Operated]));
    // as deep as anybody likes: depth is not remembered
    talk.operate(1);
    assert_eq!(talk.hears("*1\r\n".repeat(100_000)), Ok(vec![]));
    assert_eq!(talk.hears(":1\r\n"), Ok(vec![Operated]));
}

#[test]
fn several_redis_commands_are_one_operation() {
    let plan = operating("redis://h", Some("SET a 1\n\nLRANGE l 0 -1\nGET a\n"));
    let mut talk: Talk<Redis> = ready(&plan, b"+PONG\r\n");
    for _ in 0..2 {
        talk.said.clear();
        talk.operate(1);
        talk.ask(1);
        let set = "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n";
        let range = "*4\r\n$6\r\nLRANGE\r\n$1\r\nl\r\n$1\r\n0\r\n$2\r\n-1\r\n";
        let all = format!("{set}{range}*2\r\n$3\r\nGET\r\n$1\r\na\r\nPING\r\n");
        assert_eq!(String::from_utf8_lossy(&talk.said), all);
        assert_eq!(talk.hears("+OK\r\n*2\r\n+a\r\n"), Ok(vec![]));
        assert_eq!(talk.hears("$1\r\nb\r\n"), Ok(vec![]), "the last is yet to come");
        assert_eq!(talk.hears("$1\r\n1\r\n+PONG\r\n"), Ok(vec![Operated, Answered]));
    }
}

#[test]
fn a_redis_operation_is_refused_in_the_server_s_words() {
    let operating = |text: &str| {
        let mut talk: Talk<Redis> = ready(&operating("redis://h", Some(text)), b"+PONG\r\n");
        talk.operate(1);
        talk
    };
    let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    operating("GET l").fails(wrong, Protocol, "the operation was answered with \"-WRONGTYPE Operation");
    operating("GET").fails("-ERR wrong number of arguments\r\n", Protocol, "wrong number of arguments");
    operating("SET a b").fails("-NOPERM no permissions\r\n", LoginRefused, "-NOPERM");
    operating("SET a b").fails("*2\r\n:1\r\n-OOM\r\n", Protocol, "-OOM");
    for bad in ["$x\r\n", "$-2\r\n", "$+1\r\n", "*4294967296\r\n", "$4294967295\r\n", "!1\r\n", "\x15"] {
        operating("GET a").fails(bad, Protocol, "which is not the RESP answer");
    }
    operating("GET a").fails("*2\r\n*4294967295\r\n", Protocol, "not the RESP answer");
    greeted::<Redis>("redis://h", b"+PONG\r\n").fails("$1\r\n", Protocol, "not the RESP answer");
    let refused = |text: &str| {
        check_operation(Scheme::Rediss, &Operation { text: Some(text.to_owned()), ..Operation::default() })
    };
    assert!(refused("subscribe news").unwrap_err().starts_with("SUBSCRIBE changes how"));
    assert_eq!(refused("LRANGE \"my list\" 0 -1"), Ok(()));
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
    let mut open = greeted::<Nats>("nats://h", &[INFO, b"PONG\r\n"].concat());
    open.fails("-ERR 'Stale Connection'\r\n", Closed, "Stale");
}

#[test]
fn nats_begins_tls_behind_its_info() {
    let required = b"INFO {\"server_id\":\"N\",\"tls_required\":true}\r\n";
    let mut talk = Talk::<Nats>::to("nats://h");
    // what follows in clear is left for whoever begins TLS
    assert_eq!(talk.hears([&required[..], b"PONG\r\n"].concat()), Ok(vec![Upgraded, StartTls]));
    assert_eq!((talk.said.as_slice(), talk.pending.as_slice()), (&b""[..], &b"PONG\r\n"[..]));
    talk.pending.clear();
    talk.cue(Cue::Connected).unwrap();
    assert!(talk.said.starts_with(b"CONNECT {") && talk.said.ends_with(b"}\r\nPING\r\n"));
    assert_eq!(talk.hears("PONG\r\n"), Ok(vec![Ready]));
    let offered = b"INFO {\"tls_available\":true}\r\n";
    assert_eq!(Talk::<Nats>::to("nats://h").hears(offered), Ok(vec![Upgraded]), "it was not asked for");
    let mut talk = Talk::<Nats>::to("nats://h?tls=true");
    assert_eq!(talk.hears(offered), Ok(vec![Upgraded, StartTls]));
    talk.cue(Cue::Connected).unwrap();
    assert!(String::from_utf8(talk.said).unwrap().contains(r#""tls_required":true"#));
    Talk::<Nats>::to("nats://h?tls=true").fails(INFO, Tls, "leave out ?tls=true");
    let named = b"INFO {\"server_name\":\"\\\"tls_required\\\":true\"}\r\n";
    assert_eq!(Talk::<Nats>::to("nats://h").hears(named), Ok(vec![Upgraded]), "only a name");
}

#[test]
fn nats_messages_come_back_to_who_sent_them() {
    let greeting = [INFO, b"PONG\r\n"].concat();
    let mut talk = Talk::<Nats>::with(&operating("nats://h", None));
    talk.hears(INFO).unwrap();
    let ends = b"}\r\nSUB _INBOX.abcdef0123456789.00000000 1\r\nPING\r\n";
    assert!(talk.said.ends_with(ends), "{:?}", String::from_utf8_lossy(&talk.said));
    assert_eq!(talk.hears("PONG\r\n"), Ok(vec![Ready]));
    talk.said.clear();
    talk.operate(2);
    talk.ask(1);
    let publish = "PUB _INBOX.abcdef0123456789.00000000 32\r\nplimsoll asks whether it is back\r\n";
    assert_eq!(talk.said, format!("{publish}{publish}PING\r\n").as_bytes());
    let message = "MSG _INBOX.abcdef0123456789.00000000 1 32\r\nplimsoll asks whether it is back\r\n";
    assert_eq!(talk.hears(&message[..60]), Ok(vec![]));
    assert!(talk.pending.is_empty(), "half a payload is not kept");
    assert_eq!(
        talk.hears(format!("{}PONG\r\n{message}", &message[60..])),
        Ok(vec![Operated, Answered, Operated])
    );
    talk.fails(message, Protocol, "MSG _INBOX");

    let operating = || {
        let mut talk: Talk<Nats> = ready(&operating("nats://h", Some("hé\r\n!")), &greeting);
        talk.operate(1);
        talk
    };
    assert_eq!(operating().said, "PUB _INBOX.abcdef0123456789.00000000 6\r\nhé\r\n!\r\n".as_bytes());
    let answered = operating().hears("MSG _INBOX.abcdef0123456789.00000000 1 _R.x 6\r\nhé\r\n!\r\n");
    assert_eq!(answered, Ok(vec![Operated]));
    operating().fails("MSG a 1 5\r\n", Protocol, "MSG a 1 5");
    operating().fails("MSG a 2 6\r\n", Protocol, "MSG a 2 6");
    operating().fails("MSG\r\n", Protocol, "MSG");
    let denied = "-ERR 'Permissions Violation for Publish to \"_INBOX.x\"'\r\n";
    operating().fails(denied, Protocol, "Permissions Violation for Publish to");
    greeted::<Nats>("nats://h", &greeting).fails("MSG a 1 1\r\n", Protocol, "NATS");
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

/// The topic of the first connection, with its length.
const TOPIC: &[u8] = b"\0\x22plimsoll/abcdef0123456789/00000000";

#[test]
fn mqtt_messages_come_back_to_who_sent_them() {
    let mut talk = Talk::<Mqtt>::with(&operating("mqtt://h", None));
    talk.said.clear();
    assert_eq!(talk.hears(b"\x20\x02\0\0"), Ok(vec![Upgraded]), "not ready without its subscription");
    assert_eq!(talk.said, [b"\x82\x27\0\x01", TOPIC, b"\0"].concat());
    assert_eq!(talk.hears(b"\x90\x03\0\x01\0"), Ok(vec![Ready]));
    talk.said.clear();
    talk.operate(2);
    talk.ask(1);
    let message = [b"\x30\x44", TOPIC, b"plimsoll asks whether it is back"].concat();
    assert_eq!(talk.said, [&message[..], &message, b"\xc0\0"].concat());
    assert_eq!(talk.hears(&message[..50]), Ok(vec![]));
    assert!(talk.pending.is_empty(), "half a payload is not kept");
    assert_eq!(
        talk.hears([&message[50..], b"\xd0\0", &message].concat()),
        Ok(vec![Operated, Answered, Operated])
    );
    talk.fails(message, Protocol, "does not allow");
    let long = "x".repeat(300);
    let mut talk: Talk<Mqtt> = ready(&operating("mqtt://h", Some(&long)), b"\x20\x02\0\0\x90\x03\0\x01\0");
    talk.operate(1);
    assert_eq!(talk.said, [b"\x30\xd0\x02", TOPIC, long.as_bytes()].concat());
    assert_eq!(talk.hears([b"\x30\x24", TOPIC].concat()), Ok(vec![Operated]), "an empty payload");
    talk.operate(1);
    talk.fails([b"\x32\x26", TOPIC, b"\0\x01"].concat(), Protocol, "does not allow");
}

#[test]
fn mqtt_messages_are_acknowledged_both_ways() {
    let five = b"\x20\x03\0\0\0\x90\x04\0\x01\0\x01";
    let mut talk = Talk::<Mqtt>::with(&operating("mqtt://h?version=5&qos=1", Some("hi")));
    talk.said.clear();
    assert_eq!(talk.hears(five), Ok(vec![Upgraded, Ready]));
    assert_eq!(talk.said, [b"\x82\x28\0\x01\0", TOPIC, b"\x01"].concat());
    talk.said.clear();
    talk.operate(2);
    let sent = |id: &[u8]| [b"\x32\x29", TOPIC, id, b"\0hi"].concat();
    assert_eq!(talk.said, [sent(b"\0\x01"), sent(b"\0\x02")].concat());
    talk.said.clear();
    assert_eq!(talk.hears(b"\x40\x02\0\x01"), Ok(vec![]));
    assert_eq!(talk.hears(&sent(b"\x12\x34")[..40]), Ok(vec![]));
    assert!(talk.said.is_empty(), "nothing is acknowledged before it has come whole");
    assert_eq!(talk.hears(&sent(b"\x12\x34")[40..]), Ok(vec![Operated]));
    assert_eq!(talk.said, b"\x40\x02\x12\x34");
    // without a subscriber there (0x10) it was still taken; and a broker may deliver with less than was asked for
    assert_eq!(talk.hears(b"\x40\x03\0\x02\x10"), Ok(vec![]));
    assert_eq!(talk.hears([b"\x30\x27", TOPIC, b"\0hi"].concat()), Ok(vec![Operated]));
    talk.operate(1);
    talk.fails(
        b"\x40\x03\0\x03\x87",
        Protocol,
        "message to its own topic was refused with code 0x87, not authorized",
    );

    let mut talk: Talk<Mqtt> = ready(&operating("mqtt://h?qos=1", None), b"\x20\x02\0\0\x90\x03\0\x01\x01");
    for round in 1..=65_537_u32 {
        talk.said.clear();
        talk.operate(1);
        let id = ((round - 1) % 65_535 + 1) as u16;
        assert_eq!(talk.said[38..40], id.to_be_bytes(), "0 is no packet identifier");
        let [high, low] = id.to_be_bytes();
        let back = [&[0x40, 2, high, low, 0x30, 0x24], TOPIC].concat();
        assert_eq!(talk.hears(back), Ok(vec![Operated]));
    }
    talk.operate(2);
    talk.fails(b"\x40\x02\0\x04", Protocol, "what was not sent, or not next");
}

#[test]
fn an_mqtt_subscription_that_is_refused() {
    let subscribing = |url: &str| {
        let mut talk = Talk::<Mqtt>::with(&operating(url, None));
        talk.hears(b"\x20\x02\0\0").unwrap();
        talk
    };
    subscribing("mqtt://h").fails(b"\x90\x03\0\x01\x80", Protocol, "refused with code 0x80");
    let five = b"\x90\x07\0\x01\x03\x1f\0\0\x87";
    let mut talk = Talk::<Mqtt>::with(&operating("mqtt://h?version=5", None));
    talk.hears(b"\x20\x03\0\0\0").unwrap();
    talk.fails(
        five,
        Protocol,
        "subscription to its own topic was refused with code 0x87, not authorized; let this user",
    );
    subscribing("mqtt://h").fails(b"\x90\x03\0\x02\0", Protocol, "what was not sent");
    subscribing("mqtt://h").fails(b"\x30\x02\0\0", Protocol, "does not allow");
    let mut talk = subscribing("mqtt://h");
    talk.said.clear();
    talk.cue(Cue::Finish).unwrap();
    assert_eq!(talk.said, b"\xe0\0");
}

/// What comes of the server's bytes, in the pieces that they are cut into: what was said, the facts, and how it failed.
fn outcome<D: Driver>(url: &str, wire: &[u8], pieces: &[usize]) -> (Vec<u8>, Vec<Fact>, Option<FailureKind>) {
    let (said, facts, failure) = Talk::<D>::to(url).hears_in_pieces(wire, pieces);
    (said, facts, failure.map(|failure| failure.kind))
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

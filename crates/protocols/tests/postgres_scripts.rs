//! What a client of PostgreSQL sends whose operations are scripts of pgbench, in each mode, and what it costs.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use model::{Failure, FailureKind, Operation, QueryMode, Scheme, Script, Scripts, Target};
use protocols::postgres::{Postgres, Slot};
use protocols::{Cue, Driver as _, Fact, Machine as _, Out, Plan, check_operation};

use Fact::{Answered, Operated};

/// Counts what is asked of the system by this thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[expect(unsafe_code, reason = "an allocator can be written in no other way")]
// SAFETY: all is left to the system's own allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const READY: &[u8] = b"Z\0\0\0\x05I";
const DONE: &[u8] = b"C\0\0\0\x05\0";
const EMPTY: &[u8] = b"Q\0\0\0\x05\0";
/// ParseComplete, BindComplete and NoData.
const PARSED: &[u8] = b"1\0\0\0\x04";
const BOUND: &[u8] = b"2\0\0\0\x04n\0\0\0\x04";
/// Describe and Execute of the portal without a name, and Sync.
const FINISH: &[u8] = b"D\0\0\0\x06P\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";

struct Talk {
    driver: Postgres,
    slot: Slot,
    out: Out,
}

fn scripts(mode: QueryMode, text: &str) -> Scripts {
    let variables = [("scale", "3"), ("default_seed", "5")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let script = Script { name: "one.sql".to_owned(), text: text.to_owned(), weight: 1 };
    Scripts { scripts: vec![script], mode, variables }
}

impl Talk {
    fn open(mode: QueryMode, text: &str) -> Self {
        let operation = Operation { scripts: Some(scripts(mode, text)), ..Operation::default() };
        assert_eq!(check_operation(Scheme::Postgres, &operation), Ok(()));
        let target = Target::parse("postgres://ann@h/shop").unwrap();
        let plan = Plan { operation: Some(operation), worker: 1, workers: 4, ..Plan::to(target) };
        let mut talk = Self { driver: Postgres::new(&plan), slot: Slot::default(), out: Out::default() };
        talk.open_another();
        talk
    }

    /// The next connection of the same driver.
    fn open_another(&mut self) {
        self.slot = Slot::default();
        self.cue(Cue::Connected).unwrap();
        self.hears(&[b"R\0\0\0\x08\0\0\0\0", READY]).unwrap();
        self.out = Out::default();
    }

    fn cue(&mut self, cue: Cue<'_>) -> Result<usize, Failure> {
        self.driver.on(&mut self.slot, cue, &mut self.out)
    }

    fn hears(&mut self, parts: &[&[u8]]) -> Result<(), Failure> {
        let bytes = parts.concat();
        assert_eq!(self.cue(Cue::Bytes(&bytes))?, bytes.len());
        Ok(())
    }

    fn operate(&mut self) -> Vec<u8> {
        self.cue(Cue::Operate).unwrap();
        self.said()
    }

    /// What is said once this was heard.
    fn after(&mut self, parts: &[&[u8]]) -> Vec<u8> {
        self.hears(parts).unwrap();
        self.said()
    }

    fn said(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out.bytes)
    }

    fn facts(&mut self) -> Vec<Fact> {
        std::mem::take(&mut self.out.facts)
    }
}

fn message(letter: u8, body: &[u8]) -> Vec<u8> {
    [&[letter][..], &(body.len() as u32 + 4).to_be_bytes(), body].concat()
}

#[test]
fn in_simple_mode_values_are_written_into_the_text() {
    let mut talk = Talk::open(
        QueryMode::Simple,
        "BEGIN;\n\\set a :scale * 2\n\\set b 1.5\nSELECT :a, ':b', 1::int;\nEND;",
    );
    assert_eq!(talk.operate(), message(b'Q', b"BEGIN;\0"));
    assert_eq!(talk.after(&[DONE, READY]), message(b'Q', b"SELECT 6, '1.5', 1::int;\0"));
    assert_eq!(talk.after(&[b"T\0\0\0\x06\0\0D\0\0\0\x06\0\0", DONE, READY]), message(b'Q', b"END;\0"));
    assert!(talk.facts().is_empty(), "the script is not over");
    assert!(talk.after(&[DONE, READY]).is_empty());
    assert_eq!(talk.facts(), [Operated]);
    assert_eq!(talk.operate(), message(b'Q', b"BEGIN;\0"));
}

#[test]
fn in_the_other_modes_values_are_parameters() {
    let text = "\\set a -7\n\\set n null\nSELECT :a + :scale, :n, :a;\nSELECT 2;";
    let bind = |name: &[u8]| {
        let parameters = b"\0\0\0\x04\0\0\0\x02-7\0\0\0\x013\xff\xff\xff\xff\0\0\0\x02-7\0\0";
        message(b'B', &[b"\0", name, b"\0", &parameters[..]].concat())
    };
    let second = |name: &[u8]| message(b'B', &[b"\0", name, b"\0\0\0\0\0\0\0"].concat());
    let parse = |name: &[u8], sql: &[u8]| message(b'P', &[name, b"\0", sql, b"\0\0\0"].concat());

    let mut talk = Talk::open(QueryMode::Extended, text);
    let first = [parse(b"", b"SELECT $1 + $2, $3, $4;"), bind(b""), FINISH.to_vec()].concat();
    for _ in 0..2 {
        assert_eq!(talk.operate(), first, "parsed each time");
        let next = talk.after(&[PARSED, BOUND, DONE, READY]);
        assert_eq!(next, [parse(b"", b"SELECT 2;"), second(b""), FINISH.to_vec()].concat());
        talk.hears(&[PARSED, BOUND, DONE, READY]).unwrap();
        assert_eq!(talk.facts(), [Operated]);
    }

    let mut talk = Talk::open(QueryMode::Prepared, text);
    for _ in 0..2 {
        let first = [parse(b"P0", b"SELECT $1 + $2, $3, $4;"), bind(b"P0"), FINISH.to_vec()].concat();
        assert_eq!(talk.operate(), first);
        let next = talk.after(&[PARSED, BOUND, DONE, READY]);
        assert_eq!(next, [parse(b"P1", b"SELECT 2;"), second(b"P1"), FINISH.to_vec()].concat());
        talk.hears(&[PARSED, BOUND, DONE, READY]).unwrap();
        assert_eq!(talk.operate(), [bind(b"P0"), FINISH.to_vec()].concat(), "parsed once");
        assert_eq!(talk.after(&[BOUND, DONE, READY]), [second(b"P1"), FINISH.to_vec()].concat());
        talk.hears(&[BOUND, DONE, READY]).unwrap();
        assert_eq!(talk.facts(), [Operated, Operated]);
        talk.open_another();
    }
}

#[test]
fn heartbeats_and_further_operations_come_between_statements() {
    let mut talk = Talk::open(QueryMode::Simple, "a;\nb;");
    talk.operate();
    talk.cue(Cue::Ask).unwrap();
    talk.cue(Cue::Operate).unwrap();
    assert_eq!(talk.said(), EMPTY, "the second operation waits");
    // the answers come in the order of what was sent
    assert_eq!(talk.after(&[DONE, READY]), message(b'Q', b"b;\0"));
    assert!(talk.after(&[b"I\0\0\0\x04", READY]).is_empty());
    assert_eq!(talk.facts(), [Answered]);
    assert_eq!(talk.after(&[DONE, READY]), message(b'Q', b"a;\0"), "the second begins");
    assert_eq!(talk.facts(), [Operated]);
    assert_eq!(talk.after(&[DONE, READY]), message(b'Q', b"b;\0"));
    assert!(talk.after(&[DONE, READY]).is_empty());
    assert_eq!(talk.facts(), [Operated]);
}

#[test]
fn a_script_of_which_nothing_is_left_takes_a_round_trip_all_the_same() {
    let mut talk = Talk::open(QueryMode::Prepared, "\\if :scale > 5\na;\n\\endif");
    assert_eq!(talk.operate(), EMPTY);
    assert!(talk.facts().is_empty());
    talk.hears(&[b"I\0\0\0\x04", READY]).unwrap();
    assert_eq!(talk.facts(), [Operated]);
}

#[test]
fn clients_of_all_workers_have_numbers_of_their_own() {
    let mut talk = Talk::open(QueryMode::Simple, "SELECT :client_id;");
    for number in ["1", "5", "9"] {
        assert_eq!(talk.operate(), message(b'Q', format!("SELECT {number};\0").as_bytes()));
        talk.open_another();
    }
}

#[test]
fn what_ends_a_client() {
    let mut talk = Talk::open(QueryMode::Simple, "SELECT 1;\n\\set a 1 / 0\nSELECT :a;");
    talk.operate();
    let failure = talk.hears(&[DONE, READY]).unwrap_err();
    assert_eq!(failure, Failure::new(FailureKind::Protocol, "one.sql, line 2: division by zero"));
    let mut talk = Talk::open(QueryMode::Prepared, "SELECT 1;");
    talk.operate();
    let error = message(b'E', b"SERROR\0VERROR\0C26000\0Mprepared statement \"P0\" does not exist\0Dhm\0\0");
    let failure = talk.hears(&[&error]).unwrap_err();
    assert_eq!(failure.kind, FailureKind::Protocol);
    assert!(
        failure.text.ends_with("ERROR 26000: prepared statement \"P0\" does not exist (hm)"),
        "{failure:?}"
    );
    // what no server says to a simple query
    let mut talk = Talk::open(QueryMode::Simple, "SELECT 1;");
    talk.operate();
    assert_eq!(talk.hears(&[PARSED]).unwrap_err().kind, FailureKind::Protocol);
}

#[test]
fn wrong_scripts_are_told_before_a_run() {
    let operation = Operation {
        scripts: Some(scripts(QueryMode::Simple, "SELECT 1;\n\\sleep 1\n\\set x")),
        ..Operation::default()
    };
    let wrong = check_operation(Scheme::Postgres, &operation).unwrap_err();
    assert!(
        wrong.contains("one.sql, line 2: \\sleep") && wrong.contains("one.sql, line 3: \\set x"),
        "{wrong}"
    );
    let many = format!("SELECT {}1;", ":scale, ".repeat(70_000));
    for (mode, refused) in [(QueryMode::Simple, false), (QueryMode::Extended, true)] {
        let operation = Operation { scripts: Some(scripts(mode, &many)), ..Operation::default() };
        assert_eq!(check_operation(Scheme::Postgres, &operation).is_err(), refused, "{mode:?}");
    }
}

#[test]
fn an_operation_asks_for_no_memory() {
    let text = protocols::pgbench::builtin::find("tpcb-like").unwrap().text.to_owned()
        + "\\set d random_gaussian(1, 100, 2.5) / 7.0\n\\set e greatest(:d, 1e-7, hash(:aid))\nSELECT :d, :e;";
    for mode in [QueryMode::Simple, QueryMode::Extended, QueryMode::Prepared] {
        let mut talk = Talk::open(mode, &text);
        let answer = match mode {
            QueryMode::Simple => [DONE, READY].concat(),
            _ => [BOUND, DONE, READY].concat(),
        };
        let mut operations = |n: usize| {
            for _ in 0..n {
                talk.cue(Cue::Operate).unwrap();
                while talk.out.facts.is_empty() {
                    talk.out.bytes.clear();
                    talk.cue(Cue::Bytes(&answer)).unwrap();
                }
                talk.out.facts.clear();
            }
        };
        // what is lent grows, and each client has its state from its first operation on
        operations(100);
        let before = ALLOCATIONS.get();
        operations(1_000);
        assert_eq!(ALLOCATIONS.get() - before, 0, "{mode:?}");
    }
}

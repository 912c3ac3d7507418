use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::*;
use crate::fake::Fake;
use crate::table::Table;

/// A file of counters as a virtual machine writes it.
fn written(little: bool, entries: &[(&str, Value)]) -> Vec<u8> {
    let four = |n: usize| {
        let n = u32::try_from(n).unwrap();
        if little { n.to_le_bytes() } else { n.to_be_bytes() }
    };
    let mut out = MAGIC.to_vec();
    out.extend([u8::from(little), 2, 0, 1]);
    out.extend([0; 16]);
    out.extend(four(32));
    out.extend(four(entries.len()));
    for (name, value) in entries {
        let start = (20 + name.len() + 1).next_multiple_of(8);
        let (kind, elements, bytes) = match value {
            Value::Number(n) => (b'J', 0, if little { n.to_le_bytes() } else { n.to_be_bytes() }.to_vec()),
            Value::Text(text) => (b'B', text.len() + 1, [text.as_bytes(), b"\0"].concat()),
        };
        for head in [start + bytes.len(), 20, elements] {
            out.extend(four(head));
        }
        out.extend([kind, 0, 1, 1]);
        out.extend(four(start));
        let mut name = name.as_bytes().to_vec();
        name.resize(start - 20, 0);
        out.extend(name);
        out.extend(bytes);
    }
    out
}

fn number(n: i64) -> Value {
    Value::Number(n)
}

/// What two generations of which one has two spaces look like.
fn serial() -> Vec<(&'static str, Value)> {
    vec![
        ("java.threads.live", number(9)),
        ("sun.gc.policy.name", Value::Text("Copy:MSC".into())),
        ("sun.gc.generation.0.maxCapacity", number(20_000)),
        ("sun.gc.generation.0.space.0.maxCapacity", number(15_000)),
        ("sun.gc.generation.0.space.0.used", number(100)),
        ("sun.gc.generation.0.space.1.used", number(20)),
        ("sun.gc.generation.1.maxCapacity", number(40_000)),
        ("sun.gc.generation.1.space.0.used", number(3)),
        ("sun.gc.generation.2.maxCapacity", number(70_000)),
        ("sun.gc.generation.2.space.0.used", number(7)),
        ("sun.gc.collector.0.name", Value::Text("Serial young collection pauses".into())),
        ("sun.gc.collector.0.invocations", number(5)),
        ("sun.gc.collector.1.invocations", number(2)),
        ("sun.gc.collector.0.time", number(1_500)),
        ("sun.gc.collector.1.time", number(500)),
        ("sun.os.hrt.frequency", number(1_000)),
    ]
}

fn heap_of(bytes: &[u8]) -> Option<Heap> {
    summed_up(&counters(bytes).unwrap()?, "x".into())
}

#[test]
fn generations_and_spaces_add_up_in_both_byte_orders() {
    for little in [false, true] {
        let heap = heap_of(&written(little, &serial())).unwrap();
        let expected = Heap {
            source: "x".into(),
            used_bytes: 123,
            max_bytes: Some(60_000),
            collections: Some(7),
            collection_seconds: Some(2.0),
        };
        assert_eq!(heap, expected);
    }
}

#[test]
fn generations_of_regions_share_one_heap() {
    let mut entries = serial();
    entries[1].1 = Value::Text("GarbageFirst".into());
    entries[2].1 = number((64 << 20) + 24);
    entries[6].1 = number((64 << 20) + 8);
    assert_eq!(heap_of(&written(true, &entries)).unwrap().max_bytes, Some(64 << 20));
    entries[1].1 = Value::Text(String::new());
    entries[10].1 = Value::Text("ZGC minor collection pauses".into());
    assert_eq!(heap_of(&written(true, &entries)).unwrap().max_bytes, Some(64 << 20));
}

#[test]
fn one_that_is_starting_or_counts_nothing_has_no_heap_yet() {
    let mut starting = written(true, &serial());
    starting[7] = 0;
    assert_eq!(counters(&starting), Ok(None));
    assert_eq!(heap_of(&written(true, &serial()[..1])), None);
    let few = written(true, &serial()[..5]);
    let heap = heap_of(&few).unwrap();
    assert_eq!((heap.collections, heap.collection_seconds), (None, None));
}

#[test]
fn what_is_wrong_is_said() {
    let good = written(true, &serial());
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        counters(&bytes).unwrap_err()
    };
    assert_eq!(changed(0, 1), "it does not start with 0xcafec0c0");
    assert_eq!(changed(4, 9), "its byte order is neither 0 nor 1");
    assert_eq!(changed(5, 1), "its format is not version 2");
    assert_eq!(changed(27, 0x80), "the place of its first entry is not in it");
    assert_eq!(changed(31, 1), "it has more counters than there are");
    assert_eq!(changed(32, 0), "an entry reaches beyond its end");
    assert_eq!(counters(&good[..31]), Err("a header of 32 bytes is cut short"));
    assert_eq!(counters(&good[..good.len() - 1]), Err("an entry reaches beyond its end"));
    assert!(counters(&vec![0; MOST_BYTES as usize + 1]).is_err());
}

fn found(fake: &Fake, warnings: &mut Warnings) -> Option<Heap> {
    let table = Table::read(&fake.root(), warnings);
    heap(&fake.root(), &table.iter().collect::<Vec<_>>(), warnings)
}

fn put(fake: &Fake, path: &str, bytes: &[u8]) {
    fake.file(path, "");
    fs::write(fake.root().join(path), bytes).unwrap();
}

#[test]
fn the_file_is_named_by_the_pid_in_its_own_namespace() {
    let fake = Fake::new();
    let mut warnings = Warnings::default();
    fake.process(70, 1, "java");
    fake.process(71, 1, "cat");
    assert_eq!(found(&fake, &mut warnings), None);
    put(&fake, "tmp/hsperfdata_root/70", &written(true, &serial()));
    let heap = found(&fake, &mut warnings).unwrap();
    assert!(heap.source.ends_with("/tmp/hsperfdata_root/70"), "{}", heap.source);

    fake.file("proc/70/status", "Name:\tjava\nNSpid:\t70\t9\nThreads:\t2\n");
    let mut larger = serial();
    larger[6].1 = number(100_000);
    put(&fake, "proc/70/root/tmp/hsperfdata_app/9", &written(true, &larger));
    let heap = found(&fake, &mut warnings).unwrap();
    assert!(heap.source.ends_with("/proc/70/root/tmp/hsperfdata_app/9"), "{}", heap.source);
    assert_eq!(heap.max_bytes, Some(120_000));

    // Another, smaller one beside it is not the server.
    put(&fake, "tmp/hsperfdata_root/71", &written(true, &serial()));
    assert_eq!(found(&fake, &mut warnings).unwrap().max_bytes, Some(120_000));
    assert_eq!(warnings.take(), Vec::<String>::new());
}

#[test]
fn a_malformed_file_is_named_and_a_link_is_not_followed() {
    let fake = Fake::new();
    fake.process(70, 1, "java");
    put(&fake, "tmp/hsperfdata_root/70", b"#!/bin/sh and so on for 32 bytes");
    let mut warnings = Warnings::default();
    assert_eq!(found(&fake, &mut warnings), None);
    let said = warnings.take();
    assert!(
        said[0].starts_with("failed to understand ") && said[0].ends_with("start with 0xcafec0c0"),
        "{said:?}"
    );
    assert!(said[0].contains("/tmp/hsperfdata_root/70: "), "{said:?}");

    fake.remove("tmp/hsperfdata_root/70");
    fake.link("tmp/hsperfdata_root/70", "/dev/zero");
    assert_eq!(found(&fake, &mut warnings), None);
    assert_eq!(warnings.take(), Vec::<String>::new());
}

proptest::proptest! {
    #[test]
    fn never_panics(junk in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
                    places in proptest::collection::vec((0usize..600, proptest::num::u8::ANY), 0..8)) {
        let mut bytes = written(true, &serial());
        for (at, byte) in places {
            if let Some(place) = bytes.get_mut(at) { *place = byte; }
        }
        let _ = counters(&bytes).map(|found| found.map(|c| summed_up(&c, String::new())));
        let with_header = [&MAGIC[..], &[1, 2, 0, 1], &junk].concat();
        let _ = counters(&with_header);
        let _ = counters(&junk);
    }
}

/// Holds 20 MiB, collects, says so, and waits for its standard input to end.
const HOLDER: &str = r#"
public class Holder {
    public static void main(String[] none) throws Exception {
        byte[][] held = new byte[80][];
        for (int i = 0; i < held.length; i++) held[i] = new byte[256 * 1024];
        System.gc();
        System.out.println("held " + held.length);
        System.in.read();
        System.out.println(held[0].length);
    }
}
"#;

#[test]
fn a_real_virtual_machine_with_each_of_its_collectors() {
    const MIB: u64 = 1 << 20;
    if Command::new("java").arg("-version").stderr(Stdio::null()).status().is_err() {
        println!("skipped: no java on the PATH");
        return;
    }
    let directory = tempfile::TempDir::new().unwrap();
    let source = directory.path().join("Holder.java");
    fs::write(&source, HOLDER).unwrap();
    for collector in ["Serial", "Parallel", "G1"] {
        let mut machine = Command::new("java")
            .args(["-Xmx64m", &format!("-XX:+Use{collector}GC")])
            .arg(&source)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = String::new();
        BufReader::new(machine.stdout.as_mut().unwrap()).read_line(&mut said).unwrap();
        assert_eq!(said, "held 80\n", "{collector}");
        // G1 writes its counters only after the pause.
        std::thread::sleep(Duration::from_millis(200));
        let mut warnings = Warnings::default();
        let table = Table::read(&Root::host(), &mut Warnings::default());
        let heap = heap(&Root::host(), &[table.get(machine.id()).unwrap()], &mut warnings);
        machine.stdin.take().unwrap().write_all(b"\n").unwrap();
        machine.wait().unwrap();
        assert_eq!(warnings.take(), Vec::<String>::new());
        let heap = heap.unwrap();
        assert!(heap.source.ends_with(&format!("/{}", machine.id())), "{heap:?}");
        let max = heap.max_bytes.unwrap();
        // Parallel's generations are rounded; Serial's hold one survivor space that is always empty.
        assert!((63 * MIB..=65 * MIB).contains(&max), "{collector}: {heap:?}");
        assert!((20 * MIB..64 * MIB).contains(&heap.used_bytes), "{collector}: {heap:?}");
        assert!(heap.collections > Some(0), "{collector}: {heap:?}");
        assert!(heap.collection_seconds.is_some_and(|s| s > 0.0 && s < 60.0), "{collector}: {heap:?}");
    }
}

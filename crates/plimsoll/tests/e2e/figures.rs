//! Are the figures of memory and of what is held those that others read at the same time?
//!
//! Each alone: processes of one program share its pages, so that the memory of each (PSS) moves when others of that
//! program come and go.

use std::thread::sleep;
use std::time::Duration;

use crate::harness::{Node, alone, established_to, hold, proportional_bytes, start_hold};
use model::Estimate;

#[test]
fn ten_kibibytes_of_ballast_are_ten_kibibytes_in_the_slope() {
    let _alone = alone();
    const BALLAST: f64 = 10_240.0;
    // what glibc's allocator adds to each piece
    const HEADER: f64 = 16.0;
    let cost = |ballast: &str| {
        let node = Node::start("tcp", &["--ballast", ballast]);
        let ended = hold(&node.url(), &["-c", "4000", "--stages", "8", "--hold", "1s", "--heartbeat", "1s"]);
        assert!([0, 4].contains(&ended.code), "{}", ended.said());
        ended.result().cost.target.user_bytes_per_connection.expect("its memory is seen")
    };
    let (without, with): (Estimate, Estimate) = (cost("0"), cost("10KiB"));
    let difference = with.value - without.value;
    let told = format!("without {without:?}, with {with:?}");
    assert!((difference - BALLAST).abs() <= 0.03 * BALLAST, "the difference is {difference}: {told}");
    let ends = |e: Estimate| (e.low.expect("an interval"), e.high.expect("an interval"));
    let ((low, high), (with_low, with_high)) = (ends(without), ends(with));
    assert!(
        with_low <= high + BALLAST + HEADER && low + BALLAST <= with_high,
        "the intervals do not meet: {told}"
    );
    assert!(with_high - with_low <= 0.03 * BALLAST, "an interval that says something: {told}");
}

#[test]
fn what_is_held_and_what_it_costs_is_what_ss_and_smaps_rollup_say() {
    let _alone = alone();
    let node = Node::start("ws", &["--processes", "2"]);
    let mut going =
        start_hold(&node.url(), &["-c", "3000", "--stages", "3", "--hold", "5s", "--heartbeat", "1s"]);
    going.wait_for_stages(3);
    // while it is held nothing is opened or closed: both readings stand still
    sleep(Duration::from_secs(2));
    let established = established_to(node.port);
    let mut target = node.processes();
    let target_bytes: u64 = target.iter().map(|pid| proportional_bytes(*pid)).sum();
    let generator = [vec![going.running.pid()], going.workers()].concat();
    let generator_bytes: u64 = generator.iter().map(|pid| proportional_bytes(*pid)).sum();
    let ended = going.finish();
    assert!([0, 4].contains(&ended.code), "{}", ended.said());
    let result = ended.result();

    assert_eq!((result.connections.held, established), (3_000, 3_000));
    let mut seen: Vec<u32> = result.target.processes.iter().map(|p| p.pid).collect();
    seen.sort_unstable();
    target.sort_unstable();
    assert_eq!(seen, target, "the target's processes are the node's, all of them");
    let held: Vec<_> = result.series.iter().filter(|m| m.doing == "hold").collect();
    let middle = held[held.len() / 2];
    near("the target's memory", middle.target_user_bytes.unwrap(), target_bytes);
    near("the generator's memory", middle.generator_user_bytes.unwrap(), generator_bytes);
}

/// Within 2%, or 64 KiB where that is more.
fn near(what: &str, ours: u64, outside: u64) {
    let tolerated = (outside / 50).max(64 * 1024);
    assert!(ours.abs_diff(outside) <= tolerated, "{what}: {ours} bytes, from outside {outside}");
}

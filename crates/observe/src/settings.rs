//! What do the host's settings allow? (`/proc/sys`: ip(7), tcp(7), proc_sys_fs(5), proc_sys_kernel(5))

use model::observation::HostSettings;

use crate::reader::{Error, Root, Text, Warnings};

/// Reads the settings that bound the number of connections.
pub(crate) fn read(root: &Root, warnings: &mut Warnings) -> HostSettings {
    let port_range = warnings.keep(root.read("proc/sys/net/ipv4/ip_local_port_range"));
    let port_range = port_range.and_then(|text| warnings.keep(parse_port_range(&text).map(Some)));
    let reserved = warnings.keep(root.read("proc/sys/net/ipv4/ip_local_reserved_ports"));
    let reserved = reserved.and_then(|text| warnings.keep(parse_reserved(&text, port_range).map(Some)));
    let tcp_mem = warnings.keep(root.read("proc/sys/net/ipv4/tcp_mem"));
    let tcp_mem = tcp_mem.and_then(|text| warnings.keep(parse_tcp_mem(&text).map(Some)));
    let mut number = |path: &str| warnings.keep(root.number(format!("proc/sys/{path}")));
    HostSettings {
        port_range,
        reserved_ports: reserved.unwrap_or(0),
        somaxconn: number("net/core/somaxconn"),
        tcp_max_syn_backlog: number("net/ipv4/tcp_max_syn_backlog"),
        file_max: number("fs/file-max"),
        nr_open: number("fs/nr_open"),
        conntrack_max: number("net/netfilter/nf_conntrack_max"),
        tcp_mem_pages: tcp_mem,
        threads_max: number("kernel/threads-max"),
        pid_max: number("kernel/pid_max"),
    }
}

fn parse_port_range(text: &Text) -> Result<(u16, u16), Error> {
    const EXPECTED: &str = "the first and the last port";
    let (first, last) = (text.whole().value(0, EXPECTED)?, text.whole().value(1, EXPECTED)?);
    if first > last { Err(text.whole().malformed(EXPECTED)) } else { Ok((first, last)) }
}

fn parse_tcp_mem(text: &Text) -> Result<[u64; 3], Error> {
    let pages = |at| text.whole().value(at, "three numbers of pages");
    Ok([pages(0)?, pages(1)?, pages(2)?])
}

/// Counts the reserved ports that lie inside the range, each once; without a known range, all.
fn parse_reserved(text: &Text, range: Option<(u16, u16)>) -> Result<u64, Error> {
    let (low, high) = range.unwrap_or((0, u16::MAX));
    let mut reserved =
        ranges(text.text.trim()).ok_or_else(|| text.whole().malformed("ports and ranges of ports"))?;
    reserved.sort_unstable();
    let (mut count, mut next) = (0, u32::from(low));
    for (first, last) in reserved {
        let (first, last) = (first.max(next), last.min(u32::from(high)));
        if first <= last {
            count += u64::from(last - first) + 1;
            next = last + 1;
        }
    }
    Ok(count)
}

/// Parses a list like `8080,9000-9100` (the kernel's bitmap list format); nothing is an empty list.
pub(crate) fn ranges(list: &str) -> Option<Vec<(u32, u32)>> {
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last).then_some((first, last))
    };
    if list.is_empty() { Some(vec![]) } else { list.split(',').map(range).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Fake;

    fn text(text: &str) -> Text {
        Text { path: "/proc/sys/x".into(), text: text.to_owned() }
    }

    #[test]
    fn settings() {
        let fake = Fake::new();
        for (path, value) in [
            ("net/ipv4/ip_local_port_range", "32768\t60999\n"),
            ("net/ipv4/ip_local_reserved_ports", "8080,40000-40009\n"),
            ("net/core/somaxconn", "4096\n"),
            ("net/ipv4/tcp_max_syn_backlog", "1024\n"),
            ("fs/file-max", "9223372036854775807\n"),
            ("fs/nr_open", "1048576\n"),
            ("net/ipv4/tcp_mem", "287901\t383868\t575802\n"),
            ("kernel/threads-max", "192731\n"),
            ("kernel/pid_max", "32768\n"),
        ] {
            fake.file(&format!("proc/sys/{path}"), value);
        }
        let mut warnings = Warnings::default();
        assert_eq!(
            read(&fake.root(), &mut warnings),
            HostSettings {
                port_range: Some((32768, 60999)),
                reserved_ports: 10,
                somaxconn: Some(4096),
                tcp_max_syn_backlog: Some(1024),
                file_max: Some(i64::MAX as u64),
                nr_open: Some(1_048_576),
                conntrack_max: None,
                tcp_mem_pages: Some([287_901, 383_868, 575_802]),
                threads_max: Some(192_731),
                pid_max: Some(32_768),
            }
        );
        assert_eq!(warnings.take(), Vec::<String>::new());
    }

    #[test]
    fn absent_and_malformed() {
        let fake = Fake::new();
        let mut warnings = Warnings::default();
        assert_eq!(read(&fake.root(), &mut warnings), HostSettings::default());
        assert_eq!(warnings.take(), Vec::<String>::new());
        fake.file("proc/sys/net/ipv4/ip_local_port_range", "60999 32768\n");
        fake.file("proc/sys/net/core/somaxconn", "many\n");
        assert_eq!(read(&fake.root(), &mut warnings), HostSettings::default());
        let warnings = warnings.take().join("\n");
        assert!(warnings.contains("ip_local_port_range, line 1: expected the first and the last port"));
        assert!(warnings.contains("somaxconn, line 1: expected a number"));
    }

    #[test]
    fn reserved_ports_count_once_and_only_inside_the_range() {
        let count = |list: &str| parse_reserved(&text(list), Some((100, 199))).ok();
        assert_eq!(count("\n"), Some(0));
        assert_eq!(count("100,199,200,99\n"), Some(2));
        assert_eq!(count("50-149,140-160\n"), Some(61));
        assert_eq!(count("1-65535"), Some(100));
        assert_eq!(count("100-"), None);
        assert_eq!(count("9-8"), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text(list in "[0-9,-]{0,40}", junk in ".{0,60}", low in 0u16.., high in 0u16..) {
            let _ = parse_reserved(&text(&list), Some((low, high)));
            let _ = parse_reserved(&text(&junk), None);
            let _ = (parse_port_range(&text(&junk)), parse_tcp_mem(&text(&junk)));
        }

        #[test]
        fn counting_agrees_with_a_set(
            items in proptest::collection::vec((0u32..300, 0u32..50), 1..8), low in 0u16..300, more in 0u16..100,
        ) {
            let high = low + more;
            let list: Vec<String> = items.iter().map(|(a, n)| format!("{a}-{}", a + n)).collect();
            let set: std::collections::BTreeSet<u32> = items.iter().flat_map(|(a, n)| *a..=a + n)
                .filter(|p| (u32::from(low)..=u32::from(high)).contains(p)).collect();
            let counted = parse_reserved(&text(&list.join(",")), Some((low, high))).unwrap();
            proptest::prop_assert_eq!(counted, set.len() as u64);
        }
    }
}

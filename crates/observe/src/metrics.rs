//! What does the target say of itself? Its own metrics page, in the text format of Prometheus or [OpenMetrics].
//!
//! Read under the names that the common client libraries give: Java's (`client_java`, Micrometer), Go's and Node's
//! (`prom-client`) runtimes, and the `process_` family of all of them.
//!
//! [OpenMetrics]: https://prometheus.io/docs/specs/om/open_metrics_spec/

use model::observation::{Group, Heap};

use crate::far::{Reach, agent};

/// The largest page that is read.
const MOST_BYTES: u64 = 8 << 20;

/// A page that is read again with each look.
pub(crate) struct Metrics {
    agent: ureq::Agent,
    url: String,
    token: Option<String>,
}

impl Metrics {
    /// Reads the page for the first time.
    ///
    /// # Errors
    /// If it cannot be read, or none of its names is known: what is wrong, where, and what to do.
    pub(crate) fn meet(reach: &Reach) -> Result<Self, String> {
        let metrics = Self { agent: agent(reach)?, url: reach.url.clone(), token: reach.token.clone() };
        let said = metrics.read()?;
        if said == Said::default() {
            return Err(format!(
                "{}: none of its metrics is known here; it needs process_*, jvm_*, go_* or nodejs_* ones in the \
                 text format of Prometheus",
                metrics.url
            ));
        }
        Ok(metrics)
    }

    /// Reads the page.
    ///
    /// # Errors
    /// If it is not answered, or not with a page.
    pub(crate) fn read(&self) -> Result<Said, String> {
        let failed = |why: &dyn std::fmt::Display| format!("cannot read the metrics at {}: {why}", self.url);
        let mut request = self.agent.get(&self.url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut response = request.call().map_err(|e| failed(&e))?;
        if response.status() != 200 {
            return Err(failed(&format!("it answered {}", response.status())));
        }
        let body = response.body_mut().with_config().limit(MOST_BYTES).read_to_string();
        Ok(Said::of(&body.map_err(|e| failed(&e))?))
    }
}

/// What a page says of its process.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Said {
    resident_bytes: Option<u64>,
    descriptors: Option<u64>,
    cpu_seconds: Option<f64>,
    threads: Option<u64>,
    heap: Option<Heap>,
    event_loop_lag_seconds: Option<f64>,
}

impl Said {
    fn of(page: &str) -> Self {
        let samples: Vec<Sample<'_>> = page.lines().filter_map(Sample::of).collect();
        let sum = |names: &[&str], label: &str| sum(&samples, names, label);
        let whole = |value: Option<f64>| value.filter(|v| *v >= 0.0).map(|v| v as u64);
        Self {
            resident_bytes: whole(sum(&["process_resident_memory_bytes"], "")),
            descriptors: whole(sum(&["process_open_fds", "process_files_open_files"], "")),
            cpu_seconds: sum(&["process_cpu_seconds_total"], ""),
            threads: whole(sum(&["jvm_threads_current", "jvm_threads_live_threads", "go_threads"], "")),
            heap: heap(&samples),
            event_loop_lag_seconds: sum(
                &["nodejs_eventloop_lag_p99_seconds", "nodejs_eventloop_lag_seconds"],
                "",
            ),
        }
    }

    /// The group with what only its processes themselves know; all that the page says, if they cannot be seen.
    pub(crate) fn complete(self, group: Option<Group>) -> Option<Group> {
        let unseen = || Group {
            processes: 1,
            user_bytes: self.resident_bytes,
            descriptors: self.descriptors,
            most_descriptors: self.descriptors,
            threads: self.threads.unwrap_or(0),
            cpu_seconds: self.cpu_seconds.unwrap_or(0.0),
            ..Group::default()
        };
        let mut group = group.unwrap_or_else(unseen);
        group.heap = self.heap.or(group.heap);
        group.event_loop_lag_seconds = self.event_loop_lag_seconds;
        Some(group)
    }
}

/// The heap of the one runtime that speaks.
fn heap(samples: &[Sample<'_>]) -> Option<Heap> {
    let sum = |names: &[&str], label: &str| sum(samples, names, label);
    let (area, used, most, count, seconds) = (
        r#"area="heap""#,
        ["jvm_memory_used_bytes", "jvm_memory_bytes_used"],
        ["jvm_memory_max_bytes", "jvm_memory_bytes_max"],
        ["jvm_gc_collection_seconds_count", "jvm_gc_pause_seconds_count"],
        ["jvm_gc_collection_seconds_sum", "jvm_gc_pause_seconds_sum"],
    );
    let (source, used, most, runtime) = if let Some(bytes) = sum(&used, area) {
        // A pool without a maximum of its own says -1.
        let bounded: Vec<Sample<'_>> = samples.iter().filter(|s| s.value >= 0.0).copied().collect();
        ("jvm_memory_used_bytes", bytes, self::sum(&bounded, &most, area), (count, seconds))
    } else if let Some(bytes) = sum(&["go_memstats_heap_alloc_bytes"], "") {
        let most = sum(&["go_gc_gomemlimit_bytes"], "").filter(|b| *b < (1_u64 << 62) as f64);
        (
            "go_memstats_heap_alloc_bytes",
            bytes,
            most,
            (["go_gc_duration_seconds_count", ""], ["go_gc_duration_seconds_sum", ""]),
        )
    } else {
        let bytes = sum(&["nodejs_heap_size_used_bytes"], "")?;
        (
            "nodejs_heap_size_used_bytes",
            bytes,
            None,
            (["nodejs_gc_duration_seconds_count", ""], ["nodejs_gc_duration_seconds_sum", ""]),
        )
    };
    Some(Heap {
        source: format!("{source} of its metrics"),
        used_bytes: used.max(0.0) as u64,
        max_bytes: most.filter(|b| *b > 0.0).map(|b| b as u64),
        collections: sum(&runtime.0, "").map(|n| n as u64),
        collection_seconds: sum(&runtime.1, ""),
    })
}

/// One line of a page.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    /// `NAME[{LABELS}] VALUE [TIME]`; `None`: a comment, or nothing that can be read.
    fn of(line: &'a str) -> Option<Self> {
        let line = line.trim();
        if line.starts_with('#') {
            return None;
        }
        let (name, labels, rest) = match line.find('{') {
            // A label's value may hold braces and blanks; the last brace ends them.
            Some(open) => {
                let close = open + line[open..].rfind('}')?;
                (&line[..open], &line[open + 1..close], &line[close + 1..])
            }
            None => {
                let end = line.find(char::is_whitespace)?;
                (&line[..end], "", &line[end..])
            }
        };
        let value = rest.split_whitespace().next()?.parse().ok().filter(|v: &f64| v.is_finite())?;
        Some(Self { name: name.trim(), labels, value })
    }
}

/// The sum over the samples of the first of these names that is there at all.
fn sum(samples: &[Sample<'_>], names: &[&str], label: &str) -> Option<f64> {
    names.iter().find_map(|name| {
        let mut of_it = samples
            .iter()
            .filter(|s| s.name == *name && s.labels.contains(label))
            .map(|s| s.value)
            .peekable();
        of_it.peek().is_some().then(|| of_it.sum())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_java_program_tells_its_heap() {
        // As Micrometer writes it; the values are of one with -Xmx64m.
        let said = Said::of(concat!(
            "# TYPE jvm_memory_used_bytes gauge\n",
            "jvm_memory_used_bytes{area=\"heap\",id=\"G1 Eden Space\"} 4194304.0\n",
            "jvm_memory_used_bytes{area=\"heap\",id=\"G1 Old Gen\"} 2.097152E7\n",
            "jvm_memory_used_bytes{area=\"nonheap\",id=\"Metaspace\"} 9000000.0\n",
            "jvm_memory_max_bytes{area=\"heap\",id=\"G1 Eden Space\"} -1.0\n",
            "jvm_memory_max_bytes{area=\"heap\",id=\"G1 Old Gen\"} 6.7108864E7\n",
            "jvm_gc_pause_seconds_count{action=\"end of minor GC\"} 12\n",
            "jvm_gc_pause_seconds_sum{action=\"end of minor GC\"} 0.25\n",
            "process_files_open_files 1033.0\n",
        ));
        let heap = said.heap.clone().unwrap();
        assert_eq!((heap.used_bytes, heap.max_bytes), (4_194_304 + 20_971_520, Some(67_108_864)));
        assert_eq!((heap.collections, heap.collection_seconds), (Some(12), Some(0.25)));
        // Where the process is seen, only what it alone knows is taken over.
        let seen = Group { processes: 2, user_bytes: Some(7), descriptors: Some(9), ..Group::default() };
        let group = said.clone().complete(Some(seen)).unwrap();
        assert_eq!((group.processes, group.user_bytes, group.descriptors), (2, Some(7), Some(9)));
        assert!(group.heap.is_some());
        assert_eq!(said.complete(None).unwrap().descriptors, Some(1_033));
    }

    #[test]
    fn go_and_node_tell_theirs() {
        let go = Said::of(
            "go_memstats_heap_alloc_bytes 3.5e+06 1700000000\ngo_gc_gomemlimit_bytes 9.223372036854776e+18\n\
             go_gc_duration_seconds{quantile=\"0.5\"} 1e-05\ngo_gc_duration_seconds_sum 0.5\ngo_gc_duration_seconds_count 31\n",
        );
        let heap = go.heap.unwrap();
        assert_eq!((heap.used_bytes, heap.max_bytes, heap.collections), (3_500_000, None, Some(31)));
        let node = Said::of("nodejs_heap_size_used_bytes 8e6\nnodejs_eventloop_lag_p99_seconds 0.011\n");
        assert_eq!(node.event_loop_lag_seconds, Some(0.011));
        assert_eq!(node.heap.unwrap().used_bytes, 8_000_000);
    }

    #[test]
    fn a_page_of_something_else_says_nothing() {
        for page in ["", "<html><body>hello</body></html>", "x{ 1\ny} 2\nz NaN\n# HELP a b\n{} 1"] {
            assert_eq!(Said::of(page), Said::default(), "{page}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_page(page in ".{0,200}", name in "(jvm_memory_used_bytes|process_open_fds)[{} a-z=\"]{0,9}[-0-9.e]{0,9}") {
            let _ = Said::of(&format!("{page}\n{name}\n")).complete(None);
        }
    }
}

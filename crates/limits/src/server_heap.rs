//! Does the server's managed heap fill up?

use analysis::cost;
use model::observation::Heap;
use model::result::{Finding, Side, Status};
use model::{FailureKind, RunResult, units};

use crate::evidence::{self, Each};
use crate::{Limit, LimitFacts, busy, nice};

/// The heap of a Java virtual machine.
pub(crate) struct ServerHeap;

static FACTS: LimitFacts = LimitFacts {
    id: "server.heap",
    side: Side::Server,
    question: "Does the server's managed heap fill up?",
    doc: "A virtual machine's heap has a maximum of its own (-Xmx), by default a quarter of the memory. As \
          it fills, collections come more often and find less, all connections wait for them, and at last \
          there is an OutOfMemoryError while the host still has memory.",
    how_to_see: "jcmd PID GC.heap_info; jstat -gcutil PID 1s",
    remedy_doc: "A larger -Xmx, or less on the heap per connection.",
};

/// From this share of the maximum on, hardly anything can be allocated without a collection.
const FULL: f64 = 0.95;

/// From this share on it is near, if collections have left so much.
const NEARLY_FULL: f64 = 0.85;

/// From this share of the time spent in collections on, they are what the server does.
const COLLECTING: f64 = 0.2;

impl Limit for ServerHeap {
    fn facts(&self) -> &'static LimitFacts {
        &FACTS
    }

    fn judge(&self, run: &RunResult) -> Finding {
        let looks = looks(run);
        let Some(before) = run.before.target.as_ref() else {
            let mut finding = FACTS.finding(Status::Unknown, evidence::hidden(run));
            finding.remedy = remedy(run, None);
            return finding;
        };
        let heap = before.heap.as_ref().or(looks.first().map(|look| look.heap));
        let Some(heap) = heap else {
            let java = |name: &str| matches!(name, "java" | "jsvc");
            let mut finding = if run.target.processes.iter().any(|p| java(&p.name)) {
                let summary = "the target is a Java virtual machine whose counters cannot be read; start it \
                               with -XX:+UsePerfData, and plimsoll as its user";
                FACTS.finding(Status::Unknown, summary)
            } else {
                FACTS.finding(Status::Clear, "no heap of a Java virtual machine was found in the target")
            };
            finding.remedy = remedy(run, None);
            return finding;
        };
        let Some(max) = heap.max_bytes else {
            let mut finding = FACTS.finding(Status::Unknown, "the heap's maximum could not be read");
            finding.remedy = remedy(run, None);
            return finding;
        };
        let each = each(run);
        let kept = before.heap.as_ref().map(|h| kept_besides(run, h, each));
        let room = kept.map(|kept| max.saturating_sub(kept) as f64);
        let ceiling = each.zip(room).and_then(|(each, room)| each.fit_into(room));
        let fullest = looks.iter().max_by_key(|look| look.heap.used_bytes);
        let met = looks.iter().find(|look| look.hits(max));
        let (status, summary) = if let Some(met) = met {
            (Status::Hit, format!("the heap was full at {}: {}", met.at, said(met.heap.used_bytes, max)))
        } else if let Some(look) = looks.iter().find(|look| look.is_near(max)) {
            (
                Status::Near,
                format!("the heap was nearly full at {}: {}", look.at, said(look.heap.used_bytes, max)),
            )
        } else if let Some(fullest) = fullest {
            let status = ceiling.map_or(Status::Clear, |c| evidence::status_by_ceiling(run, c));
            (status, format!("the heap held at most {}", said(fullest.heap.used_bytes, max)))
        } else {
            let used = said(heap.used_bytes, max);
            let summary =
                format!("the heap holds {used}; how many connections fit in is unknown until measured");
            (Status::Unknown, summary)
        };
        let mut finding = FACTS.finding(status, summary);
        if let (Some(each), Some(room)) = (each, room) {
            finding = each.ceiling(finding, run, room);
        }
        finding.evidence = read(heap, max, before.heap.as_ref(), &looks, each.zip(kept));
        finding.remedy = remedy(run, Some((max, kept.unwrap_or(0), each)));
        finding
    }
}

/// The heap as it was after the first connection.
struct Look<'a> {
    /// Where it was read: "stage 3", "the end".
    at: String,
    heap: &'a Heap,
    /// Collections since the reading before; `None`: not readable.
    collections: Option<u64>,
    /// The share of the time since then that they took.
    collecting: Option<f64>,
    /// Whether connections failed or were late there.
    suffered: bool,
}

impl Look<'_> {
    fn share(&self, max: u64) -> f64 {
        self.heap.used_bytes as f64 / max.max(1) as f64
    }

    fn hits(&self, max: u64) -> bool {
        self.share(max) >= FULL && (self.suffered || self.collecting.is_some_and(|share| share >= COLLECTING))
    }

    /// Garbage may fill any heap: only what a collection left says anything.
    fn is_near(&self, max: u64) -> bool {
        self.share(max) >= NEARLY_FULL && self.collections.is_none_or(|n| n > 0)
    }
}

fn looks(run: &RunResult) -> Vec<Look<'_>> {
    let mut last = run.before.target.as_ref().and_then(|g| g.heap.as_ref());
    let mut out = Vec::new();
    for (index, stage) in run.stages.iter().enumerate() {
        let Some(heap) = stage.target.as_ref().and_then(|g| g.heap.as_ref()) else { continue };
        let rose = |of: fn(&Heap) -> Option<f64>| Some((of(heap)? - last.and_then(of)?).max(0.0));
        let seconds = busy::seconds(stage);
        let slow = [FailureKind::Silent, FailureKind::ReadyTimeout, FailureKind::ConnectTimeout];
        out.push(Look {
            at: format!("stage {}", index + 1),
            heap,
            collections: rose(|h| h.collections.map(|n| n as f64)).map(|n| n as u64),
            collecting: rose(|h| h.collection_seconds).filter(|_| seconds > 0.0).map(|s| s / seconds),
            suffered: !stage.passed || evidence::stage_failures(stage, &slow) > 0,
        });
        last = Some(heap);
    }
    out
}

/// What one connection keeps on the heap: the slope of what is used, where it is one.
fn each(run: &RunResult) -> Option<Each> {
    let used = |s: &model::result::Stage| Some(s.target.as_ref()?.heap.as_ref()?.used_bytes as f64);
    // Garbage comes and goes: a slope that may as well be none bounds nothing.
    let slope = cost::over(&cost::growing(run), used).filter(|e| e.low.is_none_or(|low| low > 0.0))?;
    (slope.value >= 1.0).then(|| Each::sum(&[slope]))
}

/// What the heap keeps besides the connections, at most. What was used before the first one may be garbage of an earlier
/// run; as garbage only ever adds, the reading that leaves least besides its connections comes nearest.
fn kept_besides(run: &RunResult, before: &Heap, each: Option<Each>) -> u64 {
    let Some(each) = each else { return before.used_bytes };
    let besides = |s: &&model::result::Stage| {
        let used = s.target.as_ref()?.heap.as_ref()?.used_bytes;
        Some(used.saturating_sub((each.value * s.ready as f64) as u64))
    };
    cost::growing(run).iter().filter_map(besides).chain([before.used_bytes]).min().unwrap_or(0)
}

fn said(used: u64, max: u64) -> String {
    format!("{} of {}", units::bytes(used as f64), units::bytes(max as f64))
}

fn read(
    heap: &Heap,
    max: u64,
    before: Option<&Heap>,
    looks: &[Look<'_>],
    kept: Option<(Each, u64)>,
) -> Vec<String> {
    let used = before.map_or("unknown".to_owned(), |h| units::bytes(h.used_bytes as f64));
    let mut out = vec![format!("{}: maximum {}, used before {used}", heap.source, units::bytes(max as f64))];
    if let Some(fullest) = looks.iter().max_by_key(|look| look.heap.used_bytes) {
        let used = units::bytes(fullest.heap.used_bytes as f64);
        out.push(format!("{used} used at {} ({:.0}%)", fullest.at, fullest.share(max) * 100.0));
    }
    let share = |look: &&Look<'_>| look.collecting.unwrap_or(0.0);
    if let Some(busiest) = looks.iter().max_by(|a, b| share(a).total_cmp(&share(b)))
        && let (Some(share), Some(count)) = (busiest.collecting, busiest.collections)
    {
        out.push(format!(
            "collections took at most {:.0}% of the time, at {} ({})",
            share * 100.0,
            busiest.at,
            evidence::counted(count, "collection", "collections")
        ));
    }
    if let Some((each, besides)) = kept {
        let (each, besides) = (units::bytes(each.value), units::bytes(besides as f64));
        out.push(format!("each connection keeps {each} on the heap, all else at most {besides}"));
    }
    out
}

fn remedy(run: &RunResult, known: Option<(u64, u64, Option<Each>)>) -> Vec<String> {
    /// A heap fuller than this after a collection collects all the time.
    const COMFORTABLE: f64 = 0.7;
    let Some((max, used, each)) = known else {
        return vec!["# to see the heap of a Java virtual machine: jstat -gcutil PID 1s".to_owned()];
    };
    let wanted = nice::lifted(evidence::asked(run));
    let needed = match each {
        Some(each) => ((used as f64 + wanted as f64 * each.value) / COMFORTABLE) as u64,
        None => max.saturating_mul(2),
    };
    let megabytes = nice::up(needed.max(max).div_ceil(1 << 20)).max(1);
    vec![
        format!("# for {} connections, in place of the -Xmx in the server's command:", units::count(wanted)),
        format!("-Xmx{megabytes}m"),
        "# where systemd starts it without an -Xmx of its own (systemctl edit NAME):".to_owned(),
        "[Service]".to_owned(),
        format!("Environment=JAVA_TOOL_OPTIONS=-Xmx{megabytes}m"),
        "# to watch it: jstat -gcutil PID 1s".to_owned(),
    ]
}

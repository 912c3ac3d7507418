//! In which order are limits told, and what is said of each?

use model::result::{Finding, Status};
use model::units;

/// The limits as they are told: by ceiling, the lowest first (what breaks first, second, third), then those not
/// counted in connections, of which those that were met come first.
pub(crate) fn in_order(findings: &[Finding]) -> Vec<&Finding> {
    let mut all: Vec<&Finding> = findings.iter().collect();
    all.sort_by_key(|f| (f.ceiling_connections.is_none(), f.ceiling_connections, f.status));
    all
}

/// Above this many connections a ceiling is no figure to plan with, only a sign that others come first.
const OUT_OF_SIGHT: u64 = 1_000_000_000;

/// The status in one word.
pub(crate) fn word(status: Status) -> &'static str {
    match status {
        Status::Hit => "HIT",
        Status::Near => "near",
        Status::Clear => "clear",
        Status::Unknown => "unknown",
    }
}

/// Whether the remedy is shown without being asked for.
pub(crate) fn is_pressing(status: Status) -> bool {
    matches!(status, Status::Hit | Status::Near)
}

/// The ceiling in connections: `28,232`, or empty where the limit is not counted in connections.
pub(crate) fn ceiling(finding: &Finding) -> String {
    match finding.ceiling_connections {
        Some(n) if n > OUT_OF_SIGHT => "over 10^9".to_owned(),
        Some(n) => units::count(n),
        None => String::new(),
    }
}

/// The ceiling's interval where it was computed from a fitted cost: `61,200 to 64,900`.
pub(crate) fn ceiling_interval(finding: &Finding) -> Option<String> {
    match (finding.ceiling_low, finding.ceiling_high) {
        (Some(low), Some(high)) if low == high => None,
        (Some(low), Some(high)) => Some(format!("{} to {}", units::count(low), units::count(high))),
        (Some(low), None) => Some(format!("{} or more", units::count(low))),
        _ => None,
    }
}

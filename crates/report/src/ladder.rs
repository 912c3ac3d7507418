//! In which order are limits told, and what is said of each?

use model::result::{Finding, Status};
use model::units;

/// The limits as they are told: those that were met, those that were near, and the rest; within each by
/// ceiling with the lowest first (what breaks first, second, third), then those not counted in connections.
pub(crate) fn in_order(findings: &[Finding]) -> Vec<&Finding> {
    let mut all: Vec<&Finding> = findings.iter().collect();
    all.sort_by_key(|f| {
        let group = f.status.min(Status::Clear);
        (group, f.ceiling_connections.is_none(), f.ceiling_connections, f.status)
    });
    all
}

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
    finding.ceiling_connections.map_or_else(String::new, units::count)
}

/// The ceiling's interval where it was computed from a fitted cost: `61,200 to 64,900`.
pub(crate) fn ceiling_interval(finding: &Finding) -> Option<String> {
    match (finding.ceiling_low, finding.ceiling_high) {
        (Some(low), Some(high)) => Some(format!("{} to {}", units::count(low), units::count(high))),
        (Some(low), None) => Some(format!("{} or more", units::count(low))),
        _ => None,
    }
}

//! What happened over time, in no more moments than a drawing can show?

use std::collections::BTreeMap;

use model::FailureKind;
use model::result::Moment;

/// Moments that a drawing can tell apart.
const MOST: usize = 360;

/// The moments of a run in order of time, neighbours joined where there are more than can be drawn: counts are
/// added, gauges are the last, and of latencies, queues and lags the worst stays, so that no spike is lost.
pub(crate) fn moments(series: &[Moment]) -> Vec<Moment> {
    let mut sorted: Vec<&Moment> = series.iter().filter(|m| m.t_seconds.is_finite()).collect();
    sorted.sort_by(|a, b| a.t_seconds.total_cmp(&b.t_seconds));
    let each = sorted.len().div_ceil(MOST).max(1);
    sorted.chunks(each).map(join).collect()
}

fn join(chunk: &[&Moment]) -> Moment {
    let mut out = chunk.last().map(|m| (*m).clone()).unwrap_or_default();
    let worst = |of: fn(&Moment) -> Option<f64>| {
        chunk.iter().filter_map(|m| of(m)).filter(|x| x.is_finite()).max_by(f64::total_cmp)
    };
    out.beat_p50_ms = worst(|m| m.beat_p50_ms);
    out.beat_p99_ms = worst(|m| m.beat_p99_ms);
    out.beat_max_ms = worst(|m| m.beat_max_ms);
    out.message_p50_ms = worst(|m| m.message_p50_ms);
    out.message_p99_ms = worst(|m| m.message_p99_ms);
    out.message_max_ms = worst(|m| m.message_max_ms);
    out.messages_sent = chunk.iter().map(|m| m.messages_sent).sum();
    out.messages_answered = chunk.iter().map(|m| m.messages_answered).sum();
    out.generator_lag_ms = worst(|m| m.generator_lag_ms);
    out.target_cpus = worst(|m| m.target_cpus);
    out.generator_cpus = worst(|m| m.generator_cpus);
    out.accept_queue = chunk.iter().filter_map(|m| m.accept_queue).max();
    out.failed = BTreeMap::new();
    for moment in chunk {
        for (&kind, &n) in &moment.failed {
            *out.failed.entry(kind).or_default() += n;
        }
    }
    out
}

/// When the last stage was held: from the first moment of the last unbroken `hold` to its end.
pub(crate) fn hold(moments: &[Moment]) -> Option<(f64, f64)> {
    let last = moments.iter().rposition(|m| m.doing == "hold")?;
    let first = moments[..last].iter().rposition(|m| m.doing != "hold").map_or(0, |before| before + 1);
    Some((moments[first].t_seconds, moments[last].t_seconds))
}

/// Failures of one moment, all kinds together.
pub(crate) fn failed(moment: &Moment) -> u64 {
    moment.failed.values().sum()
}

/// Failures of one moment, by kind.
pub(crate) fn failed_by_kind(moments: &[Moment]) -> Vec<BTreeMap<FailureKind, u64>> {
    moments.iter().map(|m| m.failed.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joining_keeps_counts_and_spikes() {
        let series: Vec<Moment> = (0..1000u32)
            .map(|i| Moment {
                t_seconds: f64::from(i),
                failed: BTreeMap::from([(FailureKind::Reset, 1)]),
                beat_max_ms: Some(if i == 500 { 900.0 } else { 1.0 }),
                doing: if i < 700 { "settle" } else { "hold" }.to_owned(),
                ..Moment::default()
            })
            .collect();
        let joined = moments(&series);
        assert!(joined.len() <= MOST);
        assert_eq!(joined.iter().map(failed).sum::<u64>(), 1000);
        assert!(joined.iter().any(|m| m.beat_max_ms == Some(900.0)));
        let (from, to) = hold(&joined).unwrap();
        assert!((699.0..703.0).contains(&from) && to == 999.0);
    }
}

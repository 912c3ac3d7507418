//! Where does a value stand on an axis, and which ticks does a reader expect there?

use model::units;

use crate::words::{short_count, short_number};

/// The span of an axis and how it is divided.
#[derive(Debug, Clone)]
pub(crate) struct Axis {
    low: f64,
    high: f64,
    log: bool,
    /// Where a tick stands and what it says.
    pub(crate) ticks: Vec<(f64, String)>,
    /// The unit of all ticks, where it is not written at each.
    pub(crate) unit: String,
}

impl Axis {
    /// A place between 0 (low end) and 1 (high end).
    pub(crate) fn share(&self, value: f64) -> f64 {
        let of = |x: f64| if self.log { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let span = of(self.high) - of(self.low);
        if span <= 0.0 { 0.0 } else { ((of(value) - of(self.low)) / span).clamp(0.0, 1.0) }
    }

    /// From nought to at least `most`, in steps of 1, 2 or 5 times a power of ten.
    fn from_nought(most: f64, steps: f64, unit: &str, write: impl Fn(f64) -> String) -> Self {
        let most = if most.is_finite() && most > 0.0 { most } else { 1.0 };
        let step = nice_step(most / steps);
        let count = (most / step - 1e-9).ceil().max(1.0);
        let ticks = (0..=count as u32).map(|i| f64::from(i) * step).map(|t| (t, write(t))).collect();
        Self { low: 0.0, high: count * step, log: false, ticks, unit: unit.to_owned() }
    }

    /// Counts: `0, 20k, 40k`.
    pub(crate) fn counts(most: f64, unit: &str) -> Self {
        Self::from_nought(most.max(1.0), 5.5, unit, short_count)
    }

    /// Bytes, in the binary unit that suits the largest.
    pub(crate) fn bytes(most: f64) -> Self {
        let mut factor = 1.0;
        let mut unit = "B";
        for next in ["KiB", "MiB", "GiB", "TiB"] {
            if most < factor * 1024.0 {
                break;
            }
            factor *= 1024.0;
            unit = next;
        }
        let mut axis = Self::from_nought(most / factor, 5.5, unit, short_number);
        axis.high *= factor;
        axis.ticks.iter_mut().for_each(|(at, _)| *at *= factor);
        axis
    }

    /// CPUs: `0, 0.5, 1`.
    pub(crate) fn cpus(most: f64) -> Self {
        Self::from_nought(most, 5.5, "CPUs", short_number)
    }

    /// Time from the start, in seconds, minutes or hours; ends exactly at `seconds`.
    pub(crate) fn time(seconds: f64) -> Self {
        let seconds = if seconds.is_finite() && seconds > 0.0 { seconds } else { 1.0 };
        let (unit, factor) = match seconds {
            s if s <= 180.0 => ("s", 1.0),
            s if s <= 10_800.0 => ("min", 60.0),
            _ => ("h", 3_600.0),
        };
        let span = seconds / factor;
        let steps = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0];
        let step = steps.into_iter().find(|step| span / step <= 6.5).unwrap_or_else(|| nice_step(span / 6.0));
        let last = (span / step + 1e-9).floor() as u32;
        let ticks = (0..=last)
            .map(|i| f64::from(i) * step)
            .map(|t| {
                (t * factor, if t == 0.0 { "0".to_owned() } else { format!("{} {unit}", short_number(t)) })
            })
            .collect();
        Self { low: 0.0, high: seconds, log: false, ticks, unit: String::new() }
    }

    /// Milliseconds on a logarithmic axis: a tick at each power of ten, in the unit that suits it.
    pub(crate) fn latency(least: f64, most: f64) -> Self {
        let write = |ms: f64| match ms {
            ms if ms < 0.9995 => format!("{} µs", short_number(ms * 1e3)),
            ms if ms < 999.5 => format!("{} ms", short_number(ms)),
            ms if ms < 119_999.0 => format!("{} s", short_number(ms / 1e3)),
            ms => units::seconds(ms / 1e3),
        };
        Self::log(least.max(0.001), most, write)
    }

    /// A logarithmic axis over whole powers of ten; where that is only one, its 2 and 5 are ticks too.
    fn log(least: f64, most: f64, write: impl Fn(f64) -> String) -> Self {
        let least = if least.is_finite() && least > 0.0 { least } else { 1.0 };
        let most = if most.is_finite() { most.max(least) } else { least };
        let from = (least.log10() + 1e-9).floor();
        let to = (most.log10() - 1e-9).ceil().max(from + 1.0);
        let mut ticks = Vec::new();
        let decades = to - from;
        for i in 0..=decades as i32 {
            let power = 10f64.powf(from + f64::from(i));
            ticks.push((power, write(power)));
            if decades < 2.0 && i < decades as i32 {
                ticks.extend([2.0, 5.0].map(|f| (power * f, write(power * f))));
            }
        }
        Self { low: 10f64.powf(from), high: 10f64.powf(to), log: true, ticks, unit: String::new() }
    }

    /// Clients on a logarithmic axis with exactly these ends, which are ticks, as are the powers of ten well inside.
    pub(crate) fn clients(least: f64, most: f64) -> Self {
        let mut axis = Self::draught(least, most);
        let near = |a: f64, b: f64| (a / b).ln().abs() < 0.12 * (most / least).ln();
        axis.ticks.retain(|(at, _)| !near(*at, least) && !near(*at, most));
        axis.ticks.insert(0, (least, short_count(least)));
        axis.ticks.push((most, short_count(most)));
        axis
    }

    /// Connections on a logarithmic axis with exactly these ends: a tick at each power of ten inside.
    pub(crate) fn draught(low: f64, high: f64) -> Self {
        let mut ticks = Vec::new();
        let mut power = 10f64.powf(low.log10().ceil());
        while power <= high {
            ticks.push((power, short_count(power)));
            power *= 10.0;
        }
        Self { low, high, log: true, ticks, unit: String::new() }
    }
}

/// The smallest of 1, 2, 5 times a power of ten that is at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0]
        .into_iter()
        .map(|f| f * power)
        .find(|&step| step >= least * 0.999_999)
        .unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn ticks_are_the_expected_ones() {
        assert_eq!(labels(&Axis::counts(100_000.0, "")), ["0", "20k", "40k", "60k", "80k", "100k"]);
        assert_eq!(labels(&Axis::counts(0.0, "")), ["0", "0.2", "0.4", "0.6", "0.8", "1"]);
        let bytes = Axis::bytes(136.0 * 1024.0 * 1024.0);
        assert_eq!((labels(&bytes), bytes.unit.as_str()), (vec!["0", "50", "100", "150"], "MiB"));
        assert_eq!(labels(&Axis::time(73.0)), ["0", "15 s", "30 s", "45 s", "60 s"]);
        assert_eq!(labels(&Axis::time(600.0)), ["0", "2 min", "4 min", "6 min", "8 min", "10 min"]);
        assert_eq!(labels(&Axis::latency(0.4, 31.0)), ["100 µs", "1 ms", "10 ms", "100 ms"]);
        assert_eq!(labels(&Axis::draught(170.0, 2.0e5)), ["1k", "10k", "100k"]);
    }

    #[test]
    fn nonsense_still_gives_an_axis() {
        for axis in [Axis::counts(f64::NAN, ""), Axis::time(-1.0), Axis::latency(0.0, 0.0), Axis::bytes(0.0)]
        {
            assert!(axis.ticks.len() >= 2, "{axis:?}");
            assert!((0.0..=1.0).contains(&axis.share(0.5)));
        }
    }
}

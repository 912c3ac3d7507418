//! How are counts, sizes and durations written and read?
//!
//! Counts take decimal suffixes (`10k`, `1M`), sizes take both (`64KiB`, `10kB`, `1G`), durations take
//! `ms`, `s`, `m`, `h` and may be joined (`1m30s`).

use thiserror::Error;

/// Why a written quantity could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnitError {
    /// No number stands at the start.
    #[error("{0:?} does not start with a number (examples: {1})")]
    NoNumber(String, &'static str),
    /// The suffix is not one of the known ones.
    #[error("{0:?} has the unknown unit {1:?} (examples: {2})")]
    UnknownUnit(String, String, &'static str),
    /// The value does not fit.
    #[error("{0:?} is out of range")]
    OutOfRange(String),
}

const COUNTS: &str = "500, 10k, 1M";
const RATES: &str = "500, 10k/s, 0.5/s, 30/min";
const SIZES: &str = "512, 64KiB, 10MB, 1GiB";
const DURATIONS: &str = "250ms, 10s, 5m, 1m30s";

/// Splits `12.5kB` into 12.5 and `kB`, and gives what follows that unit.
fn number_and_unit<'a>(
    whole: &str,
    text: &'a str,
    examples: &'static str,
) -> Result<(f64, &'a str, &'a str), UnitError> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let number = text[..digits]
        .replace('_', "")
        .parse::<f64>()
        .map_err(|_| UnitError::NoNumber(whole.to_owned(), examples))?;
    let rest = &text[digits..];
    let unit = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
    Ok((number, &rest[..unit], &rest[unit..]))
}

fn scaled(whole: &str, text: &str, examples: &'static str, units: &[(&str, f64)]) -> Result<u64, UnitError> {
    let (number, unit, rest) = number_and_unit(whole, text, examples)?;
    let unit = unit.trim();
    let Some((_, factor)) =
        units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).filter(|_| rest.is_empty())
    else {
        return Err(UnitError::UnknownUnit(whole.to_owned(), format!("{unit}{rest}"), examples));
    };
    let value = number * factor;
    if !(0.0..=9e18).contains(&value) {
        return Err(UnitError::OutOfRange(whole.to_owned()));
    }
    Ok(value.round() as u64)
}

/// Reads a count: `500`, `10k`, `1.5M`.
///
/// # Errors
/// Says which part could not be read, with examples.
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    scaled(text, text.trim(), COUNTS, &[("", 1.0), ("k", 1e3), ("m", 1e6), ("g", 1e9)])
}

/// Reads a size in bytes: `512`, `64KiB`, `10MB`. A bare `K`, `M`, `G` is binary, as in most servers' settings.
///
/// # Errors
/// Says which part could not be read, with examples.
pub fn parse_size(text: &str) -> Result<u64, UnitError> {
    const KIB: f64 = 1024.0;
    scaled(
        text,
        text.trim(),
        SIZES,
        &[
            ("", 1.0),
            ("b", 1.0),
            ("kib", KIB),
            ("k", KIB),
            ("kb", 1e3),
            ("mib", KIB * KIB),
            ("m", KIB * KIB),
            ("mb", 1e6),
            ("gib", KIB * KIB * KIB),
            ("g", KIB * KIB * KIB),
            ("gb", 1e9),
        ],
    )
}

/// Reads a duration in seconds: `250ms`, `10s`, `5m`, `1m30s`; a bare number is seconds.
///
/// # Errors
/// Says which part could not be read, with examples.
pub fn parse_duration_seconds(text: &str) -> Result<f64, UnitError> {
    let whole = text;
    let mut rest = text.trim();
    let mut total = 0.0;
    loop {
        let (number, unit, after) = number_and_unit(whole, rest, DURATIONS)?;
        let factor = match unit.trim() {
            "us" | "µs" => 1e-6,
            "ms" => 1e-3,
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            other => return Err(UnitError::UnknownUnit(whole.to_owned(), other.to_owned(), DURATIONS)),
        };
        total += number * factor;
        rest = after;
        if rest.is_empty() {
            return Ok(total);
        }
    }
}

/// Reads a rate and gives it per second: `5000`, `10k`, `10k/s`, `0.5/s`, `30/min`.
///
/// # Errors
/// Says which part could not be read, with examples.
pub fn parse_rate(text: &str) -> Result<f64, UnitError> {
    let text = text.trim();
    let (number, seconds) = match text.split_once('/') {
        None | Some((_, "s")) => (text.strip_suffix("/s").unwrap_or(text), 1.0),
        Some((number, "min")) => (number, 60.0),
        Some((number, "h")) => (number, 3_600.0),
        Some((_, unit)) => return Err(UnitError::UnknownUnit(text.to_owned(), format!("/{unit}"), RATES)),
    };
    match number.parse::<f64>() {
        Ok(n) if n.is_finite() && n >= 0.0 => Ok(n / seconds),
        _ => parse_count(number).map(|n| n as f64 / seconds),
    }
}

/// Writes a count with thin groups: `1,000,000`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Writes bytes with a binary unit and three significant digits: `3.50 KiB`, `212 B`.
pub fn bytes(b: f64) -> String {
    let sign = if b < 0.0 { "-" } else { "" };
    let mut value = b.abs();
    for unit in ["B", "KiB", "MiB", "GiB", "TiB"] {
        if value < 1000.0 || unit == "TiB" {
            return if unit == "B" {
                format!("{sign}{value:.0} B")
            } else {
                format!("{sign}{} {unit}", three_digits(value))
            };
        }
        value /= 1024.0;
    }
    unreachable!("the last unit always returns")
}

/// Writes a duration given in milliseconds in the unit that suits it: `85 µs`, `4.20 ms`, `1.30 s`.
pub fn milliseconds(ms: f64) -> String {
    if ms < 1.0 {
        format!("{:.0} µs", ms * 1e3)
    } else if ms < 1_000.0 {
        format!("{} ms", three_digits(ms))
    } else {
        seconds(ms / 1e3)
    }
}

/// Writes a duration given in seconds: `0.50 s`, `9.10 s`, `2m 05s`.
pub fn seconds(s: f64) -> String {
    if s < 120.0 {
        format!("{} s", three_digits(s))
    } else if s < 7200.0 {
        format!("{:.0}m {:02.0}s", (s / 60.0).floor(), s % 60.0)
    } else {
        format!("{:.0}h {:02.0}m", (s / 3600.0).floor(), (s % 3600.0) / 60.0)
    }
}

/// Three significant digits, never in exponent form.
pub fn three_digits(x: f64) -> String {
    let magnitude = x.abs();
    if magnitude >= 100.0 {
        format!("{x:.0}")
    } else if magnitude >= 10.0 {
        format!("{x:.1}")
    } else {
        format!("{x:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_sizes_durations() {
        assert_eq!(parse_count("1M"), Ok(1_000_000));
        assert_eq!(parse_count("1.5k"), Ok(1_500));
        assert_eq!(parse_count("28_232"), Ok(28_232));
        assert_eq!(parse_size("64KiB"), Ok(65_536));
        assert_eq!(parse_size("10kB"), Ok(10_000));
        assert_eq!(parse_duration_seconds("1m30s"), Ok(90.0));
        assert_eq!(parse_duration_seconds("250ms"), Ok(0.25));
        assert_eq!(parse_rate("10k/s"), Ok(10_000.0));
        assert_eq!(parse_rate("0.5/s"), Ok(0.5));
        assert_eq!(parse_rate("30/min"), Ok(0.5));
        assert!(parse_rate("3/fortnight").unwrap_err().to_string().contains("/fortnight"));
        assert!(parse_rate("-1/s").is_err() && parse_rate("nan").is_err());
    }

    #[test]
    fn what_cannot_be_read_says_so() {
        assert_eq!(parse_count("many"), Err(UnitError::NoNumber("many".into(), COUNTS)));
        assert!(parse_count("10q").unwrap_err().to_string().contains("unknown unit \"q\""));
        assert!(parse_size("1 parsec").is_err());
        assert!(parse_duration_seconds("10 fortnights").is_err());
        assert!(parse_duration_seconds("").is_err());
        assert!(parse_count("1M5").is_err());
        assert!(parse_count("99999999999999999999").is_err());
    }

    #[test]
    fn written_for_people() {
        assert_eq!(count(1_000_000), "1,000,000");
        assert_eq!(count(999), "999");
        assert_eq!(bytes(3584.0), "3.50 KiB");
        assert_eq!(bytes(212.4), "212 B");
        assert_eq!(milliseconds(0.085), "85 µs");
        assert_eq!(milliseconds(1300.0), "1.30 s");
        assert_eq!(seconds(125.0), "2m 05s");
    }
}

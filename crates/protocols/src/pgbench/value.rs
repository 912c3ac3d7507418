//! What can a variable of a script hold, and how is it written?

use std::fmt;
use std::io::Write as _;

/// How many digits of a double are written (`DBL_DIG` of C).
const DIGITS: usize = 15;

/// A value of an expression.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value {
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
}

impl Value {
    /// Reads what `--define` says, as pgbench reads it where an expression asks for it; `None`: it is only a text.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let lower = text.trim().to_ascii_lowercase();
        let begins = |word: &str, least: usize| lower.len() >= least && word.starts_with(lower.as_str());
        if lower == "null" {
            Some(Self::Null)
        } else if begins("true", 1) || begins("yes", 1) || lower == "on" {
            Some(Self::Boolean(true))
        } else if begins("false", 1) || begins("no", 1) || begins("off", 2) {
            Some(Self::Boolean(false))
        } else if let Ok(integer) = lower.parse() {
            Some(Self::Integer(integer))
        } else if lower.trim_start_matches(['+', '-']).bytes().all(|b| b.is_ascii_digit()) {
            // an integer that does not fit, or no digit at all
            None
        } else {
            lower.parse().ok().map(Self::Double)
        }
    }

    /// The integer that it is, or rounds to.
    pub(super) fn integer(self) -> Result<i64, String> {
        match self {
            Self::Integer(integer) => Ok(integer),
            Self::Double(double) => {
                let rounded = double.round_ties_even();
                // 2^63 itself is one too many, and an exact double
                if (-(2_f64.powi(63))..2_f64.powi(63)).contains(&rounded) {
                    Ok(rounded as i64)
                } else {
                    Err(format!("double to int overflow for {double}"))
                }
            }
            other => Err(format!("cannot coerce {} to int", other.kind())),
        }
    }

    pub(super) fn double(self) -> Result<f64, String> {
        match self {
            Self::Integer(integer) => Ok(integer as f64),
            Self::Double(double) => Ok(double),
            other => Err(format!("cannot coerce {} to double", other.kind())),
        }
    }

    pub(super) fn boolean(self) -> Result<bool, String> {
        match self {
            Self::Boolean(boolean) => Ok(boolean),
            other => Err(format!("cannot coerce {} to boolean", other.kind())),
        }
    }

    /// Whether a condition holds: a number does that is not 0.
    pub(super) fn holds(self) -> bool {
        match self {
            Self::Null => false,
            Self::Boolean(boolean) => boolean,
            Self::Integer(integer) => integer != 0,
            Self::Double(double) => double != 0.0,
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "boolean",
            Self::Integer(_) => "int",
            Self::Double(_) => "double",
        }
    }

    /// Appends it as it stands in a statement.
    pub(super) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Null => out.extend_from_slice(b"NULL"),
            Self::Boolean(true) => out.extend_from_slice(b"true"),
            Self::Boolean(false) => out.extend_from_slice(b"false"),
            // Writing to memory cannot fail.
            Self::Integer(integer) => drop(write!(out, "{integer}")),
            Self::Double(double) => drop(write!(out, "{}", Shortened(double))),
        }
    }
}

/// A double as C's `%.15g` writes it.
struct Shortened(f64);

impl fmt::Display for Shortened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0;
        if !value.is_finite() {
            let word = if value.is_nan() { "NaN" } else { "Infinity" };
            return write!(f, "{}{word}", if value < 0.0 { "-" } else { "" });
        }
        // -d.dddddddddddddde-308
        let mut scientific = Short::default();
        fmt::write(&mut scientific, format_args!("{value:.*e}", DIGITS - 1))?;
        let Some((mantissa, exponent)) = scientific.text().split_once('e') else { return Err(fmt::Error) };
        let exponent: i32 = exponent.parse().map_err(|_| fmt::Error)?;
        if (-4..DIGITS as i32).contains(&exponent) {
            let decimals = (DIGITS as i32 - 1 - exponent).max(0) as usize;
            let mut plain = Short::default();
            fmt::write(&mut plain, format_args!("{value:.decimals$}"))?;
            return f.write_str(without_zeros(plain.text()));
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(f, "{}e{sign}{:02}", without_zeros(mantissa), exponent.abs())
    }
}

fn without_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// Room for the digits of one double, so that a statement costs no memory of its own.
#[derive(Default)]
struct Short {
    bytes: [u8; 32],
    length: usize,
}

impl Short {
    fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }
}

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.length + text.len();
        self.bytes.get_mut(self.length..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.length = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_pgbench_writes_them() {
        for (value, text) in [
            (1e15, "1e+15"),
            (1.0 / 3.0, "0.333333333333333"),
            (123_456_789_012_345_678.0, "1.23456789012346e+17"),
            (-1e-5, "-1e-05"),
            (2.5, "2.5"),
            (100.0, "100"),
            (123_456_789_012_345.0, "123456789012345"),
            (999_999_999_999_999.9, "1e+15"),
            (1e300 * 1e300, "Infinity"),
            (-f64::INFINITY, "-Infinity"),
            (f64::NAN, "NaN"),
            (0.000_1, "0.0001"),
            (-f64::MIN_POSITIVE, "-2.2250738585072e-308"),
            (0.0, "0"),
        ] {
            let mut out = Vec::new();
            Value::Double(value).write(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }

    #[test]
    fn texts_that_are_values() {
        for (text, value) in [
            ("12", Some(Value::Integer(12))),
            ("-7", Some(Value::Integer(-7))),
            ("1.5", Some(Value::Double(1.5))),
            ("1e3", Some(Value::Double(1_000.0))),
            ("null", Some(Value::Null)),
            ("T", Some(Value::Boolean(true))),
            ("of", Some(Value::Boolean(false))),
            ("o", None),
            ("", None),
            ("accounts", None),
            ("99999999999999999999", None),
        ] {
            assert_eq!(Value::parse(text), value, "{text}");
        }
    }

    #[test]
    fn a_double_becomes_the_nearest_integer_or_is_told() {
        assert_eq!(Value::Double(2.5).integer(), Ok(2));
        assert_eq!(Value::Double(-3.5).integer(), Ok(-4));
        for wrong in [2_f64.powi(63), f64::NAN, f64::INFINITY] {
            assert!(Value::Double(wrong).integer().unwrap_err().contains("overflow"));
        }
        assert_eq!(Value::Double(-(2_f64.powi(63))).integer(), Ok(i64::MIN));
    }
}

//! Did a figure cross the border that was asked for? The `--fail-if` expressions.
//!
//! An expression is `PATH OP NUMBER`: a dotted path into the result document, one of `>` `>=` `<` `<=` `==`
//! `!=`, and a number with an optional unit that fits the path (`4KiB`, `250ms`, `10k`). `failed` alone is
//! the sum of `connections.failed`. What the thresholds are concluded before (`verdict`, `limits`, …) cannot
//! be asked.

mod shape;

use model::result::Threshold;
use model::{RunResult, units};
use serde_json::Value;
use thiserror::Error;

/// What an expression can look like, for messages.
const EXAMPLES: &str = "\"failed > 0\", \"verify.latency.p99_ms > 100ms\", \
                        \"cost.target.user_bytes_per_connection.value > 4KiB\"";

/// Roots of the document that are concluded after the thresholds, or that hold no figures.
const AFTERWARDS: [&str; 4] = ["thresholds", "limits", "warnings", "verdict"];

/// Why an expression cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ThresholdError {
    /// It has no operator.
    #[error("{0:?} has none of > >= < <= == != (examples: {EXAMPLES})")]
    NoOperator(String),
    /// Nothing stands before the operator.
    #[error("{0:?} names no figure before its operator (examples: {EXAMPLES})")]
    NoPath(String),
    /// What follows the operator is not a number of the path's unit.
    #[error("{expression:?} compares with {number:?}, which is not a number{unit}")]
    NotANumber {
        /// The whole expression.
        expression: String,
        /// What stands in the number's place.
        number: String,
        /// Which units would do, with a leading space.
        unit: &'static str,
    },
    /// No result has such a figure.
    #[error("{expression:?}: {at} has no {missing:?}; it has {known}")]
    NoSuchFigure {
        /// The whole expression.
        expression: String,
        /// How far the path is right.
        at: String,
        /// The first name that is not there.
        missing: String,
        /// What is there instead.
        known: String,
    },
    /// The path ends above the figures.
    #[error("{expression:?}: {path} is not a number; below it stand {known}")]
    NotAFigure {
        /// The whole expression.
        expression: String,
        /// The path.
        path: String,
        /// What stands below.
        known: String,
    },
    /// The figure is concluded from the thresholds or after them.
    #[error("{expression:?}: {root} is concluded after the thresholds; the exit code already tells it")]
    Afterwards {
        /// The whole expression.
        expression: String,
        /// First name of the path.
        root: String,
    },
}

/// How two numbers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `>`
    Above,
    /// `>=`
    AtLeast,
    /// `<`
    Below,
    /// `<=`
    AtMost,
    /// `==`
    Equal,
    /// `!=`
    NotEqual,
}

impl Operator {
    /// Every operator as written; the longer ones first, since a shorter one may be their beginning.
    const ALL: [(&'static str, Self); 6] = [
        (">=", Self::AtLeast),
        ("<=", Self::AtMost),
        ("==", Self::Equal),
        ("!=", Self::NotEqual),
        (">", Self::Above),
        ("<", Self::Below),
    ];

    /// Whether `left OP right`.
    pub fn holds(self, left: f64, right: f64) -> bool {
        match self {
            Self::Above => left > right,
            Self::AtLeast => left >= right,
            Self::Below => left < right,
            Self::AtMost => left <= right,
            Self::Equal => left == right,
            Self::NotEqual => left != right,
        }
    }
}

/// One expression, read.
#[derive(Debug, Clone, PartialEq)]
pub struct Expression {
    /// As written.
    pub text: String,
    /// The path's names.
    pub path: Vec<String>,
    /// How to compare.
    pub operator: Operator,
    /// What to compare with, in the unit of the path.
    pub number: f64,
}

impl Expression {
    /// Reads `PATH OP NUMBER[unit]`; whether the path exists is [`check_path`](Self::check_path)'s question.
    ///
    /// # Errors
    /// Says which part is missing or cannot be read.
    pub fn parse(text: &str) -> Result<Self, ThresholdError> {
        let at =
            text.find(['>', '<', '=', '!']).ok_or_else(|| ThresholdError::NoOperator(text.to_owned()))?;
        let (path, rest) = text.split_at(at);
        let (sign, operator) = Operator::ALL
            .into_iter()
            .find(|(sign, _)| rest.starts_with(sign))
            .ok_or_else(|| ThresholdError::NoOperator(text.to_owned()))?;
        let path = path.trim();
        if path.is_empty() {
            return Err(ThresholdError::NoPath(text.to_owned()));
        }
        let path: Vec<String> = path.split('.').map(|name| name.trim().to_owned()).collect();
        let number = rest[sign.len()..].trim();
        let unit = Unit::of(&path);
        let number = unit.read(number).ok_or_else(|| ThresholdError::NotANumber {
            expression: text.to_owned(),
            number: number.to_owned(),
            unit: unit.says(),
        })?;
        Ok(Self { text: text.trim().to_owned(), path, operator, number })
    }

    /// Whether a result can have this figure at all.
    ///
    /// # Errors
    /// Says how far the path is right, and what stands there.
    pub fn check_path(&self) -> Result<(), ThresholdError> {
        if self.is_short_form() {
            return Ok(());
        }
        // A way beside is a result of its own: beside.0.verdict.held.
        let root = if self.path[0] == "beside" { self.path.get(2) } else { None }.unwrap_or(&self.path[0]);
        if AFTERWARDS.contains(&root.as_str()) {
            return Err(ThresholdError::Afterwards { expression: self.text.clone(), root: root.clone() });
        }
        shape::check(&self.path).map_err(|wrong| match wrong {
            shape::Wrong::Missing { at, missing, known } => {
                ThresholdError::NoSuchFigure { expression: self.text.clone(), at, missing, known }
            }
            shape::Wrong::NotANumber { known } => {
                ThresholdError::NotAFigure { expression: self.text.clone(), path: self.path.join("."), known }
            }
        })
    }

    /// Compares with a result's document. Without that figure the value is `None` and the expression does not
    /// hold; a kind of failure that did not occur is 0, not absent.
    pub fn evaluate(&self, document: &Value) -> Threshold {
        let value = self.value(document);
        let held = value.is_some_and(|value| self.operator.holds(value, self.number));
        Threshold { expression: self.text.clone(), value, held }
    }

    fn value(&self, document: &Value) -> Option<f64> {
        if self.is_short_form() {
            let kinds = document.get("connections")?.get("failed")?.as_object()?;
            return Some(kinds.values().filter_map(Value::as_f64).sum());
        }
        let mut here = document;
        for (depth, name) in self.path.iter().enumerate() {
            here = match here {
                Value::Array(list) => list.get(name.parse::<usize>().ok()?)?,
                _ => match here.get(name) {
                    Some(below) => below,
                    None if depth > 0 && self.path[depth - 1] == "failed" => return Some(0.0),
                    None => return None,
                },
            };
        }
        here.as_f64().or_else(|| here.as_bool().map(|b| f64::from(u8::from(b))))
    }

    /// Whether it is `failed`, the sum of `connections.failed`.
    fn is_short_form(&self) -> bool {
        self.path == ["failed"]
    }
}

/// What a path's figures are counted in, by the unit in its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Milliseconds,
    Seconds,
    Bytes,
    Count,
}

impl Unit {
    fn of(path: &[String]) -> Self {
        let of_estimate = ["value", "low", "high"];
        let name = path.iter().rev().find(|name| !of_estimate.contains(&name.as_str()));
        match name.map_or("", String::as_str) {
            name if name.ends_with("_ms") => Self::Milliseconds,
            "seconds" => Self::Seconds,
            name if name.ends_with("_seconds") => Self::Seconds,
            name if name.ends_with("_bytes") || name.contains("_bytes_per_") => Self::Bytes,
            _ => Self::Count,
        }
    }

    /// Reads a plain number in this unit, or one with a suffix of its own.
    fn read(self, text: &str) -> Option<f64> {
        match text {
            "true" => return Some(1.0),
            "false" => return Some(0.0),
            _ => {}
        }
        let first = text.chars().next()?;
        let plain = text.replace('_', "").parse::<f64>();
        if let Some(number) = plain.ok().filter(|n| n.is_finite() && !first.is_alphabetic()) {
            return Some(number);
        }
        match self {
            Self::Milliseconds => units::parse_duration_seconds(text).ok().map(|s| s * 1e3),
            Self::Seconds => units::parse_duration_seconds(text).ok(),
            Self::Bytes => units::parse_size(text).ok().map(|b| b as f64),
            Self::Count => units::parse_count(text).ok().map(|n| n as f64),
        }
    }

    const fn says(self) -> &'static str {
        match self {
            Self::Milliseconds => " of milliseconds or a duration (100, 250ms, 1s)",
            Self::Seconds => " of seconds or a duration (0.5, 250ms, 1m30s)",
            Self::Bytes => " of bytes or a size (4096, 4KiB, 10MB)",
            Self::Count => " or a count (0, 0.5, 10k)",
        }
    }
}

/// Reads all expressions and checks their paths: called before the run, so that a typing error costs no run.
///
/// # Errors
/// The first expression that cannot be used, and why.
pub fn check_paths(expressions: &[String]) -> Result<Vec<Expression>, ThresholdError> {
    expressions
        .iter()
        .map(|text| {
            let expression = Expression::parse(text)?;
            expression.check_path()?;
            Ok(expression)
        })
        .collect()
}

/// Evaluates the run's own `spec.fail_if`. One that cannot be read has no value and does not hold.
pub fn judge(result: &RunResult) -> Vec<Threshold> {
    if result.spec.fail_if.is_empty() {
        return Vec::new();
    }
    // A result is made of maps with text keys only, which is all that its serialization asks for.
    let document = serde_json::to_value(result).unwrap_or_default();
    let unreadable = |text: &str| Threshold { expression: text.to_owned(), value: None, held: false };
    let evaluate = |text: &String| match check_paths(std::slice::from_ref(text)) {
        Ok(read) => read.first().map_or_else(|| unreadable(text), |e| e.evaluate(&document)),
        Err(_) => unreadable(text),
    };
    result.spec.fail_if.iter().map(evaluate).collect()
}

#[cfg(test)]
mod tests;

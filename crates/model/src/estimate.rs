//! How sure is a figure?

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A fitted figure with its 95% interval and the number of stages it rests on.
///
/// `low` and `high` are `None` where too few stages were seen for an interval at that level: the value
/// is then a reading without a promise, and outputs say so.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Estimate {
    /// The point estimate.
    pub value: f64,
    /// Lower end of the 95% interval.
    pub low: Option<f64>,
    /// Upper end of the 95% interval.
    pub high: Option<f64>,
    /// How many stages it was fitted over.
    pub stages: u32,
}

impl Estimate {
    /// Whether `x` lies within the interval; false where there is none.
    pub fn contains(&self, x: f64) -> bool {
        matches!((self.low, self.high), (Some(low), Some(high)) if low <= x && x <= high)
    }
}

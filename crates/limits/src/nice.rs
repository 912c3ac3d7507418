//! What figure should a remedy name? Enough for what was asked, with a margin, and easy to read.

/// What a limit should be lifted to for `needed` of something: a fifth more, rounded up to two digits.
pub(crate) fn lifted(needed: u64) -> u64 {
    up(needed.saturating_add(needed.div_ceil(5)))
}

/// What a setting that stands at `now` should be raised to where `needed` is needed: always more than now, and
/// no more than the kernel takes.
pub(crate) fn raised(needed: u64, now: u64) -> u64 {
    up(needed).max(lifted(now)).min(i64::MAX as u64)
}

/// Rounds up to two significant digits: 2,407 becomes 2,500.
pub(crate) fn up(n: u64) -> u64 {
    let step = step_of(n);
    n.div_ceil(step).saturating_mul(step)
}

/// Rounds to two significant digits for "about": 3,871,234 becomes 3,900,000.
pub(crate) fn about(n: u64) -> u64 {
    let step = step_of(n);
    (n.saturating_add(step / 2) / step).saturating_mul(step)
}

/// The power of ten that leaves two digits of `n`.
fn step_of(n: u64) -> u64 {
    10_u64.pow(n.max(1).ilog10().saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_digits_and_never_less_than_needed() {
        assert_eq!((up(0), up(7), up(99), up(101)), (0, 7, 99, 110));
        assert_eq!((up(2_407), up(12_000), lifted(10_000), lifted(1_000)), (2_500, 12_000, 12_000, 1_200));
        assert_eq!((about(3_871_234), about(12), about(1_049)), (3_900_000, 12, 1_000));
        assert_eq!((raised(25_000, 1_000), raised(25_000, 101_000)), (25_000, 130_000));
        assert_eq!(raised(25_000, i64::MAX as u64), i64::MAX as u64);
        for n in [1, 9, 10, 1_023, 65_537, u64::MAX / 2, u64::MAX] {
            assert!(lifted(n) >= n);
        }
    }
}

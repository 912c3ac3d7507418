//! How does a connection know its own bytes again without keeping them?
//!
//! Each connection keeps one number. Everything that must come back unchanged (an echo line, the payload of
//! a Ping, a WebSocket key) is made from that number and a sequence number when it is sent, and made again
//! when the answer is compared.

use std::cell::Cell;

/// How long a [`line`] is, with its line end.
pub(crate) const LINE: usize = 32;

/// Gives every connection of one driver a number of its own.
#[derive(Debug, Default)]
pub(crate) struct Nonces(Cell<u32>);

impl Nonces {
    /// The next number. None comes twice before 2^32 have been given: the mixing is a bijection.
    pub(crate) fn next(&self) -> u32 {
        let n = self.0.get();
        self.0.set(n.wrapping_add(1));
        scatter(n)
    }
}

/// Spreads neighbouring numbers over all 32 bits, so that connections differ in more than their last digit.
fn scatter(mut x: u32) -> u32 {
    x = (x ^ (x >> 16)).wrapping_mul(0x7feb_352d);
    x = (x ^ (x >> 15)).wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// SplitMix64's step: 64 well mixed bits from any 64.
pub(crate) fn splitmix(x: u64) -> u64 {
    let mut z = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What the connection of this number says the `seq`-th time, where an echo is awaited.
pub(crate) fn line(nonce: u32, seq: u32) -> [u8; LINE] {
    let mut line = *b"plimsoll ........ ........ ....\n";
    line[9..17].copy_from_slice(&hex(nonce));
    line[18..26].copy_from_slice(&hex(seq));
    line
}

/// Eight lower-case hexadecimal digits.
pub(crate) fn hex(n: u32) -> [u8; 8] {
    let mut out = [0; 8];
    for (i, digit) in out.iter_mut().enumerate() {
        let nibble = (n >> (28 - 4 * i)) & 0xf;
        *digit = b"0123456789abcdef"[nibble as usize];
    }
    out
}

/// The number that [`hex`] wrote so; `None` for anything else.
pub(crate) fn unhex(digits: &[u8]) -> Option<u32> {
    let n = u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    (hex(n) == digits).then_some(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_number_comes_twice() {
        let nonces = Nonces::default();
        let seen: std::collections::HashSet<u32> = (0..100_000).map(|_| nonces.next()).collect();
        assert_eq!(seen.len(), 100_000);
    }

    #[test]
    fn hexadecimal_there_and_back() {
        for n in [0, 1, 0xdead_beef, u32::MAX] {
            assert_eq!(unhex(&hex(n)), Some(n));
        }
        assert_eq!(&hex(0x0123_cdef), b"0123cdef");
        for bad in ["", "0", "0123456g", "0123CDEF", "+1234567", "000000000"] {
            assert_eq!(unhex(bad.as_bytes()), None, "{bad}");
        }
    }
}

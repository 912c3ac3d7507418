//! How are strings in header blocks packed? The Huffman code of RFC 7541, appendix B.
//!
//! The code is canonical: codes of one length follow each other in the order of their symbols, and the next length goes
//! on where the last ended. So the lengths say it all.

/// The end of a string, which never stands in one.
const END: usize = 256;
const LONGEST: usize = 30;

/// How many bits the code of each symbol has, the end's last.
#[rustfmt::skip]
const BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// All symbols, sorted by the lengths of their codes.
static SYMBOLS: [u16; 257] = sorted();
/// How many codes there are of each length.
const COUNTS: [u16; LONGEST + 1] = counted();

const fn counted() -> [u16; LONGEST + 1] {
    let mut counts = [0; LONGEST + 1];
    let mut symbol = 0;
    while symbol <= END {
        counts[BITS[symbol] as usize] += 1;
        symbol += 1;
    }
    counts
}

const fn sorted() -> [u16; 257] {
    let mut symbols = [0; 257];
    let (mut at, mut bits) = (0, 1);
    while bits <= LONGEST {
        let mut symbol = 0;
        while symbol <= END {
            if BITS[symbol] as usize == bits {
                symbols[at] = symbol as u16;
                at += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    symbols
}

/// Appends what was packed; `None`: it was not packed so.
pub(super) fn unpack(packed: &[u8], out: &mut Vec<u8>) -> Option<()> {
    // The bits of a code so far, the first code of that length, and where that one's symbol stands.
    let (mut code, mut first, mut at, mut bits) = (0_u32, 0_u32, 0_u32, 0_usize);
    let mut ones = true;
    for byte in packed {
        for shift in (0..8).rev() {
            let bit = u32::from(byte >> shift & 1);
            code = code << 1 | bit;
            first <<= 1;
            ones &= bit == 1;
            bits += 1;
            let count = u32::from(*COUNTS.get(bits)?);
            if code - first < count {
                let symbol = SYMBOLS[(at + code - first) as usize];
                // The end itself may not be written out (section 5.2).
                out.push(u8::try_from(symbol).ok()?);
                (code, first, at, bits, ones) = (0, 0, 0, 0, true);
            } else {
                at += count;
                first += count;
            }
        }
    }
    // What is left over starts the end, and is less than a byte.
    (ones && bits < 8).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unpacked(packed: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        unpack(packed, &mut out).map(|()| out)
    }

    /// The code of each symbol, made as the RFC lists them.
    fn codes() -> Vec<(u32, u8)> {
        let mut codes = vec![(0, 0); 257];
        let (mut code, mut bits) = (0_u32, 0);
        for &symbol in &SYMBOLS {
            let length = BITS[usize::from(symbol)];
            code <<= length - bits;
            bits = length;
            codes[usize::from(symbol)] = (code, bits);
            code += 1;
        }
        assert_eq!(code, 1 << LONGEST, "the code is complete");
        codes
    }

    fn pack(text: &[u8]) -> Vec<u8> {
        let codes = codes();
        let (mut out, mut pending, mut bits) = (Vec::new(), 0_u64, 0);
        for &byte in text {
            let (code, length) = codes[usize::from(byte)];
            pending = pending << length | u64::from(code);
            bits += length;
            while bits >= 8 {
                bits -= 8;
                out.push((pending >> bits) as u8);
                pending &= (1 << bits) - 1;
            }
        }
        if bits > 0 {
            out.push((pending << (8 - bits)) as u8 | 0xff >> bits);
        }
        out
    }

    #[test]
    fn codes_are_those_of_the_rfc() {
        let codes = codes();
        for (symbol, code, bits) in [
            (0, 0x1ff8, 13),
            (usize::from(b' '), 0x14, 6),
            (usize::from(b'0'), 0x0, 5),
            (usize::from(b'a'), 0x3, 5),
            (usize::from(b'~'), 0x1ffd, 13),
            (127, 0xfff_fffc, 28),
            (255, 0x3ff_ffee, 26),
            (END, 0x3fff_ffff, 30),
        ] {
            assert_eq!(codes[symbol], (code, bits), "{symbol}");
        }
    }

    #[test]
    fn strings_of_the_rfc() {
        let packed = b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff";
        assert_eq!(unpacked(packed).unwrap(), b"www.example.com");
        assert_eq!(unpacked(b"\xa8\xeb\x10\x64\x9c\xbf").unwrap(), b"no-cache");
        assert_eq!(unpacked(b"").unwrap(), b"");
    }

    #[test]
    fn what_is_not_packed_so_is_refused() {
        for wrong in [
            &b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xfe"[..],
            b"\xa8\xeb\x10\x64\x9c\xbf\xff",
            b"\xff\xff\xff\xff",
            b"\xff",
            b"\0\0\0\xff\xff\xff\xfc",
        ] {
            assert_eq!(unpacked(wrong), None, "{wrong:x?}");
        }
    }

    proptest! {
        #[test]
        fn there_and_back(text in prop::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(unpacked(&pack(&text)), Some(text));
        }

        #[test]
        fn never_panics(packed in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = unpacked(&packed);
        }
    }
}

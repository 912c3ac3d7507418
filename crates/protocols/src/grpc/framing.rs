//! Where does a gRPC message end? ("gRPC over HTTP2", Length-Prefixed-Message)

/// What stands before each message: whether it is compressed, and its length in four bytes.
pub(crate) const PREFIX: usize = 5;

/// How far one side of a stream has come within its messages.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Framing {
    /// Of the message under way; while its prefix comes, what is known of its length.
    left: u32,
    /// How many bytes of the prefix have come.
    at: u8,
}

impl Framing {
    /// Follows the bytes; says how many messages ended in them. `Err`: one is compressed, which nobody agreed to.
    pub(crate) fn follow(&mut self, mut bytes: &[u8]) -> Result<u32, Compressed> {
        let mut ended = 0;
        while let Some((&first, rest)) = bytes.split_first() {
            if usize::from(self.at) < PREFIX {
                match self.at {
                    0 if first != 0 => return Err(Compressed),
                    _ => self.left = self.left << 8 | u32::from(first),
                }
                self.at += 1;
                bytes = rest;
            } else {
                let n = bytes.len().min(self.left as usize);
                self.left -= n as u32;
                bytes = &bytes[n..];
            }
            if usize::from(self.at) == PREFIX && self.left == 0 {
                ended += 1;
                *self = Self::default();
            }
        }
        Ok(ended)
    }

    /// Whether no message is under way.
    pub(crate) fn is_between(self) -> bool {
        self.at == 0
    }
}

/// A message said that it was compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Compressed;

/// A message with its prefix.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PREFIX + message.len());
    out.push(0);
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out
}

/// The first message of these bytes, and how many bytes it takes; `None`: it is not all there.
pub(crate) fn first(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let [_, length @ ..] = bytes.first_chunk::<PREFIX>()?;
    let end = PREFIX.checked_add(u32::from_be_bytes(*length) as usize)?;
    Some((bytes.get(PREFIX..end)?, end))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_the_specification_draws_it() {
        assert_eq!(framed(b"abc"), b"\0\0\0\0\x03abc");
        assert_eq!(first(b"\0\0\0\0\x03abc\0"), Some((&b"abc"[..], 8)));
        assert_eq!(first(b"\0\0\0\0\x03ab"), None);
        assert_eq!(Framing::default().follow(b"\x01\0\0\0\x01"), Err(Compressed));
    }

    proptest! {
        #[test]
        fn messages_are_counted_however_they_are_cut(
            lengths in prop::collection::vec(0..400usize, 0..6),
            pieces in prop::collection::vec(1..50usize, 1..6),
        ) {
            let bytes: Vec<u8> = lengths.iter().flat_map(|n| framed(&vec![7; *n])).collect();
            let (mut framing, mut ended, mut rest) = (Framing::default(), 0, &bytes[..]);
            for n in pieces.into_iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (piece, more) = rest.split_at(n.min(rest.len()));
                ended += framing.follow(piece).unwrap();
                rest = more;
            }
            prop_assert_eq!(ended as usize, lengths.len());
            prop_assert!(framing.is_between());
        }
    }
}

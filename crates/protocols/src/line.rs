//! Where does a line of a text protocol end, and can it be one at all?

use model::Failure;

use crate::quote::{against_protocol, quote};

/// The longest line that is waited for. No answer to what a held connection asks comes near it.
const LONGEST: usize = 64 * 1024;

/// A language of lines: how each of them may start.
pub(crate) struct Language {
    /// What a failure calls it.
    pub(crate) name: &'static str,
    /// The first bytes that there are.
    pub(crate) starts: &'static [u8],
}

impl Language {
    /// The first line, without its end, and how many bytes it takes with it; `None`: it has not come whole.
    ///
    /// What can be no line is told at its first byte: who speaks another language may never send a line end.
    pub(crate) fn line<'a>(&self, bytes: &'a [u8]) -> Result<Option<(&'a [u8], usize)>, Failure> {
        let end = bytes.iter().take(LONGEST).position(|&b| b == b'\n');
        let starts = bytes.first().is_none_or(|first| self.starts.contains(first));
        if !starts || (end.is_none() && bytes.len() >= LONGEST) {
            return Err(self.not_spoken(bytes));
        }
        Ok(end.map(|end| {
            let line = &bytes[..end];
            (line.strip_suffix(b"\r").unwrap_or(line), end + 1)
        }))
    }

    /// The failure of a server that said something else.
    pub(crate) fn not_spoken(&self, said: &[u8]) -> Failure {
        let said = quote(said, 80);
        against_protocol(format!("the server said {said}, which is not {} that was due here", self.name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANGUAGE: Language = Language { name: "a word", starts: b"+-" };

    #[test]
    fn a_line_ends_or_is_waited_for() {
        assert_eq!(LANGUAGE.line(b"").unwrap(), None);
        assert_eq!(LANGUAGE.line(b"+PONG\r").unwrap(), None);
        assert_eq!(LANGUAGE.line(b"+PONG\r\n-").unwrap(), Some((&b"+PONG"[..], 7)));
        assert_eq!(LANGUAGE.line(b"+\n").unwrap(), Some((&b"+"[..], 2)));
    }

    #[test]
    fn what_can_be_no_line_is_told_at_once() {
        assert!(LANGUAGE.line(b"\x15\x03").unwrap_err().text.contains("not a word"));
        let mut long = vec![b'+'; LONGEST - 1];
        assert_eq!(LANGUAGE.line(&long).unwrap(), None);
        long.push(b'+');
        assert!(LANGUAGE.line(&long).is_err());
        long.push(b'\n');
        assert!(LANGUAGE.line(&long).is_err(), "however it came");
    }
}

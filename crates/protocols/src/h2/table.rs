//! Which headers have a number? Those of RFC 7541, appendix A, and those that a peer gave one.

use std::collections::VecDeque;

/// The static table: its first entry has the number 1.
#[rustfmt::skip]
static STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""), ("cache-control", ""),
    ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""), ("content-length", ""),
    ("content-location", ""), ("content-range", ""), ("content-type", ""), ("cookie", ""), ("date", ""), ("etag", ""),
    ("expect", ""), ("expires", ""), ("from", ""), ("host", ""), ("if-match", ""), ("if-modified-since", ""),
    ("if-none-match", ""), ("if-range", ""), ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""),
    ("location", ""), ("max-forwards", ""), ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""),
    ("referer", ""), ("refresh", ""), ("retry-after", ""), ("server", ""), ("set-cookie", ""),
    ("strict-transport-security", ""), ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""),
    ("www-authenticate", ""),
];

/// What each side may keep until it is told otherwise (RFC 9113, section 6.5.2).
pub(crate) const MOST: u16 = 4096;

/// What an entry counts for beside its bytes (RFC 7541, section 4.1).
const OVERHEAD: usize = 32;

type Entry = (Box<[u8]>, Box<[u8]>);

/// The headers that one peer gave a number: memory is there only while the peer uses it.
#[derive(Debug)]
pub(crate) struct Memory {
    kept: Option<Box<Kept>>,
    /// What the peer may fill.
    most: u16,
}

#[derive(Debug, Default)]
struct Kept {
    /// The newest first.
    entries: VecDeque<Entry>,
    /// The sum over all entries.
    size: usize,
}

impl Memory {
    /// With room for what a peer may send before it knows our settings.
    pub(crate) fn new() -> Self {
        Self { kept: None, most: MOST }
    }

    /// For a peer that knew from its first header block on that nothing is kept.
    pub(crate) fn none() -> Self {
        Self { kept: None, most: 0 }
    }

    /// The header of that number.
    pub(super) fn get(&self, number: usize) -> Option<(&[u8], &[u8])> {
        if let Some((name, value)) = STATIC.get(number.checked_sub(1)?) {
            return Some((name.as_bytes(), value.as_bytes()));
        }
        let (name, value) = self.kept.as_ref()?.entries.get(number - 1 - STATIC.len())?;
        Some((name, value))
    }

    /// Gives a header the lowest number that is not static (section 4.4).
    pub(super) fn add(&mut self, name: &[u8], value: &[u8]) {
        let size = name.len() + value.len() + OVERHEAD;
        let most = usize::from(self.most);
        self.shrink(most.saturating_sub(size));
        if size <= most {
            let kept = self.kept.get_or_insert_default();
            kept.entries.push_front((name.into(), value.into()));
            kept.size += size;
        }
    }

    /// The peer fills no more than this from here on (section 6.3); `None`: it may not have so much.
    pub(super) fn resize(&mut self, most: usize) -> Option<()> {
        let most = u16::try_from(most).ok().filter(|most| *most <= MOST)?;
        self.most = most;
        self.shrink(usize::from(most));
        Some(())
    }

    fn shrink(&mut self, most: usize) {
        let Some(kept) = &mut self.kept else { return };
        while kept.size > most {
            let Some((name, value)) = kept.entries.pop_back() else { break };
            kept.size -= name.len() + value.len() + OVERHEAD;
        }
        if kept.entries.is_empty() {
            self.kept = None;
        }
    }

    /// What is kept, for tests.
    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| kept.size)
    }
}

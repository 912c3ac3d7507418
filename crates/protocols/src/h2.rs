//! How does either side speak HTTP/2 (RFC 9113) without owning buffers? Frames, header blocks, and what one connection
//! keeps of its streams.
//!
//! A frame is taken when all of it is there; until then its bytes stay unconsumed with the caller, at most 16 KiB of
//! them, or a header block of 32 KiB.

pub(crate) mod frame;
pub(crate) mod hpack;
mod huffman;
pub(crate) mod session;
mod table;

/// What a client says first (RFC 9113, section 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Error codes of RFC 9113, section 7.
pub(crate) const NO_ERROR: u32 = 0x0;
pub(crate) const PROTOCOL_ERROR: u32 = 0x1;
pub(crate) const FLOW_CONTROL_ERROR: u32 = 0x3;
pub(crate) const STREAM_CLOSED: u32 = 0x5;
pub(crate) const FRAME_SIZE_ERROR: u32 = 0x6;
pub(crate) const REFUSED_STREAM: u32 = 0x7;
pub(crate) const COMPRESSION_ERROR: u32 = 0x9;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 0xb;

/// The name of an error code, as RFC 9113 has it.
pub(crate) fn code_name(code: u32) -> String {
    const NAMES: [&str; 14] = [
        "NO_ERROR",
        "PROTOCOL_ERROR",
        "INTERNAL_ERROR",
        "FLOW_CONTROL_ERROR",
        "SETTINGS_TIMEOUT",
        "STREAM_CLOSED",
        "FRAME_SIZE_ERROR",
        "REFUSED_STREAM",
        "CANCEL",
        "COMPRESSION_ERROR",
        "CONNECT_ERROR",
        "ENHANCE_YOUR_CALM",
        "INADEQUATE_SECURITY",
        "HTTP_1_1_REQUIRED",
    ];
    let name = usize::try_from(code).ok().and_then(|at| NAMES.get(at));
    name.map_or_else(|| format!("code 0x{code:x}"), |name| (*name).to_owned())
}

/// What the peer may not send; it ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken {
    /// The error code that tells it so.
    pub(crate) code: u32,
    /// Completes "it sent …".
    pub(crate) what: &'static str,
}

impl Broken {
    pub(crate) const fn new(code: u32, what: &'static str) -> Self {
        Self { code, what }
    }
}

/// What stands in front, and how many bytes it takes; `None`: it is not all there.
pub(crate) type Front<T> = Result<Option<(T, usize)>, Broken>;

//! What stands at the beginning and at the end of a call? ("gRPC over HTTP2", Request-Headers, Response-Headers and
//! Trailers)

use model::{Failure, Metadata, Target};

use super::status;
use crate::h2::Broken;
use crate::h2::hpack::{self, Memory};
use crate::quote::{against_protocol, quote};

/// The header block that begins each call of one method.
pub(crate) fn request(target: &Target, path: &str, metadata: &[Metadata]) -> Vec<u8> {
    let mut block = hpack::begin();
    hpack::put_known(&mut block, hpack::POST);
    hpack::put_known(&mut block, if target.scheme.is_tls() { hpack::HTTPS } else { hpack::HTTP });
    hpack::put_value(&mut block, hpack::PATH, path.as_bytes());
    hpack::put_value(&mut block, hpack::AUTHORITY, target.authority().as_bytes());
    hpack::put(&mut block, b"te", b"trailers");
    hpack::put_value(&mut block, hpack::CONTENT_TYPE, b"application/grpc");
    hpack::put_value(
        &mut block,
        hpack::USER_AGENT,
        concat!("plimsoll/", env!("CARGO_PKG_VERSION")).as_bytes(),
    );
    for Metadata { name, value } in metadata {
        hpack::put(&mut block, name.as_bytes(), value.reveal().as_bytes());
    }
    block
}

/// What is wrong with a piece of metadata.
///
/// # Errors
/// What it should be instead.
pub(crate) fn check_metadata(Metadata { name, value }: &Metadata) -> Result<(), String> {
    let is_name = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.');
    if name.is_empty() || !name.bytes().all(is_name) {
        return Err(format!("{name:?} cannot name metadata; a name has a-z, 0-9, _, - and . only"));
    }
    if name.starts_with("grpc-") || matches!(name.as_str(), "te" | "content-type" | "user-agent" | "host") {
        return Err(format!("{name} is set by gRPC itself; leave it out"));
    }
    if !value.reveal().bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(format!(
            "the value of {name} is not printable ASCII; give a name that ends in -bin a value in base64"
        ));
    }
    Ok(())
}

/// What the headers or the trailers of an answer say.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    http_status: Vec<u8>,
    content_type: Vec<u8>,
    status: Option<u32>,
    words: Vec<u8>,
}

impl Answer {
    /// Reads a header block of a server that was told to keep no table.
    pub(crate) fn read(block: &[u8]) -> Result<Self, Broken> {
        let mut answer = Self::default();
        hpack::read(block, &mut Memory::none(), |name, value| match name {
            b":status" => answer.http_status = value.to_vec(),
            b"content-type" => answer.content_type = value.to_vec(),
            b"grpc-status" => answer.status = std::str::from_utf8(value).ok().and_then(|n| n.parse().ok()),
            b"grpc-message" => answer.words = value.to_vec(),
            _ => {}
        })?;
        Ok(answer)
    }

    /// Whether the real answer is still to come (RFC 9110, section 15.2).
    pub(crate) fn is_interim(&self) -> bool {
        matches!(*self.http_status, [b'1', _, _])
    }

    /// Whether it may begin an answer to a call of `path`.
    pub(crate) fn check(&self, path: &str) -> Result<(), Failure> {
        if self.http_status != b"200" {
            return Err(status::http_refusal(path, &self.http_status));
        }
        if !self.content_type.starts_with(b"application/grpc") {
            let came = quote(&self.content_type, 80);
            return Err(against_protocol(format!(
                "the server answered {path} with content of the type {came}; check that gRPC is served there"
            )));
        }
        Ok(())
    }

    /// Whether the server has no such method.
    pub(crate) fn is_unimplemented(&self) -> bool {
        self.status == Some(status::UNIMPLEMENTED)
    }

    /// What the trailers say of a call of `path`: it is over, and well or not.
    pub(crate) fn end(&self, path: &str) -> Result<(), Failure> {
        match self.status {
            Some(status::OK) => Ok(()),
            Some(code) => Err(status::refusal(path, code, &self.words)),
            None => Err(against_protocol(format!("the server ended the answer to {path} without a status"))),
        }
    }
}

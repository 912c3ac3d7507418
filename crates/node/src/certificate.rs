//! Which certificate does the node show? A given one, or one that it signs itself on first start.

use std::fs;
use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;

use model::Scheme;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};

use crate::NodeError;

/// A certificate chain and its key, as PEM text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The chain, leaf first.
    pub chain_pem: String,
    /// The private key.
    pub key_pem: String,
}

/// Names that the self-signed certificate is good for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Reads a certificate and key from files.
///
/// # Errors
/// Names the file that cannot be read or used.
pub fn load(chain: &Path, key: &Path) -> Result<Certificate, NodeError> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|e| NodeError::Certificate(format!("{}: {e}", path.display())))
    };
    let certificate = Certificate { chain_pem: read(chain)?, key_pem: read(key)? };
    certificate.server_config(Scheme::Tls)?;
    Ok(certificate)
}

/// The public part of the node's own certificate, for `--ca`.
pub const CA_FILE: &str = "node-cert.pem";

/// Gives the node's own certificate from `directory`, signing it there first if there is none.
///
/// Nodes that start together agree on one: chain and key stand in one file, which comes into being whole and once.
///
/// # Errors
/// If the directory cannot be written.
pub fn self_signed(directory: &Path) -> Result<Certificate, NodeError> {
    let whole = directory.join("node.pem");
    let failed =
        |path: &Path, e: &dyn std::fmt::Display| NodeError::Certificate(format!("{}: {e}", path.display()));
    if !whole.exists() {
        fs::create_dir_all(directory).map_err(|e| failed(directory, &e))?;
        let names = NAMES.map(str::to_owned).to_vec();
        let signed =
            rcgen::generate_simple_self_signed(names).map_err(|e| NodeError::Certificate(e.to_string()))?;
        let text = format!("{}{}", signed.cert.pem(), signed.signing_key.serialize_pem());
        let mut draft = tempfile::NamedTempFile::new_in(directory).map_err(|e| failed(directory, &e))?;
        draft.write_all(text.as_bytes()).map_err(|e| failed(draft.path(), &e))?;
        match draft.persist_noclobber(&whole) {
            Ok(_) => {}
            // Another node was quicker: its certificate is everyone's.
            Err(e) if e.error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed(&whole, &e.error)),
        }
    }
    let text = fs::read_to_string(&whole).map_err(|e| failed(&whole, &e))?;
    let key_at = text
        .find("-----BEGIN PRIVATE KEY-----")
        .ok_or_else(|| failed(&whole, &"it holds no key; remove it, and a new one is signed"))?;
    let certificate =
        Certificate { chain_pem: text[..key_at].to_owned(), key_pem: text[key_at..].to_owned() };
    certificate.server_config(Scheme::Tls)?;
    let public = directory.join(CA_FILE);
    if fs::read_to_string(&public).ok().as_ref() != Some(&certificate.chain_pem) {
        let mut draft = tempfile::NamedTempFile::new_in(directory).map_err(|e| failed(directory, &e))?;
        draft.write_all(certificate.chain_pem.as_bytes()).map_err(|e| failed(draft.path(), &e))?;
        draft.persist(&public).map_err(|e| failed(&public, &e.error))?;
    }
    Ok(certificate)
}

impl Certificate {
    /// What every TLS connection of a server with this certificate shares that speaks such a protocol within.
    ///
    /// # Errors
    /// If the PEM text holds no certificate or key, or they do not belong together.
    pub fn server_config(&self, scheme: Scheme) -> Result<Arc<ServerConfig>, NodeError> {
        let bad = |e: &dyn std::fmt::Display| NodeError::Certificate(e.to_string());
        let chain = CertificateDer::pem_slice_iter(self.chain_pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| bad(&e))?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(|e| bad(&e))?;
        let mut config = ServerConfig::builder_with_provider(rustls::crypto::ring::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(|e| bad(&e))?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(|e| bad(&e))?;
        // The node's clients do not come back: tickets would be made and kept for nobody.
        config.send_tls13_tickets = 0;
        config.alpn_protocols = scheme.alpn().map(<[u8]>::to_vec).into_iter().collect();
        config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
        Ok(Arc::new(config))
    }
}

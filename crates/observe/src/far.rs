//! A target's host, seen through the service that runs there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::de::DeserializeOwned;
use ureq::tls::{Certificate, RootCerts, TlsConfig};

use crate::Finder;
use crate::service::There;

/// A look takes milliseconds; one that takes longer than this would hold up the run.
const PATIENCE: Duration = Duration::from_secs(5);

/// How an observer is reached.
#[derive(Debug, Clone, Default)]
pub struct Reach {
    /// `http://HOST:PORT` or `https://HOST:PORT`.
    pub url: String,
    /// What it asks for.
    pub token: Option<String>,
    /// Certificate authorities to trust beside those of this machine (PEM).
    pub ca_pem: Option<String>,
    /// Trust any certificate.
    pub insecure: bool,
}

/// An observer on another host.
pub(crate) struct Far {
    agent: ureq::Agent,
    base: String,
    query: String,
    token: Option<String>,
}

impl Far {
    /// Asks for the target for the first time.
    ///
    /// # Errors
    /// What is wrong, where, and what to do.
    pub(crate) fn meet(
        reach: &Reach,
        find: &Finder,
        addresses: &[SocketAddr],
    ) -> Result<(Self, There), String> {
        let base = reach.url.trim_end_matches('/').to_owned();
        let form = |url: &str| url.starts_with("http://") || url.starts_with("https://");
        if !form(&base) {
            return Err(format!(
                "the observer {base:?} has not the form http://HOST:PORT or https://HOST:PORT"
            ));
        }
        let far =
            Self { agent: agent(reach)?, base, query: query(find, addresses), token: reach.token.clone() };
        let there = far.ask("target")?;
        Ok((far, there))
    }

    /// Asks one thing.
    ///
    /// # Errors
    /// What is wrong, where, and what to do.
    pub(crate) fn ask<T: DeserializeOwned>(&self, what: &str) -> Result<T, String> {
        let url = format!("{}/v1/{what}?{}", self.base, self.query);
        let mut request = self.agent.get(&url);
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let failed = |why: &dyn std::fmt::Display| format!("the observer at {} failed: {why}", self.base);
        let mut response = request.call().map_err(|e| {
            format!("{}; is `plimsoll observe --listen` running there, and can it be reached?", failed(&e))
        })?;
        let text = response.body_mut().read_to_string().map_err(|e| failed(&e))?;
        if response.status() != 200 {
            return Err(failed(&text.trim()));
        }
        serde_json::from_str(&text).map_err(|e| format!("{}; is it of the same version?", failed(&e)))
    }
}

/// A client of few and small questions; statuses are read, not taken for errors.
pub(crate) fn agent(reach: &Reach) -> Result<ureq::Agent, String> {
    let roots = RootCerts::new_with_certs(&authorities(reach)?);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = TlsConfig::builder()
        .disable_verification(reach.insecure)
        .root_certs(roots)
        .unversioned_rustls_crypto_provider(provider);
    Ok(ureq::Agent::config_builder()
        .http_status_as_error(false)
        .timeout_global(Some(PATIENCE))
        .tls_config(tls.build())
        .build()
        .new_agent())
}

/// Whom to believe: the one that was named, and those of this machine.
fn authorities(reach: &Reach) -> Result<Vec<Certificate<'static>>, String> {
    let named = CertificateDer::pem_slice_iter(reach.ca_pem.as_deref().unwrap_or_default().as_bytes());
    let named: Vec<CertificateDer<'static>> = named
        .collect::<Result<_, _>>()
        .map_err(|e| format!("--ca holds no certificate that can be read: {e}"))?;
    let here = rustls_native_certs::load_native_certs().certs;
    Ok(named.iter().chain(&here).map(|c| Certificate::from_der(c).to_owned()).collect())
}

/// Whose processes are the target, in the words of the service.
fn query(find: &Finder, addresses: &[SocketAddr]) -> String {
    let mut words = form_urlencoded::Serializer::new(String::new());
    match find {
        Finder::Port(_) => {}
        Finder::Pid(pid) => drop(words.append_pair("pid", &pid.to_string())),
        Finder::Name(names) => {
            for name in names {
                words.append_pair("process", name);
            }
        }
        Finder::Cgroup(path) => drop(words.append_pair("cgroup", path)),
    }
    for address in addresses {
        words.append_pair("address", &address.to_string());
    }
    words.finish()
}

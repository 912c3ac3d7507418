//! Whom does a TLS client believe?

use std::sync::Arc;

use fleet::Assignment;
use model::{Scheme, Target};
use reactor::tls::ClientTls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::WorkerError;

/// Makes what every connection of this worker shares that begins with TLS; `None` where the target's do not.
pub(crate) fn from_the_start(assignment: &Assignment) -> Result<Option<ClientTls>, WorkerError> {
    let spec = &assignment.spec;
    let speaks_tls = spec.target.begins_with_tls();
    speaks_tls.then(|| client(&spec.target, assignment.ca_pem.as_deref(), spec.insecure)).transpose()
}

/// The same for a protocol that asks for TLS in its own words first; `None` if this target's URL does not want it.
pub(crate) fn on_request(assignment: &Assignment) -> Result<Option<ClientTls>, WorkerError> {
    let spec = &assignment.spec;
    let believing = |insecure| client(&spec.target, assignment.ca_pem.as_deref(), insecure);
    match spec.target.scheme {
        Scheme::Postgres => spec.target.encrypted(spec.insecure).map(believing).transpose(),
        Scheme::Nats if spec.target.query("tls").is_some() => believing(spec.insecure).map(Some),
        // The server may require it, or not: then it is no matter whom this machine trusts.
        Scheme::Nats => Ok(believing(spec.insecure).ok()),
        _ => Ok(None),
    }
}

/// Makes what connections to one target share that speak TLS, whoever opens them.
///
/// # Errors
/// If the host cannot be the name of a TLS server, or nobody is trusted.
pub fn client(target: &Target, ca_pem: Option<&str>, insecure: bool) -> Result<ClientTls, WorkerError> {
    let host = &target.host;
    let name = ServerName::try_from(host.clone())
        .map_err(|_| WorkerError::Setup(format!("{host:?} cannot be the name of a TLS server")))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let setup = |e: &dyn std::fmt::Display| WorkerError::Setup(format!("TLS: {e}"));
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| setup(&e))?;
    let mut config = if insecure {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(BelieveAnyone { provider }))
            .with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        if let Some(pem) = ca_pem {
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                roots.add(certificate.map_err(|e| setup(&e))?).map_err(|e| setup(&e))?;
            }
        }
        // A machine without a store of its own can still trust what --ca names.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return Err(WorkerError::Setup(
                "TLS: no certificate authority is trusted on this machine; name one with --ca FILE"
                    .to_owned(),
            ));
        }
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|e| setup(&e))?;
        builder.with_webpki_verifier(verifier).with_no_client_auth()
    };
    // Each connection is a new client: tickets would only cost memory on both sides.
    config.resumption = Resumption::disabled();
    config.alpn_protocols = target.scheme.alpn().map(<[u8]>::to_vec).into_iter().collect();
    Ok(ClientTls { config: Arc::new(config), name })
}

/// `--insecure`: believes any certificate, but still checks that the server holds its key.
#[derive(Debug)]
struct BelieveAnyone {
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for BelieveAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

//! Certificates as no server should show them.

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

/// A certificate for 127.0.0.1 that was good in the year 2020 and signed itself, and its key; both as PEM text.
///
/// # Errors
/// If it cannot be made.
pub fn expired() -> Result<(String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2020, 12, 31);
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

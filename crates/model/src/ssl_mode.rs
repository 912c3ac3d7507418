//! Is a PostgreSQL connection encrypted?

/// Whether a PostgreSQL connection is encrypted: the `sslmode` of the URL, by libpq's names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SslMode {
    /// It is not.
    #[default]
    Disable,
    /// It is, whoever the server turns out to be.
    Require,
    /// It is, and the server's certificate must be trusted and valid for its name.
    VerifyFull,
}

impl SslMode {
    /// What an option of a URL says of it; `None`: nothing.
    pub(crate) fn of(option: &str) -> Option<Self> {
        match option.strip_prefix("sslmode=")? {
            "disable" => Some(Self::Disable),
            "require" => Some(Self::Require),
            "verify-full" => Some(Self::VerifyFull),
            _ => None,
        }
    }
}

//! How does a connection speak TLS without owning buffers? rustls' unbuffered interface over lent ones.

use std::sync::Arc;

use model::{Failure, FailureKind};
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{CertificateError, ClientConfig, ServerConfig};

/// What a client needs to start TLS with its target; shared by all connections of a worker.
#[derive(Debug, Clone)]
pub struct ClientTls {
    /// Trust, protocol versions, cipher suites.
    pub config: Arc<ClientConfig>,
    /// The name that the certificate must be valid for.
    pub name: ServerName<'static>,
}

enum Side {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

/// One connection's TLS session: keys and state, no buffers.
pub struct Tls {
    side: Side,
}

/// What came of feeding bytes in.
#[derive(Debug, Default)]
pub(crate) struct Fed {
    /// How many of the bytes are done with.
    pub(crate) consumed: usize,
    /// Application data may be sent: the handshake is over.
    pub(crate) open: bool,
    /// The peer said that it will send no more.
    pub(crate) peer_closed: bool,
}

enum Step {
    Again,
    Blocked,
    Open,
    PeerClosed,
}

impl Tls {
    /// Starts the client's side.
    ///
    /// # Errors
    /// If the configuration cannot be used for that name.
    pub fn client(with: &ClientTls) -> Result<Self, rustls::Error> {
        let session = UnbufferedClientConnection::new(Arc::clone(&with.config), with.name.clone())?;
        Ok(Self { side: Side::Client(session) })
    }

    /// Starts the server's side.
    ///
    /// # Errors
    /// If the configuration cannot be used.
    pub fn server(config: &Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self { side: Side::Server(UnbufferedServerConnection::new(Arc::clone(config))?) })
    }

    /// Feeds in what came from the peer; appends plain text to `plain` and what the handshake wants sent to `wire`.
    pub(crate) fn feed(
        &mut self,
        sealed: &mut [u8],
        plain: &mut Vec<u8>,
        wire: &mut Vec<u8>,
    ) -> Result<Fed, Failure> {
        let mut fed = Fed::default();
        loop {
            let rest = &mut sealed[fed.consumed..];
            let (discard, step) = match &mut self.side {
                Side::Client(c) => client_step(c.process_tls_records(rest), plain, wire),
                Side::Server(s) => server_step(s.process_tls_records(rest), plain, wire),
            };
            fed.consumed += discard;
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Blocked) => return Ok(fed),
                Ok(Step::Open) => {
                    fed.open = true;
                    return Ok(fed);
                }
                Ok(Step::PeerClosed) => {
                    fed.open = true;
                    fed.peer_closed = true;
                    return Ok(fed);
                }
                Err(error) => {
                    // The alert that tells the peer why is encoded by one more step.
                    let _ = match &mut self.side {
                        Side::Client(c) => client_step(c.process_tls_records(&mut []), plain, wire),
                        Side::Server(s) => server_step(s.process_tls_records(&mut []), plain, wire),
                    };
                    return Err(failure(&error));
                }
            }
        }
    }

    /// Appends `plain` to `wire`, sealed. The handshake must be over.
    pub(crate) fn seal(&mut self, plain: &[u8], wire: &mut Vec<u8>) -> Result<(), Failure> {
        let sealed = match &mut self.side {
            Side::Client(c) => seal(c.process_tls_records(&mut []).state, plain, wire),
            Side::Server(s) => seal(s.process_tls_records(&mut []).state, plain, wire),
        };
        sealed.map_err(|e| failure(&e))
    }

    /// Appends the message that says no more will be sent (close_notify).
    pub(crate) fn close(&mut self, wire: &mut Vec<u8>) {
        match &mut self.side {
            Side::Client(c) => close(c.process_tls_records(&mut []).state, wire),
            Side::Server(s) => close(s.process_tls_records(&mut []).state, wire),
        }
    }
}

fn client_step(
    status: UnbufferedStatus<'_, '_, ClientConnectionData>,
    plain: &mut Vec<u8>,
    wire: &mut Vec<u8>,
) -> (usize, Result<Step, rustls::Error>) {
    let discard = status.discard;
    let (more, step) = step(status.state, plain, wire);
    (discard + more, step)
}

fn server_step(
    status: UnbufferedStatus<'_, '_, ServerConnectionData>,
    plain: &mut Vec<u8>,
    wire: &mut Vec<u8>,
) -> (usize, Result<Step, rustls::Error>) {
    let discard = status.discard;
    let (more, step) = step(status.state, plain, wire);
    (discard + more, step)
}

fn step<D>(
    state: Result<ConnectionState<'_, '_, D>, rustls::Error>,
    plain: &mut Vec<u8>,
    wire: &mut Vec<u8>,
) -> (usize, Result<Step, rustls::Error>) {
    let mut discard = 0;
    let step = match state {
        Err(error) => Err(error),
        Ok(ConnectionState::ReadTraffic(mut records)) => loop {
            match records.next_record() {
                None => break Ok(Step::Again),
                Some(Ok(record)) => {
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
                Some(Err(error)) => break Err(error),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut flight)) => {
            let start = wire.len();
            // The longest flight (a server's certificate chain) seldom passes this; if so, it says by how much.
            let mut room = 4096;
            loop {
                wire.resize(start + room, 0);
                match flight.encode(&mut wire[start..]) {
                    Ok(n) => {
                        wire.truncate(start + n);
                        break Ok(Step::Again);
                    }
                    Err(EncodeError::InsufficientSize(need)) => room = need.required_size,
                    Err(EncodeError::AlreadyEncoded) => {
                        wire.truncate(start);
                        break Ok(Step::Again);
                    }
                }
            }
        }
        Ok(ConnectionState::TransmitTlsData(sent)) => {
            sent.done();
            Ok(Step::Again)
        }
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Step::Open),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::PeerClosed),
        // BlockedHandshake; early data is never offered by us.
        Ok(_) => Ok(Step::Blocked),
    };
    (discard, step)
}

fn seal<D>(
    state: Result<ConnectionState<'_, '_, D>, rustls::Error>,
    plain: &[u8],
    wire: &mut Vec<u8>,
) -> Result<(), rustls::Error> {
    let ConnectionState::WriteTraffic(mut traffic) = state? else {
        return Err(rustls::Error::HandshakeNotComplete);
    };
    let start = wire.len();
    // RFC 8446 5.2: at most 2^14 bytes a record; header, tag and content type add 22.
    let mut room = plain.len() + 32 * (plain.len() / 16_384 + 1);
    loop {
        wire.resize(start + room, 0);
        match traffic.encrypt(plain, &mut wire[start..]) {
            Ok(n) => {
                wire.truncate(start + n);
                return Ok(());
            }
            Err(EncryptError::InsufficientSize(need)) => room = need.required_size,
            Err(EncryptError::EncryptExhausted) => return Err(rustls::Error::EncryptError),
        }
    }
}

fn close<D>(state: Result<ConnectionState<'_, '_, D>, rustls::Error>, wire: &mut Vec<u8>) {
    if let Ok(ConnectionState::WriteTraffic(mut traffic)) = state {
        let start = wire.len();
        wire.resize(start + 64, 0);
        let n = traffic.queue_close_notify(&mut wire[start..]).unwrap_or(0);
        wire.truncate(start + n);
    }
}

/// What a TLS error means for a connection, in words that say what to do.
fn failure(error: &rustls::Error) -> Failure {
    match error {
        rustls::Error::InvalidCertificate(why) => {
            let hint = match why {
                CertificateError::UnknownIssuer => "; trust it with --ca FILE, or use --insecure",
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                    "; name the target as the certificate does, or use --insecure"
                }
                CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                    "; it has expired: have the server's renewed, or use --insecure"
                }
                CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                    "; it is not valid yet: set the clocks of both hosts right, or use --insecure"
                }
                _ => "",
            };
            Failure::new(FailureKind::TlsCertificate, format!("{error}{hint}"))
        }
        _ => Failure::new(FailureKind::Tls, error.to_string()),
    }
}

//! How is one connection opened, and what do its first two steps take?

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::Server;

/// As long as a library's own patience: the MongoDB driver and bb8's managers give TCP no more.
const PATIENCE: Duration = Duration::from_secs(10);

/// What can be read from and written to, with TLS or without.
pub(crate) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// How long the parts of a connection's set-up took; `None`: it has no such part, or it cannot be told apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Setup {
    pub(crate) tcp: Duration,
    pub(crate) tls: Option<Duration>,
    pub(crate) topology: Option<Duration>,
    pub(crate) auth: Option<Duration>,
}

/// Opens a TCP connection.
pub(crate) async fn tcp(server: &Server) -> io::Result<(TcpStream, Setup)> {
    let began = Instant::now();
    let stream = timeout(PATIENCE, TcpStream::connect(server.address))
        .await
        .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "the server's kernel did not answer"))??;
    stream.set_nodelay(true)?;
    Ok((stream, Setup { tcp: began.elapsed(), ..Setup::default() }))
}

/// Opens a TCP connection and, where the server wants it from the start, does the TLS handshake.
pub(crate) async fn open(server: &Server) -> io::Result<(Box<dyn Io>, Setup)> {
    let (stream, mut setup) = tcp(server).await?;
    let Some(tls) = &server.tls else { return Ok((Box::new(stream), setup)) };
    let began = Instant::now();
    let stream = TlsConnector::from(tls.config.clone()).connect(tls.name.clone(), stream).await?;
    setup.tls = Some(began.elapsed());
    Ok((Box::new(stream), setup))
}

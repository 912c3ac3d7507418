//! A short-lived connection to a server that is asked one thing.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{PATIENCE, Server};

/// Whom to believe, and under which name.
#[derive(Clone)]
pub(super) struct Tls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) name: ServerName<'static>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tls({:?})", self.name)
    }
}

/// A connection whose every read and write ends in time.
pub(super) enum Line {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Line {
    /// Connects, still without TLS.
    pub(super) fn open(to: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&to, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self::Plain(stream))
    }

    /// Goes on over TLS, if the server is asked so.
    pub(super) fn encrypted(self, server: &Server) -> io::Result<Self> {
        match (self, &server.tls) {
            (Self::Plain(stream), Some(tls)) => {
                let connection = ClientConnection::new(Arc::clone(&tls.config), tls.name.clone())
                    .map_err(io::Error::other)?;
                Ok(Self::Tls(Box::new(StreamOwned::new(connection, stream))))
            }
            (line, _) => Ok(line),
        }
    }

    /// Closes it, and waits until the server has closed its side: only then has it given the place back.
    pub(super) fn close(mut self) {
        if let Self::Tls(stream) = &mut self {
            stream.conn.send_close_notify();
            let _ = stream.flush();
        }
        let mut stream = match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.into_parts().1,
        };
        let _ = stream.shutdown(Shutdown::Write);
        let mut rest = [0; 1024];
        while stream.read(&mut rest).is_ok_and(|n| n > 0) {}
    }
}

impl Read for Line {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(into),
            Self::Tls(stream) => stream.read(into),
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}

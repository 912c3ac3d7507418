//! PostgreSQL: tokio-postgres in bb8's pool.

use std::error::Error as _;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use model::SslMode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_postgres::tls::{ChannelBinding, NoTls, TlsConnect};
use tokio_postgres::{Client, Config, config};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::bb8::Speaker;
use crate::dial::{self, Setup};
use crate::{Facts, PoolError, Server, Tls};

pub(crate) const FACTS: Facts = Facts {
    library: "bb8 0.9.1 with tokio-postgres 0.7.18",
    counted_by: "each connect and each drop of bb8's connection manager",
    knows_minimum: true,
    knows_lifetime: true,
};

/// Opens sessions and asks them for nothing but an answer.
pub(crate) struct Postgres {
    server: Server,
    config: Config,
}

impl Postgres {
    /// # Errors
    /// If the URL's names cannot be read.
    pub(crate) fn new(server: &Server) -> Result<Self, PoolError> {
        let target = &server.target;
        let named =
            |what: Option<String>| what.ok_or_else(|| PoolError::Refused(format!("{target}: no name")));
        let mut config = Config::new();
        config.user(named(target.user().map(str::to_owned))?).dbname(named(target.database())?);
        if let Some(password) = target.password() {
            config.password(password);
        }
        config.application_name("plimsoll").ssl_mode(match target.ssl_mode() {
            SslMode::Disable => config::SslMode::Disable,
            SslMode::Require | SslMode::VerifyFull => config::SslMode::Require,
        });
        Ok(Self { server: server.clone(), config })
    }
}

impl Speaker for Postgres {
    type Connection = Client;

    async fn connect(&self) -> Result<(Client, Setup), String> {
        let (stream, mut setup) = dial::tcp(&self.server).await.map_err(|e| e.to_string())?;
        let began = Instant::now();
        let client = match &self.server.tls {
            None => {
                let (client, connection) = self.config.connect_raw(stream, NoTls).await.map_err(said)?;
                tokio::spawn(connection);
                client
            }
            Some(tls) => {
                let handshake = Handshake { tls: tls.clone(), began, took: Arc::default() };
                let took = Arc::clone(&handshake.took);
                let (client, connection) = self.config.connect_raw(stream, handshake).await.map_err(said)?;
                tokio::spawn(connection);
                setup.tls = took.lock().ok().and_then(|took| *took);
                client
            }
        };
        setup.auth = Some(began.elapsed().saturating_sub(setup.tls.unwrap_or_default()));
        Ok((client, setup))
    }

    async fn check(&self, client: &mut Client) -> Result<(), String> {
        // As bb8-postgres has it.
        client.simple_query("").await.map(|_| ()).map_err(said)
    }

    async fn operate(&self, client: &mut Client) -> Result<(), String> {
        client.simple_query("SELECT 1").await.map(|_| ()).map_err(said)
    }

    fn is_broken(&self, client: &mut Client) -> bool {
        client.is_closed()
    }
}

/// The server's own words, which the library's error only leads to.
fn said(error: tokio_postgres::Error) -> String {
    match error.as_db_error() {
        Some(said) => format!("{} ({})", said.message(), said.code().code()),
        None => match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        },
    }
}

/// TLS for a session that has asked for it in PostgreSQL's own words.
struct Handshake {
    tls: Tls,
    began: Instant,
    /// From the asking to the end of the handshake.
    took: Arc<Mutex<Option<Duration>>>,
}

impl TlsConnect<TcpStream> for Handshake {
    type Stream = Encrypted;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Encrypted>> + Send>>;

    fn connect(self, stream: TcpStream) -> Self::Future {
        Box::pin(async move {
            let connector = TlsConnector::from(Arc::clone(&self.tls.config));
            let stream = connector.connect(self.tls.name.clone(), stream).await?;
            if let Ok(mut took) = self.took.lock() {
                *took = Some(self.began.elapsed());
            }
            Ok(Encrypted(Box::new(stream)))
        })
    }
}

struct Encrypted(Box<TlsStream<TcpStream>>);

impl tokio_postgres::tls::TlsStream for Encrypted {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for Encrypted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Encrypted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.0).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0).poll_shutdown(cx)
    }
}

//! HTTP/1.1: the pool of hyper-util's client, which reqwest and others stand on.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Uri;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Bytes;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower_service::Service;

use crate::dial::{self, Io};
use crate::ledger::Ledger;
use crate::{Doing, Facts, Pool, PoolError, Server, Settings, Trouble};

pub(crate) const FACTS: Facts = Facts {
    library: "hyper-util 0.1.21's client, HTTP/1.1",
    counted_by: "each connect and each drop of the client's connector",
    knows_minimum: false,
    knows_lifetime: false,
};

/// What hyper-util's client lacks.
pub(crate) fn lacks(asked: &[Settings]) -> Vec<String> {
    let mut out = vec![
        "hyper-util 0.1.21's client opens as many connections as there are requests at once: --max-pool was set as the \
         most that it keeps idle"
            .to_owned(),
    ];
    let mut lack = |asked: bool, line: &str| {
        if asked {
            out.push(line.to_owned());
        }
    };
    lack(
        asked.iter().any(|s| s.min > 0),
        "hyper-util 0.1.21's client keeps no minimum: --min-pool was not applied, and 0 stands for each",
    );
    lack(
        asked.iter().any(|s| s.max_lifetime.is_some()),
        "hyper-util 0.1.21's client knows no longest lifetime: --max-lifetime was not applied",
    );
    lack(
        asked.iter().any(|s| s.wait_timeout.is_some()),
        "no request waits for a connection of hyper-util 0.1.21's client: --wait-timeout was not applied",
    );
    out
}

/// The client with its pool.
pub(crate) struct Http {
    client: Client<Connector, Empty<Bytes>>,
    uri: Uri,
}

impl Http {
    /// # Errors
    /// If the URL is none for the library.
    pub(crate) fn new(server: &Server, settings: &Settings, ledger: &Arc<Ledger>) -> Result<Self, PoolError> {
        let uri = server.target.to_string();
        let uri = uri.parse().map_err(|e| PoolError::Refused(format!("{uri}: {e}")))?;
        let mut builder = Client::builder(TokioExecutor::new());
        builder.pool_timer(TokioTimer::new()).pool_max_idle_per_host(settings.max as usize);
        if let Some(time) = settings.idle_timeout {
            builder.pool_idle_timeout(time);
        }
        let connector = Connector { server: server.clone(), ledger: Arc::clone(ledger) };
        Ok(Self { client: builder.build(connector), uri })
    }

    async fn get(&self) -> Result<(), String> {
        let answer = self.client.get(self.uri.clone()).await.map_err(|e| said(&e))?;
        let status = answer.status();
        // A connection goes back to the pool once its body was read.
        answer.into_body().collect().await.map_err(|e| said(&e))?;
        if status.is_client_error() || status.is_server_error() {
            Err(format!("HTTP {status}"))
        } else {
            Ok(())
        }
    }
}

/// An error with what it was caused by.
fn said(error: &dyn std::error::Error) -> String {
    let mut out = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        out.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    out
}

impl Pool for Http {
    fn operate(&self) -> Doing<'_, Result<(), Trouble>> {
        Box::pin(async { self.get().await.map_err(Trouble::Failed) })
    }

    fn close(&self) -> Doing<'_, ()> {
        // The client's last handle ends it.
        Box::pin(async {})
    }
}

/// Opens the client's connections.
#[derive(Clone)]
struct Connector {
    server: Server,
    ledger: Arc<Ledger>,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Counted>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<Counted>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let this = self.clone();
        Box::pin(async move {
            let (stream, _) = dial::open(&this.server).await?;
            this.ledger.created();
            Ok(TokioIo::new(Counted { stream, ledger: this.ledger }))
        })
    }
}

/// A connection whose end is counted.
struct Counted {
    stream: Box<dyn Io>,
    ledger: Arc<Ledger>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.ledger.closed();
    }
}

impl Connection for Counted {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Counted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Counted {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, from)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

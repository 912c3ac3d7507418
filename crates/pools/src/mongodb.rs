//! MongoDB: the official driver's pool, counted by the driver's own events.

use std::sync::Arc;
use std::time::Duration;

use model::Target;
use mongodb::bson::doc;
use mongodb::event::EventHandler;
use mongodb::event::cmap::CmapEvent;
use mongodb::options::{AuthMechanism, ClientOptions, Credential, ServerAddress, Tls, TlsOptions};

use crate::ledger::Ledger;
use crate::{Doing, Facts, Pool, PoolError, Server, Settings, Trouble};

pub(crate) const FACTS: Facts = Facts {
    library: "mongodb 3.8.1, the official driver",
    counted_by: "the driver's events (ConnectionCreated, ConnectionClosed)",
    knows_minimum: true,
    knows_lifetime: false,
};

/// The driver looks for a server so long, where its own default has 30 s: a run should say soon that there is none.
const SELECTION: Duration = Duration::from_secs(10);

/// What the driver lacks.
pub(crate) fn lacks(asked: &[Settings]) -> Vec<String> {
    let mut out = Vec::new();
    if asked.iter().any(|s| s.max_lifetime.is_some()) {
        out.push("mongodb 3.8.1 knows no longest lifetime: --max-lifetime was not applied".to_owned());
    }
    if asked.iter().any(|s| s.wait_timeout.is_some()) {
        out.push(
            "mongodb 3.8.1 does not support waitQueueTimeoutMS: --wait-timeout was not applied, and operations wait for \
             a connection without limit"
                .to_owned(),
        );
    }
    out
}

/// The driver's client with its one pool.
pub(crate) struct Mongodb {
    client: mongodb::Client,
    database: String,
}

impl Mongodb {
    /// Builds the client; its minimum comes to stand in the background.
    ///
    /// # Errors
    /// What the driver says of the options. A client is built within a runtime, and needs no answer for it.
    pub(crate) fn new(server: &Server, settings: &Settings, ledger: &Arc<Ledger>) -> Result<Self, PoolError> {
        let ledger = Arc::clone(ledger);
        let events = EventHandler::callback(move |event: CmapEvent| match event {
            CmapEvent::ConnectionCreated(_) => ledger.created(),
            CmapEvent::ConnectionClosed(_) => ledger.closed(),
            CmapEvent::ConnectionCheckedOut(event) => ledger.waited(event.duration),
            CmapEvent::ConnectionCheckoutFailed(event) => ledger.waited(event.duration),
            _ => {}
        });
        let mut options = options(server, events, true)?;
        options.min_pool_size = Some(settings.min);
        options.max_pool_size = Some(settings.max);
        options.max_idle_time = settings.idle_timeout;
        let client = client(options)?;
        Ok(Self { client, database: database(&server.target) })
    }
}

/// The operation: a round trip on a connection of the pool.
pub(crate) async fn ping(client: &mongodb::Client, database: &str) -> Result<(), String> {
    let answer = client.database(database).run_command(doc! { "ping": 1 }).await;
    answer.map(|_| ()).map_err(|e| e.kind.to_string())
}

impl Pool for Mongodb {
    fn operate(&self) -> Doing<'_, Result<(), Trouble>> {
        Box::pin(async { ping(&self.client, &self.database).await.map_err(Trouble::Failed) })
    }

    fn close(&self) -> Doing<'_, ()> {
        Box::pin(self.client.clone().shutdown().into_future())
    }
}

/// A client of one server.
///
/// # Errors
/// What the driver says of the options.
pub(crate) fn client(options: ClientOptions) -> Result<mongodb::Client, PoolError> {
    mongodb::Client::with_options(options).map_err(|e| PoolError::Refused(e.kind.to_string()))
}

/// The driver's options for a server; without `login`, nobody logs in although the URL names somebody.
///
/// # Errors
/// If the URL's names cannot be read.
pub(crate) fn options(
    server: &Server,
    events: EventHandler<CmapEvent>,
    login: bool,
) -> Result<ClientOptions, PoolError> {
    let target = &server.target;
    // The driver checks a certificate against the very name that it connects to.
    let host = match &server.tls {
        Some(tls) if !tls.insecure => target.host.clone(),
        _ => server.address.ip().to_string(),
    };
    let mut options = ClientOptions::builder()
        .hosts(vec![ServerAddress::Tcp { host, port: Some(server.address.port()) }])
        .direct_connection(true)
        .server_selection_timeout(SELECTION)
        .app_name("plimsoll".to_owned())
        .cmap_event_handler(events)
        .build();
    if let Some(tls) = &server.tls {
        let trust = TlsOptions::builder()
            .ca_file_path(tls.ca.clone())
            .allow_invalid_certificates(tls.insecure.then_some(true))
            .build();
        options.tls = Some(Tls::Enabled(trust));
    }
    if let Some(user) = target.user().filter(|_| login) {
        let source = target.auth_source();
        let source = source.ok_or_else(|| PoolError::Refused(format!("{target}: no authSource")))?;
        options.credential = Some(
            Credential::builder()
                .username(user.to_owned())
                .password(target.password().map(str::to_owned))
                .source(source)
                .mechanism(AuthMechanism::ScramSha256)
                .build(),
        );
    }
    Ok(options)
}

fn database(target: &Target) -> String {
    target.database().unwrap_or_else(|| "admin".to_owned())
}

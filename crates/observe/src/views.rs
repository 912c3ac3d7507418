//! What do servers say of their own connections?
//!
//! Each reading is made over a connection of its own that is closed at once: a held one would take a place from those
//! that are measured. A file per kind of server, and its line in [`TELLERS`].

mod line;
mod pgbouncer;
mod postgres;
mod redis;
mod session;

use std::net::SocketAddr;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use model::observation::ServerView;
use model::{Scheme, Target};

use line::Tls;

/// How long a server may take to answer: it is asked while others wait for what it says.
const PATIENCE: Duration = Duration::from_secs(1);

/// One kind of server that tells of its connections.
trait Teller: Sync {
    /// Asks over a connection of its own. `None`: this is another kind of server. Called on a thread of its own, which
    /// is not waited for longer than [`PATIENCE`].
    ///
    /// # Errors
    /// Why there is no view, and what to do about it.
    fn ask(&self, server: &Server) -> Result<Option<ServerView>, String>;
}

/// Who tells, where a scheme is spoken; those that can be mistaken for another before it.
static TELLERS: &[(Scheme, &dyn Teller)] = &[
    (Scheme::Postgres, &pgbouncer::PgBouncer),
    (Scheme::Postgres, &postgres::Postgres),
    (Scheme::Redis, &redis::Redis),
];

/// A server that is asked for its own view of its connections.
#[derive(Debug, Clone)]
pub struct Server {
    target: Target,
    address: SocketAddr,
    tls: Option<Tls>,
    /// Which of the tellers is its own, once that is known.
    teller: Option<usize>,
}

impl Server {
    /// A server that is asked with the login of its URL.
    pub fn new(target: Target, address: SocketAddr) -> Self {
        Self { target, address, tls: None, teller: None }
    }

    /// Asks over TLS, under this name.
    #[must_use]
    pub fn over_tls(
        mut self,
        config: std::sync::Arc<rustls::ClientConfig>,
        name: rustls::pki_types::ServerName<'static>,
    ) -> Self {
        self.tls = Some(Tls { config, name });
        self
    }

    /// Whether servers that speak this are known to tell of their connections.
    pub fn tells(scheme: Scheme) -> bool {
        TELLERS.iter().any(|(of, _)| *of == scheme.plain())
    }

    /// Asks those that may be its kind, until one is; gives which.
    fn ask(&self) -> Result<(usize, ServerView), String> {
        for (index, (scheme, teller)) in TELLERS.iter().enumerate() {
            let may_be = self.teller.map_or(*scheme == self.target.scheme.plain(), |known| known == index);
            if may_be && let Some(view) = teller.ask(self)? {
                return Ok((index, view));
            }
        }
        Err(format!("{} is no server that is known to tell of its connections", self.target.authority()))
    }

    /// Begins to ask.
    fn begin(&self) -> Receiver<Result<(usize, ServerView), String>> {
        let (told, telling) = mpsc::channel();
        let server = self.clone();
        thread::spawn(move || {
            // Nobody listens any more to one that took too long.
            let _ = told.send(server.ask());
        });
        telling
    }

    /// Where it is, in words.
    fn place(&self) -> String {
        self.target.authority()
    }
}

/// Asks all of them at once; gives what was said, and why some said nothing.
pub(crate) fn read(servers: &mut [Server]) -> (Vec<ServerView>, Vec<String>) {
    let telling: Vec<_> = servers.iter().map(Server::begin).collect();
    let (mut views, mut silent) = (Vec::new(), Vec::new());
    for (server, telling) in servers.iter_mut().zip(telling) {
        match telling.recv_timeout(PATIENCE) {
            Ok(Ok((teller, view))) => {
                server.teller = Some(teller);
                views.push(view);
            }
            Ok(Err(why)) => silent.push(why),
            Err(_) => silent.push(format!(
                "{} did not say within {} s how many connections it has; its own view is missing there",
                server.place(),
                PATIENCE.as_secs()
            )),
        }
    }
    (views, silent)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;

    use super::*;

    fn told_by(url: &str, answer: &'static [u8]) -> (Vec<ServerView>, Vec<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            // Held, so that nothing but time ends the question.
            let mut held = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                stream.write_all(answer).unwrap();
                held.push(stream);
            }
        });
        let target = Target::parse(&url.replace("PORT", &address.port().to_string())).unwrap();
        read(&mut [Server::new(target, address)])
    }

    #[test]
    fn a_server_that_says_nothing_is_not_waited_for() {
        for url in ["postgres://u@127.0.0.1:PORT/db", "redis://127.0.0.1:PORT"] {
            let (views, silent) = told_by(url, b"");
            assert!(views.is_empty(), "{views:?}");
            assert!(silent.len() == 1 && silent[0].contains("within 1 s"), "{silent:?}");
        }
    }

    #[test]
    fn a_server_that_says_something_else_is_told_of() {
        for url in ["postgres://u@127.0.0.1:PORT/db", "redis://127.0.0.1:PORT"] {
            let (views, silent) = told_by(url, b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
            assert!(views.is_empty(), "{views:?}");
            assert!(silent.len() == 1 && silent[0].contains("127.0.0.1"), "{silent:?}");
        }
    }

    #[test]
    fn only_some_tell() {
        assert!(Server::tells(Scheme::Postgres) && Server::tells(Scheme::Rediss));
        assert!(!Server::tells(Scheme::Tcp));
    }
}

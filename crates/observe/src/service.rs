//! What can be seen here, for a run on another host: a small read-only service, JSON over HTTP/1.1.
//!
//! | path | answer |
//! | --- | --- |
//! | `/v1/target` | [`There`]: this host, its settings, the target's processes |
//! | `/v1/observation` | [`Observation`](model::Observation), without a generator |
//! | `/v1/glance` | [`Glance`](crate::Glance) |
//! | `/v1/listener`, `/v1/tcp` | the accept queues, the TCP counters, and no more |
//! | `/healthz` | `ok`, without a token |
//!
//! Whose processes are the target is asked with each question: `?address=10.0.0.5:7000`, `pid=`, `process=` or
//! `cgroup=`; every question has its own [`Observer`], so that CPU time never runs backwards.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use model::observation::{HostSettings, ProcessSettings};
use model::result::{Host, ProcessSeen};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::{Finder, Observer, Root};

/// The most that a request's head may take.
const MOST_HEAD: usize = 8 << 10;
/// Clients at a time: a run has one, and more than a few runs do not watch one host.
const MOST_CLIENTS: usize = 32;
/// Questions whose state is kept; the one that was asked longest ago is forgotten first.
const MOST_QUESTIONS: usize = 16;
/// A client that says nothing for so long is gone. It looks about once a second.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is read once, before a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct There {
    /// The host that is observed.
    pub host: Host,
    /// Its settings.
    pub settings: HostSettings,
    /// The limits of the target's processes that accept connections.
    pub target: Vec<ProcessSettings>,
    /// The target's processes.
    pub processes: Vec<ProcessSeen>,
    /// Why they cannot be seen.
    pub hidden: Option<String>,
}

/// The service, bound and not yet answering.
pub struct Service {
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    token: Option<String>,
    questions: Mutex<VecDeque<(String, Observer)>>,
    clients: AtomicUsize,
}

/// Why a request is not answered with what it asks for.
#[derive(Debug, Error, PartialEq, Eq)]
enum Refused {
    #[error("400 Bad Request: {0}")]
    Malformed(String),
    #[error(
        "401 Unauthorized: send `Authorization: Bearer TOKEN` with the token that the service was started with"
    )]
    Unauthorized,
    #[error("404 Not Found: ask for /v1/target, /v1/observation, /v1/glance, /v1/listener or /v1/tcp")]
    NotFound,
    #[error("405 Method Not Allowed: it only answers GET")]
    NotGet,
}

impl Service {
    /// Makes the service; without a token everyone who reaches it may ask.
    pub fn new(listener: TcpListener, tls: Option<Arc<ServerConfig>>, token: Option<String>) -> Self {
        let (questions, clients) = (Mutex::default(), AtomicUsize::new(0));
        Self { listener, tls, token, questions, clients }
    }

    /// Answers until the process ends.
    ///
    /// # Errors
    /// If nobody can be accepted any more.
    pub fn run(self) -> io::Result<()> {
        let service = Arc::new(self);
        loop {
            let client = match service.listener.accept() {
                Ok((client, _)) => client,
                // It was gone again before it was accepted.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(e) => return Err(e),
            };
            if service.clients.fetch_add(1, Ordering::Relaxed) >= MOST_CLIENTS {
                service.clients.fetch_sub(1, Ordering::Relaxed);
                continue;
            }
            let service = Arc::clone(&service);
            std::thread::spawn(move || {
                // Whatever ended the conversation, the client knows it best.
                let _ = service.attend(client);
                service.clients.fetch_sub(1, Ordering::Relaxed);
            });
        }
    }

    fn attend(&self, client: TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(PATIENCE))?;
        client.set_write_timeout(Some(PATIENCE))?;
        client.set_nodelay(true)?;
        match &self.tls {
            None => self.converse(client),
            Some(config) => {
                let connection = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
                self.converse(StreamOwned::new(connection, client))
            }
        }
    }

    /// Answers one request after the other.
    fn converse(&self, mut client: impl Read + Write) -> io::Result<()> {
        let mut bytes = Vec::new();
        loop {
            let Some(head) = next_head(&mut client, &mut bytes)? else { return Ok(()) };
            let answer = self.answer(&head);
            let (status, body) = match &answer {
                Ok(body) => ("200 OK", body.clone()),
                Err(refused) => {
                    let text = refused.to_string();
                    let status = match refused {
                        Refused::Malformed(_) => "400 Bad Request",
                        Refused::Unauthorized => "401 Unauthorized",
                        Refused::NotFound => "404 Not Found",
                        Refused::NotGet => "405 Method Not Allowed",
                    };
                    (status, format!("{text}\n"))
                }
            };
            let kind = if answer.is_ok() { "application/json" } else { "text/plain" };
            let length = body.len();
            let text = format!(
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
            );
            client.write_all(text.as_bytes())?;
            client.flush()?;
            if matches!(answer, Err(Refused::Malformed(_) | Refused::NotGet)) {
                return Ok(());
            }
        }
    }

    fn answer(&self, head: &[u8]) -> Result<String, Refused> {
        let mut headers = [httparse::EMPTY_HEADER; 32];
        let mut request = httparse::Request::new(&mut headers);
        request.parse(head).map_err(|e| Refused::Malformed(e.to_string()))?;
        if request.method != Some("GET") {
            return Err(Refused::NotGet);
        }
        let path = request.path.unwrap_or("/");
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        if path == "/healthz" {
            return Ok("\"ok\"".to_owned());
        }
        let given = request.headers.iter().find(|h| h.name.eq_ignore_ascii_case("authorization"));
        let given = given.and_then(|h| h.value.strip_prefix(b"Bearer "));
        if self.token.as_ref().is_some_and(|token| !given.is_some_and(|given| same(given, token.as_bytes())))
        {
            return Err(Refused::Unauthorized);
        }
        let mut questions = self.questions.lock().unwrap_or_else(PoisonError::into_inner);
        let known = questions.iter().position(|(asked, _)| asked == query).and_then(|i| questions.remove(i));
        let mut question = match known {
            Some(question) => question,
            None => (query.to_owned(), observer(query)?),
        };
        let answer = look(&mut question.1, path);
        questions.push_back(question);
        if questions.len() > MOST_QUESTIONS {
            questions.pop_front();
        }
        answer
    }
}

/// Compares without telling by its time how much was right.
fn same(given: &[u8], token: &[u8]) -> bool {
    given.len() == token.len() && given.iter().zip(token).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// Reads up to the end of a request's head; `None`: the client has gone.
fn next_head(client: &mut impl Read, bytes: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    let mut piece = [0; 1024];
    loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            let rest = bytes.split_off(end + 4);
            return Ok(Some(std::mem::replace(bytes, rest)));
        }
        if bytes.len() > MOST_HEAD {
            return Err(io::Error::other("a request's head is too long"));
        }
        match client.read(&mut piece)? {
            0 => return Ok(None),
            n => bytes.extend_from_slice(&piece[..n]),
        }
    }
}

/// The observer that a question's words ask for.
fn observer(query: &str) -> Result<Observer, Refused> {
    let mut find = None;
    let mut names = Vec::new();
    let mut addresses = Vec::new();
    for (key, value) in form_urlencoded::parse(query.as_bytes()) {
        let wrong = |what: &str| Refused::Malformed(format!("{key}={value} is not {what}"));
        match key.as_ref() {
            "address" => {
                addresses.push(value.parse::<SocketAddr>().map_err(|_| wrong("an address and port"))?);
            }
            "pid" => find = Some(Finder::Pid(value.parse().map_err(|_| wrong("a process id"))?)),
            "process" => names.push(value.into_owned()),
            "cgroup" => find = Some(Finder::Cgroup(value.into_owned())),
            _ => return Err(Refused::Malformed(format!("{key}: it knows address, pid, process and cgroup"))),
        }
    }
    if !names.is_empty() {
        find = Some(Finder::Name(names));
    }
    let find = find.unwrap_or_else(|| Finder::Port(addresses.clone()));
    Ok(Observer::new(Root::host(), std::process::id(), find).listening_at(addresses))
}

fn look(observer: &mut Observer, path: &str) -> Result<String, Refused> {
    let answer = match path {
        "/v1/target" => {
            let settings = observer.settings();
            serde_json::to_string(&There {
                host: observer.host(),
                processes: observer.target_processes(),
                settings: settings.host,
                target: settings.target,
                hidden: settings.target_hidden,
            })
        }
        "/v1/observation" => {
            let mut seen = observer.observe();
            // What is left of the processes below this service is the service itself.
            seen.generator = None;
            serde_json::to_string(&seen)
        }
        "/v1/glance" => serde_json::to_string(&observer.glance()),
        "/v1/listener" => serde_json::to_string(&observer.listener()),
        "/v1/tcp" => serde_json::to_string(&observer.tcp()),
        _ => return Err(Refused::NotFound),
    };
    answer.map_err(|e| Refused::Malformed(e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(token: Option<&str>) -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Service::new(listener, None, token.map(str::to_owned))
    }

    fn ask(service: &Service, line: &str, header: &str) -> Result<String, Refused> {
        service.answer(format!("{line} HTTP/1.1\r\nHost: h\r\n{header}\r\n").as_bytes())
    }

    #[test]
    fn only_who_has_the_token_is_answered() {
        let guarded = service(Some("secret"));
        assert_eq!(ask(&guarded, "GET /v1/tcp", ""), Err(Refused::Unauthorized));
        assert_eq!(
            ask(&guarded, "GET /v1/tcp", "Authorization: Bearer secre\r\n"),
            Err(Refused::Unauthorized)
        );
        assert_eq!(
            ask(&guarded, "GET /v1/tcp", "Authorization: Bearer secrets\r\n"),
            Err(Refused::Unauthorized)
        );
        assert!(
            ask(&guarded, "GET /v1/tcp", "authorization: Bearer secret\r\n")
                .unwrap()
                .contains("listen_overflows")
        );
        assert_eq!(ask(&guarded, "GET /healthz", ""), Ok("\"ok\"".to_owned()));
    }

    #[test]
    fn what_cannot_be_answered_says_why() {
        let open = service(None);
        assert_eq!(ask(&open, "GET /etc/passwd", ""), Err(Refused::NotFound));
        assert_eq!(ask(&open, "POST /v1/tcp", ""), Err(Refused::NotGet));
        for (query, word) in
            [("pid=x", "process id"), ("address=here", "address and port"), ("root=/", "it knows")]
        {
            let refused = ask(&open, &format!("GET /v1/target?{query}"), "").unwrap_err();
            assert!(refused.to_string().contains(word), "{refused}");
        }
        assert!(open.answer(b"\0\0\r\n\r\n").is_err());
    }

    #[test]
    fn it_sees_this_very_process_and_forgets_old_questions() {
        let open = service(None);
        let here = format!("GET /v1/target?pid={}", std::os::unix::process::parent_id());
        let there: There = serde_json::from_str(&ask(&open, &here, "").unwrap()).unwrap();
        assert!(there.hidden.is_none() && !there.processes.is_empty(), "{there:?}");
        for pid in 1..40 {
            ask(&open, &format!("GET /v1/listener?pid={pid}"), "").unwrap();
        }
        assert_eq!(open.questions.lock().unwrap().len(), MOST_QUESTIONS);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let mut kept = Vec::new();
            if let Ok(Some(head)) = next_head(&mut bytes.as_slice(), &mut kept) {
                let _ = service(Some("t")).answer(&head);
            }
        }
    }
}

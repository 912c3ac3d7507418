//! A session of PostgreSQL's protocol, for questions of one line: with PostgreSQL itself, or with PgBouncer.
//!
//! Only the simple query protocol is used, as PgBouncer's console knows no other.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read as _, Write as _};

use bytes::BytesMut;
use fallible_iterator::FallibleIterator as _;
use postgres_protocol::authentication::md5_hash;
use postgres_protocol::authentication::sasl::{ChannelBinding, SCRAM_SHA_256, ScramSha256};
use postgres_protocol::message::backend::{DataRowBody, ErrorResponseBody, Message, RowDescriptionBody};
use postgres_protocol::message::frontend;

use super::Server;
use super::line::Line;

/// The longest answer that is read.
const MOST_BYTES: usize = 4 << 20;

/// Why nothing was said.
#[derive(Debug)]
pub(super) enum Unsaid {
    /// The server refused, with a SQLSTATE and its own words.
    Refused { code: String, words: String },
    /// The connection broke, or what came was not understood.
    Broken(io::Error),
}

impl fmt::Display for Unsaid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused { code, words } => write!(f, "{words} (SQLSTATE {code})"),
            Self::Broken(why) => write!(f, "{why}"),
        }
    }
}

impl From<io::Error> for Unsaid {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// One row of an answer: its values by their columns' names; a NULL has none.
pub(super) type Row = BTreeMap<String, String>;

/// A session that is logged in.
pub(super) struct Session {
    line: Line,
    come: BytesMut,
    /// What the server calls its version.
    pub(super) version: String,
}

impl Session {
    /// Connects to a database with the login of the server's URL.
    pub(super) fn open(server: &Server, database: &str) -> Result<Self, Unsaid> {
        let mut line = Line::open(server.address)?;
        if server.tls.is_some() {
            let mut out = BytesMut::new();
            frontend::ssl_request(&mut out);
            line.write_all(&out)?;
            let mut answer = [0];
            line.read_exact(&mut answer)?;
            if answer != *b"S" {
                return Err(
                    io::Error::other("it does not speak TLS, which the URL's sslmode asks for").into()
                );
            }
            line = line.encrypted(server)?;
        }
        let mut session = Self { line, come: BytesMut::new(), version: String::new() };
        session.log_in(server, database)?;
        Ok(session)
    }

    fn log_in(&mut self, server: &Server, database: &str) -> Result<(), Unsaid> {
        let user = server.target.user().unwrap_or_default();
        let password = server.target.password().unwrap_or_default().as_bytes();
        let parameters = [("user", user), ("database", database), ("application_name", "plimsoll")];
        self.say(|out| frontend::startup_message(parameters, out))?;
        let mut scram = None;
        loop {
            match self.next()? {
                Message::AuthenticationOk | Message::BackendKeyData(_) | Message::NoticeResponse(_) => {}
                Message::AuthenticationCleartextPassword => {
                    self.say(|out| frontend::password_message(password, out))?;
                }
                Message::AuthenticationMd5Password(asked) => {
                    let hash = md5_hash(user.as_bytes(), password, asked.salt());
                    self.say(|out| frontend::password_message(hash.as_bytes(), out))?;
                }
                Message::AuthenticationSasl(_) => {
                    let begun = scram.insert(ScramSha256::new(password, ChannelBinding::unsupported()));
                    let first = begun.message().to_vec();
                    self.say(|out| frontend::sasl_initial_response(SCRAM_SHA_256, &first, out))?;
                }
                Message::AuthenticationSaslContinue(said) => {
                    let begun: &mut ScramSha256 = scram.as_mut().ok_or_else(unexpected)?;
                    begun.update(said.data())?;
                    let proof = begun.message().to_vec();
                    self.say(|out| frontend::sasl_response(&proof, out))?;
                }
                Message::AuthenticationSaslFinal(said) => {
                    scram.as_mut().ok_or_else(unexpected)?.finish(said.data())?;
                }
                Message::ParameterStatus(said) => {
                    if said.name()? == "server_version" {
                        said.value()?.clone_into(&mut self.version);
                    }
                }
                Message::ReadyForQuery(_) => return Ok(()),
                Message::ErrorResponse(error) => return Err(refused(&error)?),
                _ => return Err(unexpected().into()),
            }
        }
    }

    /// The rows of one question.
    pub(super) fn rows(&mut self, question: &str) -> Result<Vec<Row>, Unsaid> {
        self.say(|out| frontend::query(question, out))?;
        let mut columns = Vec::new();
        let mut rows = Vec::new();
        let mut refusal = None;
        loop {
            match self.next()? {
                Message::RowDescription(said) => columns = names(&said)?,
                Message::DataRow(said) => rows.push(row(&columns, &said)?),
                Message::ErrorResponse(error) => refusal = Some(refused(&error)?),
                Message::ReadyForQuery(_) => break,
                Message::CommandComplete(_) | Message::NoticeResponse(_) | Message::ParameterStatus(_) => {}
                _ => return Err(unexpected().into()),
            }
        }
        refusal.map_or(Ok(rows), Err)
    }

    /// Says good-bye, and waits until the server has given the place back.
    pub(super) fn close(mut self) {
        let _ = self.say(|out| {
            frontend::terminate(out);
            Ok(())
        });
        self.line.close();
    }

    fn say(&mut self, put: impl FnOnce(&mut BytesMut) -> io::Result<()>) -> io::Result<()> {
        let mut out = BytesMut::new();
        put(&mut out)?;
        self.line.write_all(&out)?;
        self.line.flush()
    }

    fn next(&mut self) -> io::Result<Message> {
        let mut piece = [0; 4096];
        loop {
            if let Some(message) = Message::parse(&mut self.come)? {
                return Ok(message);
            }
            let read = self.line.read(&mut piece)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.come.extend_from_slice(&piece[..read]);
            if self.come.len() > MOST_BYTES {
                return Err(io::Error::other("its answer is too long"));
            }
        }
    }
}

fn unexpected() -> io::Error {
    io::Error::other("it said something that has no place there")
}

/// What a refusal says.
fn refused(error: &ErrorResponseBody) -> io::Result<Unsaid> {
    let (mut code, mut words) = (String::new(), String::new());
    let mut fields = error.fields();
    while let Some(field) = fields.next()? {
        let text = || String::from_utf8_lossy(field.value_bytes()).into_owned();
        match field.type_() {
            b'C' => code = text(),
            b'M' => words = text(),
            _ => {}
        }
    }
    Ok(Unsaid::Refused { code, words })
}

fn names(said: &RowDescriptionBody) -> io::Result<Vec<String>> {
    said.fields().map(|field| Ok(field.name().to_owned())).collect()
}

fn row(columns: &[String], said: &DataRowBody) -> io::Result<Row> {
    let values: Vec<Option<String>> = said
        .ranges()
        .map(|range| {
            Ok(range.and_then(|at| said.buffer().get(at)).map(|v| String::from_utf8_lossy(v).into_owned()))
        })
        .collect()?;
    Ok(columns.iter().cloned().zip(values).filter_map(|(name, value)| Some((name, value?))).collect())
}

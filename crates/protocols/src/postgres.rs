//! Does PostgreSQL, or a pooler in front of it, let a client in, and does the session still answer?
//!
//! PostgreSQL documentation, part VII, "Frontend/Backend Protocol", version 3.0: the flow is that of its section
//! "Message Flow", the bytes are those of "Message Formats".

use md5::{Digest as _, Md5};
use model::{Failure, FailureKind, Operation, Scheme, SslMode};

use crate::Plan;
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::nonce::Nonces;
use crate::quote::{against_protocol, quote};
use crate::scram::{self, Hash, Scram, Secret};
use crate::waiting::Waiting;

/// The longest message that a server has reason to send; libpq holds the same to be out of step beyond it.
const MOST: u32 = 30_000;
/// The longest row: PostgreSQL makes no message of more than 1 GiB.
const MOST_ROW: u32 = 1 << 30;
/// The longest request for authentication, as libpq has it.
const MOST_AUTHENTICATION: u32 = 2_000;
/// The longest refusal in the form that servers had before version 3 of the protocol.
const MOST_OLD_WORDS: usize = 1_000;
/// The longest text of an operation: what a length can say is far more.
const MOST_SQL: usize = 1 << 20;
/// Of a server's words, so many characters are kept.
const MOST_WORDS: usize = 200;
/// What to look at when the login was not accepted.
const LOGIN_HINT: &str = "check user, password and database in the URL, and the server's pg_hba.conf";
/// `SSLRequest`: its length, and the number that stands in place of a version.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
/// `Query` with an empty text.
const EMPTY_QUERY: &[u8] = b"Q\0\0\0\x05\0";
/// `Terminate`.
const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// Holds sessions of PostgreSQL, and asks with an empty query. An operation is a simple query, whose rows are passed over.
///
/// It logs in by trust, by a password in clear, by MD5 or by SCRAM-SHA-256, as the server asks.
#[derive(Debug)]
pub struct Postgres {
    startup: Vec<u8>,
    user: String,
    password: Option<String>,
    scram: Scram,
    encrypted: bool,
    /// `Query` as an operation has it.
    operation: Vec<u8>,
    secret: Secret,
    nonces: Nonces,
}

/// What one session keeps: what is due, and how much of a message is still to be passed over.
#[derive(Debug, Default)]
pub struct Slot {
    /// Until the login is over: what a server that knows the password will say.
    signature: Option<Box<Hash>>,
    nonce: u32,
    /// Queries that have no ReadyForQuery yet.
    waiting: Waiting,
    /// Of a message that tells nothing.
    skip: u32,
    phase: Phase,
    /// The oldest query was answered, but for its ReadyForQuery and, of an operation, further results.
    answered: bool,
}

const _: () = assert!(size_of::<Slot>() <= 40);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing was said yet.
    #[default]
    New,
    /// SSLRequest was sent; one byte answers it.
    Encrypting,
    /// The startup message was sent; the server chooses how to log in.
    Login,
    /// The first message of SCRAM was sent.
    ScramFirst,
    /// The last message of SCRAM was sent; the server must prove itself.
    ScramLast,
    /// All is said; the server accepts it or not.
    Password,
    /// The login is over, the server prepares the session.
    Starting,
    /// The session stands.
    Open,
    /// We have said good-bye: whatever still comes is not looked at.
    Finished,
}

impl Driver for Postgres {
    const FACTS: DriverFacts = DriverFacts {
        scheme: Scheme::Postgres,
        doc: "A session of PostgreSQL, or of a pooler that speaks like it; it is ready once the server has accepted the login and waits for a query.",
        heartbeat: "An empty query, answered by EmptyQueryResponse and ReadyForQuery.",
        beats: Beats::Asked,
        operation: Some(
            "SELECT 1, or the text as SQL, by the simple query protocol; its results are passed over, up to ReadyForQuery.",
        ),
    };

    fn new(plan: &Plan) -> Self {
        Self::with_secret(plan, Secret::new())
    }

    fn check(operation: &Operation) -> Result<(), String> {
        match &operation.text {
            Some(text) if text.contains('\0') => Err("SQL cannot hold a NUL character".to_owned()),
            Some(text) if text.len() > MOST_SQL => {
                Err(format!("the SQL has {} bytes; at most {MOST_SQL} are sent", text.len()))
            }
            _ => Ok(()),
        }
    }
}

impl Postgres {
    /// With a secret that is known, the same nonces come again.
    pub(crate) fn with_secret(plan: &Plan, secret: Secret) -> Self {
        let target = &plan.target;
        let user = target.login.as_ref().map_or("", |login| &login.user).to_owned();
        let password =
            target.login.as_ref().and_then(|login| login.password.as_ref()).map(|p| p.reveal().to_owned());
        let database = target.database().unwrap_or_default();
        let mut parameters = vec![0, 3, 0, 0];
        // Poolers refuse what they do not know, so no more than this is said.
        for (name, value) in [("user", &*user), ("database", &*database), ("application_name", "plimsoll")] {
            for text in [name, value] {
                parameters.extend_from_slice(text.as_bytes());
                parameters.push(0);
            }
        }
        parameters.push(0);
        let mut startup = Vec::with_capacity(parameters.len() + 4);
        put_sized(&mut startup, &[&parameters]);
        let sql = plan.operation.as_ref().and_then(|o| o.text.as_deref()).unwrap_or("SELECT 1");
        let mut operation = vec![b'Q'];
        put_sized(&mut operation, &[sql.as_bytes(), b"\0"]);
        Self {
            startup,
            scram: Scram::new("", password.as_deref().unwrap_or_default()),
            user,
            password,
            encrypted: target.ssl_mode() != SslMode::Disable,
            operation,
            secret,
            nonces: Nonces::default(),
        }
    }
}

impl Machine for Postgres {
    type Slot = Slot;

    fn on(&self, slot: &mut Slot, cue: Cue<'_>, out: &mut Out) -> Result<usize, Failure> {
        match cue {
            Cue::Connected if self.encrypted && slot.phase == Phase::New => {
                slot.phase = Phase::Encrypting;
                out.bytes.extend_from_slice(&SSL_REQUEST);
            }
            Cue::Connected => {
                slot.phase = Phase::Login;
                slot.nonce = self.nonces.next();
                out.bytes.extend_from_slice(&self.startup);
            }
            Cue::Ask if slot.phase == Phase::Open => {
                slot.waiting.ask();
                out.bytes.extend_from_slice(EMPTY_QUERY);
            }
            Cue::Operate if slot.phase == Phase::Open => {
                slot.waiting.operate();
                out.bytes.extend_from_slice(&self.operation);
            }
            Cue::Ask | Cue::Operate => {}
            Cue::Finish => {
                if slot.phase == Phase::Open {
                    out.bytes.extend_from_slice(TERMINATE);
                }
                slot.phase = Phase::Finished;
                out.facts.push(Fact::Done);
            }
            Cue::Bytes(bytes) => return self.read(slot, bytes, out),
        }
        Ok(0)
    }
}

/// Appends a length, which counts itself, and what it is the length of.
fn put_sized(out: &mut Vec<u8>, parts: &[&[u8]]) {
    let length = 4 + parts.iter().map(|part| part.len()).sum::<usize>();
    out.extend_from_slice(&(length as u32).to_be_bytes());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends PasswordMessage, SASLInitialResponse or SASLResponse, which have their letter in common.
fn put_login(out: &mut Out, parts: &[&[u8]]) {
    out.bytes.push(b'p');
    put_sized(&mut out.bytes, parts);
}

/// The answer to AuthenticationMD5Password.
fn md5_answer(user: &str, password: &str, salt: &[u8]) -> String {
    let inner = hex(&Md5::new().chain_update(password).chain_update(user).finalize());
    format!("md5{}", hex(&Md5::new().chain_update(inner).chain_update(salt).finalize()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The login cannot succeed; `text` says why, and what would help.
fn login_refused(text: impl Into<String>) -> Failure {
    Failure::new(FailureKind::LoginRefused, text)
}

/// A message that has no place here.
fn out_of_place(bytes: &[u8]) -> Failure {
    let said = quote(&bytes[..bytes.len().min(5)], 5);
    against_protocol(format!(
        "the server began a message with {said}, which has no place here; check that PostgreSQL listens there"
    ))
}

impl Postgres {
    fn read(&self, slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let mut used = 0;
        while used < bytes.len() {
            let rest = &bytes[used..];
            let taken = match slot.phase {
                Phase::Finished => rest.len(),
                Phase::Encrypting if rest[0] != b'E' => return encrypt(slot, rest[0], out),
                _ if slot.skip > 0 => slot.pass_over(rest),
                _ => self.message(slot, rest, out)?,
            };
            if taken == 0 {
                break;
            }
            used += taken;
        }
        Ok(used)
    }

    /// Takes a message whole if it tells something, or the head of one that does not; 0: more must come first.
    fn message(&self, slot: &mut Slot, bytes: &[u8], out: &mut Out) -> Result<usize, Failure> {
        let Some([letter, length @ ..]) = bytes.first_chunk::<5>() else { return Ok(0) };
        let length = u32::from_be_bytes(*length);
        if *letter == b'E' && length > MOST && matches!(slot.phase, Phase::Encrypting | Phase::Login) {
            return old_refusal(bytes);
        }
        if !slot.expects(*letter, length) {
            return Err(out_of_place(bytes));
        }
        if matches!(letter, b'G' | b'H' | b'W') {
            return Err(against_protocol(
                "the operation began to copy rows from or to the client; choose SQL without COPY … STDIN or STDOUT",
            ));
        }
        // CommandComplete
        slot.answered |= *letter == b'C';
        if !matches!(letter, b'R' | b'E' | b'I' | b'Z') {
            slot.skip = length - 4;
            return Ok(5);
        }
        let end = 1 + length as usize;
        let Some(body) = bytes.get(5..end) else { return Ok(0) };
        match letter {
            b'R' => self.authentication(slot, body, out)?,
            b'E' => return Err(refusal(slot.phase, slot.waiting.is_operation(), body)),
            b'I' => slot.answered = true,
            _ if slot.phase == Phase::Starting => {
                slot.phase = Phase::Open;
                out.facts.push(Fact::Ready);
            }
            _ => {
                slot.answered = false;
                out.facts.extend(slot.waiting.answer());
            }
        }
        Ok(end)
    }

    /// Takes a message of the login ("Message Formats", Authentication…).
    fn authentication(&self, slot: &mut Slot, body: &[u8], out: &mut Out) -> Result<(), Failure> {
        let Some((code, rest)) = body.split_first_chunk::<4>() else {
            return Err(against_protocol("the server sent a request for authentication that is too short"));
        };
        slot.phase = match (slot.phase, u32::from_be_bytes(*code)) {
            (Phase::Login | Phase::Password, 0) => {
                out.facts.push(Fact::LoggedIn);
                Phase::Starting
            }
            (Phase::Login, 3) => {
                put_login(out, &[self.password()?.as_bytes(), b"\0"]);
                Phase::Password
            }
            (Phase::Login, 5) if rest.len() == 4 => {
                put_login(out, &[md5_answer(&self.user, self.password()?, rest).as_bytes(), b"\0"]);
                Phase::Password
            }
            (Phase::Login, 10) => {
                if !rest.split(|byte| *byte == 0).any(|mechanism| mechanism == scram::MECHANISM.as_bytes()) {
                    let offered = quote(rest, MOST_WORDS);
                    return Err(login_refused(format!(
                        "the server wants one of {offered}, not SCRAM-SHA-256"
                    )));
                }
                self.password()?;
                let first = self.scram.first(&self.secret.nonce(slot.nonce));
                let length = (first.len() as u32).to_be_bytes();
                put_login(out, &[scram::MECHANISM.as_bytes(), b"\0", &length, first.as_bytes()]);
                Phase::ScramFirst
            }
            (Phase::ScramFirst, 11) => {
                let (last, signature) =
                    self.scram.last(&self.secret.nonce(slot.nonce), rest).map_err(|why| {
                        against_protocol(format!("the server's first message of SCRAM-SHA-256 {why}"))
                    })?;
                slot.signature = Some(Box::new(signature));
                put_login(out, &[last.as_bytes()]);
                Phase::ScramLast
            }
            (Phase::ScramLast, 12) => {
                if !slot.signature.take().is_some_and(|signature| scram::is_signed(rest, &signature)) {
                    return Err(login_refused(
                        "the server could not prove that it knows the password itself",
                    ));
                }
                Phase::Password
            }
            (Phase::Login, 2 | 6..=9) => {
                return Err(login_refused(
                    "the server wants Kerberos, GSSAPI or SSPI; give this user a line with scram-sha-256 in \
                     pg_hba.conf",
                ));
            }
            _ => return Err(against_protocol("the server asked for authentication out of turn")),
        };
        Ok(())
    }

    fn password(&self) -> Result<&str, Failure> {
        self.password.as_deref().ok_or_else(|| {
            login_refused(
                "the server asks for a password; write it as postgres://USER:PASSWORD@HOST/DATABASE",
            )
        })
    }
}

/// Takes the one byte that answers SSLRequest. Whatever follows belongs to TLS.
fn encrypt(slot: &mut Slot, answer: u8, out: &mut Out) -> Result<usize, Failure> {
    match answer {
        b'S' => {
            // The next cue is that the stream, then encrypted, stands.
            slot.phase = Phase::Login;
            out.facts.push(Fact::StartTls);
            Ok(1)
        }
        b'N' => Err(Failure::new(
            FailureKind::Tls,
            "the server does not speak TLS; set ssl = on there, or ask for sslmode=disable",
        )),
        other => Err(out_of_place(&[other])),
    }
}

/// A server that cannot even start a process for us says so as it did before version 3: without a length.
fn old_refusal(bytes: &[u8]) -> Result<usize, Failure> {
    let words = &bytes[1..bytes.len().min(MOST_OLD_WORDS)];
    match words.iter().position(|byte| *byte == 0) {
        Some(end) if end > 0 => Err(Failure::new(FailureKind::ClosedEarly, shown(&words[..end]))),
        None if bytes.len() < MOST_OLD_WORDS => Ok(0),
        _ => Err(out_of_place(bytes)),
    }
}

/// What an ErrorResponse means for the connection, in the server's own words ("Error and Notice Message Fields").
fn refusal(phase: Phase, operates: bool, body: &[u8]) -> Failure {
    let mut fields = body.split(|byte| *byte == 0).filter_map(|field| field.split_first());
    let [mut severity, mut plain_severity, mut code, mut message] = [&b""[..]; 4];
    for (name, value) in &mut fields {
        match name {
            b'S' => severity = value,
            b'V' => plain_severity = value,
            b'C' => code = value,
            b'M' => message = value,
            _ => {}
        }
    }
    if !plain_severity.is_empty() {
        // The other is in the server's language.
        severity = plain_severity;
    }
    let words = format!("{} {}: {}", shown(severity), shown(code), shown(message));
    let open = matches!(phase, Phase::Starting | Phase::Open);
    if open && operates && !matches!(severity, b"FATAL" | b"PANIC") {
        return against_protocol(format!("the operation was answered with {words}"));
    }
    match code {
        b"53300" => Failure::new(FailureKind::ServerRefused, words),
        // PgBouncer has this code for whatever is wrong, its own limit among it.
        b"08P01" if message.starts_with(b"no more connections allowed") => {
            Failure::new(FailureKind::ServerRefused, words)
        }
        [b'2', b'8', ..] | [b'3', b'D', ..] => login_refused(format!("{words}; {LOGIN_HINT}")),
        b"08P01" if !open && is_pooler_login(message) => login_refused(format!("{words}; {LOGIN_HINT}")),
        b"08P01" if !open => against_protocol(words),
        _ if !open => Failure::new(FailureKind::ClosedEarly, words),
        _ if matches!(severity, b"FATAL" | b"PANIC") => Failure::new(FailureKind::Closed, words),
        _ => against_protocol(format!("an empty query was answered with {words}")),
    }
}

/// Whether PgBouncer says with its one code for everything that the login is wrong.
fn is_pooler_login(message: &[u8]) -> bool {
    message.ends_with(b"authentication failed") || message.starts_with(b"no such ")
}

/// Words as they are, without what a terminal would act upon, and not too long.
fn shown(words: &[u8]) -> String {
    let text = String::from_utf8_lossy(words);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MOST_WORDS).collect()
}

impl Slot {
    /// Whether a message with this letter and length may come now.
    fn expects(&self, letter: u8, length: u32) -> bool {
        use Phase::{Encrypting, Login, Open, Password, ScramFirst, ScramLast, Starting};
        let logging_in = matches!(self.phase, Login | ScramFirst | ScramLast | Password);
        let logged_in = matches!(self.phase, Starting | Open);
        let operates = self.phase == Open && self.waiting.is_operation();
        let (now, most) = match letter {
            b'R' => (logging_in, MOST_AUTHENTICATION),
            b'E' => (logging_in || logged_in || self.phase == Encrypting, MOST),
            // NoticeResponse and ParameterStatus
            b'N' | b'S' => (logging_in || logged_in, MOST),
            // BackendKeyData
            b'K' => (self.phase == Starting, MOST),
            // NotificationResponse
            b'A' => (logged_in, MOST),
            // EmptyQueryResponse, which is also the result of an operation that holds no statement
            b'I' => (self.phase == Open && !self.waiting.is_empty() && (operates || !self.answered), 4),
            // RowDescription, DataRow and CommandComplete, of any number of statements
            b'T' | b'D' => (operates, MOST_ROW),
            b'C' => (operates, MOST),
            // CopyInResponse, CopyOutResponse and CopyBothResponse
            b'G' | b'H' | b'W' => (operates, MOST),
            b'Z' => ((self.phase == Starting || self.answered) && length == 5, 5),
            _ => (false, 0),
        };
        now && (4..=most).contains(&length)
    }

    /// Passes over what is left of a message; says how much of these bytes that is.
    fn pass_over(&mut self, bytes: &[u8]) -> usize {
        let n = bytes.len().min(self.skip as usize);
        self.skip -= n as u32;
        n
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_md5_answer_as_libpq_makes_it() {
        // the example of the tests of postgres-protocol
        assert_eq!(
            md5_answer("md5_user", "password", &[0x2a, 0x3d, 0x8f, 0xe0]),
            "md562af4dd09bbb41884907a838a3233294"
        );
    }

    #[test]
    fn words_that_a_terminal_would_act_upon() {
        assert_eq!(shown(b"no \x1b[31mred\r\n"), "no  [31mred  ");
        assert_eq!(shown(&[b'x'; 1_000]).len(), MOST_WORDS);
    }
}

//! Does PostgreSQL, or a pooler in front of it, let a client in, and does the session still answer?
//!
//! PostgreSQL documentation, part VII, "Frontend/Backend Protocol", version 3.0: the flow is that of its section
//! "Message Flow", the bytes are those of "Message Formats".

mod refusal;
mod work;

use md5::{Digest as _, Md5};
use model::{Failure, FailureKind, Operation, Scheme, SslMode};

use crate::Plan;
use crate::machine::{Beats, Cue, Driver, DriverFacts, Fact, Machine, Out};
use crate::nonce::Nonces;
use crate::quote::{against_protocol, quote};
use crate::scram::{self, Hash, Scram, Secret};
use crate::waiting::Waiting;

use refusal::{MOST_WORDS, login_refused, old_refusal, out_of_place, refusal};
use work::{Run, Work};

/// The longest message that a server has reason to send; libpq holds the same to be out of step beyond it.
const MOST: u32 = 30_000;
/// The longest row: PostgreSQL makes no message of more than 1 GiB.
const MOST_ROW: u32 = 1 << 30;
/// The longest request for authentication, as libpq has it.
const MOST_AUTHENTICATION: u32 = 2_000;
/// The longest text of an operation: what a length can say is far more.
const MOST_SQL: usize = 1 << 20;
/// `SSLRequest`: its length, and the number that stands in place of a version.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
/// `Query` with an empty text.
const EMPTY_QUERY: &[u8] = b"Q\0\0\0\x05\0";
/// `Terminate`.
const TERMINATE: &[u8] = b"X\0\0\0\x04";

/// Holds sessions of PostgreSQL, and asks with an empty query. An operation is a simple query, or one run of a script of
/// pgbench; rows are passed over.
///
/// It logs in by trust, by a password in clear, by MD5 or by SCRAM-SHA-256, as the server asks.
#[derive(Debug)]
pub struct Postgres {
    startup: Vec<u8>,
    user: String,
    password: Option<String>,
    scram: Scram,
    encrypted: bool,
    /// `Query` as an operation has it that is no script.
    operation: Vec<u8>,
    /// The scripts, if operations are runs of these.
    work: Option<Work>,
    secret: Secret,
    nonces: Nonces,
}

/// What one session keeps: what is due, and how much of a message is still to be passed over.
#[derive(Debug, Default)]
pub struct Slot {
    /// What only some sessions need, at some time.
    kept: Option<Box<Kept>>,
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

#[derive(Debug, Default)]
struct Kept {
    /// Until the login is over: what a server that knows the password will say.
    signature: Option<Hash>,
    /// From the first operation on that is a script.
    run: Option<Run>,
}

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
            "SELECT 1, or the text as SQL, by the simple query protocol; its results are passed over, up to ReadyForQuery. In a sweep also one run of a pgbench script (`--script`, `--builtin`), one statement after the other.",
        ),
    };

    fn new(plan: &Plan) -> Self {
        Self::with_secret(plan, Secret::new())
    }

    fn check(operation: &Operation) -> Result<(), String> {
        if let Some(scripts) = &operation.scripts {
            return Work::new(scripts, 0, 0, 1).map(drop);
        }
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
            work: plan.operation.as_ref().and_then(|operation| operation.scripts.as_ref()).and_then(
                |scripts| {
                    // What is wrong with them was told by `check`.
                    Work::new(scripts, plan.salt, plan.worker, plan.workers).ok()
                },
            ),
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
            Cue::Operate if slot.phase == Phase::Open => self.operate(slot, out)?,
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

impl Postgres {
    fn operate(&self, slot: &mut Slot, out: &mut Out) -> Result<(), Failure> {
        let begun = match &self.work {
            Some(work) => work.begin(slot.run(work), &mut out.bytes)?,
            None => {
                out.bytes.extend_from_slice(&self.operation);
                true
            }
        };
        if begun {
            slot.waiting.operate();
        }
        Ok(())
    }

    /// A query of an operation is done: it was the last, or the next is sent behind whatever was asked meanwhile.
    fn go_on(&self, slot: &mut Slot, out: &mut Out) -> Result<(), Failure> {
        let Some(work) = &self.work else {
            out.facts.push(Fact::Operated);
            return Ok(());
        };
        let after = work.go_on(slot.run(work), &mut out.bytes)?;
        if after.operated {
            out.facts.push(Fact::Operated);
        }
        if after.sent {
            slot.waiting.operate();
        }
        Ok(())
    }

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
        let extended = self.work.as_ref().is_some_and(Work::is_extended);
        if !slot.expects(*letter, length, extended) {
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
                match slot.waiting.answer() {
                    Some(Fact::Operated) => self.go_on(slot, out)?,
                    fact => out.facts.extend(fact),
                }
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
                slot.kept = Some(Box::new(Kept { signature: Some(signature), run: None }));
                put_login(out, &[last.as_bytes()]);
                Phase::ScramLast
            }
            (Phase::ScramLast, 12) => {
                let signature = slot.kept.take().and_then(|kept| kept.signature);
                if !signature.is_some_and(|signature| scram::is_signed(rest, &signature)) {
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

impl Slot {
    /// How far its script is.
    fn run(&mut self, work: &Work) -> &mut Run {
        self.kept.get_or_insert_default().run.get_or_insert_with(|| work.run())
    }

    /// Whether a message with this letter and length may come now.
    fn expects(&self, letter: u8, length: u32, extended: bool) -> bool {
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
            // ParseComplete, BindComplete and NoData
            b'1' | b'2' | b'n' => (operates && extended, 4),
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
}

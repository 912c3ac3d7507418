//! What does a client at work send? The scripts of pgbench, statement by statement, in the mode that was asked for.
//!
//! PostgreSQL documentation, "Frontend/Backend Protocol": `Query`, or `Parse`, `Bind`, `Describe`, `Execute` and `Sync`
//! as libpq's `PQsendQueryParams` and `PQsendQueryPrepared` send them, which pgbench calls.

use std::cell::Cell;
use std::ops::Range;

use model::{Failure, QueryMode, Scripts};

use crate::pgbench::{Book, Client, Part, Statement};
use crate::quote::against_protocol;

use super::{EMPTY_QUERY, put_sized};

/// `Describe` and `Execute` of the portal without a name, and `Sync`.
const FINISH: &[u8] = b"D\0\0\0\x06P\0E\0\0\0\x09\0\0\0\0\0S\0\0\0\x04";
/// `Bind` counts its parameters in two bytes.
const MOST_PARAMETERS: usize = u16::MAX as usize;

/// All that the clients of one driver share.
#[derive(Debug)]
pub(super) struct Work {
    book: Book,
    mode: QueryMode,
    /// As the statements of the book are numbered; none in simple mode.
    queries: Vec<Query>,
    salt: u64,
    /// The number of the next client, and what lies between two.
    next_client: Cell<u32>,
    step: u32,
}

/// The fixed parts of one statement.
#[derive(Debug)]
struct Query {
    /// `Parse`, whole.
    parse: Vec<u8>,
    /// `Bind` from its portal to the number of its parameters.
    bind: Vec<u8>,
    parameters: Vec<usize>,
}

/// How far one client is.
#[derive(Debug)]
pub(super) struct Run {
    client: Client,
    /// In prepared mode a bit for each statement that the server knows from this connection.
    prepared: Box<[u64]>,
    /// Whether a script is under way.
    busy: bool,
    /// Operations that came meanwhile.
    later: u32,
}

/// What came of a statement's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct After {
    /// The script is over.
    pub(super) operated: bool,
    /// Something was sent that will be answered.
    pub(super) sent: bool,
}

impl Work {
    /// Reads the scripts; clients are numbered from `first` in steps.
    pub(super) fn new(scripts: &Scripts, salt: u64, first: u32, step: u32) -> Result<Self, String> {
        let book = Book::read(scripts)?;
        let prepared = scripts.mode == QueryMode::Prepared;
        let queries: Vec<Query> = match scripts.mode {
            QueryMode::Simple => Vec::new(),
            QueryMode::Extended | QueryMode::Prepared => (0..)
                .zip(book.statements())
                .map(|(number, statement)| query(statement, number, prepared))
                .collect(),
        };
        if queries.iter().any(|query| query.parameters.len() > MOST_PARAMETERS) {
            return Err(format!(
                "a statement has more than {MOST_PARAMETERS} variables; ask for --mode simple"
            ));
        }
        Ok(Self { book, mode: scripts.mode, queries, salt, next_client: Cell::new(first), step })
    }

    /// Whether statements are parsed, bound and executed.
    pub(super) fn is_extended(&self) -> bool {
        self.mode != QueryMode::Simple
    }

    /// What the next client keeps.
    pub(super) fn run(&self) -> Run {
        let number = self.next_client.get();
        self.next_client.set(number.wrapping_add(self.step));
        let words = if self.mode == QueryMode::Prepared { self.queries.len().div_ceil(64) } else { 0 };
        Run {
            client: self.book.client(self.salt, number),
            prepared: vec![0; words].into_boxed_slice(),
            busy: false,
            later: 0,
        }
    }

    /// Begins an operation; false: one is under way, and this one comes after it.
    pub(super) fn begin(&self, run: &mut Run, out: &mut Vec<u8>) -> Result<bool, Failure> {
        if run.busy {
            run.later += 1;
            return Ok(false);
        }
        run.busy = true;
        self.book.begin(&mut run.client);
        if !self.next(run, out)? {
            // Each operation takes at least one round trip, even if a condition left nothing of it.
            out.extend_from_slice(EMPTY_QUERY);
        }
        Ok(true)
    }

    /// Goes on when a statement was answered.
    pub(super) fn go_on(&self, run: &mut Run, out: &mut Vec<u8>) -> Result<After, Failure> {
        if self.next(run, out)? {
            return Ok(After { operated: false, sent: true });
        }
        run.busy = false;
        let sent = run.later > 0;
        if sent {
            run.later -= 1;
            self.begin(run, out)?;
        }
        Ok(After { operated: true, sent })
    }

    /// Sends the next statement; false: there is none.
    fn next(&self, run: &mut Run, out: &mut Vec<u8>) -> Result<bool, Failure> {
        let next = self.book.next(&mut run.client).map_err(against_protocol)?;
        let Some(number) = next else { return Ok(false) };
        match self.queries.get(number) {
            Some(query) => self.put_extended(query, number, run, out),
            None => self.put_simple(&self.book.statements()[number], &run.client, out),
        }
        Ok(true)
    }

    fn put_simple(&self, statement: &Statement, client: &Client, out: &mut Vec<u8>) {
        out.push(b'Q');
        let length = put_length(out);
        for part in statement.parts() {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Variable(variable) => self.book.write(client, *variable, out),
            }
        }
        out.push(0);
        set_length(out, length.clone(), length.start);
    }

    fn put_extended(&self, query: &Query, number: usize, run: &mut Run, out: &mut Vec<u8>) {
        match run.prepared.get_mut(number / 64) {
            Some(word) if *word >> (number % 64) & 1 == 1 => {}
            Some(word) => {
                *word |= 1 << (number % 64);
                out.extend_from_slice(&query.parse);
            }
            None => out.extend_from_slice(&query.parse),
        }
        out.push(b'B');
        let length = put_length(out);
        out.extend_from_slice(&query.bind);
        for &variable in &query.parameters {
            if self.book.has_value(&run.client, variable) {
                let length = put_length(out);
                self.book.write(&run.client, variable, out);
                set_length(out, length.clone(), length.end);
            } else {
                out.extend_from_slice(&(-1_i32).to_be_bytes());
            }
        }
        // all results as text
        out.extend_from_slice(&[0, 0]);
        set_length(out, length.clone(), length.start);
        out.extend_from_slice(FINISH);
    }
}

/// Makes the fixed parts of a statement, whose variables become parameters.
fn query(statement: &Statement, number: usize, prepared: bool) -> Query {
    let (mut text, mut parameters) = (String::new(), Vec::new());
    for part in statement.parts() {
        match part {
            Part::Text(part) => text += part,
            Part::Variable(variable) => {
                parameters.push(*variable);
                text += &format!("${}", parameters.len());
            }
        }
    }
    let name = if prepared { format!("P{number}\0") } else { "\0".to_owned() };
    let mut parse = vec![b'P'];
    // the types of the parameters are the server's to find
    put_sized(&mut parse, &[name.as_bytes(), text.as_bytes(), b"\0", &[0, 0]]);
    // all parameters as text
    let count = (parameters.len() as u16).to_be_bytes();
    let bind = [b"\0", name.as_bytes(), &[0, 0], &count].concat();
    Query { parse, bind, parameters }
}

/// Leaves room for a length.
fn put_length(out: &mut Vec<u8>) -> Range<usize> {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    at..at + 4
}

/// Writes the length of all that stands from `counted` on.
fn set_length(out: &mut [u8], length: Range<usize>, counted: usize) {
    let bytes = ((out.len() - counted) as u32).to_be_bytes();
    out[length].copy_from_slice(&bytes);
}

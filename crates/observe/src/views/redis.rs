//! What does Redis say of its connections? `INFO clients`, and its setting `maxclients`.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};

use model::observation::ServerView;

use super::line::Line;
use super::{Server, Teller};

/// Redis, or what speaks like it (Valkey).
pub(super) struct Redis;

/// The longest answer that is read.
const MOST_BYTES: u64 = 1 << 20;

impl Teller for Redis {
    fn ask(&self, server: &Server) -> Result<Option<ServerView>, String> {
        let source = format!("INFO at {}", server.place());
        let unread = |why: &dyn std::fmt::Display| format!("cannot read {source}: {why}");
        let mut talk = Talk::open(server).map_err(|e| unread(&e))?;
        if let Some(password) = server.target.password() {
            let login: Vec<&str> =
                ["AUTH"].into_iter().chain(server.target.user()).chain([password]).collect();
            talk.ask(&login)
                .map_err(|e| unread(&e))?
                .map_err(|words| unread(&format!("{words}; name a login that it knows in the URL")))?;
        }
        let info = talk.ask(&["INFO", "clients"]).map_err(|e| unread(&e))?.map_err(|words| {
            unread(&format!(
                "{words}; allow it: ACL SETUSER NAME +info +config|get, or give a login in the URL"
            ))
        })?;
        // Managed servers forbid this one: the view is then without a limit.
        let setting = talk.ask(&["CONFIG", "GET", "maxclients"]).map_err(|e| unread(&e))?;
        talk.close();
        let limit = setting.ok().and_then(|words| words.get(1)?.parse().ok());
        let info = info.first().map_or("", String::as_str);
        let field = |name: &str| {
            info.lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':')?.trim().parse::<u64>().ok())
        };
        Ok(Some(ServerView {
            source,
            connections: field("connected_clients").map(|n| n.saturating_sub(1)),
            waiting: field("blocked_clients"),
            limit: limit.or_else(|| field("maxclients")),
            ..ServerView::default()
        }))
    }
}

/// One command after another, and their answers.
struct Talk {
    line: BufReader<Line>,
}

impl Talk {
    fn open(server: &Server) -> io::Result<Self> {
        Ok(Self { line: BufReader::new(Line::open(server.address)?.encrypted(server)?) })
    }

    /// Says a command; gives the texts of its answer, or the server's words of refusal.
    fn ask(&mut self, words: &[&str]) -> io::Result<Result<Vec<String>, String>> {
        let mut out = format!("*{}\r\n", words.len());
        for word in words {
            out += &format!("${}\r\n{word}\r\n", word.len());
        }
        self.line.get_mut().write_all(out.as_bytes())?;
        self.line.get_mut().flush()?;
        let first = self.head()?;
        match first.split_at_checked(1) {
            Some(("-", words)) => Ok(Err(words.to_owned())),
            Some(("+", word)) => Ok(Ok(vec![word.to_owned()])),
            Some(("$", length)) => Ok(Ok(vec![self.text(length)?])),
            Some(("*", count)) => {
                let mut texts = Vec::new();
                for _ in 0..length_of(count)? {
                    let head = self.head()?;
                    texts.push(self.text(head.strip_prefix('$').ok_or_else(not_redis)?)?);
                }
                Ok(Ok(texts))
            }
            _ => Err(not_redis()),
        }
    }

    /// The line that an answer begins with.
    fn head(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.line.by_ref().take(MOST_BYTES).read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or_else(|| match line.is_empty() {
            true => io::ErrorKind::UnexpectedEof.into(),
            false => not_redis(),
        })
    }

    /// A text of that length, and the end of its line.
    fn text(&mut self, length: &str) -> io::Result<String> {
        let mut bytes = vec![0; length_of(length)? + 2];
        self.line.read_exact(&mut bytes)?;
        bytes.truncate(bytes.len() - 2);
        String::from_utf8(bytes).map_err(|_| not_redis())
    }

    fn close(self) {
        self.line.into_inner().close();
    }
}

fn length_of(text: &str) -> io::Result<usize> {
    text.parse().ok().filter(|n| *n as u64 <= MOST_BYTES).ok_or_else(not_redis)
}

fn not_redis() -> io::Error {
    io::Error::other("it does not answer as Redis does")
}

//! What does a script file hold? SQL as psql would cut it, and pgbench's own commands between.

use super::expression::Expression;
use super::names::{Names, is_name};
use super::parse;

/// The longest script.
const MOST_BYTES: usize = 1 << 20;

/// One step of a script. Jumps only go on, never back.
#[derive(Debug)]
pub(super) enum Command {
    /// Gives a variable a value.
    Set { line: u32, variable: usize, expression: Expression },
    /// Goes on at `to` unless the condition holds.
    Unless { line: u32, condition: Expression, to: usize },
    /// Goes on at `to`.
    Jump { to: usize },
    /// Sends SQL, which is yet to be searched for variables.
    Sql(String),
}

/// What is wrong, and where.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) line: u32,
    pub(super) why: String,
}

/// Reads a script, or says all that is wrong with it.
pub(super) fn read(text: &str, names: &mut Names) -> Result<Vec<Command>, Vec<Wrong>> {
    if text.len() > MOST_BYTES {
        let why = format!("the script has {} bytes; at most {MOST_BYTES} are read", text.len());
        return Err(vec![Wrong { line: 1, why }]);
    }
    let mut reader = Reader { names, commands: Vec::new(), open: Vec::new(), wrong: Vec::new() };
    let mut cutter = Cutter { text, at: 0, line: 1, line_at: 0 };
    loop {
        match cutter.next() {
            Ok(None) => break,
            Ok(Some((_, Part::Sql(sql)))) => reader.commands.push(Command::Sql(sql)),
            Ok(Some((line, Part::Meta(meta)))) => {
                if let Err(why) = reader.meta(line, &meta) {
                    reader.wrong.push(Wrong { line, why });
                }
            }
            Err(wrong) => {
                reader.wrong.push(wrong);
                break;
            }
        }
    }
    for open in &reader.open {
        reader.wrong.push(Wrong { line: open.line, why: "\\if without \\endif".to_owned() });
    }
    if reader.wrong.is_empty() && !reader.commands.iter().any(|c| matches!(c, Command::Sql(_))) {
        reader
            .wrong
            .push(Wrong { line: 1, why: "the script has no SQL, so it asks the server nothing".to_owned() });
    }
    if reader.wrong.is_empty() { Ok(reader.commands) } else { Err(reader.wrong) }
}

enum Part {
    Sql(String),
    Meta(String),
}

/// Cuts a script where psql does (PostgreSQL 15: `src/fe_utils/psqlscan.l`).
struct Cutter<'a> {
    text: &'a str,
    at: usize,
    /// The line of `line_at`.
    line: u32,
    line_at: usize,
}

impl Cutter<'_> {
    /// The next part, and the line on which it begins.
    fn next(&mut self) -> Result<Option<(u32, Part)>, Wrong> {
        self.skip_blank()?;
        let line = self.line_here();
        match &self.text.as_bytes()[self.at..] {
            [] => Ok(None),
            [b'\\', b';' | b':', ..] => Ok(Some((line, Part::Sql(self.sql()?)))),
            [b'\\', ..] => Ok(Some((line, Part::Meta(self.meta())))),
            _ => Ok(Some((line, Part::Sql(self.sql()?)))),
        }
    }

    fn line_here(&mut self) -> u32 {
        self.line +=
            self.text.as_bytes()[self.line_at..self.at].iter().filter(|b| **b == b'\n').count() as u32;
        self.line_at = self.at;
        self.line
    }

    fn wrong(&mut self, why: &str) -> Wrong {
        Wrong { line: self.line_here(), why: why.to_owned() }
    }

    fn skip_blank(&mut self) -> Result<(), Wrong> {
        loop {
            let rest = &self.text[self.at..];
            let blank = rest.len() - rest.trim_start().len();
            self.at += blank;
            if rest[blank..].starts_with("--") {
                self.at = self.end_of_line();
            } else if rest[blank..].starts_with("/*") {
                self.at = self.end_of_comment()?;
            } else {
                return Ok(());
            }
        }
    }

    fn end_of_line(&self) -> usize {
        self.text[self.at..].find('\n').map_or(self.text.len(), |end| self.at + end)
    }

    /// Where the comment ends that begins here; there may be others in it.
    fn end_of_comment(&mut self) -> Result<usize, Wrong> {
        let bytes = self.text.as_bytes();
        let (mut at, mut depth) = (self.at + 2, 1);
        while depth > 0 {
            match bytes.get(at..at + 2) {
                Some(b"*/") => (depth, at) = (depth - 1, at + 2),
                Some(b"/*") => (depth, at) = (depth + 1, at + 2),
                Some(_) => at += 1,
                None => return Err(self.wrong("a comment is not closed")),
            }
        }
        Ok(at)
    }

    /// A command of pgbench: a line, or several of which each but the last ends in a backslash.
    fn meta(&mut self) -> String {
        let mut command = String::new();
        self.at += 1;
        loop {
            let end = self.end_of_line();
            let line = self.text[self.at..end].trim_end_matches('\r');
            self.at = end;
            match line.strip_suffix('\\') {
                Some(line) if end < self.text.len() => {
                    command += line;
                    command.push(' ');
                    self.at = end + 1;
                }
                _ => {
                    command += line;
                    return command;
                }
            }
        }
    }

    /// A statement up to its semicolon, to a command of pgbench or to the end.
    fn sql(&mut self) -> Result<String, Wrong> {
        let bytes = self.text.as_bytes();
        let (mut sql, mut parentheses) = (String::new(), 0_u32);
        while let Some(&byte) = bytes.get(self.at) {
            let from = self.at;
            let mut ends = false;
            self.at = match byte {
                b'\'' => self.end_of_quote(self.escapes())?,
                b'"' => self.end_of_quote(false)?,
                b'$' => self.end_of_dollars()?,
                b'-' if bytes.get(from + 1) == Some(&b'-') => self.end_of_line(),
                b'/' if bytes.get(from + 1) == Some(&b'*') => self.end_of_comment()?,
                b'\\' if matches!(bytes.get(from + 1), Some(b';' | b':')) => {
                    // taken as it is: part of the statement
                    sql.push(char::from(bytes[from + 1]));
                    self.at = from + 2;
                    continue;
                }
                b'\\' => break,
                b'(' => {
                    parentheses += 1;
                    from + 1
                }
                b')' => {
                    parentheses = parentheses.saturating_sub(1);
                    from + 1
                }
                b';' => {
                    ends = parentheses == 0;
                    from + 1
                }
                _ => from + 1,
            };
            while !self.text.is_char_boundary(self.at) {
                self.at += 1;
            }
            sql += &self.text[from..self.at];
            if ends {
                return Ok(sql);
            }
        }
        sql.truncate(sql.trim_end().len());
        Ok(sql)
    }

    /// Whether the quote that begins here is one with backslashes that escape: E'…'.
    fn escapes(&self) -> bool {
        let mut before = self.text[..self.at].bytes().rev();
        matches!(before.next(), Some(b'e' | b'E')) && !before.next().is_some_and(is_word)
    }

    fn end_of_quote(&mut self, escapes: bool) -> Result<usize, Wrong> {
        let bytes = self.text.as_bytes();
        let quote = bytes[self.at];
        let mut at = self.at + 1;
        // A quote that is doubled ends one text and begins another, which is as good.
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            if byte == quote {
                return Ok(at);
            }
            if escapes && byte == b'\\' {
                at += 1;
            }
        }
        Err(self.wrong("a quote is not closed"))
    }

    /// Where `$tag$ … $tag$` ends, or the next byte if that does not begin here.
    fn end_of_dollars(&mut self) -> Result<usize, Wrong> {
        let rest = &self.text[self.at + 1..];
        let inside = self.text[..self.at].bytes().next_back().is_some_and(is_word);
        let tag = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
        let is_tag =
            !inside && rest[tag..].starts_with('$') && !rest.starts_with(|c: char| c.is_ascii_digit());
        if !is_tag {
            return Ok(self.at + 1);
        }
        let quote = &self.text[self.at..self.at + tag + 2];
        let from = self.at + quote.len();
        match self.text[from..].find(quote) {
            Some(end) => Ok(from + end + quote.len()),
            None => Err(self.wrong("a quote between dollars is not closed")),
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || !byte.is_ascii()
}

/// An `\if` that has no `\endif` yet.
struct Open {
    line: u32,
    /// The condition that goes to the next branch if it does not hold.
    condition: Option<usize>,
    /// What jumps behind the whole.
    ends: Vec<usize>,
    otherwise: bool,
}

struct Reader<'a> {
    names: &'a mut Names,
    commands: Vec<Command>,
    open: Vec<Open>,
    wrong: Vec<Wrong>,
}

impl Reader<'_> {
    fn meta(&mut self, line: u32, command: &str) -> Result<(), String> {
        let (word, rest) = split_word(command);
        match word {
            "set" => {
                let (name, text) = split_word(rest);
                if !is_name(name) {
                    return Err(format!(
                        "\\set {name}: a variable's name has letters, digits and underscores"
                    ));
                }
                let expression =
                    parse::expression(text, self.names).map_err(|why| format!("\\set {name}: {why}"))?;
                let variable = self.names.set(name);
                self.commands.push(Command::Set { line, variable, expression });
            }
            "if" => {
                self.open.push(Open { line, condition: None, ends: Vec::new(), otherwise: false });
                self.branch(line, word, rest)?;
            }
            "elif" => {
                self.next_branch("elif")?;
                self.branch(line, word, rest)?;
            }
            "else" => {
                bare(word, rest)?;
                self.next_branch("else")?;
                if let Some(open) = self.open.last_mut() {
                    open.otherwise = true;
                }
            }
            "endif" => {
                bare(word, rest)?;
                let Some(open) = self.open.pop() else { return Err("\\endif without \\if".to_owned()) };
                let here = self.commands.len();
                open.condition.into_iter().chain(open.ends).for_each(|at| self.aim(at, here));
            }
            _ => return Err(refused(word)),
        }
        Ok(())
    }

    /// The condition under which what follows is run.
    fn branch(&mut self, line: u32, word: &str, text: &str) -> Result<(), String> {
        let condition = parse::expression(text, self.names).map_err(|why| format!("\\{word}: {why}"))?;
        let at = self.commands.len();
        if let Some(open) = self.open.last_mut() {
            open.condition = Some(at);
        }
        self.commands.push(Command::Unless { line, condition, to: 0 });
        Ok(())
    }

    /// Ends a branch, and lets the condition before it lead here.
    fn next_branch(&mut self, word: &str) -> Result<(), String> {
        let Some(open) = self.open.last_mut() else { return Err(format!("\\{word} without \\if")) };
        if open.otherwise {
            return Err(format!("\\{word} after \\else"));
        }
        open.ends.push(self.commands.len());
        let condition = open.condition.take();
        self.commands.push(Command::Jump { to: 0 });
        if let Some(at) = condition {
            self.aim(at, self.commands.len());
        }
        Ok(())
    }

    fn aim(&mut self, at: usize, target: usize) {
        if let Some(Command::Unless { to, .. } | Command::Jump { to }) = self.commands.get_mut(at) {
            *to = target;
        }
    }
}

fn split_word(text: &str) -> (&str, &str) {
    let text = text.trim();
    text.split_once(char::is_whitespace).unwrap_or((text, ""))
}

fn bare(word: &str, rest: &str) -> Result<(), String> {
    if rest.trim().is_empty() { Ok(()) } else { Err(format!("\\{word} takes no argument")) }
}

/// Why a command is not run here, and what to do.
fn refused(word: &str) -> String {
    let instead = match word {
        "sleep" => {
            "clients do not rest within an operation: leave it out, and ask for a --rate if they should be slower"
        }
        "shell" | "setshell" => {
            "no program is run beside the statements: leave it out, and compute with \\set"
        }
        "gset" | "aset" => {
            "rows are not kept: end the statement with a semicolon, and use its value within SQL, as a subquery"
        }
        "startpipeline" | "endpipeline" | "syncpipeline" => {
            "each statement waits for the one before: leave it out"
        }
        _ => {
            return format!(
                "\\{word} is no command of pgbench; there are \\set, \\if, \\elif, \\else and \\endif"
            );
        }
    };
    format!("\\{word} is not supported: {instead}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sql(text: &str) -> Vec<String> {
        let commands = read(text, &mut Names::default()).unwrap();
        let sql = |command| if let Command::Sql(sql) = command { Some(sql) } else { None };
        commands.into_iter().filter_map(sql).collect()
    }

    #[test]
    fn statements_end_where_psql_ends_them() {
        for (text, cut) in [
            ("SELECT 1;SELECT 2", &["SELECT 1;", "SELECT 2"][..]),
            ("-- one\n\n SELECT\n  1 -- ; no end\n;\n-- two", &["SELECT\n  1 -- ; no end\n;"]),
            ("SELECT ';', 'it''s;', \";\";", &["SELECT ';', 'it''s;', \";\";"]),
            (r"SELECT E'\';', e'\\'; SELECT name'\'", &[r"SELECT E'\';', e'\\';", r"SELECT name'\'"]),
            ("SELECT $$;$$, $a$;$$;$a$; b", &["SELECT $$;$$, $a$;$$;$a$;", "b"]),
            ("SELECT $1, a$b$; SELECT $1$", &["SELECT $1, a$b$;", "SELECT $1$"]),
            ("/* ; /* ; */ ; */ SELECT /* ; */ 1;", &["SELECT /* ; */ 1;"]),
            (
                "CREATE RULE r AS ON INSERT TO t DO (a; b); c;",
                &["CREATE RULE r AS ON INSERT TO t DO (a; b);", "c;"],
            ),
            (r"SELECT 1\; SELECT 2; SELECT a\:b", &["SELECT 1; SELECT 2;", "SELECT a:b"]),
            ("SELECT 'é' ; \\set a 1\nSELECT ü\n\\set b 1", &["SELECT 'é' ;", "SELECT ü"]),
            (";", &[";"]),
        ] {
            assert_eq!(sql(text), cut, "{text}");
        }
    }

    #[test]
    fn conditions_become_jumps() {
        let text = "\\if 1\na;\n\\elif 2\nb;\n\\else\nc;\n\\endif\nd;";
        let commands = read(text, &mut Names::default()).unwrap();
        let shape: Vec<String> = commands
            .iter()
            .map(|command| match command {
                Command::Set { .. } => "set".to_owned(),
                Command::Unless { to, .. } => format!("unless {to}"),
                Command::Jump { to } => format!("jump {to}"),
                Command::Sql(sql) => sql.clone(),
            })
            .collect();
        assert_eq!(shape, ["unless 3", "a;", "jump 7", "unless 6", "b;", "jump 7", "c;", "d;"]);
    }

    #[test]
    fn all_that_is_wrong_is_named_with_its_line() {
        let wrong = |text: &str| -> Vec<(u32, String)> {
            let wrong = read(text, &mut Names::default()).unwrap_err();
            wrong.into_iter().map(|w| (w.line, w.why)).collect()
        };
        let all = wrong(
            "-- a\n\\set\n\\set x 1 +\n\\sleep 1 s\nSELECT\n1;\n\\if\n\\else\n\\elif 1\n\\endif 1\n\\nosuch\n",
        );
        let lines: Vec<u32> = all.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [2, 3, 4, 7, 9, 10, 11, 7], "{all:?}");
        for (line, words) in
            [(3, "\\set x: the expression ends"), (4, "--rate"), (9, "after \\else"), (11, "\\nosuch")]
        {
            assert!(all.iter().any(|(at, why)| *at == line && why.contains(words)), "{words}: {all:?}");
        }
        assert_eq!(wrong("\\set x 1 \\\n + \\\n )\n\\else")[0].0, 1);
        assert_eq!(wrong("\\set x 1 \\\n + \\\n )\n\\else")[1], (4, "\\else without \\if".to_owned()));
        for (text, line, words) in [
            ("SELECT 1;\nSELECT 'a\n", 2, "quote"),
            ("\n/* SELECT", 2, "comment"),
            ("\nSELECT $a$ $b$", 2, "dollars"),
            ("\\set a 1", 1, "no SQL"),
            ("", 1, "no SQL"),
            ("SELECT 1 \\gset", 1, "subquery"),
            ("\n\n\\startpipeline", 3, "leave it out"),
            ("\\shell x", 1, "\\set"),
            ("\\set 1a 1", 1, "name"),
        ] {
            let all = wrong(text);
            assert!(all[0].0 == line && all[0].1.contains(words), "{text}: {all:?}");
        }
        assert!(wrong(&" ".repeat(2 << 20))[0].1.contains("at most"));
    }
}

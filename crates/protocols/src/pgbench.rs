//! What does a client of pgbench do? Script files as they are, read before a run and run step by step.
//!
//! PostgreSQL 15 documentation, "pgbench": custom scripts, with their expressions and functions. Nothing here knows how
//! statements travel.

pub mod builtin;
mod expression;
mod names;
mod parse;
mod random;
mod script;
mod statement;
mod value;

pub use names::is_name;
pub(crate) use statement::{Part, Statement};

use model::{Script, Scripts};

use expression::{Expression, Scope};
use names::Names;
use random::Random;
use script::{Command, Wrong};
use value::Value;

/// The variable that tells clients from each other.
const CLIENT_ID: &str = "client_id";
/// Of all that is wrong with the scripts, so many are named.
const MOST_WRONG: usize = 20;

/// The scripts of a workload, ready to be run by any number of clients.
#[derive(Debug)]
pub(crate) struct Book {
    scripts: Vec<Ready>,
    /// Of all scripts together.
    weight: u64,
    statements: Vec<Statement>,
    names: Names,
    /// What is set before a script sets it.
    given: Vec<Given>,
    client_id: usize,
}

#[derive(Debug)]
struct Ready {
    name: String,
    weight: u64,
    steps: Vec<Step>,
}

/// A [`Command`] whose SQL is one of the statements of the book.
#[derive(Debug)]
enum Step {
    Set { line: u32, variable: usize, expression: Expression },
    Unless { line: u32, condition: Expression, to: usize },
    Jump { to: usize },
    Send(usize),
}

#[derive(Debug)]
struct Given {
    variable: usize,
    text: String,
    /// What an expression takes it for.
    value: Option<Value>,
}

/// What a variable holds.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Held {
    Value(Value),
    /// The text of one that was given.
    Given(u32),
}

const _: () = assert!(size_of::<Option<Held>>() == 16);

/// One client at work: what it keeps between statements.
#[derive(Debug)]
pub(crate) struct Client {
    random: Random,
    variables: Box<[Option<Held>]>,
    script: u32,
    /// The next step of its script.
    at: u32,
}

impl Book {
    /// Reads the scripts; an error has a line for each thing that is wrong, which names script and line.
    pub(crate) fn read(scripts: &Scripts) -> Result<Self, String> {
        let mut names = Names::default();
        let mut given = Vec::new();
        for (name, text) in &scripts.variables {
            given.push(Given { variable: names.set(name), text: text.clone(), value: Value::parse(text) });
        }
        let client_id = names.set(CLIENT_ID);
        let weight: u64 = scripts.scripts.iter().map(|script| u64::from(script.weight)).sum();
        let mut wrong = Vec::new();
        if weight == 0 {
            wrong.push("no script has a weight, so none is ever run".to_owned());
        }
        let commands: Vec<(&Script, Vec<Command>)> = scripts
            .scripts
            .iter()
            .filter_map(|script| match script::read(&script.text, &mut names) {
                Ok(commands) => Some((script, commands)),
                Err(all) => {
                    wrong.extend(all.iter().map(|w| named(script, w)));
                    None
                }
            })
            .collect();
        for (script, commands) in &commands {
            wrong.extend(unset(commands, &names).iter().map(|w| named(script, w)));
        }
        let nul = scripts
            .variables
            .values()
            .chain(scripts.scripts.iter().map(|s| &s.text))
            .any(|t| t.contains('\0'));
        if nul {
            wrong.push("SQL cannot hold a NUL character".to_owned());
        }
        if !wrong.is_empty() {
            wrong.truncate(MOST_WRONG);
            return Err(wrong.join("\n"));
        }
        let mut statements = Vec::new();
        let scripts = commands
            .into_iter()
            .map(|(script, commands)| Ready {
                name: script.name.clone(),
                weight: u64::from(script.weight),
                steps: commands.into_iter().map(|command| step(command, &names, &mut statements)).collect(),
            })
            .collect();
        Ok(Self { scripts, weight, statements, names, given, client_id })
    }

    /// The statements that [`Book::next`] numbers.
    pub(crate) fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// A client that has run nothing yet; each `number` draws other values.
    pub(crate) fn client(&self, salt: u64, number: u32) -> Client {
        let mut variables = vec![None; self.names.len()].into_boxed_slice();
        variables[self.client_id] = Some(Held::Value(Value::Integer(i64::from(number))));
        for (number, given) in (0..).zip(&self.given) {
            variables[given.variable] = Some(Held::Given(number));
        }
        let random = Random::new(crate::nonce::splitmix(salt ^ u64::from(number)));
        Client { random, variables, script: 0, at: 0 }
    }

    /// Draws the script that the client runs next.
    pub(crate) fn begin(&self, client: &mut Client) {
        client.at = 0;
        client.script = 0;
        if self.scripts.len() > 1 {
            let mut drawn = client.random.up_to(self.weight - 1);
            for (number, script) in (0..).zip(&self.scripts) {
                if drawn < script.weight {
                    client.script = number;
                    break;
                }
                drawn -= script.weight;
            }
        }
    }

    /// Goes on to the next statement, and gives its number; `None`: the script is over.
    ///
    /// # Errors
    /// What could not be computed, and where.
    pub(crate) fn next(&self, client: &mut Client) -> Result<Option<usize>, String> {
        let script = &self.scripts[client.script as usize];
        let failed = |line: &u32, why: String| format!("{}, line {line}: {why}", script.name);
        while let Some(step) = script.steps.get(client.at as usize) {
            client.at += 1;
            match step {
                Step::Set { line, variable, expression } => {
                    let value = expression.evaluate(&mut Seen { book: self, client });
                    let value = value.map_err(|why| failed(line, why))?;
                    client.variables[*variable] = Some(Held::Value(value));
                }
                Step::Unless { line, condition, to } => {
                    let value = condition.evaluate(&mut Seen { book: self, client });
                    if !value.map_err(|why| failed(line, why))?.holds() {
                        client.at = *to as u32;
                    }
                }
                Step::Jump { to } => client.at = *to as u32,
                Step::Send(statement) => return Ok(Some(*statement)),
            }
        }
        Ok(None)
    }

    /// Appends what stands for a variable in the text of a statement: its name, if it has no value yet.
    pub(crate) fn write(&self, client: &Client, variable: usize, out: &mut Vec<u8>) {
        match client.variables[variable] {
            Some(Held::Value(value)) => value.write(out),
            Some(Held::Given(number)) => out.extend_from_slice(self.given[number as usize].text.as_bytes()),
            None => {
                out.push(b':');
                out.extend_from_slice(self.names.name(variable).as_bytes());
            }
        }
    }

    /// Whether a variable holds something else than NULL.
    pub(crate) fn has_value(&self, client: &Client, variable: usize) -> bool {
        !matches!(client.variables[variable], None | Some(Held::Value(Value::Null)))
    }
}

/// Makes a command a step, and keeps its statement.
fn step(command: Command, names: &Names, statements: &mut Vec<Statement>) -> Step {
    match command {
        Command::Set { line, variable, expression } => Step::Set { line, variable, expression },
        Command::Unless { line, condition, to } => Step::Unless { line, condition, to },
        Command::Jump { to } => Step::Jump { to },
        Command::Sql(sql) => {
            statements.push(Statement::read(&sql, names));
            Step::Send(statements.len() - 1)
        }
    }
}

fn named(script: &Script, wrong: &Wrong) -> String {
    format!("{}, line {}: {}", script.name, wrong.line, wrong.why)
}

/// The variables that expressions ask for and nothing sets.
fn unset(commands: &[Command], names: &Names) -> Vec<Wrong> {
    let mut wrong = Vec::new();
    for command in commands {
        if let Command::Set { line, expression, .. } | Command::Unless { line, condition: expression, .. } =
            command
        {
            expression.each_variable(&mut |number| {
                if !names.is_set(number) {
                    let name = names.name(number);
                    let why = format!("nothing sets :{name}; write \\set {name} …, or --define {name}=VALUE");
                    wrong.push(Wrong { line: *line, why });
                }
            });
        }
    }
    wrong
}

/// What an expression sees of a client.
struct Seen<'a> {
    book: &'a Book,
    client: &'a mut Client,
}

impl Scope for Seen<'_> {
    fn variable(&self, number: usize) -> Result<Value, String> {
        let name = || self.book.names.name(number);
        match self.client.variables[number] {
            Some(Held::Value(value)) => Ok(value),
            Some(Held::Given(given)) => {
                let given = &self.book.given[given as usize];
                given.value.ok_or_else(|| format!("{:?}, the value of :{}, is no number", given.text, name()))
            }
            None => Err(format!("undefined variable :{}", name())),
        }
    }

    fn random(&mut self) -> &mut Random {
        &mut self.client.random
    }
}

#[cfg(test)]
mod tests {
    use model::QueryMode;
    use proptest::prelude::*;

    use super::*;

    fn scripts(texts: &[(&str, u32)], variables: &[(&str, &str)]) -> Scripts {
        let script = |(i, (text, weight)): (usize, &(&str, u32))| Script {
            name: format!("{i}.sql"),
            text: (*text).to_owned(),
            weight: *weight,
        };
        Scripts {
            scripts: texts.iter().enumerate().map(script).collect(),
            mode: QueryMode::Simple,
            variables: variables.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        }
    }

    /// What one run of a script sends.
    fn run(book: &Book, client: &mut Client) -> Result<Vec<String>, String> {
        let mut sent = Vec::new();
        book.begin(client);
        while let Some(number) = book.next(client)? {
            let mut out = Vec::new();
            for part in book.statements()[number].parts() {
                match part {
                    Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                    Part::Variable(variable) => book.write(client, *variable, &mut out),
                }
            }
            sent.push(String::from_utf8(out).unwrap());
        }
        Ok(sent)
    }

    fn once(text: &str, variables: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let book = Book::read(&scripts(&[(text, 1)], variables))?;
        run(&book, &mut book.client(1, 7))
    }

    #[test]
    fn a_script_is_run_from_its_first_line_to_its_last() {
        let text = "\\set a :b * 2\n\\if :a > 5\nSELECT :a;\n\\elif :a = 4\nSELECT 'four';\n\\else\n\\set c null\n\
                    SELECT :c;\n\\endif\n\\set a 1\nSELECT ':d :e', :client_id, :a;";
        let last = "SELECT '007 :e', 7, 1;";
        for (b, first) in [("3", "SELECT 6;"), ("2", "SELECT 'four';"), ("1", "SELECT NULL;")] {
            assert_eq!(once(text, &[("b", b), ("d", "007")]).unwrap(), [first, last]);
        }
        assert_eq!(once("\\set i :d + 1\nSELECT :i", &[("d", "007")]).unwrap(), ["SELECT 8"]);
        let later = "\\if false\n\\set late 1\n\\endif\nSELECT :late";
        assert_eq!(once(later, &[]).unwrap(), ["SELECT :late"], "it has no value yet");
    }

    #[test]
    fn a_client_keeps_its_variables_and_no_other_has_them() {
        let text = "\\if :first\n\\set n 0\n\\set first 0\n\\endif\n\\set n :n + 1\nSELECT :n;";
        let book = Book::read(&scripts(&[(text, 1)], &[("first", "1")])).unwrap();
        let (mut one, mut two) = (book.client(1, 0), book.client(1, 1));
        for n in 1..4 {
            assert_eq!(run(&book, &mut one).unwrap(), [format!("SELECT {n};")]);
        }
        assert_eq!(run(&book, &mut two).unwrap(), ["SELECT 1;"]);
    }

    #[test]
    fn scripts_are_drawn_by_their_weights() {
        let book = Book::read(&scripts(&[("a", 1), ("b", 0), ("c", 3)], &[])).unwrap();
        let mut client = book.client(5, 0);
        let mut counts = std::collections::BTreeMap::new();
        for _ in 0..10_000 {
            *counts.entry(run(&book, &mut client).unwrap().remove(0)).or_insert(0) += 1;
        }
        assert_eq!(counts.len(), 2, "{counts:?}");
        assert!((2_300..2_700).contains(&counts["a"]), "{counts:?}");
    }

    #[test]
    fn clients_draw_other_values_and_the_same_again() {
        let book = Book::read(&scripts(&[("\\set a random(1, 1000000000)\nSELECT :a", 1)], &[])).unwrap();
        let drawn: Vec<_> = [0, 1, 2, 0].map(|n| run(&book, &mut book.client(3, n)).unwrap()).into();
        assert!(drawn[0] == drawn[3] && drawn[0] != drawn[1] && drawn[1] != drawn[2], "{drawn:?}");
        assert_ne!(run(&book, &mut book.client(4, 0)).unwrap(), drawn[0], "another run");
    }

    #[test]
    fn what_is_wrong_names_script_and_line() {
        let two = scripts(
            &[
                ("SELECT 1;\n\\set a :nosuch\n\\sleep 1", 1),
                ("\\if :a\nSELECT 1;", 1),
                ("\\set b :c\nSELECT :c", 1),
            ],
            &[],
        );
        let wrong = Book::read(&two).unwrap_err();
        for words in
            ["0.sql, line 3: \\sleep", "1.sql, line 1: \\if without", "2.sql, line 1: nothing sets :c"]
        {
            assert!(wrong.contains(words), "{wrong}");
        }
        assert!(Book::read(&scripts(&[("a", 0)], &[])).unwrap_err().contains("weight"));
        assert!(Book::read(&scripts(&[("a", 1)], &[("x", "\0")])).unwrap_err().contains("NUL"));
        assert_eq!(once("\n\\set a 1 / 0\nb", &[]).unwrap_err(), "0.sql, line 2: division by zero");
        let told = once("\\set a :x + 1\nb", &[("x", "many")]).unwrap_err();
        assert!(told.contains("\"many\", the value of :x"), "{told}");
        let late = once("\\if false\n\\set late 1\n\\endif\n\\set x :late\nb", &[]).unwrap_err();
        assert_eq!(late, "0.sql, line 4: undefined variable :late");
    }

    #[test]
    fn the_scripts_of_pgbench_itself() {
        for builtin in builtin::BUILTINS {
            let book = Book::read(&scripts(&[(builtin.text, 1)], &[("scale", "10")])).unwrap();
            let mut client = book.client(1, 0);
            for _ in 0..1_000 {
                let sent = run(&book, &mut client).unwrap();
                assert!(sent.iter().all(|sql| sql.ends_with(';') && !sql.contains(':')), "{sent:?}");
                let aid = sent.iter().find_map(|sql| sql.split("aid = ").nth(1)).unwrap();
                let aid: u32 = aid.trim_end_matches(';').parse().unwrap();
                assert!((1..=1_000_000).contains(&aid));
            }
        }
    }

    proptest! {
        #[test]
        fn any_text_is_run_or_refused(
            lines in prop::collection::vec(
                prop::sample::select(vec![
                    "\\set a 1", "\\set a :a * 3", "\\if :a", "\\elif :a > 2", "\\else", "\\endif", "SELECT :a;", "\\",
                    "--", "'", "$a$", "/*", "(", "SELECT 1 \\; 2", "\\set b random(:a, 10) \\", "é", "::a", "\\if null",
                ]),
                0..20,
            ),
            noise in ".{0,20}",
        ) {
            for text in [lines.join("\n"), lines.join(" ") + &noise, noise] {
                let _ = once(&text, &[("c", "1")]);
            }
        }
    }
}

//! What can break at all? The catalogue of limits, for a terminal and as a page of the docs.

use model::result::Side;

use crate::Style;
use crate::terminal::{NARROWEST, WIDEST};
use crate::text::{Cell, Ink, Table, wrap};

/// One limit, as far as it is known without any run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name: `server.nofile`.
    pub id: &'static str,
    /// Whose it is.
    pub side: Side,
    /// What it answers.
    pub question: &'static str,
    /// What it is, and how it shows.
    pub doc: &'static str,
    /// How to see it by hand.
    pub how_to_see: &'static str,
    /// What lifts it, in words.
    pub remedy_doc: &'static str,
    /// How to make it happen.
    pub induce: Induce,
}

/// How a limit is made to happen on purpose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Induce {
    /// What is done, or why it is not done here.
    pub says: String,
    /// The lines that do it.
    pub lines: Vec<String>,
    /// Whether `plimsoll limits ID --induce` runs these lines.
    pub runs: bool,
}

/// The whole catalogue as a table.
pub fn list(entries: &[Entry], style: Style) -> String {
    let mut table = Table::new(&["<limit", "<whose", "<question"]);
    for entry in entries {
        table.row(vec![
            Cell(entry.id.to_owned(), Ink::Bold),
            Cell(whose(entry.side).to_owned(), Ink::Dim),
            entry.question.into(),
        ]);
    }
    let mut out = String::new();
    for line in table.lines(style.colour, style.width.clamp(NARROWEST, WIDEST)) {
        out += &format!("{}\n", line.trim_end());
    }
    out
}

/// All that is known of one limit.
pub fn entry(entry: &Entry, style: Style) -> String {
    let width = style.width.clamp(NARROWEST, WIDEST);
    let mut out = String::new();
    let head =
        format!("{}  {}", Ink::Bold.on(style.colour, entry.id), Ink::Dim.on(style.colour, whose(entry.side)));
    out += &format!("{head}\n{}\n", entry.question);
    let mut section = |name: &str, text: &str, lines: &[String]| {
        out += &format!("\n{}\n", Ink::Bold.on(style.colour, name));
        for line in wrap(text, width - 2) {
            out += &format!("  {line}\n");
        }
        // Lines that can be pasted are never wrapped, nor indented: a shell's here-document ends at its margin.
        for line in lines {
            let ink = if line.starts_with('#') { Ink::Dim } else { Ink::Plain };
            out += &format!("{}\n", ink.on(style.colour, line));
        }
    };
    section("WHAT IT IS", entry.doc, &[]);
    section("SEE IT", entry.how_to_see, &[]);
    section("LIFT IT", entry.remedy_doc, &[]);
    section("MAKE IT HAPPEN", &entry.induce.says, &entry.induce.lines);
    out
}

/// The whole catalogue as the page `docs/limits.md`.
pub fn markdown(entries: &[Entry]) -> String {
    let mut out = "# Limits\n\n\
        What can break, whose it is, how to see it, what lifts it, and how to make it happen on purpose.\n\
        `plimsoll limits` prints this catalogue, `plimsoll limits ID --induce` makes one happen, small and bounded. This\n\
        page is made from the same source: `UPDATE_DOCS=1 cargo test -p plimsoll limits_page`.\n\n\
        | limit | whose | question |\n| --- | --- | --- |\n"
        .to_owned();
    for entry in entries {
        out += &format!(
            "| [{}](#{}) | {} | {} |\n",
            entry.id,
            entry.id.replace('.', ""),
            whose(entry.side),
            entry.question
        );
    }
    for entry in entries {
        out += &format!(
            "\n## {}\n\n**{}** {}\n\n**See it.** `{}`\n\n**Lift it.** {}\n\n**Make it happen.** {}{}\n\n```sh\n{}\n```\n",
            entry.id,
            entry.question,
            entry.doc,
            entry.how_to_see,
            entry.remedy_doc,
            if entry.induce.runs {
                format!("`plimsoll limits {} --induce` runs these lines. ", entry.id)
            } else {
                String::new()
            },
            entry.induce.says,
            entry.induce.lines.join("\n")
        );
    }
    out
}

/// Whose a limit is.
fn whose(side: Side) -> &'static str {
    match side {
        Side::Client => "the generator's",
        Side::Host => "the target's host's",
        Side::Server => "the server's",
        Side::Between => "something between",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> Entry {
        Entry {
            id: "server.nofile",
            side: Side::Server,
            question: "Does the server run out of descriptors?",
            doc: "Each connection takes one.",
            how_to_see: "ls /proc/PID/fd | wc -l",
            remedy_doc: "A higher LimitNOFILE.",
            induce: Induce {
                says: "A node with few.".to_owned(),
                lines: vec!["cat <<'END'".to_owned(), "END".to_owned()],
                runs: true,
            },
        }
    }

    #[test]
    fn a_table_and_a_page_of_one() {
        let table = list(&[one()], Style::default());
        let row = "  server.nofile  the server's  Does the server run out of descriptors?";
        assert_eq!(table.lines().nth(1), Some(row));
        let text = entry(&one(), Style::default());
        for said in
            ["Each connection takes one.", "ls /proc/PID/fd", "A higher LimitNOFILE.", "A node with few."]
        {
            assert!(text.contains(said), "{said:?} is missing: {text}");
        }
        assert!(text.ends_with("\ncat <<'END'\nEND\n"), "lines to paste stand at the margin: {text}");
    }

    #[test]
    fn colour_only_where_allowed() {
        let coloured = Style { colour: true, width: 80 };
        assert!(list(&[one()], coloured).contains("\u{1b}[1mserver.nofile"));
        assert!(!list(&[one()], Style::default()).contains('\u{1b}'));
        assert!(!entry(&one(), Style::default()).contains('\u{1b}'));
    }

    #[test]
    fn the_page_says_which_lines_are_run() {
        assert!(markdown(&[one()]).contains("`plimsoll limits server.nofile --induce` runs these lines."));
        let mut told = one();
        told.induce.runs = false;
        assert!(!markdown(&[told]).contains("runs these lines"));
        assert!(markdown(&[one()]).contains("| [server.nofile](#servernofile) | the server's |"));
    }
}

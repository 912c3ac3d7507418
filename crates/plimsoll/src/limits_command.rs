//! `plimsoll limits`: what can break at all, how does it show, what lifts it, and how is it made to happen?

use std::io::Write as _;
use std::path::{Path, PathBuf};

use limits::LIMITS;
use model::RunResult;
use model::result::Status;
use report::catalogue::{self, Entry, Induce};

use crate::Failed;
use crate::cli::LimitsArgs;
use crate::induce::{self, Recipe};
use crate::outputs::terminal_style;

/// Prints the catalogue or one limit of it, or makes that one happen: then the exit code is 0 if it was met.
pub(crate) fn limits(args: &LimitsArgs) -> Result<u8, Failed> {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("plimsoll"));
    let style = terminal_style();
    let entries = entries(&program.display().to_string());
    let Some(id) = &args.id else {
        say(&catalogue::list(&entries, style))?;
        return Ok(0);
    };
    let Some(entry) = entries.iter().find(|entry| entry.id == id) else {
        return Err(Failed::Usage(unknown(id)));
    };
    if !args.induce {
        say(&catalogue::entry(entry, style))?;
        return Ok(0);
    }
    let recipe = induce::recipe(id).filter(|recipe| recipe.runs());
    let told = match recipe.map(|recipe| (recipe, recipe.lacking())) {
        Some((recipe, None)) => return happen(recipe, &program),
        Some((_, Some(lacking))) => format!("cannot be made to happen here: {lacking}"),
        None => entry.induce.says.clone(),
    };
    say(&format!("{}\n", entry.induce.lines.join("\n")))?;
    Err(Failed::CannotRun(format!("{id}: {told}")))
}

/// Runs a recipe, and prints what its hold found.
fn happen(recipe: &Recipe, program: &Path) -> Result<u8, Failed> {
    let _ = writeln!(std::io::stderr(), "{}: {}", recipe.id, recipe.says);
    let file = std::env::temp_dir().join(format!("plimsoll-limits-{}.json", std::process::id()));
    recipe.run(program, &file)?;
    let bytes = std::fs::read(&file);
    let _ = std::fs::remove_file(&file);
    let bytes = bytes.ok().filter(|bytes| !bytes.is_empty());
    let bytes = bytes.ok_or_else(|| Failed::CannotRun(format!("{}: the run left no result", recipe.id)))?;
    let result = report::read(&bytes).map_err(|e| Failed::CannotRun(format!("{}: {e}", recipe.id)))?;
    let ladder = report::terminal::ladder_alone(&result, terminal_style());
    say(&format!("{}\n{ladder}", result.verdict.sentence))?;
    if met(&result, recipe.id) {
        return Ok(0);
    }
    Err(Failed::CannotRun(format!("{} was not met in this run; see the ladder", recipe.id)))
}

/// Whether the limit was met.
fn met(result: &RunResult, id: &str) -> bool {
    result.limits.iter().any(|finding| finding.id == id && finding.status == Status::Hit)
}

/// The catalogue, with recipes for a binary of this name or path.
fn entries(plimsoll: &str) -> Vec<Entry> {
    let entry = |facts: &'static limits::LimitFacts| Entry {
        id: facts.id,
        side: facts.side,
        question: facts.question,
        doc: facts.doc,
        how_to_see: facts.how_to_see,
        remedy_doc: facts.remedy_doc,
        induce: match induce::recipe(facts.id) {
            Some(recipe) => {
                Induce { says: recipe.says.to_owned(), lines: recipe.pasted(plimsoll), runs: recipe.runs() }
            }
            None => Induce { says: "Not known.".to_owned(), lines: Vec::new(), runs: false },
        },
    };
    LIMITS.iter().map(|limit| entry(limit.facts())).collect()
}

/// What is said of a name that is not in the catalogue: the nearest ones that are.
fn unknown(id: &str) -> String {
    let near = nearest(id);
    let near = match near.as_slice() {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    };
    format!("no limit is called {id:?}{near} (`plimsoll limits` lists them all)")
}

/// Names that begin with or contain what was typed; else those that are the fewest changed letters away.
fn nearest(id: &str) -> Vec<&'static str> {
    const SHOWN: usize = 4;
    /// As many letters may differ, of three that were typed one.
    const TYPED_FOR_ONE: usize = 3;
    let names = || LIMITS.iter().map(|limit| limit.facts().id);
    let typed = id.to_lowercase();
    let mut near: Vec<&str> = names().filter(|name| !typed.is_empty() && name.contains(&typed)).collect();
    near.sort_by_key(|name| !name.starts_with(&typed));
    if near.is_empty() {
        let far = |name: &str| {
            let parts = [name].into_iter().chain(name.split('.').nth(1));
            parts.map(|part| changes(&typed, part)).min().unwrap_or(usize::MAX)
        };
        let least = names().map(far).min().unwrap_or(usize::MAX);
        near = names().filter(|name| far(name) == least && least <= typed.len() / TYPED_FOR_ONE).collect();
    }
    near.truncate(SHOWN);
    near
}

/// How many letters must be put in, taken out or replaced to make one word of the other.
fn changes(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

/// Writes to standard output; whoever reads may have seen enough (`| head`).
fn say(text: &str) -> Result<(), Failed> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failed::CannotRun(format!("cannot write to standard output: {e}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_page_in_docs_is_the_one_of_the_catalogue() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/limits.md");
        let page = catalogue::markdown(&entries("plimsoll"));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&file, &page).unwrap();
        }
        let stored = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(
            stored == page,
            "docs/limits.md is not up to date: UPDATE_DOCS=1 cargo test -p plimsoll limits_page"
        );
    }

    #[test]
    fn the_nearest_names() {
        assert_eq!(nearest("server.nofiel"), ["server.nofile"]);
        assert_eq!(nearest("accept-queu"), ["listen.accept-queue"]);
        assert!(nearest("NOFILE").contains(&"client.nofile") && nearest("nofile").contains(&"server.nofile"));
        assert!(nearest("server.").iter().all(|name| name.starts_with("server.")));
        assert_eq!(nearest("something else"), Vec::<&str>::new());
        assert_eq!(nearest(""), Vec::<&str>::new());
    }

    #[test]
    fn changed_letters() {
        assert_eq!((changes("", "abc"), changes("abc", "abc"), changes("kitten", "sitting")), (3, 0, 3));
        assert_eq!((changes("nofiel", "nofile"), changes("ab", "b")), (2, 1));
    }
}

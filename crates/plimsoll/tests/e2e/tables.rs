//! Is everything that can be typed explained, in the environment too, and do the examples read?

use std::fs;

use crate::harness::{directory, port, repository, run, start_in};
use toml::Value;

/// What `plimsoll COMMAND --help` says.
fn help(command: &str) -> String {
    let ended = run(&[command, "--help"]);
    ended.expect_code(0);
    ended.stdout
}

/// The subcommands that `plimsoll --help` lists.
fn subcommands() -> Vec<String> {
    let ended = run(&["--help"]);
    ended.expect_code(0);
    let listed = ended.stdout.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names =
        listed.take_while(|line| line.starts_with("  ")).filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// Each flag of a command's help with all that is said of it.
fn flags(help: &str) -> Vec<(String, String)> {
    let mut flags: Vec<(String, String)> = Vec::new();
    for line in help.lines().skip_while(|line| *line != "Options:").skip(1) {
        if !line.is_empty() && !line.starts_with(' ') {
            break;
        }
        let words = line.trim_start().split([' ', ',', '=']).find(|word| word.starts_with("--"));
        let begins = line.trim_start().starts_with('-');
        match (words, flags.last_mut()) {
            (Some(name), _) if begins => flags.push((name.to_owned(), line.to_owned())),
            (_, Some((_, told))) => *told = format!("{told} {}", line.trim()),
            _ => {}
        }
    }
    flags
}

#[test]
fn every_subcommand_is_explained_with_an_example() {
    let names = subcommands();
    for expected in ["hold", "serve", "doctor", "report", "run"] {
        assert!(names.iter().any(|name| name == expected), "{names:?}");
    }
    for name in names {
        let text = help(&name);
        assert!(text.contains("Usage: plimsoll"), "{name}: {text}");
        let example = text.contains("Examples:") || text.contains("experiment = \"hold\"");
        assert!(example, "`plimsoll {name} --help` shows no example: {text}");
    }
}

#[test]
fn every_flag_of_a_hold_is_explained_and_can_stand_in_the_environment() {
    let text = help("hold");
    let flags = flags(&text);
    assert!(flags.len() > 20, "{flags:?}");
    for (flag, told) in flags.iter().filter(|(flag, _)| flag != "--help") {
        let variable =
            format!("[env: PLIMSOLL_{}", flag.trim_start_matches("--").to_uppercase().replace('-', "_"));
        assert!(told.contains(&variable), "{flag} has no {variable}…]: {told}");
        assert!(told.trim().len() > flag.len() + variable.len() + 10, "{flag} is not explained: {told}");
    }
    assert!(text.contains("[env: PLIMSOLL_URL="), "{text}");
}

#[test]
fn what_stands_in_the_environment_is_what_is_asked() {
    let directory = directory();
    let mut command = std::process::Command::new("sh");
    command.args([
        "-c",
        "PLIMSOLL_CONNECTIONS=0 exec \"$0\" hold tcp://127.0.0.1:1",
        crate::harness::PLIMSOLL,
    ]);
    let ended = crate::harness::start_command(directory, command).finish();
    ended.expect_code(2);
    ended.expect_words(&["-c 0"]);
}

/// An example is read as a whole before anything is begun. With a port on which nobody listens, all that can then go
/// wrong is that nobody does; a key that is no flag would be wrong usage.
#[test]
fn every_example_reads_as_a_run() {
    let Ok(entries) = fs::read_dir(repository().join("examples")) else { return };
    let paths = entries.flatten().map(|entry| entry.path());
    let examples: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == "toml")).collect();
    assert!(!examples.is_empty(), "a directory of examples without one");
    for example in examples {
        let name = example.display();
        let text = fs::read_to_string(&example).unwrap();
        let mut table: toml::Table = text.parse().unwrap_or_else(|e| panic!("{name}: {e}"));
        let url = table["url"].as_str().unwrap_or_else(|| panic!("{name} has no url")).to_owned();
        let (scheme, _) = url.split_once("://").unwrap_or_else(|| panic!("{name}: {url}"));
        table.insert("url".to_owned(), Value::String(format!("{scheme}://127.0.0.1:{}/", port())));
        table.insert("serve".to_owned(), Value::Boolean(false));
        let directory = directory();
        for output in ["json", "html", "markdown"] {
            if table.contains_key(output) {
                let path = directory.path().join(output).display().to_string();
                table.insert(output.to_owned(), Value::String(path));
            }
        }
        let copy = directory.path().join("example.toml");
        fs::write(&copy, table.to_string()).unwrap();
        let copy = copy.display().to_string();
        let ended = start_in(directory, &["run", &copy]).finish();
        assert_eq!(ended.code, 1, "{name}: {}", ended.said());
        ended.expect_words(&["nothing listens there"]);
    }
}

//! `plimsoll run FILE`: an experiment in TOML, whose keys are the flags.

use std::path::Path;

use toml::Value;

use crate::Failed;

/// Turns a TOML file into the command line that it stands for; there is no second place that knows the flags.
pub(crate) fn command_line(file: &Path) -> Result<Vec<String>, Failed> {
    let name = file.display().to_string();
    let text =
        std::fs::read_to_string(file).map_err(|e| Failed::CannotRun(format!("cannot read {name}: {e}")))?;
    words(&text).map_err(|why| Failed::Usage(format!("{name}: {why}")))
}

fn words(text: &str) -> Result<Vec<String>, String> {
    let mut table: toml::Table = text.parse().map_err(|e: toml::de::Error| e.to_string())?;
    let text = |key: &str, value| match value {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!("{key} = {other} must be a string")),
        None => Err(format!("{key} is missing; write {key} = \"…\"")),
    };
    let mut words = vec!["plimsoll".to_owned(), text("experiment", table.remove("experiment"))?];
    match table.remove("url") {
        // several ways to the server, in a sweep
        Some(Value::Array(urls)) => {
            for url in urls {
                words.push(text("url", Some(url))?);
            }
        }
        url => words.push(text("url", url)?),
    }
    for (key, value) in table {
        let flag = format!("--{}", key.replace('_', "-"));
        let values = match value {
            Value::Array(values) => values,
            one => vec![one],
        };
        for value in values {
            match value {
                Value::Boolean(true) => words.push(flag.clone()),
                Value::Boolean(false) => {}
                Value::String(text) => words.push(format!("{flag}={text}")),
                Value::Integer(n) => words.push(format!("{flag}={n}")),
                Value::Float(x) => words.push(format!("{flag}={x}")),
                other => return Err(format!("{key} = {other}: a flag takes text, a number or true")),
            }
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_reads_as_its_command_line() {
        let text = "experiment = \"hold\"\nurl = \"tcp://127.0.0.1:7000\"\nserve = true\nquiet = false\n\
                    connections = \"10k\"\nstages = 5\nfail_if = [\"failed > 0\", \"verify.seconds > 1\"]\n";
        let mut got = words(text).unwrap();
        got[3..].sort();
        assert_eq!(
            got,
            [
                "plimsoll",
                "hold",
                "tcp://127.0.0.1:7000",
                "--connections=10k",
                "--fail-if=failed > 0",
                "--fail-if=verify.seconds > 1",
                "--serve",
                "--stages=5"
            ]
        );
    }

    #[test]
    fn mistakes_name_the_key_or_the_line() {
        assert_eq!(words("experiment = \"sweep\"\nurl = [\"a\", \"b\"]").unwrap()[2..], ["a", "b"]);
        assert!(words("experiment = \"sweep\"\nurl = [1]").unwrap_err().contains("must be a string"));
        assert!(words("url = \"tcp://x:1\"").unwrap_err().contains("experiment is missing"));
        assert!(words("experiment = \"hold\"\nurl = = 1").unwrap_err().contains("line 2"));
        assert!(words("experiment = \"hold\"\nurl = \"u\"\nhold = { a = 1 }").unwrap_err().contains("hold"));
    }
}

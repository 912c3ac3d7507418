//! What do the clients of a sweep do? Scripts of pgbench, in files or built in.

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::OnceLock;

use clap::{Args, ValueEnum};
use model::{Operation, QueryMode, Scheme, Script, Scripts, Target};
use protocols::pgbench::{self, builtin};

use crate::cli::RunArgs;
use crate::{Failed, init, operation};

/// Which scripts clients of PostgreSQL run.
#[derive(Debug, Args)]
pub(crate) struct WorkloadArgs {
    /// postgres: a pgbench script; each operation is one run of it; may be given again
    #[arg(long, value_name = "FILE[@WEIGHT]", env = "PLIMSOLL_SCRIPT", conflicts_with_all = ["message", "call"])]
    pub(crate) script: Vec<String>,

    /// postgres: pgbench's own tpcb-like, simple-update or select-only; may be given again
    #[arg(long, value_name = "NAME[@WEIGHT]", env = "PLIMSOLL_BUILTIN", conflicts_with_all = ["message", "call"])]
    pub(crate) builtin: Vec<String>,

    /// How the statements of scripts are sent, as in pgbench
    #[arg(short = 'M', long, value_enum, default_value_t = ModeArg::Simple, env = "PLIMSOLL_MODE")]
    pub(crate) mode: ModeArg,

    /// What :scale is in scripts; default: with --builtin as many as pgbench_branches has rows, else 1
    #[arg(short = 's', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), env = "PLIMSOLL_SCALE")]
    pub(crate) scale: Option<u32>,

    /// A variable of the scripts; may be given again
    #[arg(short = 'D', long, value_name = "NAME=VALUE", env = "PLIMSOLL_DEFINE")]
    pub(crate) define: Vec<String>,

    /// Drop, create and fill pgbench's tables at --scale, and end: nothing is measured
    #[arg(long, env = "PLIMSOLL_INIT", conflicts_with_all = ["script", "builtin", "message", "call"])]
    pub(crate) init: bool,
}

/// The names of [`QueryMode`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModeArg {
    Simple,
    Extended,
    Prepared,
}

impl From<ModeArg> for QueryMode {
    fn from(arg: ModeArg) -> Self {
        match arg {
            ModeArg::Simple => Self::Simple,
            ModeArg::Extended => Self::Extended,
            ModeArg::Prepared => Self::Prepared,
        }
    }
}

/// What each client does on this target: scripts if there are any, else what `message` says.
pub(crate) fn operation(
    args: &WorkloadArgs,
    target: &Target,
    message: Option<&str>,
    run: &RunArgs,
) -> Result<Operation, Failed> {
    if args.script.is_empty() && args.builtin.is_empty() {
        return operation::said(target, message);
    }
    check_scheme(target, "--script and --builtin are")?;
    let files = args.script.iter().map(|text| file(text));
    let builtins = args.builtin.iter().map(|text| built_in(text));
    let scripts = files.chain(builtins).collect::<Result<Vec<_>, _>>()?;
    let mut variables = variables(args)?;
    let scale_is_known = args.scale.is_some() || variables.contains_key("scale");
    variables.entry("scale".to_owned()).or_insert_with(|| args.scale.unwrap_or(1).to_string());
    let mut scripts = Scripts { scripts, mode: args.mode.into(), variables };
    let operation = |scripts| Operation { scripts: Some(scripts), ..Operation::default() };
    protocols::check_operation(target.scheme, &operation(scripts.clone())).map_err(Failed::Usage)?;
    if !args.builtin.is_empty() && !scale_is_known {
        scripts.variables.insert("scale".to_owned(), init::scale(target, run)?.to_string());
    }
    Ok(operation(scripts))
}

/// Only PostgreSQL has tables to fill and scripts to run.
pub(crate) fn check_scheme(target: &Target, what: &str) -> Result<(), Failed> {
    if target.scheme == Scheme::Postgres {
        return Ok(());
    }
    Err(Failed::Usage(format!("{what} for postgres://, and the target is {}://", target.scheme)))
}

fn file(text: &str) -> Result<Script, Failed> {
    let (name, weight) = weighted(text, "--script")?;
    let text = std::fs::read_to_string(name)
        .map_err(|e| Failed::CannotRun(format!("cannot read {name} of --script: {e}")))?;
    Ok(Script { name: name.to_owned(), text, weight })
}

fn built_in(text: &str) -> Result<Script, Failed> {
    let (name, weight) = weighted(text, "--builtin")?;
    let builtin = builtin::find(name).map_err(|why| Failed::Usage(format!("--builtin: {why}")))?;
    Ok(Script { name: builtin.name.to_owned(), text: builtin.text.to_owned(), weight })
}

/// `WHAT@WEIGHT`, or what weighs 1.
fn weighted<'a>(text: &'a str, flag: &str) -> Result<(&'a str, u32), Failed> {
    let Some((what, weight)) = text.rsplit_once('@') else { return Ok((text, 1)) };
    match weight.parse() {
        Ok(weight) => Ok((what, weight)),
        Err(_) => Err(Failed::Usage(format!(
            "{flag} {text}: what stands behind the @ is a weight, a whole number; write {text}@1 if the @ is part of \
             the name"
        ))),
    }
}

/// What scripts find set: the seeds, and what `--define` says.
fn variables(args: &WorkloadArgs) -> Result<BTreeMap<String, String>, Failed> {
    let seed = || {
        // The same for all ways to a server, so that they are asked alike.
        static SEED: OnceLock<u64> = OnceLock::new();
        (SEED.get_or_init(|| RandomState::new().hash_one(())) >> 1).to_string()
    };
    let mut variables: BTreeMap<String, String> =
        ["default_seed", "random_seed"].map(|name| (name.to_owned(), seed())).into();
    for text in &args.define {
        match text.split_once('=') {
            Some((name, value)) if pgbench::is_name(name) => {
                variables.insert(name.to_owned(), value.to_owned());
            }
            _ => return Err(Failed::Usage(format!("--define {text}: write NAME=VALUE"))),
        }
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_stands_behind_the_last_at() {
        let weighted = |text| weighted(text, "--script").map_err(|e| e.to_string());
        assert_eq!(weighted("a.sql"), Ok(("a.sql", 1)));
        assert_eq!(weighted("a.sql@9"), Ok(("a.sql", 9)));
        assert_eq!(weighted("a@b@0"), Ok(("a@b", 0)));
        assert!(weighted("a@b").unwrap_err().contains("a@b@1"));
    }
}

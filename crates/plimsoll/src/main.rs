//! The binary: a file per subcommand, and one exit code for each way to end.

mod call;
mod churn;
mod cli;
mod conduct;
mod doctor;
mod emit;
mod experiment;
mod hold;
mod induce;
mod init;
mod limits_command;
mod live;
mod observe_command;
mod operation;
mod outputs;
mod progress;
mod reach;
mod report_command;
mod run;
mod serving;
mod sight;
mod storm;
mod sweep;
mod talk;
mod way;
mod workload;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use cli::{Cli, Command};
use fleet::Link;
use thiserror::Error;

/// Why there is no result.
#[derive(Debug, Error)]
pub(crate) enum Failed {
    /// Exit code 1.
    #[error("{0}")]
    CannotRun(String),
    /// Exit code 2.
    #[error("{0}")]
    Usage(String),
    /// Exit code 1.
    #[error(transparent)]
    Node(#[from] node::NodeError),
    /// Exit code 1.
    #[error(transparent)]
    Worker(#[from] worker::WorkerError),
}

fn main() -> ExitCode {
    let code = match run(&Cli::parse().command) {
        Ok(code) => code,
        Err(failed) => {
            let _ = writeln!(std::io::stderr(), "plimsoll: {failed}");
            if matches!(failed, Failed::Usage(_)) { 2 } else { 1 }
        }
    };
    ExitCode::from(code)
}

fn run(command: &Command) -> Result<u8, Failed> {
    match command {
        Command::Hold(args) => hold::hold(args),
        Command::Storm(args) => storm::storm(args),
        Command::Talk(args) => talk::talk(args),
        Command::Sweep(args) => sweep::sweep(args),
        Command::Churn(args) => churn::churn(args),
        Command::Serve(args) => serving::serve(args).map(|()| 0),
        Command::Doctor(args) => doctor::doctor(args),
        Command::Observe(args) => observe_command::observe(args).map(|()| 0),
        Command::Limits(args) => limits_command::limits(args),
        Command::Report(args) => report_command::report(args),
        Command::Run(args) => {
            let words = run::command_line(&args.file)?;
            let cli = Cli::try_parse_from(words)
                .map_err(|e| Failed::Usage(format!("{}: {e}", args.file.display())))?;
            match cli.command {
                Command::Run(_) => Err(Failed::Usage("a file cannot run a file".to_owned())),
                command => run(&command),
            }
        }
        Command::Worker => {
            let link = Link::stdio().map_err(worker::WorkerError::from)?;
            match worker::run(link) {
                // The coordinator is gone: there is nobody left to tell.
                Err(worker::WorkerError::Link(_)) => Ok(1),
                other => Ok(other.map(|()| 0)?),
            }
        }
        Command::NodeProcess => {
            node::run_child()?;
            Ok(0)
        }
    }
}

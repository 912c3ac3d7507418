//! `plimsoll report`: judge a stored result by today's rules, and draw it again.

use std::io::Read as _;
use std::path::Path;

use crate::Failed;
use crate::cli::ReportArgs;
use crate::outputs::Outputs;

/// Reads, judges and draws; the exit code is the stored run's.
pub(crate) fn report(args: &ReportArgs) -> Result<u8, Failed> {
    let name = args.file.display();
    let mut bytes = Vec::new();
    let read = if args.file == Path::new("-") {
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| ())
    } else {
        std::fs::read(&args.file).map(|b| bytes = b)
    };
    read.map_err(|e| Failed::CannotRun(format!("cannot read {name}: {e}")))?;
    let mut result = report::read(&bytes).map_err(|e| Failed::CannotRun(format!("{name}: {e}")))?;
    let outputs = Outputs::open(&args.outputs)?;
    analysis::conclude(&mut result);
    limits::judge(&mut result);
    let code = result.exit_code();
    outputs.write(&result, false)?;
    Ok(code)
}

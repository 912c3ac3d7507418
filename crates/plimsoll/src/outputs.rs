//! Where do results go? Files that are opened before the run, so that a bad path fails in its first second.

use std::fs::File;
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use model::RunResult;
use report::Style;

use crate::Failed;
use crate::cli::OutputArgs;

/// The outputs that were asked for, open.
pub(crate) struct Outputs {
    files: Vec<(&'static str, PathBuf, File)>,
    json_to_stdout: bool,
}

impl Outputs {
    /// Opens every file for writing; what stands in it stays until the result is there.
    pub(crate) fn open(args: &OutputArgs) -> Result<Self, Failed> {
        let mut out = Self { files: Vec::new(), json_to_stdout: false };
        for (id, path) in [("json", &args.json), ("html", &args.html), ("markdown", &args.markdown)] {
            let Some(path) = path else { continue };
            if path == Path::new("-") {
                if id != "json" {
                    return Err(Failed::Usage(format!(
                        "--{id} needs a file; only --json can go to standard output"
                    )));
                }
                out.json_to_stdout = true;
                continue;
            }
            let file = File::options()
                .create(true)
                .write(true)
                .truncate(false)
                .open(path)
                .map_err(|e| Failed::CannotRun(format!("cannot write --{id} {}: {e}", path.display())))?;
            out.files.push((id, path.clone(), file));
        }
        Ok(out)
    }

    /// Writes the result everywhere it was asked for, and to the terminal.
    pub(crate) fn write(self, result: &RunResult, quiet: bool) -> Result<(), Failed> {
        let style = terminal_style();
        for (id, path, mut file) in self.files {
            let bytes = render(id, result, style)?;
            file.set_len(0)
                .and_then(|()| file.write_all(&bytes))
                .map_err(|e| Failed::CannotRun(format!("cannot write --{id} {}: {e}", path.display())))?;
        }
        let bytes = match (self.json_to_stdout, quiet) {
            (true, _) => render("json", result, style)?,
            (false, true) => format!("{}\n", result.verdict.sentence).into_bytes(),
            (false, false) => render("terminal", result, style)?,
        };
        match io::stdout().write_all(&bytes).and_then(|()| io::stdout().flush()) {
            // Whoever reads has seen enough (`| head`).
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            other => other.map_err(|e| Failed::CannotRun(format!("cannot write to standard output: {e}"))),
        }
    }
}

fn render(id: &str, result: &RunResult, style: Style) -> Result<Vec<u8>, Failed> {
    let output = report::output(id).ok_or_else(|| Failed::CannotRun(format!("there is no output {id:?}")))?;
    output.render(result, style).map_err(|e| Failed::CannotRun(format!("cannot draw the {id} report: {e}")))
}

/// Colour only on a terminal, and not where `NO_COLOR` asks for none.
pub(crate) fn terminal_style() -> Style {
    let no_colour = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
    let width = rustix::termios::tcgetwinsize(io::stdout()).map_or(100, |size| usize::from(size.ws_col));
    Style { colour: io::stdout().is_terminal() && !no_colour, width: if width == 0 { 100 } else { width } }
}

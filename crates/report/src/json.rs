//! The result itself, for programs and for `plimsoll report`.

use model::RunResult;

use crate::{Output, OutputError, OutputFacts, Style};

/// The whole result as indented JSON: the document that every other output is drawn from.
pub struct Json;

impl Output for Json {
    fn facts(&self) -> &'static OutputFacts {
        &OutputFacts {
            id: "json",
            doc: "the whole result, for programs, for keeping, and for `plimsoll report`",
            extension: "json",
        }
    }

    fn render(&self, result: &RunResult, _style: Style) -> Result<Vec<u8>, OutputError> {
        let mut out = serde_json::to_vec_pretty(result)?;
        // JSON has no NaN and no infinity; serde_json writes `null` for them. Where a figure is optional that
        // reads back as "unknown", which is right. Where it is not, the document could never be read again.
        if let Err(error) = serde_json::from_slice::<RunResult>(&out) {
            let line = out.split(|&b| b == b'\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
            return Err(OutputError::NotFinite(String::from_utf8_lossy(line).trim().to_owned()));
        }
        out.push(b'\n');
        Ok(out)
    }
}

/// The JSON schema of a result, made from the model's types; `docs/result.schema.json` is this.
pub fn schema() -> String {
    let schema = schemars::schema_for!(RunResult);
    let mut text = serde_json::to_string_pretty(&schema).unwrap_or_default();
    text.push('\n');
    text
}

//! How is a result shown? Pure: a file per output; a Result in, bytes out.
//!
//! No output opens a file, reads a clock or measures anything: all that it shows stands in the
//! [`RunResult`]. So `plimsoll report OLD.json` draws a stored run exactly as a new one.

pub mod catalogue;
mod counts;
pub mod html;
pub mod json;
pub mod markdown;
pub mod terminal;

mod ladder;
mod latencies;
mod pools;
mod read;
mod rounds;
mod spells;
mod svg;
mod text;
mod timeline;
mod words;

use model::RunResult;
use thiserror::Error;

pub use json::schema;
pub use read::{ReadError, read};

/// Every output, in the order in which help and docs list them.
pub static OUTPUTS: &[&dyn Output] = &[&terminal::Terminal, &json::Json, &html::Html, &markdown::Markdown];

/// What an output is called and what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputFacts {
    /// The name used on the command line.
    pub id: &'static str,
    /// In one line: who wants it.
    pub doc: &'static str,
    /// The customary extension of its files, without the dot.
    pub extension: &'static str,
}

/// One format.
///
/// Called after the run, and again for a stored one; may not measure, read or write anything.
pub trait Output: Sync {
    /// Its name and purpose.
    fn facts(&self) -> &'static OutputFacts;

    /// Draws a result.
    ///
    /// # Errors
    /// Only where the result itself is damaged (a figure that is not a number) or a template fails.
    fn render(&self, result: &RunResult, style: Style) -> Result<Vec<u8>, OutputError>;
}

/// How the terminal looks; the other outputs do not read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether escape sequences for colour and weight may be written.
    pub colour: bool,
    /// Columns of the terminal; no more than 100 are used.
    pub width: usize,
}

impl Default for Style {
    fn default() -> Self {
        Self { colour: false, width: 100 }
    }
}

/// Why a result could not be drawn; completes "failed to write …".
#[derive(Debug, Error)]
pub enum OutputError {
    /// A figure that must be a number is infinite or not a number.
    #[error("the result holds a figure that is not a number: {0}")]
    NotFinite(String),
    /// The document could not be written as JSON.
    #[error("the result cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The page's template failed.
    #[error("the page cannot be drawn: {0}")]
    Page(#[from] askama::Error),
}

/// The output with this id.
pub fn output(id: &str) -> Option<&'static dyn Output> {
    OUTPUTS.iter().copied().find(|o| o.facts().id == id)
}

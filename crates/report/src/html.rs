//! What would be shown around? One page that holds everything and loads nothing.
//!
//! The template is checked when Plimsoll is built, so no run of an hour ends in a template error. The page is
//! complete without its script, which only adds read-outs under the pointer and a copy button.

mod churn;
mod figures;
mod rows;
mod servers;
mod storm;
mod sweep;
mod talk;

use askama::Template;
use model::RunResult;
use model::units;

use crate::pools;
use crate::svg::load_mark;
use crate::words::{self, Outcome};
use crate::{Output, OutputError, OutputFacts, Style};

use churn::Churn;
use figures::Figures;
use rows::{CostRow, FactRow, FailureRow, LatencyRow, LimitRow, StageRow, ThresholdRow, Tile};
use storm::Storm;
use sweep::Sweep;
use talk::Talk;

/// The self-contained page.
pub struct Html;

impl Output for Html {
    fn facts(&self) -> &'static OutputFacts {
        &OutputFacts {
            id: "html",
            doc: "one page with every figure and chart, which loads nothing and can be mailed around",
            extension: "html",
        }
    }

    fn render(&self, result: &RunResult, _style: Style) -> Result<Vec<u8>, OutputError> {
        Ok(Page::of(result).render()?.into_bytes())
    }
}

/// All that the template shows: text is escaped there, drawings are escaped where they are made.
#[derive(Template)]
#[template(path = "page.html")]
struct Page {
    css: &'static str,
    script: &'static str,
    plimsoll: String,
    schema: u32,
    experiment: String,
    url: String,
    date: String,
    took: String,
    exit: u8,
    exit_meaning: &'static str,
    outcome: &'static str,
    verdict: String,
    line: String,
    counts: String,
    mark: String,
    tiles: Vec<Tile>,
    warnings: Vec<String>,
    thresholds: Vec<ThresholdRow>,
    limits: Vec<LimitRow>,
    hidden: Option<String>,
    costs: Vec<CostRow>,
    peaks: String,
    latencies: Vec<LatencyRow>,
    heartbeats: String,
    stages: Vec<StageRow>,
    bisected: bool,
    failures: Vec<FailureRow>,
    facts: Vec<FactRow>,
    workers: Vec<[String; 5]>,
    command: String,
    figures: Figures,
    storm: Option<Storm>,
    talk: Option<Talk>,
    sweep: Option<Sweep>,
    servers: Vec<servers::ServerRow>,
    churn: Option<Churn>,
}

impl Page {
    fn of(r: &RunResult) -> Self {
        let code = r.exit_code();
        let c = &r.connections;
        Self {
            css: include_str!("../templates/page.css"),
            script: include_str!("../templates/page.js"),
            plimsoll: words::clean(&r.plimsoll),
            schema: r.schema,
            experiment: words::clean(&r.experiment),
            url: words::clean(&r.target.url),
            date: words::date(&r.started_at),
            took: units::seconds(r.seconds),
            exit: code,
            exit_meaning: words::exit_meaning(code),
            outcome: match words::outcome(r) {
                Outcome::Good => "good",
                Outcome::Doubtful => "doubtful",
                Outcome::Bad => "bad",
            },
            verdict: words::verdict(r),
            line: words::line(r),
            counts: pools::of(r).map(|(_, seen)| pools::counts(seen)).unwrap_or_else(|| {
                format!(
                    "{} asked, {} opened, {} ready, {} held, {} verified, {} failed",
                    units::count(c.requested),
                    units::count(c.opened),
                    units::count(c.ready),
                    units::count(c.held),
                    units::count(c.verified),
                    units::count(c.failed_total())
                )
            }),
            mark: if r.spec.churn.is_some() { String::new() } else { load_mark::draw("load-mark", r) },
            tiles: match (&r.storm, &r.talk) {
                _ if let Some((asked, seen)) = pools::of(r) => churn::tiles(asked, seen),
                (Some(seen), _) => storm::tiles(seen),
                (None, Some(seen)) => talk::tiles(r, seen),
                (None, None) if r.sweep.is_some() => sweep::tiles(r),
                (None, None) => rows::tiles(r),
            },
            warnings: r.warnings.iter().map(|w| words::clean(w)).collect(),
            thresholds: rows::thresholds(r),
            limits: rows::limits(r),
            hidden: words::hidden(r),
            costs: rows::costs(r),
            peaks: rows::peaks(r),
            latencies: rows::latencies(r),
            heartbeats: words::heartbeats(r),
            stages: rows::stages(r),
            bisected: r.stages.iter().any(|s| !words::purpose(s.purpose).is_empty()),
            failures: rows::failures(r),
            facts: rows::facts(r),
            workers: rows::workers(r),
            command: words::command_line(&r.command),
            figures: Figures::of(r),
            storm: Storm::of(r),
            talk: Talk::of(r),
            sweep: Sweep::of(r),
            servers: servers::rows(r),
            churn: Churn::of(r),
        }
    }
}

//! What does an engineer read when the run ends? Short, dense and calm: the verdict, then the figures.

use model::result::{Finding, Stage, Status};
use model::units;
use model::{ChurnResult, ChurnSpec, Estimate, RunResult, StormResult, TalkResult};

use crate::latencies::measured;
use crate::text::{Cell, Ink, Table, wrap};
use crate::words::{self, Outcome};
use crate::{Output, OutputError, OutputFacts, Style, counts, ladder, pools, rounds, spells};

/// The widest that anything is written, whatever the terminal's width.
pub(crate) const WIDEST: usize = 100;
/// The narrowest that tables are laid out for.
pub(crate) const NARROWEST: usize = 60;

/// The summary printed at the end of a run.
pub struct Terminal;

impl Output for Terminal {
    fn facts(&self) -> &'static OutputFacts {
        &OutputFacts {
            id: "terminal",
            doc: "the summary that is printed at the end of a run",
            extension: "txt",
        }
    }

    fn render(&self, result: &RunResult, style: Style) -> Result<Vec<u8>, OutputError> {
        let width = style.width.clamp(NARROWEST, WIDEST);
        let mut page = Page { result, out: String::new(), colour: style.colour, width };
        page.verdict();
        page.thresholds();
        page.warnings();
        match &result.storm {
            _ if let Some((asked, seen)) = pools::of(result) => {
                page.churn(asked, seen);
                page.ladder();
            }
            Some(storm) => {
                page.storm(storm);
                page.ladder();
                page.failures();
            }
            None if result.sweep.is_some() => {
                page.sweep();
                page.ladder();
                page.failures();
            }
            None => {
                if let Some(talk) = &result.talk {
                    page.talk(talk);
                }
                page.cost();
                page.ladder();
                page.pace();
                page.failures();
                page.stages();
            }
        }
        Ok(page.out.into_bytes())
    }
}

/// The answer of `plimsoll doctor`: the ladder alone, as it stands before any load.
pub fn ladder_alone(result: &RunResult, style: Style) -> String {
    let width = style.width.clamp(NARROWEST, WIDEST);
    let mut page = Page { result, out: String::new(), colour: style.colour, width };
    page.ladder();
    page.out
}

struct Page<'a> {
    result: &'a RunResult,
    out: String,
    colour: bool,
    width: usize,
}

impl Page<'_> {
    fn put(&mut self, line: &str) {
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    fn heading(&mut self, name: &str, note: &str) {
        let name = Ink::Bold.on(self.colour, name);
        let note = Ink::Dim.on(self.colour, note);
        self.put("");
        self.put(&if note.is_empty() { name } else { format!("{name}  {note}") });
    }

    fn table(&mut self, table: &Table) {
        for line in table.lines(self.colour, self.width) {
            self.put(&line);
        }
    }

    fn paragraph(&mut self, indent: usize, hang: usize, ink: Ink, text: &str) {
        for (i, line) in wrap(text, self.width.saturating_sub(indent + hang)).iter().enumerate() {
            let margin = if i == 0 { indent } else { indent + hang };
            let line = format!("{:margin$}{}", "", ink.on(self.colour, line));
            self.put(&line);
        }
    }

    fn verdict(&mut self) {
        let ink = match words::outcome(self.result) {
            Outcome::Good => Ink::Green,
            Outcome::Doubtful => Ink::Yellow,
            Outcome::Bad => Ink::Red,
        };
        let r = self.result;
        for line in wrap(&words::verdict(r), self.width) {
            // Bold and coloured: two inks, one after the other.
            let line = Ink::Bold.on(self.colour, &ink.on(self.colour, &line));
            self.put(&line);
        }
        let code = r.exit_code();
        let about = format!(
            "{} {} · {} · took {} · exit {code}, {}",
            words::clean(&r.experiment),
            words::clean(&r.target.url),
            words::date(&r.started_at),
            units::seconds(r.seconds),
            words::exit_meaning(code),
        );
        self.put("");
        self.paragraph(0, 2, Ink::Dim, &about);
        if let Some((_, seen)) = pools::of(r) {
            self.paragraph(0, 2, Ink::Plain, &pools::counts(seen));
            return;
        }
        let c = &r.connections;
        let counts = format!(
            "asked {}, opened {}, ready {}, held {}, verified {}, failed {}",
            units::count(c.requested),
            units::count(c.opened),
            units::count(c.ready),
            units::count(c.held),
            units::count(c.verified),
            units::count(c.failed_total()),
        );
        self.paragraph(0, 2, Ink::Plain, &counts);
        if r.storm.is_none() && r.sweep.is_none() {
            self.paragraph(0, 2, Ink::Plain, &format!("line at {}", words::line(r)));
        }
    }

    fn thresholds(&mut self) {
        if self.result.thresholds.is_empty() {
            return;
        }
        self.heading("THRESHOLDS", "--fail-if");
        let mut table = Table::new(&["<", "<", "<"]);
        for t in &self.result.thresholds {
            let (word, ink) = match (t.held, t.value) {
                (true, _) => ("FAILS", Ink::Red),
                (false, Some(_)) => ("passes", Ink::Green),
                (false, None) => ("unknown", Ink::Dim),
            };
            let value = t.value.map_or_else(
                || "not measured in this run".to_owned(),
                |v| format!("was {}", words::figure(v)),
            );
            table.row(vec![Cell(word.to_owned(), ink), words::clean(&t.expression).into(), value.into()]);
        }
        self.table(&table);
    }

    fn warnings(&mut self) {
        if self.result.warnings.is_empty() {
            return;
        }
        self.heading("WARNINGS", "");
        for warning in &self.result.warnings {
            self.paragraph(2, 2, Ink::Yellow, &format!("! {}", words::clean(warning)));
        }
    }

    fn cost(&mut self) {
        let r = self.result;
        self.heading("COST", "of one held connection; CPU held: while all were only held, 100% is one CPU");
        let mut table =
            Table::new(&["<", "memory", "<95% interval", "descriptors", "threads", "CPU each", "CPU held"]);
        // A narrow screen goes without two of the columns: they stand in every other output.
        let roomy = |text: String| Cell::from(if self.width >= 92 { text } else { String::new() });
        for (name, cost) in [("target", &r.cost.target), ("generator", &r.cost.generator)] {
            let memory = cost.user_bytes_per_connection;
            table.row(vec![
                name.into(),
                unknown_or(memory, words::bytes_each(memory)),
                Cell(words::bytes_interval(memory), Ink::Dim),
                words::number_each(cost.descriptors_per_connection).into(),
                roomy(words::number_each(cost.threads_per_connection)),
                roomy(words::cpu_each(cost.cpu_seconds_per_second.per_connection)),
                words::cpu_percent_or_unknown(cost.cpu_seconds_per_second.idle_stage).into(),
            ]);
        }
        let (name, kernel) = words::kernel(r);
        table.row(vec![
            name.into(),
            unknown_or(kernel, words::bytes_each(kernel)),
            Cell(words::bytes_interval(kernel), Ink::Dim),
        ]);
        self.table(&table);
        if let Some(how) = words::hidden(r) {
            self.paragraph(2, 2, Ink::Yellow, &format!("target's side unknown: {how}"));
        }
    }

    fn storm(&mut self, storm: &StormResult) {
        self.heading("STORM", rounds::CAME_NOTE);
        self.rounds(storm, &rounds::CAME);
        self.paragraph(2, 2, Ink::Plain, &rounds::issued(storm));
        self.heading("QUEUE", rounds::QUEUED_NOTE);
        self.rounds(storm, &rounds::QUEUED);
    }

    fn rounds(&mut self, storm: &StormResult, columns: &[usize]) {
        let heads: Vec<&str> = columns.iter().map(|&c| rounds::HEADS[c]).collect();
        let mut table = Table::new(&heads);
        for round in &storm.rounds {
            let cells = rounds::cells(round);
            let cell = |&c: &usize| match (rounds::HEADS[c], cells[c].as_str()) {
                // A narrow screen goes without these: they stand in every other output.
                ("first" | "99%" | "verify p99", _) if self.width < 92 => Cell::from(""),
                ("late" | "refused" | "overflows" | "failed", text)
                    if text != "0" && text != words::UNKNOWN =>
                {
                    Cell(text.to_owned(), Ink::Red)
                }
                (_, text) => text.into(),
            };
            table.row(columns.iter().map(cell).collect());
        }
        self.table(&table);
    }

    fn talk(&mut self, talk: &TalkResult) {
        self.heading("TALK", spells::SAID_NOTE);
        let mut table = Table::new(&spells::SAID_HEADS);
        let cell = |(head, text): (&str, String)| match head {
            "succeeded" if talk.succeeded < self.result.connections.requested => Cell(text, Ink::Red),
            "late" if talk.late > 0 => Cell(text, Ink::Yellow),
            _ => text.into(),
        };
        table.row(spells::SAID_HEADS.into_iter().zip(spells::said(talk)).map(cell).collect());
        self.table(&table);
        self.heading("BOTH SIDES", spells::SPELL_NOTE);
        // A narrow screen goes without the generator's memory: it stands in every other output.
        let most = if self.width >= 92 { 7 } else { 6 };
        let mut table = Table::new(&spells::SPELL_HEADS[..most]);
        for spell in &talk.spells {
            table.row(spells::cells(spell).into_iter().take(most).map(Cell::from).collect());
        }
        self.table(&table);
    }

    fn sweep(&mut self) {
        let several = !self.result.beside.is_empty();
        for (index, way) in counts::ways(self.result).enumerate() {
            let Some(reading) = counts::reading(way) else { continue };
            let name = if several { format!("SWEEP {}", counts::label(way)) } else { "SWEEP".to_owned() };
            self.heading(&name, if index == 0 { counts::NOTE } else { "" });
            // A narrow screen goes without these: they stand in every other output.
            let left_out: &[usize] = if self.width >= 92 { &[4, 7, 9] } else { &[2, 4, 7, 8, 9] };
            let columns: Vec<usize> = (0..counts::HEADS.len()).filter(|c| !left_out.contains(c)).collect();
            let heads: Vec<&str> = columns.iter().map(|&c| counts::HEADS[c]).collect();
            let mut table = Table::new(&heads);
            for count in &reading.counts {
                let cells = counts::cells(count, reading);
                let cell = |&c: &usize| match counts::HEADS[c] {
                    "throughput" => Cell(cells[c].clone(), Ink::Bold),
                    "<95% interval" => Cell(cells[c].clone(), Ink::Dim),
                    "<" if !count.good => Cell(cells[c].clone(), Ink::Red),
                    _ => cells[c].as_str().into(),
                };
                table.row(columns.iter().map(cell).collect());
            }
            self.table(&table);
            let mut said = Table::new(&["<", "<"]);
            for (name, text) in counts::sayings(way) {
                said.row(vec![Cell(name.to_owned(), Ink::Dim), text.into()]);
            }
            self.put("");
            self.table(&said);
            if let Some(index) = index.checked_sub(1) {
                self.beside(index, &counts::label(way));
            }
        }
    }

    fn beside(&mut self, index: usize, name: &str) {
        let rows = counts::beside(self.result, index);
        if rows.is_empty() {
            return;
        }
        let first = counts::label(self.result);
        self.heading(&format!("{} BESIDE {}", name.to_uppercase(), first.to_uppercase()), "95% intervals");
        let mut table = Table::new(&counts::BESIDE_HEADS);
        for row in rows {
            table.row(row.into_iter().map(Cell::from).collect());
        }
        self.table(&table);
    }

    fn churn(&mut self, asked: &ChurnSpec, seen: &ChurnResult) {
        self.heading("CHURN", "");
        self.paragraph(2, 2, Ink::Dim, &pools::note(asked));
        // A narrow screen goes without some, and everyone without those that say the same of each cell.
        let rows: Vec<_> = seen.cells.iter().map(pools::cells).collect();
        let said = |c: &usize| {
            *c == 0 || !rows.iter().all(|row| matches!(row[*c].as_str(), "library's" | "as it is"))
        };
        let columns: Vec<usize> =
            (0..pools::HEADS.len()).filter(|c| !pools::SPARE.contains(c)).filter(said).collect();
        let heads: Vec<&str> = columns.iter().map(|&c| pools::HEADS[c]).collect();
        let mut table = Table::new(&heads);
        for row in &rows {
            let cell = |&c: &usize| match (pools::HEADS[c], row[c].as_str()) {
                ("lost", text) if text != "0" => Cell(text.to_owned(), Ink::Red),
                ("<objective", pools::TOO_SLOW) => Cell(row[c].clone(), Ink::Red),
                ("<objective", text) => Cell(text.to_owned(), Ink::Green),
                (_, text) => text.into(),
            };
            table.row(columns.iter().map(cell).collect());
        }
        self.table(&table);
        for remark in pools::remarks(seen) {
            self.paragraph(2, 2, Ink::Dim, &remark);
        }
        if !seen.advice.is_empty() {
            self.heading("ADVICE", "");
        }
        for (says, because) in pools::advice(seen) {
            self.paragraph(2, 2, Ink::Bold, &says);
            for line in because {
                self.paragraph(4, 2, Ink::Dim, &format!("- {line}"));
            }
        }
        self.heading("PRICE", pools::PRICE_NOTE);
        let mut table = Table::new(&pools::PRICE_HEADS);
        for price in &seen.prices {
            table.row(pools::price(price).into_iter().map(Cell::from).collect());
        }
        self.table(&table);
    }

    fn ladder(&mut self) {
        let limits = ladder::in_order(&self.result.limits);
        if limits.is_empty() {
            return;
        }
        self.heading("LADDER", "what breaks first, and at how many connections");
        let id = limits.iter().map(|f| f.id.chars().count()).max().unwrap_or(0);
        let ceiling = limits.iter().map(|f| ladder::ceiling(f).len()).max().unwrap_or(0);
        for finding in limits {
            self.finding(finding, id, ceiling);
        }
    }

    fn finding(&mut self, finding: &Finding, id: usize, ceiling: usize) {
        let ink = match finding.status {
            Status::Hit => Ink::Red,
            Status::Near => Ink::Yellow,
            Status::Clear => Ink::Green,
            Status::Unknown => Ink::Dim,
        };
        let word = format!("{:<7}", ladder::word(finding.status));
        let start =
            format!("  {word}  {:<id$}  {:>ceiling$}", words::clean(&finding.id), ladder::ceiling(finding));
        let mut summary = words::clean(&finding.summary);
        if let Some(interval) = ladder::ceiling_interval(finding) {
            summary = format!("{summary} (ceiling {interval})");
        }
        let margin = start.chars().count() + 2;
        let start = start.replacen(&word, &ink.on(self.colour, &word), 1);
        if self.width.saturating_sub(margin) >= 34 {
            for (i, line) in wrap(&summary, self.width - margin).iter().enumerate() {
                let line = if i == 0 { format!("{start}  {line}") } else { format!("{:margin$}{line}", "") };
                self.put(&line);
            }
        } else {
            self.put(&start);
            self.paragraph(11, 0, Ink::Plain, &summary);
        }
        if ladder::is_pressing(finding.status) {
            for line in &finding.evidence {
                self.paragraph(11, 2, Ink::Dim, &format!("- {}", words::clean(line)));
            }
            if !finding.remedy.is_empty() {
                let line = format!("{:11}{}", "", Ink::Dim.on(self.colour, "lift it:"));
                self.put(&line);
            }
            // A remedy is never wrapped: it is there to be pasted.
            for line in &finding.remedy {
                let line = words::clean(line);
                let ink = if line.starts_with('#') { Ink::Dim } else { Ink::Bold };
                let line = format!("{:11}{}", "", ink.on(self.colour, &line));
                self.put(&line);
            }
        }
    }

    fn pace(&mut self) {
        let r = self.result;
        self.heading("PACE", "");
        let e = &r.establish;
        if e.seconds > 0.0 {
            let line = format!(
                "established {} in {}, {}",
                units::count(r.connections.ready),
                units::seconds(e.seconds),
                words::per_second(e.rate_per_second)
            );
            self.paragraph(2, 2, Ink::Plain, &line);
        } else {
            self.paragraph(2, 2, Ink::Plain, "established: unknown, no stage was finished");
        }
        let v = &r.verify;
        let line = if v.seconds > 0.0 {
            format!(
                "verified {} of {} in {}, {}",
                units::count(r.connections.verified),
                units::count(r.connections.held),
                units::seconds(v.seconds),
                words::per_second(v.rate_per_second)
            )
        } else {
            "verified: no pass was finished at the end".to_owned()
        };
        self.paragraph(2, 2, Ink::Plain, &line);
        let h = &r.heartbeat;
        self.paragraph(2, 2, if h.missed > 0 { Ink::Yellow } else { Ink::Plain }, &words::heartbeats(r));
        let rows = measured(r);
        if rows.is_empty() {
            return;
        }
        let mut table = Table::new(&["<latency", "count", "p50", "p90", "p99", "p99.9", "max"]);
        for row in rows {
            let l = row.latency;
            let mut cells = vec![row.name.into(), units::count(l.count).into()];
            cells.extend(
                [l.p50_ms, l.p90_ms, l.p99_ms, l.p999_ms, l.max_ms].map(|x| units::milliseconds(x).into()),
            );
            table.row(cells);
        }
        self.table(&table);
    }

    fn failures(&mut self) {
        let c = &self.result.connections;
        if c.failed.is_empty() {
            return;
        }
        self.heading("FAILED", "connections, by kind; the words are the first that came with it");
        let mut table = Table::new(&["count", "<kind", "<side", "<"]);
        for (kind, n) in words::failures(&c.failed) {
            let text = match c.failed_example.get(&kind) {
                Some(example) => format!("{}: \"{}\"", kind.says(), words::clean(example)),
                None => kind.says().to_owned(),
            };
            let n = Cell(units::count(n), Ink::Red);
            table.row(vec![n, kind.id().into(), words::origin(kind).into(), text.into()]);
        }
        self.table(&table);
    }

    fn stages(&mut self) {
        let stages = &self.result.stages;
        if stages.is_empty() {
            self.heading("STAGES", "none was finished");
            return;
        }
        self.heading("STAGES", "");
        let mut table =
            Table::new(&["connections", "<", "ready", "verified", "failed", "establish", "verify p99", "<"]);
        for stage in stages {
            let failed: u64 = stage.failed.values().sum();
            let p99 = |l: Option<model::Latency>| {
                l.map_or_else(|| words::UNKNOWN.to_owned(), |l| units::milliseconds(l.p99_ms))
            };
            table.row(vec![
                units::count(stage.connections).into(),
                words::purpose(stage.purpose).into(),
                units::count(stage.ready).into(),
                units::count(stage.verified).into(),
                if failed > 0 { Cell(units::count(failed), Ink::Red) } else { "0".into() },
                units::seconds(stage.seconds).into(),
                p99(stage.latency).into(),
                note(stage),
            ]);
        }
        self.table(&table);
    }
}

/// How a stage ended, in its ink.
fn note(stage: &Stage) -> Cell {
    let ink = match (stage.valid, stage.passed) {
        (false, _) => Ink::Yellow,
        (true, false) => Ink::Red,
        (true, true) => Ink::Plain,
    };
    Cell(words::stage_end(stage), ink)
}

fn unknown_or(estimate: Option<Estimate>, text: String) -> Cell {
    Cell(text, if estimate.is_some() { Ink::Bold } else { Ink::Dim })
}

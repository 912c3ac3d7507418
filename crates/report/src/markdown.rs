//! What is shown beside a pull request? The verdict and the figures as Markdown, the rest folded away.

use std::fmt::Write as _;

use model::result::{Cost, Status};
use model::units;
use model::{ChurnResult, ChurnSpec, RunResult, StormResult, TalkResult};

use crate::latencies::measured;
use crate::words::{self, Outcome};
use crate::{Output, OutputError, OutputFacts, Style, counts, ladder, pools, rounds, spells};

/// A summary for CI jobs and pull requests.
pub struct Markdown;

impl Output for Markdown {
    fn facts(&self) -> &'static OutputFacts {
        &OutputFacts {
            id: "markdown",
            doc: "a summary for CI jobs and pull requests (`$GITHUB_STEP_SUMMARY`)",
            extension: "md",
        }
    }

    fn render(&self, result: &RunResult, _style: Style) -> Result<Vec<u8>, OutputError> {
        let mut out = String::new();
        head(&mut out, result);
        match &result.storm {
            _ if let Some((asked, seen)) = pools::of(result) => churn(&mut out, asked, seen),
            Some(seen) => storm(&mut out, seen),
            None if result.sweep.is_some() => sweep(&mut out, result),
            None => {
                if let Some(seen) = &result.talk {
                    talk(&mut out, seen);
                }
                cost(&mut out, result);
            }
        }
        limits(&mut out, result);
        details(&mut out, result);
        Ok(out.into_bytes())
    }
}

/// Text from outside: neither markup, nor a table's bar, nor a mention, nor a link of its own making.
fn text(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for c in words::clean(words).chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            // A mention would call somebody.
            '@' => out.push_str("&#64;"),
            '\\' | '`' | '*' | '_' | '|' | '[' | ']' | '#' | '~' | '!' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Text from outside as code in one line; a backtick, which would end it, becomes an apostrophe.
fn code(words: &str) -> String {
    format!("`{}`", words::clean(words).replace('`', "'").replace('|', "\\|"))
}

/// Lines as a block of code that no line in it can end.
fn block<'a>(out: &mut String, lines: impl Iterator<Item = &'a str> + Clone) {
    let run = |line: &str| line.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(lines.clone().map(run).max().unwrap_or(0).max(2) + 1);
    let _ = writeln!(out, "{fence}sh");
    for line in lines {
        let _ = writeln!(out, "{}", words::clean(line));
    }
    let _ = writeln!(out, "{fence}\n");
}

fn row(out: &mut String, cells: &[String]) {
    let _ = writeln!(out, "| {} |", cells.join(" | "));
}

/// The heads of a table; those that start with `<` are aligned to the left, all others to the right.
fn heads(out: &mut String, names: &[&str]) {
    let cells: Vec<String> = names.iter().map(|n| n.trim_start_matches('<').to_owned()).collect();
    row(out, &cells);
    let rules: Vec<String> =
        names.iter().map(|n| if n.starts_with('<') { ":--" } else { "--:" }.to_owned()).collect();
    row(out, &rules);
}

fn head(out: &mut String, r: &RunResult) {
    let mark = match words::outcome(r) {
        Outcome::Good => "✅",
        Outcome::Doubtful => "⚠️",
        Outcome::Bad => "❌",
    };
    let code_number = r.exit_code();
    let _ = writeln!(out, "### {mark} {}\n", text(&words::verdict(r)));
    let _ = writeln!(
        out,
        "{} {} · {} · took {} · exit {code_number}, {}\n",
        text(&r.experiment),
        code(&r.target.url),
        text(&words::date(&r.started_at)),
        units::seconds(r.seconds),
        words::exit_meaning(code_number)
    );
    if let Some(how) = words::hidden(r) {
        let _ = writeln!(out, "> **The target's side is unknown:** {}\n", text(&how));
    }
    for warning in &r.warnings {
        let _ = writeln!(out, "> **Warning:** {}\n", text(warning));
    }
    if let Some((_, seen)) = pools::of(r) {
        let _ = writeln!(out, "{}.\n", pools::counts(seen));
    } else {
        connections(out, r);
    }
    thresholds(out, r);
}

fn connections(out: &mut String, r: &RunResult) {
    let c = &r.connections;
    heads(out, &["asked", "held", "verified", "failed", "line", "established", "verify p99"]);
    let rate = r.establish.rate_per_second;
    row(
        out,
        &[
            units::count(c.requested),
            format!("**{}**", units::count(c.held)),
            format!("**{}**", units::count(c.verified)),
            units::count(c.failed_total()),
            units::count(r.line.connections),
            if rate > 0.0 { words::per_second(rate) } else { words::UNKNOWN.to_owned() },
            r.verify.latency.map_or_else(|| words::UNKNOWN.to_owned(), |l| units::milliseconds(l.p99_ms)),
        ],
    );
    out.push('\n');
}

fn thresholds(out: &mut String, r: &RunResult) {
    if !r.thresholds.is_empty() {
        heads(out, &["<threshold", "was", "<"]);
        for t in &r.thresholds {
            let value = t.value.map_or_else(|| "not measured".to_owned(), words::figure);
            let word = match (t.held, t.value) {
                (true, _) => "**fails**",
                (false, Some(_)) => "passes",
                (false, None) => "unknown",
            };
            row(out, &[code(&t.expression), value, word.to_owned()]);
        }
        out.push('\n');
    }
}

fn storm(out: &mut String, seen: &StormResult) {
    heads(out, &rounds::HEADS);
    for round in &seen.rounds {
        row(out, &rounds::cells(round));
    }
    let (came, queued) = (rounds::CAME_NOTE, rounds::QUEUED_NOTE);
    let _ = writeln!(out, "\nTimes are {came}. Counters are {queued}. {}.\n", rounds::issued(seen));
}

fn sweep(out: &mut String, r: &RunResult) {
    for (index, way) in counts::ways(r).enumerate() {
        let Some(reading) = counts::reading(way) else { continue };
        if !r.beside.is_empty() {
            let _ = writeln!(out, "**{}** {}\n", text(&counts::label(way)), code(&way.target.url));
        }
        heads(out, &counts::HEADS);
        for count in &reading.counts {
            row(out, &counts::cells(count, reading).map(|cell| text(&cell)));
        }
        out.push('\n');
        for (name, said) in counts::sayings(way) {
            let _ = writeln!(out, "- **{name}:** {}", text(&said));
        }
        out.push('\n');
        let beside = index.checked_sub(1).map(|index| counts::beside(r, index)).unwrap_or_default();
        if !beside.is_empty() {
            heads(out, &counts::BESIDE_HEADS);
            beside.into_iter().for_each(|cells| row(out, &cells.map(|cell| text(&cell))));
            out.push('\n');
        }
    }
}

fn talk(out: &mut String, seen: &TalkResult) {
    heads(out, &spells::SAID_HEADS);
    row(out, &spells::said(seen));
    let _ = writeln!(out, "\n{}.\n", spells::SAID_NOTE);
    heads(out, &spells::SPELL_HEADS);
    for spell in &seen.spells {
        row(out, &spells::cells(spell));
    }
    let _ = writeln!(out, "\n{}.\n", spells::SPELL_NOTE);
}

fn churn(out: &mut String, asked: &ChurnSpec, seen: &ChurnResult) {
    heads(out, &pools::HEADS);
    for cell in &seen.cells {
        row(out, &pools::cells(cell));
    }
    let _ = writeln!(out, "\n{}.\n", pools::note(asked));
    for (says, because) in pools::advice(seen) {
        let _ = writeln!(out, "**{}**\n", text(&says));
        for line in because {
            let _ = writeln!(out, "- {}", text(&line));
        }
        out.push('\n');
    }
    heads(out, &pools::PRICE_HEADS);
    for price in &seen.prices {
        row(out, &pools::price(price));
    }
    let _ = writeln!(out, "\n{}.\n", pools::PRICE_NOTE);
    for remark in pools::remarks(seen) {
        let _ = writeln!(out, "- {}", text(&remark));
    }
    out.push('\n');
}

fn cost(out: &mut String, r: &RunResult) {
    heads(
        out,
        &["<one held connection costs", "memory", "<95% interval", "descriptors", "threads", "CPU held"],
    );
    let side = |name: &str, cost: &Cost| {
        [
            name.to_owned(),
            format!("**{}**", words::bytes_each(cost.user_bytes_per_connection)),
            words::bytes_interval(cost.user_bytes_per_connection),
            words::number_each(cost.descriptors_per_connection),
            words::number_each(cost.threads_per_connection),
            words::cpu_percent_or_unknown(cost.cpu_seconds_per_second.idle_stage),
        ]
    };
    row(out, &side("target", &r.cost.target));
    row(out, &side("generator", &r.cost.generator));
    let (name, kernel) = words::kernel(r);
    let figure = format!("**{}**", words::bytes_each(kernel));
    row(
        out,
        &[
            name.to_owned(),
            figure,
            words::bytes_interval(kernel),
            String::new(),
            String::new(),
            String::new(),
        ],
    );
    out.push('\n');
}

fn limits(out: &mut String, r: &RunResult) {
    let limits = ladder::in_order(&r.limits);
    if limits.is_empty() {
        return;
    }
    heads(out, &["<what breaks first", "ceiling", "<limit", "<"]);
    for f in &limits {
        let status = match f.status {
            Status::Hit => "🔴 **hit**",
            Status::Near => "🟡 near",
            Status::Clear => "🟢 clear",
            Status::Unknown => "⚪ unknown",
        };
        row(out, &[status.to_owned(), ladder::ceiling(f), code(&f.id), text(&f.summary)]);
    }
    out.push('\n');
    for f in limits.iter().filter(|f| ladder::is_pressing(f.status) && !f.remedy.is_empty()) {
        let _ = writeln!(out, "What lifts {}:\n", code(&f.id));
        block(out, f.remedy.iter().map(String::as_str));
    }
}

fn details(out: &mut String, r: &RunResult) {
    let failed = words::failures(&r.connections.failed);
    if !failed.is_empty() {
        fold(out, &format!("Failures: {}", units::count(r.connections.failed_total())));
        heads(out, &["connections", "<kind", "<side", "<what happened", "<first words"]);
        for (kind, n) in failed {
            let example = r.connections.failed_example.get(&kind).map(|e| text(e)).unwrap_or_default();
            let says = text(kind.says());
            row(out, &[units::count(n), kind.id().to_owned(), words::origin(kind).to_owned(), says, example]);
        }
        out.push_str("\n</details>\n\n");
    }
    if !r.stages.is_empty() {
        fold(out, &format!("Stages: {}", r.stages.len()));
        heads(out, &["connections", "<", "ready", "verified", "failed", "establish", "verify p99", "<ended"]);
        for s in &r.stages {
            row(
                out,
                &[
                    units::count(s.connections),
                    words::purpose(s.purpose).to_owned(),
                    units::count(s.ready),
                    units::count(s.verified),
                    units::count(s.failed.values().sum()),
                    units::seconds(s.seconds),
                    s.latency.map_or_else(|| words::UNKNOWN.to_owned(), |l| units::milliseconds(l.p99_ms)),
                    text(&words::stage_end(s)),
                ],
            );
        }
        out.push_str("\n</details>\n\n");
    }
    let rows = measured(r);
    if !rows.is_empty() {
        fold(out, "Latencies");
        let _ = writeln!(out, "{}\n", words::heartbeats(r));
        heads(out, &["<latency", "count", "p50", "p90", "p99", "p99.9", "max"]);
        for m in rows {
            let l = m.latency;
            let mut cells = vec![text(&m.name), units::count(l.count)];
            cells.extend([l.p50_ms, l.p90_ms, l.p99_ms, l.p999_ms, l.max_ms].map(units::milliseconds));
            row(out, &cells);
        }
        out.push_str("\n</details>\n\n");
    }
    fold(out, "Where it ran, and how to run it again");
    let _ = writeln!(out, "{}: {}\n", text(&r.host.name), text(&words::host(&r.host)));
    if let Some(host) = &r.target.host {
        let _ = writeln!(out, "Target's host {}: {}\n", text(&host.name), text(&words::host(host)));
    }
    block(out, [words::command_line(&r.command)].iter().map(String::as_str));
    let _ = writeln!(out, "plimsoll {}, result schema {}\n\n</details>", text(&r.plimsoll), r.schema);
}

fn fold(out: &mut String, summary: &str) {
    let _ = writeln!(out, "<details><summary>{summary}</summary>\n");
}

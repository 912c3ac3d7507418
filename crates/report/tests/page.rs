//! The page: whole, self-contained, and safe with whatever a server says.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod fixtures;

use model::units;
use model::{FailureKind, RunResult};
use report::{Output, Style};

fn page(run: &RunResult) -> String {
    String::from_utf8(report::html::Html.render(run, Style::default()).unwrap()).unwrap()
}

/// The page without its style and script, which are ours and constant.
fn body(page: &str) -> String {
    let (head, rest) = page.split_once("<style>").unwrap();
    let (_, rest) = rest.split_once("</style>").unwrap();
    let (rest, tail) = rest.rsplit_once("<script>").unwrap();
    let (_, tail) = tail.rsplit_once("</script>").unwrap();
    format!("{head}{rest}{tail}")
}

/// Every tag is closed by its own, in order; every attribute is quoted and every bracket is a tag's.
fn assert_well_formed(name: &str, page: &str) {
    const VOID: [&str; 3] = ["meta", "link", "br"];
    let mut open: Vec<String> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some((between, after)) = rest.split_once('<') {
        assert!(!between.contains('>'), "{name}: a stray > in {between:?}");
        let (tag, after) = after.split_once('>').unwrap();
        assert!(!tag.contains('<'), "{name}: {tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{name}: quotes in <{tag}>");
        let word = tag.trim_start_matches('/').split([' ', '/']).next().unwrap().to_owned();
        if tag.starts_with('/') {
            assert_eq!(open.pop().as_deref(), Some(word.as_str()), "{name}: </{word}>");
        } else if !tag.ends_with('/') && !VOID.contains(&word.as_str()) {
            open.push(word);
        }
        rest = after;
    }
    assert!(open.is_empty(), "{name}: not closed: {open:?}");
}

#[test]
fn is_well_formed_and_loads_nothing() {
    for (name, run) in fixtures::all() {
        let page = page(&run);
        assert_well_formed(name, &body(&page));
        for loads in
            ["src=", "@import", "url(", "<img", "<iframe", "<object", "<base", "href=\"http", "fetch("]
        {
            assert!(!page.contains(loads), "{name}: {loads}");
        }
        // The target's own URL may be read there; nothing else may look like one.
        let rest = page.replace(&run.target.url, "");
        assert!(!rest.contains("http://") && !rest.contains("https://"), "{name}");
        assert!(page.contains("default-src 'none'"));
        assert_eq!(page.matches("href=").count(), 1, "only the empty icon");
    }
}

#[test]
fn holds_no_figure_that_is_none() {
    for (name, run) in fixtures::all() {
        let body = body(&page(&run));
        for word in ["NaN", "inf<", "inf\"", "inf ", "None", "Some("] {
            assert!(!body.contains(word), "{name}: {word}");
        }
    }
}

#[test]
fn shows_every_stage_limit_remedy_failure_warning_and_drawing() {
    for (name, run) in fixtures::all() {
        let page = page(&run);
        for stage in &run.stages {
            assert!(
                page.contains(&format!("class=\"n\">{}</th>", units::count(stage.connections))),
                "{name}"
            );
        }
        for limit in &run.limits {
            assert!(page.contains(&format!("<b>{}</b>", limit.id)), "{name}: {}", limit.id);
            for line in limit.remedy.iter().filter(|l| !l.contains(['\'', '"', '&', '<'])) {
                assert!(page.contains(line.as_str()), "{name}: {line}");
            }
        }
        for round in run.storm.iter().flat_map(|storm| &storm.rounds) {
            let row = format!("<th scope=\"row\">{}</th>", round.kind.says());
            assert!(page.contains(&row), "{name}: {row}");
        }
        for kind in run.connections.failed.keys() {
            assert!(page.contains(kind.says().split('\'').next().unwrap()), "{name}: {kind}");
        }
        for warning in &run.warnings {
            assert!(page.contains(warning.split('\'').next().unwrap()), "{name}: {warning}");
        }
        // Each drawing has a name and a description for those who cannot see it, by ids that are unique.
        let drawings = page.matches("<svg role=\"img\"").count();
        assert_eq!(page.matches("<desc id=").count(), drawings, "{name}");
        let ids: Vec<&str> =
            page.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
        let unique: std::collections::BTreeSet<_> = ids.iter().collect();
        assert_eq!(unique.len(), ids.len(), "{name}: {ids:?}");
        let expected = match name {
            "healthy" => 9,
            "broke" => 10,
            "killed" => 9,
            // The load mark, and two for each round.
            "storm" => 7,
            // The ladder, and throughput and latency against clients.
            "sweep" => 3,
            _ => 1,
        };
        assert_eq!(drawings, expected, "{name}");
    }
}

/// A run in which every text that comes from outside tries to break out of where it stands.
fn hostile() -> RunResult {
    const EVIL: &str = "\"'><script>alert(1)</script>\n| `\u{1b}[2J\u{202e}@octocat [x](javascript:1)";
    let mut run = fixtures::killed_while_held();
    let evil = || EVIL.to_owned();
    run.target.url = evil();
    run.verdict.sentence = evil();
    run.experiment = evil();
    run.started_at = evil();
    run.plimsoll = evil();
    run.command = vec![evil()];
    run.host.name = evil();
    run.host.kernel = evil();
    run.line.reason = evil();
    run.warnings = vec![evil()];
    run.thresholds[0].expression = evil();
    run.settings.target_hidden = Some(evil());
    run.target.processes[0].name = evil();
    run.target.processes[0].role = evil();
    run.target.addresses = vec![evil()];
    run.workers[0].host = evil();
    run.workers[0].sources = vec![evil()];
    run.workers[1].died = Some(evil());
    run.stages[0].why_invalid = Some(evil());
    run.stages[0].valid = false;
    run.connections.failed_example.insert(FailureKind::Reset, evil());
    let phase = run.establish.phases["tcp"];
    run.establish.phases.insert(evil(), phase);
    for limit in &mut run.limits {
        limit.id = evil();
        limit.summary = evil();
        limit.evidence = vec![evil()];
        limit.remedy = vec![evil()];
    }
    run
}

#[test]
fn what_a_server_says_stays_text() {
    let page = page(&hostile());
    let body = body(&page);
    assert_well_formed("hostile", &body);
    assert!(!body.contains("<script"), "escaped everywhere");
    assert!(!page.contains('\u{1b}') && !page.contains('\u{202e}'));
    assert_eq!(page.matches("<script>").count(), 1);
}

#[test]
fn what_a_server_says_cannot_move_the_cursor_or_break_a_table() {
    let run = hostile();
    let text = report::terminal::Terminal.render(&run, Style::default()).unwrap();
    let text = String::from_utf8(text).unwrap();
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()) && !text.contains('\u{202e}'));
    let text = report::markdown::Markdown.render(&run, Style::default()).unwrap();
    let text = String::from_utf8(text).unwrap();
    let mut fenced = false;
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if !fenced {
            // In code, brackets are text; outside, they are written as entities.
            let line = line.replace("\\`", "");
            let outside: String = line.split('`').step_by(2).collect();
            assert!(!outside.contains("<script") && !outside.contains("@octocat"), "{line}");
        }
    }
    assert!(!fenced);
}

#[test]
fn a_long_run_is_still_a_small_page() {
    let mut run = fixtures::healthy();
    let one = run.series.clone();
    for lap in 1..60u32 {
        run.series.extend(one.iter().cloned().map(|mut m| {
            m.t_seconds += 75.0 * f64::from(lap);
            m
        }));
    }
    assert!(run.series.len() > 15_000);
    assert!(page(&run).len() < 250_000, "{}", page(&run).len());
}

//! Every output of every fixture, as it is read.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod fixtures;

use report::{OUTPUTS, Output, Style};

fn text(output: &dyn Output, run: &model::RunResult) -> String {
    String::from_utf8(output.render(run, Style::default()).unwrap()).unwrap()
}

#[test]
fn terminal() {
    for (name, run) in fixtures::all() {
        let text = text(&report::terminal::Terminal, &run);
        insta::assert_snapshot!(format!("terminal-{name}"), text);
        // A remedy is there to be pasted, so it alone may be wider.
        let pasted =
            |line: &str| run.limits.iter().flat_map(|f| &f.remedy).any(|r| line.ends_with(r.as_str()));
        for line in text.lines().filter(|line| !pasted(line)) {
            assert!(line.chars().count() <= 100, "{name}: {line}");
            assert_eq!(line, line.trim_end(), "{name}: spaces at the end");
        }
    }
}

#[test]
fn terminal_on_a_narrow_screen() {
    let style = Style { colour: false, width: 72 };
    let text = report::terminal::Terminal.render(&fixtures::broke_at_descriptors(), style).unwrap();
    insta::assert_snapshot!("terminal-narrow", String::from_utf8(text).unwrap());
}

#[test]
fn colour_changes_nothing_but_colour() {
    for (name, run) in fixtures::all() {
        let coloured = report::terminal::Terminal.render(&run, Style { colour: true, width: 100 }).unwrap();
        let coloured = String::from_utf8(coloured).unwrap();
        let mut plain = String::new();
        let mut rest = coloured.as_str();
        while let Some((before, after)) = rest.split_once('\u{1b}') {
            plain.push_str(before);
            rest = after.split_once('m').unwrap().1;
        }
        plain.push_str(rest);
        assert!(coloured.contains('\u{1b}'));
        assert_eq!(plain, text(&report::terminal::Terminal, &run), "{name}");
    }
}

#[test]
fn markdown() {
    for (name, run) in fixtures::all() {
        insta::assert_snapshot!(format!("markdown-{name}"), text(&report::markdown::Markdown, &run));
    }
}

#[test]
fn every_output_has_its_own_name_and_extension() {
    for (i, one) in OUTPUTS.iter().enumerate() {
        let facts = one.facts();
        assert!(!facts.doc.is_empty() && facts.doc.len() < 100);
        assert_eq!(report::output(facts.id).unwrap().facts(), facts);
        for other in &OUTPUTS[..i] {
            assert_ne!(other.facts().id, facts.id);
            assert_ne!(other.facts().extension, facts.extension);
        }
    }
    assert!(report::output("powerpoint").is_none());
}

#[test]
fn every_limit_and_the_verdict_stand_in_every_output_for_people() {
    for (name, run) in fixtures::all() {
        for output in OUTPUTS.iter().filter(|o| o.facts().id != "json") {
            let text = text(*output, &run);
            for limit in &run.limits {
                assert!(text.contains(&limit.id), "{name}: {} is not in {}", limit.id, output.facts().id);
            }
            assert!(text.contains(run.verdict.sentence.split(' ').next().unwrap()));
        }
    }
}

/// Writes every output of every fixture into the directory that `REPORT_DRAW` names, to be looked at.
#[test]
fn drawn_to_be_looked_at() {
    let Ok(dir) = std::env::var("REPORT_DRAW") else { return };
    for (name, run) in fixtures::all() {
        for output in OUTPUTS {
            let path = format!("{dir}/{name}.{}", output.facts().extension);
            std::fs::write(path, output.render(&run, Style { colour: true, width: 100 }).unwrap()).unwrap();
        }
    }
}

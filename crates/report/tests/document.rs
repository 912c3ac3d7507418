//! The document: written, checked against its schema, read again, and refused with words where it is not one.

#![allow(clippy::unwrap_used, reason = "a test ends where something is not as it should be")]

mod fixtures;

use report::{Output, ReadError, Style, read};

fn json(run: &model::RunResult) -> Vec<u8> {
    report::json::Json.render(run, Style::default()).unwrap()
}

fn schema_file() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/result.schema.json")
}

#[test]
fn the_schema_in_docs_is_the_one_of_the_types() {
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::create_dir_all(schema_file().parent().unwrap()).unwrap();
        std::fs::write(schema_file(), report::schema()).unwrap();
    }
    let stored = std::fs::read_to_string(schema_file()).unwrap_or_default();
    assert!(
        stored == report::schema(),
        "docs/result.schema.json is not up to date: UPDATE_SCHEMA=1 cargo test -p plimsoll-report --test document"
    );
}

#[test]
fn every_run_obeys_the_schema_and_is_read_again_unchanged() {
    let schema = serde_json::from_str(&report::schema()).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    for (name, run) in fixtures::all() {
        let bytes = json(&run);
        let value = serde_json::from_slice(&bytes).unwrap();
        let errors: Vec<String> =
            schema.iter_errors(&value).map(|e| format!("{e} at {}", e.instance_path())).collect();
        assert!(errors.is_empty(), "{name}: {errors:?}");
        let again = read(&bytes).unwrap();
        // Decimal text may differ from the binary figure in the last place; what is written may not.
        assert!(json(&again) == bytes, "{name}");
    }
}

#[test]
fn a_figure_that_is_no_number_is_not_written() {
    let mut run = fixtures::healthy();
    run.establish.rate_per_second = f64::NAN;
    let error = report::json::Json.render(&run, Style::default()).unwrap_err();
    assert!(error.to_string().contains("rate_per_second"), "{error}");
}

#[test]
fn what_is_no_result_is_refused_with_words() {
    let says = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    assert_eq!(says(b"{\"plimsoll\": "), "not JSON: EOF while parsing a value at line 1, column 13");
    assert!(says(b"<html>").starts_with("not JSON: expected value at line 1, column 1"));
    assert!(says(b"[1, 2]").contains("not a plimsoll result"));
    assert!(says(b"{\"k6\": 1}").contains("`plimsoll` (the version that wrote it) is missing"));
    assert!(says(b"{\"plimsoll\": \"0.1.0\", \"schema\": \"one\"}").contains("`schema` (a whole number)"));
    assert!(says(b"").contains("not JSON"));
}

#[test]
fn a_newer_result_is_named_as_such_before_its_fields_are_looked_at() {
    let error = read(b"{\"plimsoll\": \"3.2.0\", \"schema\": 7, \"fleet\": {}}").unwrap_err();
    assert_eq!(error, ReadError::Newer { found: 7, plimsoll: "3.2.0".into() });
    assert_eq!(
        error.to_string(),
        "the result has schema 7, written by plimsoll 3.2.0; this plimsoll reads schema 1: use plimsoll 3.2.0 or later"
    );
}

#[test]
fn damage_is_reported_with_its_place() {
    let text = String::from_utf8(json(&fixtures::interrupted())).unwrap();
    let broken = text.replacen("\"cpus\": 8", "\"cpus\": \"eight\"", 1);
    let line = 1 + broken.lines().position(|l| l.contains("eight")).unwrap();
    match read(broken.as_bytes()).unwrap_err() {
        ReadError::Damaged { reason, line: at, column } => {
            assert_eq!(at, line);
            assert!(column > 8 && reason.contains("eight"), "{reason}");
        }
        other => panic!("{other}"),
    }
    let missing = text.replacen("\"verdict\"", "\"opinion\"", 1);
    assert!(read(missing.as_bytes()).unwrap_err().to_string().contains("missing field `verdict`"));
}

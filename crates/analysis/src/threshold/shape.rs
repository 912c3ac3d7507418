//! Which figures can a result have at all? Asked of the result's own schema, so it is never out of date.

use model::{FailureKind, Phase, RunResult};
use serde_json::Value;

/// Why a path leads to no figure.
pub(super) enum Wrong {
    /// `missing` does not stand below `at`; `known` does.
    Missing { at: String, missing: String, known: String },
    /// The path ends at something that holds figures, `known`, but is none.
    NotANumber { known: String },
}

/// Follows the path through the schema; fine if it ends at a number or a truth value.
pub(super) fn check(path: &[String]) -> Result<(), Wrong> {
    let root = schemars::schema_for!(RunResult).to_value();
    let mut here = &root;
    for (depth, name) in path.iter().enumerate() {
        here = below(&root, here, path[..depth].last(), name).ok_or_else(|| Wrong::Missing {
            at: if depth == 0 { "a result".to_owned() } else { path[..depth].join(".") },
            missing: name.clone(),
            known: names(&root, here, path[..depth].last()),
        })?;
    }
    let here = resolve(&root, here);
    if ["integer", "number", "boolean"].iter().any(|kind| is(here, kind)) {
        Ok(())
    } else {
        Err(Wrong::NotANumber { known: names(&root, here, path.last()) })
    }
}

/// What stands behind references and behind "this or null".
fn resolve<'a>(root: &'a Value, mut here: &'a Value) -> &'a Value {
    loop {
        let next = if let Some(reference) = here.get("$ref").and_then(Value::as_str) {
            reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer))
        } else {
            let choices = here.get("anyOf").and_then(Value::as_array);
            choices.and_then(|choices| choices.iter().find(|choice| !is(choice, "null")))
        };
        match next {
            Some(next) => here = next,
            None => return here,
        }
    }
}

/// Whether a schema allows the given type.
fn is(schema: &Value, kind: &str) -> bool {
    match schema.get("type") {
        Some(Value::String(only)) => only == kind,
        Some(Value::Array(any)) => any.iter().any(|one| one == kind),
        _ => false,
    }
}

/// The schema of what stands below `here`, which is called `own`, under `name`.
fn below<'a>(root: &'a Value, here: &'a Value, own: Option<&String>, name: &str) -> Option<&'a Value> {
    let here = resolve(root, here);
    if is(here, "array") {
        return name.parse::<usize>().ok().and_then(|_| here.get("items"));
    }
    if let Some(free) = free_keys(own) {
        let values = here.get("additionalProperties").filter(|v| v.is_object());
        let listed = || here.get("properties")?.as_object()?.values().next();
        return free.contains(&name).then(|| values.or_else(listed)).flatten();
    }
    here.get("properties")?.get(name)
}

/// What may stand below `here`, for a message.
fn names(root: &Value, here: &Value, own: Option<&String>) -> String {
    let here = resolve(root, here);
    if is(here, "array") {
        return "entries from 0".to_owned();
    }
    if let Some(free) = free_keys(own) {
        return free.join(", ");
    }
    let listed = here.get("properties").and_then(Value::as_object);
    match listed {
        Some(listed) => listed.keys().map(String::as_str).collect::<Vec<_>>().join(", "),
        None => "nothing".to_owned(),
    }
}

/// The keys of the maps of a result, which its schema leaves open.
fn free_keys(own: Option<&String>) -> Option<Vec<&'static str>> {
    match own.map(String::as_str) {
        Some("failed" | "failed_example" | "attempts_failed") => {
            Some(FailureKind::ALL.iter().map(|kind| kind.id()).collect())
        }
        Some("phases") => Some(Phase::ALL.iter().map(|phase| phase.id()).collect()),
        _ => None,
    }
}

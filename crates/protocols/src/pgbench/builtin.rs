//! Which scripts does pgbench bring itself?

/// A script that is built into pgbench 15, as `pgbench --show-script=NAME` shows it.
#[derive(Debug)]
pub struct Builtin {
    /// What it is called.
    pub name: &'static str,
    /// Its lines.
    pub text: &'static str,
}

/// All of them, in the order in which `pgbench -b list` lists them.
pub static BUILTINS: &[Builtin] = &[
    Builtin { name: "tpcb-like", text: include_str!("builtin/tpcb-like.sql") },
    Builtin { name: "simple-update", text: include_str!("builtin/simple-update.sql") },
    Builtin { name: "select-only", text: include_str!("builtin/select-only.sql") },
];

/// The script of this name, or the only one whose name begins so.
///
/// # Errors
/// Which names there are.
pub fn find(name: &str) -> Result<&'static Builtin, String> {
    let all: Vec<&Builtin> = BUILTINS.iter().filter(|builtin| builtin.name.starts_with(name)).collect();
    match all[..] {
        [one] => Ok(one),
        [] => Err(format!("no script {name:?} is built in; there are {}", names(BUILTINS.iter()))),
        _ => Err(format!("{name:?} may be any of {}", names(all.into_iter()))),
    }
}

fn names<'a>(builtins: impl Iterator<Item = &'a Builtin>) -> String {
    builtins.map(|builtin| builtin.name).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_be_shortened() {
        assert_eq!(find("tpcb").unwrap().name, "tpcb-like");
        assert_eq!(find("se").unwrap().name, "select-only");
        assert!(find("s").unwrap_err().contains("simple-update, select-only"));
        assert!(find("x").unwrap_err().contains("there are tpcb-like"));
    }
}

//! Where in a statement do variables stand?

use super::names::{Names, is_name};

/// SQL and the variables in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Statement(Vec<Part>);

/// A part of a statement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Text as it is.
    Text(String),
    /// The value of a variable, by its number.
    Variable(usize),
}

impl Statement {
    /// Finds the variables that something sets; any other colon is a part of the text. Quotes make no difference, as
    /// they make none to pgbench.
    pub(super) fn read(sql: &str, names: &Names) -> Self {
        let mut parts = Vec::new();
        let (mut text, mut rest) = (String::new(), sql);
        while let Some(colon) = rest.find(':') {
            let behind = &rest[colon + 1..];
            let end = behind.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii()));
            let name = &behind[..end.unwrap_or(behind.len())];
            let known = names.find(name).filter(|_| is_name(name));
            // a cast (::) is none
            let colons = 1 + behind.bytes().take_while(|byte| *byte == b':').count();
            match known {
                Some(variable) => {
                    text += &rest[..colon];
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text)));
                    }
                    parts.push(Part::Variable(variable));
                    rest = &behind[name.len()..];
                }
                None => {
                    text += &rest[..colon + colons];
                    rest = &rest[colon + colons..];
                }
            }
        }
        text += rest;
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Self(parts)
    }

    /// Its parts in their order.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_those_that_are_set() {
        let mut names = Names::default();
        let (a, b) = (names.set("a"), names.set("b_1"));
        names.used("c");
        let shown = |sql: &str| -> String {
            let parts = Statement::read(sql, &names);
            let show = |part: &Part| match part {
                Part::Text(text) => text.clone(),
                Part::Variable(n) if *n == a => "{a}".to_owned(),
                Part::Variable(n) if *n == b => "{b}".to_owned(),
                Part::Variable(_) => "{?}".to_owned(),
            };
            parts.parts().iter().map(show).collect()
        };
        assert_eq!(shown("SELECT :a, :b_1, ':a'"), "SELECT {a}, {b}, '{a}'");
        assert_eq!(shown(":a:a::int"), "{a}{a}::int");
        assert_eq!(shown("x::a, '12:30', :c, :d, :ab, a[1:2] :"), "x::a, '12:30', :c, :d, :ab, a[1:2] :");
    }
}

//! Which variable is meant? Each name of a workload has a number, so that a client keeps no names.

/// The variables of all scripts of a workload.
#[derive(Debug, Default)]
pub(super) struct Names(Vec<Name>);

#[derive(Debug)]
struct Name {
    name: String,
    /// Whether something gives it a value.
    set: bool,
}

impl Names {
    /// The number of a variable that an expression asks for.
    pub(super) fn used(&mut self, name: &str) -> usize {
        if let Some(number) = self.0.iter().position(|known| known.name == name) {
            return number;
        }
        self.0.push(Name { name: name.to_owned(), set: false });
        self.0.len() - 1
    }

    /// The number of a variable that is given a value.
    pub(super) fn set(&mut self, name: &str) -> usize {
        let number = self.used(name);
        self.0[number].set = true;
        number
    }

    /// The number of a variable that something gives a value.
    pub(super) fn find(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|known| known.set && known.name == name)
    }

    /// Whether something gives it a value.
    pub(super) fn is_set(&self, number: usize) -> bool {
        self.0.get(number).is_some_and(|name| name.set)
    }

    /// What it is called.
    pub(super) fn name(&self, number: usize) -> &str {
        self.0.get(number).map_or("", |name| &name.name)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Whether a text can be a variable's name: letters, digits and underscores, the first no digit.
pub fn is_name(text: &str) -> bool {
    !text.starts_with(|c: char| c.is_ascii_digit())
        && !text.is_empty()
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || !c.is_ascii())
}

//! How is a talk put into tables? One for the clients and their messages, one for what both sides needed meanwhile; the
//! same in every output.

use model::talk::{Spell, TalkResult};
use model::units;

use crate::words::{self, UNKNOWN};

/// The heads of the first table.
pub(crate) const SAID_HEADS: [&str; 8] =
    ["clients", "succeeded", "messages", "answered", "late", "took", "schedule", "rate"];

/// What it means.
pub(crate) const SAID_NOTE: &str =
    "succeeded: every message answered; late: answered after the objective, counted from when it was due";

/// The only row of the first table, in the order of [`SAID_HEADS`].
pub(crate) fn said(talk: &TalkResult) -> [String; 8] {
    [
        units::count(talk.clients),
        units::count(talk.succeeded),
        units::count(talk.messages),
        units::count(talk.answered),
        units::count(talk.late),
        talk.seconds.map_or(UNKNOWN.to_owned(), units::seconds),
        units::seconds(talk.ideal_seconds),
        talk.rate_per_second().map_or(UNKNOWN.to_owned(), words::per_second),
    ]
}

/// The heads of the second table; those that start with `<` are aligned to the left.
pub(crate) const SPELL_HEADS: [&str; 7] =
    ["<talk", "length", "target CPU", "target memory", "threads", "generator CPU", "generator memory"];

/// What it means.
pub(crate) const SPELL_NOTE: &str = "both sides while nobody spoke, and while all did; 100% is one CPU";

/// The cells of a row of the second table, in the order of [`SPELL_HEADS`].
pub(crate) fn cells(spell: &Spell) -> [String; 7] {
    [
        words::clean(&spell.name),
        units::seconds(spell.seconds),
        words::cpu_percent_or_unknown(spell.target_cpus),
        words::bytes_or_unknown(spell.target_user_bytes),
        spell.target_threads.map_or(UNKNOWN.to_owned(), units::count),
        words::cpu_percent_or_unknown(spell.generator_cpus),
        words::bytes_or_unknown(spell.generator_user_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_seen_is_unknown_and_not_zero() {
        let talk =
            TalkResult { clients: 3, succeeded: 2, messages: 60, answered: 41, ..TalkResult::default() };
        assert_eq!(said(&talk), ["3", "2", "60", "41", "0", "unknown", "0.00 s", "unknown"]);
        let spell =
            Spell { name: "during".to_owned(), seconds: 20.5, generator_cpus: Some(0.5), ..Spell::default() };
        assert_eq!(cells(&spell), ["during", "20.5 s", "unknown", "unknown", "unknown", "50%", "unknown"]);
    }
}

//! What does the page show of a talk? Its two tables, and the headline figures.

use model::talk::TalkResult;
use model::{RunResult, units};

use super::rows::Tile;
use crate::spells;
use crate::words::{self, UNKNOWN};

/// The part of the page that a talk has.
pub(super) struct Talk {
    pub(super) said_note: &'static str,
    pub(super) said_heads: [&'static str; 8],
    pub(super) said: [String; 8],
    pub(super) spell_note: &'static str,
    pub(super) spell_heads: Vec<&'static str>,
    pub(super) spells: Vec<[String; 7]>,
}

impl Talk {
    pub(super) fn of(r: &RunResult) -> Option<Self> {
        let talk = r.talk.as_ref()?;
        Some(Self {
            said_note: spells::SAID_NOTE,
            said_heads: spells::SAID_HEADS,
            said: spells::said(talk),
            spell_note: spells::SPELL_NOTE,
            spell_heads: spells::SPELL_HEADS.iter().map(|head| head.trim_start_matches('<')).collect(),
            spells: talk.spells.iter().map(spells::cells).collect(),
        })
    }
}

/// Headline figures.
pub(super) fn tiles(r: &RunResult, talk: &TalkResult) -> Vec<Tile> {
    let during = talk.spells.iter().find(|spell| spell.name == "during");
    let latency = |of: fn(&model::Latency) -> f64| {
        talk.latency.as_ref().map_or_else(|| UNKNOWN.to_owned(), |l| units::milliseconds(of(l)))
    };
    vec![
        Tile {
            name: "clients",
            value: units::count(talk.succeeded),
            note: format!("of {} got every answer", units::count(r.connections.requested)),
        },
        Tile {
            name: "took",
            value: talk.seconds.map_or_else(|| UNKNOWN.to_owned(), units::seconds),
            note: format!("where the schedule has {}", units::seconds(talk.ideal_seconds)),
        },
        Tile {
            name: "latency",
            value: latency(|l| l.p99_ms),
            note: format!("p99; median {}", latency(|l| l.p50_ms)),
        },
        Tile {
            name: "server CPU",
            value: words::cpu_percent_or_unknown(during.and_then(|spell| spell.target_cpus)),
            note: "while all spoke; 100% is one CPU".to_owned(),
        },
        Tile {
            name: "memory",
            value: words::bytes_each(r.cost.target.user_bytes_per_connection),
            note: "of the server for each client".to_owned(),
        },
    ]
}

//! Which latencies did the run measure, and from when to when?

use model::{Latency, Phase, RunResult};

/// One measured latency.
pub(crate) struct Measured {
    /// Its name in tables.
    pub(crate) name: String,
    /// From when to when.
    pub(crate) meaning: &'static str,
    /// The percentiles.
    pub(crate) latency: Latency,
}

/// All latencies of a run: the phases in their order, then the heartbeat, the messages, and the verify pass.
pub(crate) fn measured(result: &RunResult) -> Vec<Measured> {
    let mut out = Vec::new();
    let known = Phase::ALL.map(Phase::id);
    for phase in Phase::ALL {
        if let Some(&latency) = result.establish.phases.get(phase.id()) {
            out.push(Measured { name: phase.id().to_owned(), meaning: meaning(phase), latency });
        }
    }
    for (name, &latency) in &result.establish.phases {
        if !known.contains(&name.as_str()) {
            out.push(Measured {
                name: crate::words::clean(name),
                meaning: "a phase of establishing",
                latency,
            });
        }
    }
    if let Some(latency) = result.heartbeat.latency {
        let meaning = "from the moment it was due to its answer";
        out.push(Measured { name: "heartbeat".to_owned(), meaning, latency });
    }
    if let Some(talk) = &result.talk {
        let lag = ("sent", "a message, from when it was due until it was sent");
        let answer = ("message", "from the moment it was due to its answer");
        for ((name, meaning), latency) in [(lag, talk.schedule_lag), (answer, talk.latency)] {
            out.extend(latency.map(|latency| Measured { name: name.to_owned(), meaning, latency }));
        }
    }
    // In a sweep, only the very first connection is verified.
    if let Some(latency) = result.verify.latency.filter(|_| result.sweep.is_none()) {
        out.push(Measured {
            name: "verify".to_owned(),
            meaning: "one round trip on every connection",
            latency,
        });
    }
    out
}

fn meaning(phase: Phase) -> &'static str {
    match phase {
        Phase::Tcp => "from connect() to an open TCP connection",
        Phase::Tls => "the TLS handshake",
        Phase::Upgrade => "the protocol's greeting",
        Phase::Auth => "login",
        Phase::Ready => "from connect() to ready",
    }
}

//! Which way to the server is quicker, and is that more than chance?

use model::RunResult;
use model::sweep::Difference;

use crate::sweep::mean_at;

/// Each way beside against the one named first, at every client count that both have, rising.
///
/// The interval is Welch's, from the batches of both: a difference is `seen` if that leaves zero out. One in twenty
/// differences that are not there is seen all the same.
pub fn differences(run: &RunResult) -> Vec<Difference> {
    let good = |run: &RunResult, clients: u64| {
        let counts = run.sweep.as_ref().map(|sweep| &sweep.reading.counts);
        counts.is_some_and(|counts| counts.iter().any(|count| count.clients == clients && count.good))
    };
    let counts = run.sweep.iter().flat_map(|sweep| &sweep.reading.counts).map(|count| count.clients);
    let counts: Vec<u64> = counts.filter(|clients| good(run, *clients)).collect();
    let compared = run.beside.iter().enumerate().flat_map(|(beside, other)| {
        let common = counts.iter().filter(move |clients| good(other, **clients));
        common.map(move |clients| {
            let both = mean_at(other, *clients).zip(mean_at(run, *clients));
            let share = both.and_then(|(its, first)| its.beyond(&first));
            let seen = share.is_some_and(|share| share.low.is_some() && !share.contains(0.0));
            Difference { beside, clients: *clients, share, seen }
        })
    });
    compared.collect()
}

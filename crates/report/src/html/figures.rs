//! Which drawings does this run allow? What was not seen is not drawn.

use model::RunResult;
use model::result::Moment;
use model::units;

use crate::latencies::measured;
use crate::svg::chart::{Chart, Line, Rule};
use crate::svg::scale::Axis;
use crate::svg::{fit, percentiles};
use crate::{timeline, words};

/// A drawing with its caption.
pub(super) struct Figure {
    pub(super) title: &'static str,
    pub(super) note: &'static str,
    pub(super) svg: String,
}

/// The page's drawings.
pub(super) struct Figures {
    /// Over time, in the order in which they are shown.
    pub(super) over_time: Vec<Figure>,
    /// Memory against connections.
    pub(super) fit: Option<String>,
    /// Latencies.
    pub(super) percentiles: Option<String>,
    /// Failures over time, by kind.
    pub(super) failures: Option<String>,
}

impl Figures {
    pub(super) fn of(r: &RunResult) -> Self {
        let moments = timeline::moments(&r.series);
        let times: Vec<f64> = moments.iter().map(|m| m.t_seconds).collect();
        let seen = Seen { r, moments: &moments, times: &times, hold: timeline::hold(&moments) };
        let over_time = if moments.len() < 2 {
            Vec::new()
        } else {
            let messages = (r.talk.is_some() || r.sweep.is_some())
                .then(|| [seen.messages(), seen.answers()])
                .into_iter()
                .flatten();
            let always =
                [seen.connections(), seen.memory(), seen.cpu(), seen.beats(), seen.queue(), seen.lag()];
            messages.chain(always).flatten().collect()
        };
        let kinds = words::failures(&r.connections.failed);
        Self {
            over_time,
            fit: seen.fit(),
            percentiles: percentiles::draw("percentiles", &measured(r), r.spec.objective_seconds * 1e3),
            failures: percentiles::lanes("failures", &times, &timeline::failed_by_kind(&moments), &kinds),
        }
    }
}

struct Seen<'a> {
    r: &'a RunResult,
    moments: &'a [Moment],
    times: &'a [f64],
    hold: Option<(f64, f64)>,
}

impl Seen<'_> {
    fn line(&self, name: &'static str, class: &'static str, of: impl Fn(&Moment) -> Option<f64>) -> Line {
        let values = self.moments.iter().map(|m| of(m).filter(|v| v.is_finite())).collect();
        Line { name, class, values, steps: false }
    }

    fn figure(
        &self,
        id: &'static str,
        (title, note): (&'static str, &'static str),
        lines: Vec<Line>,
        axis: impl Fn(f64, f64) -> Axis,
        write: fn(f64) -> String,
    ) -> Option<(Figure, Chart<'_>)> {
        let lines: Vec<Line> = lines.into_iter().filter(|l| l.values.iter().any(Option::is_some)).collect();
        let values = || lines.iter().flat_map(|l| l.values.iter().flatten().copied());
        let most = values().fold(0.0, f64::max);
        let least = values().filter(|&v| v > 0.0).fold(f64::INFINITY, f64::min);
        if lines.is_empty() {
            return None;
        }
        let names: Vec<&str> = lines.iter().map(|l| l.name).collect();
        let description = format!("{}: highest {}. {note}", names.join(", "), write(most));
        let chart = Chart {
            id,
            title,
            description,
            times: self.times,
            hold: self.hold,
            axis: axis(least, most),
            lines,
            rule: None,
            failures: Vec::new(),
            write,
        };
        Some((Figure { title, note, svg: String::new() }, chart))
    }

    fn connections(&self) -> Option<Figure> {
        let mut wanted = self.line("wanted", "c-wanted", |m| Some(m.wanted as f64));
        wanted.steps = true;
        let ready = self.line("ready", "c-ready", |m| Some(m.ready as f64));
        let (figure, mut chart) = self.figure(
            "connections-over-time",
            ("Connections", "asked of each stage, and ready; red: failed at that moment"),
            vec![wanted, ready],
            |_, most| Axis::counts(most, ""),
            |v| units::count(v as u64),
        )?;
        chart.failures =
            self.moments.iter().map(|m| (m.t_seconds, timeline::failed(m))).filter(|(_, n)| *n > 0).collect();
        Some(Figure { svg: chart.draw(), ..figure })
    }

    fn memory(&self) -> Option<Figure> {
        let lines = vec![
            self.line("target", "c-target", |m| m.target_user_bytes.map(|b| b as f64)),
            self.line("generator", "c-generator", |m| m.generator_user_bytes.map(|b| b as f64)),
            self.line("kernel", "c-kernel", |m| m.kernel_bytes.map(|b| b as f64)),
        ];
        let (figure, chart) = self.figure(
            "memory-over-time",
            ("Memory", "user memory (PSS) of each side; the kernel's objects and socket buffers"),
            lines,
            |_, most| Axis::bytes(most),
            units::bytes,
        )?;
        Some(Figure { svg: chart.draw(), ..figure })
    }

    fn cpu(&self) -> Option<Figure> {
        let lines = vec![
            self.line("target", "c-target", |m| m.target_cpus),
            self.line("generator", "c-generator", |m| m.generator_cpus),
        ];
        let (figure, chart) = self.figure(
            "cpu-over-time",
            ("CPU", "1 is one CPU, wholly busy"),
            lines,
            |_, most| Axis::cpus(most),
            words::cpu_percent,
        )?;
        Some(Figure { svg: chart.draw(), ..figure })
    }

    fn beats(&self) -> Option<Figure> {
        let lines = vec![
            self.line("p50", "c-p50", |m| m.beat_p50_ms),
            self.line("p99", "c-p99", |m| m.beat_p99_ms),
            self.line("max", "c-max", |m| m.beat_max_ms),
        ];
        let (figure, chart) = self.figure(
            "beats-over-time",
            ("Heartbeat latency", "from the moment it was due to its answer; logarithmic"),
            lines,
            Axis::latency,
            units::milliseconds,
        )?;
        Some(Figure { svg: chart.draw(), ..figure })
    }

    fn messages(&self) -> Option<Figure> {
        let lines = vec![
            self.line("begun", "c-wanted", |m| Some(m.messages_sent as f64)),
            self.line("answered", "c-ready", |m| Some(m.messages_answered as f64)),
        ];
        let (figure, chart) = self.figure(
            "messages-over-time",
            (self.said(), "begun and answered since the moment before, about a second earlier"),
            lines,
            |_, most| Axis::counts(most, ""),
            |v| units::count(v as u64),
        )?;
        Some(Figure { svg: chart.draw(), ..figure })
    }

    /// What is said on a connection: messages of a talk, operations of a sweep.
    fn said(&self) -> &'static str {
        if self.r.sweep.is_some() { "Operations" } else { "Messages" }
    }

    fn answers(&self) -> Option<Figure> {
        let lines = vec![
            self.line("p50", "c-p50", |m| m.message_p50_ms),
            self.line("p99", "c-p99", |m| m.message_p99_ms),
            self.line("max", "c-max", |m| m.message_max_ms),
        ];
        let (figure, chart) = self.figure(
            "answers-over-time",
            ("Latency of an answer", "from the moment it was due to its answer; logarithmic"),
            lines,
            Axis::latency,
            units::milliseconds,
        )?;
        Some(Figure { svg: chart.draw(), ..figure })
    }

    fn queue(&self) -> Option<Figure> {
        let backlog = self
            .r
            .after
            .listener
            .as_ref()
            .or_else(|| self.r.stages.iter().rev().find_map(|s| s.listener.as_ref()));
        let backlog = backlog.map(|l| l.backlog as f64);
        let queued = self.line("queued", "c-target", |m| m.accept_queue.map(|n| n as f64));
        let most = queued.values.iter().flatten().copied().fold(0.0, f64::max);
        // The queue's size is drawn where the queue came anywhere near it, and is told otherwise.
        let near = backlog.filter(|b| most * 8.0 >= *b);
        let (figure, mut chart) = self.figure(
            "queue-over-time",
            ("Accept queue", "connections that wait to be accepted, in the fullest queue"),
            vec![queued],
            |_, most| Axis::counts(most.max(near.unwrap_or(0.0)).max(4.0), ""),
            |v| units::count(v as u64),
        )?;
        chart.rule =
            near.map(|value| Rule { value, name: format!("it holds {}", units::count(value as u64)) });
        Some(Figure { svg: chart.draw(), ..figure })
    }

    fn lag(&self) -> Option<Figure> {
        let (figure, chart) = self.figure(
            "lag-over-time",
            ("Generator's own lag", "where its own loop is late, its latencies are not the target's"),
            vec![self.line("lag", "c-generator", |m| m.generator_lag_ms)],
            Axis::latency,
            units::milliseconds,
        )?;
        Some(Figure { svg: chart.draw(), ..figure })
    }

    fn fit(&self) -> Option<String> {
        let points = |of: fn(&model::result::Stage) -> Option<u64>| {
            let point = |s| of(s).map(|bytes| (s.ready as f64, bytes as f64, s.passed && s.valid));
            self.r.stages.iter().filter_map(point).collect::<Vec<_>>()
        };
        fit::draw(
            "fit",
            &[
                fit::Side {
                    name: "target",
                    class: "c-target",
                    points: points(|s| s.target.as_ref().and_then(|g| g.user_bytes)),
                    slope: self.r.cost.target.user_bytes_per_connection,
                },
                fit::Side {
                    name: "generator",
                    class: "c-generator",
                    points: points(|s| s.generator.as_ref().and_then(|g| g.user_bytes)),
                    slope: self.r.cost.generator.user_bytes_per_connection,
                },
            ],
        )
    }
}

//! Everything that a run sees: its own host, the target's if that is another one, and what the target says of itself.

use std::net::SocketAddr;

use model::observation::{Listener, Observation, ServerView, Settings, TargetHost, TcpCounters};
use model::result::{Host, ProcessSeen};

use crate::far::{Far, Reach};
use crate::metrics::Metrics;
use crate::service::There;
use crate::{Finder, Glance, Observer, Server, views};

/// The eyes of a run. Nothing fails once they are open: what is not answered is `None`, and a warning.
pub struct Eyes {
    near: Observer,
    far: Option<(Far, There)>,
    metrics: Option<Metrics>,
    servers: Vec<Server>,
    warnings: Vec<String>,
}

impl Eyes {
    /// Eyes that see this host only.
    pub fn new(near: Observer) -> Self {
        Self { near, far: None, metrics: None, servers: Vec::new(), warnings: Vec::new() }
    }

    /// Sees the target through the observer that runs on its host.
    ///
    /// # Errors
    /// If that does not answer: what is wrong, where, and what to do.
    pub fn through(mut self, reach: &Reach, find: &Finder, addresses: &[SocketAddr]) -> Result<Self, String> {
        self.far = Some(Far::meet(reach, find, addresses)?);
        Ok(self)
    }

    /// Reads what the target says of itself as well.
    ///
    /// # Errors
    /// If nothing of use is said there: what is wrong, where, and what to do.
    pub fn with_metrics(mut self, reach: &Reach) -> Result<Self, String> {
        self.metrics = Some(Metrics::meet(reach)?);
        Ok(self)
    }

    /// Asks these servers how many connections they count, whenever [`Eyes::servers`] is called.
    #[must_use]
    pub fn asking(mut self, servers: Vec<Server>) -> Self {
        self.servers = servers;
        self
    }

    /// See [`Observer::observe`]. What servers say of themselves is not among it: to be asked costs them something.
    pub fn observe(&mut self) -> Observation {
        let mut seen = self.near.observe();
        if self.far.is_some() {
            let there: Option<Observation> = self.ask("observation");
            let there = there.unwrap_or_default();
            (seen.target, seen.listener) = (there.target, there.listener);
            seen.target_host = Some(TargetHost { host: there.host, tcp: there.tcp });
        }
        if let Some(metrics) = &self.metrics {
            match metrics.read() {
                Ok(said) => seen.target = said.complete(seen.target),
                Err(why) => self.warn(why),
            }
        }
        seen
    }

    /// See [`Observer::glance`].
    pub fn glance(&mut self) -> Glance {
        let mut seen = self.near.glance();
        if self.far.is_some() {
            let there: Glance = self.ask("glance").unwrap_or_default();
            (seen.target_cpu_seconds, seen.listener) = (there.target_cpu_seconds, there.listener);
        }
        seen
    }

    /// See [`Observer::listener`].
    pub fn listener(&mut self) -> Option<Listener> {
        match self.far {
            Some(_) => self.ask("listener").flatten(),
            None => self.near.listener(),
        }
    }

    /// The TCP counters of the target's host, as far as that is seen, else of this one.
    pub fn tcp(&mut self) -> TcpCounters {
        match self.far {
            Some(_) => self.ask("tcp").unwrap_or_default(),
            None => self.near.tcp(),
        }
    }

    /// What servers say of their own connections now. Each is asked over a connection of its own, and waited for a
    /// second at the most: for before, between and after what is measured, or once in its midst.
    pub fn servers(&mut self) -> Vec<ServerView> {
        let (views, silent) = views::read(&mut self.servers);
        silent.into_iter().for_each(|why| self.warn(why));
        views
    }

    /// The machine that the generator runs on.
    pub fn host(&mut self) -> Host {
        self.near.host()
    }

    /// The target's host, where an observer reads it.
    pub fn target_host(&self) -> Option<Host> {
        self.far.as_ref().map(|(_, there)| there.host.clone())
    }

    /// See [`Observer::settings`].
    pub fn settings(&mut self) -> Settings {
        let mut settings = self.near.settings();
        if let Some((_, there)) = &self.far {
            settings.same_host = false;
            settings.target_host = Some(there.settings.clone());
            settings.target.clone_from(&there.target);
            settings.target_hidden.clone_from(&there.hidden);
        }
        settings
    }

    /// See [`Observer::target_processes`].
    pub fn target_processes(&mut self) -> Vec<ProcessSeen> {
        match &self.far {
            Some((_, there)) => there.processes.clone(),
            None => self.near.target_processes(),
        }
    }

    /// Takes the warnings that came up since the last call; each comes up once.
    pub fn take_warnings(&mut self) -> Vec<String> {
        let mut warnings = self.near.take_warnings();
        warnings.append(&mut self.warnings);
        warnings
    }

    fn ask<T: serde::de::DeserializeOwned>(&mut self, what: &str) -> Option<T> {
        match self.far.as_ref()?.0.ask(what) {
            Ok(answer) => Some(answer),
            Err(why) => {
                self.warn(why);
                None
            }
        }
    }

    fn warn(&mut self, why: String) {
        if !self.warnings.contains(&why) {
            self.warnings.push(why);
        }
    }
}

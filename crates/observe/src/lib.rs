//! What can be seen of the target, the generator and the host?
//!
//! A file per probe; each reads one kind of source and returns its part of an observation:
//!
//! | file | source |
//! | --- | --- |
//! | `table` | `/proc/PID/stat` of every process, in one pass: the process tree and its CPU time |
//! | `find` | which processes are the target: by port, pid, name or cgroup |
//! | `listener` | the target's listening sockets, over `sock_diag` |
//! | `process` | memory, descriptors and limits of one process |
//! | `group` | the same, summed over a group of processes |
//! | `cpu` | CPU time of a group, monotone while its processes come and go |
//! | `threads` | CPU of the busiest thread of a group |
//! | `jvm` | the heap of a Java virtual machine, from its `hsperfdata` file |
//! | `cgroup` | a cgroup's limits and use, v1 and v2 |
//! | `host` | memory, sockets, descriptors, CPU and pressure of the host |
//! | `tcp` | the kernel's TCP counters |
//! | `settings` | sysctls |
//! | `metrics` | the target's own metrics page |
//!
//! [`Observer`] looks with all of them at this host. [`Service`] lets a run on another host look through it, and
//! [`Eyes`] are what a run sees with: its own observer, the target's host through such a service, and its metrics.
//!
//! Where `/proc` and `/sys` lie is a parameter ([`Root`]), so that tests can build their own. What is absent
//! is `None`. What is malformed is an [`Error`] that names path and line; the [`Observer`] turns it into
//! `None` and a warning, because a probe may never fail a run. No clock is read here.

mod cgroup;
mod cpu;
mod eyes;
#[cfg(test)]
mod fake;
mod far;
mod find;
mod group;
mod host;
mod jvm;
mod listener;
mod metrics;
mod observer;
mod process;
mod reader;
mod service;
mod settings;
mod sock_diag;
mod table;
mod tcp;
mod threads;
mod views;

pub use eyes::Eyes;
pub use far::Reach;
pub use find::Finder;
pub use observer::{Glance, Observer};
pub use reader::{Error, Root};
pub use service::{Service, There};
pub use views::Server;

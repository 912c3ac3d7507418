//! One thread, one epoll, one slab: the mechanism under both ends of a connection.
//!
//! The generator's workers and the node drive the same reactor with different machines and owners. It is
//! the only crate that opens stream sockets, reads the clock and speaks TLS.

pub mod clock;
mod conn;
pub mod descriptors;
pub mod pace;
mod reactor;
pub mod socket;
pub mod tls;

pub use conn::End;
pub use reactor::{Owner, Reactor};

//! The reference messaging server.

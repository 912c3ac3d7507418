//! What is done with the connections: a file per experiment.

pub mod hold;

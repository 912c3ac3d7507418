//! One process that drives a share of the connections: sources, pace, and a file per experiment.

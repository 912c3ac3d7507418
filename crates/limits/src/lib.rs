//! Pure: a file per limit, and the ladder.

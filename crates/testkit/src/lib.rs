//! For tests and benches: the floor program, fake /proc trees, real servers under lowered limits.

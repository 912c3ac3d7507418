//! A file per probe: what can be seen of the target, the generator and the host.

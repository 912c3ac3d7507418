//! How many sockets may this process have?

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// What stands for "unlimited", and where nothing can be read.
const ANY: u64 = 1 << 20;

/// The most descriptors that this process may ever be allowed (`RLIMIT_NOFILE`, hard).
pub fn hard_limit() -> u64 {
    getrlimit(Resource::Nofile).maximum.unwrap_or(ANY)
}

/// Raises the soft limit to the hard one, which children inherit; gives what it is then.
pub fn raise_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    getrlimit(Resource::Nofile).current.unwrap_or(ANY)
}

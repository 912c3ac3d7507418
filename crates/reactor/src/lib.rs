//! One thread, one epoll, one slab: sockets, lent buffers, TLS and the clock, for both ends.

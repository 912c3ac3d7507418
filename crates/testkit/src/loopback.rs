//! Which port is free, and is somebody listening on it yet?

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread::sleep;
use std::time::Duration;

/// How long to wait between two tries.
const PAUSE: Duration = Duration::from_millis(10);

/// A port of 127.0.0.1 on which nobody listens. Another program may take it before the caller does.
///
/// # Errors
/// If no port is free.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Waits until somebody accepts connections at `address`.
///
/// # Errors
/// The last refusal, if nobody does within `patience`.
pub fn wait_for(address: SocketAddr, patience: Duration) -> io::Result<()> {
    let mut tries = patience.as_millis().div_ceil(PAUSE.as_millis()).max(1);
    loop {
        match TcpStream::connect_timeout(&address, patience.max(PAUSE)) {
            Ok(_) => return Ok(()),
            Err(e) => {
                tries -= 1;
                if tries == 0 {
                    return Err(io::Error::new(
                        e.kind(),
                        format!("nobody listens at {address} after {patience:?}: {e}"),
                    ));
                }
            }
        }
        sleep(PAUSE);
    }
}

/// Waits until somebody accepts connections on a port of 127.0.0.1.
///
/// # Errors
/// The last refusal, if nobody does within `patience`.
pub fn wait_for_port(port: u16, patience: Duration) -> io::Result<()> {
    wait_for((Ipv4Addr::LOCALHOST, port).into(), patience)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_free_port_can_be_had_and_waited_for() {
        let port = free_port().unwrap();
        let refused = wait_for_port(port, Duration::from_millis(30)).unwrap_err();
        assert!(refused.to_string().contains("nobody listens"), "{refused}");
        let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        wait_for_port(port, Duration::from_secs(1)).unwrap();
    }
}

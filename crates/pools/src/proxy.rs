//! What if the server were further away? A proxy on loopback that lets every byte wait.
//!
//! It needs no privilege, where netem does. A chunk is handed on half of the delay after it was read, each way. Setting a TCP
//! connection up takes a round trip too; that is over at once on loopback, so the first bytes wait for it here. What it
//! does not have of a real distance: loss, congestion, and a bandwidth that is not loopback's.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::alarm::Alarm;

/// The most that is read at once.
const CHUNK: usize = 16 * 1024;
/// Chunks on their way in one direction; with more, the sender waits, as it would for a full window.
const ON_THE_WAY: usize = 256;

/// A proxy that ends when it is dropped.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    alarm: Alarm,
    end: Option<oneshot::Sender<()>>,
}

impl Proxy {
    /// Listens on loopback, at the very address of a server that is there too, and puts `delay` into each round trip.
    ///
    /// # Errors
    /// If it cannot listen, or no thread can be had.
    pub(crate) fn start(to: SocketAddr, delay: Duration) -> io::Result<Self> {
        let at = if to.ip().is_loopback() { to.ip() } else { IpAddr::V4(Ipv4Addr::LOCALHOST) };
        // Its own runtime: the pool's work must not be in its way, nor it in the pool's.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((at, 0)))?;
        let address = listener.local_addr()?;
        let alarm = Alarm::start()?;
        let (end, ended) = oneshot::channel();
        let own = alarm.clone();
        thread::Builder::new().name("delay".to_owned()).spawn(move || {
            runtime.block_on(async {
                tokio::spawn(serve(listener, to, delay, own));
                let _ = ended.await;
            });
        })?;
        Ok(Self { address, alarm, end: Some(end) })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            let _ = end.send(());
        }
        self.alarm.stop();
    }
}

async fn serve(listener: TcpListener, to: SocketAddr, delay: Duration, alarm: Alarm) {
    while let Ok((near, _)) = listener.accept().await {
        let (alarm, accepted) = (alarm.clone(), Instant::now());
        tokio::spawn(async move {
            // Who cannot be reached is heard of as the end of the connection.
            let Ok(far) = TcpStream::connect(to).await else { return };
            let _ = (near.set_nodelay(true), far.set_nodelay(true));
            let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
            let open = accepted + delay;
            tokio::spawn(carry(near_in, far_out, open, delay / 2, alarm.clone()));
            tokio::spawn(carry(far_in, near_out, open, delay / 2, alarm));
        });
    }
}

/// Carries all that comes from one side to the other, each chunk so long after it came; none before the connection is open.
async fn carry(
    mut from: impl AsyncRead + Unpin + Send + 'static,
    mut to: impl AsyncWrite + Unpin,
    open: Instant,
    wait: Duration,
    alarm: Alarm,
) {
    let (sender, mut on_the_way) = mpsc::channel::<(Instant, Vec<u8>)>(ON_THE_WAY);
    tokio::spawn(async move {
        let mut chunk = vec![0; CHUNK];
        loop {
            let n = from.read(&mut chunk).await.unwrap_or(0);
            let due = Instant::now().max(open) + wait;
            // An end travels like everything else.
            if sender.send((due, chunk[..n].to_vec())).await.is_err() || n == 0 {
                return;
            }
        }
    });
    while let Some((due, chunk)) = on_the_way.recv().await {
        alarm.at(due).await;
        if chunk.is_empty() || to.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    #[test]
    fn a_round_trip_takes_the_delay_and_the_first_one_twice_that() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut byte = [0];
            while stream.read(&mut byte).unwrap() == 1 {
                stream.write_all(&byte).unwrap();
            }
        });
        let delay = Duration::from_millis(40);
        let proxy = Proxy::start(to, delay).unwrap();
        let mut stream = std::net::TcpStream::connect(proxy.address).unwrap();
        let mut round_trip = || {
            let began = Instant::now();
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            began.elapsed()
        };
        let first = round_trip();
        assert!(first >= 2 * delay && first < 4 * delay, "{first:?}");
        let least = (0..5).map(|_| round_trip()).min().unwrap();
        assert!(least >= delay && least < delay * 3 / 2, "{least:?}");
    }
}

//! How the bridge leaves its clients: no request that was sent is lost.
//!
//! A proxy never repeats a call that it has sent, so a connection must not close while one may be on
//! its way. There are two such moments. Connections that the system has taken for us, and that were not
//! accepted yet, would be reset with the listener: so no new ones are let in first. And a proxy
//! may use an idle connection again just when it is closed: so that is left to the proxy.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// How long a proxy may use the connections that it has. It must let go of idle ones sooner:
/// `keepalive_timeout` of the shipped nginx files is two seconds.
pub const LINGER: Duration = Duration::from_secs(3);

/// Once no connection can begin any more, the last ones are there after this long.
const LAST: Duration = Duration::from_millis(50);

/// Where new connections cannot be kept away, accepting ends after this long.
const LONGEST: Duration = Duration::from_millis(250);

/// Closes a listener, and gives the connections that came before.
pub async fn close(listener: TcpListener) -> Vec<(TcpStream, SocketAddr)> {
    refuse_beginnings(&listener);
    let mut last = Vec::new();
    let accepting = async {
        while let Ok(Ok(connection)) = tokio::time::timeout(LAST, listener.accept()).await {
            last.push(connection);
        }
    };
    drop(tokio::time::timeout(LONGEST, accepting).await);
    last
}

/// Lets no new connection begin. Who tries hears nothing, tries again after a second, and is refused
/// then, because the listener is gone: so a proxy knows that it may go elsewhere.
#[cfg(target_os = "linux")]
fn refuse_beginnings(listener: &TcpListener) {
    use socket2::{SockFilter, SockRef};
    // The byte of the TCP header that has the flags; with SYN among them the packet is dropped.
    let load = SockFilter::new(0x30, 0, 0, 13);
    let is_beginning = SockFilter::new(0x45, 0, 1, 0x02);
    let (no, yes) = (SockFilter::new(0x06, 0, 0, 0), SockFilter::new(0x06, 0, 0, u32::MAX));
    if let Err(error) = SockRef::from(listener).attach_filter(&[load, is_beginning, no, yes]) {
        tracing::debug!(%error, "a connection that comes in the last moment may be reset");
    }
}

/// Elsewhere a connection that comes in the last moment may be reset.
#[cfg(not(target_os = "linux"))]
fn refuse_beginnings(_listener: &TcpListener) {}

/// Returns when a connection is to close: at once for a client of its own, which sees that it is closed
/// before it asks again; after [`LINGER`] for a proxy, which asks for others.
pub async fn time_to_close(leaving: &CancellationToken, is_proxy: bool) {
    leaving.cancelled().await;
    if is_proxy {
        tokio::time::sleep(LINGER).await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Who was connected is served; who comes later is refused and was never taken in.
    #[tokio::test]
    async fn a_listener_that_closes_loses_nobody() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut early = Vec::new();
        for _ in 0..20 {
            early.push(TcpStream::connect(address).await.unwrap());
        }
        let (last, late) = tokio::join!(close(listener), async {
            // It is inside `close` when this begins.
            tokio::task::yield_now().await;
            TcpStream::connect(address).await
        });
        assert_eq!(last.len(), early.len());
        assert!(late.is_err(), "it was let in, and its request would be lost");
        for (mut ours, (mut theirs, _)) in early.into_iter().zip(last) {
            ours.write_all(b"x").await.unwrap();
            let mut byte = [0];
            theirs.read_exact(&mut byte).await.unwrap();
        }
    }
}

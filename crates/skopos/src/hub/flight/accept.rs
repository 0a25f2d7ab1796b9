//! Who is let in, and how many at one time.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::hub::counts::{Counts, Held};
use crate::hub::http::peer::is_own;

/// Connections at one time: a driver's pool has some for each program.
const MAX_CONNECTIONS: u64 = 256;

/// How many newcomers are looked at together: whose they are takes some milliseconds to find out.
const LOOKED_AT: usize = 16;

/// How long to wait when none can be taken, most often because there are too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that is counted for as long as it is open.
pub(super) struct Connection {
    stream: TcpStream,
    _held: Held,
}

/// Connections as they come. Who may not ask, or is one too many, is closed at once and counted.
pub(super) fn connections(
    listener: TcpListener,
    is_open: bool,
    counts: Arc<Counts>,
) -> BoxStream<'static, io::Result<Connection>> {
    let came = stream::unfold(listener, |listener| async move {
        let came = listener.accept().await.ok();
        if came.is_none() {
            tokio::time::sleep(PAUSE).await;
        }
        Some((came, listener))
    });
    let judged = came.filter_map(async |came| came).map(move |(stream, peer)| {
        let counts = counts.clone();
        async move {
            let held = counts.connect(MAX_CONNECTIONS);
            let may_ask = is_open || may_ask(&stream, peer).await;
            let Some(held) = held.filter(|_| may_ask) else {
                counts.request();
                counts.refuse();
                return None;
            };
            // An answer of some hundred bytes should not wait to be longer.
            let _ = stream.set_nodelay(true);
            Some(Ok(Connection { stream, _held: held }))
        }
    });
    judged.buffer_unordered(LOOKED_AT).filter_map(async |connection| connection).boxed()
}

async fn may_ask(stream: &TcpStream, peer: SocketAddr) -> bool {
    let Ok(here) = stream.local_addr() else { return false };
    tokio::task::spawn_blocking(move || is_own(peer, here)).await.unwrap_or(false)
}

impl Connected for Connection {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> TcpConnectInfo {
        self.stream.connect_info()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

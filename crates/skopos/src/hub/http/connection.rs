//! Who is let in, and how long anybody may take.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep};

use super::peer::is_own;
use super::{Desk, Refusal};

/// Connections at one time: more than there are who ask and watch, since browsers and pools keep some.
const MAX_CONNECTIONS: u64 = 512;

/// The longest head of a request: a query string with many topics.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Lines of a head. Browsers send about twenty.
const MAX_HEADERS: usize = 64;

/// How long the next request may be waited for, and its head may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a client may take nothing of what it asked for, before it is taken for dead.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// Time until the next try, when no connection can be accepted: too many files are open.
const RETRY: Duration = Duration::from_millis(100);

pub(super) async fn accept(listener: TcpListener, desk: Arc<Desk>, routes: Router) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(RETRY).await;
            continue;
        };
        let (desk, routes) = (desk.clone(), routes.clone());
        let Some(held) = desk.counts.connect(MAX_CONNECTIONS) else {
            turn_away(stream, &desk, Refusal::too_many_connections());
            continue;
        };
        tokio::spawn(async move {
            let _held = held;
            let here = desk.at;
            let is_allowed = desk.is_open
                || tokio::task::spawn_blocking(move || is_own(peer, here)).await.unwrap_or(false);
            match is_allowed {
                true => serve(stream, &desk, routes).await,
                false => turn_away(stream, &desk, Refusal::another_user()),
            }
        });
    }
}

async fn serve(stream: TcpStream, desk: &Desk, routes: Router) {
    // Answers are small and asked for one by one.
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(Patient { stream, waits_until: None });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(stream, TowerToHyperService::new(routes))
        .await;
    // What was no request never reached the routes, so it is counted here.
    if served.is_err_and(|e| e.is_parse()) {
        desk.counts.request();
        desk.counts.refuse();
    }
}

/// Answers before anything was asked, and closes.
fn turn_away(mut stream: TcpStream, desk: &Desk, refusal: Refusal) {
    desk.counts.request();
    desk.counts.refuse();
    let answer = refusal.as_text();
    tokio::spawn(async move {
        // Who does not take it at once goes without.
        let told = async {
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), told).await;
    });
}

/// A stream whose other end must take something now and then.
struct Patient {
    stream: TcpStream,
    waits_until: Option<Pin<Box<Sleep>>>,
}

impl Patient {
    fn judge<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.waits_until = None;
            return written;
        }
        let end = || Box::pin(tokio::time::sleep_until(Instant::now() + WRITE_PATIENCE));
        match self.waits_until.get_or_insert_with(end).as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Patient {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Patient {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.judge(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.judge(context, written)
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

//! Serves HTTP connections, and answers rejected ones.

use std::pin::{self, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use futures_util::StreamExt as _;
use hyper::Request;
use hyper::body::Incoming as Body;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, timeout};

use super::context::HttpContext;
use super::guard::{LocalAddress, PeerAddress};
use super::refusal::Refusal;
use crate::listen::{Accepted, Closing, Connection, Incoming, Rejection, is_open};

/// The longest head of a request: room for a query string with many topics.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Maximum number of headers of a request. Browsers send about twenty.
const MAX_HEADERS: usize = 64;

/// Maximum time until the head of the next request is complete.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Time between two looks at whether a client that waits for an answer is still there.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Maximum time for the response to a rejected connection.
const REJECTION_TIMEOUT: Duration = Duration::from_secs(1);

/// Maximum number of rejected connections that get a response at one time. Others are closed without one.
const MAX_REJECTIONS: usize = 64;

pub(super) async fn serve(incoming: Incoming, context: Arc<HttpContext>, routes: Router) {
    let closing = incoming.closing();
    let rejections = Arc::new(Semaphore::new(MAX_REJECTIONS));
    let mut connections = incoming.connections();
    while let Some(accepted) = connections.next().await {
        match accepted {
            Accepted::Admitted(connection) => {
                tokio::spawn(answer(connection, context.clone(), routes.clone(), closing.clone()));
            }
            // A client that does not speak TLS is not answered in clear text.
            Accepted::Rejected(None, _) => {}
            Accepted::Rejected(Some(stream), why) => {
                let Ok(permit) = rejections.clone().try_acquire_owned() else { continue };
                tokio::spawn(async move {
                    let _permit = permit;
                    reject(stream, &refusal(why)).await;
                });
            }
        }
    }
}

/// Returns the response to a rejected connection.
fn refusal(why: Rejection) -> Refusal {
    match why {
        Rejection::TooManyConnections => Refusal::too_many_connections(),
        Rejection::AnotherUser => Refusal::another_user(),
    }
}

/// Answers the requests of one connection.
async fn answer(
    connection: Connection,
    context: Arc<HttpContext>,
    routes: Router,
    closing: Closing,
) {
    let ends = connection.tcp().peer_addr().ok().zip(connection.tcp().local_addr().ok());
    let here = ends.map(|(_, here)| LocalAddress(here.ip()));
    let peer = ends.map(|(peer, _)| PeerAddress(peer.ip()));
    // A client that ends its side may wait for the answer, or be gone. On this machine the kernel knows.
    let local_ends = ends.filter(|(peer, here)| is_open(*peer, *here) == Some(true));
    let running = Arc::<AtomicUsize>::default();
    let counted = running.clone();
    let (caller, client) = (connection.caller().clone(), connection.client());
    let routes = TowerToHyperService::new(routes);
    let service = service_fn(move |mut request: Request<Body>| {
        let about = request.extensions_mut();
        here.map(|here| about.insert(here));
        peer.map(|peer| about.insert(peer));
        about.insert(caller.clone());
        about.insert(client.clone());
        let running = Running::new(counted.clone());
        let answered = routes.call(request);
        async move {
            let _running = running;
            answered.await
        }
    });
    let mut served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .half_close(local_ends.is_some())
        .serve_connection(TokioIo::new(connection), service);
    let (mut closed, mut is_closing) = (pin!(closing.closed()), false);
    let mut looks = tokio::time::interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = loop {
        tokio::select! {
            ended = &mut served => break ended,
            () = &mut closed, if !is_closing => {
                is_closing = true;
                pin::Pin::new(&mut served).graceful_shutdown();
            }
            _ = looks.tick(), if local_ends.is_some() => {
                let is_running = running.load(Ordering::Relaxed) > 0;
                let is_gone = || local_ends.is_some_and(|(peer, here)| is_open(peer, here) == Some(false));
                if is_running && is_gone() {
                    return;
                }
            }
        }
    };
    let Err(e) = ended else { return };
    let connection = served.into_parts().io.into_inner();
    // An idle connection is closed without a response.
    let is_late = e.is_timeout() && connection.has_unanswered_input();
    // Input that is not a request does not reach the routes, so it is counted here.
    if is_late || e.is_parse() {
        context.counts.reject_connection();
    }
    if is_late {
        reject(connection, &Refusal::too_slow("request")).await;
    }
}

/// Counts a request as running until it is dropped.
struct Running(Arc<AtomicUsize>);

impl Running {
    fn new(count: Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends a response without a request, and closes the connection.
async fn reject(mut stream: impl AsyncRead + AsyncWrite + Unpin, refusal: &Refusal) {
    let answer = refusal.as_text();
    // A client that does not read it in time does not get it.
    let _ = timeout(REJECTION_TIMEOUT, async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Closing with unread input would reset the connection and discard the response.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    })
    .await;
}

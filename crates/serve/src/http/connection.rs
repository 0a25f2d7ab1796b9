//! Serves those who come, and tells those who may not.

use std::pin::{self, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::StreamExt as _;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::{Desk, Refusal};
use crate::listen::{Closing, Connection, Incoming, Newcomer, Why};

/// The longest head of a request: a query string with many topics.
const MAX_HEAD_BYTES: usize = 16 * 1024;

/// Lines of a head. Browsers send about twenty.
const MAX_HEADERS: usize = 64;

/// How long the next request may be waited for, and its head may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a client may take to hear that it is turned away.
const FAREWELL: Duration = Duration::from_secs(1);

/// Clients that are told at one time. All others are just closed.
const MAX_FAREWELLS: usize = 64;

pub(super) async fn serve(incoming: Incoming, desk: Arc<Desk>, routes: Router) {
    let closing = incoming.closing();
    let farewells = Arc::new(Semaphore::new(MAX_FAREWELLS));
    let mut newcomers = incoming.newcomers();
    while let Some(newcomer) = newcomers.next().await {
        match newcomer {
            Newcomer::LetIn(connection) => {
                tokio::spawn(answer(connection, desk.clone(), routes.clone(), closing.clone()));
            }
            Newcomer::TurnedAway(stream, why) => {
                let Ok(turn) = farewells.clone().try_acquire_owned() else { continue };
                tokio::spawn(async move {
                    let _turn = turn;
                    turn_away(stream, &refusal(why)).await;
                });
            }
        }
    }
}

fn refusal(why: Why) -> Refusal {
    match why {
        Why::TooMany => Refusal::too_many_connections(),
        Why::AnotherUser => Refusal::another_user(),
    }
}

/// Answers the requests of one connection.
async fn answer(connection: Connection, desk: Arc<Desk>, routes: Router, closing: Closing) {
    let mut served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(connection), TowerToHyperService::new(routes));
    let (mut closed, mut is_closing) = (pin!(closing.closed()), false);
    let ended = loop {
        tokio::select! {
            ended = &mut served => break ended,
            () = &mut closed, if !is_closing => {
                is_closing = true;
                pin::Pin::new(&mut served).graceful_shutdown();
            }
        }
    };
    let Err(e) = ended else { return };
    let connection = served.into_parts().io.into_inner();
    // One that has asked for nothing is only closed.
    let is_late = e.is_timeout() && connection.has_asked();
    // What was no request never reached the routes, so it is counted here.
    if is_late || e.is_parse() {
        desk.counts.turn_away();
    }
    if is_late {
        turn_away(connection, &Refusal::too_slow("request")).await;
    }
}

/// Answers what nobody has asked, and closes.
async fn turn_away(mut stream: impl AsyncRead + AsyncWrite + Unpin, refusal: &Refusal) {
    let answer = refusal.as_text();
    // Who does not take it in time goes without.
    let _ = timeout(FAREWELL, async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // To close on what was sent and not read would take the answer back.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        std::io::Result::Ok(())
    })
    .await;
}

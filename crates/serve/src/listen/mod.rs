//! A door that listens by TCP: where it is, whom it lets in, how many at one time, and how it closes.
//! HTTP and Arrow Flight are both asked through one.
//!
//! # Invariants
//! - Unless an address is given it listens on this machine alone, and lets in whose hub it is, and root:
//!   like the UNIX socket.
//! - Whoever is not let in is counted.
//! - A client that takes nothing of what it asked for is cut off.
//! - When it closes nobody else comes in, and who has asked has a moment to get the answer.

mod args;
mod connection;
mod peer;

pub use args::DoorArgs;
pub(crate) use connection::Connection;

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::watch;

use skopos_hub::config::DoorAt;
use skopos_hub::counts::Counts;
use skopos_term::Failure;

/// How many newcomers are looked at together: whose they are takes some milliseconds to find out.
const LOOKED_AT: usize = 16;

/// How long to wait when nobody can be let in, most often because too many files are open.
const PAUSE: Duration = Duration::from_millis(100);

/// How long answers that are under way may hold up a door that closes.
const GRACE: Duration = Duration::from_secs(1);

/// What kind of door it is.
pub(crate) struct Kind {
    /// With which its URL begins.
    pub scheme: &'static str,
    /// The option that says where it is.
    pub option: &'static str,
    /// Connections at one time.
    pub most: u64,
}

/// A door, until it is dropped.
pub(crate) enum TcpDoor {
    /// It listens.
    Open(Open),
    /// Nobody wants it.
    Unwanted,
    /// It is not where it usually is, because somebody else has that port.
    Elsewhere(Failure),
}

/// A door that listens.
pub(crate) struct Open {
    url: String,
    closing: watch::Sender<bool>,
    /// Nothing is ever sent: it ends when the last connection does.
    inside: Receiver<Infallible>,
}

impl TcpDoor {
    /// Listens there, or where it is usual, and has `serve` do what is to be done for newcomers.
    ///
    /// # Errors
    /// The address that was asked for cannot be had.
    pub(crate) fn open<const PORT: u16, F>(
        kind: &Kind,
        asked: Option<DoorAt<PORT>>,
        counts: Arc<Counts>,
        runtime: &Handle,
        serve: impl FnOnce(Incoming) -> F,
    ) -> Result<Self, Failure>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (at, is_open) = match asked {
            Some(DoorAt::Nowhere) => return Ok(Self::Unwanted),
            Some(DoorAt::At(at)) => (at, true),
            None => (DoorAt::<PORT>::USUAL, false),
        };
        let Kind { scheme, option, most } = *kind;
        let (listener, at) = match bind(at, runtime) {
            Ok(bound) => bound,
            Err(e) => {
                let failure = Failure::new(format!("cannot listen at {scheme}://{at}")).because(&e);
                let failure =
                    failure.hint(format!("name another with `{option}`, or `{option} none`"));
                return if is_open { Err(failure) } else { Ok(Self::Elsewhere(failure)) };
            }
        };
        let (closing, is_closing) = watch::channel(false);
        let (held, inside) = channel();
        let judge = Judge { at, is_open, most, counts, held };
        let incoming = Incoming { listener, judge: Arc::new(judge), closing: Closing(is_closing) };
        runtime.spawn(serve(incoming));
        Ok(Self::Open(Open { url: format!("{scheme}://{at}"), closing, inside }))
    }

    /// Where it is asked.
    pub(crate) fn url(&self) -> Option<&str> {
        if let Self::Open(open) = self { Some(&open.url) } else { None }
    }

    /// Why it is not where it usually is.
    pub(crate) fn warning(&self) -> Option<&Failure> {
        if let Self::Elsewhere(failure) = self { Some(failure) } else { None }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        // Either all are gone, or time is up: then they go with the runtime.
        let _ = self.inside.recv_timeout(GRACE);
    }
}

fn bind(at: SocketAddr, runtime: &Handle) -> std::io::Result<(TcpListener, SocketAddr)> {
    let listener = StdListener::bind(at)?;
    listener.set_nonblocking(true)?;
    let at = listener.local_addr()?;
    let _inside = runtime.enter();
    Ok((TcpListener::from_std(listener)?, at))
}

/// Tells that a door closes.
#[derive(Clone)]
pub(crate) struct Closing(watch::Receiver<bool>);

impl Closing {
    /// Waits until it does.
    pub(crate) async fn closed(mut self) {
        // Who would say so is gone: that is closed, too.
        let _ = self.0.wait_for(|is_closing| *is_closing).await;
    }
}

/// Whoever comes to a door that listens.
pub(crate) struct Incoming {
    listener: TcpListener,
    judge: Arc<Judge>,
    closing: Closing,
}

/// Somebody who came, and was counted.
pub(crate) enum Newcomer {
    /// May ask.
    LetIn(Connection),
    /// May not, and was counted as one who was refused.
    TurnedAway(TcpStream, Why),
}

/// Why somebody may not ask.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    TooMany,
    AnotherUser,
}

impl Incoming {
    /// Where the door is.
    pub(crate) fn at(&self) -> SocketAddr {
        self.judge.at
    }

    /// Tells when it closes.
    pub(crate) fn closing(&self) -> Closing {
        self.closing.clone()
    }

    /// All who come, until the door closes.
    pub(crate) fn newcomers(self) -> BoxStream<'static, Newcomer> {
        let Self { listener, judge, closing } = self;
        let came = stream::unfold(listener, |listener| async move {
            loop {
                match listener.accept().await {
                    Ok(came) => return Some((came, listener)),
                    Err(_) => tokio::time::sleep(PAUSE).await,
                }
            }
        });
        let judged = came.take_until(closing.closed()).map(move |(stream, peer)| {
            let judge = judge.clone();
            async move { judge.newcomer(stream, peer).await }
        });
        judged.buffer_unordered(LOOKED_AT).boxed()
    }
}

/// Says who is let in.
struct Judge {
    at: SocketAddr,
    /// Whether an address was given: then whoever reaches it may ask.
    is_open: bool,
    most: u64,
    counts: Arc<Counts>,
    held: Sender<Infallible>,
}

impl Judge {
    async fn newcomer(&self, stream: TcpStream, peer: SocketAddr) -> Newcomer {
        // Counted before it is known whose it is, so that those who wait for that are bounded, too.
        let counted = self.counts.connect(self.most);
        let why = match counted {
            None => Why::TooMany,
            Some(counted) if self.is_open || is_own(&stream, peer).await => {
                return Newcomer::LetIn(Connection::new(stream, counted, self.held.clone()));
            }
            Some(_) => Why::AnotherUser,
        };
        self.counts.turn_away();
        Newcomer::TurnedAway(stream, why)
    }
}

async fn is_own(stream: &TcpStream, peer: SocketAddr) -> bool {
    let Ok(here) = stream.local_addr() else { return false };
    tokio::task::spawn_blocking(move || peer::is_own(peer, here)).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    /// Says goodbye to everybody when it closes, and not at once.
    async fn serve(incoming: Incoming) {
        let closing = incoming.closing();
        let mut newcomers = incoming.newcomers();
        while let Some(newcomer) = newcomers.next().await {
            let Newcomer::LetIn(mut connection) = newcomer else { continue };
            let closed = closing.clone().closed();
            tokio::spawn(async move {
                closed.await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                connection.write_all(b"bye").await
            });
        }
    }

    #[test]
    fn one_too_many_is_turned_away_and_who_is_inside_is_answered_before_the_door_closes() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let kind = Kind { scheme: "test", option: "--test", most: 1 };
        let at = Some(DoorAt::<1>::At("127.0.0.1:0".parse().expect("an address")));
        let counts = Arc::<Counts>::default();
        let door = TcpDoor::open(&kind, at, counts.clone(), runtime.handle(), serve);
        let door = door.expect("a port");
        let at = door.url().and_then(|url| url.strip_prefix("test://")).expect("open").to_owned();
        let connect = || std::net::TcpStream::connect(&at);
        let count = |what: usize| counts.all()[what].1;
        let (mut inside, mut text) = (connect().expect("it listens"), String::new());
        while count(4) == 0 {
            std::thread::yield_now();
        }
        let mut other = connect().expect("it listens");
        // Only ends a hang.
        other.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
        assert_eq!(other.read_to_string(&mut text).expect("an end"), 0);
        assert_eq!((count(0), count(1), count(4)), (1, 1, 1), "asked, refused, open");
        drop(door);
        drop(runtime);
        inside.read_to_string(&mut text).expect("an end");
        assert_eq!(text, "bye");
        assert!(connect().is_err(), "nobody listens");
    }
}

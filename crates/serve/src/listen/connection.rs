//! An admitted connection. It is counted until it is dropped.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use tokio_rustls::server::TlsStream;

use super::idle::{Client, Connections, Open};
use super::proof::Proof;
use skopos_access::Caller;
use skopos_hub::counts::OpenConnection;

/// Maximum time until the first bytes of a client: a pool opens connections to use them.
const FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum time that a write may wait for the client, which is taken for dead afterwards.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time between two looks at whether the certificate of a node is still valid: each checks a signature.
const PROVE_EVERY: Duration = Duration::from_secs(60);

/// A stream in clear text or under TLS.
pub(crate) enum Stream {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    /// Returns the socket if it is in clear text.
    pub(super) fn into_clear(self) -> Option<TcpStream> {
        match self {
            Self::Clear(stream) => Some(stream),
            Self::Tls(_) => None,
        }
    }

    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Clear(stream) => stream,
            Self::Tls(stream) => stream.get_ref().0,
        }
    }
}

/// Calls a method of the stream, whichever it is.
macro_rules! on_stream {
    ($stream:expr, $method:ident($($argument:expr),*)) => {
        match $stream {
            Stream::Clear(stream) => Pin::new(stream).$method($($argument),*),
            Stream::Tls(stream) => Pin::new(&mut **stream).$method($($argument),*),
        }
    };
}

/// A stream with a timeout for writes.
pub(crate) struct Connection {
    stream: Stream,
    caller: Caller,
    /// The certificate of a node, with the time of the next look at whether it is valid.
    proof: Option<(Proof, Pin<Box<Sleep>>)>,
    write_deadline: Option<Pin<Box<Sleep>>>,
    /// Ends a connection on which too few bytes have arrived; `None` once enough have.
    first_bytes: Option<Pin<Box<Sleep>>>,
    /// Number of bytes that are missing.
    missing: u64,
    has_unanswered_input: bool,
    activity: Open,
    end: Arc<End>,
    _counted: OpenConnection,
    _open: Sender<Infallible>,
}

/// Ends a connection from outside.
#[derive(Default)]
struct End {
    is_due: AtomicBool,
    reader: AtomicWaker,
}

impl Connection {
    /// Wraps an admitted stream, and adds it to the open connections. The listener waits for `open` to be dropped when it
    /// closes.
    pub(super) fn new(
        stream: Stream,
        (caller, proof, first_bytes): (Caller, Option<Proof>, u64),
        counted: OpenConnection,
        (open, connections): (Sender<Infallible>, &Connections),
    ) -> Self {
        let end = Arc::<End>::default();
        let ending = end.clone();
        let activity = connections.add(caller == Caller::Stranger, move || {
            ending.is_due.store(true, Ordering::SeqCst);
            ending.reader.wake();
        });
        // Answers are small and follow single requests, so they are sent without delay.
        let _ = stream.tcp().set_nodelay(true);
        Self {
            stream,
            caller,
            proof: proof.map(|proof| (proof, Box::pin(sleep(PROVE_EVERY)))),
            write_deadline: None,
            first_bytes: Some(Box::pin(sleep(FIRST_BYTES_TIMEOUT))),
            missing: first_bytes,
            has_unanswered_input: false,
            activity,
            end,
            _counted: counted,
            _open: open,
        }
    }

    /// Returns the socket of the stream.
    pub(crate) fn tcp(&self) -> &TcpStream {
        self.stream.tcp()
    }

    /// Returns the caller, as far as the connection shows it.
    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the client, for whoever finds out who it is.
    pub(crate) fn client(&self) -> Client {
        self.activity.client()
    }

    /// Returns true if input arrived since the last write.
    pub(crate) fn has_unanswered_input(&self) -> bool {
        self.has_unanswered_input
    }

    /// Returns false once the certificate of the node is not valid any more.
    fn is_proved(&mut self, context: &mut Context<'_>) -> bool {
        let Some((proof, next)) = &mut self.proof else { return true };
        while next.as_mut().poll(context).is_ready() {
            if proof.names().is_none() {
                return false;
            }
            *next = Box::pin(sleep(PROVE_EVERY));
        }
        true
    }

    /// Ends a write that waits for longer than the timeout.
    fn limit(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.write_deadline = None;
            self.has_unanswered_input = false;
            self.activity.sent();
            return written;
        }
        let deadline = || Box::pin(sleep(WRITE_TIMEOUT));
        match self.write_deadline.get_or_insert_with(deadline).as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = on_stream!(&mut self.stream, poll_read(context, buffer));
        self.end.reader.register(context.waker());
        if self.end.is_due.load(Ordering::SeqCst) || !self.is_proved(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if buffer.filled().len() > before {
            self.activity.received();
            self.has_unanswered_input = true;
            self.missing = self.missing.saturating_sub((buffer.filled().len() - before) as u64);
            if self.missing == 0 {
                self.first_bytes = None;
            }
        }
        if read.is_pending()
            && let Some(first_bytes) = &mut self.first_bytes
            && first_bytes.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = on_stream!(&mut self.stream, poll_write(context, bytes));
        self.limit(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = on_stream!(&mut self.stream, poll_write_vectored(context, parts));
        self.limit(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Clear(stream) => stream.is_write_vectored(),
            Stream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(&mut self.stream, poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        on_stream!(&mut self.stream, poll_shutdown(context))
    }
}

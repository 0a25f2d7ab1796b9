//! One connection, counted for as long as it is open.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

use skopos_hub::counts::Connected;

/// How long a client may take nothing of what it asked for, before it is taken for dead.
const WRITE_PATIENCE: Duration = Duration::from_secs(60);

/// A stream whose other end must take something now and then.
pub(crate) struct Connection {
    stream: TcpStream,
    waits_until: Option<Pin<Box<Sleep>>>,
    has_asked: bool,
    _counted: Connected,
    _inside: Sender<Infallible>,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, counted: Connected, inside: Sender<Infallible>) -> Self {
        // Answers are small and asked for one by one: none should wait to be longer.
        let _ = stream.set_nodelay(true);
        Self { stream, waits_until: None, has_asked: false, _counted: counted, _inside: inside }
    }

    /// The stream itself.
    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Whether something came since something was last sent.
    pub(crate) fn has_asked(&self) -> bool {
        self.has_asked
    }

    fn judge(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.waits_until = None;
            self.has_asked = false;
            return written;
        }
        let end = || Box::pin(sleep(WRITE_PATIENCE));
        match self.waits_until.get_or_insert_with(end).as_mut().poll(context) {
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
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.has_asked |= buffer.filled().len() > before;
        read
    }
}

impl AsyncWrite for Connection {
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

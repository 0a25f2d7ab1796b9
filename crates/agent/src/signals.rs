//! Signals that end the agent, as a readable descriptor.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use skopos_term::Failure;

/// A socket that is readable after a signal.
pub struct Signals(pub UnixStream);

impl Signals {
    /// Catches SIGINT, SIGTERM and SIGHUP.
    ///
    /// # Errors
    /// A handler cannot be installed.
    pub fn catch() -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::new("cannot catch signals").because(&e);
        let (read, write) = UnixStream::pair().map_err(failed)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            pipe::register(signal, write.try_clone().map_err(failed)?).map_err(failed)?;
        }
        Ok(Self(read))
    }

    /// Sleeps until a signal comes.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn wait(&self) -> Result<(), Failure> {
        let mut byte = [0];
        let read = (&self.0).read(&mut byte);
        read.map(drop).map_err(|e| Failure::new("cannot wait").because(&e))
    }

    /// Sleeps until a signal comes, but not longer than `time`. Returns true if a signal came.
    ///
    /// # Errors
    /// The socket cannot be read.
    pub fn wait_for(&self, time: std::time::Duration) -> Result<bool, Failure> {
        use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        let failed = |e: std::io::Error| Failure::new("cannot wait").because(&e);
        self.0.set_read_timeout(Some(time)).map_err(failed)?;
        let mut read = (&self.0).read(&mut [0]);
        while read.as_ref().is_err_and(|e| e.kind() == Interrupted) {
            // The signal itself interrupts a read with a timeout (signal(7)), and has written its byte.
            read = (&self.0).read(&mut [0]);
        }
        self.0.set_read_timeout(None).map_err(failed)?;
        match read {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.kind(), WouldBlock | TimedOut) => Ok(false),
            Err(e) => Err(failed(e)),
        }
    }

    /// Returns the descriptor that is readable after a signal.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

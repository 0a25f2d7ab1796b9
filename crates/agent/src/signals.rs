//! Signals that end the agent, as a readable descriptor.

use std::io::Read as _;
use std::os::fd::AsFd as _;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use skopos_term::Failure;

/// Readable once a signal has come.
pub struct Signals(pub UnixStream);

impl Signals {
    /// Catches SIGINT, SIGTERM and SIGHUP.
    pub fn catch() -> Result<Self, Failure> {
        let failed = |e: std::io::Error| Failure::new("cannot catch signals").because(&e);
        let (read, write) = UnixStream::pair().map_err(failed)?;
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            pipe::register(signal, write.try_clone().map_err(failed)?).map_err(failed)?;
        }
        Ok(Self(read))
    }

    /// Sleeps until one comes.
    pub fn wait(&self) -> Result<(), Failure> {
        let mut byte = [0];
        let read = (&self.0).read(&mut byte);
        read.map(drop).map_err(|e| Failure::new("cannot wait").because(&e))
    }

    /// Sleeps until one comes, but not longer; whether one came.
    pub fn come_within(&self, time: std::time::Duration) -> Result<bool, Failure> {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        let failed = |e: std::io::Error| Failure::new("cannot wait").because(&e);
        self.0.set_read_timeout(Some(time)).map_err(failed)?;
        let read = (&self.0).read(&mut [0]);
        self.0.set_read_timeout(None).map_err(failed)?;
        match read {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.kind(), WouldBlock | TimedOut) => Ok(false),
            Err(e) => Err(failed(e)),
        }
    }

    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};

use crate::Error;

/// Ends [`poll`](super::poll) from another thread.
#[derive(Clone, Debug)]
pub struct Stop(Arc<OwnedFd>);

impl Stop {
    /// Makes a handle.
    ///
    /// # Errors
    /// The process has too many open files.
    pub fn new() -> Result<Self, Error> {
        let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let descriptor = made.map_err(|e| Error::system("make an eventfd")(e.into()))?;
        Ok(Self(Arc::new(descriptor)))
    }

    /// Asks the poller to end. It ends when its current turn ends.
    pub fn stop(&self) {
        // A full counter means that it is stopped already.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

impl AsFd for Stop {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

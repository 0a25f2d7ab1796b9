//! The thread of a part: it works when a socket is readable or a time has passed, and ends with the part.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// The pause after work, in which datagrams gather: they are taken 200 times a second at most.
const PAUSE: Duration = Duration::from_millis(5);

/// The pause after work that was refused, in times of that work. A flood of forged datagrams so costs at most a fifth of a
/// core; the kernel drops and counts the rest.
const FLOOD_PAUSES: u32 = 4;

/// The pause after a failure, which would return at once.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// Stack of the thread: it reads into buffers on the heap.
const STACK_BYTES: usize = 512 << 10;

/// The outcome of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// It was of use.
    Useful,
    /// Most of it was refused.
    Refused,
    /// It failed.
    Failed,
}

/// A running thread. It ends when this value is dropped.
pub(super) struct Worker {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread that works whenever `socket` is readable.
    ///
    /// # Errors
    /// There are no descriptors or threads left.
    pub(super) fn serve(
        socket: &impl AsFd,
        work: impl FnMut() -> Work + Send + 'static,
    ) -> std::io::Result<Self> {
        let socket = socket.as_fd().try_clone_to_owned()?;
        Self::start(Some(socket), PAUSE, work)
    }

    /// Starts a thread that works each time that `interval` has passed.
    ///
    /// # Errors
    /// There are no descriptors or threads left.
    pub(super) fn each(
        interval: Duration,
        work: impl FnMut() -> Work + Send + 'static,
    ) -> std::io::Result<Self> {
        Self::start(None, interval, work)
    }

    fn start(
        socket: Option<OwnedFd>,
        pause: Duration,
        mut work: impl FnMut() -> Work + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let own = Arc::clone(&stop);
        let run = move || {
            while socket.as_ref().is_none_or(|socket| readable(socket, &own)) {
                let begun = Instant::now();
                let pause = match work() {
                    Work::Useful => pause,
                    Work::Refused => pause.max(begun.elapsed() * FLOOD_PAUSES),
                    Work::Failed => FAILURE_PAUSE,
                };
                if is_stopped(&own, pause) {
                    return;
                }
            }
        };
        let builder = thread::Builder::new().name("skopos-net".into()).stack_size(STACK_BYTES);
        Ok(Self { stop, thread: Some(builder.spawn(run)?) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The counter of an eventfd takes one.
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until the socket is readable. Returns false if the thread shall end.
fn readable(socket: &OwnedFd, stop: &OwnedFd) -> bool {
    let mut fds = [
        PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN),
    ];
    match poll(&mut fds, None) {
        Ok(_) => fds[1].revents().is_empty(),
        Err(rustix::io::Errno::INTR) => true,
        Err(_) => false,
    }
}

/// Waits for `time`. Returns true if the thread shall end.
fn is_stopped(stop: &OwnedFd, time: Duration) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(stop.as_fd(), PollFlags::IN)];
    let time = Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    };
    matches!(poll(&mut fds, Some(&time)), Ok(1..))
}

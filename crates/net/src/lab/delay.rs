//! A delay line: carries frames from one TAP interface to another, each after a fixed time.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::Error;

/// The most frames on their way in one direction: 100 ms of full frames at 1 Gbit/s. More are dropped and counted.
const MAX_FRAMES: usize = 8192;

/// The largest frame.
const FRAME_BYTES: usize = 65_536;

/// The longest sleep, after which the line looks whether it shall end.
const PATIENCE: Duration = Duration::from_millis(100);

/// A running line. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct DelayLine {
    stop: Arc<AtomicBool>,
    delay_ns: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// One direction.
struct Direction {
    from: File,
    to: File,
    frames: VecDeque<(Instant, Box<[u8]>)>,
}

impl DelayLine {
    /// Carries frames between two interfaces.
    ///
    /// # Errors
    /// The descriptors cannot be duplicated, or there is no thread.
    pub(super) fn start(ends: [File; 2], delay: Duration) -> Result<Self, Error> {
        let clone = |file: &File| file.try_clone().map_err(Error::system("duplicate a descriptor"));
        let [a, b] = ends;
        let mut directions = [
            Direction { from: clone(&a)?, to: clone(&b)?, frames: VecDeque::new() },
            Direction { from: b, to: a, frames: VecDeque::new() },
        ];
        let (stop, dropped) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let delay_ns = Arc::new(AtomicU64::new(nanos(delay)));
        let (own_stop, own_dropped, own_delay) = (stop.clone(), dropped.clone(), delay_ns.clone());
        let work = move || {
            let mut buffer = vec![0; FRAME_BYTES];
            while !own_stop.load(Ordering::Relaxed) {
                if carry(&mut directions, &own_delay, &mut buffer, &own_dropped).is_err() {
                    // An interface is gone, and the lab with it.
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("delay-line".to_owned()).spawn(work);
        let thread = Some(thread.map_err(Error::system("start a thread"))?);
        Ok(Self { stop, delay_ns, dropped, thread })
    }

    /// Changes the delay of frames that arrive from now on. Frames keep their order, so none overtakes one that is on its
    /// way.
    pub(super) fn set_delay(&self, delay: Duration) {
        self.delay_ns.store(nanos(delay), Ordering::Relaxed);
    }

    /// Number of frames that were dropped because too many were on their way, or because the interface did not
    /// take them.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread panics only by a fault of its own, which must not hide another.
            let _ = thread.join();
        }
    }
}

fn nanos(delay: Duration) -> u64 {
    u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits for frames or for the time of the next one, and moves what is due.
fn carry(
    directions: &mut [Direction; 2],
    delay_ns: &AtomicU64,
    buffer: &mut [u8],
    dropped: &AtomicU64,
) -> io::Result<()> {
    let due = directions.iter().filter_map(|d| d.frames.front().map(|(due, _)| *due)).min();
    let wait = due.map_or(PATIENCE, |due| due.saturating_duration_since(Instant::now()));
    let wait = Timespec::try_from(wait.min(PATIENCE)).map_err(io::Error::other)?;
    let mut fds = [
        PollFd::from_borrowed_fd(directions[0].from.as_fd(), PollFlags::IN),
        PollFd::from_borrowed_fd(directions[1].from.as_fd(), PollFlags::IN),
    ];
    match poll(&mut fds, Some(&wait)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    // Frames that arrived while this thread slept have the delay of now.
    let delay = Duration::from_nanos(delay_ns.load(Ordering::Relaxed));
    for direction in directions {
        take(direction, delay, buffer, dropped)?;
        give(direction, dropped)?;
    }
    Ok(())
}

fn take(
    direction: &mut Direction,
    delay: Duration,
    buffer: &mut [u8],
    dropped: &AtomicU64,
) -> io::Result<()> {
    loop {
        match (&direction.from).read(buffer) {
            Ok(_) if direction.frames.len() >= MAX_FRAMES => {
                dropped.fetch_add(1, Ordering::Relaxed);
            }
            Ok(bytes) => {
                direction.frames.push_back((Instant::now() + delay, buffer[..bytes].into()));
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

fn give(direction: &mut Direction, dropped: &AtomicU64) -> io::Result<()> {
    let now = Instant::now();
    while direction.frames.front().is_some_and(|(due, _)| *due <= now) {
        let Some((_, frame)) = direction.frames.pop_front() else { break };
        match (&direction.to).write(&frame) {
            Ok(_) => {}
            // An interface that is down takes no frame, as a cable that is pulled.
            Err(e)
                if matches!(e.raw_os_error(), Some(libc::EIO | libc::EAGAIN | libc::ENOBUFS)) =>
            {
                dropped.fetch_add(1, Ordering::Relaxed);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

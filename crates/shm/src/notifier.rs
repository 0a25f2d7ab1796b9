//! A descriptor that becomes readable when anything is published: for programs that wait with `poll` or `epoll`.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use skopos_model::unpoisoned;

use crate::error::Error;
use crate::host::{Host, SegmentVersions};
use crate::segment::Segment;
use crate::sync::AcquireLoad as _;
use crate::sys;
use crate::wait::Bell;

/// The longest sleep of the thread: it looks for new publishers then, and ends when the notifier is dropped.
const TURN: Duration = Duration::from_millis(100);

/// A descriptor that is readable while something was published, registered or unregistered since the last
/// [`clear`](Self::clear). A thread of this process waits in its place, as cheaply as [`Host::wait`].
///
/// ```
/// # use skopos_shm::{Host, Publisher};
/// # let dir = std::env::temp_dir().join(format!("skopos-doc-notifier-{}", std::process::id()));
/// # let publisher = Publisher::builder("my-service").dir(&dir).create()?;
/// # let mut depth = publisher.writer::<u64>("n01/my-service/queue/depth")?;
/// let notifier = Host::open_dirs(vec![dir.clone()])?.notifier()?;
/// // Give `notifier.as_fd()` to `epoll`. When it is readable, clear it first and read the values then:
/// depth.publish(1)?;
/// notifier.clear();
/// # drop(depth); drop(publisher); std::fs::remove_dir_all(&dir).ok();
/// # Ok::<(), skopos_shm::Error>(())
/// ```
pub struct Notifier {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    event: File,
    is_ended: AtomicBool,
    state: Mutex<State>,
    cleared: Condvar,
}

struct State {
    /// True from an event until it is cleared: the thread rests meanwhile.
    is_raised: bool,
    /// The segments and the epoch of each since the last clearing. A flag that was raised then makes the next publish
    /// change it.
    armed: Vec<(Segment, u32)>,
}

impl State {
    fn arm(&mut self) {
        for (segment, seen) in &mut self.armed {
            let epoch = &segment.live().epoch;
            if let Some(flag) = segment.flag(None) {
                *seen = Bell { flag, epoch }.raise();
            }
            Segment::announce(std::slice::from_ref(segment));
        }
    }

    /// Returns true if anything was published since the last clearing.
    fn has_news(&self) -> bool {
        self.armed.iter().any(|(segment, seen)| {
            // SYNC: pairs with the Release in `Bell::ring`.
            segment.live().epoch.load_acquire() != *seen
        })
    }

    /// Returns true if a publisher cannot tell this process: the program then looks ten times a second.
    fn is_deaf(&self) -> bool {
        self.armed.iter().any(|(segment, _)| segment.flag(None).is_none())
    }
}

impl Host {
    /// Makes a descriptor to wait with `poll` or `epoll` for anything that is published on this machine, also by
    /// publishers that start later.
    ///
    /// # Errors
    /// [`Error::Io`] if the system has no descriptor or no thread left.
    pub fn notifier(self) -> Result<Notifier, Error> {
        let failed = |what| Error::io(std::path::Path::new("eventfd"), what);
        let event = sys::event().map_err(failed("cannot make it"))?;
        let shared = Arc::new(Shared {
            event,
            is_ended: AtomicBool::new(false),
            state: Mutex::new(State { is_raised: false, armed: self.armed() }),
            cleared: Condvar::new(),
        });
        unpoisoned(shared.state.lock()).arm();
        let mut notifier = Notifier { shared: Arc::clone(&shared), thread: None };
        let run = move || watch(self, &shared);
        let thread = std::thread::Builder::new().name("skopos-notifier".to_owned()).spawn(run);
        notifier.thread = Some(thread.map_err(failed("cannot start its thread"))?);
        Ok(notifier)
    }
}

impl Notifier {
    /// Makes the descriptor unreadable until the next event. Call it before reading the values: an event in between
    /// is then seen.
    pub fn clear(&self) {
        let mut state = unpoisoned(self.shared.state.lock());
        // The descriptor does not block: without an event there is nothing to read.
        let _ = (&self.shared.event).read(&mut [0; 8]);
        state.is_raised = false;
        state.arm();
        self.shared.cleared.notify_all();
    }
}

impl AsFd for Notifier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.event.as_fd()
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.shared.is_ended.store(true, Ordering::Relaxed);
        self.clear();
        if let Some(thread) = self.thread.take() {
            // It ends within a turn, and cannot fail.
            let _ = thread.join();
        }
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Notifier({:?})", self.shared.event)
    }
}

fn watch(mut host: Host, shared: &Shared) {
    let is_ended = || shared.is_ended.load(Ordering::Relaxed);
    let has_news = || unpoisoned(shared.state.lock()).has_news();
    let mut versions = host.changes(&SegmentVersions::default()).unwrap_or_default();
    while !is_ended() {
        let mut is_news = host.wait(TURN, || is_ended() || has_news());
        // A directory that cannot be read now may be readable later.
        let _ = host.refresh();
        let mut state = unpoisoned(shared.state.lock());
        if let Some(now) = host.changes(&versions) {
            (versions, is_news) = (now, true);
            state.armed = host.armed();
        }
        if !is_news && !state.is_deaf() {
            continue;
        }
        state.is_raised = true;
        let _ = (&shared.event).write(&1u64.to_ne_bytes());
        while state.is_raised && !is_ended() {
            state = unpoisoned(shared.cleared.wait(state));
        }
    }
}

impl Host {
    fn armed(&self) -> Vec<(Segment, u32)> {
        // SYNC: pairs with the Release in `Bell::ring`.
        let epoch = |segment: &Segment| segment.live().epoch.load_acquire();
        self.segments().iter().map(|segment| (segment.clone(), epoch(segment))).collect()
    }
}

//! What was asked through each door, counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skopos_model::schema::{self, Metric};

/// Of one door.
#[derive(Debug, Default)]
pub struct Counts {
    requests: AtomicU64,
    refused: AtomicU64,
    cancelled: AtomicU64,
    running: AtomicU64,
    connections: AtomicU64,
}

/// One connection, for as long as it is kept.
#[derive(Debug)]
pub struct Connected(Arc<Counts>);

/// One question that is being answered, for as long as it is kept.
#[derive(Debug)]
pub struct Running {
    counts: Arc<Counts>,
    is_done: bool,
}

impl Counts {
    /// A request came.
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Somebody is not let in, which counts as a request that is refused.
    pub fn turn_away(&self) {
        self.request();
        self.refuse();
    }

    /// It was refused.
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// A question is being answered until [`Running::done`]; if that is never said it was given up.
    pub fn run(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::Relaxed);
        Running { counts: self.clone(), is_done: false }
    }

    /// A question stands. To go away is how it ends, so it is never given up.
    pub fn stand(self: &Arc<Self>) -> Running {
        let mut standing = self.run();
        standing.is_done = true;
        standing
    }

    /// A connection is open; `None` if there are `most` already.
    pub fn connect(self: &Arc<Self>, most: u64) -> Option<Connected> {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let connected = Connected(self.clone());
        (before < most).then_some(connected)
    }

    /// Each metric with its number now.
    pub fn all(&self) -> [(&'static Metric, u64); 5] {
        use schema::self_door as of;
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            (&of::REQUESTS_TOTAL, now(&self.requests)),
            (&of::REQUESTS_REFUSED_TOTAL, now(&self.refused)),
            (&of::REQUESTS_CANCELLED_TOTAL, now(&self.cancelled)),
            (&of::REQUESTS_RUNNING, now(&self.running)),
            (&of::CONNECTIONS, now(&self.connections)),
        ]
    }
}

impl Running {
    /// The question was answered.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.counts.running.fetch_sub(1, Ordering::Relaxed);
        if !self.is_done {
            self.counts.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The counts of all doors, by name.
pub type Doors = Vec<(&'static str, Arc<Counts>)>;

//! Request counts of each listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use skopos_model::schema::{self, Metric};

/// Requests and connections of one listener.
#[derive(Debug, Default)]
pub struct Counts {
    requests: AtomicU64,
    refused: AtomicU64,
    cancelled: AtomicU64,
    running: AtomicU64,
    connections: AtomicU64,
}

/// Counts one connection as open until it is dropped.
#[derive(Debug)]
pub struct OpenConnection(Arc<Counts>);

/// Counts one statement as running until it is dropped.
#[derive(Debug)]
pub struct RunningQuery {
    counts: Arc<Counts>,
    is_done: bool,
}

impl Counts {
    /// Counts a request.
    pub fn request(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a rejected connection as one request that is refused.
    pub fn reject_connection(&self) {
        self.request();
        self.refuse();
    }

    /// Counts a refused request, beside [`request`](Self::request).
    pub fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a running statement until the returned guard is dropped. Without [`RunningQuery::done`] it counts as
    /// cancelled.
    pub fn run(self: &Arc<Self>) -> RunningQuery {
        self.running.fetch_add(1, Ordering::Relaxed);
        RunningQuery { counts: self.clone(), is_done: false }
    }

    /// Counts a query question as running. It ends when its client closes the connection, so it never counts as
    /// cancelled.
    pub fn stand(self: &Arc<Self>) -> RunningQuery {
        let mut query = self.run();
        query.is_done = true;
        query
    }

    /// Counts an open connection; `None` if `most` connections are open already.
    pub fn connect(self: &Arc<Self>, most: u64) -> Option<OpenConnection> {
        let before = self.connections.fetch_add(1, Ordering::Relaxed);
        let connection = OpenConnection(self.clone());
        (before < most).then_some(connection)
    }

    /// Returns the number of open connections.
    pub fn open(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// Returns each metric with its current number.
    pub fn all(&self) -> [(&'static Metric, u64); 5] {
        use schema::self_listener as metrics;
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            (&metrics::REQUESTS_TOTAL, now(&self.requests)),
            (&metrics::REQUESTS_REFUSED_TOTAL, now(&self.refused)),
            (&metrics::REQUESTS_CANCELLED_TOTAL, now(&self.cancelled)),
            (&metrics::REQUESTS_RUNNING, now(&self.running)),
            (&metrics::CONNECTIONS, now(&self.connections)),
        ]
    }
}

impl RunningQuery {
    /// Marks the statement as answered.
    pub fn done(mut self) {
        self.is_done = true;
    }
}

impl Drop for RunningQuery {
    fn drop(&mut self) {
        self.counts.running.fetch_sub(1, Ordering::Relaxed);
        if !self.is_done {
            self.counts.cancelled.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The counts of all listeners, each with its name in facts.
pub type ListenerCounts = Vec<(&'static str, Arc<Counts>)>;

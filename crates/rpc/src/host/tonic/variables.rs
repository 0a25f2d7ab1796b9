//! Performance variables of tonic, hyper and tokio.
//!
//! | name | class | bound to | meaning |
//! |---|---|---|---|
//! | `tonic_server_requests_in_flight` | LEVEL | process | requests that arrived and have no response yet |
//! | `tonic_server_requests_blocked` | LEVEL | process | those of them that wait for something: no thread polls them |
//! | `tonic_client_requests_in_flight` | LEVEL | process | calls without a response |
//! | `tonic_server_requests_total`, `tonic_client_requests_total` | COUNTER | process | requests so far |
//! | `tonic_bytes_received_total`, `tonic_bytes_sent_total` | COUNTER | process | bytes of bodies |
//! | `tokio_queue_depth` | LEVEL | process | tasks that are runnable and wait in the runtime's global queue |
//! | `tokio_tasks_alive` | LEVEL | process | tasks that were spawned and have not ended |
//! | `tokio_workers` | SIZE | process | threads that run tasks |
//! | `request_bytes`, `response_bytes` | SIZE | request | length of the bodies |
//! | `requests_in_flight`, `requests_blocked`, `queue_depth`, `tasks_alive` | LEVEL | request | the levels above when the handler started |
//!
//! The stable interface of tokio has the depth of the global queue alone; tasks in the queue of a worker are counted as
//! alive.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use tokio::runtime::{Handle, RuntimeMetrics};

use crate::error::Error;
use crate::pvar::{Pvar, PvarClass};
use crate::recorder::{Recorder, Span, Stage};

/// Number of parts of a count, a power of two: as many as there are threads that often count at one time.
const PARTS: usize = 16;

/// A part of the counts, in cache lines of its own: the next line comes along with one.
#[derive(Debug)]
#[repr(align(128))]
struct Part {
    begun: AtomicU64,
    ended: AtomicU64,
    polls_begun: AtomicU64,
    polls_ended: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

/// Levels and counters of all layers of one side in this process. Each thread counts in one of several parts, because threads
/// that count in one memory cell wait for each other; a reader adds the parts.
#[derive(Debug)]
pub(super) struct Counts {
    parts: [Part; PARTS],
}

/// Returns the part in which this thread counts.
#[inline]
fn part() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static PART: usize = THREADS.fetch_add(1, Ordering::Relaxed) % PARTS;
    }
    PART.try_with(|part| *part).unwrap_or(0)
}

impl Counts {
    const fn new() -> Self {
        Self { parts: [const { Part::new() }; PARTS] }
    }

    /// Adds up a count over its parts. It may go around, as differences of two counts do.
    fn sum(&self, of: impl Fn(&Part) -> &AtomicU64) -> u64 {
        let load = |part: &Part| of(part).load(Ordering::Relaxed);
        self.parts.iter().map(load).fold(0, u64::wrapping_add)
    }

    /// The difference of two counts. The parts change while they are read, so the later one is read first.
    fn between(&self, ended: fn(&Part) -> &AtomicU64, begun: fn(&Part) -> &AtomicU64) -> u64 {
        let ended = self.sum(ended);
        self.sum(begun).saturating_sub(ended)
    }

    pub(super) fn begin(&self) {
        self.parts[part()].begun.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the end of a request, with the bytes of its bodies.
    pub(super) fn end(&self, received: u64, sent: u64) {
        let part = &self.parts[part()];
        part.ended.fetch_add(1, Ordering::Relaxed);
        part.received.fetch_add(received, Ordering::Relaxed);
        part.sent.fetch_add(sent, Ordering::Relaxed);
    }

    /// Runs one poll of a request.
    pub(super) fn polling<T>(&self, poll: impl FnOnce() -> T) -> T {
        let part = &self.parts[part()];
        part.polls_begun.fetch_add(1, Ordering::Relaxed);
        let polled = poll();
        part.polls_ended.fetch_add(1, Ordering::Relaxed);
        polled
    }

    fn in_flight(&self) -> u64 {
        self.between(|part| &part.ended, |part| &part.begun)
    }

    fn blocked(&self) -> u64 {
        let polled = self.between(|part| &part.polls_ended, |part| &part.polls_begun);
        self.in_flight().saturating_sub(polled)
    }

    fn total(&self) -> u64 {
        self.sum(|part| &part.begun)
    }
}

impl Part {
    const fn new() -> Self {
        Self {
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            polls_begun: AtomicU64::new(0),
            polls_ended: AtomicU64::new(0),
            received: AtomicU64::new(0),
            sent: AtomicU64::new(0),
        }
    }
}

pub(super) static SERVER: Counts = Counts::new();
pub(super) static CLIENT: Counts = Counts::new();

/// Adds up a count of both sides.
fn both(of: fn(&Part) -> &AtomicU64) -> u64 {
    SERVER.sum(of).wrapping_add(CLIENT.sum(of))
}

/// The variables of requests.
#[derive(Clone, Debug)]
pub(super) struct Variables {
    request_bytes: Pvar,
    response_bytes: Pvar,
    in_flight: Pvar,
    blocked: Pvar,
    queue_depth: Pvar,
    tasks_alive: Pvar,
    /// Kept, because each handle of a runtime that is made and dropped counts itself in a cell that all threads share.
    runtime: Option<RuntimeMetrics>,
}

impl Variables {
    /// Registers all variables. The runtime is that of the calling task; outside of a runtime its variables are left out.
    ///
    /// # Errors
    /// The errors of [`crate::Registry::register`].
    pub(super) fn register(recorder: &Recorder) -> Result<Self, Error> {
        use PvarClass::{Counter, Level, Size};
        let pvars = recorder.pvars();
        pvars
            .register_source("tonic_server_requests_in_flight", Level, "", || SERVER.in_flight())?;
        pvars.register_source("tonic_server_requests_blocked", Level, "", || SERVER.blocked())?;
        pvars
            .register_source("tonic_client_requests_in_flight", Level, "", || CLIENT.in_flight())?;
        pvars.register_source("tonic_server_requests_total", Counter, "", || SERVER.total())?;
        pvars.register_source("tonic_client_requests_total", Counter, "", || CLIENT.total())?;
        pvars.register_source("tonic_bytes_received_total", Counter, "bytes", || {
            both(|part| &part.received)
        })?;
        pvars.register_source("tonic_bytes_sent_total", Counter, "bytes", || {
            both(|part| &part.sent)
        })?;
        let runtime = Handle::try_current().ok().map(|handle| handle.metrics());
        if let Some(metrics) = runtime.clone() {
            let (depth, alive, workers) = (metrics.clone(), metrics.clone(), metrics);
            let of = |n: usize| n as u64;
            pvars.register_source("tokio_queue_depth", Level, "", move || {
                of(depth.global_queue_depth())
            })?;
            pvars.register_source("tokio_tasks_alive", Level, "", move || {
                of(alive.num_alive_tasks())
            })?;
            pvars.register_source("tokio_workers", Size, "", move || of(workers.num_workers()))?;
        }
        Ok(Self {
            request_bytes: pvars.register("request_bytes", Size, "bytes")?,
            response_bytes: pvars.register("response_bytes", Size, "bytes")?,
            in_flight: pvars.register("requests_in_flight", Level, "")?,
            blocked: pvars.register("requests_blocked", Level, "")?,
            queue_depth: pvars.register("queue_depth", Level, "")?,
            tasks_alive: pvars.register("tasks_alive", Level, "")?,
            runtime,
        })
    }

    /// Returns true if the variables are those of a runtime too.
    pub(super) fn has_runtime(&self) -> bool {
        self.runtime.is_some()
    }

    /// Adds the levels at the begin of a request.
    pub(super) fn levels(&self, recorder: &Recorder, counts: &Counts, span: &mut Span) {
        if recorder.stage() < Stage::Full {
            return;
        }
        span.pvar(&self.in_flight, counts.in_flight());
        span.pvar(&self.blocked, counts.blocked());
        if let Some(metrics) = &self.runtime {
            span.pvar(&self.queue_depth, metrics.global_queue_depth() as u64);
            span.pvar(&self.tasks_alive, metrics.num_alive_tasks() as u64);
        }
    }

    /// Adds the lengths of the bodies.
    pub(super) fn bytes(&self, request: u64, response: u64, span: &mut Span) {
        span.pvar(&self.request_bytes, request);
        span.pvar(&self.response_bytes, response);
    }
}

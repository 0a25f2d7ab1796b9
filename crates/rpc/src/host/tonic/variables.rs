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

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::runtime::Handle;

use crate::error::Error;
use crate::pvar::{Pvar, PvarClass};
use crate::recorder::{Recorder, Span, Stage};

/// Levels and counters of all layers of one side in this process.
#[derive(Debug)]
pub(super) struct Counts {
    in_flight: AtomicU64,
    polled: AtomicU64,
    total: AtomicU64,
}

impl Counts {
    const fn new() -> Self {
        Self { in_flight: AtomicU64::new(0), polled: AtomicU64::new(0), total: AtomicU64::new(0) }
    }

    pub(super) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.total.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Runs one poll of a request.
    pub(super) fn polling<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.polled.fetch_add(1, Ordering::Relaxed);
        let polled = poll();
        self.polled.fetch_sub(1, Ordering::Relaxed);
        polled
    }

    fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed)
    }

    fn blocked(&self) -> u64 {
        self.in_flight().saturating_sub(self.polled.load(Ordering::Relaxed))
    }
}

pub(super) static SERVER: Counts = Counts::new();
pub(super) static CLIENT: Counts = Counts::new();
static RECEIVED: AtomicU64 = AtomicU64::new(0);
static SENT: AtomicU64 = AtomicU64::new(0);

/// The variables of requests.
#[derive(Clone, Debug)]
pub(super) struct Variables {
    request_bytes: Pvar,
    response_bytes: Pvar,
    in_flight: Pvar,
    blocked: Pvar,
    queue_depth: Pvar,
    tasks_alive: Pvar,
    runtime: Option<Handle>,
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
        let load = |counter: &'static AtomicU64| move || counter.load(Ordering::Relaxed);
        for (name, unit, counter) in [
            ("tonic_server_requests_total", "", &SERVER.total),
            ("tonic_client_requests_total", "", &CLIENT.total),
            ("tonic_bytes_received_total", "bytes", &RECEIVED),
            ("tonic_bytes_sent_total", "bytes", &SENT),
        ] {
            pvars.register_source(name, Counter, unit, load(counter))?;
        }
        let runtime = Handle::try_current().ok();
        if let Some(handle) = &runtime {
            let metrics = handle.metrics();
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

    /// Adds the levels at the begin of a request.
    pub(super) fn levels(&self, recorder: &Recorder, counts: &Counts, span: &mut Span) {
        if recorder.stage() < Stage::Full {
            return;
        }
        span.pvar(&self.in_flight, counts.in_flight());
        span.pvar(&self.blocked, counts.blocked());
        if let Some(runtime) = &self.runtime {
            let metrics = runtime.metrics();
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

/// Counts the bytes of one request for the process.
pub(super) fn count_bytes(received: u64, sent: u64) {
    RECEIVED.fetch_add(received, Ordering::Relaxed);
    SENT.fetch_add(sent, Ordering::Relaxed);
}

//! The instruments of the RPC layer: spans with the intervals of each call, and performance variables.
//!
//! | variable | class, binding | meaning |
//! |---|---|---|
//! | `pool_depth` | LEVEL | tasks that are not done |
//! | `pool_runnable` | LEVEL | tasks that wait for an execution stream |
//! | `pool_blocked` | LEVEL | tasks that wait for a call or a database |
//! | `completion_queue_read` | LEVEL | events that the last read of the completion queue got |
//! | `completion_queue_depth` | LEVEL | events that it left there |
//! | `completion_queue_limit` | SIZE | the most events of one read |
//! | `in_flight_requests` | LEVEL | calls of the process that are not answered |
//! | `eager_overflows` | COUNTER | inputs that were longer than the eager buffer |
//! | `database_wait_ns` | TIMER, HANDLE | time for which the execution waited for its database |
//! | `bulk_bytes` | SIZE, HANDLE | bytes that the execution pulled and pushed |
//!
//! The levels of the pool are sampled when an execution begins (t5), those of the completion queue when the callback of a
//! call runs (t14).

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use skopos_rpc::{Context, Interval, Options, PeerId, Pvar, PvarClass, Recorder, Stage, Status};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::gauges::Gauges;
use crate::pool::Tasks;
use crate::rpcs::{ALL, Rpc};

/// The intervals that the RPC layer sees: all of the paper's Table III.
const SEEN: [Interval; 10] = Interval::ALL;

/// The request to which a call belongs.
pub type Parent = Context;

/// The instruments of a process.
#[derive(Debug)]
pub struct Probe {
    recorder: Recorder,
    rpcs: [skopos_rpc::Rpc; ALL.len()],
    gauges: Arc<Gauges>,
    pvars: Pvars,
}

/// The amount of recording, and its places.
#[derive(Clone, Copy, Default, Debug)]
pub struct Recording<'a> {
    /// The amount.
    pub stage: Stage,
    /// Folder of the trace.
    pub trace: Option<&'a Path>,
    /// Folder of the segment, instead of the runtime directory.
    pub segments: Option<&'a Path>,
}

/// The performance variables that ride on spans.
#[derive(Clone, Copy, Debug)]
struct Pvars {
    pool_depth: Pvar,
    pool_runnable: Pvar,
    pool_blocked: Pvar,
    completion_queue_read: Pvar,
    completion_queue_depth: Pvar,
    completion_queue_limit: Pvar,
    in_flight_requests: Pvar,
    eager_overflows: Pvar,
    database_wait_ns: Pvar,
    bulk_bytes: Pvar,
}

/// A moment from which an interval is measured; nothing while intervals are not recorded.
#[derive(Clone, Copy, Default, Debug)]
pub struct Timer(Option<Instant>);

impl Timer {
    /// The nanoseconds since the timer was started, if it was.
    fn nanoseconds(self) -> Option<u64> {
        self.0.map(|begin| u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The origin's side of a call.
#[derive(Debug)]
pub struct OriginSpan {
    span: skopos_rpc::Span,
}

/// The target's side of a call.
#[derive(Debug)]
pub struct TargetSpan {
    span: skopos_rpc::Span,
    probe: Arc<Probe>,
    bulk_bytes: u64,
    database_wait_ns: Option<u64>,
}

impl Probe {
    /// Starts the recorder of the process `name`; `tasks` is its pool.
    ///
    /// # Errors
    /// The folder or the segment of the recorder cannot be written.
    pub fn start(
        name: &str,
        recording: &Recording<'_>,
        config: &Config,
        tasks: &Tasks,
    ) -> Result<Arc<Self>> {
        let Recording { stage, trace, segments } = *recording;
        let mut options = Options::new(name).stage(stage).host("skopos-dataservice").sees(&SEEN);
        for (key, value) in config.recorded() {
            options = options.config(key, value);
        }
        if let Some(folder) = trace {
            options = options.trace_folder(folder);
        }
        if let Some(folder) = segments {
            options = options.dir(folder);
        }
        // A service that is not observed at all has no segment either.
        let recorder = match (stage, trace) {
            (Stage::Off, None) => Recorder::off(),
            _ => Recorder::start(options).map_err(Error::Recorder)?,
        };
        let gauges = Arc::new(Gauges::default());
        let pvars = Pvars::register(&recorder, &gauges, tasks).map_err(Error::Recorder)?;
        let rpcs = ALL.map(|rpc| recorder.rpc(rpc.name()));
        Ok(Arc::new(Self { recorder, rpcs, gauges, pvars }))
    }

    /// The numbers that the RPC layer keeps of itself.
    #[must_use]
    pub fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    /// Interns the name of another process.
    #[must_use]
    pub fn peer(&self, name: &str) -> PeerId {
        self.recorder.peer(name)
    }

    /// Starts a timer.
    #[must_use]
    pub fn timer(&self) -> Timer {
        let measures = self.recorder.stage() == Stage::Full;
        Timer(measures.then(Instant::now))
    }

    /// Begins the origin's side of a call (t1).
    #[must_use]
    pub fn origin(&self, rpc: Rpc, parent: Option<&Parent>, peer: PeerId) -> OriginSpan {
        let mut span = self.recorder.origin(self.rpcs[rpc.number() as usize], parent);
        span.peer(peer);
        OriginSpan { span }
    }

    /// Begins the target's side of a call (t4). A context that cannot be read begins a request of its own.
    #[must_use]
    pub fn target(self: &Arc<Self>, rpc: Rpc, context: &[u8; 32], peer: PeerId) -> TargetSpan {
        let context = Context::from_bytes(context).unwrap_or_else(|_| {
            // The context of a caller that does not record.
            let unknown = Recorder::off().origin(self.rpcs[rpc.number() as usize], None);
            unknown.context()
        });
        let mut span = self.recorder.target(self.rpcs[rpc.number() as usize], &context);
        span.peer(peer);
        TargetSpan { span, probe: Arc::clone(self), bulk_bytes: 0, database_wait_ns: None }
    }

    /// Writes all that was recorded, and ends the recorder.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn close(&self) -> Result<()> {
        self.recorder.close().map_err(Error::Recorder)
    }

    fn is_full(&self) -> bool {
        self.recorder.stage() == Stage::Full
    }
}

impl Pvars {
    fn register(
        recorder: &Recorder,
        gauges: &Arc<Gauges>,
        tasks: &Tasks,
    ) -> Result<Self, skopos_rpc::Error> {
        use PvarClass::{Counter, Level, Size, Timer};
        let registry = recorder.pvars();
        let of = |read: fn(&Gauges) -> u64| {
            let gauges = Arc::clone(gauges);
            move || read(&gauges)
        };
        let pool = |read: fn(&Tasks) -> u64| {
            let tasks = tasks.clone();
            move || read(&tasks)
        };
        let level = |name, read| registry.register_source(name, Level, "", of(read));
        Ok(Self {
            pool_depth: registry.register_source("pool_depth", Level, "", pool(Tasks::depth))?,
            pool_runnable: registry.register_source(
                "pool_runnable",
                Level,
                "",
                pool(Tasks::runnable),
            )?,
            pool_blocked: registry.register_source(
                "pool_blocked",
                Level,
                "",
                pool(Tasks::blocked),
            )?,
            completion_queue_read: level("completion_queue_read", |g| {
                g.completion_queue_read.get()
            })?,
            completion_queue_depth: level("completion_queue_depth", |g| {
                g.completion_queue_depth.get()
            })?,
            completion_queue_limit: registry.register_source(
                "completion_queue_limit",
                Size,
                "",
                of(|g| g.completion_queue_limit.get()),
            )?,
            in_flight_requests: level("in_flight_requests", |g| g.in_flight_requests.get())?,
            eager_overflows: registry.register_source(
                "eager_overflows",
                Counter,
                "",
                of(|g| g.eager_overflows.get()),
            )?,
            database_wait_ns: registry.register("database_wait_ns", Timer, "ns")?,
            bulk_bytes: registry.register("bulk_bytes", Size, "bytes")?,
        })
    }
}

impl OriginSpan {
    /// The context that travels with the request.
    #[must_use]
    pub fn context(&self) -> [u8; 32] {
        self.span.context().to_bytes()
    }

    /// Adds an interval that began with `timer` and ends now.
    pub fn interval(&mut self, interval: Interval, timer: Timer) {
        if let Some(ns) = timer.nanoseconds() {
            self.span.interval(interval, ns);
        }
    }

    /// Runs with the completion callback (t14): samples the completion queue, and records the call.
    pub fn end(mut self, probe: &Probe, is_ok: bool) {
        if self.span.is_recorded() && probe.is_full() {
            let (pvars, gauges) = (&probe.pvars, &probe.gauges);
            self.span.pvar(&pvars.completion_queue_read, gauges.completion_queue_read.get());
            self.span.pvar(&pvars.completion_queue_depth, gauges.completion_queue_depth.get());
            self.span.pvar(&pvars.completion_queue_limit, gauges.completion_queue_limit.get());
            self.span.pvar(&pvars.in_flight_requests, gauges.in_flight_requests.get());
            self.span.pvar(&pvars.eager_overflows, gauges.eager_overflows.get());
        }
        self.span.end(status(is_ok));
    }
}

impl TargetSpan {
    /// Begins the execution (t5): samples the pool.
    pub fn begin(&mut self, tasks: &Tasks) {
        self.span.begin();
        if self.span.is_recorded() && self.probe.is_full() {
            let pvars = &self.probe.pvars;
            self.span.pvar(&pvars.pool_depth, tasks.depth());
            self.span.pvar(&pvars.pool_runnable, tasks.runnable());
            self.span.pvar(&pvars.pool_blocked, tasks.blocked());
        }
    }

    /// The request, for calls that belong to it.
    #[must_use]
    pub fn parent(&self) -> Parent {
        self.span.context()
    }

    /// Adds an interval that began with `timer` and ends now.
    pub fn interval(&mut self, interval: Interval, timer: Timer) {
        if let Some(ns) = timer.nanoseconds() {
            self.span.interval(interval, ns);
        }
    }

    /// Counts bytes of bulk.
    pub fn bulk_bytes(&mut self, bytes: u64) {
        self.bulk_bytes = self.bulk_bytes.saturating_add(bytes);
    }

    /// Takes the time since `timer` out of the exclusive time: it was another call's.
    pub fn exclude(&mut self, timer: Timer) {
        if let Some(ns) = timer.nanoseconds() {
            self.span.exclude(ns);
        }
    }

    /// Adds the time since `timer` to the wait for databases.
    pub fn database_wait(&mut self, timer: Timer) {
        if let Some(ns) = timer.nanoseconds() {
            self.database_wait_ns = Some(self.database_wait_ns.unwrap_or(0).saturating_add(ns));
        }
    }

    /// Ends the execution (t8).
    pub fn executed(&mut self) {
        self.span.respond();
    }

    /// Runs when the response is sent (t13), and records the call.
    pub fn end(mut self, is_ok: bool) {
        if self.span.is_recorded() && self.probe.is_full() {
            if let Some(ns) = self.database_wait_ns {
                self.span.pvar(&self.probe.pvars.database_wait_ns, ns);
            }
            if self.bulk_bytes > 0 {
                self.span.pvar(&self.probe.pvars.bulk_bytes, self.bulk_bytes);
            }
        }
        self.span.end(status(is_ok));
    }
}

fn status(is_ok: bool) -> Status {
    if is_ok { Status::Ok } else { Status::Error }
}

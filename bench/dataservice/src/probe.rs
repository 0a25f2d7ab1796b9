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

use skopos_rpc::{
    Context, Interval, Options, PeerId, Pvar, PvarClass, Recorder, Registry, Stage, Status,
};

use crate::config::Config;
use crate::error::{Error, Result};
use crate::gauges::Gauges;
use crate::pool::Tasks;
use crate::rpcs::{ALL, Rpc};
use crate::tracer::{TracedSide, Tracer};

/// The intervals that the RPC layer sees: all of the paper's Table III.
const SEEN: [Interval; 10] = Interval::ALL;

/// The request to which a call belongs.
pub type Parent = Context;

/// The instruments of a process.
#[derive(Debug)]
pub struct Probe {
    recorder: Recorder,
    /// The recorder of another project; that of Skopos is off then.
    other: Option<Arc<dyn Tracer>>,
    rpcs: [skopos_rpc::Rpc; ALL.len()],
    gauges: Arc<Gauges>,
    pvars: Pvars,
    without_variables: bool,
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
    /// Whether performance variables are left out at every stage.
    pub without_variables: bool,
    /// The recorder that records instead of Skopos.
    pub other: Option<&'a Arc<dyn Tracer>>,
}

/// A performance variable with its name, by which other recorders know it.
#[derive(Clone, Copy, Debug)]
struct Variable {
    pvar: Pvar,
    name: &'static str,
}

/// The performance variables that ride on spans.
#[derive(Clone, Copy, Debug)]
struct Pvars {
    pool_depth: Variable,
    pool_runnable: Variable,
    pool_blocked: Variable,
    completion_queue_read: Variable,
    completion_queue_depth: Variable,
    completion_queue_limit: Variable,
    in_flight_requests: Variable,
    eager_overflows: Variable,
    database_wait_ns: Variable,
    bulk_bytes: Variable,
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

/// One side of a call. The span of Skopos is off, and its functions do nothing, while another recorder is at work.
#[derive(Debug)]
struct Side {
    span: skopos_rpc::Span,
    other: Option<Box<dyn TracedSide>>,
}

/// The origin's side of a call.
#[derive(Debug)]
pub struct OriginSpan {
    side: Side,
}

/// The target's side of a call.
#[derive(Debug)]
pub struct TargetSpan {
    side: Side,
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
        let Recording { stage, trace, segments, without_variables, other } = *recording;
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
        // A service that Skopos does not observe at all has no segment either.
        let is_off = other.is_some() || stage == Stage::Off && trace.is_none();
        let recorder = if is_off {
            Recorder::off()
        } else {
            Recorder::start(options).map_err(Error::Recorder)?
        };
        let gauges = Arc::new(Gauges::default());
        let pvars = Pvars::register(&recorder, &gauges, tasks).map_err(Error::Recorder)?;
        let rpcs = ALL.map(|rpc| recorder.rpc(rpc.name()));
        let other = other.cloned();
        Ok(Arc::new(Self { recorder, other, rpcs, gauges, pvars, without_variables }))
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
        Timer(self.is_full().then(Instant::now))
    }

    /// Begins the origin's side of a call (t1).
    #[must_use]
    pub fn origin(&self, rpc: Rpc, parent: Option<&Parent>, peer: PeerId) -> OriginSpan {
        let mut span = self.recorder.origin(self.rpcs[rpc.number() as usize], parent);
        span.peer(peer);
        let other = self.other.as_ref().map(|other| other.origin(rpc, parent));
        OriginSpan { side: Side { span, other } }
    }

    /// Begins the target's side of a call (t4). A context that cannot be read begins a request of its own.
    #[must_use]
    pub fn target(self: &Arc<Self>, rpc: Rpc, bytes: &[u8; 32], peer: PeerId) -> TargetSpan {
        let context = Context::from_bytes(bytes).unwrap_or_else(|_| {
            // The context of a caller that does not record.
            let unknown = Recorder::off().origin(self.rpcs[rpc.number() as usize], None);
            unknown.context()
        });
        let mut span = self.recorder.target(self.rpcs[rpc.number() as usize], &context);
        span.peer(peer);
        let other = self.other.as_ref().map(|other| other.target(rpc, bytes));
        let side = Side { span, other };
        TargetSpan { side, probe: Arc::clone(self), bulk_bytes: 0, database_wait_ns: None }
    }

    /// Writes or sends all that was recorded, and ends the recorder.
    ///
    /// # Errors
    /// The trace cannot be written, or the spans cannot be sent.
    pub fn close(&self) -> Result<()> {
        if let Some(other) = &self.other {
            other.close()?;
        }
        self.recorder.close().map_err(Error::Recorder)
    }

    /// Whether intervals are recorded.
    fn is_full(&self) -> bool {
        match &self.other {
            None => self.recorder.stage() == Stage::Full,
            Some(other) => other.has_values(),
        }
    }

    /// Whether performance variables are recorded.
    fn has_variables(&self) -> bool {
        !self.without_variables && self.is_full()
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
        let source = |name, class, read| Variable::source(registry, name, class, of(read));
        let pooled = |name, read| Variable::source(registry, name, Level, pool(read));
        Ok(Self {
            pool_depth: pooled("pool_depth", Tasks::depth)?,
            pool_runnable: pooled("pool_runnable", Tasks::runnable)?,
            pool_blocked: pooled("pool_blocked", Tasks::blocked)?,
            completion_queue_read: source("completion_queue_read", Level, |g| {
                g.completion_queue_read.get()
            })?,
            completion_queue_depth: source("completion_queue_depth", Level, |g| {
                g.completion_queue_depth.get()
            })?,
            completion_queue_limit: source("completion_queue_limit", Size, |g| {
                g.completion_queue_limit.get()
            })?,
            in_flight_requests: source("in_flight_requests", Level, |g| {
                g.in_flight_requests.get()
            })?,
            eager_overflows: source("eager_overflows", Counter, |g| g.eager_overflows.get())?,
            database_wait_ns: Variable::of_span(registry, "database_wait_ns", Timer, "ns")?,
            bulk_bytes: Variable::of_span(registry, "bulk_bytes", Size, "bytes")?,
        })
    }
}

impl Variable {
    /// Registers a variable of the process.
    fn source(
        registry: &Registry,
        name: &'static str,
        class: PvarClass,
        read: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Result<Self, skopos_rpc::Error> {
        Ok(Self { pvar: registry.register_source(name, class, "", read)?, name })
    }

    /// Registers a variable of a span.
    fn of_span(
        registry: &Registry,
        name: &'static str,
        class: PvarClass,
        unit: &str,
    ) -> Result<Self, skopos_rpc::Error> {
        Ok(Self { pvar: registry.register(name, class, unit)?, name })
    }
}

impl Side {
    fn is_recorded(&self) -> bool {
        self.span.is_recorded() || self.other.is_some()
    }

    /// Adds an interval that began with `timer` and ends now.
    fn interval(&mut self, interval: Interval, timer: Timer) {
        if let Some(ns) = timer.nanoseconds() {
            self.span.interval(interval, ns);
            if let Some(other) = &mut self.other {
                other.interval(interval, ns);
            }
        }
    }

    fn value(&mut self, variable: &Variable, value: u64) {
        self.span.pvar(&variable.pvar, value);
        if let Some(other) = &mut self.other {
            other.value(variable.name, value);
        }
    }

    fn end(self, is_ok: bool) {
        self.span.end(status(is_ok));
        if let Some(other) = self.other {
            other.end(is_ok);
        }
    }
}

impl OriginSpan {
    /// The context that travels with the request.
    #[must_use]
    pub fn context(&self) -> [u8; 32] {
        match &self.side.other {
            None => self.side.span.context().to_bytes(),
            Some(other) => other.context(),
        }
    }

    /// Adds an interval that began with `timer` and ends now.
    pub fn interval(&mut self, interval: Interval, timer: Timer) {
        self.side.interval(interval, timer);
    }

    /// Runs with the completion callback (t14): samples the completion queue, and records the call.
    pub fn end(mut self, probe: &Probe, is_ok: bool) {
        let side = &mut self.side;
        if side.is_recorded() && probe.has_variables() {
            let (pvars, gauges) = (&probe.pvars, &probe.gauges);
            side.value(&pvars.completion_queue_read, gauges.completion_queue_read.get());
            side.value(&pvars.completion_queue_depth, gauges.completion_queue_depth.get());
            side.value(&pvars.completion_queue_limit, gauges.completion_queue_limit.get());
            side.value(&pvars.in_flight_requests, gauges.in_flight_requests.get());
            side.value(&pvars.eager_overflows, gauges.eager_overflows.get());
        }
        self.side.end(is_ok);
    }
}

impl TargetSpan {
    /// Begins the execution (t5): samples the pool.
    pub fn begin(&mut self, tasks: &Tasks) {
        let side = &mut self.side;
        side.span.begin();
        if let Some(other) = &mut side.other {
            other.begin();
        }
        if side.is_recorded() && self.probe.has_variables() {
            let pvars = &self.probe.pvars;
            side.value(&pvars.pool_depth, tasks.depth());
            side.value(&pvars.pool_runnable, tasks.runnable());
            side.value(&pvars.pool_blocked, tasks.blocked());
        }
    }

    /// The request, for calls that belong to it.
    #[must_use]
    pub fn parent(&self) -> Parent {
        match &self.side.other {
            None => self.side.span.context(),
            Some(other) => other.parent(),
        }
    }

    /// Adds an interval that began with `timer` and ends now.
    pub fn interval(&mut self, interval: Interval, timer: Timer) {
        self.side.interval(interval, timer);
    }

    /// Counts bytes of bulk.
    pub fn bulk_bytes(&mut self, bytes: u64) {
        self.bulk_bytes = self.bulk_bytes.saturating_add(bytes);
    }

    /// Takes the time since `timer` out of the exclusive time: it was another call's.
    pub fn exclude(&mut self, timer: Timer) {
        if let Some(ns) = timer.nanoseconds() {
            self.side.span.exclude(ns);
            if let Some(other) = &mut self.side.other {
                other.interval(Interval::Children, ns);
            }
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
        self.side.span.respond();
        if let Some(other) = &mut self.side.other {
            other.respond();
        }
    }

    /// Runs when the response is sent (t13), and records the call.
    pub fn end(mut self, is_ok: bool) {
        let side = &mut self.side;
        if side.is_recorded() && self.probe.has_variables() {
            if let Some(ns) = self.database_wait_ns {
                side.value(&self.probe.pvars.database_wait_ns, ns);
            }
            if self.bulk_bytes > 0 {
                side.value(&self.probe.pvars.bulk_bytes, self.bulk_bytes);
            }
        }
        self.side.end(is_ok);
    }
}

fn status(is_ok: bool) -> Status {
    if is_ok { Status::Ok } else { Status::Error }
}

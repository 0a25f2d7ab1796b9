//! The recorder of a process, and the spans that it makes.

mod stage;
mod core;
mod local;
mod span;
mod options;
mod budget;
mod keeper;

pub use core::{MAX_FOREIGN, MAX_NODES, MAX_PEERS, OTHER, PeerId, Rpc};
pub use options::{
    DEFAULT_BUDGET, DEFAULT_RING_RECORDS, DEFAULT_THREADS, DEFAULT_TRACE_BYTES, Options,
    TRACE_VARIABLE,
};
pub use span::{MAX_VALUES, Span};
pub use stage::Stage;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{LazyLock, Mutex, RwLock};
use std::time::{Duration, Instant};

use skopos_model::unpoisoned;
use skopos_shm::records::layout::{Counter, FOLDER_DEFINITION};
use skopos_shm::records::{RecordReader, RecordSegment, record_segments, remove_record_segment};
use skopos_shm::ticks::Ticks;

use crate::context::Context;
use crate::drain::{Drain, counters_of};
use crate::error::Error;
use crate::file::{Counters, Definition, Process, kind};
use crate::pvar::Registry;
use crate::record::Kind;
use crate::recorder::budget::Budget;
use crate::recorder::core::{Inner, Source};
use crate::recorder::keeper::{Facts, Keeper, Work, register_own};

/// Time for the first estimate of the length of a tick; the error is some millionths, and the next second corrects it.
const FIRST_ESTIMATE: Duration = Duration::from_millis(2);
/// Most segments of dead processes of one service that a new one leaves for the agent. A segment takes memory as it is
/// used: with the default rings at most 48 MiB, so these take at most 192 MiB.
const KEPT_DEAD: usize = 4;
/// Readings of the clock by which its cost is estimated.
const CLOCK_READINGS: u32 = 256;
/// Ending of the name of the file by which users ask for a stage.
pub const STAGE_ENDING: &str = "stage";

/// The recorder of a process; a handle that can be copied to all threads. Off by default: see [`Recorder::off`].
///
/// A child after `fork` records nothing; it starts a recorder of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Recorder(Option<&'static Shared>);

#[derive(Debug)]
struct Shared {
    inner: Inner,
    keeper: Keeper,
    process: Mutex<Process>,
}

static GLOBAL: RwLock<Recorder> = RwLock::new(Recorder(None));
static NOTHING: LazyLock<Registry> = LazyLock::new(Registry::default);
/// All recorders of this process, to be closed at its end.
static ALL: Mutex<Vec<&'static Shared>> = Mutex::new(Vec::new());

/// Closes all recorders; at the end of the process.
fn close_all() {
    let all: Vec<_> = unpoisoned(ALL.lock()).clone();
    for shared in all {
        // There is no caller left to hear of a failure; the trace ends where it could be written.
        let _ = shared.keeper.close(&shared.inner);
    }
}

/// Returns the cost of a reading of the clock, ns.
fn clock_cost(ticks: Ticks) -> f64 {
    let started = Instant::now();
    for _ in 0..CLOCK_READINGS {
        std::hint::black_box(ticks.now());
    }
    started.elapsed().as_nanos() as f64 / f64::from(CLOCK_READINGS)
}

/// Removes the oldest segments of dead processes of this service; the youngest stay for the agent. Returns the number of
/// records in them that their processes had not written.
fn remove_old_dead(dir: &Path, name: &str) -> Result<u64, Error> {
    let opened =
        record_segments(dir)?.into_iter().filter_map(|path| RecordReader::open(&path).ok());
    let mut dead: Vec<_> =
        opened.filter(|segment| segment.name() == name && !segment.is_held()).collect();
    dead.sort_by_key(|segment| std::cmp::Reverse(segment.created_at()));
    let mut left = 0_u64;
    for segment in dead.iter().skip(KEPT_DEAD) {
        let waiting: u64 = (0..segment.rings()).map(|ring| segment.waiting(ring)).sum();
        if remove_record_segment(segment)? {
            left = left.saturating_add(waiting);
        }
    }
    Ok(left)
}

impl Recorder {
    /// Starts the recorder of a service, and its thread. Without [`Options::trace_folder`] and [`TRACE_VARIABLE`] the records
    /// stay in shared memory, where the agent of the node finds them.
    ///
    /// # Errors
    /// [`Error::Name`]; [`Error::Shm`] if the segment cannot be made, also if this process has a recorder of this name already;
    /// [`Error::Io`] if the folder of the trace cannot be written.
    pub fn start(mut options: Options) -> Result<Self, Error> {
        options.take_environment(std::env::var_os(TRACE_VARIABLE));
        let ticks = Ticks::find();
        let first = ticks.moment();
        let dir = options.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
        let removed = remove_old_dead(&dir, &options.name)?;
        let segment = RecordSegment::builder(&options.name)
            .node(&options.node)
            .dir(&dir)
            .rings(options.threads, options.ring_records)
            .drains_itself(options.trace_folder.is_some())
            .create()
            .map_err(|e| match e {
                skopos_shm::Error::Name(name) => Error::Name(name),
                e => e.into(),
            })?;
        segment.set_counter(Counter::RemovedDead, removed);
        std::thread::sleep(FIRST_ESTIMATE);
        let now = ticks.moment();
        let ns_per_tick = now.ns_per_tick(&first).unwrap_or(1.0);
        segment.set_clock(now.ticks, now.unix_ns, ns_per_tick, first.width);
        let inner = Inner::new(segment, ticks, ns_per_tick);
        describe(&inner, &options.process)?;
        let started = Self::with_trace(&inner, &options);
        // No other process knows the segment yet, so a failure takes it back.
        let drain = started.inspect_err(|_| inner.segment.close(true))?;
        let stage_file = dir.join(format!("{}.{STAGE_ENDING}", options.name));
        let keeper = Keeper::new(drain, options.stage, stage_file);
        let process = Mutex::new(options.process);
        let shared: &'static Shared = Box::leak(Box::new(Shared { inner, keeper, process }));
        shared.inner.registry.listen(|info| {
            shared.inner.define(&Definition::Pvar(info.clone()));
        });
        register_own(&shared.inner.registry)?;
        shared.keeper.apply_stage(&shared.inner);
        unpoisoned(ALL.lock()).push(shared);
        skopos_shm::at_exit(close_all);
        let facts = options.publisher.map(|p| Facts::new(p, &options.node, &options.name));
        let budget = Budget::new(options.budget, clock_cost(ticks));
        let samples = shared.inner.segment.claim();
        let Shared { inner, keeper, .. } = shared;
        let describe = Box::new(|| describe_failures(shared));
        let work = Work { inner, keeper, first, budget, facts, samples, describe, failures: 0 };
        let thread = std::thread::Builder::new()
            .name("skopos-rpc".to_owned())
            .spawn(|| work.run())
            .map_err(Error::io(&dir, "cannot start the thread of the recorder"))?;
        *unpoisoned(keeper.thread.lock()) = Some(thread);
        Ok(Self(Some(shared)))
    }

    /// Begins the trace, if there is to be one.
    fn with_trace(inner: &Inner, options: &Options) -> Result<Option<Drain>, Error> {
        let Some(folder) = &options.trace_folder else { return Ok(None) };
        let absolute = std::path::absolute(folder);
        let absolute = absolute.map_err(Error::io(folder, "cannot be the folder of a trace"))?;
        let text = absolute.to_string_lossy();
        inner.segment.define(FOLDER_DEFINITION, text.as_bytes())?;
        let mut drain = Drain::new(inner.segment.path(), folder, options.trace_bytes)?;
        drain.prepare()?;
        Ok(Some(drain))
    }

    /// Returns true if both are handles of the same recorder.
    #[cfg(feature = "tonic")]
    pub(crate) fn is(&self, other: Self) -> bool {
        match (self.0, other.0) {
            (Some(one), Some(other)) => std::ptr::eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Returns a recorder that records nothing.
    pub const fn off() -> Self {
        Self(None)
    }

    /// Returns the recorder that [`Recorder::set_global`] set; one that is off before. Hosts take it when they start.
    pub fn global() -> Self {
        *unpoisoned(GLOBAL.read())
    }

    /// Makes this the recorder of the hosts that start from now on.
    pub fn set_global(self) {
        *unpoisoned(GLOBAL.write()) = self;
    }

    /// Interns the name of a call; names over [`MAX_NODES`] count as [`OTHER`]. Do it once for each call, not for each
    /// request: it takes a lock.
    pub fn rpc(&self, name: &str) -> Rpc {
        self.0.map_or(Rpc::OTHER, |shared| shared.inner.rpc(name, Source::Own))
    }

    /// Interns the name of a call that came with a request of another process, before it is known whether the service has
    /// such a call. Those names have a share of the table, [`MAX_FOREIGN`]; further ones count as [`OTHER`].
    pub fn foreign_rpc(&self, name: &str) -> Rpc {
        self.0.map_or(Rpc::OTHER, |shared| shared.inner.rpc(name, Source::Foreign))
    }

    /// Interns the name of another entity, such as an address; the unknown entity if there are more than [`MAX_PEERS`].
    pub fn peer(&self, name: &str) -> PeerId {
        self.0.map_or(PeerId(0), |shared| shared.inner.peer(name, Source::Own))
    }

    /// Interns the name of an entity that sent a request. Those names have a share of the table, [`MAX_FOREIGN`]; further
    /// ones are the unknown entity.
    pub fn foreign_peer(&self, name: &str) -> PeerId {
        self.0.map_or(PeerId(0), |shared| shared.inner.peer(name, Source::Foreign))
    }

    /// Begins the caller's side of a call, below `parent`; without a parent a new request begins.
    #[inline]
    pub fn origin(&self, rpc: Rpc, parent: Option<&Context>) -> Span {
        match self.recording() {
            None => Span::OFF,
            Some(inner) => Span::start(inner, Kind::Origin, rpc, parent, None),
        }
    }

    /// Begins the callee's side of a call, at its arrival (t4).
    #[inline]
    pub fn target(&self, rpc: Rpc, context: &Context) -> Span {
        match self.recording() {
            None => Span::OFF,
            Some(inner) => Span::start(inner, Kind::Target, rpc, Some(context), None),
        }
    }

    /// Begins the callee's side of a call that arrived (t4) at `arrived` of [`Recorder::ticks`].
    #[inline]
    pub fn target_at(&self, rpc: Rpc, context: &Context, arrived: u64) -> Span {
        match self.recording() {
            None => Span::OFF,
            Some(inner) => Span::start(inner, Kind::Target, rpc, Some(context), Some(arrived)),
        }
    }

    /// Returns the context of a new request, for a callee whose caller sent none.
    pub fn new_request(&self) -> Context {
        match self.recording() {
            None => Span::OFF.context(),
            Some(inner) => span::new_request(inner),
        }
    }

    /// Begins a step inside of the process, below `parent`.
    #[inline]
    pub fn local(&self, rpc: Rpc, parent: Option<&Context>) -> Span {
        match self.recording() {
            None => Span::OFF,
            Some(inner) => Span::start(inner, Kind::Local, rpc, parent, None),
        }
    }

    /// Returns the recorder's state unless it is off.
    #[inline(always)]
    fn recording(&self) -> Option<&'static Inner> {
        let inner = &self.0?.inner;
        (inner.stage.load(Ordering::Relaxed) != 0).then_some(inner)
    }

    /// Returns the clock of the process in ticks; 0 if nothing is recorded.
    #[inline]
    pub fn ticks(&self) -> u64 {
        self.recording().map_or(0, |inner| inner.ticks.now())
    }

    /// Returns a duration of `ticks` in ns; 0 if this recorder was never started.
    #[inline]
    pub fn ns(&self, ticks: u64) -> u64 {
        self.0.map_or(0, |shared| shared.inner.ns(ticks))
    }

    /// Returns the performance variables of the process.
    pub fn pvars(&self) -> &'static Registry {
        match self.0 {
            Some(shared) => &shared.inner.registry,
            None => &NOTHING,
        }
    }

    /// Returns the stage of recording. It can be smaller than the one that was set: see [`Recorder::set_stage`].
    #[inline]
    pub fn stage(&self) -> Stage {
        let code = self.0.map_or(0, |shared| shared.inner.stage.load(Ordering::Relaxed));
        Stage::from_code(code)
    }

    /// Sets the stage of recording. The file `NAME.stage` in the runtime directory goes before it: it holds the name of a
    /// stage, and all processes of that service look at it each second. The budget can make the stage smaller.
    pub fn set_stage(&self, stage: Stage) {
        if let Some(Shared { inner, keeper, .. }) = self.0 {
            keeper.wanted.store(stage as u32, Ordering::Relaxed);
            keeper.apply_stage(inner);
        }
    }

    /// Sets a value of the service's configuration, which is kept with the trace.
    ///
    /// # Errors
    /// [`Error::Shm`] if there is no room for it.
    pub fn set_config(&self, key: &str, value: impl ToString) -> Result<(), Error> {
        let Some(shared) = self.0 else { return Ok(()) };
        let mut process = unpoisoned(shared.process.lock());
        process.config.insert(key.to_owned(), value.to_string());
        describe(&shared.inner, &process)
    }

    /// Returns all that was left out so far, and the cost.
    pub fn counters(&self) -> Counters {
        let Some(Shared { inner, .. }) = self.0 else { return Counters::default() };
        let stage = inner.stage.load(Ordering::Relaxed);
        counters_of(|which| inner.segment.counter(which), stage)
    }

    /// Writes everything that ended before to the trace.
    ///
    /// # Errors
    /// [`Error::Io`]; the records are counted as deleted then.
    pub fn flush(&self) -> Result<(), Error> {
        self.0.map_or(Ok(()), |shared| shared.keeper.drain(&shared.inner))
    }

    /// Ends the recorder: writes what is left and the end of the trace. Spans that end later are not recorded. The end of the
    /// process does it too, unless a signal ends it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn close(&self) -> Result<(), Error> {
        let Some(shared) = self.0 else { return Ok(()) };
        let result = shared.keeper.close(&shared.inner);
        unpoisoned(ALL.lock()).retain(|other| !std::ptr::eq(*other, shared));
        result
    }
}

/// Describes the process anew, with the variables whose source failed. Without room for it, the segment counts that.
fn describe_failures(shared: &Shared) {
    let mut process = unpoisoned(shared.process.lock());
    process.failed_variables = shared.inner.registry.failed();
    let _ = describe(&shared.inner, &process);
}

/// Appends the description of the process to the definitions.
fn describe(inner: &Inner, process: &Process) -> Result<(), Error> {
    let path = inner.segment.path();
    let json = serde_json::to_vec(process)
        .map_err(|e| Error::io(path, "cannot describe the process")(std::io::Error::other(e)))?;
    Ok(inner.segment.define(kind::PROCESS, &json)?)
}

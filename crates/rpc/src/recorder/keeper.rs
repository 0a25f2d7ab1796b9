//! The thread of a recorder: drains the rings, keeps the clock, samples the process, and keeps recording within its
//! budget.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use skopos_model::{Kind as FactKind, Topic, Unit, ValueType, escape_segment, unpoisoned};
use skopos_shm::records::layout::Counter;
use skopos_shm::records::{RecordWriter, Stored};
use skopos_shm::ticks::TickMoment;
use skopos_shm::{Publisher, VertexSpec, VertexWriter};

use crate::drain::Drain;
use crate::error::Error;
use crate::file::End;
use crate::pvar::{PvarClass, Registry};
use crate::record::{FIRST_PVAR_TAG, Record, SAMPLE_VALUES, Sample, Tagged};
use crate::recorder::budget::Budget;
use crate::recorder::core::Inner;
use crate::recorder::stage::Stage;

/// Longest time between two drains. A ring that fills faster wakes the thread.
const DRAIN_INTERVAL: Duration = Duration::from_millis(100);
/// Time between samples of the process, looks at the stage's file and corrections of the clock.
const TICK: Duration = Duration::from_secs(1);
/// Number of ticks between two frames of counters, if nothing but the cost changed.
const COUNTERS_TICKS: u64 = 10;
/// Time over which a clock must be watched until the length of a tick is better than its first estimate.
const CLOCK_BASE: Duration = Duration::from_millis(20);
/// Length of the longest text in a stage's file that is looked at.
const STAGE_BYTES: u64 = 64;

/// The part of a recorder that its thread and its callers share.
#[derive(Debug)]
pub(crate) struct Keeper {
    pub(crate) drain: Mutex<Option<Drain>>,
    /// Stage that the program asked for.
    pub(crate) wanted: AtomicU32,
    /// Greatest stage that the budget allows now.
    allowed: AtomicU32,
    /// Stage that the file beside the segment asks for; the greatest number without a file.
    outside: AtomicU32,
    stage_file: PathBuf,
    /// Records that were drained, for the estimate of the cost.
    records: AtomicU64,
    is_over: AtomicBool,
    /// Held while the stage is computed and set, so that the last of two threads sets the one that holds.
    changing: Mutex<()>,
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
}

/// No stage is asked for.
const NO_STAGE: u32 = u32::MAX;

impl Keeper {
    pub(crate) fn new(drain: Option<Drain>, stage: Stage, stage_file: PathBuf) -> Self {
        Self {
            drain: Mutex::new(drain),
            wanted: AtomicU32::new(stage as u32),
            allowed: AtomicU32::new(Stage::Full as u32),
            outside: AtomicU32::new(NO_STAGE),
            stage_file,
            records: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            changing: Mutex::new(()),
            thread: Mutex::new(None),
        }
    }

    /// Makes the stage the smallest of those that program, file and budget allow.
    pub(crate) fn apply_stage(&self, inner: &Inner) {
        // Another thread of the parent may have held the lock at the fork.
        if !inner.segment.is_own() {
            return;
        }
        let _changing = unpoisoned(self.changing.lock());
        let outside = self.outside.load(Ordering::Relaxed);
        let wanted = self.wanted.load(Ordering::Relaxed);
        let wanted = if outside == NO_STAGE { wanted } else { outside };
        let is_over = self.is_over.load(Ordering::Relaxed);
        let stage = if is_over { 0 } else { wanted.min(self.allowed.load(Ordering::Relaxed)) };
        inner.segment.set_counter(Counter::StageWanted, u64::from(wanted));
        inner.segment.set_stage(stage);
        inner.stage.store(stage, Ordering::Relaxed);
    }

    /// Writes everything that is in the rings.
    pub(crate) fn drain(&self, inner: &Inner) -> Result<(), Error> {
        let mut drain = unpoisoned(self.drain.lock());
        let Some(drain) = drain.as_mut() else { return Ok(()) };
        let step = drain.step(|ring, next| inner.segment.set_drained(ring, next));
        inner.segment.count(Counter::Overwritten, step.lost);
        inner.segment.count(Counter::Deleted, step.deleted);
        self.records.fetch_add(step.written + step.lost + step.deleted, Ordering::Relaxed);
        step.failure.map_or(Ok(()), Err)
    }

    /// Ends recording: the thread ends, and everything that is left is written.
    pub(crate) fn close(&self, inner: &Inner) -> Result<(), Error> {
        if !inner.segment.is_own() || self.is_over.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        self.apply_stage(inner);
        if let Some(thread) = unpoisoned(self.thread.lock()).take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
        // A span that read the stage before it was switched off stores its record within this time.
        std::thread::sleep(Duration::from_millis(1));
        let mut result = self.drain(inner);
        let drain = unpoisoned(self.drain.lock()).take();
        let has_trace = drain.is_some();
        if let Some(mut drain) = drain {
            result = result.and_then(|()| drain.end(End::Closed));
        }
        inner.segment.close(has_trace);
        result
    }

    /// Reads the stage's file.
    fn look_outside(&self) {
        let is_short = fs::symlink_metadata(&self.stage_file)
            .is_ok_and(|about| about.is_file() && about.len() <= STAGE_BYTES);
        let text = is_short.then(|| fs::read_to_string(&self.stage_file).ok()).flatten();
        let stage = text.and_then(|text| Stage::from_name(text.trim()));
        let stage = stage.map_or(NO_STAGE, |stage| stage as u32);
        self.outside.store(stage, Ordering::Relaxed);
    }
}

/// The state that belongs to the thread alone.
pub(crate) struct Work {
    pub(crate) inner: &'static Inner,
    pub(crate) keeper: &'static Keeper,
    /// The first moment of the clock.
    pub(crate) first: TickMoment,
    pub(crate) budget: Budget,
    pub(crate) facts: Option<Facts>,
    pub(crate) samples: Option<RecordWriter>,
    /// Describes the process anew, with the variables whose source failed.
    pub(crate) describe: Box<dyn Fn() + Send>,
    /// Number of sources that had failed at the last description.
    pub(crate) failures: u32,
}

impl Work {
    /// Works until the recorder is closed.
    pub(crate) fn run(mut self) {
        let _ = self.inner.drainer.set(std::thread::current());
        let (mut ticks, mut next_tick) = (0, Instant::now() + CLOCK_BASE);
        let has_trace = unpoisoned(self.keeper.drain.lock()).is_some();
        while !self.keeper.is_over.load(Ordering::Relaxed) {
            let now = Instant::now();
            if now >= next_tick {
                self.tick(ticks);
                ticks += 1;
                next_tick = Instant::now() + TICK;
            }
            if has_trace {
                // A failure is counted; the next step tries a new part.
                let _ = self.keeper.drain(self.inner);
            }
            let left = next_tick.saturating_duration_since(Instant::now());
            std::thread::park_timeout(if has_trace { left.min(DRAIN_INTERVAL) } else { left });
        }
        self.keep_clock();
    }

    fn tick(&mut self, number: u64) {
        let Self { inner, keeper, .. } = *self;
        self.keep_clock();
        keeper.look_outside();
        self.keep_budget();
        keeper.apply_stage(inner);
        let values = inner.registry.sample_all();
        if inner.stage.load(Ordering::Relaxed) >= Stage::Full as u32 {
            self.sample(&values);
        }
        if let Some(facts) = &mut self.facts {
            facts.publish(&inner.registry, &values);
        }
        let failures = inner.registry.failures();
        if failures != self.failures {
            self.failures = failures;
            inner.segment.set_counter(Counter::SourcesFailed, failures.into());
            (self.describe)();
        }
        if number.is_multiple_of(COUNTERS_TICKS)
            && let Some(drain) = unpoisoned(keeper.drain.lock()).as_mut()
        {
            let _ = drain.count();
        }
    }

    /// Corrects the length of a tick by all the time since the start, and publishes the clock.
    fn keep_clock(&self) {
        let now = self.inner.ticks.moment();
        let Some(ns_per_tick) = now.ns_per_tick(&self.first) else { return };
        self.inner.set_ns_per_tick(ns_per_tick);
        let error_ns = (now.width as f64 * ns_per_tick / 2.0).ceil() as u64 + 1;
        self.inner.segment.set_clock(now.ticks, now.unix_ns, ns_per_tick, error_ns);
    }

    /// Adds up the cost, and switches a stage off or on again.
    fn keep_budget(&mut self) {
        let spent = self.keeper.records.swap(0, Ordering::Relaxed);
        let before = self.keeper.allowed.load(Ordering::Relaxed);
        let stage = self.inner.stage.load(Ordering::Relaxed);
        let decision = self.budget.second(spent, thread_cpu_ns(), process_cpu_ns(), stage, before);
        self.inner.segment.set_counter(Counter::OverheadNs, self.budget.overhead_ns());
        if decision < before.min(stage) {
            self.inner.count(Counter::BudgetSteps);
        }
        if decision != before {
            self.keeper.allowed.store(decision, Ordering::Relaxed);
            self.keeper.apply_stage(self.inner);
            if let Some(drain) = unpoisoned(self.keeper.drain.lock()).as_mut() {
                let _ = drain.count();
            }
        }
    }

    /// Records the variables of the process.
    fn sample(&mut self, values: &[(u16, u64)]) {
        let at = self.inner.ticks.now();
        for group in values.chunks(SAMPLE_VALUES) {
            let mut sample = Sample { at, values: [Tagged(0); SAMPLE_VALUES] };
            for (place, (number, value)) in sample.values.iter_mut().zip(group) {
                *place = Tagged::new(FIRST_PVAR_TAG + number, *value);
            }
            let words = Record::Sample(sample).words();
            let stored = self.samples.as_mut().map(|writer| writer.push(&[words]));
            if stored.is_none_or(|stored| stored == Stored::Forked) {
                self.inner.count(Counter::WithoutRing);
            }
        }
    }
}

/// Returns the processor time of this thread, ns.
fn thread_cpu_ns() -> u64 {
    nanos(ClockId::ThreadCPUTime)
}

/// Returns the processor time of this process, ns.
fn process_cpu_ns() -> u64 {
    nanos(ClockId::ProcessCPUTime)
}

fn nanos(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Registers the variables that every process has.
pub(crate) fn register_own(registry: &Registry) -> Result<(), Error> {
    let page = rustix::param::page_size() as u64;
    registry
        .register_source("process_cpu_us", PvarClass::Counter, "us", || process_cpu_ns() / 1000)?;
    registry.register_source("process_resident_bytes", PvarClass::Level, "bytes", move || {
        // "size resident shared ...", in pages.
        let text = fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let resident = text.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
        resident.unwrap_or(0u64).saturating_mul(page)
    })?;
    Ok(())
}

/// The variables of the process as topics.
pub(crate) struct Facts {
    publisher: Publisher,
    prefix: String,
    writers: HashMap<u16, Option<VertexWriter>>,
}

impl Facts {
    pub(crate) fn new(publisher: Publisher, node: &str, name: &str) -> Self {
        let mut prefix = String::new();
        if !node.is_empty() {
            escape_segment(node.as_bytes(), &mut prefix);
            prefix.push('/');
        }
        prefix.push_str("rpc/");
        escape_segment(name.as_bytes(), &mut prefix);
        prefix.push_str("/pvar/");
        Self { publisher, prefix, writers: HashMap::new() }
    }

    fn publish(&mut self, registry: &Registry, values: &[(u16, u64)]) {
        for (number, value) in values {
            let Self { publisher, prefix, writers } = self;
            let writer = writers
                .entry(*number)
                .or_insert_with(|| register(publisher, prefix, registry, *number));
            if let Some(writer) = writer {
                // A full file system leaves the last value, whose age tells.
                let _ = writer.publish(*value);
            }
        }
    }
}

/// Registers the topic of a variable; `None` if it cannot be one.
fn register(
    publisher: &Publisher,
    prefix: &str,
    registry: &Registry,
    number: u16,
) -> Option<VertexWriter> {
    let info = registry.info(number)?;
    let mut topic = prefix.to_owned();
    escape_segment(info.name.as_bytes(), &mut topic);
    let kind = match info.class {
        PvarClass::Counter => FactKind::Counter,
        PvarClass::State => FactKind::State,
        _ => FactKind::Gauge,
    };
    let spec = VertexSpec::new(Topic::new(&topic).ok()?, ValueType::U64).kind(kind);
    let spec = spec.unit(Unit::new(&info.unit).unwrap_or(Unit::NONE));
    publisher.register(spec).ok()
}

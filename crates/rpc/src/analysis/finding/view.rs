//! The inputs of rules: sums of callpaths, variables of processes, calls with both sides, configuration, facts of nodes.

use std::collections::HashMap;

use super::facts::NodeFacts;
use super::verdict::Verdict;
use crate::analysis::clocks::mix;
use crate::analysis::histogram::Histogram;
use crate::analysis::names::PathId;
use crate::analysis::process::{label, number};
use crate::analysis::profile::collect::{Collector, PathSums, SideSums};
use crate::analysis::stream::{ProcessSample, Reader, Side, Visit};
use crate::analysis::trace::Trace;
use crate::error::Error;
use crate::file::Process;
use crate::interval::Interval;
use crate::record::Kind;

/// The most calls that are kept with both sides: models need neighbours in time, and a hundred thousand calls show
/// every pattern of a service. Of a longer run its middle is kept.
const MAX_JOINED: u64 = 200_000;

/// The fewest calls of a callpath that is judged: shares of fewer are chance.
pub(super) const MIN_CALLS: u64 = 50;

/// A call with both sides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Joined {
    pub(super) path: PathId,
    /// Id of the call around it; 0 at the root.
    pub(super) parent: u64,
    /// The process that made the call.
    pub(super) origin: u32,
    /// The process that served it.
    pub(super) target: u32,
    /// Begin and end at the origin, and arrival at the target, on the common clock.
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) arrived: i64,
    /// Time in the queue, in the handler without its own calls, and in its own calls, in ns.
    pub(super) queue: u64,
    pub(super) own: u64,
    pub(super) children: u64,
    /// Time for which the handler waited for its database, in ns.
    pub(super) database_wait: Option<u64>,
    /// Bytes of the call: of its bulk, or of its messages.
    pub(super) bytes: Option<u64>,
    /// The sides that are known: 1 the origin, 2 the target.
    pub(super) sides: u8,
}

impl Joined {
    /// Time of the call outside of queue and handler: messages, completion.
    pub(super) fn outside(&self) -> u64 {
        let stay = self.queue + self.own + self.children;
        self.end.abs_diff(self.start).saturating_sub(stay)
    }

    /// The end of the handler.
    pub(super) fn served(&self) -> i64 {
        self.arrived.saturating_add_unsigned(self.queue + self.own + self.children)
    }
}

/// Collects the inputs in one pass.
struct Inputs<'t> {
    trace: &'t Trace<'t>,
    collector: Collector,
    /// By process and number of the variable; those of calls and of samples.
    variables: HashMap<(u32, u32), Histogram>,
    joined: HashMap<u64, Joined>,
    processors: HashMap<u32, CpuSamples>,
    window: (i64, i64),
}

/// The first and the last sample of a process's processor time: the moment, and the time so far, both in ns.
#[derive(Clone, Copy, Debug)]
struct CpuSamples {
    first: (i64, u64),
    last: (i64, u64),
}

/// The variables in which recorders keep the processor time of their process, with the ns of their unit.
const CPU_VARIABLES: [(&str, u64); 2] = [("process_cpu_us", 1000), ("process_cpu_ns_total", 1)];

/// The inputs of rules.
pub struct View<'t> {
    pub(super) trace: &'t Trace<'t>,
    pub(super) collector: Collector,
    pub(super) facts: &'t NodeFacts,
    /// Calls with both sides, by their begin.
    pub(super) joined: Vec<Joined>,
    variables: HashMap<(u32, u32), Histogram>,
    processors: HashMap<u32, CpuSamples>,
}

impl std::fmt::Debug for View<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("View").field("joined", &self.joined.len()).finish_non_exhaustive()
    }
}

impl Inputs<'_> {
    fn join(&mut self, side: &Side, reader: &Reader) {
        let start = self.trace.clocks.correct(side.process, side.start);
        // Sides of one call lie within one another, so a margin of the window keeps or drops both in most cases.
        if side.kind == Kind::Local || !(self.window.0..=self.window.1).contains(&start) {
            return;
        }
        let value = |name: &str| {
            let found = side.values().iter().find(|(pvar, _)| {
                reader.pvars.get(*pvar as usize).is_some_and(|pvar| pvar.name == name)
            });
            found.map(|(_, value)| *value)
        };
        let part = |interval| side.interval(interval).unwrap_or(0);
        let call = self.joined.entry(mix(side.span)).or_default();
        let bytes = match (value("request_bytes"), value("response_bytes")) {
            (None, None) => value("bulk_bytes"),
            (request, response) => Some(request.unwrap_or(0) + response.unwrap_or(0)),
        };
        call.bytes = call.bytes.max(bytes);
        if side.kind == Kind::Origin {
            call.path = side.path;
            call.origin = side.process;
            call.parent = side.parent;
            (call.start, call.end) = (start, start.saturating_add_unsigned(side.duration));
            call.sides |= 1;
        } else {
            call.target = side.process;
            call.arrived = start;
            call.queue = part(Interval::TargetHandler);
            call.children = part(Interval::Children);
            call.own = side
                .interval(Interval::TargetExecutionExclusive)
                .unwrap_or_else(|| side.duration.saturating_sub(call.queue + call.children));
            call.database_wait = value("database_wait_ns");
            call.sides |= 2;
        }
    }
}

impl Visit for Inputs<'_> {
    fn side(&mut self, side: &Side, reader: &Reader) {
        self.collector.side(side, reader);
        self.join(side, reader);
        for (pvar, value) in side.values() {
            self.variables.entry((side.process, *pvar)).or_default().add(*value);
        }
    }

    fn sample(&mut self, sample: &ProcessSample, reader: &Reader) {
        for (pvar, value) in &sample.values {
            let name = reader.pvars.get(*pvar as usize).map_or("", |pvar| pvar.name.as_str());
            if let Some((_, ns)) = CPU_VARIABLES.iter().find(|(known, _)| *known == name) {
                let now = (sample.time, value.saturating_mul(*ns));
                let samples = self.processors.entry(sample.process);
                samples.or_insert(CpuSamples { first: now, last: now }).last = now;
            }
            self.variables.entry((sample.process, *pvar)).or_default().add(*value);
        }
    }
}

impl<'t> View<'t> {
    /// Collects the inputs of a trace.
    ///
    /// # Errors
    /// A file cannot be read any more.
    pub fn collect(trace: &'t Trace<'t>, facts: &'t NodeFacts) -> Result<Self, Error> {
        let counts = trace.counts();
        let share = (MAX_JOINED as f64 / counts.origins.max(counts.targets).max(1) as f64).min(1.0);
        let margin = (trace.length_ns() as f64 * (1.0 - share) / 2.0) as u64;
        let window = (
            trace.first.saturating_add_unsigned(margin),
            trace.last.saturating_sub_unsigned(margin),
        );
        let mut inputs = Inputs {
            trace,
            collector: Collector::default(),
            variables: HashMap::new(),
            joined: HashMap::new(),
            processors: HashMap::new(),
            window,
        };
        trace.stream(&mut inputs)?;
        let whole = std::mem::take(&mut inputs.joined).into_values().filter(|call| call.sides == 3);
        let mut joined: Vec<Joined> = whole.collect();
        joined.sort_unstable_by_key(|call| (call.start, call.end, call.arrived));
        let Inputs { collector, variables, processors, .. } = inputs;
        Ok(Self { trace, collector, facts, joined, variables, processors })
    }

    /// The end-to-end time of all root calls in ns.
    pub(super) fn root_ns(&self) -> f64 {
        let callpaths = &self.trace.reader.callpaths;
        let roots = self.paths().filter(|(id, _)| callpaths.get(*id).parent_hash == 0);
        roots.map(|(_, sums)| total_ns(sums)).sum()
    }

    /// The callpaths with calls.
    pub(super) fn paths(&self) -> impl Iterator<Item = (PathId, &PathSums)> {
        let called = |(_, sums): &(usize, &PathSums)| {
            sums.origin.durations.count() + sums.target.durations.count() > 0
        };
        self.collector.paths.iter().enumerate().filter(called).map(|(id, s)| (id as PathId, s))
    }

    /// The callpaths with enough calls to be judged, or the verdict that there is none.
    pub(super) fn judged_paths(&self) -> Result<Vec<(PathId, &PathSums)>, Verdict> {
        let paths: Vec<_> = self
            .paths()
            .filter(|(_, sums)| end_to_end(sums).durations.count() >= MIN_CALLS)
            .collect();
        match paths.is_empty() {
            true => Err(Verdict::unknown(format!("no callpath has {MIN_CALLS} calls"))),
            false => Ok(paths),
        }
    }

    pub(super) fn names(&self, path: PathId) -> Vec<String> {
        self.trace.reader.callpaths.names(path).into_iter().map(str::to_owned).collect()
    }

    pub(super) fn process(&self, process: u32) -> Option<&Process> {
        self.trace.reader.processes.get(process as usize)
    }

    pub(super) fn label(&self, process: u32) -> String {
        self.process(process).map(label).unwrap_or_default()
    }

    /// The values of a variable of a process, those of calls and of samples together.
    pub(super) fn variable(&self, process: u32, name: &str) -> Option<&Histogram> {
        let pvars = self.trace.reader.pvars.iter().enumerate();
        let mut found = pvars.filter(|(_, pvar)| pvar.name == name);
        found.find_map(|(at, _)| self.variables.get(&(process, at as u32)))
    }

    /// Processors that a process used, as a mean between its first and its last sample; `None` with fewer than two.
    pub(super) fn processors(&self, process: u32) -> Option<f64> {
        let CpuSamples { first, last } = self.processors.get(&process)?;
        let time = last.0.saturating_sub(first.0);
        let used = last.1.saturating_sub(first.1);
        (time > 0).then(|| used as f64 / time as f64)
    }

    /// The length of the run in ns.
    pub(super) fn length_ns(&self) -> u64 {
        self.trace.length_ns()
    }

    /// Returns true if a target reported an interval.
    pub(super) fn has_interval(&self, interval: Interval) -> bool {
        self.paths().any(|(_, sums)| sums.interval_ns(interval).is_some())
    }

    /// A number of the configuration of a process.
    pub(super) fn number(&self, process: u32, key: &str) -> Option<f64> {
        number(self.process(process)?, key)
    }

    /// A value of the configuration of a process, as it was recorded.
    pub(super) fn setting(&self, process: u32, key: &str) -> Option<String> {
        self.process(process)?.config.get(key).cloned()
    }

    /// The reason why targets of all paths have no interval, from their hosts; a general one if they give none.
    pub(super) fn unseen(&self, interval: Interval) -> String {
        let reasons = self.trace.reader.processes.iter();
        let given = reasons.filter_map(|p| p.unseen.get(interval.name())).next();
        let why = given.map_or("the recorders ran without details", String::as_str);
        format!("no process reported `{}`: {why}", interval.name())
    }
}

/// The side from which the end-to-end time comes: the callers', if they have records.
pub(super) fn end_to_end(sums: &PathSums) -> &SideSums {
    if sums.origin.durations.count() > 0 { &sums.origin } else { &sums.target }
}

/// The cumulative end-to-end time of a callpath in ns.
pub(super) fn total_ns(sums: &PathSums) -> f64 {
    end_to_end(sums).durations.sum() as f64
}

use std::time::Duration;

use skopos_model::{Timestamp, Topic, Value, ValueType};

use super::Graph;
use super::id::VertexId;
use super::node::Node;
use super::table::Table;
use crate::cell::Cell;
use crate::inputs::Inputs;
use crate::unknown::{Outcome, Unknown};

/// The result of one insight in a run.
#[derive(Clone, Copy, Debug)]
pub struct Computed<'a> {
    /// The vertex.
    pub id: VertexId,
    /// The topic.
    pub topic: &'a Topic,
    /// The value, or the reason why it is unknown.
    pub outcome: &'a Outcome,
    /// The time since which the outcome holds.
    pub since: Timestamp,
    /// The time at which the oldest needed input was polled.
    pub checked_at: Timestamp,
    /// True if the outcome changed; otherwise only `checked_at` changed.
    pub changed: bool,
}

/// Counters of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// The number of evaluated insights.
    pub evaluated: usize,
    /// The number of insights whose outcome changed.
    pub changed: usize,
}

/// The interval at which an insight that depends on time is evaluated without a change of its
/// inputs: the default shortest interval of a sensor.
pub const TIMED_EVERY: Duration = Duration::from_secs(1);

/// The tolerance for early runs. A caller that runs the graph once a second is sometimes a little
/// early, by the time that the run before took; that must not skip a second.
const TIMED_EARLY: Duration = Duration::from_millis(100);

/// The smallest step of time.
const NANOSECOND: Duration = Duration::from_nanos(1);

/// The caller's clock for the cost of evaluations, in nanoseconds.
type Clock<'a> = Option<&'a mut dyn FnMut() -> u64>;

impl Graph {
    /// Computes every insight with a changed input, each once and after its inputs. Calls `report`
    /// for each insight whose outcome or age changed.
    pub fn run(&mut self, now: Timestamp, report: &mut dyn FnMut(Computed<'_>)) -> RunStats {
        self.run_timed(now, None, report)
    }

    /// Does the same as [`run`](Self::run) and measures each evaluation with `clock`, in
    /// nanoseconds.
    pub fn run_timed(
        &mut self,
        now: Timestamp,
        mut clock: Option<&mut dyn FnMut() -> u64>,
        report: &mut dyn FnMut(Computed<'_>),
    ) -> RunStats {
        let mut stats = RunStats::default();
        self.expire(now);
        let mut pending = std::mem::take(&mut self.pending);
        for index in pending.drain(..) {
            self.begin(index);
        }
        // No vertex joins during a run, so this is still the whole list; its capacity is kept.
        self.pending = pending;
        // An insight that is queued meanwhile has a higher rank, and at most MAX_HEIGHT.
        let mut rank = 0;
        while rank < self.queue.len() {
            let mut batch = std::mem::take(&mut self.queue[rank]);
            for index in batch.drain(..) {
                self.settle(index, now, &mut clock, report, &mut stats);
            }
            self.queue[rank] = batch;
            rank += 1;
        }
        stats
    }

    /// Queues the insights that time alone may have changed.
    fn expire(&mut self, now: Timestamp) {
        for place in 0..self.on_time.len() {
            let index = self.on_time[place];
            let Some(node) = self.nodes[index as usize].as_deref_mut() else { continue };
            // A clock that was set back must not stop these insights until it has caught up.
            let set_back = node.timed && now < node.evaluated_at;
            if set_back || node.due().is_some_and(|due| due <= now) {
                node.dirty = true;
                self.wait_for_run(index);
            }
        }
    }

    /// Starts the run at a vertex that changed since the last run.
    fn begin(&mut self, index: u32) {
        let at = index as usize;
        // A removed vertex is no longer pending.
        if !std::mem::take(&mut self.table.vertices[at].pending) {
            return;
        }
        match &mut self.nodes[at] {
            Some(node) if !node.queued => {
                node.queued = true;
                enqueue(&mut self.queue, self.table.vertices[at].rank, index);
            }
            Some(_) => {}
            None => self.spread(index),
        }
    }

    /// Propagates the poll of the vertex at `index` to its dependents.
    fn spread(&mut self, index: u32) {
        let Table { cells, vertices, .. } = &mut self.table;
        let id = VertexId::new(index, vertices[index as usize].generation()).as_u32();
        let matters = std::mem::take(&mut vertices[index as usize].matters);
        let cell = &cells[index as usize];
        for edge in &vertices[index as usize].dependents {
            let Some(node) = self.nodes[edge.insight as usize].as_deref_mut() else { continue };
            if edge.refused {
                continue;
            }
            if matters {
                node.insight.changed(edge.slot.into(), id, cell);
                node.dirty = true;
            }
            node.touch(index, cell.checked_at());
            if !node.queued {
                node.queued = true;
                enqueue(&mut self.queue, vertices[edge.insight as usize].rank, edge.insight);
            }
        }
    }

    /// Computes the insight at `index` if necessary; all of its inputs are final.
    fn settle(
        &mut self,
        index: u32,
        now: Timestamp,
        clock: &mut Clock<'_>,
        report: &mut dyn FnMut(Computed<'_>),
        stats: &mut RunStats,
    ) {
        let at = index as usize;
        let Some(node) = self.nodes[at].as_deref_mut() else { return };
        let outcome = node.settle(now, &self.table.cells, clock, stats);
        // Without a known input, the absence of inputs was found out now.
        let checked_at = node.oldest.map(|(_, time)| time);
        let cell = &mut self.table.cells[at];
        let change = match outcome {
            Some(outcome) => cell.take_outcome(now, checked_at, outcome),
            None => cell.confirm(now, checked_at),
        };
        self.table.note(at, change, now);
        let cell = &self.table.cells[at];
        if (change.changed || change.checked)
            && let Some(outcome) = cell.outcome()
        {
            stats.changed += usize::from(change.changed);
            report(Computed {
                id: self.table.id(index),
                topic: cell.topic(),
                outcome,
                since: cell.since(),
                checked_at: cell.checked_at(),
                changed: change.changed,
            });
        }
        self.spread(index);
    }
}

impl Node {
    /// Returns the time at which the insight has to be evaluated without a change of its inputs.
    fn due(&self) -> Option<Timestamp> {
        let ages = || {
            let (_, checked_at) = self.oldest.filter(|_| !self.aged)?;
            Some(checked_at.saturating_add(self.max_age?).saturating_add(NANOSECOND))
        };
        let moves = self.timed.then(|| self.evaluated_at.saturating_add(TIMED_EVERY - TIMED_EARLY));
        [ages(), moves].into_iter().flatten().min()
    }

    /// Returns the new outcome, or `None` if the outcome stays as it is.
    fn settle(
        &mut self,
        now: Timestamp,
        cells: &[Cell],
        clock: &mut Clock<'_>,
        stats: &mut RunStats,
    ) -> Option<Outcome> {
        self.queued = false;
        if std::mem::take(&mut self.reorder) {
            self.oldest = self.find_oldest(cells);
        }
        let aged = is_too_old(self, now);
        let dirty = std::mem::take(&mut self.dirty) | (aged != self.aged);
        self.aged = aged;
        if !dirty {
            return None;
        }
        self.evaluated_at = now;
        if let Some(unknown) = self.lacks(now, cells) {
            return Some(Err(unknown));
        }
        let inputs = Inputs::of_graph(now, &self.matched, cells);
        let started = clock.as_mut().map(|clock| clock());
        let outcome = self.insight.evaluate(&inputs);
        self.cost.runs += 1;
        stats.evaluated += 1;
        if let (Some(started), Some(clock)) = (started, clock) {
            self.cost.last_ns = clock().saturating_sub(started);
            self.cost.total_ns += self.cost.last_ns;
        }
        Some(outcome.and_then(|value| checked(value, self.spec.value_type)))
    }

    /// Returns the reason why the insight cannot be computed at all.
    fn lacks(&self, now: Timestamp, cells: &[Cell]) -> Option<Unknown> {
        if let Some((_, _, why)) = self.refused.first() {
            return Some(why.clone());
        }
        for (slot, matched) in self.matched.iter().enumerate() {
            if !matched.input().needed || self.insight.judges_missing() {
                continue;
            }
            let mut found = matched.indexes().iter().map(|&index| &cells[index as usize]);
            let Some(first) = found.clone().next() else {
                return Some(Inputs::of_graph(now, &self.matched, cells).missing(slot));
            };
            // If the input matches several vertices, the insight decides whether it can do without
            // some.
            if found.all(|cell| !matches!(cell.outcome(), Some(Ok(_)))) {
                return first.value().err();
            }
        }
        let (index, _) = self.oldest.filter(|_| self.aged)?;
        let (topic, max_age) = (cells[index as usize].topic(), self.max_age?.as_secs_f64());
        // The text leaves out the age, because it would be a new reason at each run.
        Some(Unknown::new(format!("{topic} is more than {max_age} s old")))
    }
}

/// Appends an insight to the queue of its rank; the queue grows with the height of the graph.
fn enqueue(queue: &mut Vec<Vec<u32>>, rank: u8, insight: u32) {
    let rank = usize::from(rank);
    if queue.len() <= rank {
        queue.resize_with(rank + 1, Vec::new);
    }
    queue[rank].push(insight);
}

fn is_too_old(node: &Node, now: Timestamp) -> bool {
    let Some((max_age, (_, checked_at))) = node.max_age.zip(node.oldest) else { return false };
    now.since(checked_at) > max_age
}

/// Converts `value` to the type `wanted` of its vertex.
fn checked(value: Value, wanted: ValueType) -> Outcome {
    let value = match (value, wanted) {
        (Value::I64(v), ValueType::F64) => Value::F64(v as f64),
        (Value::U64(v), ValueType::F64) => Value::F64(v as f64),
        (value, _) => value,
    };
    match value {
        Value::F64(v) if !v.is_finite() => Err(Unknown::new(format!(
            "its formula gives {v}, which is not a finite number: it divides by zero or overflows"
        ))),
        value if value.value_type() != wanted => Err(Unknown::new(format!(
            "its formula gives a value of type {}, and its declared type is {wanted}",
            value.value_type()
        ))),
        value => Ok(value),
    }
}

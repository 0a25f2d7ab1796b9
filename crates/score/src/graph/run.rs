use std::time::Duration;

use skopos_model::{Timestamp, Topic, Value, ValueType};

use super::node::Node;
use super::table::Table;
use super::{Graph, VertexId};
use crate::{Cell, Inputs, Outcome, Unknown};

/// What became of one insight in a run.
#[derive(Clone, Copy, Debug)]
pub struct Computed<'a> {
    /// Its vertex.
    pub id: VertexId,
    /// Its topic.
    pub topic: &'a Topic,
    /// Its value, or why there is none.
    pub outcome: &'a Outcome,
    /// Since when that holds.
    pub since: Timestamp,
    /// When its oldest needed input was looked at.
    pub checked_at: Timestamp,
    /// True if the outcome is another one; else only `checked_at` is.
    pub changed: bool,
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// Insights that were evaluated.
    pub evaluated: usize,
    /// Insights whose outcome is another one.
    pub changed: usize,
}

/// How often what moves with time alone is evaluated, if its inputs do not change: as often as a
/// sensor is polled at most by default.
pub const TIMED_EVERY: Duration = Duration::from_secs(1);

/// Who runs the graph once a second comes a little early at times, by what the run before took to get
/// here: that is no reason to leave out a second.
const TIMED_EARLY: Duration = Duration::from_millis(100);

/// The smallest step of time.
const NANOSECOND: Duration = Duration::from_nanos(1);

/// The caller's clock for the cost of evaluations, in nanoseconds.
type Clock<'a> = Option<&'a mut dyn FnMut() -> u64>;

impl Graph {
    /// Computes every insight that has to be: all of whose inputs one matters, each once, inputs
    /// before what is computed from them. `told` hears of those whose outcome or age is another one.
    pub fn run(&mut self, now: Timestamp, told: &mut dyn FnMut(Computed<'_>)) -> Ran {
        self.run_timed(now, None, told)
    }

    /// As [`run`](Self::run), and takes the time of each evaluation by `clock`, in nanoseconds.
    pub fn run_timed(
        &mut self,
        now: Timestamp,
        mut clock: Option<&mut dyn FnMut() -> u64>,
        told: &mut dyn FnMut(Computed<'_>),
    ) -> Ran {
        let mut ran = Ran::default();
        self.expire(now);
        let mut pending = std::mem::take(&mut self.pending);
        for index in pending.drain(..) {
            self.begin(index);
        }
        // Nothing joins while a run lasts, so this is the list, and its room is kept.
        self.pending = pending;
        // Whatever is put into the queue meanwhile has a higher rank, and at most MAX_HEIGHT.
        let mut rank = 0;
        while rank < self.queue.len() {
            let mut batch = std::mem::take(&mut self.queue[rank]);
            for index in batch.drain(..) {
                self.settle(index, now, &mut clock, told, &mut ran);
            }
            self.queue[rank] = batch;
            rank += 1;
        }
        ran
    }

    /// Insights that time alone may have changed are looked at again.
    fn expire(&mut self, now: Timestamp) {
        for place in 0..self.on_time.len() {
            let index = self.on_time[place];
            let Some(node) = self.nodes[index as usize].as_deref_mut() else { continue };
            // A clock that was set back must not stop what moves with time until it has caught up.
            let set_back = node.timed && now < node.evaluated_at;
            if set_back || node.due().is_some_and(|due| due <= now) {
                node.dirty = true;
                self.wait_for_run(index);
            }
        }
    }

    /// A vertex that something happened to since the last run.
    fn begin(&mut self, index: u32) {
        let at = index as usize;
        // One that has gone is no longer pending.
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

    /// Tells those that compute with it that the vertex at `index` was looked at.
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

    /// All inputs of the insight at `index` are as they will be: computes it if it has to be.
    fn settle(
        &mut self,
        index: u32,
        now: Timestamp,
        clock: &mut Clock<'_>,
        told: &mut dyn FnMut(Computed<'_>),
        ran: &mut Ran,
    ) {
        let at = index as usize;
        let Some(node) = self.nodes[at].as_deref_mut() else { return };
        let outcome = node.settle(now, &self.table.cells, clock, ran);
        // Without any input that is known, it was found out now that there is none.
        let checked_at = node.oldest.map(|(_, time)| time);
        let cell = &mut self.table.cells[at];
        let taken = match outcome {
            Some(outcome) => cell.take_outcome(now, checked_at, outcome),
            None => cell.stands(now, checked_at),
        };
        self.table.note(at, taken, now);
        let cell = &self.table.cells[at];
        if (taken.changed || taken.checked)
            && let Some(outcome) = cell.outcome()
        {
            ran.changed += usize::from(taken.changed);
            told(Computed {
                id: self.table.id(index),
                topic: cell.topic(),
                outcome,
                since: cell.since(),
                checked_at: cell.checked_at(),
                changed: taken.changed,
            });
        }
        self.spread(index);
    }
}

impl Node {
    /// When it has to be looked at although nothing happened.
    fn due(&self) -> Option<Timestamp> {
        let ages = || {
            let (_, checked_at) = self.oldest.filter(|_| !self.aged)?;
            Some(checked_at.saturating_add(self.max_age?).saturating_add(NANOSECOND))
        };
        let moves = self.timed.then(|| self.evaluated_at.saturating_add(TIMED_EVERY - TIMED_EARLY));
        [ages(), moves].into_iter().flatten().min()
    }

    /// What it comes to; `None` if it stands as it is.
    fn settle(
        &mut self,
        now: Timestamp,
        cells: &[Cell],
        clock: &mut Clock<'_>,
        ran: &mut Ran,
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
        ran.evaluated += 1;
        if let (Some(started), Some(clock)) = (started, clock) {
            self.cost.last_ns = clock().saturating_sub(started);
            self.cost.total_ns += self.cost.last_ns;
        }
        Some(outcome.and_then(|value| checked(value, self.spec.value_type)))
    }

    /// Why it cannot be computed at all.
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
            // Of several, the insight knows whether it can do without some.
            if found.all(|cell| !matches!(cell.outcome(), Some(Ok(_)))) {
                return first.value().err();
            }
        }
        let (index, _) = self.oldest.filter(|_| self.aged)?;
        let (topic, max_age) = (cells[index as usize].topic(), self.max_age?.as_secs_f64());
        // Not how old: that would be another reason at each look.
        Some(Unknown::new(format!("{topic} is more than {max_age} s old")))
    }
}

/// Puts an insight behind those of its rank; the queue is as long as the graph has been high.
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

/// `value` as a vertex of type `wanted` can hold it.
fn checked(value: Value, wanted: ValueType) -> Outcome {
    let value = match (value, wanted) {
        (Value::I64(v), ValueType::F64) => Value::F64(v as f64),
        (Value::U64(v), ValueType::F64) => Value::F64(v as f64),
        (value, _) => value,
    };
    match value {
        Value::F64(v) if !v.is_finite() => Err(Unknown::new(format!(
            "its formula came to {v}, which is no finite number: it divides by zero, or overflows"
        ))),
        value if value.value_type() != wanted => Err(Unknown::new(format!(
            "its formula came to a value of type {}, and {wanted} was declared",
            value.value_type()
        ))),
        value => Ok(value),
    }
}

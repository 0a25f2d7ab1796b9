//! Things that come and go (disks, mounts, interfaces), each with the same facts.

use skopos_model::schema::{Family, Metric};
use skopos_model::{Scalar, Structured, escape_segment};

use crate::facts::Facts;
use crate::sensor::{Sink, Skip, Tick};

/// The facts of every present instance, looked up by the kernel's name of it, with the state (`T`)
/// that the sensor keeps for an instance from one tick to the next.
///
/// A tick is `begin`, a `see` for each thing that the kernel lists, and `end`. Two instances never
/// have the same label at the same time, so two facts never have the same topic.
pub(crate) struct Instances<T> {
    family: &'static Family,
    /// In the order in which the kernel lists them.
    present: Vec<Instance<T>>,
    max: usize,
    sweep: u64,
    /// The likely place of the next instance: the kernel lists them in the same order each time.
    next: usize,
    refused: usize,
    /// A buffer for the label. A refused instance is offered at each tick, which must not allocate.
    segment: String,
}

/// One instance.
pub(crate) struct Instance<T> {
    name: Box<[u8]>,
    seen: u64,
    facts: Facts,
    /// The state that the sensor keeps for it.
    pub(crate) state: T,
}

impl<T> Instance<T> {
    /// Hands over one of its facts.
    pub(crate) fn set(
        &mut self,
        tick: &mut Tick<'_>,
        metric: &'static Metric,
        value: impl Into<Scalar>,
    ) {
        self.facts.set(tick, metric, value);
    }

    /// Hands over one of its facts that is a text, list or record.
    pub(crate) fn set_structured(
        &mut self,
        tick: &mut Tick<'_>,
        metric: &'static Metric,
        value: &Structured,
    ) {
        self.facts.set_structured(tick, metric, value);
    }

    /// Sets a fact that has a value, and removes a fact that no longer has one.
    pub(crate) fn set_or_unset(
        &mut self,
        tick: &mut Tick<'_>,
        metric: &'static Metric,
        value: Option<impl Into<Scalar>>,
    ) {
        match value {
            Some(value) => self.set(tick, metric, value),
            None => self.unset(tick, metric),
        }
    }

    /// Removes one of its facts, if it is there, because its value no longer holds.
    pub(crate) fn unset(&mut self, tick: &mut Tick<'_>, metric: &'static Metric) {
        self.facts.unregister_one(tick.sink, metric);
    }
}

impl<T> Instances<T> {
    /// Returns a set without instances of `family` that never holds more than `max`.
    pub(crate) fn new(family: &'static Family, max: usize) -> Self {
        Self {
            family,
            present: Vec::new(),
            max,
            sweep: 0,
            next: 0,
            refused: 0,
            segment: String::new(),
        }
    }

    /// Starts a tick. [`see`](Self::see) then marks the instances that are still there.
    pub(crate) fn begin(&mut self) {
        self.sweep += 1;
        self.next = 0;
        self.refused = 0;
    }

    /// Returns the instance that the kernel and topics call `name`. `make` returns the state of a
    /// new one. `None` if there are too many instances, or another one has this label.
    pub(crate) fn see(
        &mut self,
        sink: &mut dyn Sink,
        name: &[u8],
        make: impl FnOnce() -> T,
    ) -> Option<&mut Instance<T>> {
        self.see_as(sink, name, name, make)
    }

    /// Returns the instance that the kernel calls `name` and topics call `label`; otherwise like
    /// [`see`](Self::see).
    pub(crate) fn see_as(
        &mut self,
        sink: &mut dyn Sink,
        name: &[u8],
        label: &[u8],
        make: impl FnOnce() -> T,
    ) -> Option<&mut Instance<T>> {
        let at = match self.find(name) {
            Some(at) => at,
            None => self.add(sink, name, label, make)?,
        };
        self.next = at + 1;
        let instance = &mut self.present[at];
        instance.seen = self.sweep;
        Some(instance)
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        let (before, after) = self.present.split_at(self.next.min(self.present.len()));
        let is_it = |instance: &Instance<T>| *instance.name == *name;
        match after.iter().position(is_it) {
            Some(at) => Some(before.len() + at),
            None => before.iter().position(is_it),
        }
    }

    fn add(
        &mut self,
        sink: &mut dyn Sink,
        name: &[u8],
        label: &[u8],
        make: impl FnOnce() -> T,
    ) -> Option<usize> {
        let Self { segment, .. } = self;
        segment.clear();
        escape_segment(label, segment);
        if let Some(at) = self.present.iter().position(|i| i.facts.instance() == segment) {
            if self.present[at].seen == self.sweep {
                self.refused += 1;
                return None;
            }
            // For example, another file system on the same mount point since the last tick.
            self.present.remove(at).facts.unregister(sink);
        }
        if self.segment.is_empty() || self.present.len() >= self.max {
            self.refused += 1;
            return None;
        }
        let facts = Facts::of(self.family, &self.segment);
        let at = self.next.min(self.present.len());
        self.present.insert(at, Instance { name: name.into(), seen: 0, facts, state: make() });
        Some(at)
    }

    /// Returns an instance that a [`see`](Self::see) of this tick has found.
    pub(crate) fn known(&mut self, name: &[u8]) -> Option<&mut Instance<T>> {
        let at = self.find(name)?;
        self.present.get_mut(at)
    }

    /// Passes each present instance to `take`, for sensors that sum things up for an instance.
    pub(crate) fn each(&mut self, mut take: impl FnMut(&mut Instance<T>)) {
        self.present.iter_mut().for_each(&mut take);
    }

    /// Ends a tick: removes the facts of instances that were not seen.
    pub(crate) fn end(&mut self, sink: &mut dyn Sink) {
        let sweep = self.sweep;
        self.present.retain_mut(|instance| {
            if instance.seen != sweep {
                instance.facts.unregister(sink);
            }
            instance.seen == sweep
        });
    }

    /// Instances that the last tick left out.
    pub(crate) fn skips(&self) -> Vec<Skip> {
        let Self { family, max, refused, .. } = self;
        match refused {
            0 => Vec::new(),
            _ => vec![Skip::new(
                format!("{}/*", family.name),
                format!(
                    "{refused} instances beyond the first {max}, or with the same name as another"
                ),
            )],
        }
    }
}

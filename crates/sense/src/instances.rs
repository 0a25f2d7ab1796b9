//! Things that come and go (disks, mounts, interfaces), each with the same facts.

use skopos_model::schema::{Family, Metric};
use skopos_model::{Scalar, Structured, escape_segment};

use crate::facts::Facts;
use crate::{Sink, Skip, Tick};

/// The facts of every present instance, found again by the kernel's name for it, with whatever
/// else (`T`) the sensor keeps for an instance from one tick to the next.
///
/// A tick is `begin`, a `see` for each thing that the kernel lists, `end`. No two instances have
/// the same label at a time, so no two facts have the same topic.
pub(crate) struct Instances<T> {
    family: &'static Family,
    /// In the order in which the kernel lists them.
    present: Vec<Instance<T>>,
    max: usize,
    sweep: u64,
    /// Where the next one most likely stands: the kernel lists them in the same order each time.
    next: usize,
    refused: usize,
    /// The label at hand: what is refused is offered at each tick, and shall not allocate at each.
    segment: String,
}

/// One instance.
pub(crate) struct Instance<T> {
    name: Box<[u8]>,
    seen: u64,
    facts: Facts,
    /// What the sensor keeps for it.
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

    /// Hands over a fact that has a value, and takes away one that has none any more.
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

    /// Takes one of its facts away, if it is there: what it told is no longer so.
    pub(crate) fn unset(&mut self, tick: &mut Tick<'_>, metric: &'static Metric) {
        self.facts.unregister_one(tick.sink, metric);
    }
}

impl<T> Instances<T> {
    /// No instance of `family` yet, and never more than `max`.
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

    /// Starts a tick: from now on [`see`](Self::see) says which instances are still there.
    pub(crate) fn begin(&mut self) {
        self.sweep += 1;
        self.next = 0;
        self.refused = 0;
    }

    /// The instance that the kernel calls `name`, also in topics. `make` gives a new one's state.
    /// `None` if there are too many, or another has this label.
    pub(crate) fn see(
        &mut self,
        sink: &mut dyn Sink,
        name: &[u8],
        make: impl FnOnce() -> T,
    ) -> Option<&mut Instance<T>> {
        self.see_as(sink, name, name, make)
    }

    /// As [`see`](Self::see), for a thing that the kernel calls `name` and topics call `label`.
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
            // Another file system on the same mount point since the last tick, say.
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

    /// Ends a tick: takes away the facts of instances that were not seen.
    pub(crate) fn end(&mut self, sink: &mut dyn Sink) {
        let sweep = self.sweep;
        self.present.retain_mut(|instance| {
            if instance.seen != sweep {
                instance.facts.unregister(sink);
            }
            instance.seen == sweep
        });
    }

    /// What the last tick left out, if anything.
    pub(crate) fn skips(&self) -> Vec<Skip> {
        let Self { family, max, refused, .. } = self;
        match refused {
            0 => Vec::new(),
            _ => vec![Skip::new(
                format!("{}/*", family.name),
                format!("{refused} beyond the first {max}, or of the same name as another"),
            )],
        }
    }
}

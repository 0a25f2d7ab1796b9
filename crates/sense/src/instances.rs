//! Things that come and go (disks, mounts, interfaces), each with the same facts.

use skopos_model::escape_segment;
use skopos_model::schema::Metric;

use crate::{FactId, Sink};

/// The facts of every present instance, found again by the kernel's name for it, with whatever
/// else (`T`) the sensor keeps for an instance from one tick to the next.
pub(crate) struct Instances<T> {
    metrics: &'static [&'static Metric],
    present: Vec<Instance<T>>,
    sweep: u64,
}

/// One instance.
pub(crate) struct Instance<T> {
    name: Box<[u8]>,
    seen: u64,
    /// Ids in the order of the metrics that [`Instances::new`] got.
    pub(crate) facts: Box<[FactId]>,
    /// What the sensor keeps for it.
    pub(crate) state: T,
}

impl<T> Instances<T> {
    /// No instance yet; each will have these facts.
    pub(crate) fn new(metrics: &'static [&'static Metric]) -> Self {
        Self { metrics, present: Vec::new(), sweep: 0 }
    }

    /// Starts a tick: from now on [`see`](Self::see) says which instances are still there.
    pub(crate) fn begin(&mut self) {
        self.sweep += 1;
    }

    /// The instance that the kernel calls `name`; registers its facts if it is new, under `name`
    /// as a topic's segment. `make` gives a new one's state.
    pub(crate) fn see(
        &mut self,
        sink: &mut dyn Sink,
        name: &[u8],
        make: impl FnOnce() -> T,
    ) -> &mut Instance<T> {
        self.see_as(sink, name, name, make)
    }

    /// As [`see`](Self::see), for a thing that the kernel calls `name` and topics call `label`.
    pub(crate) fn see_as(
        &mut self,
        sink: &mut dyn Sink,
        name: &[u8],
        label: &[u8],
        make: impl FnOnce() -> T,
    ) -> &mut Instance<T> {
        let found = self.present.iter().position(|i| *i.name == *name);
        let at = found.unwrap_or_else(|| {
            let mut segment = String::new();
            escape_segment(label, &mut segment);
            let facts = self.metrics.iter().map(|m| sink.register(m, &segment)).collect();
            self.present.push(Instance { name: name.into(), seen: 0, facts, state: make() });
            self.present.len() - 1
        });
        let instance = &mut self.present[at];
        instance.seen = self.sweep;
        instance
    }

    /// Ends a tick: takes away the facts of instances that were not seen.
    pub(crate) fn end(&mut self, sink: &mut dyn Sink) {
        let sweep = self.sweep;
        self.present.retain(|instance| {
            if instance.seen != sweep {
                for &id in &instance.facts {
                    sink.unregister(id);
                }
            }
            instance.seen == sweep
        });
    }
}

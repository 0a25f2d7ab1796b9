//! Values of single cores, on machines with a few cores and with many.
//!
//! Up to [`MAX_CORES_APART`] cores, each core has facts of its own. A machine with more has a list
//! for each metric instead (see [`core_list`]). The choice is made when the sensor sees the cores,
//! and a machine that had lists keeps them.

use skopos_model::Scalar;
use skopos_model::core_list::{self, CORES_IN_A_LIST};
use skopos_model::schema::{Family, Metric};

use crate::facts::Facts;
use crate::sensor::{Skip, Tick};

/// The most cores with facts of their own. A fact of its own costs a tick 0.2 µs and memory 4 KiB,
/// so that the eleven facts of each of 64 cores are 3 MB, a third of an agent; those of 256 cores
/// would be 12 MB and half a millisecond a tick. Most machines of a cluster have two sockets of 32
/// cores or fewer.
pub(crate) const MAX_CORES_APART: usize = 64;

/// The most cores that are measured. The largest nodes on sale have 2,048 threads.
pub(crate) const MAX_CORES: usize = 2048;

/// Lists of some metrics of a family, with a value for each core.
pub(crate) struct CoreLists {
    family: &'static Family,
    metrics: &'static [&'static Metric],
    blocks: Vec<Block>,
    /// Number of cores beyond [`MAX_CORES`] at the last poll.
    left_out: usize,
}

/// The lists of [`CORES_IN_A_LIST`] cores.
struct Block {
    facts: Facts,
    /// The values of each metric, in the order of `metrics`.
    columns: Box<[Vec<Option<Scalar>>]>,
}

impl CoreLists {
    /// Returns empty lists of `metrics`.
    pub(crate) fn new(family: &'static Family, metrics: &'static [&'static Metric]) -> Self {
        Self { family, metrics, blocks: Vec::new(), left_out: 0 }
    }

    /// Starts a tick.
    pub(crate) fn begin(&mut self) {
        self.left_out = 0;
        let columns = self.blocks.iter_mut().flat_map(|block| &mut block.columns);
        columns.for_each(Vec::clear);
    }

    /// Sets the value of the metric at `column` for a core.
    pub(crate) fn set(&mut self, core: usize, column: usize, value: impl Into<Scalar>) {
        if core >= MAX_CORES {
            self.left_out += usize::from(column == 0);
            return;
        }
        let (block, at) = (core / CORES_IN_A_LIST, core % CORES_IN_A_LIST);
        while self.blocks.len() <= block {
            let columns = self.metrics.iter().map(|_| Vec::with_capacity(CORES_IN_A_LIST));
            let instance = core_list::instance(self.blocks.len());
            let facts = Facts::of(self.family, &instance);
            self.blocks.push(Block { facts, columns: columns.collect() });
        }
        let values = &mut self.blocks[block].columns[column];
        if values.len() <= at {
            values.resize(at + 1, None);
        }
        values[at] = Some(value.into());
    }

    /// Ends a tick: hands over the lists that have a value, and removes those without a core.
    pub(crate) fn end(&mut self, tick: &mut Tick<'_>) {
        for Block { facts, columns } in &mut self.blocks {
            if columns.iter().all(Vec::is_empty) {
                facts.unregister(tick.sink);
            }
            for (metric, values) in self.metrics.iter().zip(columns.iter()) {
                if !values.is_empty() {
                    facts.set_list(tick, metric, values);
                }
            }
        }
    }

    /// Cores that the last tick left out.
    pub(crate) fn skips(&self) -> Vec<Skip> {
        match self.left_out {
            0 => Vec::new(),
            n => vec![Skip::new(
                format!("{}/per_cpu", self.family.name),
                format!("{n} cores beyond the first {MAX_CORES}"),
            )],
        }
    }
}

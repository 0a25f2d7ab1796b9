use std::sync::Arc;

use serde_json::Value as Json;
use skopos_model::Value;
use skopos_model::schema::Metric;

use super::*;
use crate::Input;

/// One of the built-in insights: a row of the paper's Table 1.
#[derive(Debug)]
pub struct Definition {
    /// Name, help, unit and type: a metric of `schema/insight.toml`.
    pub metric: &'static Metric,
    /// Its row in Table 1.
    pub row: u8,
    /// What it is called, for people.
    pub name: &'static str,
    /// The formula, in the names of the inputs.
    pub formula: &'static str,
    /// Where the formula comes from.
    pub source: &'static str,
    /// What there is a vertex for.
    pub instances: Instances,
    /// Its inputs, by the places that `compute` reads them from.
    pub inputs: &'static [Wanted],
    /// The formula as code.
    pub compute: fn(&Subject, &Inputs<'_>) -> Outcome,
}

/// The rows of Table 1 in their order. A row has one metric, but for device load, whose printed
/// formula has a companion that is easier to use.
pub static DEFINITIONS: &[&Definition] = &[
    &msca::DEFINITION,
    &interference_factor::DEFINITION,
    &fs_performance::DEFINITION,
    &block_hotness::DEFINITION,
    &device_health::DEFINITION,
    &network_health::DEFINITION,
    &device_fault_tolerance::DEFINITION,
    &device_degradation_rate::DEFINITION,
    &node_availability::DEFINITION,
    &tier_remaining_capacity::DEFINITION,
    &device_energy_per_transfer::DEFINITION,
    &system_time::DEFINITION,
    &device_load::DEFINITION,
    &device_load::BUSY_DEFINITION,
    &node_energy_per_transfer::DEFINITION,
    &allocation_characteristics::DEFINITION,
];

/// What there is a vertex of a definition for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instances {
    /// The node: one vertex, always.
    Node,
    /// Each whole block device that stands for itself: none that is a file or memory in disguise.
    Devices,
    /// Each local file system.
    FileSystems,
    /// Each tier of the `tiers` file; without one, each kind of device that holds file systems, and
    /// each type of those that others serve.
    Tiers,
    /// Each node that is probed from this one.
    Peers,
    /// Each job with an allocation on this node.
    Jobs,
}

/// One input of a definition.
#[derive(Debug)]
pub struct Wanted {
    /// Its name in the formula.
    pub name: &'static str,
    /// Which facts.
    pub which: Which,
    /// True if there is no outcome without it, and its age is the outcome's. What rarely changes (a
    /// size, a calibration) is not needed in this sense: it may be old, and if it is missing the
    /// insight itself says what to do about it.
    pub needed: bool,
}

/// Which facts an input is, given the node and whom the insight is about.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    /// This metric of the same instance.
    Own(&'static Metric),
    /// This metric of every instance.
    Every(&'static Metric),
    /// This metric of an instance that has a fixed name; empty for a family without instances.
    Of(&'static Metric, &'static str),
}

impl Wanted {
    /// An input without which there is no outcome.
    pub(super) const fn needed(name: &'static str, which: Which) -> Self {
        Self { name, which, needed: true }
    }

    /// An input that may be old or missing.
    pub(super) const fn optional(name: &'static str, which: Which) -> Self {
        Self { name, which, needed: false }
    }

    /// The input of the vertex that is about `instance` on `node`.
    pub fn input(&self, node: &str, instance: &str) -> Input {
        let (metric, instance) = match self.which {
            Which::Own(metric) => (metric, instance),
            Which::Every(metric) => (metric, "*"),
            Which::Of(metric, instance) => (metric, instance),
        };
        let between = if instance.is_empty() { "" } else { "/" };
        Input {
            name: self.name.to_owned(),
            pattern: format!("{node}/{}{between}{instance}/{}", metric.path, metric.name),
            unit: Some(metric.unit),
            needed: self.needed,
        }
    }
}

/// Whom one vertex is about.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The node, as in topics.
    pub node: Arc<str>,
    /// The device, file system, tier, peer or job, as in topics; `node` for the node itself.
    pub instance: Box<str>,
    /// The `tiers` file.
    pub tiers: Arc<Tiers>,
}

/// A definition at work for one subject.
pub(super) struct Formula {
    pub(super) definition: &'static Definition,
    pub(super) subject: Subject,
}

impl Insight for Formula {
    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome {
        (self.definition.compute)(&self.subject, inputs)
    }
}

/// The number as an outcome.
///
/// # Errors
/// It is not finite: too large for a double, or made from garbage.
pub(super) fn number(value: f64) -> Outcome {
    if value.is_finite() {
        Ok(Value::F64(value))
    } else {
        Err(Unknown::new("the result is no finite number"))
    }
}

/// `dividend / divisor`, of two amounts that cannot be negative.
///
/// # Errors
/// `none` if the divisor is zero; one of the two is negative.
pub(super) fn quotient(dividend: f64, divisor: f64, none: &str) -> Result<f64, Unknown> {
    if dividend < 0.0 || divisor < 0.0 {
        return Err(Unknown::new(format!("an amount is negative: {dividend} / {divisor}")));
    }
    if divisor == 0.0 {
        return Err(Unknown::new(none));
    }
    Ok(dividend / divisor)
}

/// The number of an input that may not be measured.
///
/// # Errors
/// `otherwise` if it has no value; why it is unknown, if it says.
pub(super) fn number_or(
    inputs: &Inputs<'_>,
    slot: usize,
    otherwise: impl FnOnce() -> String,
) -> Result<f64, Unknown> {
    match inputs.one(slot) {
        Ok(cell) if cell.outcome().is_some() => cell.number(),
        _ => Err(Unknown::new(otherwise())),
    }
}

/// The value of an input as JSON.
///
/// # Errors
/// As [`Inputs::one`] and [`Cell::value`].
pub(super) fn json(inputs: &Inputs<'_>, slot: usize) -> Result<Json, Unknown> {
    Ok(inputs.one(slot)?.value()?.to_json())
}

/// Every cell of an input.
pub(super) fn cells<'a>(inputs: &Inputs<'a>, slot: usize) -> impl Iterator<Item = &'a Cell> {
    inputs.all(slot).into_iter()
}

/// The instance that a cell of an input [`Which::Every`] is of: the segment before the metric.
pub(super) fn instance(cell: &Cell) -> &str {
    cell.topic().segments().rev().nth(1).unwrap_or_default()
}

/// The cell of an input [`Which::Every`] that is of `instance`. Cells are in the order of topics,
/// but a search is not worth its care for the hundred that there are at most.
pub(super) fn of_instance<'a>(inputs: &Inputs<'a>, slot: usize, wanted: &str) -> Option<&'a Cell> {
    cells(inputs, slot).find(|cell| instance(cell) == wanted)
}

/// The text of a structured fact that is one.
pub(super) fn text(cell: &Cell) -> Option<&str> {
    cell.structured().ok()?.as_json().as_str()
}

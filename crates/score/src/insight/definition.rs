use std::sync::Arc;

use serde_json::Value as Json;
use skopos_model::Value;
use skopos_model::schema::Metric;

use super::*;
use crate::input::Input;

/// A built-in insight: a row of the paper's Table 1, or one about paths of packets or slow devices.
#[derive(Debug)]
pub struct Definition {
    /// Name, help, unit and type: a metric of `schema/insight.toml`.
    pub metric: &'static Metric,
    /// The row in Table 1; a number from 16 on for an insight that the table does not have.
    pub row: u8,
    /// The name for people.
    pub name: &'static str,
    /// The formula, in the names of the inputs.
    pub formula: &'static str,
    /// The origin of the formula, and where its reading is our own.
    pub source: &'static str,
    /// The instances that have a vertex.
    pub instances: Instances,
    /// The inputs, in the places from facts `compute` reads them.
    pub inputs: &'static [InputSpec],
    /// The formula as code.
    pub compute: fn(&Subject, &Inputs<'_>) -> Outcome,
}

/// The instances that have a vertex of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instances {
    /// The node: always one vertex.
    Node,
    /// Each whole block device, except devices that are backed by a file or by memory.
    Devices,
    /// Each local file system.
    FileSystems,
    /// Each tier of the `tiers` file. Without that file, each kind of device that holds file
    /// systems, and each type of file system that another machine serves.
    Tiers,
    /// Each node that is probed from this one.
    Peers,
    /// Each job with an allocation on this node.
    Jobs,
    /// Each path of packets whose telemetry is collected on this node.
    Paths,
}

/// An input of a definition.
#[derive(Debug)]
pub struct InputSpec {
    /// The name in the formula.
    pub name: &'static str,
    /// The selected facts.
    pub facts: FactSelector,
    /// True if the insight is unknown without the input, and as old as the input. A value that
    /// rarely changes (a size, a calibration) is not needed in this sense: it may be old, and if it
    /// is missing, the insight decides what to do.
    pub needed: bool,
}

/// The facts of an input, relative to the node and the instance of the insight.
#[derive(Clone, Copy, Debug)]
pub enum FactSelector {
    /// This metric of the same instance.
    Own(&'static Metric),
    /// This metric of every instance.
    Every(&'static Metric),
    /// This metric of an instance with a fixed name; the name is empty for a family without
    /// instances.
    Named(&'static Metric, &'static str),
}

impl InputSpec {
    /// Declares an input without facts the insight is unknown.
    pub(super) const fn needed(name: &'static str, facts: FactSelector) -> Self {
        Self { name, facts, needed: true }
    }

    /// Declares an input that may be old or missing.
    pub(super) const fn optional(name: &'static str, facts: FactSelector) -> Self {
        Self { name, facts, needed: false }
    }

    /// Returns the input of the vertex about `instance` on `node`.
    pub fn input(&self, node: &str, instance: &str) -> Input {
        let (metric, instance) = match self.facts {
            FactSelector::Own(metric) => (metric, instance),
            FactSelector::Every(metric) => (metric, "*"),
            FactSelector::Named(metric, instance) => (metric, instance),
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

/// The subject of one vertex.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The node, as in topics.
    pub node: Arc<str>,
    /// The device, file system, tier, peer, job or path, as in topics; `node` for the node itself.
    pub instance: Box<str>,
    /// The `tiers` file.
    pub tiers: Arc<Tiers>,
}

/// The computation of a definition for one subject.
pub(super) struct Formula {
    pub(super) definition: &'static Definition,
    pub(super) subject: Subject,
}

impl Insight for Formula {
    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome {
        (self.definition.compute)(&self.subject, inputs)
    }
}

/// Returns the number as an outcome.
///
/// # Errors
/// Fails if the number is not finite: an input was too large or garbage.
pub(super) fn number(value: f64) -> Outcome {
    if value.is_finite() {
        Ok(Value::F64(value))
    } else {
        Err(Unknown::new("the result is not a finite number"))
    }
}

/// Returns `dividend / divisor` of two amounts that cannot be negative.
///
/// # Errors
/// Fails with `if_zero` if the divisor is zero, and if an amount is negative.
pub(super) fn quotient(dividend: f64, divisor: f64, if_zero: &str) -> Result<f64, Unknown> {
    if dividend < 0.0 || divisor < 0.0 {
        return Err(Unknown::new(format!("an amount is negative: {dividend} / {divisor}")));
    }
    if divisor == 0.0 {
        return Err(Unknown::new(if_zero));
    }
    Ok(dividend / divisor)
}

/// Returns the number of an input that may not be measured.
///
/// # Errors
/// Fails with `otherwise` if the input has no value, or with the reason of an unknown input.
pub(super) fn number_or(
    inputs: &Inputs<'_>,
    slot: usize,
    otherwise: impl FnOnce() -> String,
) -> Result<f64, Unknown> {
    match inputs.first(slot) {
        Ok(cell) if cell.outcome().is_some() => cell.number(),
        _ => Err(Unknown::new(otherwise())),
    }
}

/// Returns the value of an input as JSON.
///
/// # Errors
/// Fails as [`Inputs::first`] and [`Cell::value`] do.
pub(super) fn json(inputs: &Inputs<'_>, slot: usize) -> Result<Json, Unknown> {
    Ok(inputs.first(slot)?.value()?.to_json())
}

/// Returns every cell of an input.
pub(super) fn cells<'a>(inputs: &Inputs<'a>, slot: usize) -> impl Iterator<Item = &'a Cell> {
    inputs.all(slot).into_iter()
}

/// Returns the instance of a cell of an input [`FactSelector::Every`]: the segment before the
/// metric.
pub(super) fn instance(cell: &Cell) -> &str {
    cell.topic().segments().rev().nth(1).unwrap_or_default()
}

/// Returns the cell of an input [`FactSelector::Every`] for the instance `wanted`. Cells are in the
/// order of topics, but a binary search does not pay for at most a hundred of them.
pub(super) fn of_instance<'a>(inputs: &Inputs<'a>, slot: usize, wanted: &str) -> Option<&'a Cell> {
    cells(inputs, slot).find(|cell| instance(cell) == wanted)
}

/// Returns the text of a structured fact that is a text.
pub(super) fn text(cell: &Cell) -> Option<&str> {
    cell.structured().ok()?.as_json().as_str()
}

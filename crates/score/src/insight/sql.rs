//! An insight that a user wrote in SQL: `SELECT sum(value) FROM latest WHERE topic LIKE
//! '%/fs/nvme%/available_bytes'`. `docs/reference/sql-insights.md` describes the language.
//!
//! The statement gives its topics as patterns that may match further topics; the evaluator checks
//! each vertex that joins and ignores the others. The evaluator is kept up to date by the changes
//! that the graph reports, so a run reads no input.

use std::collections::HashMap;

use skopos_eval::{Error, Evaluator, Statement, Table};
use skopos_model::{Topic, Unit, Value};

use crate::cell::Cell;
use crate::input::Input;
use crate::inputs::Inputs;
use crate::insight::Insight;
use crate::unknown::{Outcome, Unknown};

/// A statement over the vertices of a graph.
#[derive(Debug)]
pub struct SqlInsight {
    statement: Statement,
    evaluator: Evaluator,
    unit: Option<Unit>,
    is_timed: bool,
    is_window: bool,
    /// The number of inputs.
    slots: usize,
    /// The vertex of each topic, if the statement reads ages; otherwise `None`.
    vertices: Option<HashMap<Topic, u32>>,
}

impl SqlInsight {
    /// Compiles `sql`. Returns the insight, its inputs, and the unit of its values if it is known
    /// before there are any: see [`with_unit`](Self::with_unit).
    ///
    /// # Errors
    /// Fails if `sql` is not a statement of the subset, or selects more than one number.
    pub fn new(sql: &str) -> Result<(Self, Vec<Input>, Option<Unit>), Error> {
        let statement = Statement::of_one_number(sql)?;
        let unit = statement.expected_unit(0);
        let patterns = statement.topics().iter();
        let inputs: Vec<Input> = patterns
            .map(|pattern| Input {
                name: pattern.to_string(),
                pattern: pattern.to_string(),
                // Their units are checked where they are summed, not where they are counted.
                unit: None,
                needed: true,
            })
            .collect();
        let insight = Self {
            evaluator: Evaluator::new(&statement),
            unit,
            is_timed: statement.is_timed(),
            is_window: matches!(statement.table(), Table::Samples(_)),
            slots: inputs.len(),
            vertices: statement.reads_age().then(HashMap::new),
            statement,
        };
        Ok((insight, inputs, unit))
    }

    /// Returns true if `sql` is outside of the subset, so that an engine may know it. Returns false
    /// for a statement that is wrong in any dialect.
    pub fn needs_engine(sql: &str) -> bool {
        matches!(Statement::of_one_number(sql), Err(Error::Refused { .. }))
    }

    /// Declares the unit of the values, as its vertex has it. The insight is unknown while its
    /// topics give another unit.
    #[must_use]
    pub fn with_unit(mut self, unit: Unit) -> Self {
        self.unit = Some(unit);
        self
    }

    /// Returns the number of times that its counters fell.
    pub fn resets(&self) -> u64 {
        self.evaluator.resets()
    }

    /// Fails unless the unit is the declared one.
    fn check_unit(&mut self) -> Result<(), Unknown> {
        let found = self.evaluator.unit(0).map_err(|why| Unknown::new(why.to_string()))?;
        match (found, self.unit) {
            (Some(found), Some(declared)) if found != declared => Err(Unknown::new(format!(
                "its values are in {}, but its declared unit is {}",
                named(&found),
                named(&declared)
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the reason of the first topic if all topics are unknown.
    fn all_unknown(&self, inputs: &Inputs<'_>) -> Option<Unknown> {
        let mut cells = (0..self.slots).flat_map(|slot| inputs.all(slot)).peekable();
        let first = cells.peek()?.value().err()?;
        cells.all(|cell| cell.value().is_err()).then_some(first)
    }

    /// Returns the reason why no topic is read. It quotes the user's predicate, not the patterns
    /// derived from it, and adds the graph's reason for a missing input.
    fn no_topic(&self, inputs: &Inputs<'_>) -> Unknown {
        let (why, predicate) = (skopos_eval::Unknown::NoTopic, self.statement.predicate());
        let mut empty = (0..self.slots).filter(|slot| inputs.all(*slot).is_empty());
        Unknown::new(match empty.find_map(|slot| inputs.reason(slot)) {
            Some(reason) => format!("{why}: {predicate}: {reason}"),
            None => format!("{why}: {predicate}"),
        })
    }
}

fn named(unit: &Unit) -> &str {
    if unit.as_str().is_empty() { "plain numbers" } else { unit.as_str() }
}

impl Insight for SqlInsight {
    fn joined(&mut self, _: usize, vertex: u32, cell: &Cell) {
        if !self.evaluator.row_added(vertex, cell.topic(), cell.unit(), cell.kind()) {
            return;
        }
        if let Some(vertices) = &mut self.vertices {
            vertices.insert(cell.topic().clone(), vertex);
        }
        // A vertex that existed before already has a rate.
        if let Some((time, value)) = cell.previous().filter(|_| !self.is_window) {
            self.evaluator.row_changed(vertex, time, Some(value));
        }
    }

    fn left(&mut self, _: usize, vertex: u32) {
        self.evaluator.row_removed(vertex);
        if let Some(vertices) = &mut self.vertices {
            vertices.retain(|_, other| *other != vertex);
        }
    }

    fn changed(&mut self, _: usize, vertex: u32, cell: &Cell) {
        if self.is_window {
            // A value that stands still is not a sample: the history stores only changes.
            if cell.since() == cell.polled_at() {
                self.evaluator.row_changed(vertex, cell.polled_at(), cell.number().ok());
            }
            return;
        }
        if let Some((time, _)) = cell.previous() {
            self.evaluator.row_held(vertex, time);
        }
        self.evaluator.row_changed(vertex, cell.polled_at(), cell.number().ok());
    }

    fn is_timed(&self) -> bool {
        self.is_timed
    }

    fn judges_missing(&self) -> bool {
        true
    }

    fn evaluate(&mut self, inputs: &Inputs<'_>) -> Outcome {
        if let Some(vertices) = &self.vertices {
            for cell in (0..self.slots).flat_map(|slot| inputs.all(slot)) {
                if let Some(vertex) = vertices.get(cell.topic()) {
                    self.evaluator.row_held(*vertex, cell.checked_at());
                }
            }
        }
        self.check_unit()?;
        match self.evaluator.value(0, inputs.now()) {
            Ok(value) => Ok(Value::F64(value)),
            Err(skopos_eval::Unknown::NoTopic) => Err(self.no_topic(inputs)),
            Err(unknown @ skopos_eval::Unknown::NoRow { .. }) => {
                let why = self.all_unknown(inputs);
                Err(why.unwrap_or_else(|| Unknown::new(unknown.to_string())))
            }
            Err(unknown) => Err(Unknown::new(unknown.to_string())),
        }
    }
}

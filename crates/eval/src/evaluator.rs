use std::sync::Arc;

use skopos_model::{Kind, Timestamp, Topic, Unit};

use crate::aggregate::Aggregated;
use crate::expression::{Fault, Leaf, Leaves};
use crate::latest::Latest;
use crate::program::Program;
use crate::statement::{Row, Statement};
use crate::units;
use crate::unknown::Unknown;
use crate::window::Samples;

/// A statement over rows that come, change and go.
///
/// Rows have keys that the caller chooses; each topic is one row. Told of every change, the
/// evaluator has the value at any time without a look at the rows: a change costs tens of
/// nanoseconds for each aggregate. Only what moves with time (`age`, and `ema` with a half-life) is
/// looked at row by row when a value is asked for.
#[derive(Clone, Debug)]
pub struct Evaluator {
    program: Arc<Program>,
    rows: Rows,
    /// Of each output; computed when the set of rows has changed.
    units: Option<Vec<Result<Option<Unit>, Unknown>>>,
}

#[derive(Clone, Debug)]
enum Rows {
    Latest(Box<Latest>),
    Samples(Box<Samples>),
}

impl Evaluator {
    /// Over no rows yet.
    pub fn new(statement: &Statement) -> Self {
        let program = statement.program().clone();
        let rows = match program.window {
            None => Rows::Latest(Box::new(Latest::new(program.clone()))),
            Some(window) => Rows::Samples(Box::new(Samples::new(program.clone(), window))),
        };
        Self { program, rows, units: None }
    }

    /// There is a row for `topic`, its value not known yet. True if the statement reads it; else
    /// nothing is kept, and what is told of it later is ignored. Adding it again changes nothing.
    pub fn row_added(&mut self, key: u32, topic: &Topic, unit: Unit, kind: Kind) -> bool {
        if !self.program.may_read(topic, Some((unit, kind))) {
            return false;
        }
        self.units = None;
        match &mut self.rows {
            Rows::Latest(latest) => latest.add(key, topic, unit, kind),
            Rows::Samples(samples) => samples.add(key, topic, unit, kind),
        }
    }

    /// A sample: at `time` the value was this; `None` if there was none or it is no number. A number
    /// that is not finite is none. The same sample again changes nothing.
    #[inline]
    pub fn row_changed(&mut self, key: u32, time: Timestamp, value: Option<f64>) {
        let value = value.filter(|value| value.is_finite());
        match &mut self.rows {
            Rows::Latest(latest) => latest.change(key, time, value),
            Rows::Samples(samples) => samples.change(key, time, value),
        }
    }

    /// The value of the row still held at `time`: its age counts from there, and so does the rate of
    /// its next change. That it stands still is said by [`row_changed`](Self::row_changed) with the
    /// old value.
    #[inline]
    pub fn row_held(&mut self, key: u32, time: Timestamp) {
        match &mut self.rows {
            Rows::Latest(latest) => latest.hold(key, time),
            // A window has the samples that there were, whoever looked since.
            Rows::Samples(_) => {}
        }
    }

    /// The row is gone.
    pub fn row_removed(&mut self, key: u32) {
        self.units = None;
        match &mut self.rows {
            Rows::Latest(latest) => latest.remove(key),
            Rows::Samples(samples) => samples.remove(key),
        }
    }

    /// The value of a selected number at `now`, always finite.
    ///
    /// # Errors
    /// Why there is none: no row, different units, a divide by zero, too many rows.
    pub fn value(&mut self, output: usize, now: Timestamp) -> Result<f64, Unknown> {
        self.unit(output)?;
        let Some(selected) = self.program.outputs.get(output) else {
            return Err(Unknown::NoOutput { outputs: self.program.outputs.len() });
        };
        let value = match &mut self.rows {
            Rows::Latest(latest) => {
                latest.at(now)?;
                selected.expression.value(&Results(&**latest))
            }
            Rows::Samples(samples) => {
                samples.at(now)?;
                selected.expression.value(&Results(&**samples))
            }
        };
        value.map_err(|fault| match fault {
            Fault::Aggregate(at) => match &self.rows {
                Rows::Latest(latest) => latest.why(at),
                Rows::Samples(samples) => samples.why(at),
            },
            Fault::DivideByZero => Unknown::DivideByZero { topic: None },
            Fault::TooLarge => Unknown::TooLarge { topic: None },
            Fault::Null | Fault::Row | Fault::Several => Unknown::Null,
        })
    }

    /// The unit of a selected number over the rows that there are; `None` if it takes any, for
    /// want of rows.
    ///
    /// # Errors
    /// The rows are in units that do not go together, named with their topics.
    pub fn unit(&mut self, output: usize) -> Result<Option<Unit>, Unknown> {
        let (program, rows) = (&self.program, &self.rows);
        let units = self.units.get_or_insert_with(|| {
            let of_aggregate = |leaf| match leaf {
                Leaf::Aggregate(at) => match rows {
                    Rows::Latest(latest) => latest.unit(at),
                    Rows::Samples(samples) => samples.unit(at),
                },
                _ => Ok(None),
            };
            program.outputs.iter().map(|o| units::unit_of(&o.expression, &of_aggregate)).collect()
        });
        match units.get(output) {
            Some(unit) => unit.clone(),
            None => Err(Unknown::NoOutput { outputs: self.program.outputs.len() }),
        }
    }

    /// How often a counter among the rows stepped back: its source restarted, and no rate is made
    /// of that step.
    #[inline]
    pub fn resets(&self) -> u64 {
        match &self.rows {
            Rows::Latest(latest) => latest.resets(),
            Rows::Samples(samples) => samples.resets(),
        }
    }
}

impl Statement {
    /// The selected numbers over `rows`, computed once: a point query.
    ///
    /// Of one row there is no rate and no mean yet, and no window.
    pub fn once<'r>(
        &self,
        now: Timestamp,
        rows: impl IntoIterator<Item = Row<'r>>,
    ) -> Vec<Result<f64, Unknown>> {
        let mut evaluator = Evaluator::new(self);
        for (key, row) in rows.into_iter().enumerate() {
            // More rows than keys would be more than any evaluator keeps.
            let key = u32::try_from(key).unwrap_or(u32::MAX);
            evaluator.row_added(key, row.topic, row.unit, row.kind);
            evaluator.row_changed(key, row.time, row.value);
            evaluator.row_held(key, row.checked_at);
        }
        (0..self.program().outputs.len()).map(|output| evaluator.value(output, now)).collect()
    }
}

/// The leaves of what is selected.
struct Results<'a, A>(&'a A);

impl<A: Aggregated> Leaves for Results<'_, A> {
    #[inline]
    fn leaf(&self, leaf: Leaf) -> Result<f64, Fault> {
        match leaf {
            // The reason is looked for only if it is asked for.
            Leaf::Aggregate(at) => self.0.aggregate(at).map_err(|_| Fault::Aggregate(at)),
            Leaf::Value | Leaf::Rate | Leaf::Age | Leaf::Ema(_) => Err(Fault::Null),
        }
    }

    fn text(&self, _: usize) -> Option<bool> {
        None
    }
}

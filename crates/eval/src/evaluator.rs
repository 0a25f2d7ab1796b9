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

/// The value of a statement over rows that are added, changed and removed.
///
/// Each topic is one row, with a key that the caller chooses. The caller reports every change, and the
/// evaluator then has the value at any time without reading the rows: a change costs tens of nanoseconds
/// for each aggregate. Only values that change with time (`age`, and `ema` with a half-life) are
/// computed row by row when [`value`](Self::value) is called.
#[derive(Clone, Debug)]
pub struct Evaluator {
    program: Arc<Program>,
    rows: Rows,
    /// The unit of each output; computed when the set of rows has changed.
    units: Option<Vec<Result<Option<Unit>, Unknown>>>,
}

#[derive(Clone, Debug)]
enum Rows {
    Latest(Box<Latest>),
    Samples(Box<Samples>),
}

impl Evaluator {
    /// Makes an evaluator without rows.
    pub fn new(statement: &Statement) -> Self {
        let program = statement.program().clone();
        let rows = match program.window {
            None => Rows::Latest(Box::new(Latest::new(program.clone()))),
            Some(window) => Rows::Samples(Box::new(Samples::new(program.clone(), window))),
        };
        Self { program, rows, units: None }
    }

    /// Adds a row for `topic`, without a value yet. Returns true if the statement reads it; otherwise the
    /// row is not kept, and later changes of it are ignored. Adding a row again changes nothing.
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

    /// Takes in a sample of a row; `None` if there is no value or it is not a number. A number that is not
    /// finite counts as `None`. The same sample again changes nothing.
    #[inline]
    pub fn row_changed(&mut self, key: u32, time: Timestamp, value: Option<f64>) {
        let value = value.filter(|value| value.is_finite());
        match &mut self.rows {
            Rows::Latest(latest) => latest.change(key, time, value),
            Rows::Samples(samples) => samples.change(key, time, value),
        }
    }

    /// Records that the row was polled at `time` without a change: its age counts from then, and so does the
    /// rate of its next change. To set the rate to zero, call [`row_changed`](Self::row_changed) with the
    /// old value.
    #[inline]
    pub fn row_held(&mut self, key: u32, time: Timestamp) {
        match &mut self.rows {
            Rows::Latest(latest) => latest.hold(key, time),
            // A window consists of samples; a poll without a change is not a sample.
            Rows::Samples(_) => {}
        }
    }

    /// Removes a row.
    pub fn row_removed(&mut self, key: u32) {
        self.units = None;
        match &mut self.rows {
            Rows::Latest(latest) => latest.remove(key),
            Rows::Samples(samples) => samples.remove(key),
        }
    }

    /// Returns the value of a selected number at `now`, always finite.
    ///
    /// # Errors
    /// The reason why there is no value: no row, different units, a division by zero, too many rows.
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

    /// Returns the unit of a selected number over the current rows; `None` if there is no row that decides
    /// it.
    ///
    /// # Errors
    /// The units of the rows cannot be combined; the error has them with their topics.
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

    /// Returns the number of times that a counter among the rows stepped back: its source restarted, and
    /// rates exclude that step.
    #[inline]
    pub fn resets(&self) -> u64 {
        match &self.rows {
            Rows::Latest(latest) => latest.resets(),
            Rows::Samples(samples) => samples.resets(),
        }
    }
}

impl Statement {
    /// Computes the selected numbers over `rows` once: a point query.
    ///
    /// Rates, means and windows have no value, because each row has only one sample.
    pub fn once<'r>(
        &self,
        now: Timestamp,
        rows: impl IntoIterator<Item = Row<'r>>,
    ) -> Vec<Result<f64, Unknown>> {
        let mut evaluator = Evaluator::new(self);
        for (key, row) in rows.into_iter().enumerate() {
            // More rows than keys would be more than an evaluator keeps.
            let key = u32::try_from(key).unwrap_or(u32::MAX);
            evaluator.row_added(key, row.topic, row.unit, row.kind);
            evaluator.row_changed(key, row.time, row.value);
            evaluator.row_held(key, row.checked_at);
        }
        (0..self.program().outputs.len()).map(|output| evaluator.value(output, now)).collect()
    }
}

/// The leaves of the selected numbers.
struct Results<'a, A>(&'a A);

impl<A: Aggregated> Leaves for Results<'_, A> {
    #[inline]
    fn leaf(&self, leaf: Leaf) -> Result<f64, Fault> {
        match leaf {
            // The reason is only computed when the caller needs it.
            Leaf::Aggregate(at) => self.0.aggregate(at).map_err(|_| Fault::Aggregate(at)),
            Leaf::Value | Leaf::Rate | Leaf::Age | Leaf::Ema(_) => Err(Fault::Null),
        }
    }

    fn text(&self, _: usize) -> Option<bool> {
        None
    }
}

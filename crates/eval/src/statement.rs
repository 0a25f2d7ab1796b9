use std::sync::Arc;
use std::time::Duration;

use skopos_model::{Kind, Timestamp, Topic, TopicPattern, Unit, schema};

use crate::error::Error;
use crate::expression::{Condition, Leaf};
use crate::program::Program;
use crate::unknown::Unknown;
use crate::{parse, topics, units};

/// A compiled statement. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Statement(Arc<Program>);

/// The table that a statement reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The latest value of each topic.
    Latest,
    /// The samples of one topic in a window of this length, up to now.
    Samples(Duration),
}

/// One row of `latest`.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The topic.
    pub topic: &'a Topic,
    /// The unit of the value.
    pub unit: Unit,
    /// The kind: the way in which the value moves.
    pub kind: Kind,
    /// The time of the sample.
    pub time: Timestamp,
    /// The time of the last poll of the source; not before `time`.
    pub checked_at: Timestamp,
    /// The value, if it exists and is a number.
    pub value: Option<f64>,
}

impl Statement {
    /// Compiles `sql`.
    ///
    /// # Errors
    /// The text is not SQL, or it is outside of the subset. The error has the construct, its position and
    /// a [hint](Error::hint).
    pub fn new(sql: &str) -> Result<Self, Error> {
        parse::compile(sql).map(|program| Self(Arc::new(program)))
    }

    /// Compiles a statement that selects exactly one number, as an insight does.
    ///
    /// # Errors
    /// The errors of [`new`](Self::new); the statement selects more than one number.
    pub fn of_one_number(sql: &str) -> Result<Self, Error> {
        let statement = Self::new(sql)?;
        match statement.0.outputs.get(1) {
            None => Ok(statement),
            Some(second) => Err(Error::Meaningless {
                at: second.at,
                what: "a second number, but an insight has only one".to_owned(),
                hint: "define one insight for each number, or combine both into one number",
            }),
        }
    }

    /// Returns the text of the statement.
    pub fn sql(&self) -> &str {
        &self.0.sql
    }

    /// Returns the text after `WHERE`, or the whole statement without a `WHERE`.
    pub fn predicate(&self) -> &str {
        self.0.predicate.as_deref().unwrap_or(&self.0.sql)
    }

    /// Returns the table that it reads.
    pub fn table(&self) -> Table {
        self.0.window.map_or(Table::Latest, |window| Table::Samples(window.length))
    }

    /// Returns the names of the selected numbers, in order; at least one.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.outputs.iter().map(|output| &*output.name)
    }

    /// Returns patterns that together match every topic that it can read, and few other topics.
    /// [`matches`](Self::matches) is exact.
    pub fn topics(&self) -> &[TopicPattern] {
        &self.0.topics
    }

    /// Returns true if it can read `topic`, for at least one combination of unit, kind and value.
    pub fn matches(&self, topic: &Topic) -> bool {
        self.0.may_read(topic, None)
    }

    /// Returns true if its values change with time alone: it reads a window, an age, or a mean with a
    /// half-life.
    pub fn is_timed(&self) -> bool {
        self.0.is_timed()
    }

    /// Returns true if it reads `age`. The caller then has to report every poll of a row to
    /// [`Evaluator::row_held`](crate::Evaluator::row_held).
    pub fn reads_age(&self) -> bool {
        self.0.reads_age()
    }

    /// Returns true if it reads rates or means of rows, so that one sample of each row is not enough.
    pub fn reads_history(&self) -> bool {
        self.0.reads_history()
    }

    /// Returns the unit of a selected number without any row, as far as the schema of known metrics tells
    /// it. Topics of users may have the same names with other units, so compare it with
    /// [`Evaluator::unit`](crate::Evaluator::unit).
    pub fn expected_unit(&self, output: usize) -> Option<Unit> {
        let output = self.0.outputs.get(output)?;
        units::unit_of(&output.expression, &|leaf| match leaf {
            Leaf::Aggregate(at) => self.expected_unit_of_aggregate(at),
            _ => Ok(None),
        })
        .ok()?
    }

    fn expected_unit_of_aggregate(&self, at: usize) -> Result<Option<Unit>, Unknown> {
        let aggregate = &self.0.aggregates[at];
        let read = Condition::All(vec![self.0.selection.clone(), aggregate.filter.clone()]);
        let of_value = unit_in_schema(&topics::of(&read, &self.0.texts));
        match of_value {
            Some(unit) => self.0.unit_of_aggregate(at, Some(unit)),
            // A result computed from a value of unknown unit has an unknown unit as well.
            None if self.0.needs_unit(at) => Err(Unknown::NoTopic),
            None => self.0.unit_of_aggregate(at, None),
        }
    }

    pub(crate) fn program(&self) -> &Arc<Program> {
        &self.0
    }
}

/// Returns the common unit of all metrics whose names match the last segment of one of the patterns.
fn unit_in_schema(patterns: &[TopicPattern]) -> Option<Unit> {
    let mut found = None;
    for pattern in patterns {
        let last = pattern.as_str().rsplit('/').next()?;
        if last.contains("**") {
            return None;
        }
        let name = TopicPattern::new(last).ok()?;
        let metrics = schema::FAMILIES.iter().flat_map(|family| family.metrics);
        let mut fitting = metrics.filter(|metric| name.matches_str(metric.name)).peekable();
        fitting.peek()?;
        for metric in fitting {
            if *found.get_or_insert(metric.unit) != metric.unit {
                return None;
            }
        }
    }
    found
}

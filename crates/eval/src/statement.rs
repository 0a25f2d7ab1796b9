use std::sync::Arc;
use std::time::Duration;

use skopos_model::{Kind, Timestamp, Topic, TopicPattern, Unit, schema};

use crate::error::Error;
use crate::expression::{Condition, Leaf};
use crate::program::Program;
use crate::unknown::Unknown;
use crate::{parse, topics, units};

/// A statement that was understood. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Statement(Arc<Program>);

/// What a statement reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// The latest value of each topic.
    Latest,
    /// The samples of one topic since so long ago.
    Samples(Duration),
}

/// One row of `latest`.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Whose value it is.
    pub topic: &'a Topic,
    /// The unit of the value.
    pub unit: Unit,
    /// How the value moves.
    pub kind: Kind,
    /// When the value was found.
    pub time: Timestamp,
    /// When its source was last looked at; not before `time`.
    pub checked_at: Timestamp,
    /// The value, if there is one and it is a number.
    pub value: Option<f64>,
}

impl Statement {
    /// Compiles `sql`.
    ///
    /// # Errors
    /// It is no SQL, or outside of the subset: the construct, its place, and a
    /// [hint](Error::hint).
    pub fn new(sql: &str) -> Result<Self, Error> {
        parse::compile(sql).map(|program| Self(Arc::new(program)))
    }

    /// As [`new`](Self::new), of a statement that selects one number, which is what an insight is.
    ///
    /// # Errors
    /// As [`new`](Self::new); it selects more than one.
    pub fn of_one_number(sql: &str) -> Result<Self, Error> {
        let statement = Self::new(sql)?;
        match statement.0.outputs.get(1) {
            None => Ok(statement),
            Some(second) => Err(Error::Meaningless {
                at: second.at,
                what: "a second number, and an insight is one".to_owned(),
                hint: "make an insight of each, or one number of both",
            }),
        }
    }

    /// The text that it was compiled from.
    pub fn sql(&self) -> &str {
        &self.0.sql
    }

    /// What it selects by, in its user's words: what stands behind `WHERE`, or else all of it.
    pub fn predicate(&self) -> &str {
        self.0.predicate.as_deref().unwrap_or(&self.0.sql)
    }

    /// What it reads.
    pub fn table(&self) -> Table {
        self.0.window.map_or(Table::Latest, |window| Table::Samples(window.length))
    }

    /// The names of the numbers that it selects, in order; at least one.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.outputs.iter().map(|output| &*output.name)
    }

    /// Patterns that together match every topic that it can read, and as few others as a pattern
    /// can tell. Whether one is read indeed says [`matches`](Self::matches).
    pub fn topics(&self) -> &[TopicPattern] {
        &self.0.topics
    }

    /// Whether it can read `topic`, whatever unit, kind and value that has.
    pub fn matches(&self, topic: &Topic) -> bool {
        self.0.may_read(topic, None)
    }

    /// True if time alone moves its values: it reads a window, an age, or a mean that fades.
    pub fn is_timed(&self) -> bool {
        self.0.is_timed()
    }

    /// True if it reads `age`, so that [`Evaluator::row_held`] has to be told of every look at a row.
    pub fn reads_age(&self) -> bool {
        self.0.reads_age()
    }

    /// True if it reads rates or means of rows, so that one look at them is not enough.
    pub fn reads_history(&self) -> bool {
        self.0.reads_history()
    }

    /// The unit of a selected number as far as it can be told without any row: from the metrics that
    /// this project knows. Users' topics of the same names may have others, so compare it with
    /// [`Evaluator::unit`].
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
            // What is computed from a value whose unit nobody knows is unknown as well.
            None if self.0.needs_unit(at) => Err(Unknown::NoTopic),
            None => self.0.unit_of_aggregate(at, None),
        }
    }

    pub(crate) fn program(&self) -> &Arc<Program> {
        &self.0
    }
}

/// The unit that all metrics have whose name fits the last segment of one of the patterns.
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

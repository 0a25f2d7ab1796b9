use thiserror::Error;

use crate::limits::{MAX_ROWS, MAX_WINDOW_SAMPLES};

/// Why a statement has no value now.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Unknown {
    /// No topic is selected.
    #[error("no topic matches")]
    NoTopic,
    /// Topics are selected, and none has what is asked for.
    #[error("{}{example} has no value, or the predicate excludes it", among(*topics))]
    NoRow {
        /// How many topics match.
        topics: usize,
        /// One of them.
        example: String,
    },
    /// Rates are asked for, and nothing was polled twice yet.
    #[error("no rate yet: {example} was not polled twice since it started")]
    NoRate {
        /// One of the topics.
        example: String,
    },
    /// No sample in the window.
    #[error("no sample of {topic} in the window")]
    EmptyWindow {
        /// The topic.
        topic: String,
    },
    /// Samples in the window, but no change per second between them.
    #[error("a rate needs two samples of {topic} in the window without a restart between them")]
    ShortWindow {
        /// The topic.
        topic: String,
    },
    /// More topics than the one that a column outside of any aggregate is of.
    #[error(
        "{topics} topics match, and a column outside of an aggregate is of one: use sum, avg, max or name the topic"
    )]
    Several {
        /// How many.
        topics: u32,
    },
    /// Of one row, or of the result if no topic is given.
    #[error("divide by zero{}", of(topic))]
    DivideByZero {
        /// The row.
        topic: Option<String>,
    },
    /// Of one row, or of the result if no topic is given.
    #[error("beyond the largest number{}", of(topic))]
    TooLarge {
        /// The row.
        topic: Option<String>,
    },
    /// An aggregate over topics of different units.
    #[error("topics of different units: {} is in {}, {} in {}", .0[0].0, named(&.0[0].1), .0[1].0, named(&.0[1].1))]
    Units(Box<[(String, String); 2]>),
    /// Arithmetic that no unit stands for.
    #[error("no unit for {} {operator} {}", named(left), named(right))]
    Arithmetic {
        /// `+`, `/`, a function's name.
        operator: &'static str,
        /// The unit before it.
        left: String,
        /// The unit after it.
        right: String,
    },
    /// More topics than are kept; `refused` of them are not.
    #[error("{refused} topics more than {MAX_ROWS} match")]
    TooManyTopics {
        /// How many.
        refused: u64,
    },
    /// More samples in the window than are kept; `dropped` of them are not.
    #[error("{dropped} samples more than {MAX_WINDOW_SAMPLES} were in the window")]
    WindowOverrun {
        /// How many since the evaluator was made.
        dropped: u64,
    },
    /// The expression is `NULL` by what it says: a `CASE` without `ELSE`, a `nullif`.
    #[error("the expression is NULL")]
    Null,
    /// There is no such selected number.
    #[error("the statement selects {outputs} numbers")]
    NoOutput {
        /// How many there are.
        outputs: usize,
    },
}

fn of(topic: &Option<String>) -> String {
    topic.as_ref().map(|topic| format!(" for {topic}")).unwrap_or_default()
}

fn among(topics: usize) -> String {
    if topics > 1 { format!("none of {topics} topics counts: ") } else { String::new() }
}

fn named(unit: &str) -> &str {
    if unit.is_empty() { "plain numbers" } else { unit }
}

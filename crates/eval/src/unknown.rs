use thiserror::Error;

use crate::limits::{MAX_ROWS, MAX_WINDOW_SAMPLES};

/// The reasons for which a statement has no value now.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum Unknown {
    /// The statement selects no topic.
    #[error("no topic matches")]
    NoTopic,
    /// The statement selects topics, but no topic has the wanted value.
    #[error("{}{example} has no value, or the predicate excludes it", among(*topics))]
    NoRow {
        /// Number of matching topics.
        topics: usize,
        /// One of these topics.
        example: String,
    },
    /// The statement reads rates, and no topic was polled twice yet.
    #[error("no rate yet: {example} was not polled twice since it started")]
    NoRate {
        /// One of the topics.
        example: String,
    },
    /// The window has no sample.
    #[error("no sample of {topic} in the window")]
    EmptyWindow {
        /// The topic.
        topic: String,
    },
    /// The window has samples, but no change per second between them.
    #[error("a rate needs two samples of {topic} in the window without a restart between them")]
    ShortWindow {
        /// The topic.
        topic: String,
    },
    /// Several topics match, but a column outside of an aggregate needs one.
    #[error(
        "{topics} topics match, but a column outside of an aggregate needs exactly one: use sum, avg or max, or name the topic"
    )]
    Several {
        /// Number of matching topics.
        topics: u32,
    },
    /// A division by zero, in one row, or in the result if `topic` is `None`.
    #[error("divide by zero{}", of(topic))]
    DivideByZero {
        /// The row.
        topic: Option<String>,
    },
    /// A number is too large, in one row, or in the result if `topic` is `None`.
    #[error("beyond the largest number{}", of(topic))]
    TooLarge {
        /// The row.
        topic: Option<String>,
    },
    /// The topics of an aggregate have different units.
    #[error("topics of different units: {} is in {}, {} in {}", .0[0].0, named(&.0[0].1), .0[1].0, named(&.0[1].1))]
    Units(Box<[(String, String); 2]>),
    /// The result of an operation has no unit.
    #[error("no unit for {} {operator} {}", named(left), named(right))]
    Arithmetic {
        /// The operator, or the name of a function.
        operator: &'static str,
        /// The unit on the left.
        left: String,
        /// The unit on the right.
        right: String,
    },
    /// More topics match than the evaluator keeps.
    #[error("{refused} topics beyond the limit of {MAX_ROWS} match")]
    TooManyTopics {
        /// Number of topics beyond the limit.
        refused: u64,
    },
    /// The window had more samples than the evaluator keeps.
    #[error("the window had {dropped} samples beyond the limit of {MAX_WINDOW_SAMPLES}")]
    WindowOverrun {
        /// Number of samples dropped since the evaluator was made.
        dropped: u64,
    },
    /// The expression itself yields `NULL`: a `CASE` without `ELSE`, a `nullif`.
    #[error("the expression is NULL")]
    Null,
    /// The statement does not select a number with this index.
    #[error("the statement selects {outputs} numbers")]
    NoOutput {
        /// Number of selected numbers.
        outputs: usize,
    },
}

fn of(topic: &Option<String>) -> String {
    topic.as_ref().map(|topic| format!(" for {topic}")).unwrap_or_default()
}

fn among(topics: usize) -> String {
    if topics > 1 { format!("no value from any of {topics} topics: ") } else { String::new() }
}

fn named(unit: &str) -> &str {
    if unit.is_empty() { "plain numbers" } else { unit }
}

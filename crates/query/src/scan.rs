//! The request for rows that the engine makes of a table.

use std::ops::RangeInclusive;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use datafusion::arrow::datatypes::SchemaRef;
use skopos_access::Caller;
use skopos_model::Timestamp;
use skopos_store::history;

use crate::context::ExecutionContext;
use crate::functions::has::{HAS, HAS_WORDS};
use crate::rows::BoxError;
use crate::topic_filter::TopicFilter;

/// The rows and columns that a statement needs of a table.
///
/// The conditions come from the statement's `WHERE`. Each of them may only leave out rows that the
/// statement does not need, so a table may ignore any of them, except those on its
/// [exact](crate::Table::exact) columns.
#[derive(Clone, Debug)]
pub struct Scan {
    pub(crate) columns: Vec<usize>,
    pub(crate) schema: SchemaRef,
    pub(crate) topics: TopicFilter,
    pub(crate) times: Vec<(String, RangeInclusive<Timestamp>)>,
    pub(crate) equals: Vec<(String, Vec<Literal>)>,
    pub(crate) numbers: Vec<(String, RangeInclusive<f64>)>,
    pub(crate) calls: Vec<Call>,
    pub(crate) limit: Option<usize>,
    pub(crate) context: Option<Arc<ExecutionContext>>,
}

/// A condition `function(column, 'text')`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Call {
    pub(crate) function: &'static str,
    pub(crate) column: String,
    pub(crate) text: String,
}

/// A constant in a condition.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// A text.
    Text(String),
    /// A whole number.
    Integer(i64),
    /// A double.
    Number(f64),
    /// True or false.
    Boolean(bool),
}

impl Literal {
    /// Returns the text; `None` if the constant is not a text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl Scan {
    /// Returns the caller whose statement reads the table; a stranger while a statement is only planned.
    pub fn caller(&self) -> &Caller {
        self.context.as_ref().map_or(&Caller::Stranger, |context| &context.caller)
    }

    /// Notes parts of the table that the rows lack, for people. The answer names them as missing.
    pub fn lacks(&self, missing: impl IntoIterator<Item = String>) {
        if let Some(context) = &self.context {
            context.missing.add(missing);
        }
    }

    /// Notes that the rows lack a part of the table whose file is damaged. `error` is the error of reading it, and names the file.
    ///
    /// # Errors
    /// Returns `error` if it is not damage, or if the rows are for another hub, whose answer would not name the part.
    pub fn lacks_damaged(&self, part: &str, error: BoxError) -> Result<(), BoxError> {
        let known: Option<&history::Error> = error.downcast_ref();
        let is_damage = known.is_some_and(history::Error::is_damage);
        match &self.context {
            Some(context) if is_damage && context.names_missing => {
                context.missing.add_of_file(format!("{part} ({error})"), error.to_string());
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Returns the positions of the wanted columns in [`Table::columns`](crate::Table::columns), in the
    /// order in which a batch must have them.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Returns the schema that batches must have: the wanted columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Returns a filter of the topics that fit the conditions on the columns `topic`, `node`, `family` and
    /// `metric`, for tables whose columns of these names are about topics.
    pub fn topics(&self) -> &TopicFilter {
        &self.topics
    }

    /// Returns the nodes that the column `node` must equal one of; `None` if it may be any.
    pub fn nodes(&self) -> Option<Vec<&str>> {
        self.texts("node")
    }

    /// Returns the range that a column of times must be in; `None` if it may be any.
    pub fn times(&self, column: &str) -> Option<&RangeInclusive<Timestamp>> {
        self.times.iter().find(|(name, _)| name == column).map(|(_, range)| range)
    }

    /// Returns the constants that a column must equal one of; `None` if it may be any.
    pub fn equals(&self, column: &str) -> Option<&[Literal]> {
        self.equals.iter().find(|(name, _)| name == column).map(|(_, literals)| &literals[..])
    }

    /// Returns the texts that a column must equal one of; `None` if it may be any.
    pub fn texts(&self, column: &str) -> Option<Vec<&str>> {
        self.equals(column)?.iter().map(Literal::as_text).collect()
    }

    /// Returns the range that a column of numbers must be in, both ends included; `None` if it may be any.
    pub fn numbers(&self, column: &str) -> Option<&RangeInclusive<f64>> {
        self.numbers.iter().find(|(name, _)| name == column).map(|(_, range)| range)
    }

    /// Returns the texts that the list in a column must have: those of `has(column, 'text')`.
    pub fn has(&self, column: &str) -> Vec<&str> {
        self.called(HAS, column)
    }

    /// Returns the words that the text of a column must have: those of `has_words(column, 'words')`.
    pub fn has_words(&self, column: &str) -> Vec<&str> {
        self.called(HAS_WORDS, column)
    }

    fn called(&self, function: &str, column: &str) -> Vec<&str> {
        let is_it = |call: &&Call| call.function == function && call.column == column;
        self.calls.iter().filter(is_it).map(|call| call.text.as_str()).collect()
    }

    /// Returns the number of rows after which the table may stop.
    pub fn limit(&self) -> Option<usize> {
        self.limit
    }

    /// Returns a batch of the wanted columns, out of all columns of the table.
    ///
    /// # Errors
    /// A column is missing, of another type than the table declares, or of another length than the others.
    pub fn select(&self, all: &[ArrayRef]) -> Result<RecordBatch, BoxError> {
        let wanted: Option<Vec<ArrayRef>> =
            self.columns.iter().map(|at| all.get(*at).cloned()).collect();
        let wanted = wanted
            .ok_or_else(|| format!("the table made {} columns, and declares more", all.len()))?;
        let rows = all.first().map_or(0, |column| column.len());
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), wanted, &options)?)
    }

    /// Returns this scan as a part of an execution.
    pub(crate) fn within(&self, context: Arc<ExecutionContext>) -> Self {
        Self { context: Some(context), ..self.clone() }
    }
}

//! What is in memory and on disk, as the query engine puts it together.

use std::sync::Arc;

use skopos_model::{Origin, Structured, Timestamp, ValueType};
use skopos_query::arrow::array::{Array as _, AsArray as _, RecordBatch};
use skopos_query::arrow::datatypes::{Float64Type, TimestampNanosecondType, UInt8Type};
use skopos_query::{Source, Wanted, When, own_samples};
use skopos_shm::Host;
use skopos_store::history::{Run, Series};
use skopos_wire::{Content, Told};

use crate::live::past::Answer;
use crate::sql::Local;

/// This machine's samples.
pub(crate) struct Kept(Arc<dyn Source>);

impl Kept {
    pub(crate) fn new(host: Host) -> Self {
        Self(Arc::new(Local::new(host)))
    }

    /// Adds what was asked for to its answer. False if that cannot be read.
    pub(crate) fn show(&self, answer: &mut Answer<'_>) -> bool {
        let question = answer.question;
        let when = match question.only_last {
            true => When::AsOf(question.to),
            false => When::During(question.from..=question.to),
        };
        let wanted = wanted(answer);
        let mut rows = Rows::default();
        let shown = own_samples(&self.0, &wanted, &when, &mut |series, batch, run| {
            rows.add(series, batch, run, answer)
        });
        shown.is_ok()
    }
}

/// What is wanted, by the names that topics have here: those of other programs need not begin with the
/// node's.
fn wanted(answer: &Answer<'_>) -> Wanted {
    let (start, question) = (answer.start(), answer.question);
    let mut starts: Vec<String> = question.topics.clone();
    for text in &question.starts {
        match start.starts_with(text.as_str()) {
            true => return Wanted::All,
            false => starts.push(text.clone()),
        }
    }
    let short: Vec<String> =
        starts.iter().filter_map(|text| text.strip_prefix(&start)).map(str::to_owned).collect();
    starts.extend(short);
    Wanted::Starting(starts)
}

/// Rows on their way into an answer.
#[derive(Default)]
pub(crate) struct Rows {
    /// The series that came last, and whether it is wanted.
    last: Option<(Series, bool)>,
}

impl Rows {
    /// Adds some rows of a batch. False when it is enough.
    pub(crate) fn add(
        &mut self,
        series: &Series,
        batch: &RecordBatch,
        run: &Run,
        answer: &mut Answer<'_>,
    ) -> bool {
        if self.last.as_ref().is_none_or(|(last, _)| last != series) {
            // As SQL has it: numbers are doubles.
            let value_type = match series.value_type {
                ValueType::Structured => ValueType::Structured,
                _ => ValueType::F64,
            };
            let is_wanted = answer.begin(&series.topic, (series.unit, series.kind, value_type));
            self.last = Some((series.clone(), is_wanted));
        }
        let is_wanted = self.last.as_ref().is_some_and(|(_, is_wanted)| *is_wanted);
        !is_wanted || (run.start..run.start + run.rows).all(|row| answer.add(told(batch, row)))
    }
}

/// A row of all columns as a sample.
fn told(batch: &RecordBatch, row: usize) -> Told {
    let number = |column: usize| {
        let column = batch.column(column).as_primitive::<Float64Type>();
        column.is_valid(row).then(|| column.value(row))
    };
    let time = batch.column(0).as_primitive::<TimestampNanosecondType>().value(row);
    let origin = match (batch.column(2).as_primitive::<UInt8Type>().value(row), number(3)) {
        (1, bound) => Origin::Predicted { bound: bound.unwrap_or(f64::NAN) },
        (2, _) => Origin::Unknown,
        _ => Origin::Measured,
    };
    let texts = batch.column(4).as_string::<i32>();
    let text = texts.is_valid(row).then(|| Structured::from_json(texts.value(row)).ok()).flatten();
    let value = match text {
        Some(structured) => Content::Structured(structured),
        None => Content::Bits(number(1).unwrap_or(f64::NAN).to_bits()),
    };
    Told { index: 0, time: Timestamp::from_nanos(time), origin, value }
}

//! The measurements of a job in columns.

use std::io::Write;

use skopos_query::Answer;
use skopos_query::arrow::array::{Array as _, AsArray as _};
use skopos_query::arrow::csv::WriterBuilder;
use skopos_query::arrow::datatypes::{Float64Type, TimestampNanosecondType};
use skopos_query::arrow::error::ArrowError;
use skopos_term::Failure;

use crate::verbs::job::hub::{Hub, Id};

/// The measurements.
pub(super) struct Samples(Answer);

/// A measurement.
pub(super) struct Sample<'a> {
    pub(super) node: &'a str,
    pub(super) time_ns: i64,
    pub(super) schema: &'a str,
    pub(super) metric: &'a str,
    pub(super) value: f64,
}

impl Samples {
    /// Asks for all measurements of a job, in the order of time.
    pub(super) fn ask(hub: &Hub, id: &Id) -> Result<Self, Failure> {
        let sql = format!(
            "SELECT node, time, schema, metric, value FROM job_samples WHERE {} \
             ORDER BY time, node, schema, metric",
            id.condition()
        );
        Ok(Self(hub.ask(&sql)?))
    }

    /// Writes a line of names, and a line for each measurement.
    pub(super) fn csv(&self, out: &mut impl Write) -> Result<(), Failure> {
        let write = || {
            let mut writer = WriterBuilder::new().with_header(true).build(out);
            let empty = skopos_query::arrow::array::RecordBatch::new_empty(self.0.schema.clone());
            let nothing = self.0.batches.is_empty().then_some(&empty);
            let mut all = nothing.into_iter().chain(&self.0.batches);
            all.try_for_each(|batch| writer.write(batch))
        };
        write().map_err(|e: ArrowError| Failure::new("the job cannot be written").because(&e))
    }

    /// Passes each measurement to `visit`.
    pub(super) fn for_each(&self, mut visit: impl FnMut(Sample<'_>)) -> Result<(), Failure> {
        for batch in &self.0.batches {
            let text = |at: usize| batch.column(at).as_string_opt::<i32>();
            let times = batch.column(1).as_primitive_opt::<TimestampNanosecondType>();
            let values = batch.column(4).as_primitive_opt::<Float64Type>();
            let (Some(nodes), Some(times), Some(schemas), Some(metrics), Some(values)) =
                (text(0), times, text(2), text(3), values)
            else {
                return Err(Failure::new("the answer of the hub has other columns"));
            };
            for row in 0..nodes.len() {
                visit(Sample {
                    node: nodes.value(row),
                    time_ns: times.value(row),
                    schema: schemas.value(row),
                    metric: metrics.value(row),
                    value: values.value(row),
                });
            }
        }
        Ok(())
    }
}

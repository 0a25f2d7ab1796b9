//! Batches of samples that are in parts of history, made column by column.

use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, AsArray as _, BooleanArray, BooleanBufferBuilder, RecordBatch, RecordBatchOptions,
    StringArray, StringBuilder,
};
use datafusion::arrow::compute::filter_record_batch;
use datafusion::arrow::datatypes::{SchemaRef, UInt8Type};
use datafusion::error::Result;
use skopos_model::schema;
use skopos_store::history::{self, Run, Series, Stretch};

use crate::tables::sample_column::{SampleColumn, instance};

/// Returns the columns of a part that these columns are made of.
pub(crate) fn stored(columns: &[SampleColumn]) -> Vec<history::Column> {
    let mut stored: Vec<_> = columns.iter().filter_map(|column| column.stored()).collect();
    stored.sort_by_key(|column| *column as usize);
    stored.dedup();
    stored
}

/// Returns the rows of a chunk that are in one of `runs`. The columns of `batch` are those of `stored`;
/// the stretches tell the series of each run.
pub(crate) fn of_chunk(
    columns: &[SampleColumn],
    schema: SchemaRef,
    stored: &[history::Column],
    batch: &RecordBatch,
    (stretches, runs): (&[Stretch], &[Run]),
) -> Result<RecordBatch> {
    let rows: usize = runs.iter().map(|run| run.rows).sum();
    let batch = match runs {
        _ if rows == batch.num_rows() => batch.clone(),
        [run] => batch.slice(run.start, run.rows),
        _ => filter_record_batch(batch, &is_in(runs, batch.num_rows()))?,
    };
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for column in columns {
        let place = column.stored().and_then(|c| stored.iter().position(|s| *s == c));
        arrays.push(match place {
            Some(at) if *column == SampleColumn::Origin => origins(batch.column(at)),
            Some(at) => batch.column(at).clone(),
            None => of_series(*column, runs.iter().map(|r| (&stretches[r.stretch].series, r.rows))),
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
}

/// Returns a mask of the rows that are in one of `runs`.
fn is_in(runs: &[Run], rows: usize) -> BooleanArray {
    let mut is_in = BooleanBufferBuilder::new(rows);
    for run in runs {
        is_in.append_n(run.start - is_in.len(), false);
        is_in.append_n(run.rows, true);
    }
    is_in.append_n(rows - is_in.len(), false);
    BooleanArray::new(is_in.finish(), None)
}

fn origins(codes: &ArrayRef) -> ArrayRef {
    let codes = codes.as_primitive::<UInt8Type>().values().iter();
    let names = codes.map(|code| history::ORIGINS.get(usize::from(*code)).copied());
    Arc::new(names.collect::<StringArray>())
}

/// Returns a column that follows from the series, with a number of rows for each series.
pub(crate) fn of_series<'s>(
    column: SampleColumn,
    runs: impl Iterator<Item = (&'s Series, usize)>,
) -> ArrayRef {
    let mut texts = StringBuilder::new();
    for (series, rows) in runs {
        let topic = &series.topic;
        let text = match column {
            SampleColumn::Topic => Some(topic.as_str()),
            SampleColumn::Node => Some(topic.node()),
            SampleColumn::Metric => Some(topic.metric()),
            SampleColumn::Unit => Some(series.unit.as_str()),
            SampleColumn::Kind => Some(series.kind.name()),
            SampleColumn::Family => schema::lookup_in_family(topic).map(|(family, _)| family.name),
            SampleColumn::Instance => instance(topic),
            _ => None,
        };
        (0..rows).for_each(|_| texts.append_option(text));
    }
    Arc::new(texts.finish())
}

//! Batches of samples that are in parts of history.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array as _, ArrayRef, BooleanArray, BooleanBufferBuilder, Float64Array, Int64Array,
    RecordBatch, RecordBatchOptions, StringArray, StringBuilder, TimestampNanosecondArray,
};
use datafusion::arrow::buffer::{BooleanBuffer, NullBuffer};
use datafusion::arrow::compute::filter;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use skopos_model::schema;
use skopos_store::history::{self, Chunk, Run, Samples, Series, Stretch};

use crate::column::UTC;
use crate::tables::sample_column::{SampleColumn, instance};

/// Returns the columns of a part that these columns are made of.
pub(crate) fn stored(columns: &[SampleColumn]) -> Vec<history::Column> {
    let mut stored: Vec<_> = columns.iter().filter_map(|column| column.stored()).collect();
    stored.sort_by_key(|column| *column as usize);
    stored.dedup();
    stored
}

/// Returns the rows of a chunk that are in one of its runs. The stretches tell the series of each run.
pub(crate) fn of_chunk(
    columns: &[SampleColumn],
    schema: SchemaRef,
    stretches: &[Stretch],
    chunk: Chunk,
) -> Result<RecordBatch> {
    let Chunk { mut samples, rows, runs } = chunk;
    let wanted: usize = runs.iter().map(|run| run.rows).sum();
    let series = || runs.iter().map(|run| (&stretches[run.stretch].series, run.rows));
    let mut made: [Option<ArrayRef>; history::Column::ALL.len()] = Default::default();
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(columns.len());
    for column in columns {
        let Some(stored) = column.stored() else {
            arrays.push(of_series(*column, series()));
            continue;
        };
        let array = made[stored as usize].get_or_insert_with(|| array(stored, &mut samples, rows));
        arrays.push(match &runs[..] {
            _ if wanted == rows => array.clone(),
            [run] => array.slice(run.start, run.rows),
            _ => filter(array, &is_in(&runs, rows))?,
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(wanted));
    Ok(RecordBatch::try_new_with_options(schema, arrays, &options)?)
}

/// Takes a column of all rows.
fn array(column: history::Column, samples: &mut Samples, rows: usize) -> ArrayRef {
    match column {
        history::Column::Time => {
            let times = std::mem::take(&mut samples.times);
            Arc::new(TimestampNanosecondArray::from(times).with_timezone(UTC))
        }
        history::Column::Value => {
            let mut values = std::mem::take(&mut samples.values);
            // There is one zero, see `numbers`.
            values.iter_mut().for_each(|value| *value += 0.0);
            let is_known = BooleanBuffer::collect_bool(rows, |row| !values[row].is_nan());
            let nulls = NullBuffer::new(is_known);
            let nulls = (nulls.null_count() > 0).then_some(nulls);
            Arc::new(Float64Array::new(values.into(), nulls))
        }
        history::Column::Integer => {
            let mut integers = vec![None; rows];
            samples.integers.iter().for_each(|(row, integer)| integers[*row] = Some(*integer));
            Arc::new(Int64Array::from(integers))
        }
        history::Column::Origin => {
            let name = |code: &u8| history::ORIGINS.get(usize::from(*code)).copied();
            Arc::new(samples.origins.iter().map(name).collect::<StringArray>())
        }
        history::Column::Bound => {
            let mut bounds = vec![None; rows];
            samples.bounds.iter().for_each(|(row, bound)| bounds[*row] = Some(*bound));
            Arc::new(Float64Array::from(bounds))
        }
        history::Column::Text => {
            let mut texts = vec![None; rows];
            samples.texts.iter().for_each(|(row, text)| texts[*row] = Some(text.as_str()));
            Arc::new(StringArray::from(texts))
        }
    }
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

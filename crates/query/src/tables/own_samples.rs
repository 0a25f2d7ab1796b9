//! Samples that a source has itself, for answering other nodes: without a planner, and without asking
//! others.

use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::error::DataFusionError;
use skopos_model::Timestamp;
use skopos_store::history::{Column, Part, Run, Series};

use crate::error::Error;
use crate::source::{RemoteSamples, Source, Wanted, When};
use crate::tables::last::last;
use crate::tables::sample_scan::{SampleScan, failed};

/// Shows the samples of the wanted topics that a source has in memory and on disk: the series, a batch of
/// all [`Column`]s, and the rows of the batch that belong to the series. Samples of one series come in the
/// order of their times. Returns early when `visit` returns false.
///
/// # Errors
/// The history cannot be read.
pub fn own_samples(
    source: &Arc<dyn Source>,
    wanted: &Wanted,
    when: &When,
    visit: &mut dyn FnMut(&Series, &RecordBatch, &Run) -> bool,
) -> Result<(), Error> {
    let explained = |e: DataFusionError| Error::Query { message: e.strip_backtrace() };
    let times = match when {
        When::During(times) => times.clone(),
        When::AsOf(time) => Timestamp::from_nanos(i64::MIN)..=*time,
    };
    let topics = wanted.clone().into();
    let scan = SampleScan { source: source.clone(), topics, times, filter: None };
    let selected = scan.selected(&RemoteSamples::default()).map_err(explained)?;
    let mut visit_runs = |part: &Arc<Part>, batch: &RecordBatch, runs: &[Run]| {
        runs.iter().all(|run| visit(&part.stretches()[run.stretch].series, batch, run))
    };
    if let When::AsOf(_) = when {
        for (part, chunk) in last(&selected, &Column::ALL).map_err(explained)? {
            if !visit_runs(&part, &chunk.batch, &chunk.runs) {
                return Ok(());
            }
        }
        return Ok(());
    }
    for (part, selection) in &selected {
        for group in (0..part.groups()).filter(|group| part.may_have(*group, selection)) {
            let chunks = part.read(group, &Column::ALL, selection);
            for chunk in chunks.map_err(|e| explained(failed(e)))? {
                let chunk = chunk.map_err(|e| explained(failed(e)))?;
                if !visit_runs(part, &chunk.batch, &chunk.runs) {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

//! What a source has itself, for who answers others: no planner, no other nodes.

use std::ops::RangeInclusive;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use skopos_model::Timestamp;
use skopos_store::history::{Column, Run, Series};

use super::last::last;
use super::scan::{Ask, failed};
use super::subset::Subset;
use crate::error::Error;
use crate::source::{Elsewhere, Source, Wanted, When};

/// Shows the samples that a source has of the wanted topics, in memory and on disk: whose they are, a
/// batch of all [`Column`]s, and which of its rows. Those of one series come in the order of their times.
/// Ends when `visit` returns false.
///
/// # Errors
/// History cannot be read.
pub fn kept(
    source: &Arc<dyn Source>,
    wanted: &Wanted,
    when: &When,
    visit: &mut dyn FnMut(&Series, &RecordBatch, &Run) -> bool,
) -> Result<(), Error> {
    let explained =
        |e: datafusion::error::DataFusionError| Error::Query { message: e.strip_backtrace() };
    let times = match when {
        When::During(times) => times.clone(),
        When::AsOf(time) => Timestamp::from_nanos(i64::MIN)..=*time,
    };
    let ask = ask(source.clone(), wanted.clone(), times);
    let found = ask.found(&Elsewhere::default()).map_err(explained)?;
    if let When::AsOf(_) = when {
        for (part, chunk) in last(&found, &Column::ALL).map_err(explained)? {
            for run in &chunk.runs {
                if !visit(&part.stretches()[run.stretch].series, &chunk.batch, run) {
                    return Ok(());
                }
            }
        }
        return Ok(());
    }
    for (part, selection) in &found {
        for group in (0..part.groups()).filter(|group| part.may_have(*group, selection)) {
            let chunks = part.read(group, &Column::ALL, selection);
            for chunk in chunks.map_err(|e| explained(failed(e)))? {
                let chunk = chunk.map_err(|e| explained(failed(e)))?;
                for run in &chunk.runs {
                    if !visit(&part.stretches()[run.stretch].series, &chunk.batch, run) {
                        return Ok(());
                    }
                }
            }
        }
    }
    Ok(())
}

fn ask(source: Arc<dyn Source>, wanted: Wanted, times: RangeInclusive<Timestamp>) -> Ask {
    Ask { source, which: Subset::All, wanted, times, filter: None }
}

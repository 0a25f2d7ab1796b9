//! The last sample of each topic: the last row of the series that began last.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use datafusion::error::Result;
use skopos_model::{Timestamp, Topic};
use skopos_store::history::{Chunk, Column, Part, Run, Selection};

use crate::context::Missing;
use crate::tables::sample_scan::Selected;

/// Returns the last sample of each topic within the selected times, as chunks with runs of one row each.
pub(crate) fn last(
    selected: &[Selected],
    columns: &[Column],
    missing: &Missing,
) -> Result<Vec<(Arc<Part>, Chunk)>> {
    // Beginning of the series, position of the part, and its stretch.
    let mut chosen: HashMap<&Topic, (Timestamp, usize, (usize, i64))> = HashMap::new();
    for (number, (part, selection)) in selected.iter().enumerate() {
        for (at, below) in &selection.stretches {
            let stretch = &part.stretches()[*at];
            let this = (stretch.first, number, (*at, *below));
            let best = chosen.entry(&stretch.series.topic).or_insert(this);
            if stretch.first > best.0 {
                *best = this;
            }
        }
    }
    let mut by_part: BTreeMap<usize, Vec<(usize, i64)>> = BTreeMap::new();
    for (_, part, stretch) in chosen.into_values() {
        by_part.entry(part).or_default().push(stretch);
    }
    let mut all = Vec::new();
    for (number, mut stretches) in by_part {
        let (part, selection) = &selected[number];
        stretches.sort_unstable();
        let selection = Selection { stretches, times: selection.times.clone() };
        all.extend(last_rows(part, &selection, columns, missing)?);
    }
    Ok(all)
}

/// Returns the last row of each stretch.
fn last_rows(
    part: &Arc<Part>,
    selection: &Selection,
    columns: &[Column],
    missing: &Missing,
) -> Result<Vec<(Arc<Part>, Chunk)>> {
    let mut chunks: Vec<Chunk> = Vec::new();
    for group in (0..part.groups()).filter(|group| part.may_have(*group, selection)) {
        let read = match part.read(group, columns, selection) {
            Ok(read) => read,
            Err(e) => {
                missing.add_damaged(e)?;
                continue;
            }
        };
        for chunk in read {
            let mut chunk = match chunk {
                Ok(chunk) => chunk,
                Err(e) => {
                    missing.add_damaged(e)?;
                    continue;
                }
            };
            let Some(first) = chunk.runs.first().map(|run| run.stretch) else { continue };
            // The last stretch of the previous chunk may continue in this one.
            if let Some(before) = chunks.last_mut() {
                before.runs.retain(|run| run.stretch != first);
            }
            let runs = std::mem::take(&mut chunk.runs);
            for run in runs {
                let row = Run { stretch: run.stretch, start: run.start + run.rows - 1, rows: 1 };
                match chunk.runs.last_mut().filter(|last| last.stretch == run.stretch) {
                    Some(last) => *last = row,
                    None => chunk.runs.push(row),
                }
            }
            chunks.push(chunk);
        }
    }
    chunks.retain(|chunk| !chunk.runs.is_empty());
    Ok(chunks.into_iter().map(|chunk| (part.clone(), chunk)).collect())
}

//! Samples of many series as columns, sorted by topic, then time: the content of a part on disk, and of a log in
//! memory.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use skopos_model::Timestamp;

use super::error::Error;
use super::log::{self, Entry};
use super::series::{Samples, Series};

/// The consecutive rows of one series in a part or a block.
#[derive(Clone, Debug, PartialEq)]
pub struct Stretch {
    /// Their series.
    pub series: Series,
    /// The first row.
    pub start: u64,
    /// Number of rows.
    pub rows: u64,
    /// Time of the first row.
    pub first: Timestamp,
    /// Time of the last row.
    pub last: Timestamp,
}

impl Stretch {
    /// Returns the stretch of a series whose samples begin at row `start`; `None` if there are no samples.
    pub(super) fn of(series: Series, samples: &Samples, start: u64) -> Option<Self> {
        let (first, last) = (samples.times.first()?, samples.times.last()?);
        let (first, last) = (Timestamp::from_nanos(*first), Timestamp::from_nanos(*last));
        Some(Self { series, start, rows: samples.len() as u64, first, last })
    }

    /// Returns the range of its rows.
    #[inline]
    pub fn range(&self) -> Range<u64> {
        self.start..self.start + self.rows
    }
}

/// Samples of many series.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) stretches: Vec<Stretch>,
    /// All columns.
    pub(super) rows: Samples,
}

impl Block {
    /// Makes a block of series in any order.
    pub(super) fn new(all: Vec<(Series, Samples)>) -> Self {
        let (mut stretches, mut rows) = (Vec::with_capacity(all.len()), Samples::default());
        for (series, samples) in sorted(all) {
            stretches.extend(Stretch::of(series, &samples, rows.len() as u64));
            rows.append(&samples);
        }
        Self { stretches, rows }
    }

    /// Makes a block of a log's complete frames.
    pub(super) fn of_log(path: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let mut content = LogContent::default();
        log::read(path, bytes, &mut |entry| content.take(entry))?;
        Ok(Self::new(content.by_index.into_values().collect()))
    }
}

/// Returns the series in the order of a part: by topic, then time. Leaves out series without samples.
fn sorted(mut all: Vec<(Series, Samples)>) -> Vec<(Series, Samples)> {
    all.retain(|(_, samples)| !samples.is_empty());
    all.sort_by(|(a, x), (b, y)| {
        a.topic.cmp(&b.topic).then_with(|| x.times.first().cmp(&y.times.first()))
    });
    all
}

/// The content of a log.
#[derive(Debug, Default)]
pub(super) struct LogContent {
    by_index: HashMap<u32, (Series, Samples)>,
}

impl LogContent {
    pub(super) fn take(&mut self, entry: Entry) {
        match entry {
            Entry::Series(index, series) => {
                self.by_index.insert(index, (series, Samples::default()));
            }
            Entry::Sample(index, sample) => {
                if let Some((_, samples)) = self.by_index.get_mut(&index) {
                    samples.push(&sample);
                }
            }
        }
    }

    /// Returns the series in the order of a part.
    pub(super) fn sorted(self) -> Vec<(Series, Samples)> {
        sorted(self.by_index.into_values().collect())
    }
}

//! Samples of many series as columns, sorted by topic, then time: the content of a part on disk, and of a log in
//! memory.

use std::collections::HashMap;
use std::ops::Range;

use skopos_model::Timestamp;

use super::codec;
use super::series::{Samples, Series};
use crate::log::{Losses, NotALog, Record, Scanned, scan};

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
    /// The end of its frames.
    pub(super) scanned: Scanned,
    /// The records that could not be read.
    pub(super) losses: Losses,
}

impl LogContent {
    /// Reads the log of a generation.
    ///
    /// # Errors
    /// It is not such a log.
    pub(super) fn read(bytes: &[u8], generation: u64) -> Result<Self, NotALog> {
        let mut content = Self::default();
        let mut orphans = 0;
        let scanned = scan(bytes, generation, &mut |record| {
            orphans += u64::from(content.take(record).is_none());
        })?;
        (content.scanned, content.losses) = (scanned, scanned.losses);
        content.losses.orphans += orphans;
        Ok(content)
    }

    fn take(&mut self, record: Record<'_>) -> Option<()> {
        match record {
            Record::Producer { index, epoch, description } => {
                let series = codec::series(epoch, description)?;
                self.by_index.insert(index, (series, Samples::default()));
            }
            Record::Entry { index, sequence, content } => {
                let (series, samples) = self.by_index.get_mut(&index)?;
                samples.push(&codec::sample(series.value_type, sequence, content)?);
            }
        }
        Some(())
    }

    /// Returns the number of its series.
    pub(super) fn producers(&self) -> u32 {
        self.by_index.keys().max().map_or(0, |last| last + 1)
    }

    /// Returns the time of its first sample.
    pub(super) fn first(&self) -> Option<Timestamp> {
        let firsts = self.by_index.values().filter_map(|(_, samples)| samples.times.first());
        firsts.min().copied().map(Timestamp::from_nanos)
    }

    /// Returns the series in the order of a part.
    pub(super) fn sorted(self) -> Vec<(Series, Samples)> {
        sorted(self.by_index.into_values().collect())
    }
}

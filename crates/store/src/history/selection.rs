use std::ops::{Range, RangeInclusive};

use super::block::Stretch;

/// Selects rows of a part.
#[derive(Clone, Debug)]
pub struct Selection {
    /// Indices of stretches, ascending, each with the time before which its samples are wanted.
    pub stretches: Vec<(usize, i64)>,
    /// The wanted times.
    pub times: RangeInclusive<i64>,
}

impl Selection {
    /// Returns the wanted rows of `rows`, relative to its first row, in a part with these stretches.
    pub(super) fn pieces(&self, stretches: &[Stretch], rows: &Range<u64>) -> Vec<Piece> {
        let times = &self.times;
        let first =
            self.stretches.partition_point(|(at, _)| stretches[*at].range().end <= rows.start);
        let mut wanted = Vec::new();
        for (at, below) in &self.stretches[first..] {
            let stretch = &stretches[*at];
            if stretch.start >= rows.end {
                break;
            }
            let (from, to) = (stretch.first.as_nanos(), stretch.last.as_nanos());
            if to < *times.start() || from > *times.end() || from >= *below {
                continue;
            }
            let range = stretch.start.max(rows.start)..stretch.range().end.min(rows.end);
            let is_whole = from >= *times.start() && to <= *times.end() && to < *below;
            wanted.push(Piece {
                stretch: *at,
                rows: (range.start - rows.start) as usize..(range.end - rows.start) as usize,
                below: *below,
                is_whole,
            });
        }
        wanted
    }
}

/// Wanted rows of one stretch in a group.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) stretch: usize,
    pub(super) rows: Range<usize>,
    /// Time before which samples are wanted.
    pub(super) below: i64,
    /// True if all of the rows are wanted.
    pub(super) is_whole: bool,
}

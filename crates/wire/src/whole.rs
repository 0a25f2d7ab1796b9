//! Since when nothing is missing of a vertex: batches get lost, and what they said only their node has.

use skopos_model::Timestamp;

/// From when on a mirror has each sample of a vertex.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whole {
    from: Timestamp,
    /// What followed the last sample that came may be lost, until this batch.
    cut_at: Option<u64>,
}

/// How a sample came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// In its turn, after the one before it.
    Batch,
    /// As the latest one of a snapshot, as of this batch. Those before it may be lost.
    Snapshot { as_of: u64 },
    /// Out of its turn, because somebody asked. Those before it may be on their way, and will be too late.
    Asked,
}

impl Whole {
    /// Of a vertex without a sample, described by who said at that time all that there was.
    pub(crate) fn new(said_at: Timestamp) -> Self {
        Self { from: said_at, cut_at: None }
    }

    /// Something may be lost after the last sample, until this batch.
    pub(crate) fn cut(&mut self, batch: u64) {
        self.cut_at = self.cut_at.max(Some(batch));
    }

    /// A snapshot says that until this batch there was no sample after the last.
    pub(crate) fn mend(&mut self, as_of: u64) {
        self.cut_at = self.cut_at.filter(|batch| *batch > as_of);
    }

    /// A sample came that is later than the last.
    pub(crate) fn came(&mut self, time: Timestamp, way: Way, is_first: bool) {
        if self.cut_at.is_some() || is_first || way != Way::Batch {
            self.from = time;
        }
        match way {
            Way::Batch => self.cut_at = None,
            Way::Snapshot { as_of } => self.mend(as_of),
            Way::Asked => {}
        }
    }

    /// The sample that came last, at this time, was told again.
    pub(crate) fn again(&mut self, time: Timestamp, way: Way) {
        match way {
            // It was asked for before its turn.
            Way::Batch => self.came(time, way, false),
            Way::Snapshot { as_of } => self.mend(as_of),
            Way::Asked => {}
        }
    }

    /// From when on each sample is here, of which the first that is kept has this time; `None` if the
    /// latest may be missing.
    pub(crate) fn since(&self, first: Option<Timestamp>) -> Option<Timestamp> {
        let from = first.map_or(self.from, |first| first.max(self.from));
        self.cut_at.is_none().then_some(from)
    }
}

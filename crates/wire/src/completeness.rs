//! The time from which a mirror has every sample of a vertex. Batches get lost, and then only their node
//! has the samples that were in them.

use skopos_model::Timestamp;

/// The time from which a mirror has each sample of a vertex.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completeness {
    from: Timestamp,
    /// Samples that followed the last received sample may be lost, up to this batch; [`WHOLE`] if none is. A hub has
    /// millions of these, so there is no place for an `Option`.
    cut_at: u64,
}

/// The number of no batch: a publisher would need a hundred thousand years to get there.
const WHOLE: u64 = u64::MAX;

/// The way in which a sample arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// In a batch, after the sample before it.
    Batch,
    /// In a snapshot as of this batch, which has the latest sample only. Samples before it may be lost.
    Snapshot { as_of: u64 },
    /// Ahead of its batch, as the answer to a request. Samples before it may be under way, and will
    /// arrive too late.
    Requested,
}

impl Completeness {
    /// Starts for a vertex without samples, which its publisher described completely at this time.
    pub(crate) fn new(described_at: Timestamp) -> Self {
        Self { from: described_at, cut_at: WHOLE }
    }

    /// Notes that samples after the last one may be lost, up to this batch.
    pub(crate) fn cut(&mut self, batch: u64) {
        // A hostile publisher may use the number that means that nothing is lost.
        let batch = batch.min(WHOLE - 1);
        self.cut_at = if self.is_cut() { self.cut_at.max(batch) } else { batch };
    }

    fn is_cut(&self) -> bool {
        self.cut_at != WHOLE
    }

    /// Notes that a snapshot has no sample after the last one, up to this batch.
    pub(crate) fn mend(&mut self, as_of: u64) {
        if self.cut_at <= as_of {
            self.cut_at = WHOLE;
        }
    }

    /// Notes a sample that is later than the last one.
    pub(crate) fn received(&mut self, time: Timestamp, delivery: Delivery, is_first: bool) {
        if self.is_cut() || is_first || delivery != Delivery::Batch {
            self.from = time;
        }
        match delivery {
            Delivery::Batch => self.cut_at = WHOLE,
            Delivery::Snapshot { as_of } => self.mend(as_of),
            Delivery::Requested => {}
        }
    }

    /// Notes that the last sample, of this time, arrived again.
    pub(crate) fn repeated(&mut self, time: Timestamp, delivery: Delivery) {
        match delivery {
            // It arrived first as the answer to a request.
            Delivery::Batch => self.received(time, delivery, false),
            Delivery::Snapshot { as_of } => self.mend(as_of),
            Delivery::Requested => {}
        }
    }

    /// Returns the time from which each sample is here, if `first` is the time of the oldest one that
    /// the mirror still has. Returns `None` if the latest sample may be missing.
    pub(crate) fn since(&self, first: Option<Timestamp>) -> Option<Timestamp> {
        let from = first.map_or(self.from, |first| first.max(self.from));
        (!self.is_cut()).then_some(from)
    }
}

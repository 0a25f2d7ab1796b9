use skopos_model::{Kind, Timestamp};

use super::counts::Counts;
use super::series::Series;
use super::{Detector, Finding};

/// One detector of one vertex, without rules and events: for callers that send findings on their own.
///
/// ```
/// use skopos_model::{Kind, Timestamp};
/// use skopos_score::anomaly::envelope::{Envelope, Settings};
/// use skopos_score::anomaly::{Counts, Judge};
///
/// let mut judge = Judge::new(Kind::Gauge, Envelope::new(Settings::DEFAULT));
/// let mut counts = Counts::default();
/// let first = judge.take(Timestamp::from_nanos(1), 5.0, &mut counts);
/// assert_eq!(first, Some(false));
/// assert_eq!(judge.take(Timestamp::from_nanos(2), f64::NAN, &mut counts), None);
/// assert_eq!(counts.not_finite, 1);
/// ```
#[derive(Clone, Debug)]
pub struct Judge<D> {
    series: Series,
    detector: D,
}

impl<D: Detector> Judge<D> {
    /// Creates a judge of a vertex of this kind.
    pub fn new(kind: Kind, detector: D) -> Self {
        Self { series: Series::new(kind), detector }
    }

    /// Takes a polled value. Returns true if the vertex is unusual now; `None` if the value cannot be
    /// judged, with the reason in `counts`, and for the first value of a counter. Allocates nothing.
    #[inline]
    pub fn take(&mut self, at: Timestamp, value: f64, counts: &mut Counts) -> Option<bool> {
        let value = self.series.take(at, value, counts)?;
        Some(self.detector.take(at, value))
    }

    /// Returns the basis of the judgement on the latest sample.
    pub fn finding(&self) -> Finding {
        self.detector.finding()
    }
}

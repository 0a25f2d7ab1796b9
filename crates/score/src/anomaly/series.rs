use skopos_model::{Kind, Timestamp};

use super::counts::Counts;

/// The largest absolute value that is judged: the square of a larger one would be infinite.
pub const LARGEST_VALUE: f64 = 1e150;

/// The filter before the detectors of one vertex: it passes finite numbers at increasing times, and
/// for a counter its rate.
#[derive(Clone, Debug)]
pub(super) struct Series {
    kind: Kind,
    latest: Option<(Timestamp, f64)>,
}

impl Series {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, latest: None }
    }

    /// Returns the number to judge, if there is one.
    #[inline]
    pub(super) fn take(&mut self, at: Timestamp, value: f64, counts: &mut Counts) -> Option<f64> {
        if value.is_nan() || value.abs() > LARGEST_VALUE {
            counts.not_finite += 1;
            return None;
        }
        let before = self.latest;
        if before.is_some_and(|(then, _)| at <= then) {
            counts.backwards += 1;
            return None;
        }
        self.latest = Some((at, value));
        if self.kind != Kind::Counter {
            return Some(value);
        }
        let (then, before) = before?;
        if value < before {
            counts.resets += 1;
            return None;
        }
        Some((value - before) / at.since(then).as_secs_f64()).filter(|rate| *rate <= LARGEST_VALUE)
    }
}

use skopos_model::{Kind, Timestamp};

use super::Counts;

/// What is larger is no number to judge: its square would be infinite.
pub const LARGEST: f64 = 1e150;

/// The door to the detectors of one vertex: what passes is a finite number at a time after the one
/// before; of a counter it is the rate.
#[derive(Clone, Debug)]
pub(super) struct Series {
    kind: Kind,
    latest: Option<(Timestamp, f64)>,
}

impl Series {
    pub(super) fn new(kind: Kind) -> Self {
        Self { kind, latest: None }
    }

    /// What to judge, if there is anything.
    pub(super) fn take(&mut self, at: Timestamp, value: f64, counts: &mut Counts) -> Option<f64> {
        if value.is_nan() || value.abs() > LARGEST {
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
        Some((value - before) / at.since(then).as_secs_f64()).filter(|rate| *rate <= LARGEST)
    }
}

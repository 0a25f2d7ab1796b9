//! The running scores of all methods on one vertex.

use super::head::{EXPERTS, Head};
use super::lead::Lead;
use super::memory::MEMORY;

/// The factor within which sums of errors stay of their unit, so that they fit an `f32` for values
/// of any size.
const LARGEST: f64 = 1e9;

/// The absolute errors of the methods, in the unit of the value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MethodErrors {
    pub(crate) last_value: f64,
    pub(crate) linear: f64,
    pub(crate) delphi: f64,
    /// The error of the method that was shown.
    pub(crate) shown: f64,
}

/// Running scores, all discounted by [`MEMORY`] and in one unit.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    /// The unit of the sums, in the unit of the value; 0 before the first error.
    unit: f64,
    /// The number of samples in the sums.
    samples: f32,
    last_value: f32,
    linear: f32,
    delphi: f32,
    shown: f32,
    /// Linear extrapolation against the last value.
    linear_lead: Lead,
    /// Delphi against the better of the two.
    delphi_lead: Lead,
    pub(crate) head: Head,
}

impl Ledger {
    pub(crate) fn new() -> Self {
        Self {
            unit: 0.0,
            samples: 0.0,
            last_value: 0.0,
            linear: 0.0,
            delphi: 0.0,
            shown: 0.0,
            linear_lead: Lead::default(),
            delphi_lead: Lead::default(),
            head: Head::new(),
        }
    }

    #[inline]
    pub(crate) fn linear_leads(&self) -> bool {
        self.linear_lead.leads()
    }

    #[inline]
    pub(crate) fn delphi_leads(&self) -> bool {
        self.delphi_lead.leads()
    }

    /// Returns the mean absolute errors in the unit of the value; `None` before the first
    /// prediction.
    pub(crate) fn means(&self) -> Option<MethodErrors> {
        let mean = |sum: f32| f64::from(sum / self.samples) * self.unit;
        (self.samples > 0.0).then(|| MethodErrors {
            last_value: mean(self.last_value),
            linear: mean(self.linear),
            delphi: mean(self.delphi),
            shown: mean(self.shown),
        })
    }

    /// Adds the errors of one sample, and those of the experts if they made a prediction.
    pub(crate) fn observe(&mut self, errors: &MethodErrors, experts: Option<&[f64; EXPERTS]>) {
        self.samples = self.samples * MEMORY + 1.0;
        let largest = errors.last_value.max(errors.linear).max(errors.delphi).max(errors.shown);
        let largest = experts.into_iter().flatten().copied().fold(largest, f64::max);
        if self.unit == 0.0 && largest.is_normal() {
            self.unit = largest;
        }
        if self.unit == 0.0 {
            return;
        }
        self.fit(largest);
        let of = |error: f64| (error / self.unit) as f32;
        let base = if self.linear_leads() { errors.linear } else { errors.last_value };
        self.linear_lead.observe(of(errors.last_value) - of(errors.linear));
        self.delphi_lead.observe(of(base) - of(errors.delphi));
        for (sum, error) in [
            (&mut self.last_value, errors.last_value),
            (&mut self.linear, errors.linear),
            (&mut self.delphi, errors.delphi),
            (&mut self.shown, errors.shown),
        ] {
            *sum = *sum * MEMORY + of(error);
        }
        if let Some(experts) = experts {
            self.head.observe(&experts.map(of));
        }
    }

    /// Changes the unit before an error that is far larger, or when all errors have become far
    /// smaller.
    fn fit(&mut self, error: f64) {
        let sums = self.last_value.max(self.linear).max(self.delphi).max(self.head.largest());
        let ratio = f64::from(sums).max(error / self.unit);
        if (1.0 / LARGEST..=LARGEST).contains(&ratio) {
            return;
        }
        let unit = (self.unit * f64::from(sums)).max(error);
        if !unit.is_normal() {
            return;
        }
        self.unit = unit;
        // If the ratio exceeds an `f32`, all sums before it are negligible.
        let times = ratio.min(f32::MAX.into()) as f32;
        let sums = [&mut self.last_value, &mut self.linear, &mut self.delphi, &mut self.shown];
        sums.into_iter().for_each(|sum| *sum /= times);
        self.head.rescale(times);
        self.linear_lead.rescale(times);
        self.delphi_lead.rescale(times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_any_size_are_compared() {
        let mut ledger = Ledger::new();
        let mut add = |size: f64| {
            for _ in 0..3000 {
                let errors = MethodErrors {
                    last_value: size,
                    linear: size / 2.0,
                    delphi: size / 4.0,
                    shown: size / 4.0,
                };
                let mut experts = [size; EXPERTS];
                experts[0] = size / 2.0;
                ledger.observe(&errors, Some(&experts));
            }
            assert!(ledger.linear_leads() && ledger.delphi_leads(), "{size}");
            assert!(ledger.head.weights()[0] > 0.999, "{size}: {:?}", ledger.head);
            let means = ledger.means().expect("there are errors");
            assert!((means.linear / size - 0.5).abs() < 1e-3, "{size}: {means:?}");
        };
        for size in [1e-300, 1e-12, 1.0, 5.0, 1e12, 1e300] {
            add(size);
        }
    }
}

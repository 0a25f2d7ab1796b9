//! Decides whether a challenger is better than the incumbent by more than chance.

use super::memory::MEMORY;

/// The lead, in standard errors, with which a challenger takes over: chance alone reaches it one
/// time in forty.
const TO_TAKE_OVER: f32 = 2.0;

/// The lead with which it stays. Without the gap between the two constants, two equal methods would
/// change places at every sample.
const TO_STAY: f32 = 1.5;

/// The discounted sums of the challenger's advantage and of its square.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lead {
    sum: f32,
    squares: f32,
    leads: bool,
}

impl Lead {
    /// Returns true while the challenger leads.
    #[inline]
    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    /// Records that the error of the challenger was smaller by `by`, in a unit that the caller
    /// keeps.
    #[inline]
    pub(crate) fn observe(&mut self, by: f32) {
        self.sum = self.sum * MEMORY + by;
        self.squares = self.squares * MEMORY + by * by;
        let needed = if self.leads { TO_STAY } else { TO_TAKE_OVER };
        self.leads = self.sum > needed * self.squares.sqrt();
    }

    /// Adjusts the sums to a unit that became `times` as large.
    pub(crate) fn rescale(&mut self, times: f32) {
        self.sum /= times;
        self.squares /= times * times;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leads(differences: impl IntoIterator<Item = f32>) -> bool {
        let mut lead = Lead::default();
        differences.into_iter().for_each(|by| lead.observe(by));
        lead.leads()
    }

    #[test]
    fn a_better_challenger_takes_over_and_one_lucky_sample_does_not_suffice() {
        assert!(!leads([]));
        assert!(!leads([0.0; 100]));
        assert!(leads([1.0; 5]));
        assert!(!leads([-1.0; 5]));
        // One great success among many small failures is not a lead.
        assert!(!leads((0..50).map(|i| if i == 20 { 5.0 } else { -0.1 })));
        assert!(leads((0..50).map(|i| if i == 20 { -1.0 } else { 0.3 })));
        // The challenger loses its lead again.
        assert!(!leads((0..400).map(|i| if i < 100 { 1.0 } else { -1.0 })));
    }
}

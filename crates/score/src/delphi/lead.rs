//! Whether a challenger is better than the incumbent, by more than chance.

use super::head::MEMORY;

/// How many standard errors a challenger must be ahead by to take over: chance alone does that one
/// time in forty.
const TO_TAKE_OVER: f32 = 2.0;

/// How many it must still be ahead by to stay. Without the gap between the two, two equals would
/// change places on every sample.
const TO_STAY: f32 = 1.5;

/// The discounted sum of what the challenger was better by, and of its square.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lead {
    sum: f32,
    squares: f32,
    leads: bool,
}

impl Lead {
    /// Whether it is the challenger's turn.
    pub(crate) fn leads(&self) -> bool {
        self.leads
    }

    /// The challenger's error was smaller by `by`, in a unit that the caller keeps.
    pub(crate) fn observe(&mut self, by: f32) {
        self.sum = self.sum * MEMORY + by;
        self.squares = self.squares * MEMORY + by * by;
        let needed = if self.leads { TO_STAY } else { TO_TAKE_OVER };
        self.leads = self.sum > needed * self.squares.sqrt();
    }

    /// The unit became `times` as large.
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
    fn a_challenger_takes_over_when_it_is_better_and_not_by_one_stroke_of_luck() {
        assert!(!leads([]));
        assert!(!leads([0.0; 100]));
        assert!(leads([1.0; 5]));
        assert!(!leads([-1.0; 5]));
        // One great success among many small failures is no lead.
        assert!(!leads((0..50).map(|i| if i == 20 { 5.0 } else { -0.1 })));
        assert!(leads((0..50).map(|i| if i == 20 { -1.0 } else { 0.3 })));
        // It loses again.
        assert!(!leads((0..400).map(|i| if i < 100 { 1.0 } else { -1.0 })));
    }
}

//! The load of other programs on a tier over time.

use std::time::Duration;

/// Time in which a poll loses two thirds of its weight. Other programs come and go within a second or so, and an announced file
/// is read about as much later, when the load of now may be gone.
pub const FADES_IN: Duration = Duration::from_secs(1);

/// The mean of a load over the polls that decisions saw, of which older ones weigh less. After a pause of seconds without a
/// decision it is the load of one poll.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mean {
    /// The end of the window of the last poll, and the mean.
    last: Option<(Duration, f64)>,
}

impl Mean {
    /// Takes the load of a poll whose window ends at `at`, and returns the mean. An unknown load ends the mean.
    pub(super) fn take(&mut self, at: Duration, load: Option<f64>) -> Option<f64> {
        self.last = load.map(|load| match self.last {
            None => (at, load),
            Some((before, mean)) => {
                let seconds = at.saturating_sub(before).as_secs_f64();
                let weight = (-seconds / FADES_IN.as_secs_f64()).exp();
                (at.max(before), weight * mean + (1.0 - weight) * load)
            }
        });
        self.last.map(|(_, mean)| mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_poll_counts_once_and_fades() {
        let at = Duration::from_millis;
        let mut mean = Mean::default();
        assert_eq!(mean.take(at(100), Some(0.5)), Some(0.5));
        // The same poll, seen by another decision.
        assert_eq!(mean.take(at(100), Some(0.5)), Some(0.5));
        assert_eq!(mean.take(at(90), Some(1.0)), Some(0.5));
        let risen = mean.take(at(1100), Some(1.0)).expect("known");
        assert!((risen - (1.0 - 0.5 * (-1.0_f64).exp())).abs() < 1e-12, "{risen}");
        assert_eq!(mean.take(at(1200), None), None);
        assert_eq!(mean.take(at(1300), Some(0.1)), Some(0.1));
    }

    #[test]
    fn a_load_of_bursts_counts_as_its_mean() {
        let mut mean = Mean::default();
        // Bursts of 0.5 s with rests of 0.5 s, polled ten times a second.
        let load = |poll: u64| if poll % 10 < 5 { 1.0 } else { 0.0 };
        let taken = |poll: u64| mean.take(Duration::from_millis(100 * poll), Some(load(poll)));
        let late: Vec<f64> = (0..100).filter_map(taken).skip(50).collect();
        assert!(late.iter().all(|mean| (0.3..0.7).contains(mean)), "{late:?}");
    }
}

//! An expert that remembers the movements of the value and predicts the movement of some samples
//! ago. Many values are renewed on a schedule of their own and rest in between: the kernel's load
//! averages every five seconds, its pressure averages every two, a checkpoint, a scrape, a job that
//! writes periodically. Polled each second, such a value stands still for longer than a window, and
//! the window does not show that it will move now. Forecasting calls this the seasonal naive method
//! (Hyndman and Athanasopoulos, *Forecasting: Principles and Practice*, chapter 5.2); here the
//! season is the one with the least error so far.

use super::memory::MEMORY;

/// The longest rhythm in samples: a quarter of a minute at one a second, and few enough that a
/// vertex stays small and a sample quick.
const LONGEST: usize = 16;

/// The largest change; a larger one is stored as this, so that no sum of them exceeds an `f32`.
const LARGEST: f64 = 1e30;

/// The last differences between samples, and the error of each rhythm.
#[derive(Clone, Debug)]
pub(crate) struct Rhythm {
    /// A ring, in the unit of the value; 0 before the first samples.
    differences: [f32; LONGEST],
    /// Discounted absolute errors: entry `i` is the error of a rhythm of `i + 1` samples.
    losses: [f32; LONGEST],
    /// The position of the oldest difference, which the next one replaces.
    next: u8,
}

impl Rhythm {
    pub(crate) fn new() -> Self {
        Self { differences: [0.0; LONGEST], losses: [0.0; LONGEST], next: 0 }
    }

    /// Predicts the next two differences, in the unit of the value.
    #[inline]
    pub(crate) fn forecast(&self) -> [f64; 2] {
        let mut best = 0;
        for (i, loss) in self.losses.iter().enumerate() {
            // Of equal rhythms, the shortest wins.
            if *loss < self.losses[best] {
                best = i;
            }
        }
        let one = self.ago(best + 1);
        // In a rhythm of one sample, the second difference repeats the first.
        let two = if best == 0 { one } else { self.ago(best) };
        [one, two].map(f64::from)
    }

    /// Records that the value changed by `difference` since the sample before.
    pub(crate) fn observe(&mut self, difference: f64) {
        let difference = difference.clamp(-LARGEST, LARGEST) as f32;
        for i in 0..LONGEST {
            let error = (difference - self.ago(i + 1)).abs();
            self.losses[i] = self.losses[i] * MEMORY + error;
        }
        self.differences[usize::from(self.next)] = difference;
        self.next = (self.next + 1) % LONGEST as u8;
    }

    /// Returns the difference of `samples` samples ago, 1 to [`LONGEST`].
    #[inline]
    fn ago(&self, samples: usize) -> f32 {
        self.differences[(usize::from(self.next) + LONGEST - samples) % LONGEST]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the predictions for each of `differences` before it is observed.
    fn said(differences: impl IntoIterator<Item = f64>) -> Vec<(f64, [f64; 2])> {
        let mut rhythm = Rhythm::new();
        let each = |difference| {
            let said = rhythm.forecast();
            rhythm.observe(difference);
            (difference, said)
        };
        differences.into_iter().map(each).collect()
    }

    #[test]
    fn a_rhythm_of_rests_and_movements_is_known_after_two_periods() {
        for length in [1, 2, 5, 7, LONGEST] {
            let moves = (0..200).map(|i| if i % length == 0 { 40_960.0 } else { 0.0 });
            let all = said(moves);
            for pair in all[3 * length..].windows(2) {
                let ((came, said), (after, _)) = (pair[0], pair[1]);
                assert_eq!([came, after], said, "every {length}");
            }
        }
    }

    #[test]
    fn another_rhythm_is_learnt_and_extreme_numbers_do_no_harm() {
        let changes = (0..2000).map(|i| {
            let length = if i < 1400 { 5 } else { 7 };
            if i % length == 0 { 1.0 } else { 0.0 }
        });
        assert!(said(changes).iter().rev().take(300).all(|(came, said)| *came == said[0]));
        let ends = [f64::MAX, f64::MIN, f64::INFINITY, f64::NEG_INFINITY, 1e-310, -0.0];
        let all = said((0..5000).map(|i| ends[i * i % ends.len()]));
        assert!(all.iter().all(|(_, said)| said.iter().all(|said| said.is_finite())));
    }
}

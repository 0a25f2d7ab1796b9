//! One more expert, which remembers how the value moved and says that it moves as some samples ago.
//! Much is renewed on a schedule of its own and rests in between: the kernel's load averages every
//! five seconds, its pressure averages every two, a checkpoint, a scrape, a job that writes every so
//! often. Looked at each second, such a value stands still longer than a window is, and nothing in
//! the window tells that it will move now. Forecasting calls it the seasonal naive method (Hyndman
//! and Athanasopoulos, *Forecasting: Principles and Practice*, chapter 5.2); here the season is the
//! one that has been right.

use super::head::MEMORY;

/// The longest rhythm, in samples: a quarter of a minute at one a second, and few enough that a
/// vertex stays small and a sample quick.
const LONGEST: usize = 16;

/// A larger change is remembered as one of this size, so that no sum of them leaves an `f32`.
const LARGEST: f64 = 1e30;

/// The last differences between samples, and how wrong each rhythm has been about them.
#[derive(Clone, Debug)]
pub(crate) struct Rhythm {
    /// A ring, in the value's unit; 0 where nothing was seen yet.
    differences: [f32; LONGEST],
    /// Discounted absolute errors: entry `i` is for what comes again after `i + 1` samples.
    losses: [f32; LONGEST],
    /// Where the oldest difference stands, which the next one replaces.
    next: u8,
}

impl Rhythm {
    pub(crate) fn new() -> Self {
        Self { differences: [0.0; LONGEST], losses: [0.0; LONGEST], next: 0 }
    }

    /// The next two differences, in the value's unit.
    pub(crate) fn forecast(&self) -> [f64; 2] {
        let mut best = 0;
        for (i, loss) in self.losses.iter().enumerate() {
            // Of equals the shortest.
            if *loss < self.losses[best] {
                best = i;
            }
        }
        let one = self.ago(best + 1);
        // Where every sample repeats the one before, so does the second.
        let two = if best == 0 { one } else { self.ago(best) };
        [one, two].map(f64::from)
    }

    /// The value moved by `difference` since the sample before.
    pub(crate) fn observe(&mut self, difference: f64) {
        let difference = difference.clamp(-LARGEST, LARGEST) as f32;
        for i in 0..LONGEST {
            let error = (difference - self.ago(i + 1)).abs();
            self.losses[i] = self.losses[i] * MEMORY + error;
        }
        self.differences[usize::from(self.next)] = difference;
        self.next = (self.next + 1) % LONGEST as u8;
    }

    /// The difference of so many samples ago, 1 to [`LONGEST`].
    fn ago(&self, samples: usize) -> f32 {
        self.differences[(usize::from(self.next) + LONGEST - samples) % LONGEST]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What it says of each of `differences` before it sees it.
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
    fn what_rests_and_moves_in_turns_is_known_after_two_turns() {
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
    fn another_rhythm_is_learnt_and_no_number_breaks_it() {
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

//! Numbers in order, for quantiles.
//!
//! A change moves the numbers between the old place and the new one: a few for a value that moves a
//! little, and at most 8 bytes a row. No estimate, and no memory but 8 bytes a row.

/// The numbers, least first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorted {
    numbers: Vec<f64>,
}

impl Sorted {
    /// Makes room for `rows` numbers.
    pub(crate) fn grow(&mut self, rows: usize) {
        self.numbers.reserve(rows.saturating_sub(self.numbers.len()));
    }

    /// Takes `old` out and puts `new` in, where there is one.
    pub(crate) fn replace(&mut self, old: Option<f64>, new: Option<f64>) {
        match (old, new) {
            (Some(old), Some(new)) => {
                let (from, to) = (self.place(old), self.place(new));
                if from < to {
                    // Without the old one, all up to the place of the new one stand one lower.
                    self.numbers[from..to].rotate_left(1);
                    self.numbers[to - 1] = new;
                } else {
                    self.numbers[to..=from].rotate_right(1);
                    self.numbers[to] = new;
                }
            }
            (Some(old), None) => {
                let place = self.place(old);
                self.numbers.remove(place);
            }
            (None, Some(new)) => {
                let place = self.place(new);
                self.numbers.insert(place, new);
            }
            (None, None) => {}
        }
    }

    /// Where `number` stands or would stand.
    #[inline]
    fn place(&self, number: f64) -> usize {
        self.numbers.partition_point(|other| other.total_cmp(&number).is_lt())
    }

    /// The quantile `q` from 0 to 1, between two numbers by a straight line: SQL's
    /// `percentile_cont`, type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages"
    /// (1996). `None` if there is no number.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let last = self.numbers.len().checked_sub(1)?;
        let rank = q * last as f64;
        let below = (rank as usize).min(last);
        let (low, high) = (self.numbers[below], self.numbers[(below + 1).min(last)]);
        let share = rank - below as f64;
        // Weighted, because the difference of two doubles may be beyond the largest one.
        Some(if low == high { low } else { low * (1.0 - share) + high * share })
    }
}

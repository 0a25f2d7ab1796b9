//! Numbers in order, for quantiles.
//!
//! A change moves the numbers between the old place and the new one: a few for a small change, at most
//! all of them, which are 8 bytes a row. The result is exact, and the memory is 8 bytes a row.

/// The numbers in ascending order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sorted {
    numbers: Vec<f64>,
}

impl Sorted {
    /// Makes room for `rows` numbers.
    pub(crate) fn grow(&mut self, rows: usize) {
        self.numbers.reserve(rows.saturating_sub(self.numbers.len()));
    }

    /// Removes `old` and inserts `new`, if they are set.
    pub(crate) fn replace(&mut self, old: Option<f64>, new: Option<f64>) {
        match (old, new) {
            (Some(old), Some(new)) => {
                let (from, to) = (self.place(old), self.place(new));
                if from < to {
                    // Without the old number, all numbers up to the new place move down by one.
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

    /// Returns the place of `number`, or the place to insert it.
    #[inline]
    fn place(&self, number: f64) -> usize {
        self.numbers.partition_point(|other| other.total_cmp(&number).is_lt())
    }

    /// Returns the quantile `q` from 0 to 1, interpolated between two numbers: SQL's
    /// `percentile_cont`, type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages"
    /// (1996). `None` without numbers.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let last = self.numbers.len().checked_sub(1)?;
        let rank = q * last as f64;
        let below = (rank as usize).min(last);
        let (low, high) = (self.numbers[below], self.numbers[(below + 1).min(last)]);
        let share = rank - below as f64;
        // A weighted sum, because the difference of two doubles may be beyond the largest double.
        Some(if low == high { low } else { low * (1.0 - share) + high * share })
    }
}

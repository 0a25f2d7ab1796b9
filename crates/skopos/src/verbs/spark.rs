//! A series as a line of characters.

use serde::Serialize;

/// Eighths of a character cell, from the bottom. A known value is never blank.
const UP: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A fixed number of values at equal distances in time; a value that is not known is absent.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub(crate) struct Cells(Vec<Option<f64>>);

impl Cells {
    /// Takes values of which those that are not finite count as unknown.
    pub(crate) fn of(values: &[Option<f64>]) -> Self {
        Self(values.iter().map(|value| value.filter(|value| value.is_finite())).collect())
    }

    pub(crate) fn new(count: usize) -> Self {
        Self(vec![None; count])
    }

    /// Sets a value. A place that does not exist and a value that is not finite are left out.
    pub(crate) fn set(&mut self, at: Option<usize>, value: Option<f64>) {
        if let Some(cell) = at.and_then(|at| self.0.get_mut(at)) {
            *cell = value.filter(|value| value.is_finite());
        }
    }

    pub(crate) fn values(&self) -> &[Option<f64>] {
        &self.0
    }

    /// Returns the growth in a second from each known value to the next one. A counter that was reset has no growth.
    pub(crate) fn rates(&self, seconds: f64) -> Self {
        let mut rates = Self::new(self.0.len());
        let mut last: Option<(usize, f64)> = None;
        for (at, value) in self.0.iter().enumerate() {
            let Some(value) = *value else { continue };
            if let Some((from, before)) = last {
                let rate = (value - before) / (seconds * (at - from) as f64);
                rates.set(Some(at), Some(rate).filter(|rate| *rate >= 0.0));
            }
            last = Some((at, value));
        }
        rates
    }

    /// Returns the least and the greatest value; `None` without a value.
    pub(crate) fn bounds(&self) -> Option<(f64, f64)> {
        let known = || self.0.iter().flatten().copied();
        Some((known().reduce(f64::min)?, known().reduce(f64::max)?))
    }

    /// Draws a character for each value, from the least to the greatest one; a blank for an unknown value.
    pub(crate) fn line(&self) -> String {
        let Some((low, high)) = self.bounds() else { return String::new() };
        let cell = |value: &Option<f64>| {
            let Some(value) = value else { return ' ' };
            // The difference of two numbers may be too large for a number; halves are not.
            let share = (value / 2.0 - low / 2.0) / (high / 2.0 - low / 2.0);
            let at = if share.is_finite() { (share * 7.0).round() as usize } else { 0 };
            UP[at.min(UP.len() - 1)]
        };
        self.0.iter().map(cell).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_lows_highs_and_gaps() {
        let check = |values: &[Option<f64>], expected: &str| {
            assert_eq!(Cells(values.to_vec()).line(), expected);
        };
        check(&[Some(0.0), Some(3.5), None, Some(7.0)], "▁▅ █");
        check(&[Some(5.0), Some(5.0)], "▁▁");
        check(&[Some(f64::MIN), Some(f64::MAX)], "▁█");
        check(&[None, None], "");
        let mut cells = Cells::new(2);
        cells.set(Some(7), Some(1.0));
        cells.set(None, Some(1.0));
        cells.set(Some(0), Some(f64::NAN));
        assert_eq!(cells, Cells(vec![None, None]));
    }

    #[test]
    fn rates_are_growth_in_a_second() {
        let counter = Cells(vec![Some(0.0), Some(4.0), None, Some(12.0), Some(1.0)]);
        assert_eq!(counter.rates(2.0).0, [None, Some(2.0), None, Some(2.0), None]);
    }
}

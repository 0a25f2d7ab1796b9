//! The error bound of a prediction: nine true values in ten lie within it.
//!
//! The bound uses conformal prediction (Vovk et al., 2005): of the last 19 absolute residuals of
//! the predictions, the 18th smallest bounds the next with probability 18/20, whatever their
//! distribution, as long as the next is like them. The values of a machine are not always like
//! those before, so the target share moves after every hit and miss (adaptive conformal inference,
//! Gibbs and Candès, 2021): over time, one prediction in ten misses even if the values drift.
//!
//! A residual belongs to one horizon, the time between two polls. A prediction for another horizon
//! gets the bound of the mean horizon, times a power of the ratio of the two horizons. The spread
//! of the series over time decides the power: in two steps, independent values move as far as in
//! one step (power 0), a walk moves √2 times as far (½), a line twice as far (1). Beyond the next
//! poll the power is rounded up. Before it, the power is rounded down and applies to the last value
//! alone: the error of a method that moves is mostly noise, and noise is present at once. So the
//! bound errs to the wide side.

use super::window::DIFFERENCES;

/// The share of true values within the bound.
pub const COVERAGE: f64 = 0.9;

/// The number of stored residuals. 0.9 × (19 + 1) is a whole number, and 19 residuals follow a new
/// phase in twenty samples.
const RESIDUALS: usize = 19;

/// The fewest residuals for a bound. Fewer residuals say nothing about one case in ten.
const FEWEST: usize = 9;

/// The step of the target share after a miss.
const PACE: f32 = 0.03;

/// The range of the target share of misses.
const MISSES: (f32, f32) = (0.005, 0.4);

/// The multiple of the largest residual that is the bound if the target share asks for more than
/// that residual.
const BEYOND: f32 = 1.5;

/// The share that the running means of the horizon and of the spread keep at every sample.
const KEEP: f32 = 0.9;

/// A bound from recent residuals.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// In the unit of the value, rounded up to the next `f32`; a residual too large for `f32` is
    /// infinite.
    residuals: [f32; RESIDUALS],
    next: u8,
    len: u8,
    /// The rank of `quantile` among the residuals; 0 if it is not one of them.
    rank: u8,
    /// The current target share of misses.
    misses: f32,
    /// The bound for the mean horizon.
    quantile: f32,
    /// The mean horizon in nanoseconds.
    horizon: f32,
    /// The mean ratio of the movement in two steps to the movement in one.
    spread: f32,
}

impl Bound {
    pub(crate) fn new() -> Self {
        Self {
            residuals: [0.0; RESIDUALS],
            next: 0,
            len: 0,
            rank: 0,
            misses: (1.0 - COVERAGE) as f32,
            quantile: f32::INFINITY,
            horizon: 0.0,
            spread: 1.0,
        }
    }

    /// Returns the bound of a prediction `horizon` nanoseconds after the last sample, by a method
    /// that `moves` or by the last value; infinite while too few residuals are known.
    #[inline]
    pub(crate) fn at(&self, horizon: f64, moves: bool) -> f64 {
        let quantile = f64::from(self.quantile);
        let ratio = horizon / f64::from(self.horizon);
        // Residuals of zero give a bound of zero at any horizon; an infinite bound stays infinite.
        if quantile == 0.0 || !quantile.is_finite() || !ratio.is_finite() {
            return quantile;
        }
        match (ratio < 1.0, moves) {
            (true, true) => quantile,
            (shorter, _) => quantile * power(ratio, self.quarters(shorter)),
        }
    }

    /// Returns the share of a change until the next poll by which the bound is wider between polls:
    /// 1 for independent values, 0 for a line. Half way to the next poll, the prediction lies half
    /// way between the last value and the value that the residuals are about.
    #[inline]
    pub(crate) fn to_come(&self) -> f64 {
        1.0 - f64::from(self.quarters(true)) / 4.0
    }

    /// Records that a prediction with this `bound` missed by `residual` after `horizon`
    /// nanoseconds.
    pub(crate) fn observe(&mut self, residual: f64, bound: f64, horizon: f64) {
        if bound.is_finite() {
            let missed = if residual > bound { 1.0 } else { 0.0 };
            let aim = (1.0 - COVERAGE) as f32;
            self.misses = (self.misses + PACE * (aim - missed)).clamp(MISSES.0, MISSES.1);
        }
        let known = if self.len == 0 { 0.0 } else { KEEP };
        self.horizon = known * self.horizon + (1.0 - known) * horizon as f32;
        let (came, full) = (up(residual), usize::from(self.len) == RESIDUALS);
        let went = std::mem::replace(&mut self.residuals[usize::from(self.next)], came);
        self.next = (self.next + 1) % RESIDUALS as u8;
        self.len = (self.len + 1).min(RESIDUALS as u8);
        let rank = self.wanted_rank();
        // If the new and the removed residual lie on the same side of the quantile, the quantile
        // stays: four times in five there is nothing to search.
        let same_side = (came < self.quantile && went < self.quantile)
            || (came > self.quantile && went > self.quantile);
        if !(full && same_side && rank == self.rank && rank > 0) {
            (self.quantile, self.rank) = self.search(rank);
        }
    }

    /// Records the movement in a window of differences, in any unit.
    #[inline]
    pub(crate) fn observe_spread(&mut self, u: &[f32; DIFFERENCES]) {
        let one = u.iter().map(|d| d.abs()).sum::<f32>() / DIFFERENCES as f32;
        let two = u.windows(2).map(|pair| (pair[0] + pair[1]).abs()).sum::<f32>()
            / (DIFFERENCES - 1) as f32;
        if one > 0.0 {
            self.spread = KEEP * self.spread + (1.0 - KEEP) * (two / one);
        }
    }

    /// Returns the rank of the residual that is the bound; 0 if the largest is too small.
    fn wanted_rank(&self) -> u8 {
        let rank = ((1.0 - self.misses) * f32::from(self.len + 1)).ceil() as u8;
        if rank > self.len { 0 } else { rank.max(1) }
    }

    /// Returns the residual of this rank, and the rank.
    fn search(&self, rank: u8) -> (f32, u8) {
        let len = usize::from(self.len);
        if len < FEWEST {
            return (f32::INFINITY, 0);
        }
        let mut sorted = self.residuals;
        let sorted = &mut sorted[..len];
        match usize::from(rank).checked_sub(1) {
            None => (BEYOND * sorted.iter().copied().fold(0.0, f32::max), 0),
            Some(index) => (*sorted.select_nth_unstable_by(index, f32::total_cmp).1, rank),
        }
    }

    /// Returns the power of the ratio of horizons in quarters, between 0 and 4.
    #[inline]
    fn quarters(&self, down: bool) -> u32 {
        /// 2^¼, 2^½, 2^¾ and 2: the ratio of the movement in two steps to one step for each power.
        const SPREADS: [f32; 4] = [1.189_207, std::f32::consts::SQRT_2, 1.681_793, 1.98];
        let reached = SPREADS.iter().filter(|spread| self.spread >= **spread).count() as u32;
        if down { reached } else { (reached + 1).min(4) }
    }
}

/// Returns a number to the power of `quarters` / 4, by roots, which every processor has.
#[inline]
fn power(x: f64, quarters: u32) -> f64 {
    match quarters {
        0 => 1.0,
        1 => x.sqrt().sqrt(),
        2 => x.sqrt(),
        3 => x.sqrt() * x.sqrt().sqrt(),
        _ => x,
    }
}

/// Returns the next `f32` that is not smaller.
fn up(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) < x { near.next_up() } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skopos_model::SplitMix64;

    /// Returns the share of residuals within the bound; `draw` gives a residual from its index.
    fn coverage(mut draw: impl FnMut(usize) -> f64) -> f64 {
        let (mut bound, mut hits, mut known) = (Bound::new(), 0, 0);
        for i in 0..20_000 {
            let residual = draw(i);
            if bound.at(1e9, false).is_finite() {
                known += 1;
                hits += u32::from(residual <= bound.at(1e9, false));
            }
            bound.observe(residual, bound.at(1e9, false), 1e9);
        }
        f64::from(hits) / f64::from(known)
    }

    #[test]
    fn nine_residuals_in_ten_stay_within_the_bound_of_any_distribution_and_drift() {
        let mut random = SplitMix64::new(3);
        let check = |coverage: f64| assert!((0.89..0.915).contains(&coverage), "{coverage}");
        check(coverage(|_| random.normal().abs()));
        check(coverage(|_| 1.0 / (random.unit() + 1e-6)));
        check(coverage(|i| random.unit() * (1.0 + (i % 1000) as f64)));
        check(coverage(|i| random.unit() * if i / 500 % 2 == 0 { 1.0 } else { 100.0 }));
    }

    #[test]
    fn too_few_residuals_give_an_infinite_bound_and_zero_residuals_a_bound_of_zero() {
        let mut bound = Bound::new();
        for _ in 0..FEWEST - 1 {
            bound.observe(1.0, 1.0, 1e9);
            assert_eq!(bound.at(1e9, false), f64::INFINITY);
        }
        bound.observe(1.0, 1.0, 1e9);
        assert_eq!(bound.at(1e9, false), 1.0);
        (0..RESIDUALS).for_each(|_| bound.observe(0.0, 1.0, 1e9));
        assert_eq!(bound.at(1e18, false), 0.0);
    }

    #[test]
    fn a_bound_grows_with_time_as_the_series_does() {
        for (differences, half, four) in [
            // Independent values, a walk and a line: the bound half a step away and four steps
            // away.
            ([1.0, -1.0, 1.0, -1.0], 1.0, 2f64.sqrt()),
            ([1.0, 1.0, -1.0, 1.0], 1.0, 2f64.sqrt()),
            ([1.0, 1.0, 1.0, 1.0], 0.5, 4.0),
        ] {
            let mut bound = Bound::new();
            for _ in 0..200 {
                bound.observe(1.0, 1.0, 1e9);
                bound.observe_spread(&differences);
            }
            assert!(
                (bound.at(0.5e9, false) - half).abs() < 1e-3,
                "{differences:?} {}",
                bound.at(0.5e9, false)
            );
            assert_eq!(bound.at(0.5e9, true), 1.0);
            assert!(
                (bound.at(4e9, false) - four).abs() < 1e-3,
                "{differences:?} {}",
                bound.at(4e9, false)
            );
        }
    }
}

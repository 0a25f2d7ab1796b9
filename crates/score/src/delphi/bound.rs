//! How far off a prediction may be, nine times in ten.
//!
//! Conformal prediction (Vovk et al., 2005): of the last 19 absolute residuals of what was said,
//! the 18th smallest bounds the next with probability 18/20, whatever their distribution, as long
//! as the next is like them. Values of a machine are not always like the ones before, so the share
//! that is aimed at is moved after every hit and miss (adaptive conformal inference, Gibbs and
//! Candès, 2021): over time the misses are one in ten even if the values drift.
//!
//! A residual is of one horizon, the time between two polls. A prediction for another one gets the
//! bound of the mean horizon times a power of their ratio. How a series spreads with time tells
//! which: two steps away, independent values are as far as one step away (power 0), a walk √2 times
//! as far (½), a line twice (1). Beyond the next poll the power is rounded up. Before it, it is
//! rounded down, and used for the last value alone: what a method that moves is off by is mostly
//! noise, and noise is there at once. So the bound errs to the wide side.

use super::window::DIFFERENCES;

/// The share of true values within the bound.
pub const COVERAGE: f64 = 0.9;

/// Residuals that are kept. 0.9 of 19 + 1 is a whole number, and 19 follow a new phase in twenty
/// samples.
const RESIDUALS: usize = 19;

/// Fewer residuals say nothing about one case in ten: until then there is no bound.
const FEWEST: usize = 9;

/// How far the share that is aimed at moves after a miss.
const PACE: f32 = 0.03;

/// The share of misses that is aimed at stays within these.
const MISSES: (f32, f32) = (0.005, 0.4);

/// When the share asks for more than the largest residual that was seen, this many times it.
const BEYOND: f32 = 1.5;

/// What the mean of horizons, and of the spread, keeps with every sample.
const KEEP: f32 = 0.9;

/// A bound from recent residuals.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    /// In the value's unit, rounded up to the next `f32`; one too large for it is infinite.
    residuals: [f32; RESIDUALS],
    next: u8,
    len: u8,
    /// Which residual `quantile` is, by size; 0 while it is none of them.
    rank: u8,
    /// The share of misses that is aimed at now.
    misses: f32,
    /// The bound for the mean horizon.
    quantile: f32,
    /// The mean horizon in nanoseconds.
    horizon: f32,
    /// How many times as far two steps away is as one.
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

    /// The bound of a prediction so many nanoseconds after the last sample, by a method that `moves`
    /// or by the last value; infinite while too few residuals are known.
    pub(crate) fn at(&self, horizon: f64, moves: bool) -> f64 {
        let quantile = f64::from(self.quantile);
        let ratio = horizon / f64::from(self.horizon);
        // No residual makes no bound at any horizon; an infinite one stays infinite.
        if quantile == 0.0 || !quantile.is_finite() || !ratio.is_finite() {
            return quantile;
        }
        match (ratio < 1.0, moves) {
            (true, true) => quantile,
            (shorter, _) => quantile * power(ratio, self.quarters(shorter)),
        }
    }

    /// By how much of a change that is still to come the bound is wider between polls: all of it for
    /// values that are independent of each other, nothing for a line. Half way to the next poll, what
    /// is said lies half way between the last value and the one that the residuals are about.
    pub(crate) fn to_come(&self) -> f64 {
        1.0 - f64::from(self.quarters(true)) / 4.0
    }

    /// What was said, with the bound `said`, was off by `residual` after `horizon` nanoseconds.
    pub(crate) fn observe(&mut self, residual: f64, said: f64, horizon: f64) {
        if said.is_finite() {
            let missed = if residual > said { 1.0 } else { 0.0 };
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
        // Where one came and one went on the same side of the quantile, it is still the quantile:
        // four times in five there is nothing to search.
        let same_side = (came < self.quantile && went < self.quantile)
            || (came > self.quantile && went > self.quantile);
        if !(full && same_side && rank == self.rank && rank > 0) {
            (self.quantile, self.rank) = self.search(rank);
        }
    }

    /// The differences of a window, in any unit.
    pub(crate) fn observe_spread(&mut self, u: &[f32; DIFFERENCES]) {
        let one = u.iter().map(|d| d.abs()).sum::<f32>() / DIFFERENCES as f32;
        let two = u.windows(2).map(|pair| (pair[0] + pair[1]).abs()).sum::<f32>()
            / (DIFFERENCES - 1) as f32;
        if one > 0.0 {
            self.spread = KEEP * self.spread + (1.0 - KEEP) * (two / one);
        }
    }

    /// Which residual, by size, is the bound; 0 if the largest is too small.
    fn wanted_rank(&self) -> u8 {
        let rank = ((1.0 - self.misses) * f32::from(self.len + 1)).ceil() as u8;
        if rank > self.len { 0 } else { rank.max(1) }
    }

    /// The residual of this rank, and the rank.
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

    /// The power of the horizon's ratio in quarters, between 0 and 4.
    fn quarters(&self, down: bool) -> u32 {
        /// 2^¼, 2^½, 2^¾ and 2: what a power of so many quarters spreads to in two steps.
        const SPREADS: [f32; 4] = [1.189_207, std::f32::consts::SQRT_2, 1.681_793, 1.98];
        let reached = SPREADS.iter().filter(|spread| self.spread >= **spread).count() as u32;
        if down { reached } else { (reached + 1).min(4) }
    }
}

/// A number to the power of so many quarters, by roots, which every processor has.
fn power(x: f64, quarters: u32) -> f64 {
    match quarters {
        0 => 1.0,
        1 => x.sqrt().sqrt(),
        2 => x.sqrt(),
        3 => x.sqrt() * x.sqrt().sqrt(),
        _ => x,
    }
}

/// The next `f32` that is not smaller.
fn up(x: f64) -> f32 {
    let near = x as f32;
    if f64::from(near) < x { near.next_up() } else { near }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skopos_model::SplitMix64;

    /// The share of residuals, drawn by `draw` from their index, that stayed within the bound.
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
    fn nine_in_ten_whatever_the_distribution_and_also_while_it_drifts() {
        let mut random = SplitMix64::new(3);
        let check = |coverage: f64| assert!((0.89..0.915).contains(&coverage), "{coverage}");
        check(coverage(|_| random.normal().abs()));
        check(coverage(|_| 1.0 / (random.unit() + 1e-6)));
        check(coverage(|i| random.unit() * (1.0 + (i % 1000) as f64)));
        check(coverage(|i| random.unit() * if i / 500 % 2 == 0 { 1.0 } else { 100.0 }));
    }

    #[test]
    fn too_few_residuals_are_no_bound_and_no_residual_is_none() {
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
            // Independent values, a walk, a line: half a step away, and four.
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

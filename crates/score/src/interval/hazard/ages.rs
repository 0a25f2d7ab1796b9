//! The learned distribution of the time between two changes, and the current position in it.
//!
//! Time is counted in ticks. The *age* is the number of ticks since the metric last changed. Each
//! age has a *hazard*, the probability that the next tick brings a change: the number of changes at
//! that age, divided by the number of times that the metric reached it. A poll only shows whether
//! the metric changed since the poll before, not when and not how many times. So the age itself is
//! a probability distribution, which every poll sharpens, and a change is credited to the ages at
//! which it may have happened, each with its probability: the forward pass of a hidden semi-Markov
//! model, and one step of online expectation maximisation on it.

/// The number of distinct ages; beyond them, every tick has the same hazard. Two minutes at a tick
/// a second; with three times as many, the tables would no longer fit the L1 cache together.
pub(super) const AGES: usize = 128;
const OLDEST: usize = AGES - 1;

/// The assumed hazard at an age without experience is this, divided by the age: a metric that was
/// quiet for long will be quiet for as long again. So the polls of a metric that no longer changes
/// come further and further apart.
const GUESS_HAZARD: f32 = 1.0;

/// The weight of the assumption, in visits, at ages older than any change: that a metric was once
/// quiet for so long does not mean that it always will be.
const GUESS_WEIGHT: f32 = 1.0;

/// The weight of the assumption at ages at which changes come. It is small, so that experience
/// prevails.
const GUESS_WEIGHT_KNOWN: f32 = 0.15;
const GUESS_HAZARD_KNOWN: f32 = 0.2;

/// The number of visits after which half of the assumption is dropped.
const DROP_VISITS: f32 = 2.0;

/// The ages at which changes come end at this multiple of the spread beyond the mean.
const KNOWN_SPREADS: f32 = 3.0;

/// The least hazard. No age is ever quite safe: the doubt about the time of the last change grows
/// from poll to poll until the policy polls.
const HAZARD_LEAST: f32 = 3e-5;

/// The greatest hazard. No change is ever quite certain.
const HAZARD_MOST: f32 = 0.999;

/// The most that an age borrows from its neighbours, in visits: enough to smooth a rough estimate
/// from little experience.
const BORROWED: f32 = 8.0;

/// The divisor of the doubt about the mean time between changes, per change. Without that doubt, a
/// metric that changed twice after five seconds would be taken for a clock.
const SPREAD_CHANGES: f32 = 3.0;

/// The factor on all experience after a change: the memory reaches back a hundred changes.
const MEMORY: f32 = 0.99;

/// The least weight of a change that was almost certain, so that the experience of a rhythm is
/// refreshed.
const LEAST_INFORMATION: f32 = 0.4;

#[derive(Clone, Debug)]
pub(super) struct Ages {
    /// The probability of each age.
    belief: [f32; AGES],
    /// The ticks spent at each age, and the number of them that ended with a change; both fade.
    at_risk: [f32; AGES],
    changes: [f32; AGES],
    /// The probability at each age that the next tick brings a change.
    hazard: [f32; AGES],
    /// Ticks since the last poll that found a change.
    quiet: f32,
}

/// The possible courses of the wait between two polls, before the result of the poll is known.
struct Wait {
    /// The probability of each age without a change.
    same: [f32; AGES],
    /// The probability of each age with at least one change.
    moved: [f32; AGES],
    /// First changes by the age at which they came.
    first: [f32; AGES],
    /// Ticks at each age before the first change.
    at_risk: [f32; AGES],
    /// The expected number of ticks from the first change to the end.
    stale: f32,
}

/// A change that a poll found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    /// The probability of a change before the poll.
    pub(super) likelihood: f32,
    /// The expected number of ticks from the first change to the poll.
    pub(super) stale: f32,
}

impl Ages {
    pub(super) fn new() -> Self {
        let mut belief = [0.0; AGES];
        belief[0] = 1.0;
        let mut ages = Self {
            belief,
            at_risk: [0.0; AGES],
            changes: [0.0; AGES],
            hazard: [0.0; AGES],
            quiet: 0.0,
        };
        ages.weigh();
        ages
    }

    /// Computes the hazards from the experience at the age itself, from its neighbours within the
    /// spread of the times between changes, and from the assumption for ages without either.
    fn weigh(&mut self) {
        let (mean, spread) = self.gaps();
        let (reach, oldest_known) = (spread.round() as usize, mean + KNOWN_SPREADS * spread);
        for age in 0..AGES {
            // Beyond the last age, the hazard still falls with the quiet time.
            let old = if age == OLDEST { self.quiet.max(AGES as f32) } else { age as f32 };
            let (guess, known) = if old < oldest_known {
                // The assumption is dropped once there is experience, and not only diluted: ten
                // visits without a change make the next change less likely than one in ten.
                let drop = 1.0 + (self.at_risk[age] / DROP_VISITS).powi(2);
                let guess = GUESS_WEIGHT_KNOWN * GUESS_HAZARD_KNOWN / ((old + 1.0) * drop);
                (guess, self.at_risk[age] + GUESS_WEIGHT_KNOWN)
            } else {
                (GUESS_WEIGHT * GUESS_HAZARD / (old + 1.0), self.at_risk[age] + GUESS_WEIGHT)
            };
            let (mut changes, mut at_risk) = (self.changes[age] + guess, known);
            if reach > 0 {
                let near = age.saturating_sub(reach)..(age + reach + 1).min(AGES);
                let visits: f32 = self.at_risk[near.clone()].iter().sum();
                if visits > 0.0 {
                    let weight = BORROWED.min(visits);
                    changes += weight * self.changes[near].iter().sum::<f32>() / visits;
                    at_risk += weight;
                }
            }
            self.hazard[age] = (changes / at_risk).clamp(HAZARD_LEAST, HAZARD_MOST);
        }
    }

    /// Returns the mean time between changes and its spread: the standard deviation, and with few
    /// changes the doubt about the mean. In ticks; 0 before the first change.
    fn gaps(&self) -> (f32, f32) {
        let (mut count, mut sum, mut squares) = (0.0, 0.0, 0.0);
        for (age, changes) in self.changes.iter().enumerate() {
            let gap = (age + 1) as f32;
            count += changes;
            sum += gap * changes;
            squares += gap * gap * changes;
        }
        if count <= f32::MIN_POSITIVE {
            return (0.0, 0.0);
        }
        let mean = sum / count;
        let doubt = mean / (2.0 + SPREAD_CHANGES * count);
        (mean, ((squares / count - mean * mean).max(0.0) + doubt * doubt).sqrt())
    }

    /// Records a poll `ticks` later that found no change. Returns the probability of that result.
    pub(super) fn same(&mut self, ticks: usize) -> f32 {
        let wait = self.wait(ticks);
        let likelihood: f32 = wait.same.iter().sum();
        self.quiet += ticks as f32;
        if likelihood > f32::MIN_POSITIVE {
            let spent = survived(&wait.same, ticks);
            for (at_risk, spent) in self.at_risk.iter_mut().zip(spent) {
                *at_risk += spent / likelihood;
            }
            self.belief = wait.same.map(|p| p / likelihood);
        }
        self.weigh();
        likelihood
    }

    /// Records a poll `ticks` later that found a change.
    pub(super) fn moved(&mut self, ticks: usize) -> Located {
        let wait = self.wait(ticks);
        let likelihood: f32 = wait.moved.iter().sum();
        self.quiet = 0.0;
        if likelihood <= f32::MIN_POSITIVE {
            return Located { likelihood: 0.0, stale: ticks as f32 / 2.0 };
        }
        // A change that was certain reveals no more about its age than the belief before. If it
        // counted in full, the belief would become experience.
        let information = (1.0 - likelihood).max(LEAST_INFORMATION);
        self.fade(1.0 - (1.0 - MEMORY) * information);
        let never = survived(&wait.same, ticks);
        for (age, never) in never.into_iter().enumerate() {
            let came = wait.first[age] / likelihood;
            let spent = (wait.at_risk[age] - never).max(0.0) / likelihood;
            // The expected part adds weight without moving the estimate; the rest moves it. The
            // assumption is not part of the experience.
            let (seen, visits) = (self.changes[age], self.at_risk[age]);
            let seen_ratio = if visits > 0.0 { seen / visits } else { self.hazard[age] };
            let weight = information * spent;
            let changes = seen + seen_ratio * weight + (came - self.hazard[age] * spent);
            self.at_risk[age] += weight;
            self.changes[age] = changes.clamp(0.0, self.at_risk[age]);
        }
        self.belief = wait.moved.map(|p| p / likelihood);
        self.weigh();
        Located { likelihood, stale: wait.stale / likelihood }
    }

    /// Records a poll `ticks` later that found no value.
    pub(super) fn unknown(&mut self, ticks: usize) {
        let wait = self.wait(ticks);
        for (belief, (same, moved)) in self.belief.iter_mut().zip(wait.same.iter().zip(wait.moved))
        {
            *belief = same + moved;
        }
    }

    /// Starts the time to the next change anew.
    pub(super) fn start_again(&mut self) {
        self.belief = [0.0; AGES];
        self.belief[0] = 1.0;
        self.quiet = 0.0;
    }

    /// Multiplies the weight of all experience by `ratio`.
    pub(super) fn fade(&mut self, ratio: f32) {
        for weight in self.at_risk.iter_mut().chain(&mut self.changes) {
            *weight *= ratio;
        }
    }

    /// Computes both branches tick by tick.
    fn wait(&self, ticks: usize) -> Wait {
        let mut wait = Wait {
            same: self.belief,
            moved: [0.0; AGES],
            first: [0.0; AGES],
            at_risk: [0.0; AGES],
            stale: 0.0,
        };
        for tick in 1..=ticks {
            let (mut first, mut again) = (0.0, 0.0);
            for age in 0..AGES {
                let hazard = self.hazard[age];
                let (now, later) = (wait.same[age] * hazard, wait.moved[age] * hazard);
                wait.at_risk[age] += wait.same[age];
                wait.first[age] += now;
                wait.same[age] -= now;
                wait.moved[age] -= later;
                first += now;
                again += later;
            }
            grow_older(&mut wait.same);
            grow_older(&mut wait.moved);
            wait.moved[0] = first + again;
            wait.stale += first * (ticks - tick) as f32;
        }
        wait
    }

    /// Returns the first number of ticks, at most `most`, after which the probability of a change
    /// is at least `chance`, and that probability. `fresh` assumes that the metric has changed just
    /// now.
    pub(super) fn until(&self, chance: f32, most: usize, fresh: bool) -> (usize, f32) {
        let mut same = self.belief;
        if fresh {
            same = [0.0; AGES];
            same[0] = 1.0;
        }
        let mut moved = 0.0;
        for tick in 1..=most {
            for (same, hazard) in same.iter_mut().zip(&self.hazard) {
                *same -= *same * hazard;
            }
            moved = 1.0 - same.iter().sum::<f32>();
            if moved >= chance {
                return (tick, moved);
            }
            grow_older(&mut same);
        }
        (most, moved)
    }
}

/// Makes every weight one tick older; the oldest age keeps its weight.
fn grow_older(weights: &mut [f32; AGES]) {
    let oldest = weights[OLDEST] + weights[OLDEST - 1];
    weights.copy_within(..OLDEST, 1);
    weights[0] = 0.0;
    weights[OLDEST] = oldest;
}

/// Returns the ticks spent at each age by the weights that have age `same` after `ticks` without a
/// change.
fn survived(same: &[f32; AGES], ticks: usize) -> [f32; AGES] {
    let mut spent = [0.0; AGES];
    for (age, weight) in same.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        let from = age.saturating_sub(ticks);
        for spent in &mut spent[from..age] {
            *spent += weight;
        }
        if age == OLDEST {
            // The time of the last change is no longer known: the remaining ticks were spent here.
            spent[OLDEST] += weight * ticks.saturating_sub(age - from) as f32;
        }
    }
    spent
}

//! What was learned of the time between two changes, and where in it the metric is now.
//!
//! Time goes in ticks. The *age* is how many ticks ago the metric last changed. For each age there
//! is the chance that the next tick brings a change, its *hazard*: how often a change came at that
//! age, divided by how often the metric got that old. A poll sees only whether there was a change
//! since the poll before, not when, and not how many. So the age itself is known as a distribution,
//! which every poll sharpens, and a change is credited to the ages at which it may have happened,
//! each with its probability: the forward pass of a hidden semi-Markov model, and one step of
//! online expectation maximisation on it.

/// Ages that are told apart; what is older is as likely to change at one tick as at another. Two
/// minutes at a tick a second; with three times this the tables would no longer fit the nearest
/// cache together.
pub(super) const AGES: usize = 128;
const OLDEST: usize = AGES - 1;

/// Before there is experience of an age, the chance of a change at the next tick is one in this age:
/// what was quiet for long will be for as long again. So polls of a metric that no longer changes
/// come further and further apart.
const GUESS_HAZARD: f32 = 1.0;

/// What the guess is worth at ages older than any at which a change ever came, in visits: that it
/// was quiet once for so long does not say that it always will be.
const GUESS_WEIGHT: f32 = 1.0;

/// What it is worth at the ages at which changes come. Little: where there is experience it should
/// not be drowned.
const GUESS_WEIGHT_KNOWN: f32 = 0.15;
const GUESS_HAZARD_KNOWN: f32 = 0.2;

/// After so many visits half of it is dropped.
const DROP_VISITS: f32 = 2.0;

/// How many times the spread beyond the mean the ages end at which changes come.
const KNOWN_SPREADS: f32 = 3.0;

/// No age is ever quite safe: doubt about when the metric changed grows from poll to poll, and once
/// it matters the policy looks.
const HAZARD_LEAST: f32 = 3e-5;

/// Nor is any change ever quite certain.
const HAZARD_MOST: f32 = 0.999;

/// What an age borrows from its neighbours, in visits: enough to smooth what is rough for want of
/// experience.
const BORROWED: f32 = 8.0;

/// The mean time between changes is known to one part in this many changes, at first. Until then a
/// metric that changed twice after five seconds is not taken for a clock.
const SPREAD_CHANGES: f32 = 3.0;

/// After a change experience counts for this much of what it did: it is that of the last hundred.
const MEMORY: f32 = 0.99;

/// What a change tells that was as good as certain: a little, so that what is learned of a rhythm
/// is refreshed by it.
const TOLD_LEAST: f32 = 0.4;

#[derive(Clone, Debug)]
pub(super) struct Ages {
    /// The probability of each age.
    belief: [f32; AGES],
    /// Ticks spent at each age, and how many of them ended with a change; both fade.
    at_risk: [f32; AGES],
    changes: [f32; AGES],
    /// Of each age, the chance that the next tick brings a change.
    hazard: [f32; AGES],
    /// Ticks since the last poll that found a change.
    quiet: f32,
}

/// What the wait between two polls may have been, before it is told which of the two it was.
struct Wait {
    /// Probability of each age without a change.
    same: [f32; AGES],
    /// Probability of each age with one or more.
    moved: [f32; AGES],
    /// First changes by the age at which they came.
    first: [f32; AGES],
    /// Ticks at each age before the first change.
    at_risk: [f32; AGES],
    /// Ticks from the first change to the end, expected.
    stale: f32,
}

/// A change that a poll found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Located {
    /// How likely a change had been.
    pub(super) likelihood: f32,
    /// Ticks from the first change to the poll, expected.
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

    /// The chances from the experience: what is known of the age itself, of its neighbours as far
    /// as the times between changes are spread, and a guess for where there is neither.
    fn weigh(&mut self) {
        let (mean, spread) = self.gaps();
        let (reach, oldest_known) = (spread.round() as usize, mean + KNOWN_SPREADS * spread);
        for age in 0..AGES {
            // What is older than any age here is still the less likely to change the older it is.
            let old = if age == OLDEST { self.quiet.max(AGES as f32) } else { age as f32 };
            let (guess, known) = if old < oldest_known {
                // Dropped once there is experience, not only diluted by it: ten visits without a
                // change make the next change less likely than one in ten.
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

    /// The mean time between changes, and how far they lie from it: their standard deviation, and
    /// for as long as there are few of them the doubt about the mean. In ticks; 0 before the first.
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

    /// Nothing had changed `ticks` later. Gives how likely that had been.
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

    /// Something had changed `ticks` later.
    pub(super) fn moved(&mut self, ticks: usize) -> Located {
        let wait = self.wait(ticks);
        let likelihood: f32 = wait.moved.iter().sum();
        self.quiet = 0.0;
        if likelihood <= f32::MIN_POSITIVE {
            return Located { likelihood: 0.0, stale: ticks as f32 / 2.0 };
        }
        // A change that was certain says nothing about the ages that it may have come at but what
        // was believed before. Were it counted in full, belief would become experience.
        let told = (1.0 - likelihood).max(TOLD_LEAST);
        self.fade(1.0 - (1.0 - MEMORY) * told);
        let never = survived(&wait.same, ticks);
        for (age, never) in never.into_iter().enumerate() {
            let came = wait.first[age] / likelihood;
            let spent = (wait.at_risk[age] - never).max(0.0) / likelihood;
            // What was expected adds weight and moves nothing; the rest moves. The guess is not
            // part of the experience.
            let (seen, visits) = (self.changes[age], self.at_risk[age]);
            let seen_ratio = if visits > 0.0 { seen / visits } else { self.hazard[age] };
            let weight = told * spent;
            let changes = seen + seen_ratio * weight + (came - self.hazard[age] * spent);
            self.at_risk[age] += weight;
            self.changes[age] = changes.clamp(0.0, self.at_risk[age]);
        }
        self.belief = wait.moved.map(|p| p / likelihood);
        self.weigh();
        Located { likelihood, stale: wait.stale / likelihood }
    }

    /// `ticks` later it was looked in vain.
    pub(super) fn unknown(&mut self, ticks: usize) {
        let wait = self.wait(ticks);
        for (belief, (same, moved)) in self.belief.iter_mut().zip(wait.same.iter().zip(wait.moved))
        {
            *belief = same + moved;
        }
    }

    /// The time to the next change counts from now.
    pub(super) fn start_again(&mut self) {
        self.belief = [0.0; AGES];
        self.belief[0] = 1.0;
        self.quiet = 0.0;
    }

    /// Experience counts for this much of what it did.
    pub(super) fn fade(&mut self, ratio: f32) {
        for weight in self.at_risk.iter_mut().chain(&mut self.changes) {
            *weight *= ratio;
        }
    }

    /// Both branches, tick by tick.
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

    /// The first number of ticks, at most `most`, within which a change is as likely as `chance`;
    /// and how likely it is by then. `fresh` asks as if the metric had changed just now.
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

/// Everything is one tick older; what was the oldest stays it.
fn grow_older(weights: &mut [f32; AGES]) {
    let oldest = weights[OLDEST] + weights[OLDEST - 1];
    weights.copy_within(..OLDEST, 1);
    weights[0] = 0.0;
    weights[OLDEST] = oldest;
}

/// Ticks that were spent at each age by what is of age `same` after `ticks` without a change.
fn survived(same: &[f32; AGES], ticks: usize) -> [f32; AGES] {
    let mut spent = [0.0; AGES];
    for (age, weight) in same.iter().enumerate().filter(|(_, weight)| **weight > 0.0) {
        let from = age.saturating_sub(ticks);
        for spent in &mut spent[from..age] {
            *spent += weight;
        }
        if age == OLDEST {
            // Where it began is not known any more: the rest was spent here.
            spent[OLDEST] += weight * ticks.saturating_sub(age - from) as f32;
        }
    }
    spent
}

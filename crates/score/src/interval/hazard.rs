//! Polls when a change has become likely enough: a policy of our own.
//!
//! The policy learns the time from one change to the next, as the probability of a change at each
//! age of the value (`ages`). It polls as soon as the probability that readers see a wrong value
//! reaches a *threshold*. So it does not poll in a time in which the metric never changed, polls
//! often where changes are due, and polls ever less where the metric no longer changes. If the
//! metric has a rhythm, the policy polls at the beats.
//!
//! The user sets one parameter, the accuracy, and the policy turns it into the threshold: after
//! each change it lowers the threshold if readers saw a wrong value for longer than the accuracy
//! allows, and raises it otherwise. At a rhythm the threshold costs nothing, so the policy spends
//! the spare accuracy on skipping a beat now and then. `docs/internals/intervals.md` explains it with plots.
//!
//! # Invariants
//! - The policy takes two kilobytes, however long it runs. A poll costs some microseconds, more
//!   after a longer wait, and allocates nothing.
//! - The policy keeps testing its experience: it makes unneeded polls after one in a hundred
//!   changes, and it halves all experience after a finding that was nearly impossible.

mod ages;

use std::time::Duration;

use super::{Bounds, Finding, Policy};
use ages::{AGES, Ages};

/// The most ticks in the longest interval, so that a wait is computed in microseconds. If the
/// bounds are further apart, a tick is longer than the shortest interval.
const MOST_TICKS: f64 = 512.0;

/// After a longer wait, only its length matters and not its course.
const LONGEST_WAIT: usize = 4 * AGES;

/// The share of a significant change by which the last value may drift before the wait for the next
/// change starts again: a drifting value is polled when it has gone far enough.
const DRIFT: f64 = 0.25;

/// A finding less likely than this shows that the behaviour of the metric has changed.
const STRANGE: f32 = 0.03;
/// The factor by which such a finding reduces the experience.
const STRANGE_MEMORY: f32 = 0.5;

/// The first threshold, as a multiple of the share of time in which readers may see a wrong value.
/// With changes as irregular as the paper's, this threshold leads to that share.
const THRESHOLD_FIRST_RATIO: f32 = 4.0;
/// The least threshold; a lower one would poll at every tick for a gain that no reader notices.
const THRESHOLD_LEAST: f32 = 0.02;
/// The greatest threshold; a higher one would wait past the beats of a rhythm.
const THRESHOLD_MOST: f32 = BEAT;

/// The number of changes after which the threshold is trusted by half: the trust after `n` changes
/// is `n / (n + TRUST_CHANGES)`. Experience from few changes does not justify a long wait.
const TRUST_CHANGES: f32 = 8.0;
/// A quiet time longer than this multiple of the usual gap is unlike all learned gaps; the full
/// threshold applies.
const QUIET_RATIO: f32 = 3.0;

/// The step of the threshold after one change: this share of its logarithm per gap of wrong belief.
/// A smaller step follows too slowly, a greater one follows single gaps.
const GAIN: f32 = 0.2;

/// The share of the allowance at which the threshold aims, because the learned probabilities are
/// always a little wrong.
const MARGIN: f32 = 0.94;

/// A beat is a tick at which the probability of a change reaches this.
const BEAT: f32 = 0.9;

/// One beat of a rhythm in this number is also observed between the beats, to notice a change to
/// another rhythm that happens to share these beats.
const WATCH_EVERY: u32 = 100;
/// The golden ratio: the fractions of its multiples are distributed as evenly as possible between
/// the beats.
const GOLDEN: f64 = 0.618_034;

/// The number of ticks for which the policy polls at every tick to see the first change when it
/// comes, because all times are measured from it.
const FIRST_TICKS: f32 = 16.0;

/// The most gaps of accuracy that can be saved or owed, which also bounds the number of skipped
/// beats.
const SPARE_GAPS: f32 = 8.0;

/// The number of changes in the mean time between changes.
const GAP_CHANGES: u32 = 8;

/// Waits until a change is likely enough.
#[derive(Clone, Debug)]
pub struct Hazard {
    bounds: Bounds,
    /// In seconds.
    tick: f64,
    /// The longest wait, in ticks.
    most: usize,
    /// The share of time in which readers may see a wrong value.
    allowed: f32,
    ages: Ages,
    last: Option<Duration>,
    threshold: f32,
    /// The mean number of ticks between changes; 0 before the first.
    gap: f32,
    /// The expected number of ticks since the last change.
    since: f32,
    /// The number of ticks for which readers may still see a wrong value, given the past.
    spare: f32,
    changes: u32,
}

impl Hazard {
    /// Creates a policy under which readers see the true value for the share `accuracy` of the
    /// time.
    pub fn new(bounds: Bounds, accuracy: f64) -> Self {
        let allowed = (1.0 - accuracy) as f32;
        let max = bounds.max.as_secs_f64();
        let tick = bounds.min.as_secs_f64().max(max / MOST_TICKS);
        Self {
            bounds,
            tick,
            most: (max / tick).floor().max(1.0) as usize,
            allowed,
            ages: Ages::new(),
            last: None,
            threshold: (THRESHOLD_FIRST_RATIO * allowed).clamp(THRESHOLD_LEAST, THRESHOLD_MOST),
            gap: 0.0,
            since: 0.0,
            spare: 0.0,
            changes: 0,
        }
    }

    fn learn(&mut self, ticks: usize, change: f64) {
        self.since += ticks as f32;
        let likelihood = if change.is_nan() {
            self.ages.unknown(ticks);
            1.0
        } else if change < 1.0 {
            let likelihood = self.ages.same(ticks);
            if change >= DRIFT {
                self.ages.start_again();
            }
            likelihood
        } else {
            let found = self.ages.moved(ticks);
            self.changed(found.stale);
            found.likelihood
        };
        if likelihood < STRANGE {
            self.ages.fade(STRANGE_MEMORY);
        }
    }

    /// Records a change that happened `stale` ticks before the poll.
    fn changed(&mut self, stale: f32) {
        let gap = (self.since - stale).max(1.0);
        self.since = stale;
        self.changes = self.changes.saturating_add(1);
        self.gap += (gap - self.gap) / self.changes.min(GAP_CHANGES) as f32;
        let over = MARGIN * self.allowed * gap - stale;
        let step = GAIN * (over / self.gap).max(-1.0);
        self.threshold = (self.threshold * step.exp()).clamp(THRESHOLD_LEAST, THRESHOLD_MOST);
        // The bound keeps a quiet night from paying for a busy day.
        let spare = self.spare + self.allowed * gap - stale;
        self.spare = spare.clamp(-SPARE_GAPS * self.gap, SPARE_GAPS * self.gap);
    }

    /// Returns the number of ticks until the next poll.
    fn wait(&self) -> usize {
        if self.changes == 0 && self.since < FIRST_TICKS {
            return 1;
        }
        let trust = match self.changes {
            0 => 1.0,
            _ if self.since > QUIET_RATIO * self.gap => 1.0,
            seen => seen as f32 / (seen as f32 + TRUST_CHANGES),
        };
        let (beat, likelihood) = self.ages.until(trust * self.threshold, self.most, false);
        if likelihood < BEAT {
            return beat;
        }
        if beat > 2 && self.changes.is_multiple_of(WATCH_EVERY) && self.since < 1.0 {
            let part = (f64::from(self.changes / WATCH_EVERY) * GOLDEN).fract();
            return 1 + (part * (beat - 1) as f64) as usize;
        }
        let (period, _) = self.ages.until(BEAT, self.most, true);
        let left_out = (self.spare.max(0.0) / period as f32) as usize;
        let within_bounds = self.most.saturating_sub(beat) / period;
        beat + left_out.min(within_bounds) * period
    }
}

impl Policy for Hazard {
    fn name(&self) -> &'static str {
        "hazard"
    }

    fn next(&mut self, found: &Finding) -> Duration {
        if let Some(last) = self.last {
            let waited = found.at.saturating_sub(last).as_secs_f64() / self.tick;
            self.learn((waited.round() as usize).clamp(1, LONGEST_WAIT), found.change);
        }
        self.last = Some(found.at);
        self.bounds.clamp(self.wait() as f64 * self.tick)
    }
}

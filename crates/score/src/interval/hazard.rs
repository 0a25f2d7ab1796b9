//! Our own: poll when a change has become likely enough.
//!
//! The policy learns how long after a change the next one comes, as a chance for each age of the
//! value (`ages`). It polls as soon as the chance that readers believe something wrong reaches a
//! *threshold*: not at all in a time in which nothing ever changed, often where changes are due, and
//! less and less where nothing changes any more. With a rhythm it polls at the beats.
//!
//! The threshold is what a user's one parameter, the accuracy, turns into: after each change it is
//! lowered if readers were wrong for longer than that allows, and raised if not. What is to spare
//! with a rhythm, where no threshold costs anything, is spent on leaving out a beat now and then.
//! `docs/internals/intervals.md` explains it with plots.
//!
//! # Invariants
//! - Two kilobytes, however long it runs; a poll costs some microseconds, more the longer it
//!   waited, and nothing is allocated.
//! - What was learned is doubted: by polls that were not needed, one in a hundred changes, and by
//!   halving all experience when something comes that was next to impossible.

mod ages;

use std::time::Duration;

use super::{Bounds, Finding, Policy};
use ages::{AGES, Ages};

/// Ticks in the longest interval at most, so that a wait is reckoned in microseconds. With bounds
/// further apart a tick is longer than the shortest interval.
const MOST_TICKS: f64 = 512.0;

/// After longer than this nothing is known of the time in between but that it was long.
const LONGEST_WAIT: usize = 4 * AGES;

/// Readers believe the last value, and when that moved by this part of what matters, the way to a
/// change that matters begins here again: a drift is polled when it has gone far enough.
const DRIFT: f64 = 0.25;

/// A finding less likely than this says that the metric is no longer what it was ...
const STRANGE: f32 = 0.03;
/// ... and experience counts half.
const STRANGE_MEMORY: f32 = 0.5;

/// The threshold to begin with, as a multiple of the share of time in which readers may be wrong:
/// that at which changes as irregular as the paper's come to this share.
const THRESHOLD_FIRST_RATIO: f32 = 4.0;
/// A lower one would poll at every tick for a gain that nobody sees.
const THRESHOLD_LEAST: f32 = 0.02;
/// A higher one would wait past the beats of a rhythm.
const THRESHOLD_MOST: f32 = BEAT;

/// The threshold is this share of itself after as many changes, and half after [`TRUST_CHANGES`]:
/// what is learned of few changes is not trusted to wait for.
const TRUST_CHANGES: f32 = 8.0;
/// A quiet time this many times the usual is none of those that were learned; there the threshold
/// is whole.
const QUIET_RATIO: f32 = 3.0;

/// How far one change moves the threshold: a fifth of its logarithm for a whole gap of wrong belief.
/// Less follows too slowly, more follows single gaps.
const GAIN: f32 = 0.2;

/// The threshold aims at this part of the allowance: what is learned is always a little wrong.
const MARGIN: f32 = 0.94;

/// A beat is a tick at which a change is as likely as this.
const BEAT: f32 = 0.9;

/// Of a rhythm one beat in so many is watched from between the beats: changes at another rhythm,
/// which happens to have beats here too, would not be noticed otherwise.
const WATCH_EVERY: u32 = 100;
/// The golden section: fractions of its multiples lie between the beats as evenly as can be.
const GOLDEN: f64 = 0.618_034;

/// The first change should be seen when it comes, for all is measured from it; but not for longer
/// than so many ticks.
const FIRST_TICKS: f32 = 16.0;

/// What is spared or owed is bounded to so many gaps, and with it how many beats are left out.
const SPARE_GAPS: f32 = 8.0;

/// Changes over which the mean time between them is taken.
const GAP_CHANGES: u32 = 8;

/// Waits until a change is likely enough.
#[derive(Clone, Debug)]
pub struct Hazard {
    bounds: Bounds,
    /// In seconds.
    tick: f64,
    /// The longest wait, in ticks.
    most: usize,
    /// The share of time in which readers may be wrong.
    allowed: f32,
    ages: Ages,
    last: Option<Duration>,
    threshold: f32,
    /// Mean ticks between changes; 0 before the first.
    gap: f32,
    /// Ticks since the last change, expected.
    since: f32,
    /// Ticks that readers may still be wrong, given how long they were until now.
    spare: f32,
    changes: u32,
}

impl Hazard {
    /// Readers should be right for this share of the time.
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

    /// There was a change, `stale` ticks before it was found.
    fn changed(&mut self, stale: f32) {
        let gap = (self.since - stale).max(1.0);
        self.since = stale;
        self.changes = self.changes.saturating_add(1);
        self.gap += (gap - self.gap) / self.changes.min(GAP_CHANGES) as f32;
        let over = MARGIN * self.allowed * gap - stale;
        let step = GAIN * (over / self.gap).max(-1.0);
        self.threshold = (self.threshold * step.exp()).clamp(THRESHOLD_LEAST, THRESHOLD_MOST);
        // Bounded, so that a quiet night does not pay for a busy day.
        let spare = self.spare + self.allowed * gap - stale;
        self.spare = spare.clamp(-SPARE_GAPS * self.gap, SPARE_GAPS * self.gap);
    }

    /// Ticks until the next poll.
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

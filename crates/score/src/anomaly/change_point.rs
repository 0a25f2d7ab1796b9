//! Detects a lasting shift of the mean, and its size.
//!
//! The detector keeps two cumulative sums, one for each direction (Page, *Continuous inspection
//! schemes*, 1954): each sample adds its distance from the mean, in standard deviations, less
//! `drift`; a sum never falls below zero. If a sum exceeds `threshold`, the mean has shifted since
//! the sum last left zero. The detector learns mean and deviation from the first half window and
//! then follows them with a memory of `window` samples, except while a sum is rising. After a shift
//! it learns both anew; then the new level is usual.
//!
//! One sample counts for at most [`CLIP`] deviations, so a single spike is not a shift.
//!
//! The values of a machine depend on the values just before, so they stay on one side of their mean
//! for long. With a correlation `r` of neighbours, the mean of many samples wanders as if they were
//! independent with a deviation `√((1 + r) / (1 - r))` times as large (Bartlett 1946). The detector
//! measures distances in that deviation, so a wandering series has to shift further.

use skopos_model::Timestamp;

use super::{Detector, Expected, Finding, spread};

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The number of samples in the memory of the mean; the first half of them is learned from
    /// before judging begins.
    pub window: u32,
    /// The smallest shift that is found, in standard deviations; smaller shifts add nothing.
    pub drift: f64,
    /// The sum, in standard deviations, above which the mean has shifted.
    pub threshold: f64,
    /// The least standard deviation, in the unit of the value.
    pub min_spread: f64,
}

impl Settings {
    /// With these parameters, a shift of 3 standard deviations is found after about 5 samples, one
    /// of 2 after about 8. In 100,000 samples without a shift none is found, whether they are
    /// independent or keep nine tenths of their last deviation.
    pub const DEFAULT: Self = Self { window: 100, drift: 0.7, threshold: 10.0, min_spread: 0.0 };

    /// The shortest window; half of it must estimate a deviation.
    pub const MIN_WINDOW: u32 = 16;
    /// The longest window: a day of seconds; it costs no memory.
    pub const MAX_WINDOW: u32 = 86_400;
}

/// The most standard deviations that one sample counts for. With the default drift, a single spike
/// adds 3.3 to a sum, and it takes three or four in a row to make a shift.
pub const CLIP: f64 = 4.0;

/// The greatest correlation. In a hundred samples, more correlation cannot be told from a trend; it
/// makes distances six times smaller.
const MAX_CORRELATION: f64 = 0.95;

/// The share of the threshold above which a sum is rising and the mean does not follow.
const SUSPICION_RATIO: f64 = 0.25;

/// The detector.
#[derive(Clone, Debug)]
pub struct ChangePoint {
    settings: Settings,
    learned: u32,
    mean: f64,
    variance: f64,
    /// The mean product of the deviations of two neighbours.
    covariance: f64,
    /// The deviation of the sample before.
    neighbour: f64,
    up: Sum,
    down: Sum,
    /// The shift while the new level is being learned.
    shift: Option<Finding>,
    latest: f64,
    since: Timestamp,
}

/// One cumulative sum, and the samples since it left zero.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    value: f64,
    since: Timestamp,
    count: f64,
    total: f64,
}

impl Sum {
    fn add(&mut self, at: Timestamp, value: f64, step: f64) {
        let sum = self.value + step;
        if sum <= 0.0 {
            *self = Self::default();
            return;
        }
        if self.count == 0.0 {
            self.since = at;
        }
        self.value = sum;
        self.count += 1.0;
        self.total += value;
    }
}

impl ChangePoint {
    /// Creates a detector without samples.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            learned: 0,
            mean: 0.0,
            variance: 0.0,
            covariance: 0.0,
            neighbour: 0.0,
            up: Sum::default(),
            down: Sum::default(),
            shift: None,
            latest: 0.0,
            since: Timestamp::default(),
        }
    }

    fn spread(&self) -> f64 {
        let correlation = if self.variance > 0.0 { self.covariance / self.variance } else { 0.0 };
        let r = correlation.clamp(0.0, MAX_CORRELATION);
        let wander = (self.variance * (1.0 + r) / (1.0 - r)).sqrt();
        wander.max(spread::least(self.settings.min_spread, self.mean))
    }

    /// Updates Welford's running mean and variance.
    fn learn(&mut self, at: Timestamp, value: f64) {
        self.learned += 1;
        let n = f64::from(self.learned);
        let before = value - self.mean;
        self.mean += before / n;
        let after = value - self.mean;
        self.variance += (before * after - self.variance) / n;
        self.covariance += (after * self.neighbour - self.covariance) / n;
        self.neighbour = after;
        if self.learned >= self.settings.window / 2 && self.shift.take().is_some() {
            self.since = at;
        }
    }

    fn follow(&mut self, deviation: f64) {
        let share = 1.0 / f64::from(self.settings.window);
        self.mean += share * deviation;
        self.variance = (1.0 - share) * (self.variance + share * deviation * deviation);
        self.covariance += share * (deviation * self.neighbour - self.covariance);
    }

    fn expected(&self) -> Expected {
        let room = self.settings.drift * self.spread();
        Expected { value: self.mean, low: self.mean - room, high: self.mean + room }
    }

    fn shifted(&mut self, sum: Sum) {
        self.shift = Some(Finding {
            came: sum.total / sum.count,
            expected: self.expected(),
            score: sum.value / self.settings.threshold,
            since: sum.since,
        });
        (self.learned, self.mean, self.variance) = (0, 0.0, 0.0);
        (self.covariance, self.neighbour) = (0.0, 0.0);
        (self.up, self.down) = (Sum::default(), Sum::default());
    }
}

impl Detector for ChangePoint {
    fn take(&mut self, at: Timestamp, value: f64) -> bool {
        self.latest = value;
        if self.learned < self.settings.window / 2 {
            self.learn(at, value);
            return self.shift.is_some();
        }
        let spread = self.spread();
        let z = ((value - self.mean) / spread).clamp(-CLIP, CLIP);
        self.up.add(at, value, z - self.settings.drift);
        self.down.add(at, value, -z - self.settings.drift);
        let sum = if self.up.value > self.down.value { self.up } else { self.down };
        if sum.value > self.settings.threshold {
            self.shifted(sum);
        } else if sum.value <= SUSPICION_RATIO * self.settings.threshold {
            self.follow(z * spread);
        }
        self.neighbour = z * spread;
        self.shift.is_some()
    }

    fn finding(&self) -> Finding {
        self.shift.unwrap_or_else(|| Finding {
            came: self.latest,
            expected: self.expected(),
            score: self.up.value.max(self.down.value) / self.settings.threshold,
            since: self.since,
        })
    }
}

//! The overhead budget: it decides which sensors to poll less often, so that all together cost no
//! more than the limit.
//!
//! # Algorithm
//! The *share* of a sensor is the processor time of its polls as a share of one core: processor
//! seconds of one poll, divided by the interval. While the sum of all shares and of the agent's own
//! cost exceeds the limit, the budget stretches one sensor after another by one step. It always
//! takes the sensor with the greatest `share at its wanted interval / (weight × stretch²)`: the
//! cost that a further stretch saves for the freshness that it takes. So the most expensive and
//! least-read sensors go first, and the stretches tend to `√(share / weight)`: the intervals that
//! lose the least freshness, as in Kleinrock's square-root assignment of capacities (*Communication
//! Nets*, 1964). Sensors with a waiting reader come last, whatever they cost.
//!
//! Stretches are whole numbers (1, 2, 3, 4, 6, 8, …): a stretched sensor is due together with
//! sensors that are not stretched, so a stretch never adds a wake-up.
//!
//! # Invariants
//! - No sensor is stretched while the wanted intervals fit the limit, except a sensor that was
//!   stretched before, until the wanted intervals fit with room to spare ([`RELEASE_RATIO`]).
//! - No interval is shorter than wanted or longer than allowed.
//! - In the same state, a lower limit never gives a shorter interval.
//!
//! ```
//! use std::time::Duration;
//! use skopos_score::budget::{Budget, Demand};
//!
//! let second = Duration::from_secs(1);
//! let demand = |micros| Demand {
//!     cost: Duration::from_micros(micros),
//!     wanted: second,
//!     longest: 60 * second,
//!     reads_per_second: 0.0,
//!     waited_for: false,
//! };
//! let mut grants = Vec::new();
//! let plan = Budget::new(0.01)?.plan(0.001, &[demand(16_000), demand(500)], &mut grants);
//! assert_eq!((grants[0].interval, grants[1].interval), (2 * second, second));
//! assert!((plan.granted - 0.0095).abs() < 1e-9);
//! # Ok::<(), skopos_score::budget::LimitError>(())
//! ```

use std::time::Duration;

use thiserror::Error;

/// The default budget, as a share of one core: an administrator does not notice a monitor of this
/// cost in `top`.
pub const DEFAULT_LIMIT: f64 = 0.01;

/// The most that one sensor is stretched: a sensor wanted each second is then polled once a minute.
/// A user who wants it more rarely should switch it off.
pub const MAX_STRETCH: f64 = 64.0;

/// The possible stretches: whole numbers, so that sensors share wake-ups, and far enough apart that
/// a plan takes a few hundred steps.
const STEPS: [f64; 12] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, MAX_STRETCH];

/// A stretched sensor is released only when the cost would be below this share of the limit: the
/// costs of two polls differ by some percent, and intervals should not follow that.
pub const RELEASE_RATIO: f64 = 0.9;

/// Factor by which the urgency of another sensor must be greater for it to be stretched instead of
/// a sensor that is stretched already.
const SWAP_RATIO: f64 = 1.5;

/// The weight of a sensor with any readers. It is far above [`SWAP_RATIO`], so that an unread
/// sensor of equal cost always goes first; of two sensors of equal cost, the unread one gets twice
/// the stretch.
const READ_WEIGHT: f64 = 4.0;

/// The greatest weight, which means ten times less stretch. A program that reads a million times a
/// second must not take the freshness of all other sensors.
const MAX_WEIGHT: f64 = 100.0;

/// The shortest interval that the plan assumes, so that a wanted interval of zero does not cost
/// infinitely much.
const SHORTEST: Duration = Duration::from_millis(1);

/// The wanted interval and the cost of one sensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Processor time of one poll, smoothed.
    pub cost: Duration,
    /// The interval that its policy wants.
    pub wanted: Duration,
    /// The longest interval that it may get; if it is below `wanted`, the sensor is not stretched.
    pub longest: Duration,
    /// Reads of all its facts per second, smoothed; NaN counts as zero.
    pub reads_per_second: f64,
    /// True if a reader sleeps until one of its facts changes.
    pub waited_for: bool,
}

impl Demand {
    /// Returns its share of one core at the wanted interval.
    pub fn share(&self) -> f64 {
        self.cost.as_secs_f64() / self.wanted.max(SHORTEST).as_secs_f64()
    }

    fn weight(&self) -> f64 {
        match self.reads_per_second.max(0.0) {
            0.0 => 1.0,
            reads => (READ_WEIGHT + reads).min(MAX_WEIGHT),
        }
    }

    fn longest_stretch(&self) -> f64 {
        let ratio = self.longest.as_secs_f64() / self.wanted.max(SHORTEST).as_secs_f64();
        ratio.clamp(1.0, MAX_STRETCH)
    }
}

/// The interval granted to one sensor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// The interval at which to poll it.
    pub interval: Duration,
    /// The ratio of this interval to the wanted one; 1 if the sensor is not stretched.
    pub stretch: f64,
}

/// The cost of all sensors and of the agent itself, each as a share of one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// The cost if every sensor were polled as often as wanted.
    pub wanted: f64,
    /// The cost at the granted intervals.
    pub granted: f64,
    /// The amount by which `granted` exceeds the limit; 0 if the limit is kept. If it is above 0,
    /// every sensor is at its longest interval.
    pub over: f64,
}

/// The given limit is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("`{0}` is not a budget: a budget is a share of one core above 0, such as 0.01 for 1 %")]
pub struct LimitError(f64);

/// Keeps a set of sensors under a limit. It remembers the stretches by the sensors' places in the
/// list; when places change, intervals may change with them, but the limit still holds.
#[derive(Clone, Debug)]
pub struct Budget {
    limit: f64,
    candidates: Vec<Candidate>,
}

impl Budget {
    /// Creates a budget of `limit` of one core: 0.01 is 1 %.
    ///
    /// # Errors
    /// Fails if `limit` is not above zero or not finite.
    pub fn new(limit: f64) -> Result<Self, LimitError> {
        if limit.is_finite() && limit > 0.0 {
            Ok(Self { limit, candidates: Vec::new() })
        } else {
            Err(LimitError(limit))
        }
    }

    /// Returns the limit, as a share of one core.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Fills `out` with the interval of each of `sensors`, in their order. `fixed` is the cost of
    /// the agent apart from polls (wake-ups, insights, publishing), as a share of one core.
    pub fn plan(&mut self, fixed: f64, sensors: &[Demand], out: &mut Vec<Grant>) -> Plan {
        self.candidates.resize(sensors.len(), Candidate::NEW);
        for (candidate, demand) in self.candidates.iter_mut().zip(sensors) {
            candidate.begin(demand);
        }
        let wanted = fixed.max(0.0) + self.candidates.iter().map(Candidate::cost).sum::<f64>();
        let granted = self.stretch(wanted);
        out.clear();
        out.extend(sensors.iter().zip(&self.candidates).map(|(demand, candidate)| Grant {
            interval: if candidate.stretch == 1.0 {
                demand.wanted
            } else {
                demand.wanted.max(SHORTEST).mul_f64(candidate.stretch).min(demand.longest)
            },
            stretch: candidate.stretch,
        }));
        Plan { wanted, granted, over: (granted - self.limit).max(0.0) }
    }

    /// Stretches one candidate after another and returns the resulting cost.
    fn stretch(&mut self, wanted: f64) -> f64 {
        let mut granted = wanted;
        while granted > self.limit * RELEASE_RATIO {
            let mut foremost = LAST;
            let mut found = None;
            for candidate in &mut self.candidates {
                if candidate.order > foremost {
                    foremost = candidate.order;
                    found = Some(candidate);
                }
            }
            let Some(candidate) = found else { break };
            // The cost fits. Only sensors that were stretched before stay stretched, so that
            // intervals do not flap.
            if granted <= self.limit && candidate.next > candidate.held {
                break;
            }
            let before = candidate.cost();
            candidate.stretch_to(candidate.next);
            granted -= before - candidate.cost();
        }
        granted
    }
}

/// One sensor during the planning.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// The stretch of the plan before.
    held: f64,
    share: f64,
    weight: f64,
    longest: f64,
    waited_for: bool,
    stretch: f64,
    /// The stretch of its next step.
    next: f64,
    /// The candidate with the greatest order is stretched next. A candidate that cannot be
    /// stretched further, or costs nothing, is never ahead of another.
    order: (bool, f64),
}

/// The order of candidates that must not be stretched.
const LAST: (bool, f64) = (false, 0.0);

impl Candidate {
    const NEW: Self = Self {
        held: 1.0,
        share: 0.0,
        weight: 1.0,
        longest: 1.0,
        waited_for: false,
        stretch: 1.0,
        next: 1.0,
        order: LAST,
    };

    fn begin(&mut self, demand: &Demand) {
        *self = Self {
            held: self.stretch,
            share: demand.share(),
            weight: demand.weight(),
            longest: demand.longest_stretch(),
            waited_for: demand.waited_for,
            ..Self::NEW
        };
        self.stretch_to(1.0);
    }

    fn stretch_to(&mut self, stretch: f64) {
        self.stretch = stretch;
        self.next = step_after(stretch).min(self.longest);
        let calm = if self.next <= self.held { SWAP_RATIO } else { 1.0 };
        let urgency = calm * self.share / (self.weight * stretch * stretch);
        let stretchable = self.next > stretch && urgency > 0.0;
        self.order = if stretchable { (!self.waited_for, urgency) } else { LAST };
    }

    fn cost(&self) -> f64 {
        self.share / self.stretch
    }
}

fn step_after(stretch: f64) -> f64 {
    STEPS.into_iter().find(|&step| step > stretch).unwrap_or(MAX_STRETCH)
}

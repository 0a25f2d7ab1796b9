//! The overhead budget: which sensors to poll less often so that all together cost no more than allowed.
//!
//! # How it decides
//! A sensor's *share* is what its polls cost of one core: processor seconds a poll, divided by its
//! interval. While the shares and what the agent costs anyway exceed the limit, one sensor after
//! another is stretched by one step, each time the one with the greatest
//! `share at its wanted interval / (weight × stretch²)`. That is how much cost a further stretch
//! saves for the freshness that it takes, so the dearest and least-read sensors go first, and the
//! stretches tend to `√(share / weight)`: the intervals that lose the least freshness, as in
//! Kleinrock's square-root assignment of capacities (*Communication Nets*, 1964). Sensors whose next
//! value somebody waits for come last, whatever they cost.
//!
//! Stretches are whole numbers (1, 2, 3, 4, 6, 8, …): a stretched sensor is due together with those
//! that are not, so stretching never adds a wake-up.
//!
//! # Invariants
//! - Nothing is stretched while what is wanted fits, unless it was stretched before and what is
//!   wanted does not fit with room to spare ([`RELEASE_RATIO`]).
//! - No interval is shorter than wanted, nor longer than allowed.
//! - At one state, a lower limit never gives a shorter interval.
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

/// The budget unless somebody asks for another: what a monitor may cost of one core, of which an
/// administrator sees nothing in `top`.
pub const DEFAULT_LIMIT: f64 = 0.01;

/// The most that one sensor is stretched: what is wanted each second then comes once a minute, and
/// what comes rarer than that is better switched off by somebody who knows that he does.
pub const MAX_STRETCH: f64 = 64.0;

/// What a sensor is stretched to: whole numbers, for the sake of shared wake-ups, and far enough
/// apart that a plan is made in some hundred steps.
const STEPS: [f64; 12] = [1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 48.0, MAX_STRETCH];

/// What was stretched is released only when the cost would be below this share of the limit: costs
/// of one poll and the next differ by some percent, and intervals should not follow that.
pub const RELEASE_RATIO: f64 = 0.9;

/// How much dearer another sensor must be to be stretched in the place of one that already is.
const SWAP_RATIO: f64 = 1.5;

/// Weight of a sensor that is read at all. Far above [`SWAP_RATIO`], so that an unread sensor of
/// equal cost always goes first; it doubles the stretch of the unread one, of two of equal cost.
const READ_WEIGHT: f64 = 4.0;

/// The greatest weight: ten times less stretched. A program that reads a million times a second
/// must not take the freshness of everybody else.
const MAX_WEIGHT: f64 = 100.0;

/// Shortest interval that is reckoned with, so that a demand of none does not cost infinitely much.
const SHORTEST: Duration = Duration::from_millis(1);

/// What one sensor wants and costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Demand {
    /// Processor time of one poll, smoothed.
    pub cost: Duration,
    /// The interval that its policy wants.
    pub wanted: Duration,
    /// The longest interval that it may get; below `wanted` it is not stretched.
    pub longest: Duration,
    /// How often its facts are read, all together, smoothed; not a number counts as never.
    pub reads_per_second: f64,
    /// Somebody sleeps until one of its facts changes.
    pub waited_for: bool,
}

impl Demand {
    /// Its share of one core at the interval that it wants.
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

/// What one sensor gets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Grant {
    /// At which interval to poll it.
    pub interval: Duration,
    /// How many times the wanted interval that is; 1 if it is not stretched.
    pub stretch: f64,
}

/// What all sensors and the agent itself come to, each as a share of one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// If every sensor were polled as often as wanted.
    pub wanted: f64,
    /// At the intervals that were granted.
    pub granted: f64,
    /// How far `granted` is above the limit; 0 if the limit is kept. Above 0 every sensor is at its
    /// longest interval.
    pub over: f64,
}

/// A limit that is none.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("`{0}` is no budget: it is a share of one core above 0, such as 0.01 for 1 %")]
pub struct LimitError(f64);

/// Keeps a set of sensors under a limit. It remembers what it stretched, by the sensors' places in
/// the list; when places change, intervals may change with them, but the limit is kept all the same.
#[derive(Clone, Debug)]
pub struct Budget {
    limit: f64,
    candidates: Vec<Candidate>,
}

impl Budget {
    /// A budget of `limit` of one core: 0.01 is 1 %.
    ///
    /// # Errors
    /// `limit` is not above zero, or not finite.
    pub fn new(limit: f64) -> Result<Self, LimitError> {
        if limit.is_finite() && limit > 0.0 {
            Ok(Self { limit, candidates: Vec::new() })
        } else {
            Err(LimitError(limit))
        }
    }

    /// The limit, as a share of one core.
    pub fn limit(&self) -> f64 {
        self.limit
    }

    /// Fills `out` with the interval of each of `sensors`, in their order. `fixed` is what the agent
    /// costs besides polls, as a share of one core: wakes, insights, publishing.
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

    /// Stretches one candidate after another, and says what all come to then.
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
            // It fits. Only what was stretched before stays so, for the sake of calm.
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

/// One sensor while a plan is made.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    /// What it was stretched to by the plan before.
    held: f64,
    share: f64,
    weight: f64,
    longest: f64,
    waited_for: bool,
    stretch: f64,
    /// What it would be stretched to next.
    next: f64,
    /// Who is foremost is stretched next. What cannot be stretched further, or costs nothing, is
    /// nobody's better.
    order: (bool, f64),
}

/// The order of those that are not to be stretched.
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

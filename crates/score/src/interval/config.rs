use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use super::{Aimd, AimdWindow, Bounds, Fixed, Hazard, MAX_WINDOW, Policy};

/// The shortest interval that may be asked for. A poll costs tens of microseconds, so this is some
/// percent of a core for one sensor already.
const SHORTEST_SECONDS: f64 = 0.001;

/// The longest: a day. What is wanted rarer than that is better asked for than polled.
const LONGEST_SECONDS: f64 = 86_400.0;

/// The policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// Always the same interval.
    #[default]
    Fixed,
    /// A change within a threshold adds to the interval, one beyond it shrinks it.
    Aimd,
    /// The same, beside a rolling mean of changes.
    AimdWindow,
    /// Polls when a change has become likely enough, which it learns from when changes come.
    Hazard,
}

impl PolicyKind {
    /// Every one, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Fixed, Self::Aimd, Self::AimdWindow, Self::Hazard];

    /// The name in configurations and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Aimd => "aimd",
            Self::AimdWindow => "aimd-window",
            Self::Hazard => "hazard",
        }
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A policy as a user configures it. What is left out has the policy's default; a parameter that
/// the policy does not have is refused.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// Which; [`PolicyKind::Fixed`] unless given, or what whoever reads the configuration says.
    pub policy: Option<PolicyKind>,
    /// The shortest interval, and that of `fixed`; 1 unless given.
    pub min_seconds: Option<f64>,
    /// The longest interval; 60 unless given, or the shortest if that is longer. Not for `fixed`.
    pub max_seconds: Option<f64>,
    /// `aimd` and `aimd-window`: what is added after a change within the threshold; 1.
    pub step_seconds: Option<f64>,
    /// `aimd` and `aimd-window`: what the interval is multiplied with after a change beyond the
    /// threshold; 0.75.
    pub factor: Option<f64>,
    /// `aimd`: the threshold in units of the tolerance; 1. `aimd-window`: the share of the mean
    /// change; 0.1.
    pub threshold: Option<f64>,
    /// `aimd-window`: how many changes the mean is over; 10.
    pub window: Option<usize>,
    /// `hazard`: the share of time in which readers should find what is; 0.95.
    pub accuracy: Option<f64>,
}

/// Why a configuration is no policy.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A number that is out of its range, or none.
    #[error("`{name} = {value}`: it must lie between {least} and {most}")]
    Range {
        /// The parameter.
        name: &'static str,
        /// What was given.
        value: f64,
        /// The least that is allowed.
        least: f64,
        /// The most that is allowed.
        most: f64,
    },
    /// The longest interval is shorter than the shortest.
    #[error("`max_seconds = {max}` is less than `min_seconds = {min}`")]
    Bounds {
        /// The shortest.
        min: f64,
        /// The longest.
        max: f64,
    },
    /// A parameter of another policy.
    #[error("`{policy}` has no `{name}`; it has {has}")]
    Foreign {
        /// The policy.
        policy: PolicyKind,
        /// The parameter.
        name: &'static str,
        /// The parameters of the policy.
        has: String,
    },
}

impl PolicyConfig {
    /// This policy with its defaults: AIMD as in the paper and its public implementation.
    pub const fn new(policy: PolicyKind) -> Self {
        Self {
            policy: Some(policy),
            min_seconds: None,
            max_seconds: None,
            step_seconds: None,
            factor: None,
            threshold: None,
            window: None,
            accuracy: None,
        }
    }

    /// The policy that it is.
    pub fn kind(&self) -> PolicyKind {
        self.policy.unwrap_or_default()
    }

    /// The same with another policy. Parameters that this one does not have are left out.
    #[must_use]
    pub fn with_policy(self, policy: PolicyKind) -> Self {
        let has = parameters(policy);
        let keep = |name| has.contains(&name);
        Self {
            policy: Some(policy),
            min_seconds: self.min_seconds,
            max_seconds: self.max_seconds.filter(|_| keep("max_seconds")),
            step_seconds: self.step_seconds.filter(|_| keep("step_seconds")),
            factor: self.factor.filter(|_| keep("factor")),
            threshold: self.threshold.filter(|_| keep("threshold")),
            window: self.window.filter(|_| keep("window")),
            accuracy: self.accuracy.filter(|_| keep("accuracy")),
        }
    }

    /// The shortest and the longest interval.
    ///
    /// # Errors
    /// One is out of range, or the longest is shorter than the shortest.
    pub fn bounds(&self) -> Result<Bounds, PolicyError> {
        let seconds = |name, given: Option<f64>, default| {
            within(name, given.unwrap_or(default), SHORTEST_SECONDS, LONGEST_SECONDS)
        };
        let min = seconds("min_seconds", self.min_seconds, 1.0)?;
        let max = match self.kind() {
            PolicyKind::Fixed => min,
            _ => seconds("max_seconds", self.max_seconds, min.max(60.0))?,
        };
        if max < min {
            return Err(PolicyError::Bounds { min, max });
        }
        Ok(Bounds { min: Duration::from_secs_f64(min), max: Duration::from_secs_f64(max) })
    }

    /// Makes the policy.
    ///
    /// # Errors
    /// A [`PolicyError`] for the first parameter that is wrong.
    pub fn build(&self) -> Result<Box<dyn Policy>, PolicyError> {
        self.refuse_foreign()?;
        let bounds = self.bounds()?;
        let step = within("step_seconds", self.step_seconds.unwrap_or(1.0), 0.001, 3600.0)?;
        let step = Duration::from_secs_f64(step);
        // A factor of 1 would never come back from the longest interval.
        let factor = within("factor", self.factor.unwrap_or(0.75), 0.01, 0.99)?;
        let threshold =
            |default| within("threshold", self.threshold.unwrap_or(default), 0.0, f64::MAX);
        Ok(match self.kind() {
            PolicyKind::Fixed => Box::new(Fixed::new(bounds.min)),
            PolicyKind::Aimd => Box::new(Aimd::new(bounds, step, factor, threshold(1.0)?)),
            PolicyKind::AimdWindow => {
                let window = self.window.unwrap_or(10);
                within("window", window as f64, 1.0, MAX_WINDOW as f64)?;
                Box::new(AimdWindow::new(bounds, step, factor, threshold(0.1)?, window))
            }
            PolicyKind::Hazard => {
                let accuracy = within("accuracy", self.accuracy.unwrap_or(0.95), 0.05, 0.999)?;
                Box::new(Hazard::new(bounds, accuracy))
            }
        })
    }

    /// Refuses parameters that the policy would not look at: whoever wrote them expects something.
    fn refuse_foreign(&self) -> Result<(), PolicyError> {
        let has = parameters(self.kind());
        let given = [
            ("max_seconds", self.max_seconds.is_some()),
            ("step_seconds", self.step_seconds.is_some()),
            ("factor", self.factor.is_some()),
            ("threshold", self.threshold.is_some()),
            ("window", self.window.is_some()),
            ("accuracy", self.accuracy.is_some()),
        ];
        match given.iter().find(|(name, given)| *given && !has.contains(name)) {
            None => Ok(()),
            Some((name, _)) => {
                let has = has.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>();
                Err(PolicyError::Foreign { policy: self.kind(), name, has: has.join(", ") })
            }
        }
    }
}

/// The parameters of a policy.
const fn parameters(policy: PolicyKind) -> &'static [&'static str] {
    match policy {
        PolicyKind::Fixed => &["min_seconds"],
        PolicyKind::Aimd => &["min_seconds", "max_seconds", "step_seconds", "factor", "threshold"],
        PolicyKind::AimdWindow => {
            &["min_seconds", "max_seconds", "step_seconds", "factor", "threshold", "window"]
        }
        PolicyKind::Hazard => &["min_seconds", "max_seconds", "accuracy"],
    }
}

fn within(name: &'static str, value: f64, least: f64, most: f64) -> Result<f64, PolicyError> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(PolicyError::Range { name, value, least, most })
    }
}

use std::fmt;
use std::time::Duration;

use serde::Deserialize;
use thiserror::Error;

use super::{Aimd, AimdWindow, Bounds, Fixed, Hazard, MAX_WINDOW, Policy};

/// The shortest interval that a configuration may ask for. A poll costs tens of microseconds, so
/// one sensor at this interval already takes some percent of a core.
const SHORTEST_SECONDS: f64 = 0.001;

/// The longest interval: a day. A value that is wanted more rarely should be read on demand.
const LONGEST_SECONDS: f64 = 86_400.0;

/// The kinds of policies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyKind {
    /// Always uses the same interval.
    #[default]
    Fixed,
    /// Adds to the interval after a change within a threshold, and shrinks it after a change
    /// beyond.
    Aimd,
    /// Does the same as `aimd`, relative to a rolling mean of changes.
    AimdWindow,
    /// Polls when a change has become likely enough, which it learns from the times of changes.
    Hazard,
}

impl PolicyKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Fixed, Self::Aimd, Self::AimdWindow, Self::Hazard];

    /// Returns the name in configurations and results.
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

/// A policy as a user configures it. A parameter that is left out has the default of the policy; a
/// parameter that the policy does not have is an error.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyConfig {
    /// The kind; [`PolicyKind::Fixed`] by default, unless the reader of the configuration sets
    /// another default.
    pub policy: Option<PolicyKind>,
    /// The shortest interval, and the interval of `fixed`; 1 by default.
    pub min_seconds: Option<f64>,
    /// The longest interval; 60 by default, or `min_seconds` if that is longer. Not for `fixed`.
    pub max_seconds: Option<f64>,
    /// `aimd` and `aimd-window`: the seconds added after a change within the threshold; 1 by
    /// default.
    pub step_seconds: Option<f64>,
    /// `aimd` and `aimd-window`: the factor by which the interval is multiplied after a change
    /// beyond the threshold; 0.75 by default.
    pub factor: Option<f64>,
    /// `aimd`: the threshold in units of the tolerance, 1 by default. `aimd-window`: the threshold
    /// as a share of the mean change, 0.1 by default.
    pub threshold: Option<f64>,
    /// `aimd-window`: the number of changes in the mean; 10 by default.
    pub window: Option<usize>,
    /// `hazard`: the share of time in which readers should see the true value; 0.95 by default.
    pub accuracy: Option<f64>,
}

/// The reason why a policy configuration is not valid.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// A number is out of its range or NaN.
    #[error("`{name} = {value}`: it must lie between {least} and {most}")]
    Range {
        /// The parameter.
        name: &'static str,
        /// The given value.
        value: f64,
        /// The least allowed value.
        least: f64,
        /// The greatest allowed value.
        most: f64,
    },
    /// The longest interval is shorter than the shortest.
    #[error("`max_seconds = {max}` is less than `min_seconds = {min}`")]
    Bounds {
        /// The shortest interval.
        min: f64,
        /// The longest interval.
        max: f64,
    },
    /// The parameter belongs to another policy.
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
    /// Creates a configuration of `policy` with its defaults; those of AIMD are as in the paper and
    /// its public implementation.
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

    /// Returns the kind of the policy.
    pub fn kind(&self) -> PolicyKind {
        self.policy.unwrap_or_default()
    }

    /// Returns the same configuration with another policy, without the parameters that it does not
    /// have.
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

    /// Returns the shortest and the longest interval.
    ///
    /// # Errors
    /// Fails if an interval is out of range, or if the longest is shorter than the shortest.
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

    /// Builds the policy.
    ///
    /// # Errors
    /// Returns a [`PolicyError`] for the first invalid parameter.
    pub fn build(&self) -> Result<Box<dyn Policy>, PolicyError> {
        self.refuse_foreign()?;
        let bounds = self.bounds()?;
        let step = within("step_seconds", self.step_seconds.unwrap_or(1.0), 0.001, 3600.0)?;
        let step = Duration::from_secs_f64(step);
        // A factor of 1 would never shrink the longest interval.
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

    /// Rejects parameters that the policy would ignore, because their author expects an effect.
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

/// Returns the parameters of a policy.
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

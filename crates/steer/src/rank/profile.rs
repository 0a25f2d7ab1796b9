//! The profile of a ranking: its metrics and the rules for them.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::Deserialize;

use crate::error::Error;
use crate::rank::limits::MAX_METRICS;

/// The direction of a metric.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// A smaller value is better, as of a latency.
    #[default]
    Lower,
    /// A larger value is better, as of a bandwidth.
    Higher,
}

/// The kind of a metric, on which the methods `latency` and `equal` depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Subject {
    /// Anything else: page cache, queues, device health.
    #[default]
    Host,
    /// Latency or bandwidth of the network.
    Network,
    /// Time of a request, the metric of the method `latency`.
    Latency,
}

/// The rule for a value that is older than `max_age`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stale {
    /// The value loses weight with its age against the median of the other candidates.
    #[default]
    Distrust,
    /// The value counts in full until [`HOLD_AGES`] times `max_age`, then it is missing.
    Hold,
    /// The candidate is excluded.
    Exclude,
}

/// Ages after which a stale value is missing, in multiples of `max_age`. Three halvings of trust leave an eighth, under
/// which a value says little.
pub const HOLD_AGES: u32 = 4;

/// The method that makes a score of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Metrics of the subject `latency` alone.
    Latency,
    /// Equal weights, and twice that for the network: the prototype of MicroMon (section 4.3).
    #[default]
    Equal,
    /// The weights of the profile.
    Given,
    /// Weights that are learned from reported outcomes; those of the profile are the start.
    Learned,
    /// Candidates that no other candidate beats in every metric come first, ordered by the weights of the profile.
    Pareto,
}

/// The value of a metric of which a candidate has several topics, such as several disks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Combine {
    /// The worst value.
    #[default]
    Worst,
    /// The best value.
    Best,
    /// The mean.
    Mean,
    /// The sum.
    Sum,
}

/// One metric of a profile. Values are finite and not negative.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// The name, such as `block/await_seconds`.
    pub name: String,
    /// Pattern of the topics with its values, for programs that read them; `docs/reference/configuration.md` has the
    /// placeholders of a candidate.
    #[serde(default)]
    pub topic: Option<String>,
    /// Pattern of the topics with measurements of a candidate by its peers.
    #[serde(default)]
    pub peers: Option<String>,
    /// The value of several topics.
    #[serde(default)]
    pub combine: Combine,
    /// The direction.
    #[serde(default)]
    pub better: Better,
    /// The kind.
    #[serde(default)]
    pub subject: Subject,
    /// Resolution: differences far below it do not count. In the unit of the metric, above zero.
    pub floor: f64,
    /// Weight for the methods `given`, `learned` and `pareto`; any unit, because weights are divided by their sum.
    #[serde(default = "one")]
    pub weight: f64,
    /// Age in seconds from which a value is stale.
    #[serde(default = "max_age")]
    pub max_age_seconds: f64,
}

impl Metric {
    /// Makes a metric of weight 1 for which lower is better.
    pub fn new(name: &str, floor: f64) -> Self {
        Self {
            name: name.to_owned(),
            topic: None,
            peers: None,
            combine: Combine::Worst,
            better: Better::Lower,
            subject: Subject::Host,
            floor,
            weight: one(),
            max_age_seconds: max_age(),
        }
    }

    /// Returns the age from which a value is stale.
    pub fn max_age(&self) -> Duration {
        Duration::from_secs_f64(self.max_age_seconds.clamp(MIN_AGE, MAX_AGE))
    }
}

/// Bounds of `max_age_seconds`: a millisecond and a day.
const MIN_AGE: f64 = 1e-3;
const MAX_AGE: f64 = 86_400.0;

fn one() -> f64 {
    1.0
}

/// Five polls of an ordinary sensor.
fn max_age() -> f64 {
    5.0
}

/// A profile: the metrics that matter to an application, and the rules of the ranking.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// The name.
    pub name: String,
    /// The method.
    #[serde(default)]
    pub method: Method,
    /// The metrics.
    pub metrics: Vec<Metric>,
    /// The rule for stale values.
    #[serde(default)]
    pub stale: Stale,
    /// Relative change of `1 + score` below which a candidate keeps its score, 0 to 1.
    #[serde(default = "hysteresis")]
    pub hysteresis: f64,
    /// Exponent from scores to weights, 0 to 8: a candidate twice as bad has `2^-sharpness` of the weight.
    #[serde(default = "sharpness")]
    pub sharpness: f64,
    /// Share of the weights for all candidates about which nothing is known, 0 to 0.5.
    #[serde(default = "exploration")]
    pub exploration: f64,
}

fn hysteresis() -> f64 {
    0.05
}

fn sharpness() -> f64 {
    2.0
}

fn exploration() -> f64 {
    0.01
}

impl Profile {
    /// Makes a profile with the default rules.
    pub fn new(name: &str, method: Method, metrics: Vec<Metric>) -> Self {
        Self {
            name: name.to_owned(),
            method,
            metrics,
            stale: Stale::default(),
            hysteresis: hysteresis(),
            sharpness: sharpness(),
            exploration: exploration(),
        }
    }

    /// Checks the profile.
    ///
    /// # Errors
    /// No metrics or too many, two with one name, a number outside of its range, or weights that sum to zero where the
    /// method needs them.
    pub fn check(&self) -> Result<(), Error> {
        if self.metrics.is_empty() || self.metrics.len() > MAX_METRICS {
            let (profile, metrics) = (self.name.clone(), self.metrics.len());
            return Err(Error::Metrics { profile, metrics });
        }
        let mut names = BTreeSet::new();
        for metric in &self.metrics {
            let named = |entry: &str| format!("{}: {entry}", metric.name);
            self.within(&named("floor"), metric.floor, 1e-300..=1e300, "above zero and finite")?;
            self.within(&named("weight"), metric.weight, 0.0..=1e6, "0 to 1000000")?;
            let (age, ages) = (metric.max_age_seconds, MIN_AGE..=MAX_AGE);
            self.within(&named("max_age_seconds"), age, ages, "0.001 to 86400")?;
            if !names.insert(metric.name.as_str()) {
                let (profile, metric) = (self.name.clone(), metric.name.clone());
                return Err(Error::MetricTwice { profile, metric });
            }
        }
        self.within("hysteresis", self.hysteresis, 0.0..=1.0, "0 to 1")?;
        self.within("sharpness", self.sharpness, 0.0..=8.0, "0 to 8")?;
        self.within("exploration", self.exploration, 0.0..=0.5, "0 to 0.5")?;
        let counted = |m: &&Metric| match self.method {
            Method::Latency => m.subject == Subject::Latency,
            Method::Equal => true,
            Method::Given | Method::Learned | Method::Pareto => m.weight > 0.0,
        };
        if self.metrics.iter().find(counted).is_none() {
            return Err(Error::WeightsZero(self.name.clone()));
        }
        Ok(())
    }

    fn within(
        &self,
        entry: &str,
        value: f64,
        allowed: std::ops::RangeInclusive<f64>,
        range: &'static str,
    ) -> Result<(), Error> {
        if allowed.contains(&value) {
            return Ok(());
        }
        let (profile, entry) = (self.name.clone(), entry.to_owned());
        Err(Error::Range { profile, entry, value, range })
    }
}

use std::time::Duration;

use serde::Deserialize;
use skopos_model::{Topic, TopicPattern};
use thiserror::Error;

use super::change_point::{self, ChangePoint};
use super::extreme::{self, Extreme};
use super::robust_z::{self, RobustZ};
use super::threshold::{self, Threshold};
use super::{Detector, watch};

/// The names of the detectors.
pub const DETECTORS: [&str; 4] = ["threshold", "robust-z", "change-point", "extreme"];

/// The most rules of one watch: each is matched with each vertex that joins.
pub const MAX_RULES: usize = 256;

/// The most events a minute that a rule may ask for, of one vertex: one a second is what a poll a
/// second can say at all.
pub const MAX_EVENTS_PER_MINUTE_OF_ONE: u32 = 60;

/// Events a minute unless the rule says otherwise: enough to see that something flaps.
const EVENTS_PER_MINUTE: u32 = 6;

/// The longest `for` and `horizon`: a year. What is meant to be longer is for ever.
const MAX_DURATION: Duration = Duration::from_secs(366 * 86_400);

/// One table `[[anomaly]]` of the configuration: what to watch, and for what. Parameters that are
/// `None` have the defaults of the detector's `Settings`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// Its name, which events carry: one segment of a topic.
    pub name: String,
    /// A pattern; each vertex that matches is watched on its own.
    pub topic: String,
    /// One of [`DETECTORS`].
    pub detector: String,
    /// `threshold`: what is above is unusual.
    pub above: Option<f64>,
    /// `threshold`: what is below is unusual.
    pub below: Option<f64>,
    /// `threshold`: the level at which it is usual again. `robust-z`: the deviations.
    pub clear: Option<f64>,
    /// `threshold`: how long it must have been beyond the level.
    #[serde(default, rename = "for", deserialize_with = "crate::duration::optional")]
    pub hold: Option<Duration>,
    /// `robust-z`, `change-point`: how many samples make what is usual.
    pub window: Option<u32>,
    /// `robust-z`, `change-point`: in standard deviations.
    pub threshold: Option<f64>,
    /// `change-point`: the smallest shift that is found, in standard deviations.
    pub drift: Option<f64>,
    /// `extreme`: `high`, `low` or `both`.
    pub side: Option<String>,
    /// `extreme`: how many samples make a range that can be left.
    pub after: Option<u32>,
    /// `extreme`: how far outside of the range, as a share of its width.
    pub margin: Option<f64>,
    /// `extreme`: what is older counts no more.
    #[serde(default, deserialize_with = "crate::duration::optional")]
    pub horizon: Option<Duration>,
    /// All but `threshold`: the least spread that is reckoned with, in the value's unit.
    pub min_spread: Option<f64>,
    /// All: the most events a minute, of one vertex.
    pub events_per_minute: Option<u32>,
}

impl Rule {
    /// A rule with the defaults of its detector.
    pub fn new(name: &str, topic: &str, detector: &str) -> Self {
        Self {
            name: name.to_owned(),
            topic: topic.to_owned(),
            detector: detector.to_owned(),
            ..Self::default()
        }
    }

    /// Checks it, alone.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(&self) -> Result<(), RuleError> {
        Judge::new(self, None).map(drop)
    }

    /// The parameters that are given, but those that every detector has.
    fn given(&self) -> impl Iterator<Item = &'static str> {
        [
            ("above", self.above.is_some()),
            ("below", self.below.is_some()),
            ("clear", self.clear.is_some()),
            ("for", self.hold.is_some()),
            ("window", self.window.is_some()),
            ("threshold", self.threshold.is_some()),
            ("drift", self.drift.is_some()),
            ("side", self.side.is_some()),
            ("after", self.after.is_some()),
            ("margin", self.margin.is_some()),
            ("horizon", self.horizon.is_some()),
            ("min_spread", self.min_spread.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
    }
}

/// What can be wrong with rules.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// More than [`MAX_RULES`].
    #[error(
        "there are {0} anomaly rules, the most is {MAX_RULES}; one pattern may match many topics"
    )]
    TooMany(usize),
    /// A name that is no segment of a topic.
    #[error(
        "`{0}` is no name of an anomaly rule: it is one segment of a topic, a-z 0-9 _ - . : @ + = %"
    )]
    Name(String),
    /// Two rules of one name.
    #[error("two anomaly rules have the name `{0}`; events tell rules apart by it")]
    Twice(String),
    /// A topic that is no pattern.
    #[error("anomaly rule `{rule}`: its topic is no pattern")]
    Topic {
        /// The rule.
        rule: String,
        /// What is wrong with it.
        #[source]
        source: skopos_model::Error,
    },
    /// A detector that there is not.
    #[error(
        "anomaly rule `{rule}`: `{found}` is no detector; a detector is `threshold`, `robust-z`, \
         `change-point` or `extreme`"
    )]
    Detector {
        /// The rule.
        rule: String,
        /// The name as given.
        found: String,
    },
    /// A parameter of another detector.
    #[error(
        "anomaly rule `{rule}`: `{parameter}` is no parameter of `{detector}`, which has `{}`",
        .has.join("`, `")
    )]
    Parameter {
        /// The rule.
        rule: String,
        /// Its detector.
        detector: &'static str,
        /// The parameter that it does not have.
        parameter: &'static str,
        /// Those that it has.
        has: &'static [&'static str],
    },
    /// A threshold without a level, or with two.
    #[error(
        "anomaly rule `{0}`: a threshold has either `above` or `below`; for a band write two rules"
    )]
    Level(String),
    /// A level to clear at that lies on the unusual side.
    #[error(
        "anomaly rule `{rule}`: `clear = {clear}` lies on the unusual side of `{side} = {level}`, so \
         that it would be cleared as soon as it is raised"
    )]
    Clear {
        /// The rule.
        rule: String,
        /// The level to clear at.
        clear: f64,
        /// `above`, `below` or `threshold`.
        side: &'static str,
        /// The level to raise at.
        level: f64,
    },
    /// A side that there is not.
    #[error("anomaly rule `{rule}`: `{found}` is no side; a side is `high`, `low` or `both`")]
    Side {
        /// The rule.
        rule: String,
        /// The side as given.
        found: String,
    },
    /// A number out of its range.
    #[error("anomaly rule `{rule}`: `{parameter}` is {found}, and {}", allowed(*low, *high))]
    Range {
        /// The rule.
        rule: String,
        /// The parameter.
        parameter: &'static str,
        /// As given; durations in seconds.
        found: f64,
        /// The least that is allowed.
        low: f64,
        /// The most that is allowed.
        high: f64,
    },
}

/// What a number may be. A bound that every number keeps is none to tell: it has 309 digits.
fn allowed(low: f64, high: f64) -> String {
    match (low == f64::MIN, high == f64::MAX) {
        (true, true) => "must be a finite number".to_owned(),
        (false, true) => format!("must be a finite number from {low} on"),
        (true, false) => format!("goes up to {high}"),
        (false, false) => format!("goes from {low} to {high}"),
    }
}

/// A rule that was checked.
#[derive(Clone, Debug)]
pub(super) struct Judge {
    pub(super) name: String,
    /// As given, and perhaps with the node in front.
    pub(super) patterns: Vec<TopicPattern>,
    /// Some vertex has matched.
    pub(super) has_matched: bool,
    pub(super) events_per_minute: u32,
    pub(super) settings: Settings,
}

/// Which detector, and with what.
#[derive(Clone, Debug)]
pub(super) enum Settings {
    Threshold(threshold::Settings),
    RobustZ(robust_z::Settings),
    ChangePoint(change_point::Settings),
    Extreme(extreme::Settings),
}

impl Settings {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Threshold(_) => DETECTORS[0],
            Self::RobustZ(_) => DETECTORS[1],
            Self::ChangePoint(_) => DETECTORS[2],
            Self::Extreme(_) => DETECTORS[3],
        }
    }
}

impl Judge {
    pub(super) fn all(rules: &[Rule], node: Option<&str>) -> Result<Vec<Self>, RuleError> {
        if rules.len() > MAX_RULES {
            return Err(RuleError::TooMany(rules.len()));
        }
        for (at, rule) in rules.iter().enumerate() {
            if rules[..at].iter().any(|other| other.name == rule.name) {
                return Err(RuleError::Twice(rule.name.clone()));
            }
        }
        rules.iter().map(|rule| Self::new(rule, node)).collect()
    }

    fn new(rule: &Rule, node: Option<&str>) -> Result<Self, RuleError> {
        if rule.name.contains('/') || Topic::new(&rule.name).is_err() {
            return Err(RuleError::Name(rule.name.clone()));
        }
        let wrong = |source| RuleError::Topic { rule: rule.name.clone(), source };
        let mut patterns = vec![TopicPattern::new(&rule.topic).map_err(wrong)?];
        // A pattern that begins with a wildcard has the place of the node already.
        if let Some(node) = node.filter(|_| !rule.topic.starts_with('*')) {
            // What gets too long for a topic by it matches none.
            patterns.extend(TopicPattern::new(&format!("{node}/{}", rule.topic)).ok());
        }
        let reader = Reader(rule);
        let settings = match rule.detector.as_str() {
            "threshold" => Settings::Threshold(reader.threshold()?),
            "robust-z" => Settings::RobustZ(reader.robust_z()?),
            "change-point" => Settings::ChangePoint(reader.change_point()?),
            "extreme" => Settings::Extreme(reader.extreme()?),
            found => {
                let found = found.to_owned();
                return Err(RuleError::Detector { rule: rule.name.clone(), found });
            }
        };
        let events_per_minute = reader.whole(
            "events_per_minute",
            rule.events_per_minute,
            EVENTS_PER_MINUTE,
            (1, MAX_EVENTS_PER_MINUTE_OF_ONE),
        )?;
        Ok(Self {
            name: rule.name.clone(),
            patterns,
            has_matched: false,
            events_per_minute,
            settings,
        })
    }

    /// A detector that has seen nothing.
    pub(super) fn detector(&self) -> Box<dyn Detector> {
        match self.settings {
            Settings::Threshold(settings) => Box::new(Threshold::new(settings)),
            Settings::RobustZ(settings) => Box::new(RobustZ::new(settings)),
            Settings::ChangePoint(settings) => Box::new(ChangePoint::new(settings)),
            Settings::Extreme(settings) => Box::new(Extreme::new(settings)),
        }
    }

    /// The memory of one, all of which it has from the start.
    pub(super) fn bytes(&self) -> usize {
        let detector = match self.settings {
            Settings::Threshold(_) => size_of::<Threshold>(),
            Settings::RobustZ(robust_z::Settings { window, .. }) => {
                size_of::<RobustZ>() + 2 * window * size_of::<f64>()
            }
            Settings::ChangePoint(_) => size_of::<ChangePoint>(),
            Settings::Extreme(_) => size_of::<Extreme>(),
        };
        detector + watch::STATE_BYTES
    }
}

/// Makes settings of a rule's parameters.
struct Reader<'a>(&'a Rule);

impl Reader<'_> {
    fn threshold(&self) -> Result<threshold::Settings, RuleError> {
        self.only(DETECTORS[0], &["above", "below", "clear", "for"])?;
        let (side, name, level) = match (self.0.above, self.0.below) {
            (Some(level), None) => (threshold::Side::Above, "above", level),
            (None, Some(level)) => (threshold::Side::Below, "below", level),
            _ => return Err(RuleError::Level(self.0.name.clone())),
        };
        let anything = (f64::MIN, f64::MAX);
        let level = self.number(name, Some(level), level, anything)?;
        let clear = self.number("clear", self.0.clear, level, anything)?;
        let usual = match side {
            threshold::Side::Above => clear <= level,
            threshold::Side::Below => clear >= level,
        };
        if !usual {
            return Err(RuleError::Clear { rule: self.0.name.clone(), clear, side: name, level });
        }
        let hold = self.duration("for", self.0.hold, 0.0)?.unwrap_or_default();
        Ok(threshold::Settings { side, level, clear, hold })
    }

    fn robust_z(&self) -> Result<robust_z::Settings, RuleError> {
        use robust_z::Settings;
        self.only(DETECTORS[1], &["window", "threshold", "clear", "min_spread"])?;
        let usual = Settings::DEFAULT;
        let windows = (Settings::MIN_WINDOW as u32, Settings::MAX_WINDOW as u32);
        let threshold = self.number("threshold", self.0.threshold, usual.threshold, (1.0, 1e6))?;
        let clear = usual.clear.min(threshold);
        let clear = self.number("clear", self.0.clear, clear, (0.0, 1e6))?;
        if clear > threshold {
            let (rule, side) = (self.0.name.clone(), "threshold");
            return Err(RuleError::Clear { rule, clear, side, level: threshold });
        }
        Ok(Settings {
            window: self.whole("window", self.0.window, usual.window as u32, windows)? as usize,
            threshold,
            clear,
            min_spread: self.min_spread()?,
        })
    }

    fn change_point(&self) -> Result<change_point::Settings, RuleError> {
        use change_point::Settings;
        self.only(DETECTORS[2], &["window", "drift", "threshold", "min_spread"])?;
        let usual = Settings::DEFAULT;
        let windows = (Settings::MIN_WINDOW, Settings::MAX_WINDOW);
        // A drift of the clip or more would never add up to anything.
        let drifts = (0.0, change_point::CLIP - 1.0);
        Ok(Settings {
            window: self.whole("window", self.0.window, usual.window, windows)?,
            drift: self.number("drift", self.0.drift, usual.drift, drifts)?,
            threshold: self.number("threshold", self.0.threshold, usual.threshold, (1.0, 1e6))?,
            min_spread: self.min_spread()?,
        })
    }

    fn extreme(&self) -> Result<extreme::Settings, RuleError> {
        use extreme::Settings;
        self.only(DETECTORS[3], &["side", "after", "margin", "horizon", "min_spread"])?;
        let usual = Settings::DEFAULT;
        let side = match self.0.side.as_deref() {
            None => usual.side,
            Some("high") => extreme::Side::High,
            Some("low") => extreme::Side::Low,
            Some("both") => extreme::Side::Both,
            Some(found) => {
                let (rule, found) = (self.0.name.clone(), found.to_owned());
                return Err(RuleError::Side { rule, found });
            }
        };
        Ok(Settings {
            side,
            after: self.whole("after", self.0.after, usual.after, (2, 1_000_000))?,
            margin: self.number("margin", self.0.margin, usual.margin, (0.0, 1000.0))?,
            horizon: self.duration("horizon", self.0.horizon, 1.0)?,
            min_spread: self.min_spread()?,
        })
    }

    fn only(&self, detector: &'static str, has: &'static [&'static str]) -> Result<(), RuleError> {
        match self.0.given().find(|given| !has.contains(given)) {
            Some(parameter) => {
                let rule = self.0.name.clone();
                Err(RuleError::Parameter { rule, detector, parameter, has })
            }
            None => Ok(()),
        }
    }

    fn min_spread(&self) -> Result<f64, RuleError> {
        self.number("min_spread", self.0.min_spread, 0.0, (0.0, f64::MAX))
    }

    fn number(
        &self,
        parameter: &'static str,
        given: Option<f64>,
        usual: f64,
        (low, high): (f64, f64),
    ) -> Result<f64, RuleError> {
        let found = given.unwrap_or(usual);
        if (low..=high).contains(&found) {
            Ok(found)
        } else {
            Err(RuleError::Range { rule: self.0.name.clone(), parameter, found, low, high })
        }
    }

    fn whole(
        &self,
        parameter: &'static str,
        given: Option<u32>,
        usual: u32,
        (low, high): (u32, u32),
    ) -> Result<u32, RuleError> {
        let found = given.unwrap_or(usual);
        self.number(parameter, Some(found.into()), 0.0, (low.into(), high.into()))?;
        Ok(found)
    }

    fn duration(
        &self,
        parameter: &'static str,
        given: Option<Duration>,
        low: f64,
    ) -> Result<Option<Duration>, RuleError> {
        let Some(found) = given else { return Ok(None) };
        let high = MAX_DURATION.as_secs_f64();
        self.number(parameter, Some(found.as_secs_f64()), 0.0, (low, high))?;
        Ok(Some(found))
    }
}

use std::time::Duration;

use serde::Deserialize;
use skopos_model::{Topic, TopicPattern};
use thiserror::Error;

use super::Detector;
use super::change_point::{self, ChangePoint};
use super::envelope::{self, Envelope};
use super::extreme::{self, Extreme};
use super::robust_z::{self, RobustZ};
use super::threshold::{self, Threshold};

/// The names of the detectors.
pub const DETECTORS: [&str; 5] = ["threshold", "robust-z", "change-point", "extreme", "envelope"];

/// The most rules of one watch: each rule is matched with each vertex that joins.
pub const MAX_RULES: usize = 256;

/// The greatest `events_per_minute` of a rule, per vertex: one a second, because a sensor polled
/// each second cannot show more.
pub const MAX_EVENTS_PER_MINUTE_PER_VERTEX: u32 = 60;

/// The default of `events_per_minute`: enough to see that a value flaps.
const EVENTS_PER_MINUTE: u32 = 6;

/// The longest `for` and `horizon`: a year. Leave out `horizon` for an unlimited time.
const MAX_DURATION: Duration = Duration::from_secs(366 * 86_400);

/// One `[[anomaly]]` table of the configuration. Parameters that are `None` have the defaults of
/// the detector's `Settings`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// The name that events carry: one segment of a topic.
    pub name: String,
    /// A pattern of topics; each matching vertex is judged on its own.
    pub topic: String,
    /// The detector: one of [`DETECTORS`].
    pub detector: String,
    /// `threshold`: values above are unusual.
    pub above: Option<f64>,
    /// `threshold`: values below are unusual.
    pub below: Option<f64>,
    /// `threshold`: the level at which a value is usual again. `robust-z`: the same in deviations.
    pub clear: Option<f64>,
    /// `threshold`: the time for which a value must be beyond the level.
    #[serde(default, rename = "for", deserialize_with = "crate::duration::optional")]
    pub hold: Option<Duration>,
    /// `robust-z`, `change-point`, `envelope`: the number of samples that establish the usual values.
    pub window: Option<u32>,
    /// `robust-z`, `change-point`: the threshold in standard deviations.
    pub threshold: Option<f64>,
    /// `change-point`: the smallest shift that is found, in standard deviations.
    pub drift: Option<f64>,
    /// `extreme`: `high`, `low` or `both`.
    pub side: Option<String>,
    /// `extreme`, `envelope`: the number of samples that establish a range.
    pub after: Option<u32>,
    /// `extreme`, `envelope`: the distance from the range, as a share of its width.
    pub margin: Option<f64>,
    /// `envelope`: the number of samples in a row that must be outside.
    pub persist: Option<u32>,
    /// `extreme`: the age from which samples are dropped.
    #[serde(default, deserialize_with = "crate::duration::optional")]
    pub horizon: Option<Duration>,
    /// All but `threshold`: the least spread, in the unit of the value.
    pub min_spread: Option<f64>,
    /// All: the most events per minute of one vertex.
    pub events_per_minute: Option<u32>,
}

impl Rule {
    /// Creates a rule with the defaults of its detector.
    pub fn new(name: &str, topic: &str, detector: &str) -> Self {
        Self {
            name: name.to_owned(),
            topic: topic.to_owned(),
            detector: detector.to_owned(),
            ..Self::default()
        }
    }

    /// Checks the rule alone.
    ///
    /// # Errors
    /// Returns the first error in it.
    pub fn check(&self) -> Result<(), RuleError> {
        CheckedRule::new(self, None).map(drop)
    }

    /// Returns the given parameters, without those that every detector has.
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
            ("persist", self.persist.is_some()),
            ("horizon", self.horizon.is_some()),
            ("min_spread", self.min_spread.is_some()),
        ]
        .into_iter()
        .filter_map(|(name, given)| given.then_some(name))
    }
}

/// An error in the rules.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum RuleError {
    /// There are more than [`MAX_RULES`] rules.
    #[error(
        "there are {0} anomaly rules, but at most {MAX_RULES} are allowed; one pattern may match \
         many topics"
    )]
    TooMany(usize),
    /// The name is not a segment of a topic.
    #[error(
        "`{0}` is not a valid name of an anomaly rule: a name is one segment of a topic, a-z 0-9 _ \
         - . : @ + = %"
    )]
    Name(String),
    /// Two rules have the same name.
    #[error("two anomaly rules have the name `{0}`; events identify a rule by its name")]
    Twice(String),
    /// The topic is not a pattern.
    #[error("anomaly rule `{rule}`: its topic is not a valid pattern")]
    Topic {
        /// The rule.
        rule: String,
        /// The error of the pattern.
        #[source]
        source: skopos_model::Error,
    },
    /// The detector does not exist.
    #[error(
        "anomaly rule `{rule}`: `{found}` is not a detector; a detector is `threshold`, `robust-z`, \
         `change-point`, `extreme` or `envelope`"
    )]
    Detector {
        /// The rule.
        rule: String,
        /// The given name.
        found: String,
    },
    /// The parameter belongs to another detector.
    #[error(
        "anomaly rule `{rule}`: `{parameter}` is not a parameter of `{detector}`, which has `{}`",
        .has.join("`, `")
    )]
    Parameter {
        /// The rule.
        rule: String,
        /// Its detector.
        detector: &'static str,
        /// The parameter that the detector does not have.
        parameter: &'static str,
        /// The parameters of the detector.
        has: &'static [&'static str],
    },
    /// The threshold has no level, or two.
    #[error(
        "anomaly rule `{0}`: a threshold needs either `above` or `below`; for a band write two rules"
    )]
    Level(String),
    /// The level to clear at lies on the unusual side.
    #[error(
        "anomaly rule `{rule}`: `clear = {clear}` lies on the unusual side of `{side} = {level}`, so \
         an anomaly would be cleared as soon as it is raised"
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
    /// The side does not exist.
    #[error("anomaly rule `{rule}`: `{found}` is not a side; a side is `high`, `low` or `both`")]
    Side {
        /// The rule.
        rule: String,
        /// The given side.
        found: String,
    },
    /// A number is out of its range.
    #[error("anomaly rule `{rule}`: `{parameter}` is {found}, but it {}", allowed(*low, *high))]
    Range {
        /// The rule.
        rule: String,
        /// The parameter.
        parameter: &'static str,
        /// The given value; durations in seconds.
        found: f64,
        /// The least allowed value.
        low: f64,
        /// The greatest allowed value.
        high: f64,
    },
}

/// Returns the allowed range as text. It leaves out a bound that every number keeps, which has 309
/// digits.
fn allowed(low: f64, high: f64) -> String {
    match (low == f64::MIN, high == f64::MAX) {
        (true, true) => "must be a finite number".to_owned(),
        (false, true) => format!("must be a finite number of at least {low}"),
        (true, false) => format!("must be at most {high}"),
        (false, false) => format!("must be from {low} to {high}"),
    }
}

/// A rule that passed all checks.
#[derive(Clone, Debug)]
pub(super) struct CheckedRule {
    pub(super) name: String,
    /// The pattern as given, and a second one with the node in front if that may be left out.
    pub(super) patterns: Vec<TopicPattern>,
    /// True once a vertex has matched.
    pub(super) has_matched: bool,
    pub(super) events_per_minute: u32,
    pub(super) settings: Settings,
}

/// The detector and its parameters.
#[derive(Clone, Debug)]
pub(super) enum Settings {
    Threshold(threshold::Settings),
    RobustZ(robust_z::Settings),
    ChangePoint(change_point::Settings),
    Extreme(extreme::Settings),
    Envelope(envelope::Settings),
}

impl Settings {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Threshold(_) => DETECTORS[0],
            Self::RobustZ(_) => DETECTORS[1],
            Self::ChangePoint(_) => DETECTORS[2],
            Self::Extreme(_) => DETECTORS[3],
            Self::Envelope(_) => DETECTORS[4],
        }
    }
}

impl CheckedRule {
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
        // A pattern that begins with a wildcard already has a place for the node.
        if let Some(node) = node.filter(|_| !rule.topic.starts_with('*')) {
            // A pattern that becomes too long for a topic cannot match.
            patterns.extend(TopicPattern::new(&format!("{node}/{}", rule.topic)).ok());
        }
        let reader = Reader(rule);
        let settings = match rule.detector.as_str() {
            "threshold" => Settings::Threshold(reader.threshold()?),
            "robust-z" => Settings::RobustZ(reader.robust_z()?),
            "change-point" => Settings::ChangePoint(reader.change_point()?),
            "extreme" => Settings::Extreme(reader.extreme()?),
            "envelope" => Settings::Envelope(reader.envelope()?),
            found => {
                let found = found.to_owned();
                return Err(RuleError::Detector { rule: rule.name.clone(), found });
            }
        };
        let events_per_minute = reader.whole(
            "events_per_minute",
            rule.events_per_minute,
            EVENTS_PER_MINUTE,
            (1, MAX_EVENTS_PER_MINUTE_PER_VERTEX),
        )?;
        Ok(Self {
            name: rule.name.clone(),
            patterns,
            has_matched: false,
            events_per_minute,
            settings,
        })
    }

    /// Creates a detector without samples.
    pub(super) fn detector(&self) -> Box<dyn Detector> {
        match self.settings {
            Settings::Threshold(settings) => Box::new(Threshold::new(settings)),
            Settings::RobustZ(settings) => Box::new(RobustZ::new(settings)),
            Settings::ChangePoint(settings) => Box::new(ChangePoint::new(settings)),
            Settings::Extreme(settings) => Box::new(Extreme::new(settings)),
            Settings::Envelope(settings) => Box::new(Envelope::new(settings)),
        }
    }

    /// Returns the memory of one detector, all of which it allocates at the start.
    pub(super) fn detector_bytes(&self) -> usize {
        match self.settings {
            Settings::Threshold(_) => size_of::<Threshold>(),
            Settings::RobustZ(robust_z::Settings { window, .. }) => {
                size_of::<RobustZ>() + 2 * window * size_of::<f64>()
            }
            Settings::ChangePoint(_) => size_of::<ChangePoint>(),
            Settings::Extreme(_) => size_of::<Extreme>(),
            Settings::Envelope(_) => size_of::<Envelope>(),
        }
    }
}

/// Converts the parameters of a rule to settings.
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
        // A drift of the clip or more would never sum up.
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

    fn envelope(&self) -> Result<envelope::Settings, RuleError> {
        use envelope::Settings;
        self.only(DETECTORS[4], &["window", "margin", "after", "persist", "min_spread"])?;
        let usual = Settings::DEFAULT;
        let windows = (Settings::MIN_WINDOW, Settings::MAX_WINDOW);
        let persists = (1, Settings::MAX_PERSIST);
        Ok(Settings {
            window: self.whole("window", self.0.window, usual.window, windows)?,
            margin: self.number("margin", self.0.margin, usual.margin, (0.0, 1000.0))?,
            after: self.whole("after", self.0.after, usual.after, (2, 1_000_000))?,
            persist: self.whole("persist", self.0.persist, usual.persist, persists)?,
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

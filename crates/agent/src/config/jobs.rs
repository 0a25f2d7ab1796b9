//! The table `[jobs]`, and what it shares with the table `[hub.jobs]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use skopos_model::{Topic, TopicPattern};

/// Facts of a node that are recorded with its jobs unless others are configured: those that findings read, and what people look
/// for first.
const DEFAULT_TOPICS: [&str; 8] = [
    "*/cpu/total/busy_ratio",
    "*/load/load_1m",
    "*/mem/available_bytes",
    "*/psi/*/some_avg10_ratio",
    "*/swap/total/in_bytes_total",
    "*/gpu/*/*_ratio",
    "*/netdev/*/*_bytes_total",
    "*/block/*/*_bytes_total",
];

/// Time between two measurements, unless another one is configured.
const DEFAULT_EVERY: Duration = Duration::from_secs(10);

/// The least time: a hub reads the latest values of all nodes of jobs, and an agent sends a message.
const MIN_EVERY: Duration = Duration::from_secs(1);

/// The longest time of an agent. From ten minutes of silence on, a hub records facts of the node itself.
const MAX_EVERY: Duration = Duration::from_secs(300);

/// Facts of nodes that are recorded with jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct JobFacts {
    /// The topics. Facts of a job, such as those of its control group, are recorded besides.
    pub topics: Vec<TopicPattern>,
    /// Time between two measurements.
    pub every: Duration,
}

impl JobFacts {
    /// Returns the facts with these topics and this time, with defaults for what is not given.
    pub fn of(topics: Option<&[TopicPattern]>, every: Option<Duration>) -> Self {
        let usual = || DEFAULT_TOPICS.iter().filter_map(|topic| topic.parse().ok()).collect();
        let topics = topics.map_or_else(usual, <[_]>::to_vec);
        Self { topics, every: every.unwrap_or(DEFAULT_EVERY) }
    }
}

/// Facts of this node that the agent delivers with the records of jobs: `[jobs]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobsConfig {
    /// Topics of the facts.
    #[serde(deserialize_with = "some_patterns")]
    facts: Option<Vec<TopicPattern>>,
    /// Time between two measurements.
    #[serde(deserialize_with = "few_minutes")]
    facts_every: Option<Duration>,
    /// Name of the hub that takes the records, if several do.
    #[serde(deserialize_with = "name")]
    pub hub: Option<String>,
    /// Path of the folder in which records wait while the hub is away. By default it is in the folder of state.
    pub spool: Option<PathBuf>,
}

impl JobsConfig {
    /// Returns the facts to deliver, with defaults.
    pub fn facts(&self) -> JobFacts {
        JobFacts::of(self.facts.as_deref(), self.facts_every)
    }
}

/// Reads patterns of topics.
///
/// # Errors
/// A text is not a pattern.
pub fn patterns<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<TopicPattern>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let parsed: Result<Vec<TopicPattern>, _> = texts.iter().map(|text| text.parse()).collect();
    parsed.map_err(Error::custom)
}

/// Reads patterns of topics that are given.
///
/// # Errors
/// A text is not a pattern.
pub fn some_patterns<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Vec<TopicPattern>>, D::Error> {
    patterns(from).map(Some)
}

/// Reads the time between two measurements of the nodes of jobs.
///
/// # Errors
/// The text is not a time, or the time is too short.
pub fn facts_every<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let every = skopos_score::duration::optional(from)?;
    match every.is_none_or(|every| every >= MIN_EVERY) {
        true => Ok(every),
        false => Err(Error::custom("the shortest time is `1s`")),
    }
}

fn few_minutes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let every = facts_every(from)?;
    match every.is_none_or(|every| every <= MAX_EVERY) {
        true => Ok(every),
        false => Err(Error::custom("the longest time is `5m`")),
    }
}

/// Reads the name of a hub, which is one segment of a topic.
fn name<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(from)?;
    match Topic::new(&text) {
        Ok(topic) if topic.node() == text => Ok(Some(text)),
        _ => Err(Error::custom(format!("`{text}` is not the name of a hub, such as `hub1`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_checked_and_have_defaults() {
        let usual: JobsConfig = toml::from_str("").expect("valid");
        let facts = usual.facts();
        assert_eq!((facts.topics.len(), facts.every), (DEFAULT_TOPICS.len(), DEFAULT_EVERY));
        let only =
            "facts = []\nfacts_every = \"1s\"\nhub = \"hub1\"\nspool = \"/var/spool/skopos\"";
        let only: JobsConfig = toml::from_str(only).expect("valid");
        assert_eq!(only.facts(), JobFacts { topics: Vec::new(), every: MIN_EVERY });
        for (text, expected) in [
            ("facts = [\"a//b\"]", "line 1"),
            ("facts_every = \"10ms\"", "the shortest time is `1s`"),
            ("facts_every = \"1h\"", "the longest time is `5m`"),
            ("hub = \"tls/hub1\"", "`tls/hub1` is not the name of a hub"),
            ("fact = []", "unknown field"),
        ] {
            let error = toml::from_str::<JobsConfig>(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

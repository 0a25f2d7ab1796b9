//! The table `[hub.jobs]`.

use std::time::Duration;

use serde::{Deserialize, Deserializer};
use skopos_model::TopicPattern;
use skopos_store::jobs::Retention;

use crate::bucket::BucketConfig;
use crate::jobs::{JobsLimits, NodeFactsConfig};

fn some_patterns<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<TopicPattern>>, D::Error> {
    super::remote_write::patterns(deserializer).map(Some)
}

/// Limits of stored jobs: `[hub.jobs]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JobsConfig {
    /// Largest size of all segments.
    #[serde(deserialize_with = "skopos_agent::config::bytes")]
    pub max_bytes: Option<u64>,
    /// Age after which jobs are removed.
    #[serde(deserialize_with = "skopos_score::duration::optional")]
    pub max_age: Option<Duration>,
    /// Facts of nodes that are recorded with each job.
    #[serde(deserialize_with = "some_patterns")]
    pub facts: Option<Vec<TopicPattern>>,
    /// Time between two measurements of these.
    #[serde(deserialize_with = "skopos_score::duration::optional")]
    pub facts_every: Option<Duration>,
    /// Bucket of the segments; a folder on this machine if there is none.
    pub s3: Option<BucketConfig>,
}

impl JobsConfig {
    /// Returns the facts of nodes to record, with defaults.
    pub fn node_facts(&self) -> NodeFactsConfig {
        let defaults = NodeFactsConfig::default();
        NodeFactsConfig {
            topics: self.facts.clone().unwrap_or(defaults.topics),
            every: self.facts_every.unwrap_or(defaults.every),
        }
    }

    /// Returns the configured limits, with defaults for the others.
    pub fn limits(&self) -> JobsLimits {
        let defaults = JobsLimits::default();
        let retention = Retention {
            max_bytes: self.max_bytes.unwrap_or(defaults.retention.max_bytes),
            max_age: self.max_age.unwrap_or(defaults.retention.max_age),
        };
        JobsLimits { retention, ..defaults }
    }
}

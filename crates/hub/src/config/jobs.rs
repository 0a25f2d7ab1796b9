//! The table `[hub.jobs]`.

use std::time::Duration;

use serde::Deserialize;
use skopos_store::jobs::Retention;

use crate::bucket::BucketConfig;
use crate::jobs::JobsLimits;

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
    /// Bucket of the segments; a folder on this machine if there is none.
    pub s3: Option<BucketConfig>,
}

impl JobsConfig {
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

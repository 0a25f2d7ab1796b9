//! The table `[hub.jobs]`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use skopos_agent::config::JobFacts;
use skopos_model::TopicPattern;
use skopos_store::jobs::Retention;

use crate::bucket::BucketConfig;
use crate::jobs::{HelpedPlace, JobsLimits};

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
    /// URLs of the Flight listeners at which clients download jobs of this site, this hub's own and those of hubs that have
    /// the same segments. Without any, clients use the address at which they asked.
    #[serde(deserialize_with = "urls")]
    pub locations: Vec<String>,
    /// URLs of the Flight listeners of other sites, by the names of the sites.
    #[serde(deserialize_with = "urls_by_name")]
    pub sites: BTreeMap<String, String>,
    /// Facts of nodes that are recorded with each job.
    #[serde(deserialize_with = "skopos_agent::config::some_patterns")]
    pub facts: Option<Vec<TopicPattern>>,
    /// Time between two measurements of these.
    #[serde(deserialize_with = "skopos_agent::config::facts_every")]
    pub facts_every: Option<Duration>,
    /// Bucket of the segments; a folder on this machine if there is none.
    pub s3: Option<BucketConfig>,
    /// Address of the Flight listener of a hub that keeps a copy: `HOST:PORT`.
    #[serde(deserialize_with = "address")]
    pub replica: Option<String>,
    /// URLs of the Flight listeners of hubs that answer statements about segments together with this one.
    #[serde(deserialize_with = "urls")]
    pub helpers: Vec<String>,
    /// Folder or bucket of the segments of the hub that this one helps.
    pub helps_with: Option<HelpedPlace>,
}

/// Reads a host and a port.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let parts = text.rsplit_once(':');
    let is_address = parts.is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    match is_address {
        true => Ok(Some(text)),
        false => Err(D::Error::custom(format!(
            "`{text}` is not the address of a Flight listener, such as `hub2:7471`"
        ))),
    }
}

/// The most sites and locations: more than there are computing centres of one kind in a country. Each is in every answer.
const MAX_URLS: usize = 128;

fn check_url(url: &str) -> Result<(), String> {
    let rest = url.strip_prefix("grpc://").or_else(|| url.strip_prefix("grpc+tls://"));
    let is_valid = rest.is_some_and(|rest| {
        let port = rest.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        matches!(port, Some(Ok(_))) && !rest.contains('/') && !rest.contains(char::is_whitespace)
    });
    match is_valid {
        true => Ok(()),
        false => Err(format!(
            "`{url}` is not the URL of a Flight listener: write it like `grpc+tls://hub1.example:7471`"
        )),
    }
}

fn urls<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let urls = Vec::<String>::deserialize(deserializer)?;
    urls.iter().try_for_each(|url| check_url(url)).map_err(serde::de::Error::custom)?;
    match urls.len() <= MAX_URLS {
        true => Ok(urls),
        false => Err(serde::de::Error::custom(format!("more than {MAX_URLS} locations"))),
    }
}

fn urls_by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let urls = BTreeMap::<String, String>::deserialize(deserializer)?;
    urls.values().try_for_each(|url| check_url(url)).map_err(serde::de::Error::custom)?;
    match urls.len() <= MAX_URLS {
        true => Ok(urls),
        false => Err(serde::de::Error::custom(format!("more than {MAX_URLS} sites"))),
    }
}

impl JobsConfig {
    /// Returns the facts of nodes to record, with defaults.
    pub fn node_facts(&self) -> JobFacts {
        JobFacts::of(self.facts.as_deref(), self.facts_every)
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

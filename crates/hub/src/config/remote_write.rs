//! The table `[hub.remote_write]`.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Deserializer};
use skopos_model::TopicPattern;

/// Default time between two sends: the scrape interval in Prometheus' examples.
const EVERY: Duration = Duration::from_secs(15);

/// Minimum time between two sends. Stores are not built for shorter intervals.
const SHORTEST: Duration = Duration::from_secs(1);

/// A store that takes Prometheus' remote write: `[hub.remote_write]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RemoteWriteConfig {
    /// URL of the store.
    #[serde(deserialize_with = "url")]
    pub url: String,
    /// Topics to send [default: all].
    #[serde(default = "all", deserialize_with = "skopos_agent::config::patterns")]
    pub topics: Vec<TopicPattern>,
    /// Time between two sends.
    #[serde(default = "usual", deserialize_with = "every")]
    pub every: Duration,
    /// Further headers of each request, such as `Authorization`.
    #[serde(default, deserialize_with = "headers")]
    pub headers: BTreeMap<String, String>,
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let url = String::deserialize(deserializer)?;
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/')) {
        true => Ok(url),
        false => Err(serde::de::Error::custom(format!(
            "`{url}` is not the URL of a store: write it like `http://127.0.0.1:9090/api/v1/write`"
        ))),
    }
}

fn all() -> Vec<TopicPattern> {
    "**".parse().into_iter().collect()
}

fn usual() -> Duration {
    EVERY
}

fn every<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let every = skopos_score::duration::optional(deserializer)?.unwrap_or(EVERY);
    match every >= SHORTEST {
        true => Ok(every),
        false => Err(serde::de::Error::custom("the shortest time is `1s`")),
    }
}

fn headers<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, String>, D::Error> {
    let headers = BTreeMap::<String, String>::deserialize(deserializer)?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    for (name, value) in &headers {
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(serde::de::Error::custom(format!("`{name}` is not a valid header name")));
        }
        // The value may be a secret.
        if !value.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
            let message = format!(
                "the value of the header `{name}` has characters that a header cannot have"
            );
            return Err(serde::de::Error::custom(message));
        }
    }
    Ok(headers)
}

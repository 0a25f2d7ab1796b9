//! The table `[hub]` of the configuration file.

pub mod door;
pub mod remote_write;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use skopos_agent::config::{Config, parse};
use skopos_model::Topic;

pub use door::{DoorAt, FlightAt, HttpAt};
pub use remote_write::RemoteWriteConfig;
use skopos_term::Failure;

/// The table `[hub]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HubConfig {
    /// Tables of one topic each, by names of the user's.
    #[serde(deserialize_with = "by_name")]
    pub aliases: BTreeMap<String, Topic>,
    /// Where it is asked by HTTP.
    pub http: Option<HttpAt>,
    /// Where it is asked by Arrow Flight SQL.
    pub flight: Option<FlightAt>,
    /// The store that latest values are sent to.
    pub remote_write: Option<RemoteWriteConfig>,
}

fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Topic>, D::Error> {
    let all = BTreeMap::<String, String>::deserialize(deserializer)?;
    let parsed = all.into_iter().map(|(name, topic)| Ok((name, topic.parse()?)));
    parsed.collect::<Result<_, skopos_model::Error>>().map_err(serde::de::Error::custom)
}

impl HubConfig {
    /// Reads the table `[hub]` of a configuration file.
    ///
    /// # Errors
    /// It is not understood; the message shows the line.
    pub fn of(config: &Config) -> Result<Self, Failure> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct File {
            hub: HubConfig,
        }
        Ok(parse::<File>(&config.text, config.path.as_deref())?.hub)
    }
}

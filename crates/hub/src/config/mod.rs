//! The table `[hub]` of the configuration file.

mod listen;
mod remote_write;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use skopos_agent::config::{Config, parse};
use skopos_model::Topic;

pub use listen::{FlightAddress, HttpAddress, ListenAddress};
pub use remote_write::RemoteWriteConfig;
use skopos_term::Failure;

/// The table `[hub]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HubConfig {
    /// Tables of one topic each, under names that the user chooses.
    #[serde(deserialize_with = "by_name")]
    pub aliases: BTreeMap<String, Topic>,
    /// Address of the HTTP listener.
    pub http: Option<HttpAddress>,
    /// Address of the Arrow Flight SQL listener.
    pub flight: Option<FlightAddress>,
    /// Store to which the hub sends latest values.
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
    /// Fails if the table is not valid; the message shows the line.
    pub fn of(config: &Config) -> Result<Self, Failure> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct File {
            hub: HubConfig,
        }
        Ok(parse::<File>(&config.text, config.path.as_deref())?.hub)
    }
}

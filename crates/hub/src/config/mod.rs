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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<HubConfig, Failure> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("written");
        HubConfig::of(&Config::load(Some(file.path()))?)
    }

    #[test]
    fn a_mistake_in_the_table_of_the_hub_names_what_is_wrong() {
        for (text, expected) in [
            ("[hub]\nflight = \"10.0.0.1\"", "has no port: try `10.0.0.1:7471`"),
            ("[hub]\nhttps = \"10.0.0.1\"", "unknown field `https`"),
            ("[agent]\n[hub]\nhttps = \"10.0.0.1\"", "line 3"),
            ("[hub.remote_write]\nurl = \"store:9090\"", "`store:9090`"),
            ("[hub.remote_write]\ntopics = [\"**\"]", "missing field `url`"),
            ("[hub.remote_write]\nurl = \"http://a\"\nevery = \"10ms\"", "`1s`"),
            ("[hub.remote_write]\nurl = \"http://a\"\nheaders = { \"a b\" = \"c\" }", "`a b`"),
        ] {
            let failure = read(text).expect_err(text);
            assert!(failure.message().contains(expected), "{text}: {failure:?}");
        }
        let config =
            Config { text: "[hub]\nflight = \"10.0.0.1:7471\"".to_owned(), ..Config::default() };
        assert!(HubConfig::of(&config).expect("understood").flight.is_some());
    }
}

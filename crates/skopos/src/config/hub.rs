use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};
use skopos_model::Topic;

use super::door::{FlightAt, HttpAt};
use super::remote_write::RemoteWriteConfig;

/// The hub: `[hub]`. A build without it checks this part all the same.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct HubConfig {
    /// Tables of one topic each, by names of the user's.
    #[serde(deserialize_with = "by_name")]
    pub(crate) aliases: BTreeMap<String, Topic>,
    /// Where it is asked by HTTP.
    pub(crate) http: Option<HttpAt>,
    /// Where it is asked by Arrow Flight SQL.
    pub(crate) flight: Option<FlightAt>,
    /// The store that latest values are sent to.
    pub(crate) remote_write: Option<RemoteWriteConfig>,
}

fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Topic>, D::Error> {
    let all = BTreeMap::<String, String>::deserialize(deserializer)?;
    let parsed = all.into_iter().map(|(name, topic)| Ok((name, topic.parse()?)));
    parsed.collect::<Result<_, skopos_model::Error>>().map_err(serde::de::Error::custom)
}

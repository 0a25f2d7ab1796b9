//! The table `[hub]` of the configuration file, and the tables `[[rule]]`.

mod jobs;
mod haproxy;
mod listen;
mod remote_write;
mod rules;

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Deserializer};
use skopos_agent::config::{Config, parse};
use skopos_model::Topic;

pub use haproxy::{HaproxyAddress, HaproxyConfig};
pub use jobs::JobsConfig;
pub use listen::{FlightAddress, HttpAddress, ListenAddress};
pub use remote_write::RemoteWriteConfig;
pub use rules::{Action, Command, RuleConfig, Url, Webhook, rules_of};
use skopos_term::Failure;

use crate::catalogue::{PostgresUrl, UrlError};

/// The table `[hub]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HubConfig {
    /// Tables of one topic each, under names that the user chooses.
    #[serde(deserialize_with = "by_name")]
    pub aliases: BTreeMap<String, Topic>,
    /// Address of the HTTP listener.
    pub http: Option<HttpAddress>,
    /// Names of the hub in URLs, beside the addresses of its listeners: a browser's request for another name is refused.
    #[serde(deserialize_with = "hosts")]
    pub hosts: Vec<String>,
    /// Address of the Arrow Flight SQL listener.
    pub flight: Option<FlightAddress>,
    /// Database that has the catalogue of jobs; a file in the folder of jobs if there is none.
    #[serde(skip)]
    pub catalogue: Option<PostgresUrl>,
    /// Its text. An error of the parser of the file would show the line, and a password with it.
    #[serde(rename = "catalogue")]
    catalogue_text: Option<String>,
    /// Limits of the stored jobs.
    pub jobs: JobsConfig,
    /// The agent-check listener for HAProxy.
    pub haproxy: Option<HaproxyConfig>,
    /// Store to which the hub sends latest values.
    pub remote_write: Option<RemoteWriteConfig>,
    /// The rules, which are tables of their own.
    #[serde(skip)]
    pub rules: Vec<RuleConfig>,
}

fn by_name<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, Topic>, D::Error> {
    let all = BTreeMap::<String, String>::deserialize(deserializer)?;
    let parsed = all.into_iter().map(|(name, topic)| Ok((name, topic.parse()?)));
    parsed.collect::<Result<_, skopos_model::Error>>().map_err(serde::de::Error::custom)
}

/// Reads names or addresses of hosts, without ports.
fn hosts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let is_host = |host: &String| {
        let is_name = host.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        host.parse::<IpAddr>().is_ok() || is_name && !host.is_empty()
    };
    let hosts = Vec::<String>::deserialize(deserializer)?;
    match hosts.iter().find(|host| !is_host(host)) {
        None => Ok(hosts),
        Some(host) => {
            let error =
                format!("`{host}` is not the name of a host; write it without scheme and port");
            Err(serde::de::Error::custom(error))
        }
    }
}

impl HubConfig {
    /// Reads the table `[hub]` and the tables `[[rule]]` of a configuration file.
    ///
    /// # Errors
    /// Fails if the table is not valid; the message shows the line.
    pub fn of(config: &Config) -> Result<Self, Failure> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct File {
            hub: HubConfig,
        }
        let mut hub = parse::<File>(&config.text, config.path.as_deref())?.hub;
        if let Some(text) = hub.catalogue_text.take() {
            let invalid = |e: UrlError| {
                let source = std::error::Error::source(&e).and_then(std::error::Error::source);
                let source = source.map(|e| format!(": {e}")).unwrap_or_default();
                Failure::new(format!("`catalogue` of the table [hub]: {e}{source}"))
            };
            hub.catalogue = Some(text.parse().map_err(invalid)?);
        }
        hub.rules = rules_of(&config.text, config.path.as_deref())?;
        Ok(hub)
    }
}

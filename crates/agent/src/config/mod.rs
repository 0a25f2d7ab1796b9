//! The configuration file, in TOML. Every entry is optional; `docs/reference/configuration.md` describes all of
//! them.
//!
//! ```toml
//! [agent]
//! budget = "1%"
//!
//! [sensors.fs]
//! policy = "fixed"
//! min_seconds = 5
//!
//! [[insight]]
//! name = "nvme-space"
//! sql = "SELECT sum(value) FROM latest WHERE topic LIKE '%/fs/nvme%/available_bytes'"
//! ```

mod sensors;
mod share;
mod history;
mod jobs;
mod ranks;
pub mod address;
pub mod telemetry;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use skopos_score::anomaly::Rule;
use skopos_score::interval::PolicyConfig;

use skopos_sense::HostSettings;
use skopos_term::Failure;

pub use history::{HistoryConfig, bytes};
pub use jobs::{JobFacts, JobsConfig, facts_every, patterns, some_patterns};
pub use ranks::{Candidate, RankConfig, remote_patterns};
pub(crate) use ranks::{check as check_ranks, filled};
pub use sensors::{DEFAULT_SENSOR, families};
pub use share::Share;

use telemetry::TelemetryConfig;

/// The longest file that is read: it has room for a thousand insights.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The environment variable with the path of the file.
const VARIABLE: &str = "SKOPOS_CONFIG";

/// The whole configuration.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Options of `skopos agent`. Command-line options win.
    pub agent: AgentConfig,
    /// The policy of each sensor, by family; `default` is for sensors without a table.
    #[serde(deserialize_with = "sensors::by_family")]
    pub sensors: BTreeMap<String, PolicyConfig>,
    /// Insights in SQL.
    pub insight: Vec<InsightConfig>,
    /// Anomaly rules, besides those that come with Skopos. A rule replaces a built-in one of the same name.
    pub anomaly: Vec<Rule>,
    /// Predicted samples.
    pub prediction: PredictionConfig,
    /// Probes of other nodes.
    pub peers: PeersConfig,
    /// Sensors of the host that are off unless they are configured.
    pub host: HostSettings,
    /// Telemetry of the network.
    pub telemetry: TelemetryConfig,
    /// The table of the hub, which parses it from [`text`](Self::text). The agent accepts any entry in it.
    hub: IgnoredAny,
    /// The rules, which a hub parses from [`text`](Self::text).
    rule: IgnoredAny,
    /// History on disk.
    pub history: HistoryConfig,
    /// Facts that are delivered with the records of jobs, if there is the table.
    pub jobs: Option<JobsConfig>,
    /// Candidates that the agent ranks.
    pub rank: Vec<RankConfig>,
    /// Path of the tiers file, relative to this file.
    pub tiers: Option<PathBuf>,
    /// Path of the file.
    #[serde(skip)]
    pub path: Option<PathBuf>,
    /// The text of the file, for crates that own a table of it.
    #[serde(skip)]
    pub text: String,
}

/// Options of `skopos agent`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentConfig {
    /// First segment of every topic.
    pub node: Option<String>,
    /// Shortest time between two polls.
    #[serde(deserialize_with = "skopos_score::duration::optional")]
    pub interval: Option<Duration>,
    /// Share of one core that sensing may use.
    pub budget: Option<Share>,
    /// Families of facts to leave out.
    pub skip: Vec<String>,
}

/// An insight in SQL.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InsightConfig {
    /// The last segments of its topic, `NODE/insight/NAME`.
    pub name: String,
    /// The statement that computes it.
    pub sql: String,
    /// The unit of its values, if it does not follow from the statement.
    pub unit: Option<String>,
    /// Time between two evaluations by a hub; without it, a hub evaluates when an input changes.
    #[serde(default, deserialize_with = "skopos_score::duration::optional")]
    pub every: Option<Duration>,
    /// The program that computes it, if the user chooses.
    #[serde(rename = "where")]
    pub place: Option<Place>,
}

/// The program that computes an insight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// The agent, at every change.
    Agent,
    /// A hub, by its engine.
    Hub,
}

/// The table `[prediction]`: predicted samples.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PredictionConfig {
    /// Patterns of topics whose predictions are published under `predicted/`, between their polls.
    pub topics: Vec<String>,
    /// Time between two predictions; a second by default.
    #[serde(deserialize_with = "skopos_score::duration::optional")]
    pub every: Option<Duration>,
}

/// The table `[peers]`: probes of other nodes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PeersConfig {
    /// The address at which the agent answers probes of other nodes.
    #[serde(deserialize_with = "address::optional")]
    pub listen: Option<SocketAddr>,
    /// Name and address of each node to probe.
    #[serde(deserialize_with = "address::by_name")]
    pub nodes: BTreeMap<String, SocketAddr>,
    /// Time between two probes of a node.
    #[serde(deserialize_with = "skopos_score::duration::optional")]
    pub interval: Option<Duration>,
    /// Timeout of a probe.
    #[serde(deserialize_with = "skopos_score::duration::optional")]
    pub timeout: Option<Duration>,
}

impl Config {
    /// Reads the file at `asked`, or else the first existing of `$SKOPOS_CONFIG`,
    /// `$XDG_CONFIG_HOME/skopos/skopos.toml` and `/etc/skopos/skopos.toml`. Without any file, returns the
    /// defaults.
    ///
    /// # Errors
    /// A named file does not exist; a file cannot be read or is not valid, and the message has the line.
    pub fn load(asked: Option<&Path>) -> Result<Self, Failure> {
        let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()).map(PathBuf::from);
        if let Some(path) = asked.map(Path::to_path_buf).or(named) {
            return Self::read(&path);
        }
        for path in usual_places() {
            match File::open(&path) {
                Ok(_) => return Self::read(&path),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                Err(e) if e.kind() == io::ErrorKind::NotADirectory => {}
                Err(e) => return Err(cannot_read(&path, &e)),
            }
        }
        Ok(Self::default())
    }

    fn read(path: &Path) -> Result<Self, Failure> {
        let text = read_text(path)?;
        let config: Self = parse(&text, Some(path))?;
        Ok(Self { path: Some(path.into()), text, ..config })
    }

    /// Returns path and text of the tiers file, if the configuration names it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn tiers_text(&self) -> Result<Option<(PathBuf, String)>, Failure> {
        let Some(tiers) = &self.tiers else { return Ok(None) };
        let beside = self.path.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let path = beside.join(tiers);
        Ok(Some((path.clone(), read_text(&path)?)))
    }
}

/// Parses the text of a configuration file as `T`, the tables that the caller owns.
///
/// # Errors
/// The text is not valid; the message has the line.
pub fn parse<T: DeserializeOwned>(text: &str, path: Option<&Path>) -> Result<T, Failure> {
    toml::from_str(text).map_err(|e| {
        Failure::new(e.to_string().trim_end())
            .in_file(path)
            .hint("docs/reference/configuration.md lists all entries")
    })
}

/// Parses tables that may have secrets. An error has the line and not its text.
///
/// # Errors
/// The text is not valid.
pub fn parse_private<T: DeserializeOwned>(text: &str, path: Option<&Path>) -> Result<T, Failure> {
    toml::from_str(text).map_err(|e| {
        let before = e.span().and_then(|span| text.get(..span.start));
        let line = before.map(|before| before.matches('\n').count() + 1);
        let place = line.map(|line| format!(" (line {line})")).unwrap_or_default();
        // A parser quotes texts that are of the wrong type.
        let message = e.message();
        let message = match (message.find('"'), message.rfind('"')) {
            (Some(from), Some(to)) if from < to => {
                format!("{}\"…{}", &message[..from], &message[to..])
            }
            _ => message.to_owned(),
        };
        Failure::new(format!("{message}{place}"))
            .in_file(path)
            .hint("docs/reference/configuration.md lists all entries")
    })
}

fn read_text(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let file = File::open(path).map_err(|e| cannot_read(path, &e))?;
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(|e| cannot_read(path, &e))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(Failure::new(format!("{} is longer than a mebibyte", path.display())));
    }
    Ok(text)
}

fn cannot_read(path: &Path, e: &io::Error) -> Failure {
    Failure::new(format!("cannot read {}", path.display())).because(e)
}

fn usual_places() -> Vec<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    home.into_iter().chain([PathBuf::from("/etc")]).map(|d| d.join("skopos/skopos.toml")).collect()
}

#[cfg(test)]
mod tests {
    use skopos_score::interval::PolicyKind;

    use super::*;

    #[test]
    fn a_file_with_all_tables_is_valid() {
        let text = r#"
            tiers = "tiers.toml"
            [agent]
            node = "n01"
            interval = "2s"
            budget = "0.5%"
            skip = ["cgroup"]
            [sensors.default]
            policy = "fixed"
            [sensors.fs]
            policy = "aimd"
            max_seconds = 30
            [[insight]]
            name = "space"
            sql = "SELECT sum(value) FROM latest WHERE topic LIKE '%/available_bytes'"
            [[anomaly]]
            name = "memory-low"
            topic = "*/mem/available_bytes"
            detector = "threshold"
            below = 1e9
            for = "10s"
            [prediction]
            topics = ["mem/available_bytes"]
            every = "500ms"
            [hub]
            flight = "10.0.0.1:7471"
            [hub.remote_write]
            url = "https://store.example/api/v1/write"
            topics = ["*/mem/**"]
            every = "10s"
            headers = { Authorization = "Bearer abc" }
            [peers]
            listen = "0.0.0.0:7361"
            nodes = { n02 = "10.0.0.2:7361" }
            [history]
            dir = "/var/lib/skopos/history"
            max_bytes = "2GiB"
            max_age = "12h"
            [jobs]
            facts_every = "30s"
            [[rank]]
            candidates = ["n02", "n03"]
            [rank.profile]
            name = "reads"
            [[rank.profile.metrics]]
            name = "rtt"
            topic = "{self}/peer/{node}/rtt_seconds"
            floor = 1e-4
        "#;
        let config: Config = toml::from_str(text).expect("understood");
        assert_eq!(config.agent.interval, Some(Duration::from_secs(2)));
        assert_eq!(config.agent.budget, Some(Share(0.005)));
        assert_eq!(config.sensors["fs"].max_seconds, Some(30.0));
        assert_eq!(config.sensors["default"].policy, Some(PolicyKind::Fixed));
        assert_eq!(config.insight[0].name, "space");
        assert_eq!(config.anomaly[0].hold, Some(Duration::from_secs(10)));
        assert_eq!(config.peers.nodes.len(), 1);
        assert_eq!(config.history.max_bytes, Some(2 << 30));
        let every = config.jobs.map(|jobs| jobs.facts().every);
        assert_eq!(every, Some(Duration::from_secs(30)));
        assert_eq!(config.rank[0].candidates.len(), 2);
    }

    #[test]
    fn only_a_hub_checks_the_table_of_the_hub() {
        assert!(toml::from_str::<Config>("[hub]\nno_such_entry = 1").is_ok());
        assert!(toml::from_str::<Config>("[hubb]\nflight = \"none\"").is_err());
    }

    #[test]
    fn an_error_names_the_mistake_and_its_line() {
        for (text, expected) in [
            ("[agent]\nbudgte = 1", "line 2"),
            ("[agent]\nbudget = \"x\"", "is not a share"),
            ("[sensors.fs]\npolicy = \"fast\"", "fast"),
            ("[agent]\n[sensors.blok]\nmin_seconds = 5", "did you mean `block`?"),
            ("[agent]\n[sensors.blok]\nmin_seconds = 5", "line 2"),
            ("[sensors.zzz]\nmin_seconds = 5", "the families are"),
            ("[[insight]]\nname = \"a\"", "sql"),
            ("[history]\nmax_bytes = \"much\"", "`much` is not a size"),
            (
                "[peers]\nlisten = \"here\"",
                "`here` is not an address: write it like `10.0.0.2:7361`",
            ),
            ("[peers]\nnodes = { n02 = \"10.0.0.2\" }", "has no port: try `10.0.0.2:7361`"),
            ("[peers]\nnodes = { n02 = \"::1\" }", "has no port: try `[::1]:7361`"),
            ("[peers]\nnodes = { n02 = \"10.0.0.2\" }", "line 2"),
        ] {
            let error = toml::from_str::<Config>(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}

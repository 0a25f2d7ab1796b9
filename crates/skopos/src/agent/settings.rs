//! What the agent was asked for: what is typed wins over what is configured, and that over what is
//! usual.

use std::time::Duration;

use skopos_model::{Topic, escape_segment, schema};
use skopos_score::budget::DEFAULT_LIMIT;
use skopos_score::interval::{Fixed, PolicyError, PolicyKind};
use skopos_sense::PeerSettings;

use crate::agent::polled::Schedule;
use crate::cli::AgentArgs;
use crate::config::{Config, DEFAULT_SENSOR, Share};
use crate::failure::Failure;

/// The shortest interval: below it a tick costs more than a whole core can give it.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// The longest interval: a day. Longer is no monitoring.
const MAX_INTERVAL: Duration = Duration::from_secs(86_400);
/// The usual one.
const INTERVAL: Duration = Duration::from_secs(1);
/// How seldom a sensor is polled that finds nothing new, unless configured: old enough to spare nine
/// polls in ten, new enough for a person who looks.
const LONGEST_SECONDS: f64 = 10.0;

/// What the agent was asked for.
pub(crate) struct Settings {
    pub(crate) node: String,
    pub(crate) interval: Duration,
    pub(crate) policy: PolicyKind,
    /// A share of one core.
    pub(crate) budget: f64,
    pub(crate) skip: Vec<String>,
    pub(crate) run_for: Option<Duration>,
    pub(crate) config: Config,
}

impl Settings {
    /// Reads the configuration, and checks what does not need this machine.
    ///
    /// # Errors
    /// The configuration is not understood; something is out of range.
    pub(crate) fn new(args: &AgentArgs) -> Result<Self, Failure> {
        let mut config = Config::load(args.config.as_deref())?;
        let interval = args.interval.or(config.agent.interval).unwrap_or(INTERVAL);
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
            return Err(Failure::new(format!("the interval {interval:?} is out of range"))
                .hint("choose one from 10ms to 1d"));
        }
        let node = args.node.clone().or(config.agent.node.take()).unwrap_or_else(host_name);
        check_node(&node)?;
        let budget = args.budget.or(config.agent.budget).map_or(DEFAULT_LIMIT, |Share(s)| s);
        let mut skip = std::mem::take(&mut config.agent.skip);
        skip.extend(args.skip.iter().cloned());
        let policy = args.policy.unwrap_or(PolicyKind::Hazard);
        let run_for = args.run_for;
        Ok(Self { node, interval, policy, budget, skip, run_for, config })
    }

    /// How often the sensor of `family` may be polled. `hint` is how long its source takes to have
    /// news.
    ///
    /// # Errors
    /// The configuration of that sensor is no policy.
    pub(crate) fn schedule(
        &self,
        family: &str,
        hint: Option<Duration>,
    ) -> Result<Schedule, Failure> {
        // A peer that answers is no surprise, and one that is dead must be seen at once.
        if family == schema::peer::FAMILY.name && !self.config.sensors.contains_key(family) {
            let shortest = self.peers().interval;
            let policy = Box::new(Fixed::new(shortest));
            return Ok(Schedule { policy, shortest, longest: shortest });
        }
        let usual = hint.map_or(self.interval, |hint| hint.max(self.interval)).as_secs_f64();
        let mut policy = self.config.policy(family, self.policy);
        let shortest = *policy.min_seconds.get_or_insert(usual);
        if policy.policy != PolicyKind::Fixed {
            policy.max_seconds.get_or_insert(shortest.max(LONGEST_SECONDS));
        }
        let wrong = |e: PolicyError| {
            let named = self.config.sensors.contains_key(family);
            let table = if named { family } else { DEFAULT_SENSOR };
            Failure::new(format!("[sensors.{table}]")).because(&e)
        };
        let bounds = policy.bounds().map_err(wrong)?;
        let policy = policy.build().map_err(wrong)?;
        Ok(Schedule { policy, shortest: bounds.min, longest: bounds.max })
    }

    /// The other nodes.
    pub(crate) fn peers(&self) -> PeerSettings {
        let peers = &self.config.peers;
        let usual = PeerSettings::of_node(&self.node);
        PeerSettings {
            listen: peers.listen,
            peers: peers.nodes.iter().map(|(name, at)| (name.clone(), *at)).collect(),
            interval: peers.interval.unwrap_or(usual.interval),
            timeout: peers.timeout.unwrap_or(usual.timeout),
            ..usual
        }
    }
}

/// The host's name up to its first dot, as a segment of a topic.
fn host_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_bytes().to_ascii_lowercase();
    let short = name.split(|&b| b == b'.').next().unwrap_or_default();
    let mut segment = String::new();
    escape_segment(short, &mut segment);
    if segment.is_empty() { "localhost".to_owned() } else { segment }
}

fn check_node(node: &str) -> Result<(), Failure> {
    let one_segment = Topic::new(node).is_ok_and(|topic| topic.segments().count() == 1);
    if one_segment && node.len() <= skopos_shm::layout::MAX_NAME_BYTES {
        return Ok(());
    }
    Err(Failure::new(format!("`{node}` is no name of a node"))
        .hint("at most 64 of the characters a-z 0-9 _ - . : @ + = %"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes() {
        for good in ["n01", "gpu-node.cluster", "%2d"] {
            assert!(check_node(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "N01", "*", &"n".repeat(65)] {
            assert!(check_node(bad).is_err(), "{bad}");
        }
    }
}

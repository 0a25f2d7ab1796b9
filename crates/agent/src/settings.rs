//! What the agent was asked for: what is typed wins over what is configured, and that over what is
//! usual.

use std::num::NonZeroUsize;
use std::time::Duration;

use skopos_model::{Topic, escape_segment, schema};
use skopos_score::budget::DEFAULT_LIMIT;
use skopos_score::interval::{Fixed, PolicyError, PolicyKind};
use skopos_sense::PeerSettings;

use crate::args::AgentArgs;
use crate::config::{Config, DEFAULT_SENSOR, Share, families};
use crate::polled::Schedule;
use skopos_term::Failure;

/// The shortest interval: below it a tick costs more than a whole core can give it.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// The longest interval: a day. Longer is no monitoring.
const MAX_INTERVAL: Duration = Duration::from_secs(86_400);
/// The usual one.
const INTERVAL: Duration = Duration::from_secs(1);
/// The usual policy.
const POLICY: PolicyKind = PolicyKind::Hazard;
/// How seldom a sensor is polled that finds nothing new, unless configured: old enough to spare nine
/// polls in ten, new enough for a person who looks.
const LONGEST_SECONDS: f64 = 10.0;

/// What the agent was asked for.
pub(crate) struct Settings {
    pub node: String,
    pub interval: Duration,
    /// As typed.
    pub policy: Option<PolicyKind>,
    /// A share of one core.
    pub budget: f64,
    pub skip: Vec<String>,
    pub run_for: Option<Duration>,
    pub config: Config,
}

impl Settings {
    /// Joins what was typed and what is configured, and checks what does not need this machine.
    ///
    /// # Errors
    /// A setting is out of range.
    pub(crate) fn new(args: &AgentArgs, mut config: Config) -> Result<Self, Failure> {
        let interval = args.interval.or(config.agent.interval).unwrap_or(INTERVAL);
        if !(MIN_INTERVAL..=MAX_INTERVAL).contains(&interval) {
            return Err(Failure::new(format!("the interval {interval:?} is out of range"))
                .hint("choose one from 10ms to 1d"));
        }
        let node = args.node.clone().or(config.agent.node.take()).unwrap_or_else(host_name);
        check_node(&node)?;
        let budget = args.budget.or(config.agent.budget).unwrap_or(Share(DEFAULT_LIMIT));
        let budget = check_budget(budget)?;
        let mut skip = std::mem::take(&mut config.agent.skip);
        skip.extend(args.skip.iter().cloned());
        check_skips(&skip)?;
        let (policy, run_for) = (args.policy, args.run_for);
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
        let mut policy = self.config.policy(family, self.policy, POLICY);
        let is_named = self.config.sensors.contains_key(family);
        // The longest of the table for all is not meant for a source that has news more rarely.
        if let (Some(longest), None, false) = (policy.max_seconds, policy.min_seconds, is_named) {
            policy.max_seconds = Some(longest.max(usual));
        }
        let is_given = policy.min_seconds.is_some();
        let shortest = *policy.min_seconds.get_or_insert(usual);
        if policy.kind() != PolicyKind::Fixed {
            policy.max_seconds.get_or_insert(shortest.max(LONGEST_SECONDS));
        }
        let wrong = |e: PolicyError| {
            let table = if is_named { family } else { DEFAULT_SENSOR };
            let failure = Failure::new(format!("[sensors.{table}]"));
            let failure = failure.in_file(self.config.path.as_deref()).because(&e);
            match e {
                PolicyError::Bounds { .. } if !is_given => failure.hint(format!(
                    "without `min_seconds` the shortest is {usual} s, what `{family}` needs to have news"
                )),
                _ => failure,
            }
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
pub fn host_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_bytes().to_ascii_lowercase();
    let short = name.split(|&b| b == b'.').next().unwrap_or_default();
    let mut segment = String::new();
    escape_segment(short, &mut segment);
    if segment.is_empty() { "localhost".to_owned() } else { segment }
}

/// A budget that the machine has, as a share of one core.
fn check_budget(budget: Share) -> Result<f64, Failure> {
    // Where the number of cores cannot be told, one is what there surely is.
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let Share(share) = budget;
    if share <= cores as f64 {
        return Ok(share);
    }
    Err(Failure::new(format!("the budget {budget} is more than all cores give"))
        .hint(format!("100% is one core, and the agent may use {cores}; try `--budget 1%`")))
}

/// Families that some sensor has, be it that none does on this machine.
fn check_skips(skip: &[String]) -> Result<(), Failure> {
    let Some(name) = skip.iter().find(|name| !families().any(|family| family == **name)) else {
        return Ok(());
    };
    let all: Vec<_> = families().collect();
    Err(Failure::new(format!("--skip: there is no family `{name}`"))
        .hint(format!("the families are {}", all.join(", "))))
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

    fn settings(toml: &str) -> Settings {
        Settings {
            node: "n01".to_owned(),
            interval: INTERVAL,
            policy: None,
            budget: DEFAULT_LIMIT,
            skip: Vec::new(),
            run_for: None,
            config: toml::from_str(toml).expect(toml),
        }
    }

    #[test]
    fn the_longest_of_the_table_for_all_gives_way_to_what_a_source_needs() {
        let seconds = Duration::from_secs;
        let of = |toml: &str, hint| {
            let schedule = settings(toml).schedule("smart", Some(seconds(hint))).expect(toml);
            (schedule.shortest, schedule.longest)
        };
        let for_all = "[sensors.default]\nmax_seconds = 20";
        assert_eq!(of(for_all, 300), (seconds(300), seconds(300)));
        assert_eq!(of(for_all, 5), (seconds(5), seconds(20)));
        assert_eq!(of("", 300), (seconds(300), seconds(300)));
        assert_eq!(of("[sensors.smart]\nmin_seconds = 50", 300), (seconds(50), seconds(50)));
        for (own, hint) in [
            ("[sensors.smart]\nmax_seconds = 20", Some("the shortest is 300 s")),
            ("[sensors.default]\nmin_seconds = 9\nmax_seconds = 3", None),
        ] {
            let failure = settings(own).schedule("smart", Some(seconds(300))).expect_err(own);
            assert_eq!(hint.is_some(), failure.the_hint().is_some(), "{failure:?}");
            let told = failure.the_hint().unwrap_or_default();
            assert!(told.contains(hint.unwrap_or_default()), "{told}");
        }
    }

    #[test]
    fn a_budget_is_at_most_what_the_cores_give() {
        let cores = std::thread::available_parallelism().expect("known").get() as f64;
        for good in [1e-6, 1.0, cores] {
            assert_eq!(check_budget(Share(good)).ok(), Some(good));
        }
        assert!(check_budget(Share(cores + 0.01)).is_err());
    }

    #[test]
    fn what_is_skipped_is_a_family_of_a_sensor_though_none_has_it_here() {
        let check = |name: &str| check_skips(&[name.to_owned()]);
        assert!(check("numa").is_ok() && check("smart").is_ok());
        for bad in ["foo", "insight", "default", "device/*/max_*"] {
            let failure = check(bad).expect_err(bad);
            let hint = failure.the_hint().expect("one");
            assert!(hint.contains("numa") && hint.contains("slurm"), "{hint}");
        }
    }

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

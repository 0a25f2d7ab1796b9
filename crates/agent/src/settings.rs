//! The settings of an agent: command-line options win over the configuration, and that wins over the defaults.

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

/// The shortest interval: below it, a tick takes more time than a whole core has.
const MIN_INTERVAL: Duration = Duration::from_millis(10);
/// The longest interval, a day.
const MAX_INTERVAL: Duration = Duration::from_secs(86_400);
/// The default interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// The default policy.
const POLICY: PolicyKind = PolicyKind::Hazard;
/// The default of the longest interval, for a sensor that finds nothing new: it saves nine polls in ten, and is
/// fresh enough for a person.
const LONGEST_SECONDS: f64 = 10.0;

/// The settings of an agent.
pub(crate) struct Settings {
    pub node: String,
    pub interval: Duration,
    /// The policy of `--policy`.
    pub policy: Option<PolicyKind>,
    /// A share of one core.
    pub budget: f64,
    pub skip: Vec<String>,
    pub run_for: Option<Duration>,
    pub config: Config,
}

impl Settings {
    /// Merges options and configuration, and checks the settings that do not depend on this machine.
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

    /// Returns the schedule of the sensor of `family`. `hint` is the time that its source needs to have news.
    ///
    /// # Errors
    /// The configuration of that sensor is not a valid policy.
    pub(crate) fn schedule(
        &self,
        family: &str,
        hint: Option<Duration>,
    ) -> Result<Schedule, Failure> {
        // A probe that is answered is not a surprise, and a dead peer must be seen at once. The same holds for what
        // other nodes report.
        let of_others = match family {
            _ if self.config.sensors.contains_key(family) => None,
            _ if family == schema::peer::FAMILY.name => Some(self.peers().interval),
            _ if family == schema::telemetry::FAMILY.name => Some(self.interval),
            _ if family == schema::anomaly_report::FAMILY.name => Some(self.interval),
            _ => None,
        };
        if let Some(shortest) = of_others {
            let policy = Box::new(Fixed::new(shortest));
            return Ok(Schedule { policy, shortest, longest: shortest });
        }
        let default = hint.map_or(self.interval, |hint| hint.max(self.interval)).as_secs_f64();
        let mut policy = self.config.policy(family, self.policy, POLICY);
        let is_named = self.config.sensors.contains_key(family);
        // The longest interval of the default table does not apply to a source that has news more rarely.
        if let (Some(longest), None, false) = (policy.max_seconds, policy.min_seconds, is_named) {
            policy.max_seconds = Some(longest.max(default));
        }
        let is_given = policy.min_seconds.is_some();
        let shortest = *policy.min_seconds.get_or_insert(default);
        if policy.kind() != PolicyKind::Fixed {
            policy.max_seconds.get_or_insert(shortest.max(LONGEST_SECONDS));
        }
        let wrong = |e: PolicyError| {
            let table = if is_named { family } else { DEFAULT_SENSOR };
            let failure = Failure::new(format!("[sensors.{table}]"));
            let failure = failure.in_file(self.config.path.as_deref()).because(&e);
            match e {
                PolicyError::Bounds { .. } if !is_given => failure.hint(format!(
                    "without `min_seconds` the shortest is {default} s, the time that `{family}` needs to have news"
                )),
                _ => failure,
            }
        };
        let bounds = policy.bounds().map_err(wrong)?;
        let policy = policy.build().map_err(wrong)?;
        Ok(Schedule { policy, shortest: bounds.min, longest: bounds.max })
    }

    /// Returns the settings for probes of other nodes.
    pub(crate) fn peers(&self) -> PeerSettings {
        let peers = &self.config.peers;
        let defaults = PeerSettings::of_node(&self.node);
        PeerSettings {
            listen: peers.listen,
            peers: peers.nodes.iter().map(|(name, at)| (name.clone(), *at)).collect(),
            interval: peers.interval.unwrap_or(defaults.interval),
            timeout: peers.timeout.unwrap_or(defaults.timeout),
            ..defaults
        }
    }
}

/// Returns the host's name up to its first dot, as a segment of a topic.
pub fn host_name() -> String {
    let uname = rustix::system::uname();
    let name = uname.nodename().to_bytes().to_ascii_lowercase();
    let short = name.split(|&b| b == b'.').next().unwrap_or_default();
    let mut segment = String::new();
    escape_segment(short, &mut segment);
    if segment.is_empty() { "localhost".to_owned() } else { segment }
}

/// Returns the budget as a share of one core, if the machine has that much.
fn check_budget(budget: Share) -> Result<f64, Failure> {
    // If the number of cores is unknown, there is at least one.
    let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let Share(share) = budget;
    if share <= cores as f64 {
        return Ok(share);
    }
    Err(Failure::new(format!("the budget {budget} is more than all cores have"))
        .hint(format!("100% is one core, and the agent may use {cores}; try `--budget 1%`")))
}

/// Checks that each name is a family of a sensor, also of one that this machine does not have.
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
    Err(Failure::new(format!("`{node}` is not a valid name of a node"))
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
    fn a_slow_source_overrides_the_longest_interval_of_the_default_table() {
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
            assert_eq!(hint.is_some(), failure.hint_text().is_some(), "{failure:?}");
            let text = failure.hint_text().unwrap_or_default();
            assert!(text.contains(hint.unwrap_or_default()), "{text}");
        }
    }

    #[test]
    fn a_budget_is_at_most_all_cores() {
        let cores = std::thread::available_parallelism().expect("known").get() as f64;
        for good in [1e-6, 1.0, cores] {
            assert_eq!(check_budget(Share(good)).ok(), Some(good));
        }
        assert!(check_budget(Share(cores + 0.01)).is_err());
    }

    #[test]
    fn a_family_that_this_machine_does_not_have_can_be_skipped() {
        let check = |name: &str| check_skips(&[name.to_owned()]);
        assert!(check("numa").is_ok() && check("smart").is_ok());
        for bad in ["foo", "insight", "default", "device/*/max_*"] {
            let failure = check(bad).expect_err(bad);
            let hint = failure.hint_text().expect("a hint");
            assert!(hint.contains("numa") && hint.contains("slurm"), "{hint}");
        }
    }

    #[test]
    fn a_name_of_a_node_is_a_segment_of_a_topic() {
        for good in ["n01", "gpu-node.cluster", "%2d"] {
            assert!(check_node(good).is_ok(), "{good}");
        }
        for bad in ["", "a/b", "N01", "*", &"n".repeat(65)] {
            assert!(check_node(bad).is_err(), "{bad}");
        }
    }
}

//! Command-line options of an agent.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use skopos_model::duration;
use skopos_score::interval::PolicyKind;

use crate::config::Share;

/// Options of the agent.
#[derive(Clone, Debug, Default, Args)]
pub struct AgentArgs {
    /// Stop after this time (30s, 5m, 2h)
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    pub run_for: Option<Duration>,
    /// Shortest time between two polls of a sensor [default: 1s]; without readers it grows, to 10s
    /// unless configured
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    pub interval: Option<Duration>,
    /// Policy that chooses the time between polls: fixed, aimd, aimd-window or hazard. Overrides
    /// [sensors.default], not a sensor's own table [default: hazard]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub policy: Option<PolicyKind>,
    /// Share of one core that sensing may use, with the programs that sensors run, such as 1% or
    /// 0.01 [default: 1%]
    #[arg(long, value_name = "SHARE")]
    pub budget: Option<Share>,
    /// Configuration file [default: $SKOPOS_CONFIG, ~/.config/skopos/skopos.toml, /etc/skopos/skopos.toml]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// First segment of every topic [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub node: Option<String>,
    /// Families of facts to leave out, such as cgroup,interrupts
    #[arg(long, value_name = "FAMILY,…", value_delimiter = ',')]
    pub skip: Vec<String>,
}

/// Finds a policy by its name.
fn policy(text: &str) -> Result<PolicyKind, String> {
    let names = || PolicyKind::ALL.map(PolicyKind::name).join(", ");
    let found = PolicyKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| format!("the policies are {}", names()))
}

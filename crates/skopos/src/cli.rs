//! What a user may type.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use skopos_model::duration;
use skopos_score::interval::PolicyKind;

use crate::out::Style;

/// Monitoring whose first reader is a program.
#[derive(Debug, Parser)]
#[command(
    name = "skopos",
    version,
    propagate_version = true,
    arg_required_else_help = true,
    before_help = "Example: skopos up            watch this machine until Ctrl-C\n         \
                   skopos top           look at it, from another terminal\n         \
                   skopos get mem/available_bytes"
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// Options of every verb.
#[derive(Debug, Args)]
pub(crate) struct Global {
    /// Print JSON (its schemas are in docs/json)
    #[arg(long, global = true, conflicts_with = "plain")]
    pub(crate) json: bool,
    /// Print tab-separated fields without colour, values as they are
    #[arg(long, global = true)]
    pub(crate) plain: bool,
    /// Directory of the segments [default: $SKOPOS_DIR, else /dev/shm/skopos-UID]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
}

impl Global {
    pub(crate) fn style(&self) -> Style {
        match (self.json, self.plain) {
            (true, _) => Style::Json,
            (_, true) => Style::Plain,
            _ => Style::Human,
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Watch this machine until Ctrl-C: every role in one process
    #[command(before_help = "Example: skopos up --for 30s")]
    Up(AgentArgs),
    /// Watch this machine as a lean daemon
    #[command(before_help = "Example: skopos agent --interval 5s")]
    Agent(AgentArgs),
    /// Look at this machine live
    #[cfg(feature = "tui")]
    #[command(before_help = "Example: skopos top   (? for help, q to leave)")]
    Top(TopArgs),
    /// List topics
    #[command(before_help = "Example: skopos ls 'block/**'")]
    Ls(LsArgs),
    /// Read topics once
    #[command(before_help = "Example: skopos get mem/available_bytes load/load_1m")]
    Get(GetArgs),
    /// Follow topics: each change as it happens
    #[command(before_help = "Example: skopos watch 'cpu/total/*'")]
    Watch(WatchArgs),
    /// Publish a fact of your own
    #[command(before_help = "Example: skopos publish my-app/queue/depth 17")]
    Publish(PublishArgs),
    /// Check what this machine allows and what is running
    #[command(before_help = "Example: skopos doctor")]
    Doctor,
    /// Measure Skopos beside what you would use instead
    #[cfg(feature = "bench")]
    #[command(before_help = "Example: skopos bench score --quick")]
    Bench(crate::bench::BenchArgs),
    /// Print a shell's completion script
    #[command(
        before_help = "Example: skopos completion bash > ~/.local/share/bash-completion/completions/skopos"
    )]
    Completion(CompletionArgs),
    /// Print the manual page
    #[command(before_help = "Example: skopos man | man -l -")]
    Man(ManArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Stop by itself after this long (30s, 5m, 2h)
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) run_for: Option<Duration>,
    /// Shortest time between two polls of a sensor
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub(crate) interval: Duration,
    /// How the time between polls follows what they find
    #[arg(long, value_name = "POLICY", default_value = "fixed", value_parser = policy)]
    pub(crate) policy: PolicyKind,
    /// What the agent may cost of one core, such as 1% or 0.01 [default: 1%]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) budget: Option<f64>,
    /// First segment of every topic [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Families not to sense, such as cgroup,interrupts
    #[arg(long, value_name = "FAMILY,…", value_delimiter = ',')]
    pub(crate) skip: Vec<String>,
}

/// A policy by its name.
fn policy(text: &str) -> Result<PolicyKind, String> {
    let names = || PolicyKind::ALL.map(PolicyKind::name).join(", ");
    let found = PolicyKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| format!("the policies are {}", names()))
}

/// `1%` or `0.01`.
fn share(text: &str) -> Result<f64, String> {
    let (number, scale) = match text.strip_suffix('%') {
        Some(number) => (number.trim_end(), 0.01),
        None => (text, 1.0),
    };
    number
        .parse()
        .map(|n: f64| n * scale)
        .map_err(|_| format!("`{text}` is no share: try `1%` or `0.01`"))
}

#[cfg(feature = "tui")]
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Show only topics that hold this text
    pub(crate) filter: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Which topics: `*` within a segment, `**` over segments; the node may be left out
    #[arg(default_value = "**")]
    pub(crate) pattern: String,
    /// Help, unit, kind and source of each
    #[arg(long, short)]
    pub(crate) long: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Topics or patterns; the node may be left out
    #[arg(required = true, value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// Refuse a value whose source was last looked at longer ago; refresh it first if possible
    /// (a source is looked at ten times a second at most)
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_age: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Which topics: `*` within a segment, `**` over segments; the node may be left out
    pub(crate) pattern: String,
    /// Stop after this many changes
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Stop after this long
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) run_for: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct PublishArgs {
    /// The topic; your node's name is put in front unless it is there
    pub(crate) topic: String,
    /// A number, or JSON of a list, a record or a text
    #[arg(allow_hyphen_values = true, required_unless_present = "remove")]
    pub(crate) value: Option<String>,
    /// f64, i64, u64 or structured [default: f64 for a number, else structured]
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) value_type: Option<String>,
    /// Unit of the value, such as bytes or seconds
    #[arg(long, default_value = "", hide_default_value = true)]
    pub(crate) unit: String,
    /// counter, gauge or state
    #[arg(long, default_value = "gauge")]
    pub(crate) kind: String,
    /// Take the topic away again
    #[arg(long, conflicts_with = "value")]
    pub(crate) remove: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionArgs {
    /// Which shell
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The page of one verb instead of the overview
    pub(crate) verb: Option<String>,
}

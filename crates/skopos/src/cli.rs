//! What a user may type.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};
use skopos_model::duration;
use skopos_score::interval::PolicyKind;

use crate::config::Share;
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
    Up(crate::verbs::up::UpArgs),
    /// Watch this machine as a lean daemon
    #[command(before_help = "Example: skopos agent --interval 5s")]
    Agent(AgentArgs),
    /// Run one command, measure what it uses and keep it within limits
    #[command(
        before_help = "Example: skopos run --limit memory=4GiB,wall=2h --report out -- make -j2"
    )]
    Run(RunArgs),
    /// Keep reports of tasks, and see what the tasks of a class used
    #[command(before_help = "Example: skopos archive import out && skopos archive stats make")]
    Archive(crate::verbs::archive::ArchiveArgs),
    /// What the next task of a class should be given
    #[command(before_help = "Example: skopos estimate make --minimize waste")]
    Estimate(crate::verbs::estimate::EstimateArgs),
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
    /// Record topics into trace files, to be replayed
    #[command(
        before_help = "Example: skopos record 'block/*/written_bytes_total' --for 5m --out traces"
    )]
    Record(RecordArgs),
    /// Publish a fact of your own
    #[command(before_help = "Example: skopos publish my-app/queue/depth 17")]
    Publish(PublishArgs),
    /// Follow many nodes, and answer questions about all of them
    #[cfg(feature = "hub")]
    #[command(before_help = "Example: skopos hub --listen tcp/10.0.0.1:7447 --look-on auto")]
    Hub(crate::verbs::hub::HubArgs),
    /// Join with nodes that are not there, to see what a hub makes of many
    #[cfg(feature = "hub")]
    #[command(
        before_help = "Example: skopos simulate --nodes 100 --facts 300 --for 1m --look-on none --connect tcp/127.0.0.1:7447"
    )]
    Simulate(crate::verbs::simulate::SimulateArgs),
    /// Make history for benchmarks
    #[cfg(all(feature = "history", feature = "bench"))]
    #[command(hide = true)]
    FillHistory(crate::verbs::fill_history::FillArgs),
    /// Ask in SQL
    #[cfg(feature = "sql")]
    #[command(
        before_help = "Example: skopos sql \"SELECT * FROM latest WHERE topic LIKE '%/load/%'\""
    )]
    Sql(crate::verbs::sql::SqlArgs),
    /// Measure how fast a device can be, once, for insights to compare with
    #[command(before_help = "Example: skopos calibrate nvme0n1   (or any folder on it)")]
    Calibrate(CalibrateArgs),
    /// What is computed from facts, and how it comes about
    #[command(before_help = "Example: skopos insight explain msca")]
    Insight(InsightArgs),
    /// What is computed from what, how often it changes and how old it is
    #[command(before_help = "Example: skopos graph --dot | dot -Tsvg > graph.svg")]
    Graph(GraphArgs),
    /// Check what this machine allows and what is running
    #[command(before_help = "Example: skopos doctor")]
    Doctor,
    /// Train the predictor, or see how well it predicts
    #[command(before_help = "Example: skopos delphi score mem/available_bytes")]
    Delphi(DelphiArgs),
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
pub(crate) struct RunArgs {
    /// How closely to look: 1 looks now and then, 2 sees every process at its birth and end,
    /// 3 counts what each file and peer was asked for too
    #[arg(long, value_name = "LEVEL", default_value = "auto", value_parser = level)]
    pub(crate) level: Level,
    /// What it may use at most: memory=4GiB,wall=2h,cpu=1h,processes=100 … (4GB is 4,000,000,000,
    /// 4GiB and 4G are 4,294,967,296 bytes). `auto` limits memory to what `skopos estimate` says of
    /// its class, and runs it once more with the maximum if that was too little
    #[arg(long = "limit", value_name = "NAME=VALUE,…")]
    pub(crate) limits: Vec<String>,
    /// How long a task that exceeds a limit has to end by itself, after a SIGTERM
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "0s",
        value_parser = duration::parse,
        allow_hyphen_values = true
    )]
    pub(crate) kill_after: Duration,
    /// Write the report there: summary.json, series.csv, series.arrow, report.html, and files.json
    /// at level 3
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Time between two looks, and two rows of the series
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "1s",
        value_parser = duration::parse,
        allow_hyphen_values = true
    )]
    pub(crate) series: Duration,
    /// Count the files below this folder, and the space they take
    #[arg(long, value_name = "PATH")]
    pub(crate) watch: Vec<PathBuf>,
    /// What tasks that are alike are called [default: the program's name]
    #[arg(long, value_name = "CLASS")]
    pub(crate) name: Option<String>,
    /// Add the report to this archive [without FILE: the one of `skopos archive`]; `--limit auto`
    /// reads it from there too
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    pub(crate) archive: Option<Option<PathBuf>>,
    /// Print a summary to stderr at the end, even where that is no terminal. `--json` prints the whole
    /// report there instead, as the last line: standard output is the command's
    #[arg(long, conflicts_with = "quiet")]
    pub(crate) summary: bool,
    /// Print neither warnings nor a summary, even on a terminal (`--json` prints the report all the same)
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Measure by these mechanisms alone, as --explain names them, to compare them
    #[arg(
        long = "mechanism",
        value_name = "NAME,…",
        value_delimiter = ',',
        hide_short_help = true
    )]
    pub(crate) mechanisms: Option<Vec<String>>,
    /// Say what would measure here and why, and run nothing
    #[arg(long)]
    pub(crate) explain: bool,
    /// Measure this process, which runs already, and all that descends from it, from now on until it
    /// ends; Ctrl-C lets go of it, and it runs on
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) attach: Option<i32>,
    /// The command and its arguments, after `--`
    #[arg(last = true, required_unless_present_any = ["explain", "attach"], value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// What to do about arguments that make no sense, beside what clap has to say: `skopos run make -j2`
/// has the task's own options among those of the monitor.
pub(crate) fn hint(e: &clap::Error, args: &[String]) -> Option<String> {
    let ContextValue::String(wrong) = e.get(ContextKind::InvalidArg)? else { return None };
    let is_command = e.kind() == ErrorKind::UnknownArgument && !wrong.starts_with('-');
    let verb = args.iter().position(|word| word == "run")?;
    let at = verb + args[verb..].iter().position(|word| word == wrong)?;
    is_command.then(|| {
        let (own, command) = (args[verb..at].join(" "), args[at..].join(" "));
        format!("the command comes after `--`: skopos {own} -- {command}")
    })
}

/// How closely a task is looked at; `None` is the best that costs next to nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Level(pub(crate) Option<u8>);

fn level(text: &str) -> Result<Level, String> {
    match text {
        "auto" => Ok(Level(None)),
        "1" => Ok(Level(Some(1))),
        "2" => Ok(Level(Some(2))),
        "3" => Ok(Level(Some(3))),
        _ => Err("a level is 1, 2, 3 or auto".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct AgentArgs {
    /// Stop by itself after this long (30s, 5m, 2h)
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) run_for: Option<Duration>,
    /// Shortest time between two polls of a sensor [default: 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) interval: Option<Duration>,
    /// How the time between polls follows what they find: fixed, aimd, aimd-window or hazard.
    /// Wins over [sensors.default], not over a sensor's own table [default: hazard]
    #[arg(long, value_name = "POLICY", value_parser = policy)]
    pub(crate) policy: Option<PolicyKind>,
    /// What the agent, with the programs that it runs, may cost of one core, such as 1% or 0.01
    /// [default: 1%]
    #[arg(long, value_name = "SHARE")]
    pub(crate) budget: Option<Share>,
    /// Configuration [default: $SKOPOS_CONFIG, ~/.config/skopos/skopos.toml, /etc/skopos/skopos.toml]
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// First segment of every topic [default: the host's name]
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Option<String>,
    /// Keep what is published on disk, in this folder
    #[cfg(feature = "history")]
    #[arg(long, value_name = "DIR")]
    pub(crate) history: Option<PathBuf>,
    /// Tell a hub, and whoever follows, what is known here
    #[cfg(feature = "live")]
    #[arg(long)]
    pub(crate) live: bool,
    /// Keep what other nodes tell of these topics in this machine's shared memory, such as 'n*/fs/**';
    /// may be given several times
    #[cfg(feature = "live")]
    #[arg(long, value_name = "PATTERN", requires = "live")]
    pub(crate) mirror: Vec<skopos_model::TopicPattern>,
    #[cfg(feature = "live")]
    #[command(flatten)]
    pub(crate) plane: crate::live::LiveArgs,
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

#[cfg(feature = "tui")]
#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Show only topics that hold this text
    pub(crate) filter: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct LsArgs {
    /// Which topics: `*` within a segment, `**` over segments; the node may be left out
    #[arg(default_value = "**", value_name = "PATTERN")]
    pub(crate) patterns: Vec<String>,
    /// Help, unit, kind and source of each
    #[arg(long, short)]
    pub(crate) long: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetArgs {
    /// Topics or patterns; the node may be left out. A hub on this machine is asked for what is not here
    #[arg(required = true, value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// Refuse a value whose source was last looked at longer ago; refresh it first if possible
    /// (a source is looked at ten times a second at most)
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) max_age: Option<Duration>,
    /// Also say what each is at this moment, predicted from its samples, and within what bound
    #[arg(long)]
    pub(crate) now: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DelphiArgs {
    #[command(subcommand)]
    pub(crate) verb: DelphiVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DelphiVerb {
    /// Train the model from its seed: the same weights on every machine
    #[command(before_help = "Example: skopos delphi train --out weights.bin")]
    Train(DelphiTrainArgs),
    /// Predict the past and compare: mean errors, R², coverage of the bound
    #[command(before_help = "Example: skopos delphi score 'block/*/write_bytes_total'")]
    Score(DelphiScoreArgs),
}

#[derive(Debug, Args)]
pub(crate) struct DelphiTrainArgs {
    /// Seed of the synthetic data
    #[arg(long, value_name = "N", default_value_t = skopos_score::delphi::DEFAULT_SEED)]
    pub(crate) seed: u64,
    /// Write the weights there
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DelphiScoreArgs {
    /// Topics or a pattern, as far back as their rings reach; the node may be left out
    #[arg(required_unless_present = "trace")]
    pub(crate) topic: Option<String>,
    /// A recorded trace instead
    #[arg(long, value_name = "FILE", conflicts_with = "topic")]
    pub(crate) trace: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Which topics: `*` within a segment, `**` over segments; the node may be left out
    #[cfg_attr(feature = "sql", arg(required_unless_present = "sql", value_name = "PATTERN"))]
    #[cfg_attr(not(feature = "sql"), arg(required = true, value_name = "PATTERN"))]
    pub(crate) patterns: Vec<String>,
    /// Ask this instead, again whenever something that it depends on has changed, and show the rows
    /// that are new
    #[cfg(feature = "sql")]
    #[arg(long, value_name = "STATEMENT", conflicts_with = "patterns")]
    pub(crate) sql: Option<String>,
    /// Ask no more often than this [default: 100ms; 1s of a statement about ages or the time of day]
    #[cfg(feature = "sql")]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, requires = "sql")]
    pub(crate) every: Option<Duration>,
    /// Stop after this many changes; of a statement the first answer is one
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
    /// Stop after this long
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) run_for: Option<Duration>,
}

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Topics or patterns; the node may be left out
    #[arg(required = true, value_name = "TOPIC")]
    pub(crate) topics: Vec<String>,
    /// Stop after this long; else at Ctrl-C
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    pub(crate) run_for: Option<Duration>,
    /// Time between two rows
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration::parse)]
    pub(crate) interval: Duration,
    /// Directory of the files, one a topic
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// What was going on, for the head of each file; may be given more than once
    #[arg(long, value_name = "TEXT", value_parser = one_line)]
    pub(crate) note: Vec<String>,
}

/// A comment is a line: what had more would end in the middle of the rows.
fn one_line(text: &str) -> Result<String, String> {
    match text.contains(['\n', '\r']) {
        false => Ok(text.to_owned()),
        true => Err("a note is one line; give --note more than once".to_owned()),
    }
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
pub(crate) struct CalibrateArgs {
    /// A block device (nvme0n1, /dev/sda), a mount point, or a folder that you may write to
    #[arg(value_name = "DEVICE|FOLDER")]
    pub(crate) target: String,
    /// Size of the temporary file: larger than the device's own cache, if you know that
    #[arg(long, default_value = "256MiB", value_parser = size)]
    pub(crate) size: u64,
    /// Time for each of four measurements: read, write, random reads, latency
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub(crate) seconds: f64,
    /// How often each is repeated within that time
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,
    /// Read from the device itself, not from the file (root only; blocks that were never written
    /// may come faster than the device can read)
    #[arg(long)]
    pub(crate) raw: bool,
    /// Ask nothing, and measure although the device is busy
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// The smallest file of a calibration: eight requests in flight of 1 MiB each.
const MIN_SIZE: u64 = 8 << 20;
/// The largest: beyond the cache of any device.
const MAX_SIZE: u64 = 1 << 40;

/// `256MiB`, `1GiB`, `1000000000`; a whole number of MiB.
fn size(text: &str) -> Result<u64, String> {
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
    let parsed = units.iter().find_map(|(unit, shift)| {
        let number: u64 = text.strip_suffix(unit)?.trim_end().parse().ok()?;
        number.checked_mul(1 << shift)
    });
    match parsed {
        Some(bytes) if (MIN_SIZE..=MAX_SIZE).contains(&bytes) => Ok(bytes >> 20 << 20),
        Some(_) => Err("a size is from 8MiB to 1TiB".to_owned()),
        None => Err(format!("`{text}` is no size: try `256MiB` or `1GiB`")),
    }
}

/// Seconds of a measurement.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err(format!("`{text}` is no number of seconds from 0.05 to 3600")),
    }
}

#[derive(Debug, Args)]
pub(crate) struct InsightArgs {
    #[command(subcommand)]
    pub(crate) verb: InsightVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum InsightVerb {
    /// Every insight with its value, or why there is none
    #[command(before_help = "Example: skopos insight ls")]
    Ls {
        /// Which topics: `*` within a segment, `**` over segments; the node may be left out
        pattern: Option<String>,
    },
    /// One insight with its formula and its inputs as they are now
    #[command(before_help = "Example: skopos insight show interference_factor_ratio")]
    Show {
        /// A name such as msca, a topic or a pattern
        name: String,
    },
    /// From an insight back to its facts, and where those come from
    #[command(before_help = "Example: skopos insight explain 'tier_remaining_*'")]
    Explain {
        /// A name such as msca, a topic or a pattern
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct GraphArgs {
    /// Which insights [default: all]
    pub(crate) pattern: Option<String>,
    /// In the language of Graphviz
    #[arg(long, conflicts_with_all = ["json", "plain"])]
    pub(crate) dot: bool,
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

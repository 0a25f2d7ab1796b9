//! `skopos-bench`: measures Skopos beside the programs that a user would use instead.
//!
//! Each benchmark answers a question of a user, on this machine. The peers are measured in the same
//! run and in turns, so that noise affects all of them. `score`, `agent` and the others are the
//! benchmarks, as [`Name`] lists them, and `report` holds their result. `programs` finds the programs
//! that are measured, and `ending` removes all that a benchmark started if a signal ends it. Publishers
//! are other processes: this binary again, as a `worker` with one of the `roles`, which the parent ends
//! by its id.

#![forbid(unsafe_code)]
// These macros panic when the reader of stdout is gone; the functions of `skopos_term` do not.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod plan;
mod programs;
mod report;
mod machine;
mod stats;
mod cores;
mod scratch;
mod ending;
mod child;
mod worker;
mod roles;
mod clock;
mod score;
mod agent;
mod delphi;
mod dag;
mod anatomy;
mod degree;
mod height;
mod intervals;
mod task;
mod cluster;
mod estimate;
mod findings;
mod query;
mod store;
mod rpc;
mod int;
mod anomaly;
mod outcome;
mod tiers;
mod rank;
mod cassandra;
mod fill_history;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};
use skopos_term::{EXIT_NO, Failure, Global, Out};

use crate::fill_history::FillArgs;
use crate::plan::Plan;
use crate::report::Report;

/// Measure Skopos beside what you would use instead.
#[derive(Debug, Parser)]
#[command(
    name = "skopos-bench",
    version,
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    before_help = "Example: skopos-bench score --quick"
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(flatten)]
    bench: Option<BenchArgs>,
    #[command(subcommand)]
    other: Option<Other>,
}

/// Tools beside the benchmarks.
#[derive(Debug, Subcommand)]
enum Other {
    /// Make a history of many samples, to measure queries over it
    FillHistory(FillArgs),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let ran = match (&cli.other, &cli.bench) {
        (Some(Other::FillHistory(args)), _) => fill_history::run(&cli.global, args),
        (None, Some(args)) => bench(&cli.global, args),
        (None, None) => {
            Err(Failure::new("no benchmark is named").hint("try `skopos-bench --help`"))
        }
    };
    ran.unwrap_or_else(|failure| failure.report())
}

/// The benchmark and its options.
#[derive(Debug, Args)]
struct BenchArgs {
    /// The benchmark to run
    #[arg(value_enum)]
    name: Name,
    /// A short form in about a minute, good enough to see an order of magnitude
    #[arg(long)]
    quick: bool,
    /// Exit with 1 when a goal is not met
    #[arg(long)]
    check: bool,
    /// Write the result there as JSON [default: bench/runs/DATE-HOST, in the repository's root]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// `intervals`: replay this trace alone; `skopos record` writes such files
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// `cluster`: measure this case alone
    #[arg(long, value_enum)]
    case: Option<cluster::Case>,
    /// `cluster`: number of nodes of one hub [default: 1000, with --quick 200]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    nodes: Option<u64>,
    /// Length of one slice of measuring, instead of what `--quick` or its absence says
    #[arg(long, hide = true, value_name = "SECONDS")]
    seconds: Option<f64>,
    /// The task of a worker
    #[arg(long, hide = true, value_name = "JSON")]
    task: Option<String>,
}

/// The benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Name {
    /// Shared memory beside Redis Streams: latest value, publish, subscribe, memory
    Score,
    /// The agent beside collectd and PCP, idle and busy, and what it costs applications beside it
    Agent,
    /// Predictions beside the last value, a line and an LSTM: errors, coverage, cost
    Delphi,
    /// The parts of the time of a fact and of an insight: hook, build, publish, other
    Anatomy,
    /// From a fact to the insight over 1 to 640 facts, beside Redis Streams
    Degree,
    /// From a fact to the top of 1 to 32 layers of insights, beside Redis Streams
    Height,
    /// Interval policies on the paper's workloads and recorded traces: cost, accuracy, error
    Intervals,
    /// Cost and accuracy of watching a task, beside resource_monitor, time and strace
    Task,
    /// The live plane: from a change to a mirror, a thousand nodes into one hub, deaths, cost
    Cluster,
    /// First allocations of memory on 96,501 tasks like those of Juve et al., beside naive choices
    Estimate,
    /// Resource queries over 16 nodes, beside Redis, PostgreSQL, Prometheus, SQLite and DuckDB
    Query,
    /// Jobs in layers under the loads of SLAte's evaluation, beside SQLite, PostgreSQL and a file for each job
    Store,
    /// Findings on jobs with and without each fault: precision and recall
    Findings,
    /// Traces of RPC services: cost beside OpenTelemetry and fastrace, the cases of SYMBIOSYS, analyses
    Rpc,
    /// In-band telemetry: what packets say against theory, what it costs, how many reports a collector takes
    Int,
    /// Anomaly reports under mixed load with injected faults: recall, false reports, delay, bytes
    Anomaly,
    /// Placement, prefetching and replication on storage tiers, beside round robin: time, stalls, cost of asking
    Tiers,
    /// Ranks: the cost of a read and of a ranking, and choices among replicas beside C3 and Prequal
    Rank,
    /// Replicas of three nodes of Cassandra: reads per replica with its own snitch, that of Skopos, and severities
    Cassandra,
    /// The other process of a measurement
    #[value(hide = true)]
    Worker,
}

impl Name {
    fn as_str(self) -> &'static str {
        match self {
            Self::Score => "score",
            Self::Agent => "agent",
            Self::Delphi => "delphi",
            Self::Anatomy => "anatomy",
            Self::Degree => "degree",
            Self::Height => "height",
            Self::Intervals => "intervals",
            Self::Task => "task",
            Self::Cluster => "cluster",
            Self::Estimate => "estimate",
            Self::Query => "query",
            Self::Store => "store",
            Self::Findings => "findings",
            Self::Rpc => "rpc",
            Self::Int => "int",
            Self::Anomaly => "anomaly",
            Self::Tiers => "tiers",
            Self::Rank => "rank",
            Self::Cassandra => "cassandra",
            Self::Worker => "worker",
        }
    }

    /// Number of rounds, if all rows have the same.
    fn rounds(self, plan: &Plan) -> Option<usize> {
        match self {
            Self::Score
            | Self::Delphi
            | Self::Degree
            | Self::Height
            | Self::Query
            | Self::Store => Some(plan.rounds),
            Self::Anatomy | Self::Intervals | Self::Estimate | Self::Findings => Some(1),
            // Rows differ: windows, pairs of runs, and rounds.
            Self::Agent
            | Self::Task
            | Self::Cluster
            | Self::Rpc
            | Self::Int
            | Self::Anomaly
            | Self::Tiers
            | Self::Rank
            | Self::Cassandra
            | Self::Worker => None,
        }
    }
}

/// Runs the measurement and reports it.
fn bench(global: &Global, args: &BenchArgs) -> Result<ExitCode, Failure> {
    if args.name == Name::Worker {
        return roles::run(args.task.as_deref().unwrap_or_default());
    }
    let plan = Plan::new(args.quick, args.seconds, !global.json && std::io::stderr().is_terminal());
    ending::catch()?;
    let measured = measure(&plan, args);
    ending::pass();
    let mut report = measured?;
    report.record_plan(plan.is_short, args.name.rounds(&plan));
    let mut out = Out::new(global.style());
    report.print(&mut out)?;
    if let Some(dir) = out_dir(args, &report) {
        write(&dir, args.name, &report)?;
        plan.say(&format!("written to {}", dir.display()));
    }
    Ok(if args.check && report.missed() > 0 { ExitCode::from(EXIT_NO) } else { ExitCode::SUCCESS })
}

/// Runs the benchmark itself.
fn measure(plan: &Plan, args: &BenchArgs) -> Result<Report, Failure> {
    match args.name {
        Name::Worker => Err(Failure::new("a worker measures nothing by itself")),
        Name::Score => score::run(plan),
        Name::Agent => agent::run(plan),
        Name::Delphi => delphi::run(plan),
        Name::Anatomy => anatomy::run(plan),
        Name::Degree => degree::run(plan),
        Name::Height => height::run(plan),
        Name::Task => task::run(plan),
        Name::Intervals => intervals::run(plan, args.trace.as_deref()),
        Name::Cluster => cluster::run(plan, args.case, args.nodes.map(|nodes| nodes as usize)),
        Name::Estimate => estimate::run(),
        Name::Query => query::run(plan),
        Name::Store => store::run(plan),
        Name::Findings => findings::run(plan),
        Name::Rpc => rpc::run(plan),
        Name::Int => int::run(plan),
        Name::Anomaly => anomaly::run(plan),
        Name::Tiers => tiers::run(plan),
        Name::Rank => rank::run(plan),
        Name::Cassandra => cassandra::run(plan),
    }
}

/// The folder of the result, if any: by default a short run does not replace a full one.
fn out_dir(args: &BenchArgs, report: &Report) -> Option<PathBuf> {
    if let Some(dir) = &args.out {
        return Some(dir.clone());
    }
    let is_whole = args.trace.is_none() && args.case.is_none() && args.nodes.is_none();
    let full = !args.quick && args.seconds.is_none() && is_whole;
    let runs = Path::new("bench/runs");
    let in_repository = runs.is_dir() && Path::new("crates/skopos").is_dir();
    (full && in_repository).then(|| runs.join(format!("{}-{}", report.day(), report.host())))
}

fn write(dir: &Path, name: Name, report: &Report) -> Result<(), Failure> {
    let path = dir.join(format!("{}.json", name.as_str()));
    let text = serde_json::to_string_pretty(report).map_err(std::io::Error::from)?;
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&path, text + "\n"))
        .map_err(|e| Failure::new(format!("cannot write {}", path.display())).because(&e))
}

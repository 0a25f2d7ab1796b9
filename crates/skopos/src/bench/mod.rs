//! `skopos bench`: measurements beside what one would use instead.
//!
//! Each measurement answers a user's question, on this machine, with the peer measured in the same
//! run and in turns, so that noise hits both. `report` is what comes out of every one of them;
//! `score`, `agent` and the others are the measurements, as [`Name`] lists them. Those who publish
//! are other processes: this binary again, as a `worker` that the parent ends by its id.

mod report;
mod machine;
mod stats;
mod cores;
mod scratch;
mod child;
mod worker;
mod score;
mod agent;
mod delphi;
mod dag;
mod anatomy;
mod degree;
mod height;
mod intervals;
mod task;
#[cfg(feature = "hub")]
mod cluster;
mod estimate;
#[cfg(feature = "hub")]
mod query;

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::cli::Global;
use crate::failure::{EXIT_NO, Failure};
use crate::out::Out;
use report::Report;

/// Which measurement, and how.
#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// What to measure
    #[arg(value_enum)]
    pub(crate) name: Name,
    /// A short form in about a minute, good enough to see an order of magnitude
    #[arg(long)]
    pub(crate) quick: bool,
    /// Exit with 1 when a goal is not met
    #[arg(long)]
    pub(crate) check: bool,
    /// Write the result there as JSON [default: bench/runs/DATE-HOST, in the repository's root]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// `intervals`: replay this trace alone; `skopos record` writes such files
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Option<PathBuf>,
    /// Length of one slice of measuring, instead of what `--quick` or its absence says
    #[arg(long, hide = true, value_name = "SECONDS")]
    pub(crate) seconds: Option<f64>,
    /// What a worker is to do
    #[arg(long, hide = true, value_name = "JSON")]
    pub(crate) task: Option<String>,
}

/// The measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Name {
    /// Shared memory beside Redis Streams: latest value, publish, subscribe, memory
    Score,
    /// The agent beside collectd and PCP, idle and busy, and what it costs applications beside it
    Agent,
    /// Predictions beside the last value, a line and an LSTM: errors, coverage, cost
    Delphi,
    /// Where the time of a fact and of an insight goes: hook, build, publish, other
    Anatomy,
    /// From a fact to the insight over 1 to 640 facts, beside Redis Streams
    Degree,
    /// From a fact to the top of 1 to 32 layers of insights, beside Redis Streams
    Height,
    /// Interval policies on the paper's workloads and recorded traces: cost, accuracy, error
    Intervals,
    /// What watching one task costs and how true it is, beside resource_monitor, time and strace
    Task,
    /// The live plane: from a change to a mirror, a thousand nodes into one hub, deaths, cost
    #[cfg(feature = "hub")]
    Cluster,
    /// First allocations of memory on 96,501 tasks like those of Juve et al., beside naive choices
    Estimate,
    /// Resource queries over 16 nodes, beside Redis, PostgreSQL, Prometheus, SQLite and DuckDB
    #[cfg(feature = "hub")]
    Query,
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
            #[cfg(feature = "hub")]
            Self::Cluster => "cluster",
            Self::Estimate => "estimate",
            #[cfg(feature = "hub")]
            Self::Query => "query",
            Self::Worker => "worker",
        }
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// How often ours and the peer take turns.
    pub(crate) rounds: usize,
    /// One turn of one of them.
    pub(crate) slice: Duration,
    /// The agent's window.
    pub(crate) window: Duration,
    /// How long an agent that adapts to the machine learns before its window.
    pub(crate) settle: Duration,
    /// How often an application runs beside the agent and without it; 0 is not at all.
    pub(crate) pairs: usize,
    /// How long one run of that application takes.
    pub(crate) work: Duration,
    /// Whether an order of magnitude is enough.
    #[cfg_attr(not(feature = "hub"), expect(dead_code, reason = "what takes long is of the hub"))]
    pub(crate) is_short: bool,
    /// Says on stderr what is being measured.
    pub(crate) talk: bool,
}

impl Plan {
    fn new(args: &BenchArgs, talk: bool) -> Self {
        let seconds = |s: f64| Duration::try_from_secs_f64(s).unwrap_or(Duration::from_secs(1));
        let full = Self {
            rounds: 5,
            slice: seconds(0.5),
            window: seconds(60.0),
            settle: seconds(60.0),
            pairs: 10,
            work: seconds(5.0),
            is_short: false,
            talk,
        };
        let quick = Self {
            rounds: 2,
            slice: seconds(0.15),
            window: seconds(10.0),
            settle: seconds(5.0),
            pairs: 3,
            work: seconds(1.0),
            is_short: true,
            talk,
        };
        match args.seconds.map(seconds) {
            Some(s) => Self { rounds: 1, slice: s, window: s, settle: s, pairs: 0, ..quick },
            None if args.quick => quick,
            None => full,
        }
    }

    /// Progress, for a person who waits.
    pub(crate) fn say(&self, what: &str) {
        if self.talk {
            crate::out::tell(what);
        }
    }
}

/// Runs the measurement.
pub(crate) fn run(global: &Global, args: &BenchArgs) -> Result<ExitCode, Failure> {
    let plan = Plan::new(args, !global.json && std::io::stderr().is_terminal());
    let report = match args.name {
        Name::Worker => return worker::run(args.task.as_deref().unwrap_or_default()),
        Name::Score => score::run(&plan)?,
        Name::Agent => agent::run(&plan)?,
        Name::Delphi => delphi::run(&plan)?,
        Name::Anatomy => anatomy::run(&plan)?,
        Name::Degree => degree::run(&plan)?,
        Name::Height => height::run(&plan)?,
        Name::Task => task::run(&plan)?,
        Name::Intervals => intervals::run(&plan, args.trace.as_deref())?,
        #[cfg(feature = "hub")]
        Name::Cluster => cluster::run(&plan)?,
        Name::Estimate => estimate::run()?,
        #[cfg(feature = "hub")]
        Name::Query => query::run(&plan)?,
    };
    let mut out = Out::new(global.style());
    report.print(&mut out)?;
    if let Some(dir) = out_dir(args, &report) {
        write(&dir, args.name, &report)?;
        plan.say(&format!("written to {}", dir.display()));
    }
    Ok(if args.check && report.missed() > 0 { ExitCode::from(EXIT_NO) } else { ExitCode::SUCCESS })
}

/// Where the result goes, if anywhere: a short run never replaces a full one by default.
fn out_dir(args: &BenchArgs, report: &Report) -> Option<PathBuf> {
    if let Some(dir) = &args.out {
        return Some(dir.clone());
    }
    let full = !args.quick && args.seconds.is_none() && args.trace.is_none();
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

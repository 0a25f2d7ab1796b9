//! `skopos trace`: the calls of RPC services, from traces in a folder.

mod place;
mod lines;
mod profile;
mod requests;
mod show;
mod critical;
mod system;
mod findings;
mod compare;
mod export;
mod collect;
mod import;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand};
use skopos_model::duration;
use skopos_rpc::analysis::comparison::Limits;
use skopos_term::{Failure, Global};

use self::export::Form;
use self::place::Place;
use self::requests::RequestsArgs;

/// The most steps of `skopos trace system`: a pixel each on a wide screen.
const MAX_POINTS: i64 = skopos_rpc::analysis::system::MAX_POINTS as i64;

#[derive(Debug, Args)]
pub(crate) struct TraceArgs {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) verb: TraceVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TraceVerb {
    /// List callpaths by their cumulative time, with the intervals of a call
    #[command(before_help = "Example: skopos trace profile --top 5")]
    Profile {
        /// Most callpaths
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
        top: u32,
        /// Only callpaths whose text contains this
        #[arg(long, value_name = "TEXT")]
        callpath: Option<String>,
    },
    /// List requests, the slowest first
    #[command(before_help = "Example: skopos trace requests --over 10ms --limit 5")]
    Requests(RequestsArgs),
    /// Show one request: its calls in their order, with a line of time for each
    #[command(before_help = "Example: skopos trace show 4bf92f3577b34da6a3ce929d0e0e4736")]
    Show {
        /// Id as `skopos trace requests` lists it
        id: String,
    },
    /// Show the calls that determine how long requests take, and what a faster one would give
    #[command(before_help = "Example: skopos trace critical-path --faster 50%")]
    CriticalPath {
        /// Id of one request [default: all requests]
        id: Option<String>,
        /// Share by which a callpath becomes faster in the predictions
        #[arg(long, value_name = "SHARE", default_value = "25%", value_parser = share, allow_hyphen_values = true)]
        faster: f64,
        /// Only requests whose first callpath contains this
        #[arg(long, value_name = "TEXT")]
        root: Option<String>,
    },
    /// Find reasons why a service is slow, and the change that would help most
    #[command(before_help = "Example: skopos trace findings")]
    Findings {
        /// Show the reasons of rules that cannot judge this trace
        #[arg(long)]
        all: bool,
    },
    /// Compare two runs: callpaths that became slower or faster, and whether that can be chance
    #[command(before_help = "Example: skopos trace compare before after")]
    Compare {
        /// Trace of the first run
        #[arg(value_name = "DIR")]
        first: PathBuf,
        /// Trace of the second run
        #[arg(value_name = "DIR")]
        second: PathBuf,
    },
    /// Exit with 1 if a run is slower than another one: for a build
    #[command(before_help = "Example: skopos trace gate before after --mean 10%")]
    Gate(GateArgs),
    /// Write a trace for Zipkin, OpenTelemetry, Perfetto or flame graphs
    #[command(before_help = "Example: skopos trace export --format perfetto --out trace.json")]
    Export {
        /// Format [default: zipkin]
        #[arg(long, short = 'F', value_enum)]
        format: Option<Form>,
        /// File to write [default: standard output]
        #[arg(long, short, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Send it to a collector of OpenTelemetry at this URL instead
        #[arg(long, value_name = "URL", conflicts_with_all = ["format", "out"])]
        otlp_to: Option<String>,
    },
    /// Collect the records of the services of this machine into a folder, without an agent
    #[command(before_help = "Example: skopos trace collect --out traces --for 10s")]
    Collect {
        /// Folder to write
        #[arg(long, short, value_name = "DIR")]
        out: PathBuf,
        /// Time to collect
        #[arg(long = "for", value_name = "DURATION", default_value = "10s", value_parser = collecting, allow_hyphen_values = true)]
        time: Duration,
    },
    /// Read the statistics of Margo's own monitor, with its faults corrected
    #[command(before_help = "Example: skopos trace import margo.n01.4711.stats.json")]
    Import {
        /// File `*.stats.json`
        file: PathBuf,
    },
    /// Show processor, memory, queues and other variables of each process over time
    #[command(before_help = "Example: skopos trace system")]
    System {
        /// Number of steps in time
        #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u16).range(1..=MAX_POINTS))]
        points: u16,
    },
}

#[derive(Debug, Args)]
pub(crate) struct GateArgs {
    /// Trace of the run to compare with
    #[arg(value_name = "DIR")]
    first: PathBuf,
    /// Trace of the run to judge
    #[arg(value_name = "DIR")]
    second: PathBuf,
    /// Greatest rise of a mean that passes
    #[arg(long, value_name = "SHARE", default_value = "10%", value_parser = rise, allow_hyphen_values = true)]
    mean: f64,
    /// Greatest rise of a 99th percentile that passes [default: no limit]
    #[arg(long, value_name = "SHARE", value_parser = rise, allow_hyphen_values = true)]
    p99: Option<f64>,
    /// Greatest rise of the share of failed calls that passes
    #[arg(long, value_name = "SHARE", default_value = "1%", value_parser = rise, allow_hyphen_values = true)]
    failed: f64,
    /// Fewest calls of a callpath in each run
    #[arg(long, value_name = "N", default_value_t = 100)]
    calls: u64,
}

impl GateArgs {
    fn limits(&self) -> Limits {
        Limits {
            mean_rise: self.mean,
            p99_rise: self.p99,
            failed_rise: self.failed,
            min_calls: self.calls,
        }
    }
}

/// Parses the time of `skopos trace collect`.
fn collecting(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).map_err(|e| e.to_string())?;
    match time <= collect::LONGEST {
        true => Ok(time),
        false => Err("at most 7d: an agent collects for longer (`skopos agent`)".to_owned()),
    }
}

/// Parses `25%` or `0.25`.
fn ratio(text: &str) -> Option<f64> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(percents) => (percents, 100.0),
        None => (text, 1.0),
    };
    number.trim().parse::<f64>().map(|number| number / unit).ok()
}

/// Parses the limit of a rise: `0%`, `25%`, `200%`.
fn rise(text: &str) -> Result<f64, String> {
    let is_rise = |rise: &f64| rise.is_finite() && *rise >= 0.0;
    ratio(text)
        .filter(is_rise)
        .ok_or_else(|| "a rise is `25%` or `0.25`, and not negative".to_owned())
}

/// Parses a share: `25%` or `0.25`.
fn share(text: &str) -> Result<f64, String> {
    ratio(text)
        .filter(|share| *share > 0.0 && *share < 1.0)
        .ok_or_else(|| "a share lies between 0 and 100 %: `25%` or `0.25`".to_owned())
}

pub(crate) fn run(global: &Global, args: &TraceArgs) -> Result<ExitCode, Failure> {
    let open = || args.place.open();
    match &args.verb {
        TraceVerb::Profile { top, callpath } => {
            profile::run(global, &open()?, *top as usize, callpath.as_deref())
        }
        TraceVerb::Requests(args) => requests::run(global, &open()?, args),
        TraceVerb::Show { id } => show::run(global, &open()?, id),
        TraceVerb::CriticalPath { id: Some(id), faster, root: _ } => {
            critical::run_one(global, &open()?, id, *faster)
        }
        TraceVerb::CriticalPath { id: None, faster, root } => {
            critical::run(global, &open()?, *faster, root.clone())
        }
        TraceVerb::System { points } => system::run(global, &open()?, usize::from(*points)),
        TraceVerb::Findings { all } => findings::run(global, &open()?, *all),
        TraceVerb::Compare { first, second } => compare::run(global, first, second),
        TraceVerb::Gate(args) => {
            compare::run_gate(global, &args.first, &args.second, &args.limits())
        }
        TraceVerb::Export { otlp_to: Some(url), .. } => export::send(global, &open()?, url),
        TraceVerb::Export { format, out, otlp_to: None } => {
            export::run(global, &open()?, format.unwrap_or_default(), out.as_deref())
        }
        TraceVerb::Import { file } => import::run(global, file),
        TraceVerb::Collect { out, time } => collect::run(global, out, *time),
    }
}

#[cfg(test)]
mod tests {
    use super::{rise, share};

    #[test]
    fn shares() {
        assert_eq!(share("25%"), Ok(0.25));
        assert_eq!(share("0.5"), Ok(0.5));
        for text in ["0", "100%", "-5%", "NaN", "x", ""] {
            assert!(share(text).is_err(), "{text}");
        }
        assert_eq!((rise("0%"), rise("200%")), (Ok(0.0), Ok(2.0)));
        for text in ["-1%", "NaN", "inf", ""] {
            assert!(rise(text).is_err(), "{text}");
        }
    }
}

//! `skopos trace`: the calls of RPC services, from traces in a folder.

mod place;
mod lines;
mod profile;
mod requests;
mod show;
mod critical;
mod system;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use skopos_model::duration;
use skopos_rpc::analysis::request::list;
use skopos_term::{Failure, Global};

use self::place::Place;

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
        #[arg(long, value_name = "N", default_value_t = 10)]
        top: usize,
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
        #[arg(long, value_name = "SHARE", default_value = "25%", value_parser = share)]
        faster: f64,
        /// Only requests whose first callpath contains this
        #[arg(long, value_name = "TEXT")]
        root: Option<String>,
    },
    /// Show processor, memory, queues and other variables of each process over time
    #[command(before_help = "Example: skopos trace system")]
    System {
        /// Number of steps in time
        #[arg(long, value_name = "N", default_value_t = 40)]
        points: usize,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RequestsArgs {
    /// Only requests that take at least this long
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    over: Option<Duration>,
    /// Only requests with a call that failed
    #[arg(long)]
    failed: bool,
    /// Only requests with a call whose callpath contains this
    #[arg(long, value_name = "TEXT")]
    callpath: Option<String>,
    /// Only requests that a process touched whose name contains this
    #[arg(long, value_name = "TEXT")]
    process: Option<String>,
    /// Order
    #[arg(long, value_enum, default_value = "slowest")]
    sort: Sort,
    /// Most requests
    #[arg(long, value_name = "N", default_value_t = list::DEFAULT_LIMIT)]
    limit: usize,
}

/// The orders of the list of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Slowest,
    Earliest,
    Latest,
}

/// Parses a share: `25%` or `0.25`.
fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = match text.strip_suffix('%') {
        Some(percents) => (percents, 100.0),
        None => (text, 1.0),
    };
    let share = number.trim().parse::<f64>().map(|number| number / unit).ok();
    share
        .filter(|share| *share > 0.0 && *share < 1.0)
        .ok_or_else(|| "a share lies between 0 and 100 %: `25%` or `0.25`".to_owned())
}

pub(crate) fn run(global: &Global, args: &TraceArgs) -> Result<ExitCode, Failure> {
    let folder = args.place.open()?;
    match &args.verb {
        TraceVerb::Profile { top, callpath } => {
            profile::run(global, &folder, *top, callpath.as_deref())
        }
        TraceVerb::Requests(args) => requests::run(global, &folder, args),
        TraceVerb::Show { id } => show::run(global, &folder, id),
        TraceVerb::CriticalPath { id: Some(id), faster, root: _ } => {
            critical::run_one(global, &folder, id, *faster)
        }
        TraceVerb::CriticalPath { id: None, faster, root } => {
            critical::run(global, &folder, *faster, root.clone())
        }
        TraceVerb::System { points } => system::run(global, &folder, *points),
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares() {
        assert_eq!(share("25%"), Ok(0.25));
        assert_eq!(share("0.5"), Ok(0.5));
        for text in ["0", "100%", "-5%", "NaN", "x", ""] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}

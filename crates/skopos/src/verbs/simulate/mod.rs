//! `skopos simulate`: nodes that are not there, for whoever wants to see what a hub makes of a thousand.

mod facts;
mod node;
mod nodes;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use skopos_model::duration;

use self::nodes::{Done, Nodes, Simulation};
use skopos_agent::Signals;
use skopos_node::LiveArgs;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, Style};

/// The most nodes of one process: what a hub is made for, ten times over.
const MAX_NODES: u64 = 10_000;

/// The most facts of one node: as many as a mirror takes of one.
const MAX_FACTS: u64 = 65_536;

/// The shortest time between two looks of one node.
const MOST_RATE: f64 = 1000.0;

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=MAX_NODES))]
    nodes: u64,
    /// Facts of each node: topics, units and kinds as agents have them
    #[arg(long, value_name = "M", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=MAX_FACTS))]
    facts: u64,
    /// How often each node looks at its facts, in a second
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = rate)]
    rate: f64,
    /// The share of its facts that a look finds changed, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, value_parser = share)]
    change: f64,
    /// Connections that the nodes share [default: one each]
    #[arg(long, value_name = "S")]
    sessions: Option<usize>,
    /// Begins the nodes' names
    #[arg(long, value_name = "NAME", default_value = "sim")]
    prefix: String,
    /// Their clocks are so much ahead
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    ahead: Option<Duration>,
    /// Their clocks are so much behind
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "ahead")]
    behind: Option<Duration>,
    /// What is made up follows from this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Stop by itself after this long
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse)]
    run_for: Option<Duration>,
    #[command(flatten)]
    live: LiveArgs,
}

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| *rate > 0.0 && *rate <= MOST_RATE);
    rate.ok_or_else(|| format!("a rate is more than 0 and at most {MOST_RATE} a second"))
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "a share is from 0 to 1".to_owned())
}

/// One line of `--json`: `docs/json/simulate.schema.json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line {
    /// All nodes are there.
    Started { nodes: u64, facts: u64, sessions: usize, seconds: f64 },
    /// They are gone, and this is what they did.
    Ended {
        seconds: f64,
        #[serde(flatten)]
        done: Done,
    },
}

pub(crate) fn run(global: &Global, args: &SimulateArgs) -> Result<ExitCode, Failure> {
    let signals = Signals::catch()?;
    let nanos =
        |d: Option<Duration>| d.map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX));
    let sessions = args.sessions.unwrap_or(args.nodes as usize).clamp(1, args.nodes as usize);
    let simulation = Simulation {
        nodes: args.nodes as usize,
        facts: args.facts as usize,
        rate: args.rate,
        change: args.change,
        sessions,
        prefix: args.prefix.clone(),
        ahead: nanos(args.ahead) - nanos(args.behind),
        seed: args.seed,
        plane: args.live.of_node(false),
    };
    let begun = Instant::now();
    let mut nodes = Nodes::start(&simulation)?;
    let mut out = Out::new(global.style());
    let (seconds, live_since) = (begun.elapsed().as_secs_f64(), Instant::now());
    let SimulateArgs { nodes: count, facts, .. } = args;
    match out.style {
        Style::Json => out.json(&Line::Started { nodes: *count, facts: *facts, sessions, seconds })?,
        _ => out.line(format!(
            "{count} nodes with {facts} facts each, through {sessions} connections, after {seconds:.1} s"
        ))?,
    }
    out.flush()?;
    let end = args.run_for.and_then(|run_for| live_since.checked_add(run_for));
    while !wait_until(&signals, nodes.due(), end)? {
        nodes.look(Instant::now());
    }
    let (done, seconds) = (nodes.done(), live_since.elapsed().as_secs_f64());
    nodes.close();
    match out.style {
        Style::Json => out.json(&Line::Ended { seconds, done })?,
        _ => out.line(format!(
            "{} batches with {} samples in {} bytes in {seconds:.1} s, {} looks too late",
            done.batches, done.samples, done.bytes, done.late
        ))?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Sleeps until a node is due. True if it is time to end.
fn wait_until(signals: &Signals, due: Instant, end: Option<Instant>) -> Result<bool, Failure> {
    let wake = end.map_or(due, |end| end.min(due));
    let left = wake.saturating_duration_since(Instant::now());
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut fds = [PollFd::from_borrowed_fd(signals.descriptor(), PollFlags::IN)];
    match poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(Failure::new("cannot wait").because(&e)),
    }
    let is_over = end.is_some_and(|end| end <= Instant::now());
    Ok(is_over || !fds[0].revents().is_empty())
}

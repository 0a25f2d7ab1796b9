//! `skopos simulate`: joins a hub with simulated nodes, to see how it copes with a thousand.

mod plan;
mod facts;
mod node;
mod nodes;

use std::process::ExitCode;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use skopos_model::duration;
use skopos_wire::Plane;

use self::nodes::Nodes;
use self::plan::{Certificates, Counts, Simulation};
use skopos_agent::Signals;
use skopos_node::LiveArgs;
use skopos_term::Failure;
use skopos_term::Global;
use skopos_term::{Out, Style, tell};

/// The most nodes of one process: ten times the number that a hub is designed for.
const MAX_NODES: u64 = 10_000;

/// The most facts of a node: the bound of a mirror.
const MAX_FACTS: u64 = 65_536;

/// The most polls of a node in a second.
const MOST_RATE: f64 = 1000.0;

/// The time after which a warning says that no hub answers.
const WARN_AFTER: Duration = Duration::from_secs(2);

/// Time between two looks at signals and the end of `--for` while the nodes join.
const JOIN_POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub(crate) struct SimulateArgs {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=MAX_NODES))]
    nodes: u64,
    /// Facts of each node, with the topics, units and kinds of an agent
    #[arg(long, value_name = "M", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=MAX_FACTS))]
    facts: u64,
    /// Polls of each node in a second
    #[arg(long, value_name = "R", default_value_t = 1.0, value_parser = rate)]
    rate: f64,
    /// Share of facts that change between two polls, from 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.3, value_parser = share, allow_hyphen_values = true)]
    change: f64,
    /// Connections that the nodes share [default: one for each node]
    #[arg(long, value_name = "S")]
    sessions: Option<usize>,
    /// Prefix of the nodes' names
    #[arg(long, value_name = "NAME", default_value = "sim")]
    prefix: String,
    /// Time by which the clocks of the nodes are ahead
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
    ahead: Option<Duration>,
    /// Time by which the clocks of the nodes are behind
    #[arg(long, value_name = "DURATION", value_parser = duration::parse, conflicts_with = "ahead", allow_hyphen_values = true)]
    behind: Option<Duration>,
    /// Seed of the made-up values
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Stop after this time
    #[arg(long = "for", value_name = "DURATION", value_parser = duration::parse, allow_hyphen_values = true)]
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
    /// All nodes have joined.
    Started { nodes: u64, facts: u64, sessions: usize, seconds: f64 },
    /// The nodes have left; the counts of their work since all had joined.
    Ended {
        seconds: f64,
        #[serde(flatten)]
        done: Counts,
    },
}

pub(crate) fn run(global: &Global, args: &SimulateArgs) -> Result<ExitCode, Failure> {
    let signals = Signals::catch()?;
    let nanos =
        |d: Option<Duration>| d.map_or(0, |d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX));
    let sessions = args.sessions.unwrap_or(args.nodes as usize).clamp(1, args.nodes as usize);
    let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
    let plane = args.live.of_node(&dir, false)?;
    let certificates = plane.identity.clone().map(Certificates::new).transpose()?;
    if certificates.is_some() && sessions != args.nodes as usize {
        let error = "with certificates each node has its own connection";
        return Err(Failure::new(error).hint("leave `--sessions` out, or use --insecure"));
    }
    let simulation = Simulation {
        nodes: args.nodes as usize,
        facts: args.facts as usize,
        rate: args.rate,
        change: args.change,
        sessions,
        prefix: args.prefix.clone(),
        ahead: nanos(args.ahead) - nanos(args.behind),
        seed: args.seed,
        plane,
        certificates,
    };
    let begun = Instant::now();
    let give_up_at = args.run_for.and_then(|run_for| begun.checked_add(run_for));
    let at = args.live.connect().join(", ");
    let Some(planes) = join(&signals, &simulation, &at, give_up_at)? else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut nodes = Nodes::start(&simulation, planes);
    let mut out = Out::new(global.style());
    if !until_joined(&signals, &mut nodes)? {
        nodes.close();
        return Ok(ExitCode::SUCCESS);
    }
    let (seconds, live_since) = (begun.elapsed().as_secs_f64(), Instant::now());
    nodes.count_from(live_since);
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
        nodes.poll(Instant::now());
    }
    let (done, seconds) = (nodes.done(), live_since.elapsed().as_secs_f64());
    nodes.close();
    match out.style {
        Style::Json => out.json(&Line::Ended { seconds, done })?,
        _ => out.line(format!(
            "{} batches with {} samples in {} bytes in {seconds:.1} s, {} polls too late",
            done.batches, done.samples, done.bytes, done.late
        ))?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Opens the sessions of the nodes; `None` if a signal came before. Warns once if no hub answers at `at`.
///
/// # Errors
/// No hub has answered at `give_up_at`; a session cannot be opened.
fn join(
    signals: &Signals,
    simulation: &Simulation,
    at: &str,
    give_up_at: Option<Instant>,
) -> Result<Option<Vec<Plane>>, Failure> {
    let (opening, begun, mut is_warned) = (nodes::open(simulation), Instant::now(), false);
    loop {
        match opening.result.recv_timeout(JOIN_POLL) {
            Ok(Ok(planes)) => return Ok(Some(planes)),
            Ok(Err(failure)) => return Err(failure),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::new("simulated nodes cannot join"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if signals.wait_for(Duration::from_millis(1))? {
            return Ok(None);
        }
        let now = Instant::now();
        if opening.is_answered() {
            continue;
        }
        if give_up_at.is_some_and(|end| end <= now) {
            return Err(Failure::new(format!("no hub answers at {at}"))
                .hint(format!("start one there: `skopos hub --listen {at}`")));
        }
        if !is_warned && now.saturating_duration_since(begun) >= WARN_AFTER {
            is_warned = true;
            tell(match at {
                "" => "warning: the nodes have not joined yet".to_owned(),
                at => format!("warning: no hub answers at {at}; still trying"),
            });
        }
    }
}

/// Polls the nodes that have joined until all have. Returns false if a signal came before.
///
/// # Errors
/// A name is taken, or the thread that announces nodes has ended before its last one.
fn until_joined(signals: &Signals, nodes: &mut Nodes) -> Result<bool, Failure> {
    while !nodes.take_joined()? {
        let now = Instant::now();
        let due = nodes.due();
        if due <= now {
            nodes.poll(now);
        }
        if wait_until(signals, due.min(now + JOIN_POLL), None)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Sleeps until a poll is due. Returns true if the simulation is over.
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

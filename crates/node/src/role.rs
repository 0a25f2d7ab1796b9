//! `skopos agent`, the lean daemon. It prints a line when it has started, then only warnings.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use skopos_agent::config::{Config, Share, remote_patterns};
use skopos_agent::control::Status;
use skopos_agent::{Agent, Archiver, Event, Signals};
use skopos_term::{Failure, Global, Out, Style, tell};

use crate::args::NodeArgs;
use crate::jobs::DeliverySettings;
use crate::membership::Membership;

/// A line of `--json`: `docs/json/agent.schema.json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    /// The agent runs, with this state.
    Started { pid: u32, segment: String, status: Status },
    /// A failure, or the end of one.
    Warning { message: &'a str },
}

/// Runs an agent with its part in the live plane until a signal or its deadline ends it.
///
/// # Errors
/// Another agent runs already; a setting is wrong; the plane cannot be joined; the output fails.
pub fn run(global: &Global, args: &NodeArgs) -> Result<ExitCode, Failure> {
    let node = Node::start(global, args, Signals::catch()?)?;
    let left = node.agent.left_to_hub();
    if !left.is_empty() {
        let names = left.join("`, `");
        let message = format!("a hub computes these insights, not this agent: `{names}`");
        warn(&mut Out::new(global.style()), &message)?;
    }
    run_node(node, global)
}

/// An agent with its history and its link to other nodes.
pub struct Node {
    /// Keeps published samples on disk. It stops after the agent, before the segment is removed.
    archiver: Option<Archiver>,
    /// The agent, which is connected with other nodes if the user asked for that.
    pub agent: Agent,
}

impl Node {
    /// Starts the agent in its runtime directory, then its history and its part in the live plane.
    ///
    /// # Errors
    /// Another agent runs already; a setting is wrong; history cannot be kept in that folder; the plane
    /// cannot be joined.
    pub fn start(global: &Global, args: &NodeArgs, signals: Signals) -> Result<Self, Failure> {
        if !args.live
            && let Some(option) = args.plane.first_given()
        {
            let hint = "add --live: without it an agent is connected to nothing";
            return Err(Failure::new(format!("`{option}` needs `--live`")).hint(hint));
        }
        let mut config = Config::load(args.agent.config.as_deref())?;
        let (jobs, ranks) = (config.jobs.take(), config.rank.clone());
        let (limits, folder) = (config.history.limits(), config.history.dir.clone());
        let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
        let mut of_agent = args.agent.clone();
        if args.live && of_agent.node.is_none() && config.agent.node.is_none() {
            of_agent.node = args.plane.known_identity()?.map(|identity| identity.names().node);
        }
        let mut agent = Agent::start(dir, &of_agent, config, signals)?;
        let start = |folder: PathBuf| {
            Archiver::start(&folder, limits, agent.dir().to_path_buf(), agent.node())
        };
        let archiver = args.history.clone().or(folder).map(start).transpose()?;
        if args.live {
            let dir = agent.dir().to_path_buf();
            // The facts of other nodes that its rankings read.
            let mut mirror = args.mirror.clone();
            mirror.extend(remote_patterns(&ranks, agent.node()));
            let config = args.plane.of_node(&dir, !mirror.is_empty())?;
            let mut joined = Membership::start(config, agent.node(), dir.clone(), &mirror)?;
            if let Some(jobs) = jobs {
                joined.deliver(DeliverySettings::new(&jobs, agent.node(), dir)?)?;
            }
            agent.join(Box::new(joined));
        } else if jobs.is_some() {
            tell(
                "warning: without --live the agent delivers no facts of jobs; the table [jobs] has no effect",
            );
        }
        Ok(Self { archiver, agent })
    }

    /// Runs the agent (see [`Agent::run`]), then writes the rest of its history.
    ///
    /// # Errors
    /// The errors of [`Agent::run`]; the last samples of history cannot be written.
    pub fn run(
        &mut self,
        observe: &mut dyn FnMut(&Agent, Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let ran = self.agent.run(observe);
        let kept = self.archiver.take().map_or(Ok(()), Archiver::stop);
        ran.and(kept)
    }
}

/// Runs the agent until it ends, and prints its start and its warnings.
///
/// # Errors
/// The errors of [`Agent::run`].
pub fn run_node(mut node: Node, global: &Global) -> Result<ExitCode, Failure> {
    let mut out = Out::new(global.style());
    let mut started = false;
    node.run(&mut |agent, event| {
        if let Some(message) = warning(&event) {
            warn(&mut out, &message)?;
        }
        if matches!(event, Event::Ticked) && !std::mem::replace(&mut started, true) {
            let status = agent.status();
            let segment = agent.segment_path().display().to_string();
            match out.style {
                Style::Json => {
                    out.json(&Line::Started { pid: std::process::id(), segment, status })?
                }
                _ => out.line(format!(
                    "skopos agent {}: {} facts of {} from {} sensors in {segment}",
                    status.version,
                    status.sensors.iter().map(|s| s.facts).sum::<usize>(),
                    status.node,
                    status.sensors.len(),
                ))?,
            }
            out.flush()?;
        }
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints a warning: with `--json` as an event to stdout, else to stderr.
///
/// # Errors
/// The output fails.
pub fn warn(out: &mut Out, message: &str) -> Result<(), Failure> {
    if out.style == Style::Json {
        out.json(&Line::Warning { message })?;
        out.flush()?;
    } else {
        tell(format!("warning: {message}"));
    }
    Ok(())
}

/// Returns the warning for an event, if it is one.
pub fn warning(event: &Event) -> Option<String> {
    Some(match event {
        Event::SensorFailed { sensor, error } => format!("{sensor}: cannot be read: {error}"),
        Event::SensorRecovered { sensor } => format!("{sensor}: can be read again"),
        Event::FactRefused { sensor, error } => {
            format!("{sensor}: a fact cannot be registered: {error}")
        }
        Event::TelemetryLost { part, reason } => {
            format!("{part}: this part of telemetry is not there: {reason}")
        }
        Event::WeightsLost { profile, reason } => {
            format!("the rank `{profile}` learns its weights anew; they cannot be read: {reason}")
        }
        Event::RankUnwritten { profile, outcomes, weights } => {
            let outcomes = (*outcomes > 0).then(|| format!("{outcomes} outcomes of its recording"));
            let weights = weights.then(|| "its last weights".to_owned());
            let lost = outcomes.into_iter().chain(weights).collect::<Vec<_>>().join(" and ");
            format!("the rank `{profile}`: the disk did not take {lost} before the end")
        }
        Event::ClockSteppedBack { by } => format!(
            "the clock stepped back by {by:?}; until it catches up, samples get the time of the previous one"
        ),
        Event::BudgetExceeded { limit, over } => format!(
            "sensing costs {:.1}% of a core, and the budget is {}, although every sensor has its longest \
             interval; leave some out with --skip, or raise --budget",
            (limit + over) * 100.0,
            Share(*limit)
        ),
        Event::Link(message) => message.clone(),
        Event::Ticked => return None,
    })
}

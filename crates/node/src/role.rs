//! `skopos agent`: the lean daemon. Says what it senses once, then only what goes wrong.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use skopos_agent::config::{Config, Share};
use skopos_agent::control::Status;
use skopos_agent::{Agent, Archiver, Event, Signals};
use skopos_term::{Failure, Global, Out, Style, tell};

use crate::args::NodeArgs;
use crate::joined::Joined;

/// One line of `--json`: `docs/json/agent.schema.json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    /// Watching, and what.
    Started { pid: u32, segment: String, status: Status },
    /// Something went wrong, or well again.
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
        warn(&mut Out::new(global.style()), &format!("left to a hub: insight `{names}`"))?;
    }
    tend(node, global)
}

/// An agent with what the verb adds to it.
pub struct Node {
    /// Writes down what is published. It stops first, so that it has all samples.
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
        let config = Config::load(args.agent.config.as_deref())?;
        let (limits, folder) = (config.history.limits(), config.history.dir.clone());
        let dir = global.dir.clone().unwrap_or_else(skopos_shm::runtime_dir);
        let mut agent = Agent::start(dir, &args.agent, config, signals)?;
        let start = |folder: PathBuf| {
            Archiver::start(&folder, limits, agent.dir().to_path_buf(), agent.node())
        };
        let archiver = args.history.clone().or(folder).map(start).transpose()?;
        if args.live {
            let config = args.plane.of_node(!args.mirror.is_empty());
            let dir = agent.dir().to_path_buf();
            let joined = Joined::start(config, agent.node(), dir, &args.mirror)?;
            agent.join(Box::new(joined));
        }
        Ok(Self { archiver, agent })
    }

    /// Runs the agent; see [`Agent::run`]. History is written to its end afterwards.
    ///
    /// # Errors
    /// Those of [`Agent::run`].
    pub fn run(
        &mut self,
        observe: &mut dyn FnMut(&Agent, Event) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let ran = self.agent.run(observe);
        drop(self.archiver.take());
        ran
    }
}

/// Runs the agent until it ends.
pub fn tend(mut node: Node, global: &Global) -> Result<ExitCode, Failure> {
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

/// Prints a warning where it belongs: to stderr, or as an event among the others.
pub fn warn(out: &mut Out, message: &str) -> Result<(), Failure> {
    if out.style == Style::Json {
        out.json(&Line::Warning { message })?;
        out.flush()?;
    } else {
        tell(format!("warning: {message}"));
    }
    Ok(())
}

/// What an event means for people, if it is worth telling.
pub fn warning(event: &Event) -> Option<String> {
    Some(match event {
        Event::SensorFailed { sensor, error } => format!("{sensor}: cannot be read: {error}"),
        Event::SensorRecovered { sensor } => format!("{sensor}: can be read again"),
        Event::FactRefused { sensor, error } => format!("{sensor}: a fact is refused: {error}"),
        Event::ClockSteppedBack { by } => format!(
            "the clock stepped back by {by:?}; samples keep their order and wait for it to catch up"
        ),
        Event::BudgetExceeded { limit, over } => format!(
            "sensing costs {:.1}% of a core and the budget is {}: no sensor can be polled less often; \
             leave some out with --skip, or give more with --budget",
            (limit + over) * 100.0,
            Share(*limit)
        ),
        Event::Link(news) => news.clone(),
        Event::Ticked => return None,
    })
}

//! `skopos agent`: the lean daemon. Says what it senses once, then only what goes wrong.

use std::process::ExitCode;

use serde::Serialize;

use crate::agent::{Agent, Event, Signals};
use crate::cli::{AgentArgs, Global};
use crate::config::Share;
use crate::control::Status;
use crate::failure::Failure;
use crate::out::{Out, Style, tell};

/// One line of `--json`: `docs/json/agent.schema.json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Line<'a> {
    /// Watching, and what.
    Started { pid: u32, segment: String, status: Status },
    /// Something went wrong, or well again.
    Warning { message: &'a str },
}

pub(crate) fn run(global: &Global, args: &AgentArgs) -> Result<ExitCode, Failure> {
    let agent = Agent::start(global, args, Signals::catch()?)?;
    let left = agent.left_to_hub();
    if !left.is_empty() {
        let names = left.join("`, `");
        warn(&mut Out::new(global.style()), &format!("left to a hub: insight `{names}`"))?;
    }
    tend(agent, global)
}

/// Runs the agent until it ends.
pub(crate) fn tend(mut agent: Agent, global: &Global) -> Result<ExitCode, Failure> {
    let mut out = Out::new(global.style());
    let mut started = false;
    agent.run(&mut |agent, event| {
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
pub(crate) fn warn(out: &mut Out, message: &str) -> Result<(), Failure> {
    if out.style == Style::Json {
        out.json(&Line::Warning { message })?;
        out.flush()?;
    } else {
        tell(format!("warning: {message}"));
    }
    Ok(())
}

/// What an event means for people, if it is worth telling.
pub(crate) fn warning(event: &Event) -> Option<String> {
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
        #[cfg(feature = "live")]
        Event::Live(news) => news.to_string(),
        Event::Ticked => return None,
    })
}

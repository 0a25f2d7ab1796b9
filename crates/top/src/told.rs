//! What only the agent can say: why an insight is unknown, and what is unusual but no event yet.
//!
//! A thread asks it over its socket, and only while a pane is shown that needs the answer: an agent
//! that does not answer must not stop the screen.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use super::findings::Finding;
use skopos_agent::ask;
use skopos_term::Failure;
use skopos_term::Global;

/// How often it is asked: reasons change when hardware and configuration do.
const ASK_EVERY: Duration = Duration::from_secs(3);

/// The agent's latest answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    /// Why an insight is unknown, by its topic.
    pub unknown: HashMap<String, String>,
    /// Why there is no vertex of a built-in insight, by its name.
    pub absent: HashMap<String, String>,
    /// Insights for which there was no room, with the reason, by topic.
    pub refused: Vec<(String, String)>,
    /// How many those are; the agent lists only the first ones.
    pub refused_total: usize,
    /// What is unusual now.
    pub raised: Vec<Finding>,
    /// Why it could not be asked again.
    pub trouble: Option<String>,
}

/// Asks the agent now and then.
pub(crate) struct Asker {
    dir: Option<PathBuf>,
    asking: Option<Asking>,
    asked_at: Option<Instant>,
    waits: bool,
}

/// The thread that asks.
struct Asking {
    requests: Sender<()>,
    answers: Receiver<Told>,
}

impl Asker {
    /// For the agent in `dir`, or the first that is found.
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, asking: None, asked_at: None, waits: false }
    }

    /// The answer that came, if one did; asks again if that is `wanted` and due. Never waits.
    pub(crate) fn look(&mut self, wanted: bool) -> Option<Told> {
        let came = match self.asking.as_ref().map(|asking| asking.answers.try_recv()) {
            Some(Ok(told)) => {
                self.waits = false;
                Some(told)
            }
            // The thread is gone: another one is started.
            Some(Err(TryRecvError::Disconnected)) => {
                (self.asking, self.waits) = (None, false);
                None
            }
            Some(Err(TryRecvError::Empty)) | None => None,
        };
        let due = self.asked_at.is_none_or(|at| at.elapsed() >= ASK_EVERY);
        if wanted && due && !self.waits {
            self.asked_at = Some(Instant::now());
            if let Err(e) = self.ask() {
                return Some(Told { trouble: Some(e.to_string()), ..Told::default() });
            }
        }
        came
    }

    fn ask(&mut self) -> std::io::Result<()> {
        let asking = match &mut self.asking {
            Some(asking) => asking,
            none => none.insert(Asking::start(self.dir.clone())?),
        };
        // A thread that has just ended is noticed at the next look.
        self.waits = asking.requests.send(()).is_ok();
        Ok(())
    }
}

impl Asking {
    fn start(dir: Option<PathBuf>) -> std::io::Result<Self> {
        let (requests, wishes) = channel();
        let (told, answers) = channel();
        let global = Global { json: false, plain: false, dir };
        std::thread::Builder::new().name("asks the agent".to_owned()).spawn(move || {
            for () in wishes {
                let answer = ask_all(&global).unwrap_or_else(|e| Told {
                    trouble: Some(e.message().to_owned()),
                    ..Told::default()
                });
                if told.send(answer).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requests, answers })
    }
}

fn ask_all(global: &Global) -> Result<Told, Failure> {
    let (definitions, refused) = ask::definitions(global)?;
    let vertices = ask::vertices(global, "**", true)?;
    let raised = ask::raised(global)?.iter().filter_map(Finding::parse).collect();
    Ok(Told {
        unknown: vertices.into_iter().filter_map(|v| Some((v.topic, v.unknown?))).collect(),
        absent: definitions.into_iter().filter_map(|d| Some((d.name, d.why_none?))).collect(),
        refused_total: refused.total,
        refused: refused.first.into_iter().map(|r| (r.topic, r.reason)).collect(),
        raised,
        trouble: None,
    })
}

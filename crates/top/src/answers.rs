//! Answers of the agent that are not in shared memory: why an insight is unknown, and which values
//! are unusual although memory has no event of them.
//!
//! A thread asks the agent over its socket, and only while a pane shows an answer: an agent that does
//! not answer must not stop the screen.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use crate::findings::Finding;
use skopos_agent::ask;
use skopos_term::Failure;
use skopos_term::Global;

/// Time between two requests. Reasons change when hardware or configuration changes.
const REQUEST_INTERVAL: Duration = Duration::from_secs(3);

/// The agent's latest answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    /// The reason why an insight is unknown, by its topic.
    pub unknown: HashMap<String, String>,
    /// The reason why a built-in insight does not have a vertex, by its name.
    pub absent: HashMap<String, String>,
    /// Topics of insights for which there was no room, and the reason.
    pub refused: Vec<(String, String)>,
    /// Number of refused insights; the agent lists only the first ones.
    pub refused_total: usize,
    /// Values that are unusual now.
    pub raised: Vec<Finding>,
    /// The error of the last request.
    pub trouble: Option<String>,
}

/// Sends requests to the agent at intervals.
pub(crate) struct AgentClient {
    dir: Option<PathBuf>,
    worker: Option<Worker>,
    requested_at: Option<Instant>,
    is_waiting: bool,
}

/// The thread that waits for the agent.
struct Worker {
    requests: Sender<()>,
    answers: Receiver<Answers>,
}

impl AgentClient {
    /// A client of the agent in `dir`, or of the first agent that is found.
    pub(crate) fn new(dir: Option<PathBuf>) -> Self {
        Self { dir, worker: None, requested_at: None, is_waiting: false }
    }

    /// Returns the answers that have arrived, if any, and sends a request if that is `wanted` and
    /// due. Never waits.
    pub(crate) fn poll(&mut self, wanted: bool) -> Option<Answers> {
        let arrived = match self.worker.as_ref().map(|worker| worker.answers.try_recv()) {
            Some(Ok(answers)) => {
                self.is_waiting = false;
                Some(answers)
            }
            // The thread has ended; the next request starts another.
            Some(Err(TryRecvError::Disconnected)) => {
                (self.worker, self.is_waiting) = (None, false);
                None
            }
            Some(Err(TryRecvError::Empty)) | None => None,
        };
        let due = self.requested_at.is_none_or(|at| at.elapsed() >= REQUEST_INTERVAL);
        if wanted && due && !self.is_waiting {
            self.requested_at = Some(Instant::now());
            if let Err(e) = self.request() {
                return Some(Answers { trouble: Some(e.to_string()), ..Answers::default() });
            }
        }
        arrived
    }

    fn request(&mut self) -> std::io::Result<()> {
        let worker = match &mut self.worker {
            Some(worker) => worker,
            empty => empty.insert(Worker::start(self.dir.clone())?),
        };
        // If the thread has just ended, the next poll finds out.
        self.is_waiting = worker.requests.send(()).is_ok();
        Ok(())
    }
}

impl Worker {
    fn start(dir: Option<PathBuf>) -> std::io::Result<Self> {
        let (requests, received) = channel();
        let (sender, answers) = channel();
        let global = Global { json: false, plain: false, dir };
        std::thread::Builder::new().name("asks the agent".to_owned()).spawn(move || {
            for () in received {
                let answer = ask_all(&global).unwrap_or_else(|e| Answers {
                    trouble: Some(e.message().to_owned()),
                    ..Answers::default()
                });
                if sender.send(answer).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requests, answers })
    }
}

fn ask_all(global: &Global) -> Result<Answers, Failure> {
    let (definitions, refused) = ask::definitions(global)?;
    let vertices = ask::vertices(global, "**", true)?;
    let raised = ask::raised(global)?.iter().filter_map(Finding::parse).collect();
    Ok(Answers {
        unknown: vertices.into_iter().filter_map(|v| Some((v.topic, v.unknown?))).collect(),
        absent: definitions.into_iter().filter_map(|d| Some((d.name, d.why_none?))).collect(),
        refused_total: refused.total,
        refused: refused.first.into_iter().map(|r| (r.topic, r.reason)).collect(),
        raised,
        trouble: None,
    })
}

//! Rules: statements whose rows call for an action. `skopos_steer::rule` decides; this module evaluates, remembers and acts.
//!
//! ```text
//! engine ──rows──▶ evaluator ──▶ Tracker ──events──▶ history (journal on disk)
//!                                            └─due──▶ queue ──▶ webhook, command
//!                                                └──▶ a fact, for `publish`
//! ```
//!
//! # Invariants
//! - A statement has a deadline, a thousand rows and a tenth of one thread's time. A rule whose statement fails changes no
//!   subject, and shows the reason.
//! - Each event and each outcome of an action is in the history, or counted as lost.
//! - An action that failed, or whose outcome is not known after a restart, is due again. The history keeps the states of all
//!   subjects, even if it has removed their entries.
//! - Actions of a rule are done one after another, in their order; four at most at one time. The queue waits for a server or a
//!   program until its timeout, and then kills the program with its whole process group. If a program outlives that, the queue
//!   stops waiting for it and reports it.
//! - Tokens, and paths of URLs, are in no message, table or history.
//!
//! Read in this order: this file, `state`, `rows`, `evaluator`, `history`, `queue`, `webhook`, `command`.

mod state;
mod rows;
mod history;
mod payload;
mod webhook;
mod command;
mod queue;
mod evaluator;
#[cfg(test)]
mod tests;

pub(crate) use self::evaluator::TIMEOUT;
pub(crate) use self::history::RuleRecord;
pub(crate) use self::rows::rows;
pub(crate) use self::state::RuleState;
pub use self::state::RulesPlace;

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

use skopos_agent::HUB_RULES_NAME;
use skopos_query::Engine;
use skopos_shm::Publisher;
use skopos_term::Failure;
use tokio::runtime::Handle;

use self::evaluator::Evaluator;
use self::history::History;
use self::queue::Queue;
use crate::config::RuleConfig;

/// Evaluates rules until it is dropped.
pub(crate) struct Rules {
    /// Closed to end the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    queue: Arc<Queue>,
}

impl Rules {
    /// Starts to evaluate `configured` with `engine`, for the hub of `site` with the runtime directory `dir`. The history is in
    /// `folder`. Tables find the rules in `place`. Returns `None` if there are no rules.
    ///
    /// # Errors
    /// The history or the segment cannot be opened, or no thread can be started.
    pub(crate) fn start(
        (dir, folder): (&Path, Option<&Path>),
        site: &str,
        (engine, runtime): (Arc<Engine>, Handle),
        configured: &[RuleConfig],
        place: &RulesPlace,
    ) -> Result<Option<Self>, Failure> {
        if configured.is_empty() {
            return Ok(None);
        }
        let folder = folder.ok_or_else(|| {
            Failure::new("the history of rules has no folder")
                .hint("set SKOPOS_STATE to a folder of this user")
        })?;
        let history = History::open(folder).map_err(|e| {
            Failure::new(format!("the history of rules in {} cannot be used", folder.display()))
                .because(&e)
                .hint("another hub of this user may use it: set SKOPOS_STATE to another folder")
        })?;
        let history = Arc::new(history);
        let rules: Vec<_> = configured.iter().cloned().map(RuleState::new).map(Arc::new).collect();
        let publisher = Publisher::builder(HUB_RULES_NAME).dir(dir).node(site).create()?;
        let failed = |e: std::io::Error| Failure::new("no thread can be started").because(&e);
        let queue = Queue::start(history.clone(), site).map_err(failed)?;
        place.set(rules.clone(), history.clone());
        let parts = (engine, runtime, publisher);
        let evaluator = Evaluator::new(parts, site, rules, (history, queue.clone()))?;
        let (stop, stopped) = channel();
        let thread = std::thread::Builder::new().name("rules".to_owned());
        let thread = thread.spawn(move || evaluator.run(&stopped)).map_err(failed)?;
        Ok(Some(Self { stop: Some(stop), thread: Some(thread), queue }))
    }
}

impl Drop for Rules {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.queue.end();
    }
}

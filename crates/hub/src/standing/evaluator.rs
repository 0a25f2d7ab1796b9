//! Evaluates a question for all of its clients.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use skopos_query::{Engine, Error, Inputs, Limits};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::answer::{Budget, Change, Snapshot};
use super::pace::Pace;
use super::question::Question;
use crate::pulse::any_changed;

/// Default time between two evaluations of a statement that changes with measured values.
const EVERY: Duration = Duration::from_millis(100);

/// Default time between two evaluations of a statement that changes with the clock.
const EVERY_BY_THE_CLOCK: Duration = Duration::from_secs(1);

/// Minimum time between two evaluations. People and most programs do not notice a shorter delay.
const SHORTEST: Duration = Duration::from_millis(10);

/// Maximum number of rows of a standing question's answer. They are kept for the comparison with the next answer.
pub const MAX_ROWS: usize = 100_000;

/// Threads that compute an answer, so that the pace of all questions counts what they take.
const THREADS: usize = 1;

/// The state that an evaluator and the clients of its question share.
#[derive(Default)]
pub(super) struct Shared {
    pub(super) state: watch::Sender<State>,
    /// Number of clients that wait for a change.
    pub(super) waiting: AtomicU64,
    /// Number of those that wait for their first answer.
    pub(super) joining: AtomicU64,
    /// Wakes the evaluator when a client begins to wait and no other does.
    pub(super) wake: Notify,
    /// Wakes the evaluator when a client waits for its first answer.
    pub(super) join: Notify,
}

/// The last evaluation of a question.
#[derive(Default)]
pub(super) struct State {
    /// Number of times that the evaluator has found the answer current.
    pub(super) checks: u64,
    pub(super) answer: Option<Arc<Snapshot>>,
    /// The answer before, and the difference between the two.
    pub(super) before: Option<Weak<Snapshot>>,
    pub(super) change: Option<Arc<Change>>,
    /// The error that ended the question.
    pub(super) error: Option<Arc<Error>>,
}

/// Evaluates a question while clients wait for its changes.
pub(super) struct Evaluator {
    engine: Arc<Engine>,
    question: Question,
    limits: Limits,
    every: Duration,
    inputs: Arc<Inputs>,
    news: Vec<watch::Receiver<u64>>,
    pace: Arc<Pace>,
    budget: Budget,
    shared: Arc<Shared>,
    prints: Prints,
}

/// The fingerprint of the inputs. To find it takes as long as a simple answer, so it is not looked for while answers change.
#[derive(Clone, Copy)]
enum Prints {
    /// The last answer was another one than the one before.
    Changing,
    /// The last answer was the same as before; its fingerprint is not known.
    Unknown,
    Known(u64),
}

impl Evaluator {
    pub(super) fn new(
        engine: Arc<Engine>,
        question: Question,
        (inputs, news): (Inputs, Vec<watch::Receiver<u64>>),
        (pace, budget): (Arc<Pace>, Budget),
        shared: Arc<Shared>,
    ) -> Self {
        let usual = if inputs.is_timed() { EVERY_BY_THE_CLOCK } else { EVERY };
        let every = question.every.unwrap_or(usual).max(SHORTEST);
        let limits = Limits { deadline: question.deadline, rows: MAX_ROWS, threads: THREADS };
        let (inputs, prints) = (Arc::new(inputs), Prints::Changing);
        Self { engine, question, limits, every, inputs, news, pace, budget, shared, prints }
    }

    /// Evaluates until the question fails, or until the last client is gone.
    pub(super) async fn run(mut self) {
        loop {
            while self.shared.waiting.load(Ordering::SeqCst) == 0 {
                self.shared.wake.notified().await;
            }
            // Changes from here on count as new.
            self.news.iter_mut().for_each(watch::Receiver::mark_unchanged);
            let begun = Instant::now();
            let busy = match self.check().await {
                Ok(busy) => busy,
                // Others have asked too much at this moment.
                Err(Error::Busy) => Duration::ZERO,
                Err(e) => {
                    self.shared.state.send_modify(|state| state.error = Some(Arc::new(e)));
                    return;
                }
            };
            let rest = (busy + self.pace.rest(busy)).max(self.every);
            tokio::time::sleep_until(begun + rest).await;
            if self.inputs.is_timed() {
                continue;
            }
            tokio::select! {
                () = any_changed(&mut self.news) => {}
                () = self.shared.join.notified() => {}
                () = tokio::time::sleep(EVERY_BY_THE_CLOCK), if self.inputs.is_polled() => {}
            }
        }
    }

    /// Evaluates the statement if its inputs have changed, and returns the time that this took.
    async fn check(&mut self) -> Result<Duration, Error> {
        let pace = self.pace.clone();
        let _turn = pace.turn(&self.question.caller).await;
        let begun = Instant::now();
        let print = match self.prints {
            Prints::Changing => None,
            _ if self.inputs.is_timed() => None,
            Prints::Unknown | Prints::Known(_) => {
                let (engine, inputs) = (self.engine.clone(), self.inputs.clone());
                Some(blocking(move || Ok(engine.fingerprint(&inputs, &|_| true))).await?)
            }
        };
        let is_same = matches!((self.prints, print), (Prints::Known(a), Some(b)) if a == b);
        if !is_same {
            let has_changed = self.evaluate().await?;
            self.prints = match (has_changed, print) {
                (true, _) => Prints::Changing,
                (false, None) => Prints::Unknown,
                (false, Some(print)) => Prints::Known(print),
            };
        }
        let joining = self.shared.joining.load(Ordering::SeqCst);
        self.shared.state.send_if_modified(|state| {
            state.checks += 1;
            joining > 0
        });
        Ok(begun.elapsed())
    }

    /// Returns true if the answer is another one than before.
    async fn evaluate(&self) -> Result<bool, Error> {
        let Question { caller, sql, .. } = &self.question;
        let answer = self.engine.query(caller, sql, &self.limits).await?;
        let before = self.shared.state.borrow().answer.clone();
        let budget = self.budget.clone();
        let (snapshot, change, before) = blocking(move || {
            let snapshot = Snapshot::new(&answer, before.as_deref(), &budget)?;
            let change = match &before {
                Some(before) => snapshot.changes_since(before),
                None => Ok(Some(snapshot.whole())),
            };
            let change = change.map_err(|e| Error::Query { message: e.to_string() })?;
            Ok((snapshot, change, before))
        })
        .await?;
        let Some(change) = change else { return Ok(false) };
        self.shared.state.send_modify(|state| {
            state.before = before.as_ref().map(Arc::downgrade);
            state.answer = Some(Arc::new(snapshot));
            state.change = Some(Arc::new(change));
            // A client that joined during the evaluation takes this answer.
            state.checks += 1;
        });
        Ok(true)
    }
}

/// Does work that takes its time on a thread that may.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(Error::Query { message: e.to_string() }))
}

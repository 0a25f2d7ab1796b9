//! Standing questions: statements that the hub asks again when their inputs change. Each answer carries only the
//! rows that changed.
//!
//! Equal statements of one caller share their evaluations and the comparison of their answers. All evaluations together
//! take a share of one core: with more questions each is evaluated less often.
//!
//! Read in this order: this file, `evaluator`, `answer`, `pace`.

mod answer;
mod question;
mod evaluator;
mod pace;

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};

use skopos_model::unpoisoned;
use skopos_query::{Engine, Error};
use tokio::sync::{OnceCell, watch};
use tokio::task::AbortHandle;

pub use self::answer::Change;
use self::answer::{Budget, Snapshot};
pub use self::evaluator::MAX_ROWS;
use self::evaluator::{Evaluator, Shared};
use self::pace::Pace;
pub use self::question::Question;

/// All standing questions of a hub.
pub struct Standings {
    engine: Arc<Engine>,
    pace: Arc<Pace>,
    budget: Budget,
    running: Mutex<HashMap<Question, Weak<Running>>>,
}

/// The evaluations of a question, which end with the last of its clients.
#[derive(Default)]
struct Running {
    shared: Arc<Shared>,
    evaluator: OnceCell<AbortHandle>,
}

/// A client's standing question.
pub struct Standing {
    running: Arc<Running>,
    changes: watch::Receiver<evaluator::State>,
    /// Number of checks when the client came: an older answer may have changed since.
    since: u64,
    /// The answer that the client has.
    last: Option<Arc<Snapshot>>,
}

impl Standings {
    /// Returns the questions to `engine`: none yet.
    pub fn new(engine: &Engine) -> Self {
        let engine = Arc::new(engine.standing());
        Self { engine, pace: Arc::default(), budget: Budget::default(), running: Mutex::default() }
    }

    /// Begins to evaluate a question, unless an equal one is evaluated already; the channels of `news` notify of changes.
    ///
    /// # Errors
    /// Fails if the statement cannot be answered.
    pub async fn ask(
        &self,
        question: Question,
        news: Vec<watch::Receiver<u64>>,
    ) -> Result<Standing, Error> {
        let running = self.running(&question);
        // Clients that come together wait for one plan.
        let begin = async {
            let inputs = self.engine.inputs(&question.caller, &question.sql).await?;
            let evaluator = Evaluator::new(
                self.engine.clone(),
                question.clone(),
                (inputs, news),
                (self.pace.clone(), self.budget.clone()),
                running.shared.clone(),
            );
            Ok::<_, Error>(tokio::spawn(evaluator.run()).abort_handle())
        };
        running.evaluator.get_or_try_init(|| begin).await?;
        Ok(Standing::of(running))
    }

    /// Returns the evaluations of a question: those of an equal one, unless it has failed and does not come back.
    fn running(&self, question: &Question) -> Arc<Running> {
        let mut all = unpoisoned(self.running.lock());
        let known = all.get(question).and_then(Weak::upgrade);
        let is_good = |running: &Arc<Running>| running.shared.state.borrow().error.is_none();
        if let Some(running) = known.filter(is_good) {
            return running;
        }
        let running = Arc::<Running>::default();
        all.retain(|_, running| running.strong_count() > 0);
        all.insert(question.clone(), Arc::downgrade(&running));
        running
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.evaluator.get().into_iter().for_each(AbortHandle::abort);
    }
}

impl Standing {
    fn of(running: Arc<Running>) -> Self {
        let changes = running.shared.state.subscribe();
        let since = changes.borrow().checks;
        Self { running, changes, since, last: None }
    }

    /// Waits for the changes since the last call; the first call returns the whole answer. The statement is
    /// evaluated only while a client waits, so a slow client misses intermediate answers, but not a row of the
    /// current one.
    ///
    /// # Errors
    /// Fails as [`Engine::query`] does.
    pub async fn next(&mut self) -> Result<Arc<Change>, Arc<Error>> {
        let running = self.running.clone();
        let _waiting = Waiting::new(&running.shared, self.last.is_none());
        loop {
            if let Some(change) = self.change()? {
                return Ok(change);
            }
            if self.changes.changed().await.is_err() {
                let message = "the statement is not evaluated any more".to_owned();
                return Err(Arc::new(Error::Query { message }));
            }
        }
    }

    /// Returns the changes since the last call, if there are any.
    fn change(&mut self) -> Result<Option<Arc<Change>>, Arc<Error>> {
        let state = self.changes.borrow_and_update();
        if let Some(error) = &state.error {
            return Err(error.clone());
        }
        let Some(current) = state.answer.clone() else { return Ok(None) };
        let change = match &self.last {
            None if state.checks <= self.since => return Ok(None),
            None => Some(Arc::new(current.whole())),
            Some(last) if Arc::ptr_eq(last, &current) => return Ok(None),
            Some(last) if state.before.as_ref().is_some_and(|before| ptr_eq(before, last)) => {
                state.change.clone()
            }
            // This client has missed an answer.
            Some(last) => {
                let failed = |e| Arc::new(Error::Query { message: format!("{e}") });
                current.changes_since(last).map_err(failed)?.map(Arc::new)
            }
        };
        drop(state);
        self.last = Some(current);
        Ok(change)
    }
}

fn ptr_eq(before: &Weak<Snapshot>, last: &Arc<Snapshot>) -> bool {
    std::ptr::eq(before.as_ptr(), Arc::as_ptr(last))
}

/// Counts a client as waiting until it is dropped.
struct Waiting<'s> {
    shared: &'s Shared,
    is_new: bool,
}

impl<'s> Waiting<'s> {
    fn new(shared: &'s Shared, is_new: bool) -> Self {
        shared.joining.fetch_add(u64::from(is_new), Ordering::SeqCst);
        let others = shared.waiting.fetch_add(1, Ordering::SeqCst);
        if others == 0 {
            shared.wake.notify_one();
        }
        if is_new {
            shared.join.notify_one();
        }
        Self { shared, is_new }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.shared.waiting.fetch_sub(1, Ordering::SeqCst);
        self.shared.joining.fetch_sub(u64::from(self.is_new), Ordering::SeqCst);
    }
}

//! The state of each rule, which tables and facts show.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use skopos_model::schema::{Metric, self_rule as metrics};
use skopos_model::{Timestamp, unpoisoned};

use super::history::History;
use crate::config::RuleConfig;

/// A rule with its counts and its last evaluation.
#[derive(Debug)]
pub(crate) struct RuleState {
    pub(crate) config: RuleConfig,
    pub(crate) counts: RuleCounts,
    last: Mutex<LastEvaluation>,
    /// Outcomes that the evaluator has not taken yet: of the actions that waited in the queue, and of those of one step for which it
    /// had no room.
    outcomes: Mutex<Vec<ActionOutcome>>,
}

/// The outcome of an action.
#[derive(Debug)]
pub(super) struct ActionOutcome {
    pub(super) subject: String,
    /// Time of the event.
    pub(super) event: Timestamp,
    pub(super) is_done: bool,
}

/// Counts of a rule since the hub began.
#[derive(Debug, Default)]
pub(crate) struct RuleCounts {
    pub(crate) evaluations: AtomicU64,
    pub(crate) failures: AtomicU64,
    pub(crate) duplicates: AtomicU64,
    pub(crate) forgotten: AtomicU64,
    /// Actions that the limit or flapping held back.
    pub(crate) held_back: AtomicU64,
    pub(crate) done: AtomicU64,
    pub(crate) failed_actions: AtomicU64,
    /// Entries that are missing in the history.
    pub(crate) unrecorded: AtomicU64,
    pub(crate) pending: AtomicU64,
    pub(crate) firing: AtomicU64,
}

/// The last evaluation of a rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct LastEvaluation {
    pub(crate) at: Option<Timestamp>,
    pub(crate) took: Duration,
    /// The reason why it failed.
    pub(crate) reason: Option<String>,
}

impl RuleCounts {
    /// Adds to a count.
    pub(crate) fn add(count: &AtomicU64, number: u64) {
        count.fetch_add(number, Ordering::Relaxed);
    }

    /// Returns each metric with its current number.
    pub(crate) fn all(&self) -> [(&'static Metric, u64); 10] {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        [
            (&metrics::EVALUATIONS_TOTAL, now(&self.evaluations)),
            (&metrics::FAILURES_TOTAL, now(&self.failures)),
            (&metrics::DUPLICATES_TOTAL, now(&self.duplicates)),
            (&metrics::FORGOTTEN_TOTAL, now(&self.forgotten)),
            (&metrics::HELD_BACK_TOTAL, now(&self.held_back)),
            (&metrics::ACTIONS_TOTAL, now(&self.done)),
            (&metrics::FAILED_ACTIONS_TOTAL, now(&self.failed_actions)),
            (&metrics::UNRECORDED_TOTAL, now(&self.unrecorded)),
            (&metrics::PENDING, now(&self.pending)),
            (&metrics::FIRING, now(&self.firing)),
        ]
    }
}

impl RuleState {
    pub(crate) fn new(config: RuleConfig) -> Self {
        Self {
            config,
            counts: RuleCounts::default(),
            last: Mutex::default(),
            outcomes: Mutex::default(),
        }
    }

    /// Returns the metrics of [`RuleCounts::all`].
    pub(crate) fn metrics() -> [&'static Metric; 10] {
        RuleCounts::default().all().map(|(metric, _)| metric)
    }

    /// Returns the name of the state, which the table `rules` explains.
    pub(crate) fn name_of_state(&self) -> &'static str {
        let last = self.last();
        let is_some = |count: &AtomicU64| count.load(Ordering::Relaxed) > 0;
        if last.at.is_none() {
            "new"
        } else if last.reason.is_some() {
            "failing"
        } else if is_some(&self.counts.firing) {
            "firing"
        } else if is_some(&self.counts.pending) {
            "pending"
        } else {
            "quiet"
        }
    }

    /// Returns the last evaluation.
    pub(crate) fn last(&self) -> LastEvaluation {
        unpoisoned(self.last.lock()).clone()
    }

    pub(super) fn set_last(&self, last: LastEvaluation) {
        *unpoisoned(self.last.lock()) = last;
    }

    /// Hands the outcome of an action to the evaluator.
    pub(super) fn report(&self, outcome: ActionOutcome) {
        unpoisoned(self.outcomes.lock()).push(outcome);
    }

    /// Takes the outcomes since the last call.
    pub(super) fn take_outcomes(&self) -> Vec<ActionOutcome> {
        std::mem::take(&mut *unpoisoned(self.outcomes.lock()))
    }

    /// Notes that entries of the rule could not be recorded.
    pub(super) fn lose(&self, entries: u64) {
        RuleCounts::add(&self.counts.unrecorded, entries);
    }
}

/// The place where tables find the rules and their history, once a hub evaluates them.
#[derive(Clone, Debug, Default)]
pub struct RulesPlace(Arc<OnceLock<Evaluated>>);

/// The rules that a hub evaluates, and their history.
#[derive(Debug)]
struct Evaluated {
    rules: Vec<Arc<RuleState>>,
    history: Arc<History>,
}

impl RulesPlace {
    /// Sets the rules and their history. A second call changes nothing.
    pub(super) fn set(&self, rules: Vec<Arc<RuleState>>, history: Arc<History>) {
        let _ = self.0.set(Evaluated { rules, history });
    }

    /// Returns the rules: none before a hub evaluates them.
    pub(crate) fn rules(&self) -> &[Arc<RuleState>] {
        self.0.get().map_or(&[][..], |evaluated| evaluated.rules.as_slice())
    }

    /// Returns the history, if there is one.
    pub(crate) fn history(&self) -> Option<&Arc<History>> {
        self.0.get().map(|evaluated| &evaluated.history)
    }
}

//! Evaluates all rules on one thread, one after another.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_model::{Sample, Timestamp, Topic, Value, ValueType};
use skopos_query::{Engine, Limits};
use skopos_shm::{Publisher, VertexSpec, VertexWriter, now};
use skopos_steer::rule::{Due, Event, MAX_SUBJECTS, Row, Tracker};
use skopos_term::Failure;
use tokio::runtime::Handle;

use super::history::{History, RuleRecord};
use super::queue::Queue;
use super::rows::rows;
use super::state::{LastEvaluation, RuleCounts, RuleState};
use crate::config::Action;

/// Maximum time for one answer. A statement that takes as long is asked every 100 seconds.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Length of a rule's shortest interval, in durations of its last evaluation: a rule uses a tenth of the thread's time at
/// most.
const SHARE: u32 = 10;

/// Maximum time between two heartbeats of the segment.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// The state of the thread that evaluates.
pub(super) struct Evaluator {
    engine: Arc<Engine>,
    runtime: Handle,
    publisher: Publisher,
    history: Arc<History>,
    queue: Arc<Queue>,
    rules: Vec<Running>,
}

struct Running {
    state: Arc<RuleState>,
    tracker: Tracker,
    /// The vertex with the number of firing subjects, if the rule publishes it.
    published: Option<VertexWriter>,
    due: Instant,
}

impl Evaluator {
    /// Prepares the evaluation of `rules`, whose subjects are in the state in which the history left them.
    ///
    /// # Errors
    /// The history cannot be read, or a topic cannot be published.
    pub(super) fn new(
        (engine, runtime, publisher): (Arc<Engine>, Handle, Publisher),
        site: &str,
        rules: Vec<Arc<RuleState>>,
        (history, queue): (Arc<History>, Arc<Queue>),
    ) -> Result<Self, Failure> {
        let mut past = history
            .events()
            .map_err(|e| Failure::new("the history of rules cannot be read").because(&e))?;
        let mut prepare = |state: Arc<RuleState>| {
            let name = &state.config.name;
            let failed =
                |e: &dyn std::error::Error| Failure::new(format!("rule `{name}`")).because(e);
            let mut tracker = Tracker::new(state.config.terms).map_err(|e| failed(&e))?;
            for (event, was_told) in past.remove(name).unwrap_or_default() {
                tracker.restore(&event, was_told);
            }
            let published = match &state.config.action {
                Action::Publish(topic) if !state.config.dry_run => {
                    let topic = Topic::new(&format!("{site}/{topic}")).map_err(|e| failed(&e))?;
                    Some(publisher.register(VertexSpec::new(topic, ValueType::U64))?)
                }
                _ => None,
            };
            Ok::<_, Failure>(Running {
                state: state.clone(),
                tracker,
                published,
                due: Instant::now(),
            })
        };
        let rules = rules.into_iter().map(&mut prepare).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { engine, runtime, publisher, history, queue, rules })
    }

    /// Evaluates until `stopped` is closed.
    pub(super) fn run(mut self, stopped: &Receiver<()>) {
        loop {
            for at in 0..self.rules.len() {
                if self.rules[at].due <= Instant::now() {
                    self.evaluate(at);
                    self.publisher.heartbeat();
                }
                if stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected) {
                    return;
                }
            }
            self.publisher.heartbeat();
            let next = self.rules.iter().map(|rule| rule.due).min();
            let left = next.map_or(HEARTBEAT, |due| due.saturating_duration_since(Instant::now()));
            if stopped.recv_timeout(left.min(HEARTBEAT)) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn evaluate(&mut self, at: usize) {
        let begun = Instant::now();
        let state = self.rules[at].state.clone();
        let answer = self.ask(&state);
        let (time, took) = (now(), begun.elapsed());
        RuleCounts::add(&state.counts.evaluations, 1);
        RuleCounts::add(&state.counts.failures, u64::from(answer.is_err()));
        let reason = answer.as_ref().err().cloned();
        let rule = &mut self.rules[at];
        let events = rule.tracker.step(time, answer);
        rule.publish(time, reason.as_deref());
        let (tracker, counts) = (&rule.tracker, &state.counts);
        for (count, number) in [
            (&counts.pending, tracker.pending() as u64),
            (&counts.firing, tracker.firing() as u64),
            (&counts.duplicates, tracker.duplicates()),
            (&counts.forgotten, tracker.forgotten()),
        ] {
            count.store(number, Ordering::Relaxed);
        }
        state.set_last(LastEvaluation { at: Some(time), took, reason });
        rule.due = begun + state.config.every.max(took * SHARE);
        self.note(&state, events);
    }

    /// Asks the statement.
    fn ask(&self, state: &RuleState) -> Result<Vec<Row>, String> {
        let limits = Limits { deadline: TIMEOUT, rows: MAX_SUBJECTS, threads: 1 };
        let config = &state.config;
        let asked = self.engine.query(&Caller::Owner, &config.when, &limits);
        let answer = self.runtime.block_on(asked).map_err(|e| match e.hint() {
            Some(hint) => format!("{e}; {hint}"),
            None => e.to_string(),
        })?;
        rows(&answer, &config.subject)
    }

    /// Records events, then hands their actions on: an action is known to the history before it is done.
    fn note(&self, state: &Arc<RuleState>, events: Vec<Event>) {
        let is_published = matches!(state.config.action, Action::Publish(_));
        let record = |event| RuleRecord::of_event(&state.config.name, event, is_published);
        let records: Vec<RuleRecord> = events.iter().map(record).collect();
        state.lose(self.history.append(&records));
        for event in events {
            match event.due {
                Due::Now if is_published => RuleCounts::add(&state.counts.done, 1),
                Due::Now => self.queue.put(state, event),
                Due::Limited | Due::Flaps => RuleCounts::add(&state.counts.held_back, 1),
                Due::Silent => {}
            }
        }
    }
}

impl Running {
    /// Publishes the number of firing subjects, or that it is unknown.
    fn publish(&self, time: Timestamp, reason: Option<&str>) {
        let Some(vertex) = &self.published else { return };
        let sample = match reason {
            None => Sample::measured(time, Value::U64(self.tracker.firing() as u64)),
            Some(reason) => Sample::unknown(time, ValueType::U64, reason),
        };
        // The vertex belongs to this process, which does not remove it.
        let _ = vertex.publish_sample(&sample);
    }
}

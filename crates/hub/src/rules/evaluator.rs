//! Evaluates all rules on one thread, one after another.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use skopos_access::Caller;
use skopos_model::{Sample, Timestamp, Topic, Value, ValueType};
use skopos_query::{Engine, Limits};
use skopos_shm::{Publisher, VertexSpec, VertexWriter, boottime, now};
use skopos_steer::rule::{Due, Event, MAX_SUBJECTS, Moment, Row, Tracker};
use skopos_store::journal::{MAX_ENTRY_BYTES, MAX_LOG_BYTES};
use skopos_term::{Failure, tell};
use tokio::runtime::Handle;

use super::history::{History, RuleRecord, room_for};
use super::queue::Queue;
use super::rows::rows;
use super::state::{ActionOutcome, LastEvaluation, RuleCounts, RuleState};
use crate::config::Action;

/// Maximum time for one answer. A statement that takes as long is asked every 100 seconds.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// Length of a rule's shortest interval, in durations of its last evaluation: a rule uses a tenth of the thread's time at
/// most.
const SHARE: u32 = 10;

/// Most entries of a step that are written at once. They fill less than a log, so each log that begins has its copies before the
/// next one begins.
const ENTRIES_AT_ONCE: usize = 100;
const _: () = assert!(((ENTRIES_AT_ONCE * MAX_ENTRY_BYTES) as u64) < MAX_LOG_BYTES);

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
    /// True if a warning says that the rule fails. A rule fails every few seconds, and a warning a start is enough.
    is_warned: bool,
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
        let prepare = |state: Arc<RuleState>| {
            let name = &state.config.name;
            let failed =
                |e: &dyn std::error::Error| Failure::new(format!("rule `{name}`")).because(e);
            let tracker = Tracker::new(state.config.terms).map_err(|e| failed(&e))?;
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
                is_warned: false,
            })
        };
        let mut rules = rules.into_iter().map(prepare).collect::<Result<Vec<_>, _>>()?;
        let moment = moment();
        let read = history.read_all(&mut |record| {
            if let Some(rule) = rules.iter_mut().find(|rule| rule.state.config.name == record.rule)
            {
                record.restore(moment, &mut rule.tracker);
            }
        });
        let lost =
            read.map_err(|e| Failure::new("the history of rules cannot be read").because(&e))?;
        if lost > 0 {
            let why = "subjects may be in an earlier state";
            tell(format!("warning: {lost} entries of the history of rules are damaged: {why}"));
        }
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
        let (moment, took) = (moment(), begun.elapsed());
        RuleCounts::add(&state.counts.evaluations, 1);
        RuleCounts::add(&state.counts.failures, u64::from(answer.is_err()));
        let reason = answer.as_ref().err().cloned();
        let rule = &mut self.rules[at];
        rule.note_outcomes(moment);
        let events = rule.tracker.step(moment, answer);
        rule.publish(moment.at, reason.as_deref());
        let (tracker, counts) = (&rule.tracker, &state.counts);
        for (count, number) in [
            (&counts.pending, tracker.pending() as u64),
            (&counts.firing, tracker.firing() as u64),
            (&counts.duplicates, tracker.duplicates()),
            (&counts.forgotten, tracker.forgotten()),
        ] {
            count.store(number, Ordering::Relaxed);
        }
        if let Some(reason) = reason.as_deref().filter(|_| !rule.is_warned) {
            tell(format!("warning: the rule `{}` fails: {reason}", state.config.name));
            rule.is_warned = true;
        }
        state.set_last(LastEvaluation { at: Some(moment.at), took, reason });
        rule.due = begun + state.config.every.max(took * SHARE);
        self.note(at, moment, events);
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
    fn note(&mut self, at: usize, moment: Moment, events: Vec<Event>) {
        let state = self.rules[at].state.clone();
        let is_published =
            matches!(state.config.action, Action::Publish(_)) && !state.config.dry_run;
        let record = |event| RuleRecord::of_event(&state.config.name, event, is_published);
        if is_published {
            let tracker = &mut self.rules[at].tracker;
            let due = events.iter().filter(|event| event.due == Due::Now);
            due.for_each(|event| tracker.note_outcome(moment, &event.subject, event.at, true));
        }
        for events in events.chunks(ENTRIES_AT_ONCE) {
            let records: Vec<RuleRecord> = events.iter().map(record).collect();
            state.lose(self.history.append(&records));
            self.copy_states(moment);
        }
        // Outcomes may have begun a log.
        self.copy_states(moment);
        for event in events {
            match event.due {
                Due::Now if is_published => RuleCounts::add(&state.counts.done, 1),
                Due::Now => self.queue.put(&state, event),
                Due::Limited | Due::Flaps => RuleCounts::add(&state.counts.held_back, 1),
                Due::Silent => {}
            }
        }
    }

    /// Copies the entries on which the states of subjects depend to a log that has begun.
    fn copy_states(&mut self, moment: Moment) {
        if !self.history.lacks_copies() {
            return;
        }
        let copies = self.rules.iter_mut().map(|rule| rule.copies(moment));
        let copies: Vec<Vec<RuleRecord>> = copies.collect();
        let numbers = room_for(&copies);
        for ((rule, copies), number) in self.rules.iter().zip(&copies).zip(numbers) {
            let left_out = (copies.len() - number) as u64;
            rule.state.lose(left_out + self.history.append(&copies[..number]));
        }
    }
}

impl Running {
    /// Takes the outcomes of actions.
    fn note_outcomes(&mut self, moment: Moment) {
        for outcome in self.state.take_outcomes() {
            let ActionOutcome { subject, event, is_done } = outcome;
            self.tracker.note_outcome(moment, &subject, event, is_done);
        }
    }

    /// Returns copies of the entries on which the states of the subjects depend.
    fn copies(&mut self, moment: Moment) -> Vec<RuleRecord> {
        self.note_outcomes(moment);
        let name = &self.state.config.name;
        let kept = self.tracker.kept(moment);
        kept.iter().map(|kept| RuleRecord::copy_of(name, kept)).collect()
    }

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

/// Returns the present moment. The boot clock continues while the machine sleeps, and is never set.
fn moment() -> Moment {
    Moment { at: now(), steady: Timestamp::from_nanos(boottime().cast_signed()) }
}

//! The queue of actions that are due. Threads of its own do them, so that an action that hangs delays neither evaluations
//! nor, while there are other threads, other rules.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use skopos_model::unpoisoned;
use skopos_steer::rule::Event;

use super::command::Unended;
use super::history::{History, Outcome, RuleRecord};
use super::payload::Payload;
use super::state::{ActionOutcome, RuleCounts, RuleState};
use super::webhook::Sent;
use super::{command, webhook};
use crate::config::{Action, Webhook};

/// Number of actions at one time.
const THREADS: usize = 4;

/// Most actions that wait, of all rules: a begin or an end of each subject of one rule. Each has a row of some kilobytes.
const MAX_WAITING: usize = 1024;

/// Pauses between the attempts of a webhook: it is tried three times.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(5)];

/// Time in which the threads end when the hub ends. Programs that run are ended at once; a server that hangs is not waited for.
const END_TIME: Duration = Duration::from_secs(2);

/// An action that is due.
struct Job {
    rule: Arc<RuleState>,
    event: Event,
}

/// The queue, with its threads.
pub(super) struct Queue {
    site: String,
    history: Arc<History>,
    waiting: Mutex<Waiting>,
    changed: Condvar,
    stop: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
    unended: Unended,
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    /// Names of the rules whose actions run: those of one rule are done in their order.
    busy: HashSet<String>,
    /// Number of threads that have not ended.
    threads: usize,
}

impl Waiting {
    /// Removes the latest action of the rule that has the most.
    fn drop_one(&mut self) -> Option<Job> {
        let at = {
            let mut numbers = HashMap::new();
            for job in &self.jobs {
                *numbers.entry(job.rule.config.name.as_str()).or_insert(0_usize) += 1;
            }
            let most = numbers.values().max()?;
            let has_most = |job: &Job| numbers.get(job.rule.config.name.as_str()) == Some(most);
            self.jobs.iter().rposition(has_most)?
        };
        self.jobs.remove(at)
    }
}

impl Queue {
    /// Starts the threads.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(history: Arc<History>, site: &str) -> std::io::Result<Arc<Self>> {
        let queue = Arc::new(Self::new(history, site));
        for _ in 0..THREADS {
            let worker = queue.clone();
            let thread = std::thread::Builder::new().name("rule-action".to_owned());
            let thread = thread.spawn(move || worker.work())?;
            unpoisoned(queue.waiting.lock()).threads += 1;
            unpoisoned(queue.threads.lock()).push(thread);
        }
        Ok(queue)
    }

    /// Returns a queue without threads.
    fn new(history: Arc<History>, site: &str) -> Self {
        Self {
            site: site.to_owned(),
            history,
            waiting: Mutex::default(),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            threads: Mutex::default(),
            unended: Unended::default(),
        }
    }

    /// Appends the action of an event. If too many wait then, the latest one of the rule that has the most is dropped, and counts
    /// as failed, so that a rule whose actions hang leaves room to the others.
    pub(super) fn put(&self, rule: &Arc<RuleState>, event: Event) {
        let mut waiting = unpoisoned(self.waiting.lock());
        waiting.jobs.push_back(Job { rule: rule.clone(), event });
        let is_full = waiting.jobs.len() > MAX_WAITING;
        let dropped = if is_full { waiting.drop_one() } else { None };
        drop(waiting);
        self.changed.notify_all();
        if let Some(Job { rule, event }) = dropped {
            let why =
                format!("{MAX_WAITING} actions wait already, of which this rule has the most");
            self.note(&rule, &event, &Outcome::Failed(why), 0);
        }
    }

    /// Ends the threads, and programs that run. A request that waits for a server ends by itself, with no effect here. Actions
    /// that wait, or that were ended, have no outcome in the history, so they are due again after a restart.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.changed.notify_all();
        let waiting = unpoisoned(self.waiting.lock());
        let run = |waiting: &mut Waiting| waiting.threads > 0;
        let (waiting, late) = unpoisoned(self.changed.wait_timeout_while(waiting, END_TIME, run));
        drop(waiting);
        if !late.timed_out() {
            // They have left their work, so this does not wait.
            for thread in std::mem::take(&mut *unpoisoned(self.threads.lock())) {
                let _ = thread.join();
            }
        }
    }

    fn is_ending(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn work(&self) {
        while let Some(job) = self.next() {
            self.act(&job);
            unpoisoned(self.waiting.lock()).busy.remove(&job.rule.config.name);
            self.changed.notify_all();
        }
        unpoisoned(self.waiting.lock()).threads -= 1;
        self.changed.notify_all();
    }

    /// Waits for an action whose rule has no other one running; `None` when the hub ends.
    fn next(&self) -> Option<Job> {
        let mut waiting = unpoisoned(self.waiting.lock());
        loop {
            if self.is_ending() {
                return None;
            }
            let Waiting { jobs, busy, .. } = &*waiting;
            if let Some(at) = jobs.iter().position(|job| !busy.contains(&job.rule.config.name)) {
                let job = waiting.jobs.remove(at)?;
                waiting.busy.insert(job.rule.config.name.clone());
                return Some(job);
            }
            waiting = unpoisoned(self.changed.wait(waiting));
        }
    }

    /// Does an action, and notes its outcome.
    fn act(&self, Job { rule, event }: &Job) {
        let payload = Payload::new(&self.site, &rule.config.name, event);
        let (outcome, attempts) = match &rule.config.action {
            _ if rule.config.dry_run => (Outcome::DryRun, 0),
            Action::Webhook(webhook) => match self.send(webhook, &payload.json()) {
                Some(sent) => sent,
                None => return,
            },
            Action::Command(command) => {
                match command::run(command, &payload, (&self.stop, &self.unended)) {
                    Some(Ok(())) => (Outcome::Done, 1),
                    Some(Err(why)) => (Outcome::Failed(why), 1),
                    None => return,
                }
            }
            // The evaluator publishes.
            Action::Publish(_) => return,
        };
        self.note(rule, event, &outcome, attempts);
    }

    /// Sends an event, with repetitions; `None` if the hub ends before it is decided.
    fn send(&self, webhook: &Webhook, body: &[u8]) -> Option<(Outcome, u32)> {
        let mut attempts = 1;
        loop {
            let sent = webhook::send(webhook, body);
            let pause = PAUSES.get(attempts as usize - 1);
            match (sent, pause) {
                (Sent::Accepted, _) => return Some((Outcome::Done, attempts)),
                (Sent::Refused(why), _) | (Sent::Later(why), None) => {
                    return Some((Outcome::Failed(why), attempts));
                }
                (Sent::Later(_), Some(pause)) if self.pause(*pause) => attempts += 1,
                (Sent::Later(_), Some(_)) => return None,
            }
        }
    }

    /// Waits; false if the hub ends meanwhile.
    fn pause(&self, pause: Duration) -> bool {
        let waiting = unpoisoned(self.waiting.lock());
        let goes_on = |_: &mut Waiting| !self.is_ending();
        drop(unpoisoned(self.changed.wait_timeout_while(waiting, pause, goes_on)));
        !self.is_ending()
    }

    fn note(&self, rule: &RuleState, event: &Event, outcome: &Outcome, attempts: u32) {
        match outcome {
            Outcome::Done => RuleCounts::add(&rule.counts.done, 1),
            Outcome::Failed(_) => RuleCounts::add(&rule.counts.failed_actions, 1),
            Outcome::DryRun => {}
        }
        let is_done = !matches!(outcome, Outcome::Failed(_));
        // Copies of states, which come later in the history than the entry, must know the outcome: it is reported first.
        rule.report(ActionOutcome { subject: event.subject.clone(), event: event.at, is_done });
        let record = RuleRecord::of_action(&rule.config.name, event, outcome, attempts);
        rule.lose(self.history.append(&[record]));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Map;
    use skopos_model::Timestamp;
    use skopos_steer::rule::{Due, Kind};

    use super::*;
    use crate::config::rules_of;

    fn rule(name: &str) -> Arc<RuleState> {
        let then = "then = { command = [\"/bin/true\"] }";
        let text = format!("[[rule]]\nname = \"{name}\"\nwhen = \"SELECT 1\"\n{then}");
        let rules = rules_of(&text, None).expect("a rule");
        Arc::new(RuleState::new(rules[0].clone()))
    }

    fn event(subject: usize) -> Event {
        Event {
            at: Timestamp::default(),
            kind: Kind::Resolved,
            subject: subject.to_string(),
            since: Timestamp::default(),
            is_firing: false,
            due: Due::Now,
            values: Map::new(),
            reason: String::new(),
        }
    }

    #[test]
    fn a_rule_that_fills_the_queue_leaves_room_to_the_others() {
        let folder = tempfile::tempdir().expect("a folder");
        let history = Arc::new(History::open(folder.path()).expect("a history"));
        let queue = Queue::new(history, "site");
        let (busy, quiet) = (rule("busy"), rule("quiet"));
        (0..MAX_WAITING).for_each(|subject| queue.put(&busy, event(subject)));
        let failed =
            || [&busy, &quiet].map(|rule| rule.counts.failed_actions.load(Ordering::Relaxed));
        assert_eq!(failed(), [0, 0], "a rule has all of the queue if no other one needs it");
        queue.put(&quiet, event(0));
        assert_eq!(failed(), [1, 0]);
        queue.put(&busy, event(MAX_WAITING));
        assert_eq!(failed(), [2, 0]);
        let dropped = busy.take_outcomes().into_iter().map(|outcome| outcome.subject);
        let expected = [MAX_WAITING - 1, MAX_WAITING].map(|subject| subject.to_string());
        assert_eq!(dropped.collect::<Vec<_>>(), expected);
        let waiting = unpoisoned(queue.waiting.lock());
        let is_quiet = |job: &&Job| job.rule.config.name == "quiet";
        assert_eq!(waiting.jobs.iter().filter(is_quiet).count(), 1);
        assert_eq!(waiting.jobs.len(), MAX_WAITING);
    }
}

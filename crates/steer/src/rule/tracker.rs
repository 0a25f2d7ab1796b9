//! The subjects of a rule, step by step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::Map;
use skopos_model::Timestamp;

use super::event::{Due, Event, Kind, Row};
use super::subject::{State, Subject};
use super::terms::Terms;
use crate::error::Error;

/// Largest number of rows of an answer: a statement with more subjects than a person can read is a mistake.
pub const MAX_SUBJECTS: usize = 1000;

/// Largest number of quiet subjects whose changes are kept to see that they flap. The ones that changed first are
/// forgotten.
pub const MAX_QUIET: usize = 4 * MAX_SUBJECTS;

/// Number of changes within [`FLAP_WINDOW`] after which a subject flaps: it began, ended, and did both again.
pub const FLAP_CHANGES: usize = 4;

/// The time in which these changes happen, and without a change the time after which the subject is steady.
pub const FLAP_WINDOW: Duration = Duration::from_secs(600);

/// The subjects of a rule.
#[derive(Debug)]
pub struct Tracker {
    terms: Terms,
    subjects: BTreeMap<String, Subject>,
    /// Times of the actions within the period, without those that told an end.
    sent: VecDeque<Timestamp>,
    /// Time of the last step and of the last answer.
    last: Option<Timestamp>,
    answered: Option<Timestamp>,
    /// Time since which the condition cannot be evaluated.
    failing: Option<Timestamp>,
    duplicates: u64,
    forgotten: u64,
}

impl Tracker {
    /// Returns the tracker of a rule whose subjects are all quiet.
    ///
    /// # Errors
    /// The terms are not valid.
    pub fn new(terms: Terms) -> Result<Self, Error> {
        terms.check()?;
        Ok(Self {
            terms,
            subjects: BTreeMap::new(),
            sent: VecDeque::new(),
            last: None,
            answered: None,
            failing: None,
            duplicates: 0,
            forgotten: 0,
        })
    }

    /// Applies an event of an earlier run, the oldest first. `was_told` says that its action was done, as far as it can be.
    /// Subjects that fired then fire until an answer lacks them.
    pub fn restore(&mut self, event: &Event, was_told: bool) {
        if matches!(event.kind, Kind::Failed | Kind::Recovered) {
            return;
        }
        let is_known = self.subjects.contains_key(&event.subject);
        if !is_known && self.subjects.len() >= MAX_SUBJECTS + MAX_QUIET {
            self.forgotten += 1;
            return;
        }
        if was_told && !matches!(event.kind, Kind::Resolved | Kind::Steady) {
            self.note_sent(event.at);
        }
        let subject = self.subjects.entry(event.subject.clone()).or_insert_with(Subject::new);
        if event.is_firing != subject.is_firing() {
            subject.change(event.at, FLAP_CHANGES, FLAP_WINDOW);
        }
        subject.state = match event.is_firing {
            true => State::Firing { since: event.since, seen: event.at },
            false => State::Quiet,
        };
        subject.values = event.values.clone();
        match event.kind {
            Kind::Flapping => subject.flaps = true,
            Kind::Steady => subject.flaps = false,
            _ => {}
        }
        match event.is_firing || subject.flaps {
            true if was_told => subject.told = Some(event.at),
            true => {}
            // The end was told, or is not worth it after a restart.
            false => subject.told = None,
        }
    }

    /// Applies the answer to the condition at the time `now`, or the reason why there is none.
    pub fn step(&mut self, now: Timestamp, answer: Result<Vec<Row>, String>) -> Vec<Event> {
        let now = self.last.map_or(now, |last| now.max(last));
        // The first step after a restart: what fired is given its whole `keep` to come back.
        if self.last.is_none() {
            self.see_all(now);
        }
        self.last = Some(now);
        let mut events = Vec::new();
        let rows = match answer {
            Ok(rows) if rows.len() > MAX_SUBJECTS => {
                Err(format!("the answer has {} rows; {MAX_SUBJECTS} are the most", rows.len()))
            }
            answer => answer,
        };
        match rows {
            Err(reason) => self.fail(now, reason, &mut events),
            Ok(rows) => {
                self.recover(now, &mut events);
                self.apply(now, rows, &mut events);
            }
        }
        events
    }

    /// Returns the number of pending subjects.
    pub fn pending(&self) -> usize {
        self.subjects.values().filter(|s| matches!(s.state, State::Pending { .. })).count()
    }

    /// Returns the number of firing subjects.
    pub fn firing(&self) -> usize {
        self.subjects.values().filter(|s| s.is_firing()).count()
    }

    /// Returns the number of rows that were left out because their subject had one already.
    pub fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Returns the number of subjects whose past was forgotten because there were too many.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    fn see_all(&mut self, now: Timestamp) {
        for subject in self.subjects.values_mut() {
            if let State::Firing { seen, .. } = &mut subject.state {
                *seen = now;
            }
        }
    }

    fn fail(&mut self, now: Timestamp, reason: String, events: &mut Vec<Event>) {
        if self.failing.is_none() {
            self.failing = Some(now);
            events.push(Event { reason, ..of_rule(now, Kind::Failed, now) });
        }
    }

    fn recover(&mut self, now: Timestamp, events: &mut Vec<Event>) {
        if let Some(since) = self.failing.take() {
            events.push(of_rule(now, Kind::Recovered, since));
        }
    }

    fn apply(&mut self, now: Timestamp, rows: Vec<Row>, events: &mut Vec<Event>) {
        let is_gap = self.answered.is_some_and(|last| now.since(last) > self.terms.gap);
        self.answered = Some(now);
        let mut present = BTreeSet::new();
        for Row { subject: name, values } in rows {
            if present.contains(&name) {
                self.duplicates += 1;
                continue;
            }
            let subject = self.subjects.entry(name.clone()).or_insert_with(Subject::new);
            subject.values = values;
            subject.state = match subject.state {
                State::Quiet => State::Pending { since: now },
                State::Pending { .. } if is_gap => State::Pending { since: now },
                State::Firing { since, .. } => State::Firing { since, seen: now },
                pending @ State::Pending { .. } => pending,
            };
            present.insert(name);
        }
        let names: Vec<String> = self.subjects.keys().cloned().collect();
        for name in names {
            self.advance(now, &name, present.contains(&name), events);
        }
        self.forget(now);
    }

    /// Moves one subject on.
    fn advance(&mut self, now: Timestamp, name: &str, is_present: bool, events: &mut Vec<Event>) {
        let Terms { hold, keep, .. } = self.terms;
        let Some(mut subject) = self.subjects.remove(name) else { return };
        match subject.state {
            State::Pending { since } if is_present && now.since(since) >= hold => {
                subject.state = State::Firing { since, seen: now };
                self.changed(now, name, &mut subject, since, events);
            }
            State::Pending { .. } if !is_present => subject.state = State::Quiet,
            State::Firing { since, seen } if !is_present && now.since(seen) >= keep => {
                subject.state = State::Quiet;
                self.changed(now, name, &mut subject, since, events);
            }
            _ => self.settle(now, name, &mut subject, events),
        }
        self.subjects.insert(name.to_owned(), subject);
    }

    /// Reports a change between quiet and firing.
    fn changed(
        &mut self,
        now: Timestamp,
        name: &str,
        subject: &mut Subject,
        since: Timestamp,
        events: &mut Vec<Event>,
    ) {
        let begins_to_flap = subject.change(now, FLAP_CHANGES, FLAP_WINDOW) && !subject.flaps;
        subject.flaps |= begins_to_flap;
        let is_firing = subject.is_firing();
        let due = match (subject.flaps, is_firing) {
            (true, _) => Due::Flaps,
            (false, true) => self.due(now, subject),
            (false, false) if subject.told.take().is_some() => Due::Now,
            (false, false) => Due::Silent,
        };
        let kind = if is_firing { Kind::Firing } else { Kind::Resolved };
        events.push(event(now, kind, (name, &*subject), since, due));
        if begins_to_flap {
            let due = self.due(now, subject);
            events.push(event(now, Kind::Flapping, (name, &*subject), since, due));
        }
    }

    /// Reports the end of flapping, and actions that are due again or late.
    fn settle(
        &mut self,
        now: Timestamp,
        name: &str,
        subject: &mut Subject,
        events: &mut Vec<Event>,
    ) {
        let since = subject.since(now);
        if subject.flaps {
            if !subject.is_steady(now, FLAP_WINDOW) {
                return;
            }
            subject.flaps = false;
            let due = if subject.told.is_some() { Due::Now } else { Due::Silent };
            match subject.is_firing() {
                true => subject.told = subject.told.map(|_| now),
                false => subject.told = None,
            }
            events.push(event(now, Kind::Steady, (name, &*subject), since, due));
        }
        if !subject.is_firing() {
            return;
        }
        let is_due = match (subject.told, self.terms.repeat) {
            (None, _) => true,
            (Some(told), Some(repeat)) => now.since(told) >= repeat,
            (Some(_), None) => false,
        };
        // An action that stays limited has its event already.
        if is_due && self.due(now, subject) == Due::Now {
            events.push(event(now, Kind::StillFiring, (name, subject), since, Due::Now));
        }
    }

    /// Decides about an action by the limit, and notes it if it is due.
    fn due(&mut self, now: Timestamp, subject: &mut Subject) -> Due {
        while self.sent.front().is_some_and(|first| now.since(*first) >= self.terms.per) {
            self.sent.pop_front();
        }
        if self.sent.len() >= self.terms.most as usize {
            return Due::Limited;
        }
        self.sent.push_back(now);
        subject.told = Some(now);
        Due::Now
    }

    fn note_sent(&mut self, at: Timestamp) {
        self.sent.push_back(at);
        while self.sent.len() > self.terms.most as usize {
            self.sent.pop_front();
        }
    }

    /// Forgets quiet subjects that cannot flap any more, and the oldest of those that are too many.
    fn forget(&mut self, now: Timestamp) {
        let is_quiet = |s: &Subject| s.state == State::Quiet && !s.flaps;
        self.subjects.retain(|_, s| !is_quiet(s) || !s.is_steady(now, FLAP_WINDOW));
        let quiet = |(name, s): (&String, &Subject)| {
            (s.state == State::Quiet).then(|| (s.changed_at(), name.clone()))
        };
        let mut quiet: Vec<_> = self.subjects.iter().filter_map(quiet).collect();
        if quiet.len() > MAX_QUIET {
            quiet.sort_unstable();
            for (_, name) in quiet.drain(..quiet.len() - MAX_QUIET) {
                self.subjects.remove(&name);
                self.forgotten += 1;
            }
        }
    }
}

fn of_rule(now: Timestamp, kind: Kind, since: Timestamp) -> Event {
    Event {
        at: now,
        kind,
        subject: String::new(),
        since,
        is_firing: false,
        due: Due::Silent,
        values: Map::new(),
        reason: String::new(),
    }
}

fn event(
    now: Timestamp,
    kind: Kind,
    (name, subject): (&str, &Subject),
    since: Timestamp,
    due: Due,
) -> Event {
    Event {
        subject: name.to_owned(),
        is_firing: subject.is_firing(),
        due,
        values: subject.values.clone(),
        ..of_rule(now, kind, since)
    }
}

//! The subjects of a rule, step by step.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::Map;
use skopos_model::Timestamp;

use super::event::{Due, Event, Kind, Row};
use super::moment::Moment;
use super::subject::{State, Subject};
use super::terms::Terms;
use crate::error::Error;

/// Largest number of rows of an answer: a statement with more subjects than a person can read is a mistake.
pub const MAX_SUBJECTS: usize = 1000;

/// Largest number of firing subjects that are absent and not resolved yet: as many as an answer may have. Beyond it, those that
/// were absent longest are resolved before their [`Terms::keep`] is over.
pub const MAX_ABSENT: usize = MAX_SUBJECTS;

/// Largest number of quiet subjects whose changes are kept to see that they flap. The ones that changed first are
/// evicted.
pub const MAX_QUIET: usize = 4 * MAX_SUBJECTS;

/// Largest number of subjects within a step: new ones come before crowded ones go.
const MAX_TRACKED: usize = 2 * MAX_SUBJECTS + MAX_ABSENT + MAX_QUIET;

/// Time for which an end is tried to be told. A receiver that is away for longer has to be looked after anyway.
const END_TIME: Duration = Duration::from_secs(86_400);

/// Number of changes within [`FLAP_WINDOW`] after which a subject flaps: it began, ended, and did both again.
pub const FLAP_CHANGES: usize = 4;

/// The time in which these changes happen, and without a change the time after which the subject is steady.
pub const FLAP_WINDOW: Duration = Duration::from_secs(600);

/// The subjects of a rule.
#[derive(Debug)]
pub struct Tracker {
    terms: Terms,
    subjects: BTreeMap<String, Subject>,
    /// Steady times of the actions within the period, without the first ones that told an end.
    sent: VecDeque<Timestamp>,
    /// Steady time of the last step and of the last answer.
    last: Option<Timestamp>,
    answered: Option<Timestamp>,
    /// Time since which the condition cannot be evaluated.
    failing: Option<Moment>,
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

    /// Applies an event of an earlier run, the oldest first; `now` is the moment of this call. If its action was due, the outcome
    /// follows by [`note_outcome`](Self::note_outcome); without one the action is due again at the first step. Subjects that fired
    /// then fire until an answer lacks them.
    pub fn restore(&mut self, now: Moment, event: &Event) {
        if matches!(event.kind, Kind::Failed | Kind::Recovered) {
            return;
        }
        if !self.subjects.contains_key(&event.subject) && self.subjects.len() >= MAX_TRACKED {
            self.evict_quiet(now.steady);
            if self.subjects.len() >= MAX_TRACKED {
                self.forgotten += 1;
                return;
            }
        }
        let (at, since) = (now.earlier(event.at), now.earlier(event.since));
        let subject = self.subjects.entry(event.subject.clone()).or_insert_with(Subject::new);
        // An end whose begin is not in the history any more is kept by the time of its change. An event from `kept` may be
        // older than the last change.
        let is_later = |last: Timestamp| event.is_firing != subject.is_firing() && at.steady > last;
        if subject.changed_at().is_none_or(is_later) {
            subject.change(at.steady, FLAP_CHANGES, FLAP_WINDOW);
        }
        subject.state = match event.is_firing {
            true => State::Firing { since, seen: at.steady },
            false => State::Quiet,
        };
        if !event.values.is_empty() {
            subject.values.clone_from(&event.values);
        }
        subject.flaps = match event.kind {
            Kind::Flapping => true,
            Kind::Steady => false,
            _ => subject.flaps,
        };
        if event.due != Due::Flaps {
            subject.replace_action();
        }
        match event.due {
            Due::Now => {
                // The same event comes again from `kept`.
                let is_new = subject.told.is_none_or(|told| told.at != event.at);
                subject.act(event.kind, at, since);
                if is_new && !matches!(event.kind, Kind::Resolved | Kind::Steady) {
                    self.note_sent(at.steady);
                }
            }
            Due::Silent if !event.is_firing && !subject.flaps => subject.told = None,
            _ => {}
        }
    }

    /// Returns the events that restore the present state, without rows: of each subject that fires, flaps or has an action that
    /// is not done. Of an action that was due, the outcome is returned too: true if it is done, `None` if it is not known. A
    /// subject that fires again or flaps before the action of its end is done has two events, the end first.
    pub fn kept(&self, now: Moment) -> Vec<(Event, Option<bool>)> {
        let kept = |(name, subject): (&String, &Subject)| {
            let of_subject = |event: Event, is_firing, due| Event {
                subject: name.clone(),
                is_firing,
                due,
                ..event
            };
            let holds_an_end = subject.holds_an_end();
            let action = subject.action.map(|action| {
                let event = of_rule(action.at, action.kind, action.since);
                let is_firing = subject.is_firing() && !holds_an_end;
                (of_subject(event, is_firing, Due::Now), action.again.map(|_| false))
            });
            let is_state = action.is_none() || holds_an_end;
            let state = (is_state && subject.is_active()).then(|| {
                let kind = if subject.flaps { Kind::Flapping } else { Kind::StillFiring };
                let (at, due) = match subject.told {
                    Some(told) => (told, Due::Now),
                    None => (subject.since(now), Due::Limited),
                };
                let event = of_rule(at, kind, subject.since(at));
                (of_subject(event, subject.is_firing(), due), Some(true))
            });
            action.into_iter().chain(state)
        };
        self.subjects.iter().flat_map(kept).collect()
    }

    /// Notes the outcome of the action that was due for the event of a subject at the time `event`. If it is not done, it is due
    /// again after a pause. An outcome of an earlier action than the last one changes nothing.
    pub fn note_outcome(&mut self, now: Moment, subject: &str, event: Timestamp, is_done: bool) {
        if let Some(subject) = self.subjects.get_mut(subject) {
            subject.note_outcome(now.steady, event, is_done, self.terms.pause);
        }
    }

    /// Applies the answer to the condition at the time `now`, or the reason why there is none.
    pub fn step(&mut self, now: Moment, answer: Result<Vec<Row>, String>) -> Vec<Event> {
        let steady = self.last.map_or(now.steady, |last| now.steady.max(last));
        let now = Moment { steady, ..now };
        if self.last.is_none() {
            self.begin(steady);
        }
        self.last = Some(steady);
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

    /// Returns the number of subjects that were evicted or resolved early because there were too many, or dropped because their
    /// end could not be told for a day. It includes subjects of an earlier run whose day is over at the first step.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Prepares the first step after a restart.
    fn begin(&mut self, now: Timestamp) {
        // Ends that an earlier run dropped, or whose day passed since, are not told.
        self.evict_quiet(now);
        for subject in self.subjects.values_mut() {
            // It is given its whole `keep` to come back.
            if let State::Firing { seen, .. } = &mut subject.state {
                *seen = now;
            }
            // The outcome will not come any more, so the action does not count and is due again.
            let Some(action) = subject.action.filter(|action| action.again.is_none()) else {
                continue;
            };
            subject.try_again(now);
            let is_counted = !matches!(action.kind, Kind::Resolved | Kind::Steady);
            let place = self.sent.iter().position(|sent| *sent == action.at.steady);
            if let Some(place) = place.filter(|_| is_counted) {
                self.sent.remove(place);
            }
        }
    }

    fn fail(&mut self, now: Moment, reason: String, events: &mut Vec<Event>) {
        if self.failing.is_none() {
            self.failing = Some(now);
            events.push(Event { reason, ..of_rule(now, Kind::Failed, now) });
        }
    }

    fn recover(&mut self, now: Moment, events: &mut Vec<Event>) {
        if let Some(since) = self.failing.take() {
            events.push(of_rule(now, Kind::Recovered, since));
        }
    }

    fn apply(&mut self, now: Moment, rows: Vec<Row>, events: &mut Vec<Event>) {
        let is_gap = self.answered.is_some_and(|last| now.steady.since(last) > self.terms.gap);
        self.answered = Some(now.steady);
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
                State::Firing { since, .. } => State::Firing { since, seen: now.steady },
                pending @ State::Pending { .. } => pending,
            };
            present.insert(name);
        }
        let crowded = self.crowded(now.steady, &present);
        self.forgotten += crowded.len() as u64;
        let names: Vec<String> = self.subjects.keys().cloned().collect();
        for name in names {
            let is_in = |names: &BTreeSet<String>| names.contains(&name);
            self.advance(now, &name, (is_in(&present), is_in(&crowded)), events);
        }
        self.evict_quiet(now.steady);
    }

    /// Returns the absent subjects that fire within their `keep`, beyond [`MAX_ABSENT`], those that were absent longest.
    fn crowded(&self, now: Timestamp, present: &BTreeSet<String>) -> BTreeSet<String> {
        let absent = |(name, subject): (&String, &Subject)| match subject.state {
            State::Firing { seen, .. } if !present.contains(name) => {
                (now.since(seen) < self.terms.keep).then(|| (seen, name.clone()))
            }
            _ => None,
        };
        let mut absent: Vec<_> = self.subjects.iter().filter_map(absent).collect();
        absent.sort_unstable();
        absent.truncate(absent.len().saturating_sub(MAX_ABSENT));
        absent.into_iter().map(|(_, name)| name).collect()
    }

    /// Moves one subject on. A crowded one is resolved although its `keep` is not over.
    fn advance(
        &mut self,
        now: Moment,
        name: &str,
        (is_present, is_crowded): (bool, bool),
        events: &mut Vec<Event>,
    ) {
        let Terms { hold, keep, .. } = self.terms;
        let passed = |since: Timestamp| now.steady.since(since);
        let Some(mut subject) = self.subjects.remove(name) else { return };
        match subject.state {
            State::Pending { since } if is_present && passed(since.steady) >= hold => {
                subject.state = State::Firing { since, seen: now.steady };
                self.changed(now, name, &mut subject, since, events);
            }
            State::Pending { .. } if !is_present => subject.state = State::Quiet,
            State::Firing { since, seen }
                if !is_present && (is_crowded || passed(seen) >= keep) =>
            {
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
        now: Moment,
        name: &str,
        subject: &mut Subject,
        since: Moment,
        events: &mut Vec<Event>,
    ) {
        let begins_to_flap =
            subject.change(now.steady, FLAP_CHANGES, FLAP_WINDOW) && !subject.flaps;
        if !subject.flaps {
            subject.replace_action();
        }
        subject.flaps |= begins_to_flap;
        let is_firing = subject.is_firing();
        let due = match (subject.flaps, is_firing) {
            (true, _) => Due::Flaps,
            (false, true) => self.due(now, Kind::Firing, subject, since),
            (false, false) if subject.told.is_some() => {
                subject.act(Kind::Resolved, now, since);
                Due::Now
            }
            (false, false) => Due::Silent,
        };
        let kind = if is_firing { Kind::Firing } else { Kind::Resolved };
        events.push(event(now, kind, (name, &*subject), since, due));
        if begins_to_flap {
            let due = self.due(now, Kind::Flapping, subject, since);
            events.push(event(now, Kind::Flapping, (name, &*subject), since, due));
        }
    }

    /// Reports the end of flapping, and actions that are due again or late.
    fn settle(&mut self, now: Moment, name: &str, subject: &mut Subject, events: &mut Vec<Event>) {
        if subject.flaps && subject.is_steady(now.steady, FLAP_WINDOW) {
            subject.flaps = false;
            let since = subject.since(now);
            let due = if subject.told.is_some() { Due::Now } else { Due::Silent };
            if due == Due::Now {
                subject.act(Kind::Steady, now, since);
            }
            events.push(event(now, Kind::Steady, (name, &*subject), since, due));
        }
        let Some((kind, since)) = self.late(now, subject) else { return };
        // An action that stays limited has its event already.
        if self.due(now, kind, subject, since) == Due::Now {
            events.push(event(now, kind, (name, subject), since, Due::Now));
        }
    }

    /// Returns the kind of the event whose action is due again or late, and the time since which the subject was in the answer.
    fn late(&self, now: Moment, subject: &Subject) -> Option<(Kind, Moment)> {
        if let Some(failed) = subject.failed(now.steady) {
            return Some(failed);
        }
        if subject.flaps || !subject.is_firing() {
            return None;
        }
        let is_due = match (subject.told, self.terms.repeat) {
            (None, _) => true,
            // An action that runs, or that failed and has its pause, is not repeated.
            (Some(told), Some(repeat)) => {
                subject.action.is_none() && now.steady.since(told.steady) >= repeat
            }
            (Some(_), None) => false,
        };
        is_due.then(|| (Kind::StillFiring, subject.since(now)))
    }

    /// Decides about an action by the limit, and notes it if it is due.
    fn due(&mut self, now: Moment, kind: Kind, subject: &mut Subject, since: Moment) -> Due {
        let is_over = |sent: &Timestamp| now.steady.since(*sent) >= self.terms.per;
        while self.sent.front().is_some_and(is_over) {
            self.sent.pop_front();
        }
        if self.sent.len() >= self.terms.most as usize {
            return Due::Limited;
        }
        self.sent.push_back(now.steady);
        subject.act(kind, now, since);
        Due::Now
    }

    fn note_sent(&mut self, at: Timestamp) {
        self.sent.push_back(at);
        while self.sent.len() > self.terms.most as usize {
            self.sent.pop_front();
        }
    }

    /// Evicts quiet subjects that cannot flap any more and whose end is told, and the oldest of those that are too many.
    fn evict_quiet(&mut self, now: Timestamp) {
        let mut untold = 0;
        self.subjects.retain(|_, subject| {
            let window = if subject.action.is_some() { END_TIME } else { FLAP_WINDOW };
            let is_kept =
                subject.state != State::Quiet || subject.flaps || !subject.is_steady(now, window);
            untold += u64::from(!is_kept && subject.action.is_some());
            is_kept
        });
        self.forgotten += untold;
        let quiet = |(name, s): (&String, &Subject)| {
            (s.state == State::Quiet).then(|| (s.action.is_some(), s.changed_at(), name.clone()))
        };
        let mut quiet: Vec<_> = self.subjects.iter().filter_map(quiet).collect();
        if quiet.len() > MAX_QUIET {
            quiet.sort_unstable();
            for (_, _, name) in quiet.drain(..quiet.len() - MAX_QUIET) {
                self.subjects.remove(&name);
                self.forgotten += 1;
            }
        }
    }
}

fn of_rule(now: Moment, kind: Kind, since: Moment) -> Event {
    Event {
        at: now.at,
        kind,
        subject: String::new(),
        since: since.at,
        is_firing: false,
        due: Due::Silent,
        values: Map::new(),
        reason: String::new(),
    }
}

fn event(
    now: Moment,
    kind: Kind,
    (name, subject): (&str, &Subject),
    since: Moment,
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

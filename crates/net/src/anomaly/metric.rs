//! One judged metric of a reporter: its detector, and the part of its state that was reported.

use std::time::Duration;

use skopos_model::{Kind, Timestamp};
use skopos_score::anomaly::envelope::{Envelope, Settings};
use skopos_score::anomaly::{Counts, Judge};

use super::limits::{MIN_RESEND, NAME_REFRESH, NAME_REPEATS, REFRESH};
use super::packet::{Entry, Severity};

/// Tenths of a second in nanoseconds.
const TENTH: u128 = 100_000_000;

pub(super) struct Metric {
    pub(super) name: Box<str>,
    pub(super) id: u32,
    judge: Judge<Envelope>,
    /// The severity by the latest sample.
    severity: Severity,
    /// The severity of the last report.
    reported: Severity,
    reported_at: Option<Timestamp>,
    naming: Naming,
}

/// The reports that carried a name.
#[derive(Clone, Copy, Default)]
pub(super) struct Naming {
    times: u8,
    at: Timestamp,
}

impl Naming {
    /// Returns true if the next report with the id has to carry the name.
    pub(super) fn is_due(self, now: Timestamp) -> bool {
        self.times < NAME_REPEATS || passed(self.at, now, NAME_REFRESH)
    }

    /// Notes that a report at `now` carried the name.
    pub(super) fn sent(&mut self, now: Timestamp) {
        *self = Self { times: self.times.saturating_add(1), at: now };
    }
}

impl Metric {
    pub(super) fn new(name: &str, id: u32, kind: Kind, least: f64) -> Self {
        let settings = Settings { min_spread: least, ..Settings::DEFAULT };
        Self {
            name: name.into(),
            id,
            judge: Judge::new(kind, Envelope::new(settings)),
            severity: Severity::Usual,
            reported: Severity::Usual,
            reported_at: None,
            naming: Naming::default(),
        }
    }

    /// Takes a polled value.
    pub(super) fn observe(&mut self, at: Timestamp, value: f64, counts: &mut Counts) {
        match self.judge.take(at, value, counts) {
            Some(true) => self.severity = Severity::of_score(self.judge.finding().score),
            Some(false) => self.severity = Severity::Usual,
            None => {}
        }
    }

    /// Returns true if the state has to be reported now.
    pub(super) fn is_due(&self, now: Timestamp) -> bool {
        let is_news = match self.severity {
            Severity::Usual => self.reported != Severity::Usual,
            severity => severity > self.reported,
        };
        let waited = |time| self.reported_at.is_none_or(|at| passed(at, now, time));
        is_news && waited(MIN_RESEND) || self.severity != Severity::Usual && waited(REFRESH)
    }

    /// Returns the severity of an entry made now, for the order of entries that compete for room.
    pub(super) fn severity(&self) -> Severity {
        self.severity
    }

    pub(super) fn needs_name(&self, now: Timestamp) -> bool {
        self.naming.is_due(now)
    }

    /// Returns the entry of a report at `now`.
    pub(super) fn entry(&self, now: Timestamp) -> Entry {
        let finding = self.judge.finding();
        let is_usual = self.severity == Severity::Usual;
        let bound = |bound: f64| if is_usual { 0.0 } else { bound };
        let age = now.since(finding.since).as_nanos() / TENTH;
        Entry {
            id: self.id,
            severity: self.severity,
            seen: finding.came,
            low: bound(finding.expected.low),
            high: bound(finding.expected.high),
            age_tenths: u64::try_from(age).unwrap_or(u64::MAX),
        }
    }

    /// Notes that a report at `now` has the entry.
    pub(super) fn sent(&mut self, now: Timestamp, with_name: bool) {
        (self.reported, self.reported_at) = (self.severity, Some(now));
        if with_name {
            self.naming.sent(now);
        }
    }

    /// Gives the metric an id of a new session, in which nothing was reported.
    pub(super) fn renumber(&mut self, id: u32) {
        self.id = id;
        (self.naming, self.reported, self.reported_at) = (Naming::default(), Severity::Usual, None);
    }
}

/// Returns true if `time` has passed between `from` and `now`, or the clock stepped back.
fn passed(from: Timestamp, now: Timestamp, time: Duration) -> bool {
    now < from || now.since(from) >= time
}

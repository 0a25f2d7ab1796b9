//! The history of rules: each event, and the outcome of each action, in a journal on disk.
//!
//! The oldest logs of the journal are removed, so entries of a rule that is busy push out those of others. The states of subjects
//! must not go with them: near its beginning each log has copies of the entries that the states need. Tables do not show copies.

use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use skopos_model::{Timestamp, unpoisoned};
use skopos_shm::now;
use skopos_steer::rule::{Due, Event, Kind, Moment, Tracker};
use skopos_store::history::Error;
use skopos_store::journal::{Journal, JournalLimits};

/// 16 MiB have some 50,000 entries. A quarter of a year is the time in which people ask what happened.
const LIMITS: JournalLimits =
    JournalLimits { max_bytes: 16 << 20, max_age: Duration::from_secs(92 * 86_400) };

/// Most bytes of the copies at the beginning of a log: half of a log, for some 10,000 subjects of all rules.
const MAX_COPIES_BYTES: usize = 2 << 20;

/// Longest reason of an entry, in bytes.
const MAX_WHY_BYTES: usize = 512;

/// The name of an entry about an action.
const ACTION: &str = "action";

/// An entry of the history.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RuleRecord {
    /// Time in nanoseconds of UNIX time.
    pub(crate) at: i64,
    /// Name of the rule.
    pub(crate) rule: String,
    /// Name of the kind of the event, or `action`.
    pub(crate) event: String,
    /// Name of the subject.
    pub(crate) subject: String,
    /// Time at which the subject came into the answer; of an action, the time of its event.
    pub(crate) since: i64,
    /// Whether the subject fires.
    pub(crate) firing: bool,
    /// Of an event: `due`, `published` or `held_back`, or nothing if it has no action. Of an action: `done`, `failed` or
    /// `dry_run`. Of a copy of an event: `done` or `failed` if the outcome of its action is known.
    pub(crate) outcome: String,
    /// Number of attempts of an action.
    pub(crate) attempts: u32,
    /// Reason.
    pub(crate) why: String,
    /// The row of the subject.
    pub(crate) values: Map<String, Value>,
    /// Whether the entry is a copy of one in an earlier log.
    pub(crate) copy: bool,
}

/// The outcome of an action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Done,
    /// The reason.
    Failed(String),
    DryRun,
}

impl RuleRecord {
    /// Returns the entry of an event. `is_published` says that its action was to publish a fact.
    pub(super) fn of_event(rule: &str, event: &Event, is_published: bool) -> Self {
        let (outcome, why) = match (event.due, event.due.reason()) {
            (Due::Now, _) if is_published => ("published", ""),
            (Due::Now, _) => ("due", ""),
            (Due::Silent, _) => ("", ""),
            (_, reason) => ("held_back", reason.unwrap_or_default()),
        };
        let why = if event.reason.is_empty() { why } else { &event.reason };
        Self {
            at: event.at.as_nanos(),
            rule: rule.to_owned(),
            event: event.kind.name().to_owned(),
            subject: event.subject.clone(),
            since: event.since.as_nanos(),
            firing: event.is_firing,
            outcome: outcome.to_owned(),
            attempts: 0,
            why: cut(why),
            values: event.values.clone(),
            copy: false,
        }
    }

    /// Returns the copy of the entry of an event of [`Tracker::kept`], with the outcome of its action.
    pub(super) fn copy_of(rule: &str, (event, is_done): &(Event, Option<bool>)) -> Self {
        let record = Self { copy: true, ..Self::of_event(rule, event, false) };
        match (event.due, is_done) {
            (Due::Now, Some(true)) => Self { outcome: "done".to_owned(), ..record },
            (Due::Now, Some(false)) => Self { outcome: "failed".to_owned(), ..record },
            _ => record,
        }
    }

    /// Returns the entry of an action for `event`.
    pub(super) fn of_action(rule: &str, event: &Event, outcome: &Outcome, attempts: u32) -> Self {
        let (name, why) = match outcome {
            Outcome::Done => ("done", ""),
            Outcome::Failed(why) => ("failed", why.as_str()),
            Outcome::DryRun => ("dry_run", ""),
        };
        Self {
            at: now().as_nanos(),
            rule: rule.to_owned(),
            event: ACTION.to_owned(),
            subject: event.subject.clone(),
            since: event.at.as_nanos(),
            firing: event.is_firing,
            outcome: name.to_owned(),
            attempts,
            why: cut(why),
            values: Map::new(),
            copy: false,
        }
    }

    /// Returns the entry that stands for `lost` ones.
    pub(crate) fn gap(lost: u64) -> Self {
        let why = format!("{lost} entries are damaged");
        Self { event: "lost".to_owned(), why, ..Self::default() }
    }

    /// Applies the entry to the tracker of its rule, after all older ones. `now` is the moment of this call.
    pub(super) fn restore(&self, now: Moment, tracker: &mut Tracker) {
        let at = Timestamp::from_nanos(self.at);
        let then = now.earlier(at);
        if self.event == ACTION {
            let event = Timestamp::from_nanos(self.since);
            tracker.note_outcome(then, &self.subject, event, self.outcome != "failed");
        } else if let Some(event) = self.event() {
            tracker.restore(now, &event);
            match self.outcome.as_str() {
                "published" | "done" => tracker.note_outcome(then, &self.subject, at, true),
                "failed" => tracker.note_outcome(then, &self.subject, at, false),
                _ => {}
            }
        }
    }

    /// Returns the event; `None` for an entry about an action.
    fn event(&self) -> Option<Event> {
        let due = match (self.outcome.as_str(), self.why.as_str()) {
            ("due" | "published" | "done" | "failed", _) => Due::Now,
            ("held_back", "flapping") => Due::Flaps,
            ("held_back", _) => Due::Limited,
            _ => Due::Silent,
        };
        Some(Event {
            at: Timestamp::from_nanos(self.at),
            kind: Kind::of_name(&self.event)?,
            subject: self.subject.clone(),
            since: Timestamp::from_nanos(self.since),
            is_firing: self.firing,
            due,
            values: self.values.clone(),
            reason: String::new(),
        })
    }
}

/// The history of all rules of a hub.
#[derive(Debug)]
pub(crate) struct History {
    written: Mutex<Written>,
}

#[derive(Debug)]
struct Written {
    journal: Journal,
    /// Generation of the newest log that has its copies, or that an earlier process wrote.
    copied: Option<u64>,
}

impl History {
    /// Opens the history in a folder.
    ///
    /// # Errors
    /// Another process uses the folder, or it cannot be read or written.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        let journal = Journal::open(folder, "rules", LIMITS)?;
        let copied = newest(&journal);
        Ok(Self { written: Mutex::new(Written { journal, copied }) })
    }

    /// Returns true if a log has begun since the last call: the caller appends copies then.
    pub(super) fn lacks_copies(&self) -> bool {
        let mut written = unpoisoned(self.written.lock());
        let newest = newest(&written.journal);
        std::mem::replace(&mut written.copied, newest) != newest
    }

    /// Writes entries durably, and returns the number of those that could not be written.
    pub(super) fn append(&self, records: &[RuleRecord]) -> u64 {
        if records.is_empty() {
            return 0;
        }
        let mut written = unpoisoned(self.written.lock());
        let journal = &mut written.journal;
        let mut lost = 0;
        for record in records {
            let bytes = serde_json::to_vec(record).unwrap_or_default();
            let mut is_added = matches!(journal.append(&bytes, now()), Ok(true));
            if !is_added && journal.commit().is_ok() {
                // The commit has made room.
                is_added = matches!(journal.append(&bytes, now()), Ok(true));
            }
            lost += u64::from(!is_added);
        }
        match journal.commit() {
            Ok(()) => lost,
            // Entries that wait are written by the next commit, if there is one.
            Err(_) => records.len() as u64,
        }
    }

    /// Passes all entries but copies to `visit`, the oldest first, and returns the number of those that are known to be lost.
    ///
    /// # Errors
    /// A log cannot be read.
    pub(crate) fn read(&self, visit: &mut dyn FnMut(RuleRecord)) -> Result<u64, Error> {
        self.read_all(&mut |record| {
            if !record.copy {
                visit(record);
            }
        })
    }

    /// Passes all entries to `visit`, as [`read`](Self::read) does.
    ///
    /// # Errors
    /// A log cannot be read.
    pub(super) fn read_all(&self, visit: &mut dyn FnMut(RuleRecord)) -> Result<u64, Error> {
        let logs = unpoisoned(self.written.lock()).journal.logs();
        let mut lost = 0;
        for file in logs {
            let mut odd = 0;
            lost += Journal::read(&file, &mut |bytes| match serde_json::from_slice(bytes) {
                Ok(record) => visit(record),
                Err(_) => odd += 1,
            })?;
            lost += odd;
        }
        Ok(lost)
    }
}

/// Returns for each rule the number of its first copies for which a log has room. Rules take turns, so one with many subjects
/// leaves room to the others.
pub(super) fn room_for(copies: &[Vec<RuleRecord>]) -> Vec<usize> {
    let mut room = MAX_COPIES_BYTES;
    let mut numbers = vec![0; copies.len()];
    let longest = copies.iter().map(Vec::len).max().unwrap_or(0);
    for turn in 0..longest {
        for (records, number) in copies.iter().zip(&mut numbers) {
            let Some(record) = records.get(turn) else { continue };
            let bytes = serde_json::to_vec(record).map_or(0, |bytes| bytes.len());
            match room.checked_sub(bytes) {
                Some(left) => room = left,
                None => return numbers,
            }
            *number += 1;
        }
    }
    numbers
}

/// Returns the generation of the newest log.
fn newest(journal: &Journal) -> Option<u64> {
    journal.logs().last().map(|(generation, _)| *generation)
}

/// Cuts a text at its longest length.
fn cut(text: &str) -> String {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=text.len().min(MAX_WHY_BYTES)).rev().find(fits).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_cannot_be_read_counts_as_lost() {
        let folder = tempfile::tempdir().expect("a folder");
        let history = History::open(folder.path()).expect("a history");
        let record = RuleRecord { rule: "full".to_owned(), ..RuleRecord::default() };
        let records = [record];
        assert_eq!(history.append(&records), 0);
        {
            let mut written = unpoisoned(history.written.lock());
            assert!(written.journal.append(b"not JSON", now()).expect("appended"));
            written.journal.commit().expect("written");
        }
        let mut read = Vec::new();
        assert_eq!(history.read(&mut |record| read.push(record)).expect("read"), 1);
        assert_eq!(read, records);
    }

    #[test]
    fn a_rule_with_many_subjects_leaves_room_for_the_copies_of_others() {
        let copy = |subject: String| RuleRecord { subject, copy: true, ..RuleRecord::default() };
        let of = |number: usize| -> Vec<RuleRecord> {
            (0..number).map(|n| copy(format!("{n:01000}"))).collect()
        };
        assert_eq!(room_for(&[of(3), Vec::new(), of(5)]), [3, 0, 5]);
        let numbers = room_for(&[of(2000), of(10), of(2000)]);
        assert_eq!(numbers[1], 10);
        assert!(numbers[0] < 1000 && numbers[0] - numbers[2] <= 1, "{numbers:?}");
    }
}

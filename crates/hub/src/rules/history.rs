//! The history of rules: each event, and the outcome of each action, in a journal on disk.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use skopos_model::{Timestamp, unpoisoned};
use skopos_shm::now;
use skopos_steer::rule::{Due, Event, Kind};
use skopos_store::history::Error;
use skopos_store::journal::{Journal, JournalLimits};

/// 16 MiB have some 50,000 entries. A quarter of a year is the time in which people ask what happened.
const LIMITS: JournalLimits =
    JournalLimits { max_bytes: 16 << 20, max_age: Duration::from_secs(92 * 86_400) };

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
    /// `dry_run`.
    pub(crate) outcome: String,
    /// Number of attempts of an action.
    pub(crate) attempts: u32,
    /// Reason.
    pub(crate) why: String,
    /// The row of the subject.
    pub(crate) values: Map<String, Value>,
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
        }
    }

    /// Returns the entry that stands for `lost` ones.
    pub(crate) fn gap(lost: u64) -> Self {
        let why = format!("{lost} entries are damaged");
        Self { event: "lost".to_owned(), why, ..Self::default() }
    }

    /// Returns the event; `None` for an entry about an action.
    fn event(&self) -> Option<Event> {
        Some(Event {
            at: Timestamp::from_nanos(self.at),
            kind: Kind::of_name(&self.event)?,
            subject: self.subject.clone(),
            since: Timestamp::from_nanos(self.since),
            is_firing: self.firing,
            due: Due::Silent,
            values: self.values.clone(),
            reason: String::new(),
        })
    }
}

/// The history of all rules of a hub.
#[derive(Debug)]
pub(crate) struct History {
    journal: Mutex<Journal>,
}

impl History {
    /// Opens the history in a folder.
    ///
    /// # Errors
    /// Another process uses the folder, or it cannot be read or written.
    pub(super) fn open(folder: &Path) -> Result<Self, Error> {
        Ok(Self { journal: Mutex::new(Journal::open(folder, "rules", LIMITS)?) })
    }

    /// Writes entries durably, and returns the number of those that could not be written.
    pub(super) fn append(&self, records: &[RuleRecord]) -> u64 {
        if records.is_empty() {
            return 0;
        }
        let mut journal = unpoisoned(self.journal.lock());
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

    /// Passes all entries to `visit`, the oldest first, and returns the number of those that are known to be lost.
    ///
    /// # Errors
    /// A log cannot be read.
    pub(crate) fn read(&self, visit: &mut dyn FnMut(RuleRecord)) -> Result<u64, Error> {
        let logs = unpoisoned(self.journal.lock()).logs();
        let mut lost = 0;
        for file in logs {
            lost += Journal::read(&file, &mut |bytes| {
                if let Ok(record) = serde_json::from_slice(bytes) {
                    visit(record);
                }
            })?;
        }
        Ok(lost)
    }

    /// Returns the events of each rule, the oldest first, with whether their actions were done, as far as they can be.
    ///
    /// # Errors
    /// A log cannot be read.
    pub(super) fn events(&self) -> Result<HashMap<String, Vec<(Event, bool)>>, Error> {
        let (mut records, mut told) = (Vec::new(), HashSet::new());
        self.read(&mut |record| {
            if record.event == ACTION {
                told.insert((record.rule, record.subject, record.since));
            } else {
                records.push(record);
            }
        })?;
        let mut events: HashMap<String, Vec<(Event, bool)>> = HashMap::new();
        for record in records {
            let Some(event) = record.event() else { continue };
            let was_told = record.outcome == "published"
                || told.contains(&(record.rule.clone(), record.subject, record.at));
            events.entry(record.rule).or_default().push((event, was_told));
        }
        Ok(events)
    }
}

/// Cuts a text at its longest length.
fn cut(text: &str) -> String {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=text.len().min(MAX_WHY_BYTES)).rev().find(fits).unwrap_or(0);
    text[..end].to_owned()
}

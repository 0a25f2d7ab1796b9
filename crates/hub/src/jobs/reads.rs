//! The log of reads: who asked about which jobs, when, and with what outcome.
//!
//! A [`Reading`] is one question. It is noted when it is dropped, also if it was refused or ended half-way. A thread writes
//! entries a moment later, many at once, so a question does not wait for the disk. If the disk is too slow, entries are dropped
//! and counted, and the next entry tells how many.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skopos_access::Caller;
use skopos_model::unpoisoned;
use skopos_store::history::Error as LogError;
use skopos_store::jobs::Visibility;
use skopos_store::journal::{Journal, JournalLimits, MAX_ENTRY_BYTES};

use super::shared::{described, now};
use crate::catalogue::visibility;

/// The most entries that wait to be written: some seconds of a hub that does nothing but answer. They take some megabytes.
const MAX_WAITING: usize = 10_000;

/// Time in which entries gather before they are written together.
const GATHER: Duration = Duration::from_millis(200);

/// The most ids of an entry. More jobs are counted alone.
const MAX_IDS: usize = 16;

/// The longest text of an entry: an id of a job, which has 256 bytes, or a reason.
const MAX_TEXT_BYTES: usize = 256;

/// The kind of a question about jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// A list of jobs: the table `jobs`.
    Search,
    /// Metadata of named jobs: the table `job_metadata`.
    Metadata,
    /// Measurements of named jobs: the table `job_samples`.
    Records,
    /// Findings: the table `job_findings`.
    Findings,
    /// The places of jobs, for downloads.
    Places,
    /// A download.
    Download,
}

impl Question {
    fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Metadata => "metadata",
            Self::Records => "records",
            Self::Findings => "findings",
            Self::Places => "places",
            Self::Download => "download",
        }
    }
}

/// An entry of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReadEntry {
    /// The time, in nanoseconds of UNIX time.
    pub at: i64,
    /// The kind of the caller: `owner`, `user`, `node`, `anybody` or `stranger`.
    pub caller: String,
    /// The name of the user or node, and the role of a user.
    pub user: String,
    /// The role of a user.
    pub role: String,
    /// The kind of the question; `lost` for a gap in the log.
    pub question: String,
    /// `granted`, `refused` or `failed`.
    pub outcome: String,
    /// Number of jobs that were shown; of a gap, the number of lost entries.
    pub jobs: u64,
    /// The jobs that were asked for, if they are few.
    pub ids: Vec<String>,
    /// Number of rows or records that were sent.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The reason of a refusal or failure.
    pub why: String,
}

/// The log, with the thread that writes it.
pub(super) struct Reads {
    inner: Arc<Inner>,
    thread: Option<JoinHandle<()>>,
}

struct Inner {
    waiting: Mutex<Waiting>,
    signal: Condvar,
    log: Mutex<Journal>,
    dropped: AtomicU64,
    trouble: Mutex<Option<String>>,
}

#[derive(Default)]
struct Waiting {
    entries: VecDeque<ReadEntry>,
    is_ending: bool,
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Reads")
    }
}

impl Reads {
    /// Opens the log in a folder.
    ///
    /// # Errors
    /// Another process uses the folder, it cannot be read or written, or no thread can be started.
    pub(super) fn open(folder: &Path) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let log = Journal::open(folder, "reads", JournalLimits::default())?;
        let inner = Arc::new(Inner {
            waiting: Mutex::default(),
            signal: Condvar::new(),
            log: Mutex::new(log),
            dropped: AtomicU64::new(0),
            trouble: Mutex::default(),
        });
        let writing = inner.clone();
        let thread = std::thread::Builder::new().name("job-reads".to_owned());
        let thread = Some(thread.spawn(move || writing.run())?);
        Ok(Self { inner, thread })
    }

    /// Begins a question. It is noted when the result is dropped.
    pub(super) fn reading(&self, caller: &Caller, question: Question) -> Reading {
        let (kind, user, role) = match caller {
            Caller::Owner => ("owner", String::new(), ""),
            Caller::User(user) => ("user", user.name.clone(), user.role.name()),
            Caller::Node(names) => ("node", names.node.clone(), ""),
            Caller::Anybody => ("anybody", String::new(), ""),
            Caller::Invited(_) | Caller::Stranger => ("stranger", String::new(), ""),
        };
        let entry = ReadEntry {
            at: now().as_nanos(),
            caller: kind.to_owned(),
            user: cut(&user),
            role: role.to_owned(),
            question: question.name().to_owned(),
            outcome: "granted".to_owned(),
            ..ReadEntry::default()
        };
        let is_noted = visibility(caller) != Visibility::Nothing;
        Reading { inner: self.inner.clone(), entry, is_noted }
    }

    /// Returns the number of entries that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.inner.dropped.load(Ordering::Relaxed)
    }

    /// Returns the last error of writing, if it is not mended.
    pub(super) fn trouble(&self) -> Option<String> {
        unpoisoned(self.inner.trouble.lock()).clone()
    }

    /// Passes all entries to `visit`, the oldest first, those that wait too.
    ///
    /// # Errors
    /// The log cannot be read or written.
    pub(super) fn entries(&self, visit: &mut dyn FnMut(ReadEntry)) -> Result<(), LogError> {
        self.inner.write()?;
        let logs = unpoisoned(self.inner.log.lock()).logs();
        for file in logs {
            let lost = Journal::read(&file, &mut |bytes| {
                if let Ok(entry) = serde_json::from_slice(bytes) {
                    visit(entry);
                }
            })?;
            if lost > 0 {
                visit(gap(lost, "the log is damaged"));
            }
        }
        Ok(())
    }
}

impl Drop for Reads {
    fn drop(&mut self) {
        unpoisoned(self.inner.waiting.lock()).is_ending = true;
        self.inner.signal.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Inner {
    fn push(&self, entry: ReadEntry) {
        let mut waiting = unpoisoned(self.waiting.lock());
        if waiting.entries.len() >= MAX_WAITING {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.entries.push_back(entry);
        drop(waiting);
        self.signal.notify_all();
    }

    fn run(&self) {
        let mut told = 0;
        loop {
            let is_ending = {
                let waiting = unpoisoned(self.waiting.lock());
                let is_idle =
                    |waiting: &mut Waiting| waiting.entries.is_empty() && !waiting.is_ending;
                let waiting = unpoisoned(self.signal.wait_while(waiting, is_idle));
                let until_end = |waiting: &mut Waiting| !waiting.is_ending;
                let gathered = self.signal.wait_timeout_while(waiting, GATHER, until_end);
                unpoisoned(gathered).0.is_ending
            };
            let dropped = self.dropped.load(Ordering::Relaxed);
            if dropped > told {
                // It has room beyond the bound, or it would be dropped itself.
                let gap = gap(dropped - told, "the disk was too slow");
                unpoisoned(self.waiting.lock()).entries.push_back(gap);
                told = dropped;
            }
            let written = self.write();
            *unpoisoned(self.trouble.lock()) = written.err().map(|e| described(&e));
            if is_ending {
                return;
            }
        }
    }

    /// Writes the entries that wait.
    fn write(&self) -> Result<(), LogError> {
        let mut log = unpoisoned(self.log.lock());
        let entries = std::mem::take(&mut unpoisoned(self.waiting.lock()).entries);
        for entry in entries {
            let bytes = serde_json::to_vec(&entry).unwrap_or_default();
            let is_short = bytes.len() <= MAX_ENTRY_BYTES;
            let mut is_added = is_short && matches!(log.append(&bytes, now()), Ok(true));
            if is_short && !is_added && log.commit().is_ok() {
                // The commit has made room.
                is_added = matches!(log.append(&bytes, now()), Ok(true));
            }
            if !is_added {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        log.commit()
    }
}

fn gap(count: u64, why: &str) -> ReadEntry {
    ReadEntry {
        at: now().as_nanos(),
        question: "lost".to_owned(),
        outcome: "failed".to_owned(),
        jobs: count,
        why: why.to_owned(),
        ..ReadEntry::default()
    }
}

/// Cuts a text at its longest length.
fn cut(text: &str) -> String {
    let fits = |end: &usize| text.is_char_boundary(*end);
    let end = (0..=text.len().min(MAX_TEXT_BYTES)).rev().find(fits).unwrap_or(0);
    text[..end].to_owned()
}

/// A question that is being answered. It is noted when this is dropped.
pub struct Reading {
    inner: Arc<Inner>,
    entry: ReadEntry,
    /// False for a caller that may read no job at all: it could push out all other entries.
    is_noted: bool,
}

impl std::fmt::Debug for Reading {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.entry.fmt(f)
    }
}

impl Reading {
    /// Notes an id that was asked for.
    pub fn id(&mut self, id: &str) {
        if self.entry.ids.len() < MAX_IDS {
            self.entry.ids.push(cut(id));
        }
    }

    /// Counts jobs that are shown.
    pub fn jobs(&mut self, count: u64) {
        self.entry.jobs += count;
    }

    /// Sets what was sent.
    pub fn sent(&mut self, records: u64, bytes: u64) {
        (self.entry.records, self.entry.bytes) = (records, bytes);
    }

    /// Counts more that was sent.
    pub fn send(&mut self, records: u64, bytes: u64) {
        self.sent(self.entry.records + records, self.entry.bytes + bytes);
    }

    /// Notes a refusal: a job that was asked for by its id was not shown, or the question was not allowed.
    pub fn refuse(&mut self, why: &str) {
        (self.entry.outcome, self.entry.why) = ("refused".to_owned(), cut(why));
    }

    /// Notes a failure.
    pub fn fail(&mut self, why: &str) {
        (self.entry.outcome, self.entry.why) = ("failed".to_owned(), cut(why));
    }

    /// Notes that the answer was given as a whole.
    pub fn finish(&mut self) {
        (self.entry.outcome, self.entry.why) = ("granted".to_owned(), String::new());
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        if self.is_noted {
            self.inner.push(std::mem::take(&mut self.entry));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_question_is_noted_and_those_that_are_too_many_are_counted() {
        let dir = tempfile::tempdir().expect("a folder");
        let reads = Reads::open(dir.path()).expect("open");
        let mut reading = reads.reading(&Caller::Owner, Question::Download);
        for id in 0..2 * MAX_IDS {
            reading.id(&"é".repeat(id * 20));
        }
        reading.jobs(32);
        reading.refuse("no");
        drop(reading);
        // The thread cannot write while a test has the log.
        let held = unpoisoned(reads.inner.log.lock());
        for _ in 0..3 * MAX_WAITING {
            drop(reads.reading(&Caller::Anybody, Question::Search));
            drop(reads.reading(&Caller::Owner, Question::Search));
        }
        let dropped = reads.dropped();
        assert!(dropped >= MAX_WAITING as u64, "{dropped}");
        drop(held);
        let all = |reads: &Reads| {
            let mut all = Vec::new();
            reads.entries(&mut |entry| all.push(entry)).expect("read");
            all
        };
        let until = std::time::Instant::now() + Duration::from_secs(60);
        let lost = |all: &[ReadEntry]| {
            all.iter().filter(|entry| entry.question == "lost").map(|entry| entry.jobs).sum::<u64>()
        };
        while lost(&all(&reads)) < dropped && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        drop(reads);
        let reads = Reads::open(dir.path()).expect("open again");
        let all = all(&reads);
        assert_eq!(lost(&all), dropped);
        let first = &all[0];
        assert_eq!((first.question.as_str(), first.outcome.as_str()), ("download", "refused"));
        assert_eq!((first.ids.len(), first.jobs, first.caller.as_str()), (MAX_IDS, 32, "owner"));
        assert!(first.ids.iter().all(|id| id.len() <= MAX_TEXT_BYTES));
        let searches = all.iter().filter(|entry| entry.question == "search").count() as u64;
        assert_eq!(searches + dropped, 3 * MAX_WAITING as u64);
    }
}

//! The storage of a hub for the task that sends its jobs to a replica.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use skopos_model::unpoisoned;
use skopos_store::jobs::Changes;
use skopos_store::jobs::replica::{Message, Reply, Sender};
use skopos_term::tell;

use super::replication::random;
use super::sealed::OfSite;
use super::shared::{AnyError, Shared, described, now};
use super::store::Jobs;
use super::troubles::Work;

/// The file with the number of a folder.
const STORAGE: &str = "storage";

/// The most messages, and the most bytes of them, that are read at once. They wait in memory for the network.
const MAX_MESSAGES: usize = 32;
const MAX_BYTES: usize = 4 << 20;

/// The storage, for the task that sends.
#[derive(Debug)]
pub struct Replicating {
    shared: Arc<Shared>,
    /// A number that belongs to the folder: another folder of this hub is another storage.
    storage: u64,
    /// The place of the segment that was checked last.
    checked: Option<u64>,
    /// Changes that the catalogue has not followed.
    behind: Vec<Changes>,
}

fn of_replica(why: String) -> String {
    format!("the replica: {why}")
}

/// The effect of an answer.
#[derive(Debug, Default)]
pub struct Replicated {
    /// True if records have reached the level `replica`.
    pub is_progress: bool,
}

impl Jobs {
    /// Prepares the replication of the jobs in `folder`, which these are.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn replicate(&self, folder: &Path) -> Result<Replicating, AnyError> {
        let storage = storage_of(folder)?;
        let sender = Sender::new(&folder.join("returning"))?;
        *unpoisoned(self.shared.replication.sender.lock()) = Some(sender);
        let shared = self.shared.clone();
        Ok(Replicating { shared, storage, checked: None, behind: Vec::new() })
    }
}

impl Replicating {
    /// Returns the number of the storage.
    pub fn storage(&self) -> u64 {
        self.storage
    }

    fn with<T>(
        &self,
        work: impl FnOnce(&mut Sender) -> Result<T, AnyError>,
    ) -> Result<T, AnyError> {
        let mut sender = unpoisoned(self.shared.replication.sender.lock());
        let sender = sender.as_mut().ok_or("the replication has not begun")?;
        work(sender)
    }

    /// Notes that a stream begins, or that it has ended, with the reason.
    pub fn reset(&self, trouble: Option<String>) {
        let _ = self.with(|sender| {
            sender.reset();
            Ok(())
        });
        unpoisoned(self.shared.troubles.lock()).set(Work::Replicating, trouble.map(of_replica));
    }

    /// Notes what hinders the replication while the stream goes on, and prints it.
    fn note(&self, trouble: Option<String>) {
        let mut troubles = unpoisoned(self.shared.troubles.lock());
        let warning = troubles.note(Work::Replicating, trouble.map(of_replica), Instant::now());
        drop(troubles);
        warning.iter().for_each(tell);
    }

    /// Takes an answer of the replica. Blocks.
    ///
    /// # Errors
    /// The stream must end.
    pub fn take(&mut self, reply: Reply) -> Result<Replicated, AnyError> {
        let is_progress = matches!(reply, Reply::Durable(_) | Reply::Finished);
        let shared = self.shared.clone();
        let (changes, standing) = self.with(|sender| {
            let changes = sender.take(reply, &shared.intake, &shared.lts)?;
            Ok((changes, sender.standing().clone()))
        })?;
        if let Some(changes) = changes {
            self.restored(changes)?;
        }
        if is_progress {
            self.shared.commits.send_modify(|commits| *commits += 1);
        }
        let trouble = standing.full.map(|why| format!("it is full: {why}"));
        self.note(trouble.or_else(|| standing.failed.first().cloned()));
        Ok(Replicated { is_progress })
    }

    /// Returns the next messages. Blocks.
    ///
    /// # Errors
    /// A log or a segment cannot be read.
    pub fn next_messages(&mut self) -> Result<Vec<Message>, AnyError> {
        let shared = self.shared.clone();
        self.with(|sender| {
            let (mut messages, mut bytes) = (Vec::new(), 0);
            while messages.len() < MAX_MESSAGES && bytes < MAX_BYTES {
                let Some(message) = sender.next(&shared.intake, &shared.lts)? else { break };
                bytes += match &message {
                    Message::Records { records, .. } => records.len(),
                    Message::Chunk { bytes, .. } => bytes.len(),
                    _ => 0,
                };
                messages.push(message);
            }
            Ok(messages)
        })
    }

    /// Checks every byte of one segment, in turn, and looks for damaged ones to restore. Blocks.
    ///
    /// # Errors
    /// A segment cannot be read, or the catalogue is away.
    pub fn check_one(&mut self) -> Result<(), AnyError> {
        self.checked = self.shared.lts.verify_next(self.checked)?;
        self.with(|sender| {
            sender.look();
            Ok(())
        })?;
        self.follow()
    }

    /// Follows a segment that is in place again. Records that the logs had, because its parts were not known, are not kept any
    /// longer: the logs are read again. That ends the streams of producers.
    fn restored(&mut self, changes: Changes) -> Result<(), AnyError> {
        {
            let mut intake = self.shared.intake();
            if intake.overlaps(&changes.restored) {
                intake.commit()?;
                let of_site = OfSite { site: &self.shared.site, lts: &self.shared.lts };
                intake.reopen(&of_site, now())?;
                self.shared.reopened.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.behind.push(changes);
        // The catalogue may be away; it follows later.
        let _ = self.follow();
        Ok(())
    }

    fn follow(&mut self) -> Result<(), AnyError> {
        while let Some(changes) = self.behind.first() {
            self.shared.follow(changes)?;
            self.behind.remove(0);
        }
        Ok(())
    }

    /// Returns a channel that notifies of each commit.
    pub fn commits(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.commits.subscribe()
    }

    /// Returns an error with its causes.
    pub fn described(error: &AnyError) -> String {
        described(&**error)
    }
}

/// Returns the number of a folder, which it gets when it is first replicated.
fn storage_of(folder: &Path) -> io::Result<u64> {
    if let Some(known) = known_storage(folder)? {
        return Ok(known);
    }
    let number = random()?;
    let new = folder.join("storage.new");
    fs::write(&new, format!("{number:016x}\n"))?;
    fs::File::open(&new)?.sync_all()?;
    fs::rename(&new, folder.join(STORAGE))?;
    fs::File::open(folder)?.sync_all()?;
    Ok(number)
}

/// Returns the number of a folder; `None` if it was never replicated.
pub(super) fn known_storage(folder: &Path) -> io::Result<Option<u64>> {
    let path = folder.join(STORAGE);
    let text = match fs::read_to_string(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read?,
    };
    let wrong = |_| io::Error::other(format!("{} has no number", path.display()));
    u64::from_str_radix(text.trim_end(), 16).map(Some).map_err(wrong)
}

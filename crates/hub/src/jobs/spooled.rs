//! Batches of producers that could not reach the hub: the hub takes them from the spool of its machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use skopos_access::Caller;
use skopos_store::jobs::spool::{Sent, Spool, SpooledBatch};
use skopos_term::tell;

use super::place::JobsPlace;
use super::shared::described;
use super::store::Jobs;
use super::stored::{StoreError, Visit};

/// Pause between two looks at the spool. A look at an empty one reads a folder.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Time for which a batch waits until it is durable.
const DURABLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Stores a batch, and waits until it is durable.
pub fn store_batch(jobs: &Jobs, caller: &Caller, batch: &SpooledBatch) -> Sent {
    store_each(jobs, caller, (batch.producer.as_str(), batch.epoch), |visit| {
        let records = batch.records.iter();
        records
            .filter_map(|(sequence, record)| Some((*sequence, record.get()?)))
            .try_for_each(|(sequence, record)| visit(sequence, record))
    })
}

fn store_each(
    jobs: &Jobs,
    caller: &Caller,
    producer: (&str, i64),
    each: impl FnOnce(&mut Visit<'_>) -> Result<(), StoreError>,
) -> Sent {
    let stored = match jobs.store(caller, producer, each) {
        Ok(stored) => stored,
        // Lost records were not acknowledged, and the same batch has them.
        Err(e @ (StoreError::Busy(_) | StoreError::Lost)) => return Sent::Later(described(&e)),
        Err(e) => return Sent::Refused(described(&e)),
    };
    if let Some(last) = stored.last
        && !jobs.wait_durable(caller, producer, last, DURABLE_TIMEOUT)
    {
        return Sent::Later("the records could not be made durable in time".to_owned());
    }
    match stored.refusals.into_iter().next() {
        Some((_, why)) => Sent::Refused(why),
        None => Sent::Acknowledged { new: stored.accepted },
    }
}

/// The thread that takes batches from a spool, until this is dropped.
pub(crate) struct SpoolTaker {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl SpoolTaker {
    /// Takes the batches of the spool in `folder`: now, and then every ten seconds.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(place: Arc<JobsPlace>, folder: PathBuf) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let run = move || {
            let mut task = Task { place, spool: Spool::new(folder), stopped, trouble: None };
            loop {
                task.take();
                if task.stopped.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("job-spool".to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for SpoolTaker {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The state of the thread.
struct Task {
    place: Arc<JobsPlace>,
    spool: Spool,
    stopped: Receiver<()>,
    /// The last warning, which is not printed again as long as it is the same.
    trouble: Option<String>,
}

impl Task {
    /// Takes what is spooled.
    fn take(&mut self) {
        let (place, stopped) = (&self.place, &self.stopped);
        let delivered = self.spool.deliver(&mut |batch| {
            if stopped.try_recv() == Err(TryRecvError::Disconnected) {
                return Sent::Later("the hub ends".to_owned());
            }
            match place.open() {
                // The batches are files of the owner.
                Ok(jobs) => store_batch(&jobs, &Caller::Owner, batch),
                Err(e) => Sent::Later(e.to_string()),
            }
        });
        let trouble = match delivered {
            Ok(delivered) => {
                for damage in delivered.aside {
                    self.warn(format!("records of jobs cannot be taken: {damage}"));
                }
                delivered.waiting.map(|why| format!("records of jobs wait: {why}"))
            }
            Err(e) => Some(format!("spooled records of jobs cannot be read: {}", described(&e))),
        };
        if trouble != self.trouble {
            trouble.iter().for_each(|trouble| self.warn(trouble.clone()));
            self.trouble = trouble;
        }
    }

    fn warn(&self, text: String) {
        tell(format!("warning: {text} (in {})", self.spool.folder().display()));
    }
}

#[cfg(test)]
mod tests {
    use skopos_model::Timestamp;
    use skopos_model::job::{JobId, JobRecord, Kind};
    use skopos_store::jobs::StoredRecord;

    use super::*;
    use crate::jobs::JobsSettings;

    fn batch(producer: &str, records: &[(Kind, &str)]) -> SpooledBatch {
        let of = |(sequence, (kind, content)): (i64, &(Kind, &str))| {
            let (time, content) = (Timestamp::from_nanos(sequence), content.as_bytes());
            let record =
                JobRecord { kind: *kind, job: "7", generation: 0, node: "n01", time, content };
            (sequence, StoredRecord::of(&record))
        };
        let records = (0..).zip(records).map(of).collect();
        SpooledBatch { producer: producer.to_owned(), epoch: 1, records }
    }

    /// Returns the jobs in a folder.
    fn place(folder: &std::path::Path) -> JobsPlace {
        JobsPlace::new(Some(folder.to_owned()), "site", JobsSettings::default())
    }

    #[test]
    fn a_batch_that_a_hub_has_is_acknowledged_after_the_hub_was_started_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let running = batch("run/a", &[(Kind::Start, r#"{"user":"ann"}"#)]);
        let check = |place: &JobsPlace, new| {
            let jobs = place.open().expect("open");
            let sent = store_batch(&jobs, &Caller::Owner, &running);
            assert_eq!(sent, Sent::Acknowledged { new });
        };
        [1, 0, 0].into_iter().for_each(|new| check(&place(folder.path()), new));
    }

    #[test]
    fn a_batch_of_which_the_disk_lost_records_comes_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let jobs = place(folder.path()).open().expect("open");
        let running = batch("run/a", &[(Kind::Start, r#"{"user":"ann"}"#), (Kind::Spans, "[1]")]);
        let sent = store_each(&jobs, &Caller::Owner, ("run/a", 1), |visit| {
            for (sequence, record) in &running.records {
                visit(*sequence, record.get().expect("a record"))?;
                // The log is opened anew.
                jobs.shared.reopened.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            Ok(())
        });
        assert!(matches!(sent, Sent::Later(_)), "{sent:?}");
        let sent = store_batch(&jobs, &Caller::Owner, &running);
        assert_eq!(sent, Sent::Acknowledged { new: 1 });
    }

    #[test]
    fn a_hub_takes_what_is_spooled_once_and_names_what_it_refuses() {
        let folder = tempfile::tempdir().expect("a folder");
        let spool = Spool::new(folder.path().join("spool"));
        let start = batch("run/a", &[(Kind::Start, r#"{"user":"ann"}"#)]);
        let end = batch("run/b", &[(Kind::End, r#"{"state":"completed"}"#)]);
        let other = batch("run/c", &[(Kind::Start, "{"), (Kind::Spans, "[1]")]);
        let now = Timestamp::from_nanos(1);
        for batch in [&start, &end, &other] {
            spool.add(batch, now).expect("added");
        }
        let jobs = folder.path().join("jobs");
        let place = Arc::new(place(&jobs));
        let taker = SpoolTaker::start(place.clone(), spool.folder().to_owned()).expect("started");
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while !spool.is_empty().expect("listed") && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(taker);
        let id = JobId::new("7", 0).expect("an id");
        let records = || {
            let jobs = place.open().expect("open");
            let pieces = jobs.pieces(&Caller::Owner, &id).expect("pieces");
            let read = pieces.into_iter().map(|piece| jobs.read(&id, piece).expect("read"));
            let kind = |record: StoredRecord| record.get().expect("a record").kind;
            read.flatten().map(kind).collect::<Vec<_>>()
        };
        let stored = [Kind::Start, Kind::End, Kind::Spans];
        assert_eq!(records(), stored, "a start that is not a document is refused");
        let aside = spool.folder().join("quarantine");
        assert_eq!(std::fs::read_dir(aside).expect("a quarantine").count(), 1);
        // A process that ended before it had removed the file sends it again.
        let open = place.open().expect("open");
        for batch in [&start, &end] {
            let sent = store_batch(&open, &Caller::Owner, batch);
            assert_eq!(sent, Sent::Acknowledged { new: 0 });
        }
        assert_eq!(records(), stored);
    }
}

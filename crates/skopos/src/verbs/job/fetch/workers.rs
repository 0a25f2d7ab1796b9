//! Downloads endpoints, several at a time, each into files of its own.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use skopos_hub::jobs::PlacedRecord;
use skopos_model::Timestamp;
use skopos_model::job::JobId;
use skopos_model::unpoisoned;
use skopos_serve::downloads::SAME_HUB;
use skopos_serve::fetch::{FetchError, Fetcher, HubAddress};
use skopos_store::jobs::{JobPart, SegmentWriter};
use skopos_term::Failure;

use super::arrival;
use super::folder::Folder;
use super::task::{Missing, Task};

/// Pause before a hub that has too much to do is asked again, and the number of times.
const BUSY_PAUSE: Duration = Duration::from_millis(500);
const BUSY_TIMES: usize = 60;

/// The most tasks that wait: enough for all threads while the next answer is made. A ticket is good for five minutes, in which its
/// download has to begin, so an answer is asked for when most tasks of the one before have begun.
const MAX_WAITING: usize = 64;

/// Numbers of what was downloaded.
#[derive(Default)]
pub(super) struct Done {
    pub(super) parts: u64,
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) missing: Vec<Missing>,
    /// True if sealed records came that were not there.
    pub(super) is_ahead: bool,
    /// True if a ticket was not taken, or records were gone: the places may be others now.
    pub(super) is_worth_another_round: bool,
}

/// The tasks that wait for a thread, with the folders of their sites.
#[derive(Default)]
pub(super) struct Tasks {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    tasks: VecDeque<(Task, Arc<Folder>)>,
    /// True once no further tasks come.
    is_closed: bool,
}

impl Tasks {
    /// Adds a task, and waits as long as too many others wait.
    ///
    /// # Errors
    /// No tasks are taken any more: a thread has ended with an error.
    pub(super) fn push(&self, task: Task, folder: &Arc<Folder>) -> Result<(), Failure> {
        let is_full = |state: &mut Waiting| state.tasks.len() >= MAX_WAITING && !state.is_closed;
        let mut state = unpoisoned(self.changed.wait_while(unpoisoned(self.state.lock()), is_full));
        if state.is_closed {
            return Err(Failure::new("the download has ended"));
        }
        state.tasks.push_back((task, folder.clone()));
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for a task; `None` if no further ones come.
    fn pop(&self) -> Option<(Task, Arc<Folder>)> {
        let is_empty = |state: &mut Waiting| state.tasks.is_empty() && !state.is_closed;
        let mut state =
            unpoisoned(self.changed.wait_while(unpoisoned(self.state.lock()), is_empty));
        let task = state.tasks.pop_front();
        drop(state);
        self.changed.notify_all();
        task
    }

    /// Ends the tasks. Those that wait are still done, unless `are_dropped`.
    fn close(&self, are_dropped: bool) {
        let mut state = unpoisoned(self.state.lock());
        state.is_closed = true;
        if are_dropped {
            state.tasks.clear();
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// Closes the tasks if its thread panics: the others would wait for it.
struct Guard<'t>(&'t Tasks);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.close(true);
        }
    }
}

/// Downloads the tasks that `ask` adds, while it adds further ones. Returns its result.
pub(super) fn run<T>(
    parallel: u8,
    ask: impl FnOnce(&Tasks) -> Result<T, Failure>,
) -> Result<(T, Done), Failure> {
    let (tasks, done) = (Tasks::default(), Mutex::new(Done::default()));
    let asked = thread::scope(|scope| {
        let _guard = Guard(&tasks);
        let work = || work(&tasks, &done);
        let threads: Vec<_> = (0..parallel).map(|_| scope.spawn(work)).collect();
        let asked = ask(&tasks);
        tasks.close(asked.is_err());
        for thread in threads {
            let ended = thread.join();
            ended.unwrap_or_else(|_| Err(Failure::new("a thread of the download ended")))?;
        }
        asked
    })?;
    Ok((asked, unpoisoned(done.into_inner())))
}

/// Does tasks until no further ones come.
fn work(tasks: &Tasks, done: &Mutex<Done>) -> Result<(), Failure> {
    let _guard = Guard(tasks);
    let mut hubs = HashMap::new();
    while let Some((task, folder)) = tasks.pop() {
        match fetch(&task, &folder, &mut hubs) {
            Ok((parts, records, bytes)) => {
                let mut done = unpoisoned(done.lock());
                done.parts += parts;
                done.records += records;
                done.bytes += bytes;
                done.is_ahead |= task.endpoint.metadata.sealed && parts > 0;
            }
            Err(FetchError::Local(e)) => {
                // The others stop too: the disk is full, most often.
                tasks.close(true);
                return Err(e);
            }
            Err(e) => {
                let mut done = unpoisoned(done.lock());
                done.is_worth_another_round = true;
                let names = task.endpoint.metadata.jobs.iter().map(|of| of.job.clone());
                done.missing.push(Missing {
                    site: Some(task.site),
                    jobs: names.collect(),
                    why: e.into_failure().in_one_line(),
                });
            }
        }
    }
    Ok(())
}

/// Downloads an endpoint from the first of its locations that has it, else from the hub that was asked. Returns the numbers of
/// parts, records and bytes.
fn fetch(
    task: &Task,
    folder: &Folder,
    hubs: &mut HashMap<String, Fetcher>,
) -> Result<(u64, u64, u64), FetchError> {
    let (asked, mut tried, mut failure) = ([SAME_HUB.to_owned()], BTreeSet::new(), None);
    for location in task.endpoint.locations.iter().chain(&asked) {
        let Some(address) = task.hubs.at(location) else {
            failure = Some(FetchError::Failed(
                Failure::new(format!("the hub at {location} is not asked without a token for it"))
                    .hint(format!("add `--hub {location} --token-file FILE`")),
            ));
            continue;
        };
        if !tried.insert(address.url.clone()) {
            continue;
        }
        for _ in 0..BUSY_TIMES {
            match fetch_from(&address, task, folder, hubs) {
                Err(FetchError::Busy(e)) => {
                    failure = Some(FetchError::Busy(e));
                    thread::sleep(BUSY_PAUSE);
                }
                Err(FetchError::Local(e)) => return Err(FetchError::Local(e)),
                Err(e) => {
                    // The connection may be the reason.
                    hubs.remove(&address.url);
                    failure = Some(e);
                    break;
                }
                fetched => return fetched,
            }
        }
    }
    Err(failure.unwrap_or_else(|| FetchError::Failed(Failure::new("there is no location"))))
}

fn fetch_from(
    address: &HubAddress,
    task: &Task,
    folder: &Folder,
    hubs: &mut HashMap<String, Fetcher>,
) -> Result<(u64, u64, u64), FetchError> {
    let url = address.url.as_str();
    if !hubs.contains_key(url) {
        let hub = Fetcher::connect(address).map_err(FetchError::Failed)?;
        hubs.insert(url.to_owned(), hub);
    }
    let Some(hub) = hubs.get_mut(url) else {
        return Err(FetchError::Failed(Failure::new("there is no connection")));
    };
    if let Some(file) = &task.endpoint.metadata.segment {
        return arrival::fetch(hub, (task, file), folder);
    }
    let mut files = Files {
        folder,
        is_sealed: task.endpoint.metadata.sealed,
        writers: Vec::new(),
        part: None,
        came: BTreeSet::new(),
    };
    let got = hub.get(&task.endpoint.ticket, &mut |placed| files.push(placed));
    let got = got.and_then(|sum| {
        files.end_part().map_err(FetchError::Local)?;
        Ok(sum)
    });
    match got {
        Ok(sum) => {
            let missing = files.missing(task);
            if let Some((id, part)) = missing {
                files.abandon();
                let text = format!("the hub at {url} left out part {part} of the job {id}");
                return Err(FetchError::Failed(Failure::new(text)));
            }
            let parts = files.finish().map_err(FetchError::Local)?;
            if task.endpoint.metadata.sealed {
                // A part without a wanted record is not asked for again, either.
                folder.add(task.parts());
            }
            Ok((parts, sum.records(), sum.bytes()))
        }
        Err(e) => {
            files.abandon();
            Err(e)
        }
    }
}

/// The files of one download. They get their names once all of it is verified.
struct Files<'f> {
    folder: &'f Folder,
    is_sealed: bool,
    /// Usually one. The parts of a segment ascend, and a download of several segments may begin anew.
    writers: Vec<SegmentWriter>,
    part: Option<JobPart>,
    /// Parts that came.
    came: BTreeSet<(JobId, u32)>,
}

fn unwritten(e: &dyn std::error::Error) -> Failure {
    Failure::new("the jobs cannot be written").because(e)
}

impl Files<'_> {
    fn push(&mut self, placed: PlacedRecord) -> Result<(), Failure> {
        let wrong = || Failure::new("the hub sent a record that is not one");
        let record = placed.record.get().ok_or_else(wrong)?;
        let is_same = self.part.as_ref().is_some_and(|part| {
            part.number == placed.part
                && (part.id.job(), part.id.generation()) == (record.job, record.generation)
        });
        if !is_same {
            let id = JobId::new(record.job, record.generation).map_err(|_| wrong())?;
            self.end_part()?;
            let (records, marks) = (Vec::new(), Vec::new());
            self.part = Some(JobPart { id, number: placed.part, records, marks });
        }
        if let Some(part) = &mut self.part {
            part.records.push(placed.record);
        }
        Ok(())
    }

    /// Writes the part that has ended, unless it is there already.
    fn end_part(&mut self) -> Result<(), Failure> {
        let Some(part) = self.part.take() else { return Ok(()) };
        self.came.insert((part.id.clone(), part.number));
        if self.is_sealed && self.folder.has(&part.id, part.number) {
            return Ok(());
        }
        let ascends = self
            .writers
            .last()
            .is_some_and(|w| w.last().is_none_or(|last| last.key() < (&part.id, part.number)));
        if !ascends {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let now = Timestamp::from_nanos(i64::try_from(now.as_nanos()).unwrap_or(i64::MAX));
            let path = self.folder.of(self.is_sealed);
            let writer = SegmentWriter::new(&path, self.folder.number(), now);
            self.writers.push(writer.map_err(|e| unwritten(&e))?);
        }
        match self.writers.last_mut() {
            Some(writer) => writer.push(&part).map_err(|e| unwritten(&e)),
            None => Ok(()),
        }
    }

    /// Returns a sealed part of the task that did not come. Conditions on records may leave nothing of a part.
    fn missing(&self, task: &Task) -> Option<(JobId, u32)> {
        let parts = task.parts();
        parts
            .into_iter()
            .find(|part| !self.came.contains(part))
            .filter(|_| self.folder.wanted.is_all())
    }

    /// Gives the files their names. Returns the number of parts.
    fn finish(self) -> Result<u64, Failure> {
        let mut parts = 0;
        for writer in self.writers {
            let written = writer.finish().map_err(|e| unwritten(&e))?;
            parts += written.parts.len() as u64;
            if self.is_sealed {
                self.folder.add(written.parts.into_iter().map(|part| (part.id, part.number)));
            }
        }
        Ok(parts)
    }

    fn abandon(self) {
        for writer in self.writers {
            // The next call removes unfinished files, too.
            let _ = writer.abandon();
        }
    }
}

#[cfg(test)]
mod tests {
    use skopos_hub::jobs::{OfJob, Wanted};
    use skopos_serve::downloads::EndpointMetadata;
    use skopos_serve::fetch::FoundEndpoint;

    use super::super::task::SiteHubs;
    use super::*;

    /// Returns a task of a hub that cannot be reached.
    fn task(job: usize) -> Task {
        let asked = HubAddress { url: "nowhere".to_owned(), ..HubAddress::default() };
        let (job, parts) = (job.to_string(), vec![(0, 0)]);
        let jobs = vec![OfJob { job, generation: 0, parts, open_from: None }];
        let metadata = EndpointMetadata { jobs, sealed: true, ..EndpointMetadata::default() };
        let endpoint = FoundEndpoint { ticket: Vec::new(), locations: Vec::new(), metadata };
        let hubs = SiteHubs { asked, named: Vec::new() };
        Task { site: "s".to_owned(), hubs, endpoint }
    }

    fn folder(out: &std::path::Path) -> Arc<Folder> {
        Arc::new(Folder::open(out, "s", &Wanted::default()).expect("a folder"))
    }

    #[test]
    fn tasks_are_done_while_further_ones_are_added() {
        let out = tempfile::tempdir().expect("a folder");
        let (folder, count) = (folder(out.path()), 2 * MAX_WAITING + 3);
        let ask = |tasks: &Tasks| {
            (0..count).try_for_each(|at| tasks.push(task(at), &folder))?;
            Ok::<usize, Failure>(count)
        };
        let (asked, done) = run(3, ask).expect("done");
        let jobs: BTreeSet<String> = done.missing.iter().flat_map(|it| it.jobs.clone()).collect();
        assert_eq!((asked, done.missing.len(), jobs.len()), (count, count, count));
        assert!(done.is_worth_another_round && done.parts == 0);
    }

    #[test]
    fn no_task_is_taken_after_the_end_and_an_error_of_the_question_is_returned() {
        let out = tempfile::tempdir().expect("a folder");
        let folder = folder(out.path());
        let tasks = Tasks::default();
        tasks.push(task(1), &folder).expect("taken");
        tasks.close(false);
        assert!(tasks.pop().is_some() && tasks.pop().is_none());
        let refused = tasks.push(task(2), &folder).expect_err("refused");
        assert_eq!(refused.message(), "the download has ended");
        let ask = |_: &Tasks| Err::<(), _>(Failure::new("there is no hub to ask"));
        let error = run(2, ask).err().expect("the question failed");
        assert_eq!(error.message(), "there is no hub to ask");
    }
}

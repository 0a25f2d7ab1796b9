//! The collector of traces: records of RPC services that have no trace of their own.
//!
//! A service that records its calls has a segment beside that of the agent. While there is one, a thread drains the
//! rings of all such segments into files, several times a second, and recovers the records of processes that died. A
//! machine without such a service has no thread and no folder.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use skopos_rpc::drain::{Drained, Segments};
use skopos_rpc::file::TRACE_ENDING;
use skopos_shm::records::record_segments;

/// Time between two looks at the rings. A ring has room for 8,192 records of a thread, so a thread that records 16,000
/// spans a second loses none.
const DRAIN_EVERY: Duration = Duration::from_millis(250);

/// Time after the last service ended until the thread ends.
const LINGER: Duration = Duration::from_secs(5);

/// Time between two checks of the folder's size.
const PRUNE_EVERY: Duration = Duration::from_secs(30);

/// The most bytes of one process: four million records.
const MAX_PROCESS_BYTES: u64 = 256 << 20;

/// The most bytes of all traces, the oldest of which are removed: an hour of five thousand spans a second.
const MAX_BYTES: u64 = 1 << 30;

/// Stack of the thread: it reads into buffers on the heap.
const STACK_BYTES: usize = 256 << 10;

/// Counts of the collector, since the agent started.
#[derive(Debug, Default)]
pub(crate) struct TraceCounts {
    /// Services that are drained or that drain themselves, now.
    pub(crate) services: AtomicU64,
    /// Records that were written.
    pub(crate) records: AtomicU64,
    /// Records that were overwritten before they were drained.
    pub(crate) lost: AtomicU64,
    /// Records that no disk took or that were removed for the bound of their process.
    pub(crate) deleted: AtomicU64,
    /// Bytes of old traces that were removed.
    pub(crate) removed_bytes: AtomicU64,
    /// Segments and files that could not be read or written.
    pub(crate) failures: AtomicU64,
}

/// The collector of an agent.
pub(crate) struct Traces {
    dir: PathBuf,
    /// The folder of the traces; `None` if the environment does not name one.
    folder: Option<PathBuf>,
    counts: Arc<TraceCounts>,
    /// The time at which the runtime directory changed last, as it was at the last look.
    changed_at: Option<(i64, i64)>,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Traces {
    /// Watches the runtime directory `dir`, and collects into `folder`.
    pub(crate) fn new(dir: &Path, folder: Option<PathBuf>) -> Self {
        let counts = Arc::default();
        Self { dir: dir.to_path_buf(), folder, counts, changed_at: None, thread: None }
    }

    /// Returns the counts; `None` if there was never a service.
    pub(crate) fn counts(&self) -> Option<&TraceCounts> {
        let has_begun = self.thread.is_some() || self.counts.records.load(Ordering::Relaxed) > 0;
        has_begun.then_some(&self.counts)
    }

    /// Starts the thread if a service has come. Costs one look at the directory.
    pub(crate) fn look(&mut self) {
        if self.thread.as_ref().is_some_and(|(_, thread)| thread.is_finished()) {
            // It ends when the last service has gone. A service that came meanwhile is found by the look below.
            self.thread = None;
            self.changed_at = None;
        }
        if self.thread.is_some() {
            return;
        }
        let changed_at = fs::metadata(&self.dir).ok().map(|m| (m.mtime(), m.mtime_nsec()));
        if changed_at == self.changed_at {
            return;
        }
        self.changed_at = changed_at;
        let Some(folder) = &self.folder else { return };
        if record_segments(&self.dir).is_ok_and(|found| !found.is_empty()) {
            self.thread = start(self.dir.clone(), folder.clone(), self.counts.clone());
            self.counts.failures.fetch_add(u64::from(self.thread.is_none()), Ordering::Relaxed);
        }
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.thread.take() {
            drop(stop);
            let _ = thread.join();
        }
    }
}

fn start(
    dir: PathBuf,
    folder: PathBuf,
    counts: Arc<TraceCounts>,
) -> Option<(Sender<()>, JoinHandle<()>)> {
    let (stop, stopped) = channel();
    let run = move || {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        if made.is_err() {
            counts.failures.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut segments = Segments::new(vec![dir], &folder, MAX_PROCESS_BYTES);
        let (mut seen_at, mut prune_at) = (Instant::now(), Instant::now());
        loop {
            let ends = stopped.recv_timeout(DRAIN_EVERY) == Err(RecvTimeoutError::Disconnected);
            let work = segments.poll();
            count(&counts, &work);
            if work.live + work.watched > 0 {
                seen_at = Instant::now();
            }
            if prune_at <= Instant::now() {
                prune_at = Instant::now() + PRUNE_EVERY;
                let open: Vec<PathBuf> = segments.open_files().map(Path::to_path_buf).collect();
                let removed = prune(&folder, MAX_BYTES, &open);
                counts.removed_bytes.fetch_add(removed, Ordering::Relaxed);
            }
            if ends || seen_at.elapsed() > LINGER {
                return;
            }
        }
    };
    let builder = thread::Builder::new().name("skopos-traces".into()).stack_size(STACK_BYTES);
    Some((stop, builder.spawn(run).ok()?))
}

fn count(counts: &TraceCounts, work: &Drained) {
    counts.services.store((work.live + work.watched) as u64, Ordering::Relaxed);
    for (count, more) in [
        (&counts.records, work.records),
        (&counts.lost, work.lost),
        (&counts.deleted, work.deleted),
        (&counts.failures, work.failures.len() as u64),
    ] {
        count.fetch_add(more, Ordering::Relaxed);
    }
}

/// Removes the oldest traces until those that are left have at most `most` bytes, except those in `open`, which are being
/// written. Returns the number of bytes removed.
fn prune(folder: &Path, most: u64, open: &[PathBuf]) -> u64 {
    let Ok(entries) = folder.read_dir() else { return 0 };
    let mut files: Vec<(SystemTime, u64, PathBuf)> = entries
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let is_trace = path.extension().is_some_and(|ending| ending == TRACE_ENDING);
            let about = entry.metadata().ok().filter(|about| is_trace && about.is_file())?;
            Some((about.modified().ok()?, about.len(), path))
        })
        .collect();
    files.sort();
    let mut left: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    let mut removed = 0;
    for (_, bytes, path) in files {
        if left <= most {
            break;
        }
        if open.contains(&path) {
            continue;
        }
        if fs::remove_file(path).is_ok() {
            left -= bytes;
            removed += bytes;
        }
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_traces_are_removed_first() {
        let dir = tempfile::tempdir().expect("a folder");
        std::fs::write(dir.path().join("notes.txt"), [0; 500]).expect("written");
        for (age, name) in [(30, "a.sktrace"), (20, "b.sktrace"), (10, "c.sktrace")] {
            let path = dir.path().join(name);
            fs::write(&path, [0; 100]).expect("written");
            let file = fs::File::options().write(true).open(&path).expect("our own");
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).expect("our own");
        }
        assert_eq!(prune(dir.path(), 300, &[]), 0);
        assert_eq!(prune(dir.path(), 150, &[dir.path().join("b.sktrace")]), 200);
        let left = dir.path().read_dir().expect("a folder").flatten();
        let mut left: Vec<_> = left.map(|entry| entry.file_name()).collect();
        left.sort();
        assert_eq!(left, ["b.sktrace", "notes.txt"], "one that is being written, and no trace");
    }

    #[test]
    fn a_service_is_drained_and_the_thread_ends_with_the_agent() {
        let dir = tempfile::tempdir().expect("a folder");
        let (run, folder) = (dir.path().join("run"), dir.path().join("state/traces"));
        fs::DirBuilder::new().mode(0o700).create(&run).expect("our own");
        let mut traces = Traces::new(&run, Some(folder.clone()));
        traces.look();
        assert!(traces.thread.is_none() && traces.counts().is_none(), "there is no service");
        let recorder = skopos_rpc::Recorder::start(skopos_rpc::Options::new("kv").dir(&run));
        let recorder = recorder.expect("a segment");
        let put = recorder.rpc("put");
        recorder.origin(put, None).end(skopos_rpc::Status::Ok);
        let begun = Instant::now();
        while traces.counts.records.load(Ordering::Relaxed) == 0 {
            assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", traces.counts);
            traces.look();
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(traces.counts.services.load(Ordering::Relaxed), 1);
        drop(traces);
        let files = folder.read_dir().expect("it was made").count();
        assert_eq!(files, 1);
        recorder.close().expect("its own segment");
    }
}

//! Segments of other processes: those that have no trace of their own, and those that died.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use skopos_shm::records::{RecordReader, record_segments, remove_record_segment};

use crate::drain::{Drain, described};
use crate::error::Error;
use crate::file::End;

/// Drains the segments of a machine into a folder; for the agent of a node.
#[derive(Debug)]
pub struct Segments {
    dirs: Vec<PathBuf>,
    folder: PathBuf,
    limit: u64,
    /// By path: the living processes. `None` is one that drains itself.
    known: HashMap<PathBuf, Known>,
}

#[derive(Debug)]
enum Known {
    /// The process writes its own trace; it is only watched.
    Watched(RecordReader),
    /// Drained here.
    Drained(Box<Drain>),
}

/// The work of one look.
#[derive(Debug, Default)]
pub struct Drained {
    /// Processes that live and are drained here.
    pub live: usize,
    /// Processes that live and drain themselves.
    pub watched: usize,
    /// Records that were written.
    pub records: u64,
    /// Records that were overwritten before.
    pub lost: u64,
    /// Records that were deleted with old parts, or that no disk took.
    pub deleted: u64,
    /// Traces of processes that ended since the last look: complete now.
    pub ended: Vec<PathBuf>,
    /// Segments and folders that could not be read or written.
    pub failures: Vec<Error>,
}

impl Segments {
    /// Drains the segments in `dirs` into `folder`, with at most `limit` bytes for each process. Processes that died with a
    /// trace of their own are recovered into the folder of that trace if it exists.
    pub fn new(dirs: Vec<PathBuf>, folder: impl Into<PathBuf>, limit: u64) -> Self {
        Self { dirs, folder: folder.into(), limit, known: HashMap::new() }
    }

    /// Looks at all segments once: drains the living, recovers the dead and removes their segments. Call it several times a
    /// second: a ring that is full before is overwritten, and the lost records are counted.
    pub fn poll(&mut self) -> Drained {
        let mut work = Drained::default();
        let mut paths = Vec::new();
        for dir in &self.dirs {
            match record_segments(dir) {
                Ok(found) => paths.extend(found),
                Err(e) => work.failures.push(e.into()),
            }
        }
        // The process removed the file of a segment that is no longer found.
        self.known.retain(|path, _| paths.contains(path));
        for path in paths {
            if let Err(e) = self.look(&path, &mut work) {
                work.failures.push(e);
            }
        }
        work
    }

    fn look(&mut self, path: &Path, work: &mut Drained) -> Result<(), Error> {
        let known = match self.known.remove(path) {
            Some(known) => known,
            None => self.meet(RecordReader::open(path)?)?,
        };
        let reader = match &known {
            Known::Watched(reader) => reader,
            Known::Drained(drain) => drain.reader(),
        };
        if reader.is_held() && !reader.is_closed() {
            let known = match known {
                Known::Watched(reader) => {
                    work.watched += 1;
                    Known::Watched(reader)
                }
                Known::Drained(mut drain) => {
                    work.live += 1;
                    step(&mut drain, work);
                    Known::Drained(drain)
                }
            };
            self.known.insert(path.to_path_buf(), known);
            return Ok(());
        }
        let mut drain = match known {
            Known::Drained(drain) => *drain,
            Known::Watched(reader) => self.recover(reader)?,
        };
        let is_closed = drain.reader().is_closed();
        step(&mut drain, work);
        drain.end(if is_closed { End::Closed } else { End::Recovered })?;
        work.ended.extend(drain.path().map(Path::to_path_buf));
        remove_record_segment(drain.reader())?;
        Ok(())
    }

    /// Meets a segment: an earlier agent may have drained it, so the trace goes on behind what is written.
    fn meet(&self, reader: RecordReader) -> Result<Known, Error> {
        if reader.drains_itself() {
            return Ok(Known::Watched(reader));
        }
        let mut drain = Drain::of(reader, &self.folder, self.limit);
        drain.resume(&self.folder)?;
        Ok(Known::Drained(Box::new(drain)))
    }

    /// Returns the files that are being written.
    pub fn open_files(&self) -> impl Iterator<Item = &Path> {
        self.known.values().filter_map(|known| match known {
            Known::Drained(drain) => drain.path(),
            Known::Watched(_) => None,
        })
    }

    /// Goes on with the trace of a process that drained itself and died.
    fn recover(&self, reader: RecordReader) -> Result<Drain, Error> {
        let (_, own) = described(&reader);
        let own = own.filter(|folder| fs::metadata(folder).is_ok_and(|about| about.is_dir()));
        let folder = own.unwrap_or_else(|| self.folder.clone());
        let mut drain = Drain::of(reader, &folder, self.limit);
        drain.resume(&folder)?;
        Ok(drain)
    }
}

fn step(drain: &mut Drain, work: &mut Drained) {
    let step = drain.step(|_, _| ());
    work.records += step.written;
    work.lost = work.lost.saturating_add(step.lost);
    work.deleted += step.deleted;
    work.failures.extend(step.failure);
}

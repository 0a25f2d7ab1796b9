//! Segments of other processes: those that have no trace of their own, and those that died.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use skopos_shm::records::{RecordReader, record_segments, remove_record_segment};

use crate::drain::{Drain, described};
use crate::error::Error;
use crate::file::End;

/// The most attempts to write the end of a dead process's trace and to remove its segment, one in each look. Several looks
/// a second, so a disk that is full or a folder that is missing has minutes to come back; then the segment is given up,
/// because it holds memory. Its records were written or counted at the first attempt.
const MAX_END_ATTEMPTS: u32 = 1000;

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
    /// The process ended and its records are taken; the end of the trace or the removal of the segment failed so far.
    Ending(Box<Ending>),
}

/// A dead process whose records are taken: each record is written once, however often its end fails.
#[derive(Debug)]
struct Ending {
    drain: Drain,
    end: End,
    /// The end is in the trace.
    is_written: bool,
    attempts: u32,
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
            Known::Ending(_) => return self.end(path, known, work),
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
                ending @ Known::Ending(_) => ending,
            };
            self.known.insert(path.to_path_buf(), known);
            return Ok(());
        }
        let mut drain = match known {
            Known::Drained(drain) => *drain,
            Known::Watched(reader) => self.recover(reader)?,
            ending @ Known::Ending(_) => return self.end(path, ending, work),
        };
        step(&mut drain, work);
        let end = if drain.reader().is_closed() { End::Closed } else { End::Recovered };
        let ending = Ending { drain, end, is_written: false, attempts: 0 };
        self.end(path, Known::Ending(Box::new(ending)), work)
    }

    /// Ends the trace of a dead process and removes its segment. What fails is tried again at the next look.
    fn end(&mut self, path: &Path, known: Known, work: &mut Drained) -> Result<(), Error> {
        let Known::Ending(mut ending) = known else { return Ok(()) };
        let result = ending.finish(work);
        ending.attempts += 1;
        let Err(error) = result else { return Ok(()) };
        if ending.attempts >= MAX_END_ATTEMPTS {
            remove_record_segment(ending.drain.reader())?;
        } else {
            self.known.insert(path.to_path_buf(), Known::Ending(ending));
        }
        Err(error)
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
            Known::Ending(ending) => ending.drain.path(),
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

impl Ending {
    fn finish(&mut self, work: &mut Drained) -> Result<(), Error> {
        if !self.is_written {
            self.drain.end(self.end)?;
            self.is_written = true;
            work.ended.extend(self.drain.path().map(Path::to_path_buf));
        }
        remove_record_segment(self.drain.reader())?;
        Ok(())
    }
}

fn step(drain: &mut Drain, work: &mut Drained) {
    let step = drain.step(|_, _| ());
    work.records += step.written;
    work.lost = work.lost.saturating_add(step.lost);
    work.deleted += step.deleted;
    work.failures.extend(step.failure);
}

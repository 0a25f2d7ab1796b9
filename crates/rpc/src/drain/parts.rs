//! The parts of one trace on disk: bounded together, and each readable alone.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::file::{
    ClockPoint, Counters, End, Frame, Frames, MAX_PAYLOAD_BYTES, Process, TRACE_ENDING, TraceWriter,
};
use crate::record::RECORD_BYTES;

/// Number of parts into which a full trace is divided: when the oldest is deleted, a sixteenth of the trace goes.
const PARTS: u64 = 16;
/// Shortest part: a smaller one would be mostly definitions.
const MIN_PART_BYTES: u64 = 1 << 20;
/// Most parts of a process that are looked for: ten years of the greatest traces.
const MAX_PART_NUMBER: u32 = 1_000_000;

/// The parts of one trace.
#[derive(Debug)]
pub(crate) struct Parts {
    folder: PathBuf,
    stem: String,
    part_limit: u64,
    total_limit: u64,
    current: Option<TraceWriter>,
    /// Records of the current part, and of them those that are not on disk yet.
    records: u64,
    pending: u64,
    /// Parts that are complete: path, bytes and records.
    complete: VecDeque<(PathBuf, u64, u64)>,
    next_number: u32,
    deleted: u64,
    unwritten: u64,
}

/// Returns the path of a part.
fn part_path(folder: &Path, stem: &str, number: u32) -> PathBuf {
    match number {
        0 => folder.join(format!("{stem}.{TRACE_ENDING}")),
        n => folder.join(format!("{stem}.{n}.{TRACE_ENDING}")),
    }
}

/// Returns the numbers of the parts of a trace in `folder`, ascending.
fn numbers(folder: &Path, stem: &str) -> Result<Vec<u32>, Error> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "cannot list the traces"))? {
        let name = entry.map_err(Error::io(folder, "cannot list the traces"))?.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(stem));
        let middle = rest.and_then(|rest| rest.strip_suffix(TRACE_ENDING)?.strip_suffix('.'));
        match middle {
            Some("") => numbers.push(0),
            Some(number) => {
                let number = number.strip_prefix('.').and_then(|n| n.parse::<u32>().ok());
                numbers.extend(number);
            }
            None => {}
        }
    }
    numbers.retain(|number| *number <= MAX_PART_NUMBER);
    numbers.sort_unstable();
    Ok(numbers)
}

/// Returns the last records of each ring in the last part of a trace that has records, at most as many as a ring has. A
/// part without any was begun for the end of a trace, or its disk was full.
pub(crate) fn tail_of(folder: &Path, stem: &str) -> Result<HashMap<u32, Vec<u8>>, Error> {
    for number in numbers(folder, stem)?.into_iter().rev() {
        let tails = tails_in(&part_path(folder, stem, number))?;
        if !tails.is_empty() {
            return Ok(tails);
        }
    }
    Ok(HashMap::new())
}

fn tails_in(part: &Path) -> Result<HashMap<u32, Vec<u8>>, Error> {
    let mut tails: HashMap<u32, Vec<u8>> = HashMap::new();
    let longest = skopos_shm::records::layout::MAX_RING_RECORDS as usize * RECORD_BYTES;
    let mut frames = match Frames::open(part) {
        Ok(frames) => frames,
        // Killed while it began the part.
        Err(Error::NotATrace { .. }) => return Ok(tails),
        Err(e) => return Err(e),
    };
    while let Some(frame) = frames.next_frame()? {
        if let Frame::Records(records) = frame {
            let tail = tails.entry(records.thread).or_default();
            tail.extend_from_slice(records.bytes);
            if tail.len() > longest + MAX_PAYLOAD_BYTES {
                tail.drain(..tail.len() - longest);
            }
        }
    }
    tails.retain(|_, tail| !tail.is_empty());
    Ok(tails)
}

impl Parts {
    pub(crate) fn new(folder: &Path, stem: &str, limit: u64) -> Self {
        Self {
            folder: folder.to_path_buf(),
            stem: stem.to_owned(),
            part_limit: (limit / PARTS).max(MIN_PART_BYTES),
            total_limit: limit.max(2 * MIN_PART_BYTES),
            current: None,
            records: 0,
            pending: 0,
            complete: VecDeque::new(),
            next_number: 0,
            deleted: 0,
            unwritten: 0,
        }
    }

    /// Returns the path of the current part.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.current.as_ref().map(TraceWriter::path)
    }

    /// Returns true if [`Parts::begin`] is to be called before anything is written.
    pub(crate) fn needs_part(&self) -> bool {
        self.current.as_ref().is_none_or(|part| part.bytes() >= self.part_limit)
    }

    /// Begins a part, and deletes the oldest ones if the trace is too long.
    pub(crate) fn begin(&mut self, process: &Process) -> Result<(), Error> {
        self.complete_part()?;
        if self.next_number == 0 {
            let last = numbers(&self.folder, &self.stem)?.pop();
            self.next_number = last.map_or(0, |last| last + 1);
        }
        let path = part_path(&self.folder, &self.stem, self.next_number);
        self.current = Some(TraceWriter::create(&path, process)?);
        self.next_number += 1;
        let mut bytes: u64 = self.complete.iter().map(|(_, bytes, _)| bytes).sum();
        while bytes + self.part_limit > self.total_limit
            && let Some((path, length, records)) = self.complete.pop_front()
        {
            bytes -= length;
            self.deleted += records;
            match fs::remove_file(&path) {
                // A user, or the bound of all traces, was faster.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                removed => removed.map_err(Error::io(&path, "cannot delete the oldest part"))?,
            }
        }
        Ok(())
    }

    fn complete_part(&mut self) -> Result<(), Error> {
        let result = self.flush();
        if let Some(part) = self.current.take() {
            let path = part.path().to_path_buf();
            self.complete.push_back((path, part.bytes(), std::mem::take(&mut self.records)));
        }
        result
    }

    fn write(
        &mut self,
        write: impl FnOnce(&mut TraceWriter) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let result = self.current.as_mut().map_or(Ok(()), write);
        if result.is_err() {
            self.give_up();
        }
        result
    }

    /// Leaves the current part as it is: a part of a frame may be on disk, so nothing can be read behind it.
    fn give_up(&mut self) {
        self.records -= self.pending.min(self.records);
        self.unwritten += std::mem::take(&mut self.pending);
        if let Some(part) = self.current.take() {
            let path = part.path().to_path_buf();
            // A full disk would get another empty file with each attempt.
            let is_empty = fs::metadata(&path).is_ok_and(|file| file.len() == 0);
            if is_empty && fs::remove_file(&path).is_ok() {
                self.next_number -= 1;
                return;
            }
            self.complete.push_back((path, part.bytes(), std::mem::take(&mut self.records)));
        }
    }

    pub(crate) fn definition(&mut self, kind: u32, payload: &[u8]) -> Result<(), Error> {
        self.write(|part| part.frame(kind, &[payload]))
    }

    /// Writes the description of the process, unless it is the one that the trace has.
    pub(crate) fn process(&mut self, known: &mut Process, read: Process) -> Result<(), Error> {
        if *known == read {
            return Ok(());
        }
        *known = read;
        self.write(|part| part.process(known))
    }

    pub(crate) fn clock(&mut self, clock: &ClockPoint) -> Result<(), Error> {
        self.write(|part| part.clock(clock))
    }

    pub(crate) fn counters(&mut self, counters: &Counters) -> Result<(), Error> {
        self.write(|part| part.counters(counters))
    }

    pub(crate) fn records(&mut self, ring: u32, lost: u64, bytes: &[u8]) -> Result<(), Error> {
        self.write(|part| part.records(ring, lost, bytes))?;
        let records = (bytes.len() / RECORD_BYTES) as u64;
        self.records += records;
        self.pending += records;
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.write(TraceWriter::flush)?;
        self.pending = 0;
        Ok(())
    }

    pub(crate) fn end(&mut self, end: End) -> Result<(), Error> {
        self.write(|part| part.end(end))?;
        self.pending = 0;
        Ok(())
    }

    /// Returns the records that went with deleted parts since the last call, and those that no disk took.
    pub(crate) fn take_deleted(&mut self) -> (u64, u64) {
        (std::mem::take(&mut self.deleted), std::mem::take(&mut self.unwritten))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_on_a_full_disk_leaves_no_empty_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut parts = Parts::new(folder.path(), "kv-1-2", 1 << 30);
        let files = || numbers(folder.path(), "kv-1-2").expect("readable");
        for _ in 0..3 {
            parts.begin(&Process::default()).expect("begun");
            // The frames of the part are in memory, and the disk takes none of them.
            parts.give_up();
            assert!(files().is_empty(), "{:?}", files());
        }
        parts.begin(&Process::default()).expect("begun");
        parts.flush().expect("written");
        parts.give_up();
        assert_eq!(files(), [0], "a part with frames stays");
    }
}

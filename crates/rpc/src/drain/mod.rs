//! From rings in shared memory to traces on disk.

mod parts;
mod segments;

pub use segments::{Drained, Segments};

use std::path::{Path, PathBuf};

use skopos_shm::records::RecordReader;
use skopos_shm::records::layout::{Counter, FOLDER_DEFINITION};

use crate::drain::parts::{Parts, tail_of};
use crate::error::Error;
use crate::file::{ClockPoint, Counters, End, Process, kind};
use crate::record::RECORD_BYTES;

/// Drains one segment into the trace of its process.
#[derive(Debug)]
pub(crate) struct Drain {
    reader: RecordReader,
    /// Number of the next record of each ring.
    next: Vec<u64>,
    /// Place of the next definition.
    defined: u64,
    clock: Option<(u64, i64, f64, u64)>,
    parts: Parts,
    buffer: Vec<u8>,
    counters: Counters,
    /// The description of the process that the trace has.
    process: Process,
}

/// The work of one step.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// Records that were written.
    pub(crate) written: u64,
    /// Records that were overwritten before.
    pub(crate) lost: u64,
    /// Records that were deleted with old parts, or that no disk took.
    pub(crate) deleted: u64,
    /// The reason for which the disk did not take them.
    pub(crate) failure: Option<Error>,
}

/// Returns the name of a process's trace without its ending: `NAME-PID-STARTTICKS`.
fn stem(reader: &RecordReader) -> String {
    format!("{}-{}-{}", reader.name(), reader.pid(), reader.start_ticks())
}

/// Returns the process and the folder of its trace, from the definitions.
fn described(reader: &RecordReader) -> (Process, Option<PathBuf>) {
    let (mut process, mut folder) = (None, None);
    reader.definitions(0, |kind, payload| match kind {
        kind::PROCESS => process = serde_json::from_slice(payload).ok().or(process.take()),
        FOLDER_DEFINITION => {
            folder = std::str::from_utf8(payload).ok().map(PathBuf::from);
        }
        _ => {}
    });
    (identified(reader, process.unwrap_or_default()), folder)
}

/// Completes the description of a process by what its segment knows of it.
fn identified(reader: &RecordReader, process: Process) -> Process {
    let boot_id = reader.boot_id().iter().map(|byte| format!("{byte:02x}")).collect();
    Process {
        version: crate::file::TRACE_VERSION,
        name: reader.name().to_owned(),
        pid: reader.pid(),
        start_ticks: reader.start_ticks(),
        node: reader.node().to_owned(),
        boot_id,
        ..process
    }
}

impl Drain {
    /// Drains the segment at `path` into `folder`, with at most `limit` bytes on disk.
    ///
    /// # Errors
    /// [`Error::Shm`] if the segment cannot be read.
    pub(crate) fn new(path: &Path, folder: &Path, limit: u64) -> Result<Self, Error> {
        Ok(Self::of(RecordReader::open(path)?, folder, limit))
    }

    pub(crate) fn of(reader: RecordReader, folder: &Path, limit: u64) -> Self {
        let parts = Parts::new(folder, &stem(&reader), limit);
        Self {
            reader,
            next: Vec::new(),
            defined: 0,
            clock: None,
            parts,
            buffer: Vec::new(),
            counters: Counters::default(),
            process: Process::default(),
        }
    }

    pub(crate) fn reader(&self) -> &RecordReader {
        &self.reader
    }

    /// Goes on behind the records that are written: those before `drained`, which the process itself wrote before it died,
    /// and those of the last part in `folder`, which another drain may have written.
    pub(crate) fn resume(&mut self, folder: &Path) -> Result<(), Error> {
        let tails = tail_of(folder, &stem(&self.reader))?;
        for ring in 0..self.reader.rings() {
            let mut at = self.reader.drained(ring);
            self.buffer.clear();
            let waiting = self.reader.drain(ring, at, u64::MAX, &mut self.buffer);
            let written = tails.get(&ring).map_or(0, |tail| overlap(tail, &self.buffer));
            if written > 0 {
                // Records before these were overwritten, and are on disk.
                at = waiting.first + written as u64;
            }
            self.set_next(ring, at);
        }
        Ok(())
    }

    fn set_next(&mut self, ring: u32, next: u64) {
        let at = ring as usize;
        if self.next.len() <= at {
            self.next.resize(at + 1, 0);
        }
        self.next[at] = next;
    }

    /// Writes everything that is in the rings, and calls `drained` with each ring and its next record once it is written.
    pub(crate) fn step(&mut self, mut drained: impl FnMut(u32, u64)) -> Step {
        let mut step = Step::default();
        let mut moved = Vec::new();
        for ring in 0..self.reader.rings() {
            let from = self.next.get(ring as usize).copied().unwrap_or_default();
            self.buffer.clear();
            // All at once, so that a span and its details are in one frame: a ring has at most 4 MiB.
            let copied = self.reader.drain(ring, from, u64::MAX, &mut self.buffer);
            if copied.next != from {
                let records = copied.next - copied.first;
                // A damaged head may say that any number was lost.
                step.lost = step.lost.saturating_add(copied.lost);
                match self.write(ring, copied.lost) {
                    Ok(()) => step.written += records,
                    Err(e) => {
                        step.deleted += records;
                        step.failure = Some(e);
                    }
                }
            }
            moved.push((ring, copied.next));
        }
        if let Err(e) = self.parts.flush() {
            step.failure = Some(e);
        }
        let (deleted, unwritten) = self.parts.take_deleted();
        step.deleted += deleted + unwritten;
        step.written -= unwritten.min(step.written);
        for (ring, next) in moved {
            self.set_next(ring, next);
            drained(ring, next);
        }
        step
    }

    /// Writes the records in the buffer, behind the clock and the definitions that they need.
    fn write(&mut self, ring: u32, lost: u64) -> Result<(), Error> {
        self.prepare()?;
        // The records are in the buffer, so every name that they use is defined by now.
        let Self { reader, parts, defined, process, .. } = self;
        let mut result = Ok(());
        *defined = reader.definitions(*defined, |kind, payload| {
            if result.is_err() || kind == FOLDER_DEFINITION {
                return;
            }
            result = match kind {
                kind::PROCESS => match serde_json::from_slice(payload) {
                    Ok(read) => parts.process(process, identified(reader, read)),
                    Err(_) => Ok(()),
                },
                kind => parts.definition(kind, payload),
            };
        });
        result?;
        self.parts.records(ring, lost, &self.buffer)
    }

    /// Begins a part if there is none, and writes the clock if it changed.
    pub(crate) fn prepare(&mut self) -> Result<(), Error> {
        let clock = self.reader.clock();
        if self.parts.needs_part() {
            let (process, _) = described(&self.reader);
            // A part stands alone, also if the end of `begin` fails.
            self.defined = 0;
            self.clock = None;
            let begun = self.parts.begin(&process);
            self.process = process;
            begun?;
        }
        if let Some((ticks, unix_ns, ns_per_tick, error_ns)) = clock
            && self.clock != clock
        {
            self.parts.clock(&ClockPoint { ticks, unix_ns, ns_per_tick, error_ns })?;
            self.clock = clock;
        }
        Ok(())
    }

    /// Returns the counters of the process, with those that a process counts only while it drains itself.
    fn counters(&self) -> Counters {
        counters_of(|which| self.reader.counter(which), self.reader.stage())
    }

    /// Writes the counters if they changed.
    pub(crate) fn count(&mut self) -> Result<(), Error> {
        let counters = self.counters();
        if counters != self.counters {
            self.prepare_first()?;
            self.parts.counters(&counters)?;
            self.counters = counters;
        }
        Ok(())
    }

    /// Begins the first part, for what is not a record. Only records begin further parts: those delete old ones, which a step
    /// counts.
    fn prepare_first(&mut self) -> Result<(), Error> {
        if self.parts.path().is_some() { Ok(()) } else { self.prepare() }
    }

    /// Writes counters and the end.
    pub(crate) fn end(&mut self, end: End) -> Result<(), Error> {
        self.prepare_first()?;
        let counters = self.counters();
        self.parts.counters(&counters)?;
        self.parts.end(end)
    }

    /// Returns the path of the part that is being written.
    pub(crate) fn path(&self) -> Option<&Path> {
        self.parts.path()
    }
}

/// Returns the counters of a segment, read by `counter`, at this stage.
pub(crate) fn counters_of(counter: impl Fn(Counter) -> u64, stage: u32) -> Counters {
    Counters {
        without_ring: counter(Counter::WithoutRing),
        overwritten: counter(Counter::Overwritten),
        deleted: counter(Counter::Deleted),
        nodes_refused: counter(Counter::NodesRefused),
        names_refused: counter(Counter::NamesRefused),
        peers_refused: counter(Counter::PeersRefused),
        values_refused: counter(Counter::ValuesRefused),
        definitions_refused: counter(Counter::DefinitionsRefused),
        clocks_bounded: counter(Counter::ClocksBounded),
        newer_contexts: counter(Counter::NewerContexts),
        removed_dead: counter(Counter::RemovedDead),
        sources_failed: counter(Counter::SourcesFailed),
        budget_steps: counter(Counter::BudgetSteps),
        stage,
        stage_wanted: counter(Counter::StageWanted) as u32,
        overhead_ns: counter(Counter::OverheadNs),
    }
}

/// Returns the number of records at the beginning of `waiting` up to the end of `written`, whose last records are among them.
fn overlap(written: &[u8], waiting: &[u8]) -> usize {
    let (written, waiting) =
        (written.as_chunks::<RECORD_BYTES>().0, waiting.as_chunks::<RECORD_BYTES>().0);
    let Some(last) = written.last() else { return 0 };
    // The records that both have, if the last of `written` is at this place of `waiting`.
    let shared = |at: usize| (at + 1).min(written.len());
    let ends = (0..waiting.len()).filter(|at| {
        waiting[*at] == *last
            && waiting[at + 1 - shared(*at)..=*at] == written[written.len() - shared(*at)..]
    });
    // Records of samples can be alike, so the longest run counts.
    ends.min_by_key(|at| (std::cmp::Reverse(shared(*at)), *at)).map_or(0, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn records_that_were_written_are_found_again() {
        let records = |numbers: &[u8]| numbers.iter().flat_map(|n| [*n; 64]).collect::<Vec<_>>();
        let check = |written: &[u8], waiting: &[u8], expected| {
            assert_eq!(overlap(&records(written), &records(waiting)), expected);
        };
        check(&[1, 2, 3], &[4, 5], 0);
        check(&[1, 2, 3], &[2, 3, 4], 2);
        check(&[1, 2, 3], &[3], 1);
        check(&[1, 2, 3], &[2, 4], 0);
        check(&[], &[1], 0);
        check(&[1], &[], 0);
        check(&[1, 2, 1], &[1, 2], 1);
    }
}

//! Streams the records of a trace, file by file, with constant memory.
//!
//! A reader of traces keeps the names of all processes and hands each record to a [`Visit`], with its details attached
//! and its times in ns. Details follow their record in the stream of one thread, perhaps in the next frame: until they
//! are there, the record waits.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use super::counts::Counts;
use super::loader::Loader;
use super::names::{Callpaths, OTHER, PathId};
use super::process::{Numbers, is_same};
use crate::error::Error;
use crate::file::{
    ClockPoint, Counters, Definition, End, Frame, Frames, Process, Records, TRACE_VERSION,
};
use crate::pvar::PvarInfo;
use crate::record::{Kind, MAX_TAGGED, RECORD_BYTES, Record, SpanRecord, Status, Tagged};

/// Number of intervals, with the unused tag 0.
pub const INTERVALS: usize = 11;

/// The most values of variables of one record that are kept: more than our own hosts attach to a call.
const MAX_VALUES: usize = 16;

/// The most names of variables and of peers of a whole trace, each. A process has at most 65,536 of either.
const MAX_NAMES: usize = 1 << 16;

/// The lengths of a tick in ns that are believed: a millisecond a tick, to a thousand ticks a ns.
const NS_PER_TICK: std::ops::RangeInclusive<f64> = 1e-3..=1e6;

/// The times that are believed, in ns since 1970: the years 1824 to 2116. Differences of two of them do not overflow.
const TIMES: std::ops::RangeInclusive<i64> = -(1 << 62)..=1 << 62;

/// The longest duration that is believed in ns: three days, as in tagged values. A longer one counts as this.
const MAX_DURATION_NS: u64 = MAX_TAGGED;

/// One side of a call, as analyses see it.
#[derive(Clone, Debug)]
pub struct Side {
    /// Number of the process in [`Reader::processes`].
    pub process: u32,
    /// Number of the thread in its process.
    pub thread: u32,
    /// Lower half of the request's id.
    pub request: u64,
    /// Upper half of the request's id.
    pub request_high: u64,
    /// Id of the call.
    pub span: u64,
    /// Id of the enclosing call; 0 at the root.
    pub parent: u64,
    /// Begin in ns since 1970, by the clock of the process's machine.
    pub start: i64,
    /// Duration in ns.
    pub duration: u64,
    /// The callpath.
    pub path: PathId,
    /// Lamport clock at the end.
    pub lamport: u32,
    /// Order counter of the request.
    pub order: u16,
    /// `Origin`, `Target` or `Local`.
    pub kind: Kind,
    /// The end of the call.
    pub status: Status,
    /// Number of the peer's name in [`Reader::peers`].
    pub peer: Option<u32>,
    /// Intervals in ns; [`Side::interval`] says which are reported.
    intervals: [u64; INTERVALS],
    reported: u16,
    values: [(u32, u64); MAX_VALUES],
    value_count: u8,
}

impl Side {
    /// An interval of this side in ns, if it was reported.
    #[inline]
    pub fn interval(&self, interval: crate::interval::Interval) -> Option<u64> {
        let at = interval.tag();
        (self.reported & 1 << at != 0).then(|| self.intervals[usize::from(at)])
    }

    /// The values of variables: the number of the name in [`Reader::pvars`], and the value.
    #[inline]
    pub fn values(&self) -> &[(u32, u64)] {
        &self.values[..usize::from(self.value_count)]
    }

    /// The end in ns since 1970.
    pub fn end(&self) -> i64 {
        self.start.saturating_add_unsigned(self.duration)
    }
}

/// A sample of a process.
#[derive(Clone, Debug)]
pub struct ProcessSample {
    /// Number of the process.
    pub process: u32,
    /// The time in ns since 1970, by the clock of the process's machine.
    pub time: i64,
    /// The variables with their values.
    pub values: Vec<(u32, u64)>,
}

/// Takes the records of a trace.
pub trait Visit {
    /// Takes one side of a call, or a local step.
    fn side(&mut self, side: &Side, reader: &Reader);

    /// Takes a sample of a process.
    fn sample(&mut self, _sample: &ProcessSample, _reader: &Reader) {}
}

/// Names and counts of the trace that was read so far.
#[derive(Debug, Default)]
pub struct Reader {
    /// The processes, in the order of the files.
    pub processes: Vec<Process>,
    /// The callpaths of all processes.
    pub callpaths: Callpaths,
    /// The variables of all processes. Their numbers are those of the first process that registered them.
    pub pvars: Vec<PvarInfo>,
    /// The names of peers.
    pub peers: Vec<String>,
    /// Counts of records and defects.
    pub counts: Counts,
    /// The bytes of each file that were read.
    pub lengths: Vec<u64>,
    /// The last counters of each process.
    pub counters: Vec<Counters>,
    /// The greatest error of the clock of each process in ns, as it recorded it.
    pub clock_errors: Vec<u64>,
    /// The frames of records that were read of each part.
    read_frames: HashMap<PartKey, u64>,
    pvar_numbers: HashMap<(String, String), u32>,
    peer_numbers: HashMap<String, u32>,
}

/// The state of one file.
struct Part {
    process: u32,
    clock: Option<ClockPoint>,
    numbers: Numbers,
    /// Records that wait for their details, by thread.
    waiting: HashMap<u32, Waiting>,
    has_ended: bool,
    /// The key of its part of the trace, once a record is there.
    key: Option<PartKey>,
    /// Frames of records so far.
    frames: u64,
    /// Frames of records of the same part that were in other files.
    known_frames: u64,
}

/// Tells a part of a trace from others, whatever its file is called: number of the process, number of the thread, and bytes of
/// the first record, which has a time. A copy has the same key, and as many of the same frames as there were when it was made.
type PartKey = (u32, u32, [u8; RECORD_BYTES]);

/// A record and the number of its details that are still missing.
type Waiting = (Box<Side>, u16);

/// Reads all files and hands their records to `visit`. Names and counts are those of this pass.
///
/// `lengths` are the bytes of each file that an earlier pass read. A file that has grown since is read up to there, so
/// that numbers of names are the same in all passes.
///
/// # Errors
/// A file cannot be opened or read. Damage inside of a file is counted instead.
pub fn stream(
    loader: &dyn Loader,
    lengths: Option<&[u64]>,
    visit: &mut dyn Visit,
) -> Result<Reader, Error> {
    let mut reader = Reader::default();
    for (index, name) in loader.names().iter().enumerate() {
        let path = Path::new(name);
        let length = lengths.map_or(u64::MAX, |all| all.get(index).copied().unwrap_or(0));
        let source = loader.open(index).map_err(Error::io(path, "cannot open the trace"))?;
        let mut source = source.take(length);
        reader.counts.files += 1;
        match Frames::new(&mut source, path, 0) {
            Ok(frames) => reader.part(frames, visit)?,
            Err(Error::NotATrace { .. }) => reader.counts.files_without_process += 1,
            Err(error) => return Err(error),
        }
        reader.lengths.push(length - source.limit());
    }
    reader.finish();
    Ok(reader)
}

impl Reader {
    fn part<R: Read>(&mut self, mut frames: Frames<R>, visit: &mut dyn Visit) -> Result<(), Error> {
        let mut part = Part {
            process: self.process(frames.process()),
            clock: None,
            numbers: Numbers::default(),
            waiting: HashMap::new(),
            has_ended: false,
            key: None,
            frames: 0,
            known_frames: 0,
        };
        while let Some(frame) = frames.next_frame()? {
            self.frame(&mut part, frame, visit);
        }
        if let Some(key) = part.key {
            self.read_frames.insert(key, part.frames.max(part.known_frames));
        }
        self.counts.torn_files += u64::from(frames.tear().is_some());
        self.counts.bad_frames += frames.damaged();
        self.counts.open_files += u64::from(!part.has_ended);
        let mut waiting: Vec<_> = part.waiting.into_iter().collect();
        waiting.sort_unstable_by_key(|(thread, _)| *thread);
        for (_, waiting) in waiting {
            self.give_up(Some(waiting), visit);
        }
        Ok(())
    }

    fn frame(&mut self, part: &mut Part, frame: Frame<'_>, visit: &mut dyn Visit) {
        let is_kept = match frame {
            // A later description has the configuration that holds from here on.
            Frame::Process(process) => {
                self.processes[part.process as usize] = process;
                true
            }
            Frame::Clock(clock) => {
                let is_credible = NS_PER_TICK.contains(&clock.ns_per_tick);
                if is_credible {
                    part.clock = Some(clock);
                    let error = &mut self.clock_errors[part.process as usize];
                    *error = (*error).max(clock.error_ns);
                }
                is_credible
            }
            Frame::Definition(definition) => self.define(part, definition).is_some(),
            Frame::Records(records) => {
                if self.is_fresh(part, &records) {
                    self.records(part, &records, visit);
                }
                true
            }
            Frame::Counters(counters) => {
                // The counters of a copy may be older.
                if part.frames >= part.known_frames {
                    self.counters[part.process as usize] = counters;
                }
                true
            }
            Frame::End(end) => {
                part.has_ended = true;
                self.counts.recovered_files += u64::from(end == End::Recovered);
                true
            }
            Frame::Unknown(_) => {
                self.counts.unknown_frames += 1;
                true
            }
        };
        self.counts.bad_frames += u64::from(!is_kept);
    }

    /// Returns true if no other file has had this frame of a part. A copy of a part is read from there on where the other file
    /// ended.
    fn is_fresh(&mut self, part: &mut Part, records: &Records<'_>) -> bool {
        if part.key.is_none()
            && let Some(first) = records.bytes.first_chunk::<RECORD_BYTES>()
        {
            let key = (part.process, records.thread, *first);
            part.known_frames = self.read_frames.get(&key).copied().unwrap_or(0);
            self.counts.copied_files += u64::from(part.known_frames > 0);
            part.key = Some(key);
        }
        part.frames += 1;
        part.frames > part.known_frames
    }

    /// Returns the number of a process, the same for all parts of its trace.
    fn process(&mut self, process: &Process) -> u32 {
        let known = self.processes.iter().position(|known| is_same(known, process));
        match known {
            Some(at) => {
                self.processes[at] = process.clone();
                at as u32
            }
            None => {
                self.counts.newer_processes += u64::from(process.version > TRACE_VERSION);
                self.processes.push(process.clone());
                self.counters.push(Counters::default());
                self.clock_errors.push(0);
                self.processes.len() as u32 - 1
            }
        }
    }

    /// Keeps a name; `None` if there are too many.
    fn define(&mut self, part: &mut Part, definition: Definition) -> Option<()> {
        let is_kept = match definition {
            Definition::Node(node) => {
                let path = self.callpaths.intern(node.hash, node.parent_hash, &node.name);
                part.numbers.set_path(node.id, path)
            }
            Definition::Peer(peer) => {
                let number = match self.peer_numbers.get(&peer.name) {
                    Some(number) => *number,
                    None => {
                        let number = next_number(self.peers.len())?;
                        self.peers.push(peer.name.clone());
                        self.peer_numbers.insert(peer.name, number);
                        number
                    }
                };
                part.numbers.set_peer(peer.id, number)
            }
            Definition::Pvar(info) => {
                let key = (info.name.clone(), info.unit.clone());
                let local = info.number;
                let number = match self.pvar_numbers.get(&key) {
                    Some(number) => *number,
                    None => {
                        let number = next_number(self.pvars.len())?;
                        self.pvars.push(info);
                        self.pvar_numbers.insert(key, number);
                        number
                    }
                };
                part.numbers.set_pvar(local, number)
            }
        };
        is_kept.then_some(())
    }

    fn records(&mut self, part: &mut Part, records: &Records<'_>, visit: &mut dyn Visit) {
        self.counts.records += records.len() as u64;
        let mut waiting = part.waiting.remove(&records.thread);
        if records.lost_before > 0 {
            // A damaged file may say any number.
            self.counts.lost_records = self.counts.lost_records.saturating_add(records.lost_before);
            self.give_up(waiting.take(), visit);
        }
        let Some(clock) = part.clock else {
            self.counts.records_without_clock += records.len() as u64;
            return;
        };
        for record in records.iter() {
            match record {
                // Every recorder gives each request an id.
                Some(Record::Span(span)) if span.request_low == 0 => {
                    self.give_up(waiting.take(), visit);
                    self.counts.unknown_records += 1;
                }
                Some(Record::Span(span)) => {
                    self.give_up(waiting.take(), visit);
                    let side = self.side(&span, part.process, records.thread, clock, &part.numbers);
                    match span.details {
                        0 => visit.side(&side, self),
                        details => waiting = Some((Box::new(side), details)),
                    }
                }
                Some(Record::Details(values)) => {
                    waiting = self.details(waiting, &values, &part.numbers, visit);
                }
                Some(Record::Sample(sample)) => {
                    self.counts.samples += 1;
                    let values = sample.values.iter().filter_map(|value| {
                        Some((part.numbers.pvar(value.pvar()?)?, value.value()))
                    });
                    let time = clock.unix_ns(sample.at).clamp(*TIMES.start(), *TIMES.end());
                    let process = part.process;
                    let values = values.collect();
                    visit.sample(&ProcessSample { process, time, values }, self);
                }
                None => self.counts.unknown_records += 1,
            }
        }
        if let Some(waiting) = waiting {
            part.waiting.insert(records.thread, waiting);
        }
    }

    #[inline]
    fn details(
        &mut self,
        waiting: Option<Waiting>,
        values: &[Tagged],
        numbers: &Numbers,
        visit: &mut dyn Visit,
    ) -> Option<Waiting> {
        let Some((mut side, missing)) = waiting else {
            self.counts.stray_details += 1;
            return None;
        };
        self.counts.dropped_values += side.add(values, numbers);
        if missing > 1 {
            return Some((side, missing - 1));
        }
        visit.side(&side, self);
        None
    }

    #[inline]
    fn side(
        &mut self,
        span: &SpanRecord,
        process: u32,
        thread: u32,
        clock: ClockPoint,
        numbers: &Numbers,
    ) -> Side {
        match span.kind {
            Kind::Origin => self.counts.origins += 1,
            Kind::Target => self.counts.targets += 1,
            _ => self.counts.locals += 1,
        }
        let (start, duration) = (clock.unix_ns(span.start), clock.duration_ns(span.duration));
        let is_credible = TIMES.contains(&start) && duration <= MAX_DURATION_NS;
        self.counts.cut_times += u64::from(!is_credible);
        let path = numbers.path(span.node);
        self.counts.records_without_callpath += u64::from(path == OTHER);
        Side {
            process,
            thread,
            request: span.request_low,
            request_high: span.request_high,
            span: span.span,
            parent: span.parent,
            start: start.clamp(*TIMES.start(), *TIMES.end()),
            duration: duration.min(MAX_DURATION_NS),
            path,
            lamport: span.lamport,
            order: span.order,
            kind: span.kind,
            status: span.status,
            peer: numbers.peer(span.peer),
            intervals: [0; INTERVALS],
            reported: 0,
            values: [(0, 0); MAX_VALUES],
            value_count: 0,
        }
    }

    /// Hands over a record whose details were lost.
    fn give_up(&mut self, waiting: Option<Waiting>, visit: &mut dyn Visit) {
        if let Some((side, missing)) = waiting {
            self.counts.stray_details += u64::from(missing);
            visit.side(&side, self);
        }
    }

    fn finish(&mut self) {
        self.counts.refused_callpaths = self.callpaths.refused();
        self.counts.hash_collisions = self.callpaths.collisions().len() as u64;
        for counters in &self.counters {
            let counts = &mut self.counts;
            // A damaged file may say any number.
            let add = |count: &mut u64, counted: &[u64]| {
                *count = counted.iter().fold(*count, |sum, n| sum.saturating_add(*n));
            };
            let unrecorded = [counters.without_ring, counters.deleted, counters.values_refused];
            add(&mut counts.unrecorded, &unrecorded);
            add(&mut counts.refused_callpaths, &[counters.nodes_refused, counters.names_refused]);
            add(&mut counts.bounded_clocks, &[counters.clocks_bounded]);
            add(&mut counts.newer_contexts, &[counters.newer_contexts]);
            add(&mut counts.removed_dead, &[counters.removed_dead]);
            add(&mut counts.failed_sources, &[counters.sources_failed]);
            add(&mut counts.budget_steps, &[counters.budget_steps]);
        }
    }
}

/// The number of the next name, if there is room.
fn next_number(names: usize) -> Option<u32> {
    (names < MAX_NAMES).then_some(names as u32)
}

impl Side {
    /// Adds tagged values. Returns the number of values without a definition or a place.
    fn add(&mut self, values: &[Tagged], numbers: &Numbers) -> u64 {
        let mut dropped = 0;
        for value in values.iter().filter(|value| value.tag() != 0) {
            match value.interval() {
                Some(interval) => {
                    self.intervals[usize::from(interval.tag())] = value.value();
                    self.reported |= 1 << interval.tag();
                }
                None => {
                    let number = value.pvar().and_then(|pvar| numbers.pvar(pvar));
                    match (number, self.values.get_mut(usize::from(self.value_count))) {
                        (Some(number), Some(place)) => {
                            *place = (number, value.value());
                            self.value_count += 1;
                        }
                        _ => dropped += 1,
                    }
                }
            }
        }
        dropped
    }
}

//! Streams the records of a trace, file by file, with constant memory.
//!
//! A reader of traces keeps the names of all processes and hands each record to a [`Visit`], with its details attached
//! and its times in ns. Details follow their record in the stream of one thread, perhaps in the next frame: until they
//! are there, the record waits.

use std::collections::HashMap;
use std::io::Read;

use super::counts::Counts;
use super::frames::{self, Frame};
use super::loader::Loader;
use super::names::{Callpaths, OTHER, PathId};
use super::process::{Clock, Numbers, Process};
use crate::error::Error;
use crate::record::{Kind, RECORD_BYTES, Record, Span, Status, Tagged};

/// Number of intervals, with the unused tag 0.
pub const INTERVALS: usize = 11;

/// The most values of variables of one record that are kept: more than our own hosts attach to a call.
const MAX_VALUES: usize = 16;

/// The most names of variables and of peers of a whole trace, each. A process has at most 65,536 of either.
const MAX_NAMES: usize = 1 << 16;

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

/// A variable that processes registered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pvar {
    /// The name.
    pub name: String,
    /// The unit; empty for a number.
    pub unit: String,
    /// The class: 0 STATE, 1 COUNTER, 2 TIMER, 3 LEVEL, 4 SIZE, 5 HIGHWATERMARK, 6 LOWWATERMARK.
    pub class: u8,
    /// Returns true if the variable belongs to one call.
    pub is_of_handle: bool,
}

/// Names and counts of the trace that was read so far.
#[derive(Debug, Default)]
pub struct Reader {
    /// The processes, in the order of the files.
    pub processes: Vec<Process>,
    /// The callpaths of all processes.
    pub callpaths: Callpaths,
    /// The variables of all processes.
    pub pvars: Vec<Pvar>,
    /// The names of peers.
    pub peers: Vec<String>,
    /// Counts of records and defects.
    pub counts: Counts,
    /// The bytes of each file that were read.
    pub lengths: Vec<u64>,
    pvar_numbers: HashMap<Pvar, u32>,
    peer_numbers: HashMap<String, u32>,
    /// The greatest count of newer contexts of each process: its description may come several times.
    newer_contexts: HashMap<u32, u64>,
}

/// The state of one file.
struct File {
    process: Option<u32>,
    clock: Option<Clock>,
    numbers: Numbers,
    /// Records that wait for their details, by thread.
    waiting: HashMap<u32, (Box<Side>, u16)>,
    has_ended: bool,
}

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
    let mut payload = Vec::new();
    for (index, name) in loader.names().iter().enumerate() {
        let io = |source| Error::Io { path: name.into(), doing: "read a trace", source };
        let length = lengths.map_or(u64::MAX, |all| all.get(index).copied().unwrap_or(0));
        let mut bytes = loader.open(index).map_err(io)?.take(length);
        let mut file = File {
            process: None,
            clock: None,
            numbers: Numbers::default(),
            waiting: HashMap::new(),
            has_ended: false,
        };
        reader.counts.files += 1;
        loop {
            match frames::next(&mut bytes, &mut payload).map_err(io)? {
                Frame::Whole(kind) => reader.frame(&mut file, kind, &payload, visit),
                Frame::End => break,
                Frame::Torn => {
                    reader.counts.torn_files += 1;
                    break;
                }
            }
        }
        reader.end(file, visit);
        reader.lengths.push(length - bytes.limit());
    }
    reader.counts.refused_callpaths = reader.callpaths.refused();
    reader.counts.hash_collisions = reader.callpaths.collisions().len() as u64;
    reader.counts.newer_contexts = reader.newer_contexts.values().sum();
    Ok(reader)
}

/// Reads little-endian fields from the front of a payload.
struct Fields<'b>(&'b [u8]);

impl<'b> Fields<'b> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.bytes()?))
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.bytes()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.bytes()?))
    }

    fn text(&mut self) -> Option<&'b str> {
        let length = usize::from(self.u16()?);
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

impl Reader {
    fn frame(&mut self, file: &mut File, kind: u32, payload: &[u8], visit: &mut dyn Visit) {
        let understood = match kind {
            frames::PROCESS => self.process(file, payload),
            frames::CLOCK => Clock::decode(payload).map(|clock| file.clock = Some(clock)),
            frames::NODE => self.node(file, payload),
            frames::PEER => self.peer(file, payload),
            frames::PVAR => self.pvar(file, payload),
            frames::RECORDS => self.records(file, payload, visit),
            frames::END => {
                file.has_ended = true;
                self.counts.recovered_files += u64::from(payload.first() == Some(&2));
                Some(())
            }
            _ => {
                self.counts.unknown_frames += 1;
                Some(())
            }
        };
        self.counts.bad_frames += u64::from(understood.is_none());
    }

    fn process(&mut self, file: &mut File, payload: &[u8]) -> Option<()> {
        let document: serde_json::Value = serde_json::from_slice(payload).ok()?;
        let newer = document.get("newer_contexts").and_then(serde_json::Value::as_u64);
        let process: Process = serde_json::from_value(document).ok()?;
        let number = match file.process {
            Some(number) => {
                // A later description has the configuration that holds from here on.
                self.processes[number as usize] = process;
                number
            }
            None => {
                self.counts.newer_processes += u64::from(process.version > 1);
                self.processes.push(process);
                self.processes.len() as u32 - 1
            }
        };
        file.process = Some(number);
        if let Some(count) = newer {
            self.newer_contexts.insert(number, count);
        }
        Some(())
    }

    fn node(&mut self, file: &mut File, payload: &[u8]) -> Option<()> {
        let mut fields = Fields(payload);
        let (id, parent, hash) = (fields.u32()?, fields.u64()?, fields.u64()?);
        let path = self.callpaths.intern(hash, parent, fields.text()?);
        file.numbers.set_path(id, path).then_some(())
    }

    fn peer(&mut self, file: &mut File, payload: &[u8]) -> Option<()> {
        let mut fields = Fields(payload);
        let (id, name) = (fields.u16()?, fields.text()?);
        let number = match self.peer_numbers.get(name) {
            Some(number) => *number,
            None if self.peers.len() >= MAX_NAMES => return None,
            None => {
                self.peers.push(name.to_owned());
                let number = self.peers.len() as u32 - 1;
                self.peer_numbers.insert(name.to_owned(), number);
                number
            }
        };
        file.numbers.set_peer(id, number).then_some(())
    }

    fn pvar(&mut self, file: &mut File, payload: &[u8]) -> Option<()> {
        let mut fields = Fields(payload);
        let (id, [class, binding]) = (fields.u16()?, fields.bytes()?);
        let (name, unit) = (fields.text()?.to_owned(), fields.text()?.to_owned());
        let pvar = Pvar { name, unit, class, is_of_handle: binding == 1 };
        let number = match self.pvar_numbers.get(&pvar) {
            Some(number) => *number,
            None if self.pvars.len() >= MAX_NAMES => return None,
            None => {
                self.pvars.push(pvar.clone());
                let number = self.pvars.len() as u32 - 1;
                self.pvar_numbers.insert(pvar, number);
                number
            }
        };
        file.numbers.set_pvar(id, number).then_some(())
    }

    fn records(&mut self, file: &mut File, payload: &[u8], visit: &mut dyn Visit) -> Option<()> {
        let mut fields = Fields(payload);
        let (thread, lost) = (fields.u32()?, fields.u64()?);
        let Some(process) = file.process else { return Some(()) };
        let (records, rest) = fields.0.as_chunks::<RECORD_BYTES>();
        self.counts.records += records.len() as u64;
        let Some(clock) = file.clock else {
            self.counts.records_without_clock += records.len() as u64;
            return rest.is_empty().then_some(());
        };
        let mut waiting = file.waiting.remove(&thread);
        if lost > 0 {
            self.counts.lost_records += lost;
            self.give_up(waiting.take(), visit);
        }
        for bytes in records {
            match Record::from_bytes(bytes) {
                Some(Record::Span(span)) => {
                    self.give_up(waiting.take(), visit);
                    let side = self.side(&span, process, thread, clock, &file.numbers);
                    match span.details {
                        0 => visit.side(&side, self),
                        details => waiting = Some((Box::new(side), details)),
                    }
                }
                Some(Record::Details(values)) => match &mut waiting {
                    Some((side, missing)) => {
                        self.counts.dropped_values += side.add(&values, &file.numbers);
                        *missing -= 1;
                        if *missing == 0 {
                            visit.side(side, self);
                            waiting = None;
                        }
                    }
                    None => self.counts.stray_details += 1,
                },
                Some(Record::Sample(sample)) => {
                    self.counts.samples += 1;
                    let values = sample.values.iter().filter_map(|value| {
                        Some((file.numbers.pvar(value.pvar()?)?, value.value()))
                    });
                    let values = values.collect();
                    let time = clock.unix_ns(sample.at);
                    visit.sample(&ProcessSample { process, time, values }, self);
                }
                None => self.counts.unknown_records += 1,
            }
        }
        if let Some(waiting) = waiting {
            file.waiting.insert(thread, waiting);
        }
        rest.is_empty().then_some(())
    }

    #[inline]
    fn side(
        &mut self,
        span: &Span,
        process: u32,
        thread: u32,
        clock: Clock,
        numbers: &Numbers,
    ) -> Side {
        match span.kind {
            Kind::Origin => self.counts.origins += 1,
            Kind::Target => self.counts.targets += 1,
            _ => self.counts.locals += 1,
        }
        let path = numbers.path(span.node);
        self.counts.records_without_callpath += u64::from(path == OTHER);
        Side {
            process,
            thread,
            request: span.request_low,
            request_high: span.request_high,
            span: span.span,
            parent: span.parent,
            start: clock.unix_ns(span.start),
            duration: clock.ns(span.duration),
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
    fn give_up(&mut self, waiting: Option<(Box<Side>, u16)>, visit: &mut dyn Visit) {
        if let Some((side, missing)) = waiting {
            self.counts.stray_details += u64::from(missing);
            visit.side(&side, self);
        }
    }

    fn end(&mut self, file: File, visit: &mut dyn Visit) {
        let mut waiting: Vec<_> = file.waiting.into_iter().collect();
        waiting.sort_unstable_by_key(|(thread, _)| *thread);
        for (_, waiting) in waiting {
            self.give_up(Some(waiting), visit);
        }
        self.counts.files_without_process += u64::from(file.process.is_none());
        self.counts.open_files += u64::from(!file.has_ended);
    }
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

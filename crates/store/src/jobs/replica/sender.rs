//! The primary's end: follows the logs and the list of segments, and notes what the replica has.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use skopos_model::unpoisoned;

use super::keeper::CHUNK_BYTES;
use super::message::{LogPlace, Message, Reply, Sent, push_record};
use crate::jobs::intake::{Intake, ProducerAt, described};
use crate::jobs::lts::{Changes, Lts, Version};
use crate::log::{Disk, DiskFile, Error, OsDisk, Tail, io_at};

/// The most bytes of records in a message, if it has more than one record.
const BATCH_BYTES: usize = 256 << 10;

/// The most bytes of records that the replica has not acknowledged: some of its commits.
const MAX_IN_FLIGHT: usize = 8 << 20;

/// The most names of segments in a message.
const LIST_NAMES: usize = 4096;

/// A primary that sends what it has on its disk.
#[derive(Debug)]
pub struct Sender {
    disk: Arc<dyn Disk>,
    /// The folder for copies that come back.
    returning: PathBuf,
    /// The number of the replica that answered last.
    replica: Option<u64>,
    is_welcome: bool,
    /// The end of the records that the replica has.
    acknowledged: LogPlace,
    /// Generation of the log that is followed next, if none is.
    from: u64,
    tail: Option<Tail>,
    /// Messages of the frame that was read last.
    ready: VecDeque<(Batch, Vec<u8>)>,
    /// Batches that are not acknowledged, in their order, and the bytes of their records.
    in_flight: VecDeque<Batch>,
    in_flight_bytes: usize,
    /// True if the replica was full and is to take records again.
    must_resume: bool,
    gap: Gap,
    round: Round,
    /// Number of damaged frames of the log that is followed.
    lost_frames: u64,
    /// The list of segments that the replica has.
    listed: Option<Version>,
    /// True if the replica cannot have a segment of the list.
    is_refused: bool,
    /// True until all damaged segments were asked for.
    is_looking: bool,
    fetch: Option<Fetch>,
    /// Damaged segments that were asked for, in this stream.
    asked: BTreeSet<String>,
    standing: Standing,
}

/// The state of a replication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// True while a replica answers.
    pub is_connected: bool,
    /// The reason why the replica takes no records now.
    pub full: Option<String>,
    /// Segments that could not be copied or restored, with the reasons.
    pub failed: Vec<String>,
    /// Number of records that were sent, of segments that were sent, and of segments that were restored.
    pub records: u64,
    /// See `records`.
    pub segments: u64,
    /// See `records`.
    pub restored: u64,
    /// Number of damaged frames of logs that were passed over.
    pub lost_frames: u64,
}

/// The most failures that a standing names.
const MAX_FAILED: usize = 16;

/// Records of one message.
#[derive(Debug)]
struct Batch {
    end: LogPlace,
    bytes: usize,
    records: u64,
    /// The last record of each producer.
    last: Vec<ProducerAt>,
}

/// Tells whether logs were removed before they were followed. The segments have their records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gap {
    Closed,
    /// No list was sent since.
    Open,
    /// A list is on its way.
    Filling,
}

/// A comparison of the segments.
#[derive(Debug)]
enum Round {
    Idle,
    /// The names are sent.
    Listing(VecDeque<Vec<String>>, Listed),
    /// The replica looks for what is missing.
    Waiting(Listed),
    /// Missing segments are sent.
    Sending(VecDeque<String>, Option<Copying>, Listed),
}

/// The state of the storage before the names of a list were read.
#[derive(Debug)]
struct Listed {
    version: Version,
    /// The sealed records.
    sealed: Vec<ProducerAt>,
}

/// A segment that is sent.
#[derive(Debug)]
struct Copying {
    name: String,
    file: Box<dyn DiskFile>,
    at: u64,
    total: u64,
}

/// A copy that comes back.
#[derive(Debug)]
struct Fetch {
    name: String,
    at: u64,
    is_asked: bool,
    file: Option<Box<dyn DiskFile>>,
}

impl Sender {
    /// Returns a sender. `returning` is a folder for copies that come back.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub fn new(returning: &Path) -> Result<Self, Error> {
        Self::on(Arc::new(OsDisk), returning)
    }

    pub(super) fn on(disk: Arc<dyn Disk>, returning: &Path) -> Result<Self, Error> {
        disk.make_folder(returning).map_err(io_at(returning, "the folder cannot be made"))?;
        for file in disk.list(returning).map_err(io_at(returning, "it cannot be listed"))? {
            let path = returning.join(file.name);
            disk.remove(&path).map_err(io_at(&path, "it cannot be removed"))?;
        }
        Ok(Self {
            disk,
            returning: returning.to_path_buf(),
            replica: None,
            is_welcome: false,
            acknowledged: LogPlace::default(),
            from: 0,
            tail: None,
            ready: VecDeque::new(),
            in_flight: VecDeque::new(),
            in_flight_bytes: 0,
            must_resume: false,
            gap: Gap::Open,
            round: Round::Idle,
            lost_frames: 0,
            listed: None,
            is_refused: false,
            is_looking: false,
            fetch: None,
            asked: BTreeSet::new(),
            standing: Standing::default(),
        })
    }

    /// Notes that a stream begins or has ended. What was not acknowledged is sent again.
    pub fn reset(&mut self) {
        self.is_welcome = false;
        self.standing.is_connected = false;
        self.standing.full = None;
        self.rewind();
        (self.round, self.listed, self.fetch) = (Round::Idle, None, None);
        self.must_resume = false;
        self.asked.clear();
        self.is_refused = false;
    }

    /// Begins again at the place that was acknowledged last, after a list.
    fn rewind(&mut self) {
        self.ready.clear();
        self.in_flight.clear();
        self.in_flight_bytes = 0;
        (self.gap, self.tail, self.from) = (Gap::Open, None, self.acknowledged.generation);
    }

    /// Looks for damaged segments, whose copies are then asked for.
    pub fn look(&mut self) {
        self.is_looking = true;
    }

    /// Returns the bytes of the primary's logs that the replica has not acknowledged.
    pub fn behind_bytes(&self, intake: &Intake) -> u64 {
        intake.durable_bytes_after(self.acknowledged.generation, self.acknowledged.at)
    }

    /// Returns the state of the replication.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Takes an answer. The changes that it returns are those of a segment that was restored.
    ///
    /// # Errors
    /// The answer does not fit, or a copy cannot be written. The stream must end.
    pub fn take(
        &mut self,
        reply: Reply,
        intake: &Mutex<Intake>,
        lts: &Lts,
    ) -> Result<Option<Changes>, Error> {
        match reply {
            Reply::Welcome { id } => {
                if self.replica.replace(id) != Some(id) {
                    (self.acknowledged, self.from) = (LogPlace::default(), 0);
                }
                (self.is_welcome, self.standing.is_connected) = (true, true);
                self.standing.failed.clear();
                self.is_looking = true;
            }
            Reply::Durable(end) => self.durable(end, intake),
            Reply::Full { why } => {
                self.standing.full = Some(why);
                // The replica has passed over later records. A list makes room, if it has new segments.
                self.rewind();
                self.must_resume = true;
            }
            Reply::Missing { names } => {
                let round = std::mem::replace(&mut self.round, Round::Idle);
                if let Round::Waiting(listed) = round {
                    self.round = Round::Sending(names.into(), None, listed);
                }
            }
            Reply::Refused { name, why } => {
                self.is_refused = true;
                self.fail(format!("{name} was not copied: {why}"));
            }
            Reply::Finished => {
                let round = std::mem::replace(&mut self.round, Round::Idle);
                if let Round::Waiting(listed) = round {
                    if !std::mem::take(&mut self.is_refused) {
                        unpoisoned(intake.lock()).replicated(&listed.sealed);
                    }
                    self.listed = Some(listed.version);
                    if self.gap == Gap::Filling {
                        self.gap = Gap::Closed;
                    }
                }
            }
            Reply::Piece { name, at, total, bytes } => {
                return self.piece(&name, (at, total), &bytes, lts);
            }
            Reply::NoCopy { name } => {
                self.fetch = None;
                self.fail(format!("{name} is damaged, and the replica has no whole copy of it"));
            }
        }
        Ok(None)
    }

    fn fail(&mut self, why: String) {
        if self.standing.failed.len() < MAX_FAILED {
            self.standing.failed.push(why);
        }
    }

    fn durable(&mut self, end: LogPlace, intake: &Mutex<Intake>) {
        let mut intake = unpoisoned(intake.lock());
        while self.in_flight.front().is_some_and(|batch| batch.end <= end)
            && let Some(batch) = self.in_flight.pop_front()
        {
            self.in_flight_bytes -= batch.bytes;
            self.standing.records += batch.records;
            self.acknowledged = batch.end;
            self.standing.full = None;
            intake.replicated(&batch.last);
        }
    }

    /// Returns the next message; `None` if there is nothing to send now.
    ///
    /// # Errors
    /// A log or a segment cannot be read. The next call tries again.
    pub fn next(&mut self, intake: &Mutex<Intake>, lts: &Lts) -> Result<Option<Message>, Error> {
        if !self.is_welcome {
            return Ok(None);
        }
        if std::mem::take(&mut self.must_resume) {
            return Ok(Some(Message::Resume));
        }
        if let Some(message) = self.next_records(intake)? {
            return Ok(Some(message));
        }
        if let Some(message) = self.next_of_round(intake, lts)? {
            return Ok(Some(message));
        }
        self.next_fetch(lts)
    }

    /// Returns the next records.
    fn next_records(&mut self, intake: &Mutex<Intake>) -> Result<Option<Message>, Error> {
        if self.in_flight_bytes >= MAX_IN_FLIGHT {
            return Ok(None);
        }
        loop {
            if let Some((batch, records)) = self.ready.pop_front() {
                let end = batch.end;
                self.in_flight_bytes += batch.bytes;
                self.in_flight.push_back(batch);
                return Ok(Some(Message::Records { end, records }));
            }
            if self.gap != Gap::Closed || !self.follow(intake)? {
                return Ok(None);
            }
        }
    }

    /// Reads the next frame. Returns false if there is none, or logs were removed that it would follow.
    fn follow(&mut self, intake: &Mutex<Intake>) -> Result<bool, Error> {
        let at = self.tail.as_ref().map_or(self.from, Tail::generation);
        let Some(log) = unpoisoned(intake.lock()).log_from(at) else { return Ok(false) };
        if log.generation != at {
            // The log that was followed is gone. The next list has the segments with its records.
            (self.gap, self.tail, self.from) = (Gap::Open, None, at);
            return Ok(false);
        }
        let tail = self.tail.get_or_insert_with(|| Tail::new(log.generation));
        let file = match self.disk.open_to_read(&log.path) {
            // It was removed just now, and the next call finds the next one.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(true),
            opened => opened.map_err(io_at(&log.path, "it cannot be opened"))?,
        };
        let mut frame = Frame::default();
        let is_read = tail.next((&*file, &log.path), log.end, &mut |entry| {
            if let Some((_, producer)) = described(entry.description) {
                let (epoch, sequence, content) = (entry.epoch, entry.sequence, entry.content);
                frame.add(&Sent { producer, epoch, sequence, content });
            }
        })?;
        let lost = tail.lost();
        if lost > self.lost_frames {
            self.standing.lost_frames += lost - self.lost_frames;
        }
        self.lost_frames = lost;
        if !is_read {
            if !log.is_closed {
                return Ok(false);
            }
            let next = log.generation + 1;
            let after = unpoisoned(intake.lock()).log_from(next);
            if after.is_some_and(|after| after.generation == next) {
                self.tail = Some(Tail::new(next));
                return Ok(true);
            }
            (self.gap, self.tail, self.from) = (Gap::Open, None, next);
            return Ok(false);
        }
        let end = LogPlace { generation: log.generation, at: tail.at(), piece: 0 };
        if end.generation == self.acknowledged.generation && end.at <= self.acknowledged.at {
            // The replica has it from an earlier stream. The reader needs the producers that it describes.
            let is_whole = self.acknowledged.at > end.at || self.acknowledged.piece == u32::MAX;
            if is_whole {
                return Ok(true);
            }
        }
        self.ready.extend(frame.batches(end));
        Ok(true)
    }

    /// Returns the next message of a comparison of the segments, and begins one if the list has changed.
    fn next_of_round(
        &mut self,
        intake: &Mutex<Intake>,
        lts: &Lts,
    ) -> Result<Option<Message>, Error> {
        if matches!(self.round, Round::Idle) {
            let is_same = self.gap != Gap::Open && self.listed == Some(lts.version());
            if is_same && !unpoisoned(intake.lock()).has_resealed() {
                return Ok(None);
            }
            // Before the names are read: they have the segments of these records, and of the logs that are gone.
            let sealed = {
                let mut intake = unpoisoned(intake.lock());
                if self.gap == Gap::Open {
                    let from = self.from;
                    self.from = intake.log_from(from).map_or(from, |log| log.generation);
                }
                intake.take_resealed();
                intake.sealed_producers()
            };
            let version = lts.version();
            let names: Vec<String> = lts.names()?.into_iter().collect();
            let mut lists: VecDeque<Vec<String>> =
                names.chunks(LIST_NAMES).map(<[String]>::to_vec).collect();
            if lists.is_empty() {
                lists.push_back(Vec::new());
            }
            if self.gap == Gap::Open {
                self.gap = Gap::Filling;
            }
            self.round = Round::Listing(lists, Listed { version, sealed });
        }
        match std::mem::replace(&mut self.round, Round::Idle) {
            Round::Listing(mut lists, listed) => {
                let names = lists.pop_front().unwrap_or_default();
                let is_last = lists.is_empty();
                self.round = match is_last {
                    true => Round::Waiting(listed),
                    false => Round::Listing(lists, listed),
                };
                Ok(Some(Message::List { names, is_last }))
            }
            Round::Sending(names, copying, listed) => self.send(names, copying, listed, lts),
            round => {
                self.round = round;
                Ok(None)
            }
        }
    }

    fn send(
        &mut self,
        mut names: VecDeque<String>,
        copying: Option<Copying>,
        listed: Listed,
        lts: &Lts,
    ) -> Result<Option<Message>, Error> {
        let mut copying = match copying {
            Some(copying) => copying,
            None => {
                let Some(name) = names.pop_front() else {
                    self.round = Round::Waiting(listed);
                    return Ok(Some(Message::Finish));
                };
                let Some(file) = lts.open_to_copy(&name)? else {
                    if lts.names()?.contains(&name) {
                        self.is_refused = true;
                        self.fail(format!("{name} is damaged, and was not copied before"));
                        self.round = Round::Sending(names, None, listed);
                        return Ok(Some(Message::Absent { name }));
                    }
                    // It was merged or removed. The next list is another one.
                    self.again();
                    return Ok(None);
                };
                let total = file.length().map_err(|e| io_at(Path::new(&name), "its length")(e))?;
                Copying { name, file, at: 0, total }
            }
        };
        let length = (copying.total - copying.at).min(CHUNK_BYTES as u64);
        let mut bytes = vec![0; length as usize];
        let read = copying.file.read_at(&mut bytes, copying.at);
        read.map_err(|e| io_at(Path::new(&copying.name), "it cannot be read")(e))?;
        let (name, at, total) = (copying.name.clone(), copying.at, copying.total);
        copying.at += length;
        let is_sent = copying.at >= total;
        self.standing.segments += u64::from(is_sent);
        self.round = Round::Sending(names, Some(copying).filter(|_| !is_sent), listed);
        Ok(Some(Message::Chunk { name, at, total, bytes }))
    }

    /// Gives up a comparison of the segments. The next call begins another one.
    fn again(&mut self) {
        self.round = Round::Idle;
        self.listed = None;
        if self.gap == Gap::Filling {
            self.gap = Gap::Open;
        }
    }

    /// Returns a question for a copy of a damaged segment.
    fn next_fetch(&mut self, lts: &Lts) -> Result<Option<Message>, Error> {
        if self.fetch.is_none() && self.is_looking && matches!(self.round, Round::Idle) {
            let wanted = lts.wanted()?;
            let name = wanted.into_iter().find(|name| !self.asked.contains(name));
            let Some(name) = name else {
                self.is_looking = false;
                return Ok(None);
            };
            self.asked.insert(name.clone());
            self.fetch = Some(Fetch { name, at: 0, is_asked: false, file: None });
        }
        let Some(fetch) = self.fetch.as_mut().filter(|fetch| !fetch.is_asked) else {
            return Ok(None);
        };
        fetch.is_asked = true;
        Ok(Some(Message::Fetch { name: fetch.name.clone(), at: fetch.at }))
    }

    fn piece(
        &mut self,
        name: &str,
        (at, total): (u64, u64),
        bytes: &[u8],
        lts: &Lts,
    ) -> Result<Option<Changes>, Error> {
        let path = self.returning.join(name);
        let failed = |e| io_at(&path, "the copy cannot be written")(e);
        let Some(fetch) = &mut self.fetch else { return Ok(None) };
        if fetch.name != name || fetch.at != at || !fetch.is_asked {
            return Err(Error::refused(&path, &"the replica sent bytes that were not asked for"));
        }
        let file = match &mut fetch.file {
            Some(file) => file,
            none => {
                match self.disk.remove(&path) {
                    Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
                    _ => {}
                }
                none.insert(self.disk.create(&path).map_err(failed)?)
            }
        };
        file.write_at(bytes, at).map_err(failed)?;
        (fetch.at, fetch.is_asked) = (at + bytes.len() as u64, false);
        if fetch.at < total && !bytes.is_empty() {
            return Ok(None);
        }
        file.sync().map_err(failed)?;
        self.disk.sync_folder(&self.returning).map_err(failed)?;
        self.fetch = None;
        match lts.restore((&*self.disk, &self.returning), name) {
            Ok(changes) => {
                self.standing.restored += 1;
                Ok(Some(changes))
            }
            Err(e) => {
                self.fail(format!("{name} is damaged, and its copy does not help: {e}"));
                let _ = self.disk.remove(&path);
                Ok(None)
            }
        }
    }
}

/// The records of a frame, in messages.
#[derive(Debug, Default)]
struct Frame {
    messages: Vec<(Vec<u8>, u64, Vec<ProducerAt>)>,
}

impl Frame {
    fn add(&mut self, record: &Sent<'_>) {
        let is_full = self.messages.last().is_none_or(|(records, ..)| {
            !records.is_empty() && records.len() + record.content.len() > BATCH_BYTES
        });
        if is_full {
            self.messages.push((Vec::new(), 0, Vec::new()));
        }
        let Some((records, count, last)) = self.messages.last_mut() else { return };
        push_record(records, record);
        *count += 1;
        let (epoch, sequence) = (record.epoch, record.sequence);
        // Records of a producer follow each other.
        match last.iter_mut().rev().find(|at| at.name == record.producer) {
            Some(at) => (at.epoch, at.sequence) = (epoch, sequence),
            None => last.push(ProducerAt { name: record.producer.to_owned(), epoch, sequence }),
        }
    }

    /// Returns the messages of a frame with this end.
    fn batches(self, end: LogPlace) -> impl Iterator<Item = (Batch, Vec<u8>)> {
        let count = self.messages.len();
        (0u32..).zip(self.messages).map(move |(piece, (records, number, last))| {
            let is_last = piece as usize + 1 == count;
            let end = LogPlace { piece: if is_last { u32::MAX } else { piece }, ..end };
            (Batch { end, bytes: records.len(), records: number, last }, records)
        })
    }
}

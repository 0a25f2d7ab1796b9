//! The replica's end: keeps records and segments of one primary.
//!
//! # Files
//! `sts` and `lts` are folders as those of a hub's jobs. `site` has the name of the site, `replica` the number of the
//! primary's storage and that of the replica. `incoming` has segments that are whole and wait for the rest of the list.
//! `apply` has the list: it exists from the time at which all segments are there until all are in place.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use skopos_model::job::{JobId, JobRecord};
use skopos_model::{ByteReader, Timestamp, unpoisoned};
use thiserror::Error as ThisError;

use super::message::{LogPlace, Message, Reply, Sent, next_record};
use crate::jobs::entry::JobEntry;
use crate::jobs::intake::{Intake, IntakeLimits, Pushed, Refusal, SealedParts};
use crate::jobs::lts::{Lts, whole};
use crate::jobs::part::Mark;
use crate::jobs::segment::SegmentName;
use crate::log::{Disk, DiskFile, Error, OsDisk, io_at};

/// The most segments of a list. With 500 jobs each they are two thousand million jobs; their names are 160 MB.
const MAX_SEGMENTS: usize = 1 << 21;

/// The most names of an answer. The rest follows when these segments have arrived.
const MAX_MISSING: usize = 1000;

/// The longest file of a segment, which has 256 MB of contents and one part more.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// The most bytes of a segment in a message.
pub(super) const CHUNK_BYTES: usize = 256 << 10;

const APPLY: &str = "apply";
const REPLICA: &str = "replica";

/// The primary of a keeper.
#[derive(Clone, Copy, Debug)]
pub struct Keeping<'n> {
    /// Name of the site.
    pub site: &'n str,
    /// The number that the storage of the primary has.
    pub storage: u64,
    /// The number that the replica gets if its folder is new.
    pub id: u64,
}

/// The copy of a primary's jobs.
#[derive(Debug)]
pub struct Keeper {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// Shared with readers of the copy, as the segments are.
    intake: Arc<Mutex<Intake>>,
    lts: Arc<Lts>,
    id: u64,
    /// The end of the records that no commit has written yet.
    end: Option<LogPlace>,
    /// True from the time at which there was no room until the primary knows.
    is_full: bool,
    round: Round,
    incoming: Option<Incoming>,
}

/// The comparison of the segments.
#[derive(Debug, Default)]
struct Round {
    names: BTreeSet<String>,
    is_listed: bool,
    /// Segments that came damaged.
    refused: BTreeSet<String>,
}

/// A segment of which some bytes have arrived.
#[derive(Debug)]
struct Incoming {
    name: String,
    file: Box<dyn DiskFile>,
    at: u64,
}

/// The reason why a message was not taken.
#[derive(Debug, ThisError)]
pub enum TakeError {
    /// The message is not one that a primary sends.
    #[error("the message is not valid: {0}")]
    Invalid(&'static str),
    /// The disk failed.
    #[error(transparent)]
    Storage(#[from] Error),
}

/// The marks of the parts that a replica has. It needs no entries of jobs.
pub(super) struct Marks<'l>(pub(super) &'l Lts);

impl SealedParts for Marks<'_> {
    fn of_job(&self, id: &JobId) -> Result<(u32, Vec<Mark>, JobEntry), Error> {
        let next = self.0.find(id)?.last().map_or(0, |part| part.number + 1);
        Ok((next, self.0.marks(id)?, JobEntry::new("", id.clone())))
    }
}

impl Keeper {
    /// Opens the copy in a folder, which is made if it does not exist.
    ///
    /// # Errors
    /// Another process uses the folder, it has the copy of another storage, or a file cannot be read or written.
    pub fn open(
        folder: &Path,
        keeping: Keeping<'_>,
        limits: IntakeLimits,
        now: Timestamp,
    ) -> Result<Self, Error> {
        Self::on(Arc::new(OsDisk), folder, keeping, limits, now)
    }

    pub(super) fn on(
        disk: Arc<dyn Disk>,
        folder: &Path,
        keeping: Keeping<'_>,
        limits: IntakeLimits,
        now: Timestamp,
    ) -> Result<Self, Error> {
        for below in ["", "sts", "lts", "incoming"] {
            let folder = folder.join(below);
            disk.make_folder(&folder).map_err(io_at(&folder, "the folder cannot be made"))?;
        }
        let id = identify(&*disk, folder, keeping)?;
        let lts = finish(&disk, folder)?;
        let incoming = folder.join("incoming");
        for file in disk.list(&incoming).map_err(io_at(&incoming, "it cannot be listed"))? {
            if file.name.ends_with(".tmp") {
                remove(&*disk, &incoming.join(&file.name))?;
            }
        }
        let intake = Intake::on(disk.clone(), &folder.join("sts"), limits, &Marks(&lts), now)?;
        let (intake, lts) = (Arc::new(Mutex::new(intake)), Arc::new(lts));
        let (folder, round) = (folder.to_path_buf(), Round::default());
        Ok(Self { disk, folder, intake, lts, id, end: None, is_full: false, round, incoming: None })
    }

    /// Returns the site and the number of the storage of which a folder has a copy; `None` if it has none.
    ///
    /// # Errors
    /// A file cannot be read, or is damaged.
    pub fn kept_in(folder: &Path) -> Result<Option<(String, u64)>, Error> {
        let disk = OsDisk;
        let (site, path) = (folder.join("site"), folder.join(REPLICA));
        let text = match disk.read(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(io_at(&path, "it cannot be read"))?,
        };
        let (storage, _) = numbers_of(&path, &text)?;
        let site = disk.read(&site).map_err(io_at(&site, "it cannot be read"))?;
        Ok(Some((String::from_utf8_lossy(&site).trim_end().to_owned(), storage)))
    }

    /// Returns the records of the copy that are not in segments, and its segments.
    pub fn content(&self) -> (Arc<Mutex<Intake>>, Arc<Lts>) {
        (self.intake.clone(), self.lts.clone())
    }

    fn intake(&self) -> MutexGuard<'_, Intake> {
        unpoisoned(self.intake.lock())
    }

    /// Finishes what a crash interrupted in the folder of a copy, so that a hub can open it as its jobs.
    ///
    /// # Errors
    /// Another process uses the folder, or a file cannot be read or written.
    pub fn settle(folder: &Path) -> Result<(), Error> {
        finish(&(Arc::new(OsDisk) as Arc<dyn Disk>), folder).map(drop)
    }

    /// Begins a stream, and returns the first answer.
    pub fn begin(&mut self) -> Reply {
        (self.round, self.incoming, self.end) = (Round::default(), None, None);
        self.is_full = false;
        Reply::Welcome { id: self.id }
    }

    /// Returns the bytes of the logs, and the number and bytes of segments.
    pub fn size(&self) -> (u64, usize, u64) {
        let (segments, _, bytes) = self.lts.size();
        (self.intake().log_bytes(), segments, bytes)
    }

    /// Returns the number of jobs with records that are not in segments.
    pub fn open_jobs(&self) -> usize {
        self.intake().jobs().len()
    }

    /// Takes a message. Its records are on the disk after the next [`commit`](Self::commit).
    ///
    /// # Errors
    /// See [`TakeError`]. The stream must end.
    pub fn take(&mut self, message: &Message, now: Timestamp) -> Result<Vec<Reply>, TakeError> {
        match message {
            // Later records must not come before those that had no room.
            Message::Records { .. } if self.is_full => Ok(Vec::new()),
            Message::Records { end, records } => {
                if let Some(why) = self.store(records, now)? {
                    self.is_full = true;
                    return Ok(vec![Reply::Full { why: why.to_owned() }]);
                }
                self.end = Some(*end);
                Ok(Vec::new())
            }
            Message::Resume => {
                self.is_full = false;
                Ok(Vec::new())
            }
            Message::List { names, is_last } => self.list(names, *is_last),
            Message::Chunk { name, at, total, bytes } => self.chunk(name, (*at, *total), bytes),
            Message::Absent { name } => {
                self.round.refused.insert(name.clone());
                Ok(Vec::new())
            }
            Message::Finish => self.finish_round(),
            Message::Fetch { name, at } => Ok(vec![self.fetch(name, *at)?]),
        }
    }

    /// Stores records. Returns the reason if there is no room for all of them; some may be stored then.
    fn store(&mut self, records: &[u8], now: Timestamp) -> Result<Option<&'static str>, TakeError> {
        let mut reader = ByteReader::new(records);
        while !reader.is_empty() {
            let invalid = TakeError::Invalid("a record is not whole");
            let sent = next_record(&mut reader).ok_or(invalid)?;
            if self.push(&sent, now)?.is_some() {
                // A commit may make room.
                self.write(now)?;
                if let Some(why) = self.push(&sent, now)? {
                    return Ok(Some(why));
                }
            }
        }
        Ok(None)
    }

    fn push(&mut self, sent: &Sent<'_>, now: Timestamp) -> Result<Option<&'static str>, TakeError> {
        let record = JobRecord::read(sent.content);
        let record = record.ok_or(TakeError::Invalid("a record is not whole"))?;
        let (epoch, sequence) = (sent.epoch, sent.sequence);
        let pushed = Pushed { producer: sent.producer, epoch, sequence, record };
        let outcome = self.intake().push(&pushed, &Marks(&self.lts), now);
        match outcome {
            // Records of an earlier epoch came before those of the later one.
            Ok(_) | Err(Refusal::Stale { .. }) => Ok(None),
            Err(Refusal::Full(why)) => Ok(Some(why)),
            Err(Refusal::Uncommitted) => Ok(Some("too much waits for its disk")),
            Err(_) => Err(TakeError::Invalid("a record that no primary stores")),
        }
    }

    /// Makes the records durable that were taken. Returns the place of their end.
    ///
    /// # Errors
    /// The disk failed. The stream must end: records may be lost that were not acknowledged.
    pub fn commit(&mut self, now: Timestamp) -> Result<Option<Reply>, Error> {
        self.write(now)?;
        Ok(self.end.take().map(Reply::Durable))
    }

    fn write(&mut self, now: Timestamp) -> Result<(), Error> {
        let mut intake = self.intake();
        intake.forget_news();
        let written = intake.commit().and_then(|()| intake.rotate(now));
        if written.is_err() && intake.is_lost() {
            intake.reopen(&Marks(&self.lts), now)?;
        }
        written
    }

    fn list(&mut self, names: &[String], is_last: bool) -> Result<Vec<Reply>, TakeError> {
        if self.round.is_listed {
            self.round = Round::default();
        }
        if self.round.names.len() + names.len() > MAX_SEGMENTS {
            return Err(TakeError::Invalid("too many segments"));
        }
        if names
            .iter()
            .any(|name| SegmentName::parse(name).is_none_or(|it| it.file_name() != *name))
        {
            return Err(TakeError::Invalid("the name of a segment"));
        }
        self.round.names.extend(names.iter().cloned());
        if !is_last {
            return Ok(Vec::new());
        }
        self.round.is_listed = true;
        self.incoming = None;
        for name in self.arrived()? {
            if !self.round.names.contains(&name) {
                remove(&*self.disk, &self.folder.join("incoming").join(name))?;
            }
        }
        Ok(vec![Reply::Missing { names: self.missing()? }])
    }

    /// Returns the names of the files that have arrived.
    fn arrived(&self) -> Result<Vec<String>, Error> {
        let incoming = self.folder.join("incoming");
        let files = self.disk.list(&incoming);
        let files = files.map_err(io_at(&incoming, "the folder cannot be listed"))?;
        Ok(files.into_iter().map(|file| file.name).collect())
    }

    fn missing(&self) -> Result<Vec<String>, Error> {
        let mut there = self.lts.known_names();
        there.extend(self.arrived()?);
        let missing = self.round.names.iter();
        let missing =
            missing.filter(|name| !there.contains(*name) && !self.round.refused.contains(*name));
        Ok(missing.take(MAX_MISSING).cloned().collect())
    }

    fn chunk(
        &mut self,
        name: &str,
        (at, total): (u64, u64),
        bytes: &[u8],
    ) -> Result<Vec<Reply>, TakeError> {
        if !self.round.names.contains(name) || total > MAX_FILE_BYTES {
            return Err(TakeError::Invalid("a segment that is not listed, or too long"));
        }
        let folder = self.folder.join("incoming");
        let temporary = folder.join(format!("{name}.tmp"));
        if at == 0 {
            remove(&*self.disk, &temporary)?;
            let file = self.disk.create(&temporary);
            let file = file.map_err(io_at(&temporary, "it cannot be made"))?;
            self.incoming = Some(Incoming { name: name.to_owned(), file, at });
        }
        let known = self.incoming.as_mut().filter(|known| known.name == name && known.at == at);
        let known = known.ok_or(TakeError::Invalid("bytes of a segment are not in order"))?;
        let end = at.saturating_add(bytes.len() as u64);
        if end > total || (bytes.is_empty() && total > 0) {
            return Err(TakeError::Invalid("bytes after the end of a segment, or none"));
        }
        known.file.write_at(bytes, at).map_err(io_at(&temporary, "it cannot be written"))?;
        known.at = end;
        if end < total {
            return Ok(Vec::new());
        }
        known.file.sync().map_err(io_at(&temporary, "it cannot be synced"))?;
        self.incoming = None;
        let renamed = self.disk.rename(&temporary, &folder.join(name));
        renamed.map_err(io_at(&temporary, "it cannot be renamed"))?;
        let synced = self.disk.sync_folder(&folder);
        synced.map_err(io_at(&folder, "the folder cannot be synced"))?;
        match whole(&*self.disk, &folder, name) {
            Ok(_) => Ok(Vec::new()),
            Err(e) if e.is_damage() => {
                remove(&*self.disk, &folder.join(name))?;
                self.round.refused.insert(name.to_owned());
                Ok(vec![Reply::Refused { name: name.to_owned(), why: e.why() }])
            }
            Err(e) => Err(e.into()),
        }
    }

    /// Puts the segments in place and forgets the records that they have, once all of them are there.
    fn finish_round(&mut self) -> Result<Vec<Reply>, TakeError> {
        if !self.round.is_listed {
            return Err(TakeError::Invalid("the segments are not listed"));
        }
        let names = self.missing()?;
        if !names.is_empty() {
            return Ok(vec![Reply::Missing { names }]);
        }
        let known = self.lts.known_names();
        if known != self.round.names || !self.arrived()?.is_empty() {
            write(&*self.disk, &self.folder, APPLY, &list_of(&self.round.names))?;
            let incoming = self.folder.join("incoming");
            let parts = self.lts.adopt(&incoming, Some(&self.round.names))?;
            for part in parts {
                // A log that cannot be removed is removed after a later commit, which names the failure.
                let _ = self.intake().covered(&part.id, part.number, &part.marks);
            }
            remove(&*self.disk, &self.folder.join(APPLY))?;
            let synced = self.disk.sync_folder(&self.folder);
            synced.map_err(io_at(&self.folder, "the folder cannot be synced"))?;
        }
        self.round = Round::default();
        Ok(vec![Reply::Finished])
    }

    /// Returns bytes of a segment that is whole.
    fn fetch(&self, name: &str, at: u64) -> Result<Reply, TakeError> {
        let none = || Reply::NoCopy { name: name.to_owned() };
        let Some(file) = self.lts.open_to_copy(name)? else { return Ok(none()) };
        let folder = self.folder.join("lts");
        if at == 0 {
            match whole(&*self.disk, &folder, name) {
                Err(e) if e.is_damage() => return Ok(none()),
                opened => drop(opened?),
            }
        }
        let failed = |e| io_at(&folder.join(name), "it cannot be read")(e);
        let total = file.length().map_err(failed)?;
        let length = total.saturating_sub(at).min(CHUNK_BYTES as u64);
        let mut bytes = vec![0; length as usize];
        file.read_at(&mut bytes, at.min(total)).map_err(failed)?;
        Ok(Reply::Piece { name: name.to_owned(), at, total, bytes })
    }
}

/// Opens the segments, and puts those in place that wait for it.
pub(super) fn finish(disk: &Arc<dyn Disk>, folder: &Path) -> Result<Lts, Error> {
    let lts = Lts::on(disk.clone(), &folder.join("lts"))?;
    let path = folder.join(APPLY);
    match disk.read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        read => {
            let names = read.map_err(io_at(&path, "it cannot be read"))?;
            // A list that is damaged removes nothing.
            lts.adopt(&folder.join("incoming"), read_list(&names).as_ref())?;
            remove(&**disk, &path)?;
            let synced = disk.sync_folder(folder);
            synced.map_err(io_at(folder, "the folder cannot be synced"))?;
        }
    }
    Ok(lts)
}

/// Returns the text of a list of segments: their number, and a line for each.
fn list_of(names: &BTreeSet<String>) -> String {
    let lines: Vec<&str> = names.iter().map(String::as_str).collect();
    format!("{}\n{}\n", names.len(), lines.join("\n"))
}

/// Reads a list of segments; `None` if it is damaged.
fn read_list(bytes: &[u8]) -> Option<BTreeSet<String>> {
    let (count, names) = std::str::from_utf8(bytes).ok()?.split_once('\n')?;
    let names: BTreeSet<String> =
        names.lines().filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let is_whole = count.parse() == Ok(names.len());
    let is_list = names.iter().all(|name| SegmentName::parse(name).is_some());
    (is_whole && is_list).then_some(names)
}

/// Notes the site and the storage of a new folder, and refuses those of another one. Returns the number of the replica.
fn identify(disk: &dyn Disk, folder: &Path, keeping: Keeping<'_>) -> Result<u64, Error> {
    let Keeping { site, storage, id } = keeping;
    let path = folder.join(REPLICA);
    match disk.read(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            write(disk, folder, "site", &format!("{site}\n"))?;
            write(disk, folder, REPLICA, &format!("{storage:016x}\n{id:016x}\n"))?;
            Ok(id)
        }
        read => {
            let text = read.map_err(io_at(&path, "it cannot be read"))?;
            let (known, id) = numbers_of(&path, &text)?;
            if known != storage {
                let why = "it has the copy of another storage of this hub, which may be the only one that is left; \
                           take it over with `skopos mds promote`, or remove it";
                return Err(Error::refused(folder, &why));
            }
            Ok(id)
        }
    }
}

/// Reads the numbers of the storage and of the replica.
fn numbers_of(path: &Path, text: &[u8]) -> Result<(u64, u64), Error> {
    let text = String::from_utf8_lossy(text);
    let mut numbers = text.lines().map(|line| u64::from_str_radix(line, 16).ok());
    match (numbers.next(), numbers.next()) {
        (Some(Some(storage)), Some(Some(id))) => Ok((storage, id)),
        _ => Err(Error::damaged(path, &"it does not have two numbers")),
    }
}

/// Writes a small file as a whole.
fn write(disk: &dyn Disk, folder: &Path, name: &str, text: &str) -> Result<(), Error> {
    let (path, temporary) = (folder.join(name), folder.join(format!("{name}.tmp")));
    remove(disk, &temporary)?;
    let written = disk.create(&temporary).and_then(|file| {
        file.write_at(text.as_bytes(), 0)?;
        file.sync()?;
        disk.rename(&temporary, &path)?;
        disk.sync_folder(folder)
    });
    written.map_err(io_at(&path, "it cannot be written"))
}

/// Removes a file, if it exists.
fn remove(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    match disk.remove(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(io_at(path, "it cannot be removed")(e))
        }
        _ => Ok(()),
    }
}

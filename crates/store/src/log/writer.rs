//! The writer of one log.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::disk::{Disk, DiskFile};
use super::error::{Error, io_at};
use super::frame::{self, HEAD_BYTES};
use super::record::{MAX_PRODUCERS, Record, Scanned};
use super::{Capacity, Level};

const LOST: &str = "the kernel lost some of it after a failed sync";

/// The log of one generation, which takes records.
#[derive(Debug)]
pub(crate) struct LogWriter {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    file: Box<dyn DiskFile>,
    /// Bytes of the head and of whole frames.
    length: u64,
    capacity: Capacity,
    /// Number of the next frame.
    frame: u32,
    /// Index of the next producer.
    index: u32,
    /// Records that wait for the next commit.
    pending: Vec<u8>,
    state: State,
}

/// Tells if a sync of the file can be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A sync that succeeds can be believed.
    Sound,
    /// A sync failed, or may have failed in an earlier process. The kernel may have marked as clean what it did not
    /// write, and a later sync that succeeds does not tell. The log must be written to another file.
    Suspect,
    /// After that the kernel did not have all frames any more. The log can never be synced.
    Lost,
}

impl LogWriter {
    /// Makes the log of a generation.
    pub(crate) fn create(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        generation: u64,
        capacity: Capacity,
    ) -> Result<Self, Error> {
        let file = disk.create(&path).map_err(io_at(&path, "the log cannot be made"))?;
        // Frames without a head could not be read.
        if let Err(e) = file.write_at(&frame::head(generation), 0).and_then(|()| file.sync()) {
            // Otherwise the next attempt finds a file of this name.
            let _ = disk.remove(&path);
            return Err(io_at(&path, "the log cannot be written")(e));
        }
        let (length, pending, state) = (HEAD_BYTES as u64, Vec::new(), State::Sound);
        Ok(Self { disk, path, file, length, capacity, frame: 0, index: 0, pending, state })
    }

    /// Continues a log, which must have no losses but a torn tail. Cuts off that tail. `index` is the number of its
    /// producers. The first sync writes the log to another file: a sync of an earlier process may have failed, and the
    /// kernel told only that process.
    pub(crate) fn resume(
        disk: Arc<dyn Disk>,
        path: PathBuf,
        generation: u64,
        (scanned, index): (&Scanned, u32),
        capacity: Capacity,
    ) -> Result<Self, Error> {
        let file = disk.open(&path).map_err(io_at(&path, "the log cannot be opened"))?;
        let (length, frame) = (scanned.end as u64, scanned.next);
        let (pending, state) = (Vec::new(), State::Suspect);
        let mut log = Self { disk, path, file, length, capacity, frame, index, pending, state };
        if scanned.end < HEAD_BYTES {
            // The process ended before it had written the head.
            log.write(&frame::head(generation), 0)?;
            log.length = HEAD_BYTES as u64;
        }
        log.cut()?;
        Ok(log)
    }

    /// Returns the number of written bytes.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Returns true if it has no records, written or pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.length <= HEAD_BYTES as u64 && self.pending.is_empty()
    }

    /// Returns true if it takes no further producer.
    pub(crate) fn is_full(&self) -> bool {
        self.index as usize >= MAX_PRODUCERS
    }

    /// Returns true if it can never be synced, because the kernel lost some of it.
    pub(crate) fn is_lost(&self) -> bool {
        self.state == State::Lost
    }

    /// Describes a producer, and returns its index. `None` if there is no room, or the description is too long.
    pub(crate) fn describe(&mut self, epoch: i64, description: &[u8]) -> Option<u32> {
        if self.is_full() || !self.has_room(description) {
            return None;
        }
        let index = self.index;
        self.index += 1;
        Record::Producer { index, epoch, description }.write(&mut self.pending);
        Some(index)
    }

    /// Appends an entry of a described producer, whose sequence is greater than those before it. Returns the place of
    /// its content in the file after the next commit; `None` if there is no room before that, or the content is too
    /// long.
    pub(crate) fn append(&mut self, index: u32, sequence: i64, content: &[u8]) -> Option<u64> {
        if !self.has_room(content) {
            return None;
        }
        Record::Entry { index, sequence, content }.write(&mut self.pending);
        let before = self.pending.len() - content.len();
        Some(self.length + (frame::FRAME_HEAD_BYTES + before) as u64)
    }

    /// Returns true if a record with this content may be added: a reader takes a frame with a record more than are
    /// pending, and no longer one.
    fn has_room(&self, content: &[u8]) -> bool {
        self.pending.len() < self.capacity.pending && content.len() <= self.capacity.content
    }

    /// Commits all pending records at once. After an error of writing they stay pending.
    pub(crate) fn commit(&mut self, level: Level) -> Result<(), Error> {
        if !self.pending.is_empty() {
            let mut frame = Vec::with_capacity(frame::FRAME_HEAD_BYTES + self.pending.len());
            frame::write(self.frame, &self.pending, &mut frame);
            if let Err(e) = self.write(&frame, self.length) {
                // A part of a frame would hide nothing, but waste a scan.
                let _ = self.cut();
                return Err(e);
            }
            self.length += frame.len() as u64;
            self.frame += 1;
            self.pending.clear();
        }
        match level {
            Level::Memory => Ok(()),
            Level::Disk => self.sync(),
        }
    }

    /// Syncs the written frames.
    pub(crate) fn sync(&mut self) -> Result<(), Error> {
        match self.state {
            State::Sound => {}
            State::Suspect => return self.replace(),
            State::Lost => return Err(Error::damaged(&self.path, &LOST)),
        }
        self.file.sync().map_err(|e| {
            self.state = State::Suspect;
            io_at(&self.path, "the log cannot be synced")(e)
        })
    }

    /// Writes the log to another file, which takes its place.
    fn replace(&mut self) -> Result<(), Error> {
        let failed = |e| io_at(&self.path, "the log cannot be replaced after a failed sync")(e);
        let mut bytes = vec![0; usize::try_from(self.length).unwrap_or(0)];
        self.file.read_at(&mut bytes, 0).map_err(failed)?;
        let found = frame::find(&bytes);
        if found.lost > 0 || found.next != self.frame || found.end as u64 != self.length {
            self.state = State::Lost;
            return Err(Error::damaged(&self.path, &LOST));
        }
        let temporary = self.path.with_extension("tmp");
        match self.disk.remove(&temporary) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(failed(e)),
            _ => {}
        }
        let file = self.disk.create(&temporary).map_err(failed)?;
        let written = file.write_at(&bytes, 0).and_then(|()| file.sync());
        let named = written.and_then(|()| self.disk.rename(&temporary, &self.path));
        if let Err(e) = named {
            // On a full disk it would take the room of the next frames. The next attempt removes it too.
            let _ = self.disk.remove(&temporary);
            return Err(failed(e));
        }
        self.file = file;
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let synced = self.disk.sync_folder(folder);
        synced.map_err(io_at(folder, "the folder cannot be synced"))?;
        self.state = State::Sound;
        Ok(())
    }

    fn write(&self, bytes: &[u8], at: u64) -> Result<(), Error> {
        self.file.write_at(bytes, at).map_err(io_at(&self.path, "the log cannot be written"))
    }

    fn cut(&self) -> Result<(), Error> {
        self.file.cut(self.length).map_err(io_at(&self.path, "the log cannot be cut"))
    }
}

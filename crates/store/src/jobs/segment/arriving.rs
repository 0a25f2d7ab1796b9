//! A segment that arrives as a file: its bytes are checked while they are written, so they are not read again.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use super::name::SegmentName;
use super::reader::Segment;
use crate::log::{Disk as _, DiskFile, Error, OsDisk, io_at};
use crate::sealed::BlockSums;

/// A segment that arrives piece by piece.
pub struct ArrivingSegment {
    path: PathBuf,
    file: Box<dyn DiskFile>,
    /// Bytes that were written.
    at: u64,
    /// The place at which the tail begins. The tail is read again when the segment is opened.
    tail_at: u64,
    sums: BlockSums,
}

impl fmt::Debug for ArrivingSegment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArrivingSegment({}, {} bytes)", self.path.display(), self.at)
    }
}

impl ArrivingSegment {
    /// Makes the file of a segment that has `length` bytes. A file of this name is removed.
    ///
    /// # Errors
    /// The name is not that of a segment of this length, or the file cannot be made.
    pub fn new(folder: &Path, name: &str, length: u64) -> Result<Self, Error> {
        let parsed = SegmentName::parse(name).filter(|parsed| parsed.file_name() == name);
        let tail_at = parsed.and_then(|parsed| length.checked_sub(parsed.tail));
        let Some(tail_at) = tail_at else {
            return Err(Error::refused(folder, &"a name is not that of a segment of its length"));
        };
        let path = folder.join(name);
        match OsDisk.remove(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                return Err(io_at(&path, "it cannot be removed")(e));
            }
            _ => {}
        }
        let file = OsDisk.create(&path).map_err(io_at(&path, "it cannot be made"))?;
        Ok(Self { path, file, at: 0, tail_at, sums: BlockSums::default() })
    }

    /// Writes the next piece.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&mut self, piece: &[u8]) -> Result<(), Error> {
        self.file.write_at(piece, self.at).map_err(io_at(&self.path, "it cannot be written"))?;
        let of_rows = self.tail_at.saturating_sub(self.at).min(piece.len() as u64);
        // Not longer than the piece.
        self.sums.update(&piece[..of_rows as usize]);
        self.at += piece.len() as u64;
        Ok(())
    }

    /// Syncs the file, and opens it once each of its bytes is checked.
    ///
    /// # Errors
    /// The file cannot be synced or read, or it is not the segment that its name says.
    pub fn finish(self) -> Result<Segment, Error> {
        self.file.sync().map_err(io_at(&self.path, "it cannot be synced"))?;
        let segment = Segment::open(&self.path)?;
        segment.compare(&self.sums.finish())?;
        Ok(segment)
    }
}

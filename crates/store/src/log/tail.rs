//! Follows a log frame by frame, also while it is written.

use std::collections::BTreeMap;
use std::path::Path;

use super::disk::DiskFile;
use super::error::{Error, io_at};
use super::frame::{FRAME_HEAD_BYTES, FrameHead, HEAD_BYTES};
use super::record::{Record, records_of};

/// A reader that goes on where it ended. Its owner says up to which byte the log is durable.
#[derive(Debug)]
pub(crate) struct Tail {
    generation: u64,
    at: u64,
    /// Number of the next frame.
    frame: u32,
    /// Number of frames that could not be read.
    lost: u64,
    /// Epoch and description of each producer, by index.
    producers: BTreeMap<u32, (i64, Vec<u8>)>,
}

/// An entry with its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Followed<'b> {
    pub(crate) description: &'b [u8],
    pub(crate) epoch: i64,
    pub(crate) sequence: i64,
    pub(crate) content: &'b [u8],
}

impl Tail {
    /// Returns a reader at the beginning of the log of a generation.
    pub(crate) fn new(generation: u64) -> Self {
        let at = HEAD_BYTES as u64;
        Self { generation, at, frame: 0, lost: 0, producers: BTreeMap::new() }
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the place in the file of the next frame.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Returns the number of frames that could not be read.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Passes the entries of the next frame before `end` to `visit`. Returns false if there is none. A damaged frame is
    /// counted and passed over.
    ///
    /// # Errors
    /// The file cannot be read; the same frame is read again by the next call.
    pub(crate) fn next(
        &mut self,
        (file, path): (&dyn DiskFile, &Path),
        end: u64,
        visit: &mut dyn FnMut(Followed<'_>),
    ) -> Result<bool, Error> {
        let failed = |e| io_at(path, "it cannot be read")(e);
        let end = end.min(file.length().map_err(failed)?);
        if self.at.saturating_add(FRAME_HEAD_BYTES as u64) > end {
            return Ok(false);
        }
        let mut head = [0; FRAME_HEAD_BYTES];
        file.read_at(&mut head, self.at).map_err(failed)?;
        let from = self.at + FRAME_HEAD_BYTES as u64;
        if let Some(head) = FrameHead::read(&head)
            && head.number >= self.frame
            && from + head.length as u64 <= end
        {
            let mut records = vec![0; head.length];
            file.read_at(&mut records, from).map_err(failed)?;
            (self.frame, self.at) = (head.number.saturating_add(1), from + head.length as u64);
            match records_of(&records).filter(|_| crc32fast::hash(&records) == head.sum) {
                Some(records) => self.visit(&records, visit),
                None => self.lost += 1,
            }
            return Ok(true);
        }
        self.lost += 1;
        self.skip(file, end).map_err(failed)?;
        Ok(self.at < end)
    }

    /// Goes on to the next head of a frame; to the end if there is none.
    fn skip(&mut self, file: &dyn DiskFile, end: u64) -> std::io::Result<()> {
        let mut rest = vec![0; usize::try_from(end - self.at).unwrap_or(0)];
        file.read_at(&mut rest, self.at)?;
        let is_head = |at: &usize| {
            let head = rest.get(*at..).and_then(FrameHead::read);
            head.is_some_and(|head| {
                head.number >= self.frame && at + FRAME_HEAD_BYTES + head.length <= rest.len()
            })
        };
        self.at = (1..rest.len()).find(is_head).map_or(end, |at| self.at + at as u64);
        Ok(())
    }

    fn visit(&mut self, records: &[Record<'_>], visit: &mut dyn FnMut(Followed<'_>)) {
        for record in records {
            match *record {
                Record::Producer { index, epoch, description } => {
                    self.producers.insert(index, (epoch, description.to_vec()));
                }
                Record::Entry { index, sequence, content } => {
                    // Its producer may have been described in a lost frame.
                    let Some((epoch, description)) = self.producers.get(&index) else { continue };
                    visit(Followed { description, epoch: *epoch, sequence, content });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use super::*;
    use crate::log::simulated::SimulatedDisk;
    use crate::log::{Capacity, Disk as _, Level, LogWriter};

    fn read(tail: &mut Tail, disk: &SimulatedDisk, path: &Path, end: u64) -> Vec<(i64, String)> {
        let file = disk.open_to_read(path).expect("a log");
        let mut found = Vec::new();
        let mut add = |entry: Followed<'_>| {
            assert_eq!((entry.description, entry.epoch), (&b"p"[..], 3));
            let content = String::from_utf8_lossy(entry.content).into_owned();
            found.push((entry.sequence, content));
        };
        while tail.next((&*file, path), end, &mut add).expect("readable") {}
        found
    }

    #[test]
    fn a_log_is_followed_while_it_is_written_and_a_damaged_frame_is_counted() {
        let (disk, path) = (SimulatedDisk::new(1), PathBuf::from("/f/log"));
        let shared = Arc::new(disk.clone());
        let capacity = Capacity::new(1 << 10, 1 << 10);
        let mut log = LogWriter::create(shared, path.clone(), 7, capacity).expect("made");
        let index = log.describe(3, b"p").expect("room");
        let mut tail = Tail::new(7);
        let mut ends = vec![log.length()];
        for sequence in 0..5 {
            assert_eq!(read(&mut tail, &disk, &path, log.length()), [], "nothing is new");
            log.append(index, sequence, b"content").expect("room");
            log.commit(Level::Disk).expect("written");
            assert_eq!(read(&mut tail, &disk, &path, ends[sequence as usize]), []);
            let found = read(&mut tail, &disk, &path, log.length());
            assert_eq!(found, [(sequence, "content".to_owned())]);
            ends.push(log.length());
        }
        assert_eq!((tail.lost(), tail.at()), (0, log.length()));
        for at in [ends[2] + 1, ends[2] + 30] {
            let file = disk.open(&path).expect("a log");
            let mut byte = [0];
            file.read_at(&mut byte, at).expect("there");
            file.write_at(&[byte[0] ^ 1], at).expect("written");
            let mut tail = Tail::new(7);
            let found = read(&mut tail, &disk, &path, log.length());
            assert_eq!(
                found.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(),
                [0, 1, 3, 4]
            );
            assert_eq!(tail.lost(), 1);
            file.write_at(&byte, at).expect("written");
        }
    }
}

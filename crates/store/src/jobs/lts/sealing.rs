//! Seals parts into segments.

use std::path::Path;

use skopos_model::{Timestamp, unpoisoned};

use super::folder::{Lts, Placed};
use super::state::Known;
use crate::jobs::part::JobPart;
use crate::jobs::segment::{SegmentInfo, SegmentName, SegmentWriter, sum_of};
use crate::log::Error;

/// The most parts of a segment. Its list of parts is some 100 kB then, which a reader of one job reads; with fewer
/// parts the metadata of Parquet would be a larger share.
pub(super) const SEGMENT_PARTS: usize = 500;

/// The most bytes of contents of a segment, beyond which no further part is added. One file is written, verified and
/// downloaded in seconds.
pub(super) const SEGMENT_BYTES: u64 = 256 << 20;

impl Lts {
    /// Seals parts, and returns their places in the order of `parts`. They are durable then. A part that exists already
    /// is not written again. `now` is the time of the wall clock.
    ///
    /// # Errors
    /// A part exists with other records, which the caller has to seal under another number; or the disk failed. Then some
    /// of the parts may exist; sealing them again is right.
    pub fn seal(&self, parts: &[JobPart], now: Timestamp) -> Result<Vec<Placed>, Error> {
        let _writing = unpoisoned(self.writing.lock());
        self.catch_up()?;
        let mut order: Vec<usize> = (0..parts.len()).collect();
        let key = |at: &usize| (&parts[*at].id, parts[*at].number);
        order.sort_by(|a, b| key(a).cmp(&key(b)));
        let mut placed: Vec<Option<Placed>> = vec![None; parts.len()];
        // Parts that are not there, each with the places of its copies in `parts`.
        let mut new: Vec<Vec<usize>> = Vec::new();
        for at in order {
            let part = &parts[at];
            if let Some(last) = new.last_mut().filter(|last| key(&last[0]) == key(&at)) {
                if *part != parts[last[0]] {
                    return Err(self.conflict(part));
                }
                last.push(at);
                continue;
            }
            match self.find_part(&part.id, part.number)? {
                Some((_, known)) if known.sum != sum_of(part) => return Err(self.conflict(part)),
                Some((segment, known)) => placed[at] = Some(Placed::new(segment.name(), &known)),
                None => new.push(vec![at]),
            }
        }
        let written = self.write(new.iter().map(|copies| Ok(&parts[copies[0]])), now)?;
        let written = written.iter().flat_map(|segment| {
            segment.parts.iter().map(move |part| Placed::new(&segment.name, part))
        });
        for (copies, place) in new.iter().zip(written) {
            copies.iter().for_each(|at| placed[*at] = Some(place.clone()));
        }
        Ok(placed.into_iter().flatten().collect())
    }

    fn conflict(&self, part: &JobPart) -> Error {
        let (id, number) = (&part.id, part.number);
        let why = format!("part {number} of the job {id} exists with other records");
        Error::refused(&self.folder, &why)
    }

    /// Writes sorted parts into segments. The caller has the right to write.
    pub(super) fn write<P: std::borrow::Borrow<JobPart>>(
        &self,
        parts: impl Iterator<Item = Result<P, Error>>,
        now: Timestamp,
    ) -> Result<Vec<SegmentInfo>, Error> {
        let written = self.try_write(parts, now);
        if written.is_err() {
            // A segment may exist although its folder could not be synced.
            self.state().is_behind = true;
        }
        written
    }

    fn try_write<P: std::borrow::Borrow<JobPart>>(
        &self,
        parts: impl Iterator<Item = Result<P, Error>>,
        now: Timestamp,
    ) -> Result<Vec<SegmentInfo>, Error> {
        let mut segments = Vec::new();
        let mut current: Option<SegmentWriter> = None;
        for part in parts {
            let part = part?;
            let is_full = |writer: &SegmentWriter| {
                writer.parts() >= SEGMENT_PARTS || writer.bytes() >= SEGMENT_BYTES
            };
            if let Some(full) = current.take_if(|writer| is_full(writer)) {
                segments.push(self.finish(full, now)?);
            }
            let writer = match &mut current {
                Some(writer) => writer,
                none => {
                    let number = self.state().next_number;
                    let folder: &Path = &self.folder;
                    none.insert(SegmentWriter::on(self.disk.clone(), folder, number, now)?)
                }
            };
            writer.push(part.borrow())?;
        }
        if let Some(last) = current {
            segments.push(self.finish(last, now)?);
        }
        Ok(segments)
    }

    fn finish(&self, writer: SegmentWriter, now: Timestamp) -> Result<SegmentInfo, Error> {
        let info = writer.finish()?;
        let name = SegmentName::parse(&info.name);
        let name = name.ok_or_else(|| Error::refused(&self.folder, &"a segment without name"))?;
        let (bytes, parts, sealed) = (info.bytes, info.parts.len(), now.as_nanos());
        self.state().insert(Known { name, bytes, parts, sealed }, &info.parts);
        Ok(info)
    }
}

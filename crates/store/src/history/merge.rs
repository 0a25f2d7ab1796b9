//! Merges parts: reads them side by side, each in the order of its rows, and writes one part with all of their generations.
//!
//! The new part is durable and verified before the parts that it replaces are removed. If the process ends between the
//! two, readers take the new part, and the next chores remove the others.

use std::path::Path;
use std::sync::Arc;

use super::chunks::{Chunk, Chunks, Run};
use super::column::Column;
use super::part::Part;
use super::seal::{PartName, Sealer};
use super::selection::Selection;
use crate::log::{Disk, Error, io_at};

/// Rows that are read of a part at once. Texts of so many rows have a megabyte.
const ROWS_AT_ONCE: usize = 256;

/// Writes one part with the rows of parts of consecutive generations, which are in the order of these. Returns its name and
/// its length in bytes.
///
/// # Errors
/// A part is damaged, or cannot be read; the new one cannot be written.
pub(super) fn merge(
    disk: &Arc<dyn Disk>,
    folder: &Path,
    parts: &[PartName],
) -> Result<(PartName, u64), Error> {
    let (Some(first), Some(last)) = (parts.first(), parts.last()) else {
        return Err(Error::refused(folder, &"there are no parts to merge"));
    };
    let open = |part: &PartName| Cursor::open(&**disk, &folder.join(part.file_name()));
    let mut cursors: Vec<Cursor> = parts.iter().map(open).collect::<Result<_, Error>>()?;
    let rows: u64 = cursors.iter().map(|cursor| cursor.part.rows()).sum();
    let mut sealer = Sealer::on(disk.clone(), folder, first.first..=last.last)?;
    let temporary = sealer.temporary().to_path_buf();
    let merged = copy(&mut cursors, &mut sealer).and_then(|()| match sealer.rows() == rows {
        true => sealer.finish_part(),
        false => Err(Error::refused(&temporary, &"it would not have all rows of its parts")),
    });
    if merged.is_err() {
        // On a full disk it would take the room of the log. A later attempt removes it, too.
        let _ = disk.remove(&temporary);
    }
    merged
}

/// Verifies a merged part, makes its name durable, and removes the parts that it replaces.
///
/// # Errors
/// The merged part is damaged or cannot be read; the folder cannot be synced; a part cannot be removed.
pub(super) fn replace(
    disk: &dyn Disk,
    folder: &Path,
    merged: &PartName,
    parts: &[PartName],
) -> Result<(), Error> {
    Part::verify(disk, &folder.join(merged.file_name()))?;
    disk.sync_folder(folder).map_err(io_at(folder, "the folder cannot be synced"))?;
    for part in parts {
        let path = folder.join(part.file_name());
        disk.remove(&path).map_err(io_at(&path, "it cannot be removed"))?;
    }
    Ok(())
}

/// Appends all stretches of all parts, by topic, then time. Stretches that begin at the same time come in the order of
/// their generations.
fn copy(cursors: &mut [Cursor], sealer: &mut Sealer) -> Result<(), Error> {
    for cursor in &mut *cursors {
        cursor.fill()?;
    }
    loop {
        let ready = cursors.iter_mut().filter(|cursor| cursor.run().is_some());
        let Some(next) = ready.min_by(|a, b| a.key().cmp(&b.key())) else { return Ok(()) };
        next.copy_stretch(sealer)?;
    }
}

/// The place in a part up to which its rows were copied.
struct Cursor {
    part: Part,
    /// All rows.
    selection: Selection,
    /// The group after that of `chunks`.
    group: usize,
    chunks: Chunks,
    chunk: Chunk,
    /// The next run of the chunk.
    at: usize,
}

impl Cursor {
    fn open(disk: &dyn Disk, path: &Path) -> Result<Self, Error> {
        let part = Part::open_on(disk, path)?;
        let stretches = (0..part.stretches().len()).map(|at| (at, i64::MAX)).collect();
        let selection = Selection { stretches, times: i64::MIN..=i64::MAX };
        let (chunks, chunk) = (Chunks::nothing(), Chunk::default());
        Ok(Self { part, selection, group: 0, chunks, chunk, at: 0 })
    }

    /// Returns the run that is copied next; `None` at the end of the part.
    fn run(&self) -> Option<&Run> {
        self.chunk.runs.get(self.at)
    }

    /// Returns the place of the next stretch among those of all parts.
    fn key(&self) -> Option<(&str, i64)> {
        let stretch = &self.part.stretches()[self.run()?.stretch];
        Some((stretch.series.topic.as_str(), stretch.first.as_nanos()))
    }

    /// Reads until there is a next run, or the part ends.
    fn fill(&mut self) -> Result<(), Error> {
        while self.run().is_none() {
            if let Some(chunk) = self.chunks.next() {
                (self.chunk, self.at) = (chunk?, 0);
            } else if self.group < self.part.groups() {
                let chunks = self.part.read(self.group, &Column::ALL, &self.selection)?;
                self.chunks = chunks.at_once(ROWS_AT_ONCE);
                self.group += 1;
            } else {
                break;
            }
        }
        Ok(())
    }

    /// Appends the rest of the stretch of the next run.
    fn copy_stretch(&mut self, sealer: &mut Sealer) -> Result<(), Error> {
        let Some(stretch) = self.run().map(|run| run.stretch) else { return Ok(()) };
        while let Some(run) = self.run().filter(|run| run.stretch == stretch) {
            let rows = run.start..run.start + run.rows;
            sealer.append(&self.part.stretches()[stretch].series, &self.chunk.samples, rows)?;
            self.at += 1;
            self.fill()?;
        }
        Ok(())
    }
}

//! Takes over whole segments, which come as files. They get their place once every byte is checked.

use std::fs::{self, File};

use skopos_serve::downloads::FileMetadata;
use skopos_serve::fetch::{FetchError, Fetcher};
use skopos_store::history::Error;
use skopos_store::jobs::{ArrivingSegment, Segment, SegmentWriter};
use skopos_term::Failure;

use super::folder::{Folder, failed};
use super::task::Task;

/// Downloads the file of a segment. Returns the numbers of parts, records and bytes.
pub(super) fn fetch(
    hub: &mut Fetcher,
    (task, file): (&Task, &FileMetadata),
    folder: &Folder,
) -> Result<(u64, u64, u64), FetchError> {
    let not_valid = |why: &str| {
        let text = format!("the segment {:?} that a hub sent is not whole: {why}", file.name);
        FetchError::Failed(Failure::new(text))
    };
    // The name comes from a hub and becomes a path, unless it is refused.
    let path = folder.arriving().join(&file.name);
    let local = |e: &Error| FetchError::Local(failed(&path, "written", e));
    let arriving = ArrivingSegment::new(&folder.arriving(), &file.name, file.bytes);
    let mut arriving = arriving.map_err(|e| match &e {
        Error::Refused { why, .. } => not_valid(why),
        e => local(e),
    })?;
    let mut write = |piece: &[u8]| arriving.write(piece).map_err(|e| failed(&path, "written", &e));
    let got = hub.get_file(&task.endpoint.ticket, file.bytes, &mut write);
    let checked = got.and_then(|()| {
        let segment = arriving.finish().map_err(|e| match &e {
            Error::Io { .. } => local(&e),
            e => not_valid(&e.to_string()),
        })?;
        let sent = segment.parts().iter().map(|part| (part.id.clone(), part.number));
        match task.parts().into_iter().eq(sent) {
            true => Ok(segment),
            false => Err(not_valid("it has the parts of other jobs")),
        }
    });
    let segment = match checked {
        Ok(segment) => segment,
        Err(e) => {
            // The next call empties the folder, too.
            let _ = fs::remove_file(&path);
            return Err(e);
        }
    };
    keep(&segment, (&path, file), folder).map_err(FetchError::Local)
}

/// Puts a segment among the others, or its parts alone that are not there yet.
fn keep(
    segment: &Segment,
    (path, file): (&std::path::Path, &FileMetadata),
    folder: &Folder,
) -> Result<(u64, u64, u64), Failure> {
    let is_new = |id, number| !folder.has(id, number);
    let parts: Vec<_> =
        segment.parts().iter().filter(|part| is_new(&part.id, part.number)).collect();
    let records = parts.iter().map(|part| part.rows.end - part.rows.start).sum();
    if parts.len() == segment.parts().len() {
        let to = folder.path.join(&file.name);
        fs::rename(path, &to).map_err(|e| failed(&to, "renamed", &e))?;
        let synced = File::open(&folder.path).and_then(|folder| folder.sync_all());
        synced.map_err(|e| failed(&folder.path, "synced", &e))?;
    } else {
        let unwritten = |e: &dyn std::error::Error| failed(&folder.path, "written", e);
        let writer = SegmentWriter::new(&folder.path, folder.number(), segment.sealed());
        let mut writer = writer.map_err(|e| unwritten(&e))?;
        for part in &parts {
            let part = segment.read_part(part).map_err(|e| unwritten(&e))?;
            writer.push(&part).map_err(|e| unwritten(&e))?;
        }
        writer.finish().map_err(|e| unwritten(&e))?;
        fs::remove_file(path).map_err(|e| failed(path, "removed", &e))?;
    }
    folder.add(parts.iter().map(|part| (part.id.clone(), part.number)));
    Ok((parts.len() as u64, records, file.bytes))
}

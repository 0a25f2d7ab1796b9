//! Takes over whole segments, which come as files. They get their place once every byte is checked.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;

use skopos_serve::downloads::FileMetadata;
use skopos_serve::fetch::{FetchError, Fetcher};
use skopos_store::history::Error;
use skopos_store::jobs::{ArrivingSegment, JobPart, PartInfo, PartReader, Segment, SegmentWriter};
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
    keep(&Arc::new(segment), (&path, file), folder).map_err(FetchError::Local)
}

/// Puts a segment among the others, or else its parts that are not there yet, with the records that are wanted.
fn keep(
    segment: &Arc<Segment>,
    (path, file): (&Path, &FileMetadata),
    folder: &Folder,
) -> Result<(u64, u64, u64), Failure> {
    let is_new = |part: &&PartInfo| !folder.has(&part.id, part.number);
    let parts: Vec<&PartInfo> = segment.parts().iter().filter(is_new).collect();
    if parts.len() < segment.parts().len() || !folder.wanted.is_all() {
        let kept = keep_some(segment, &parts, folder)?;
        fs::remove_file(path).map_err(|e| failed(path, "removed", &e))?;
        return Ok(kept);
    }
    let to = folder.path.join(&file.name);
    fs::rename(path, &to).map_err(|e| failed(&to, "renamed", &e))?;
    let synced = File::open(&folder.path).and_then(|folder| folder.sync_all());
    synced.map_err(|e| failed(&folder.path, "synced", &e))?;
    let records = parts.iter().map(|part| part.rows.end - part.rows.start).sum();
    folder.add(parts.iter().map(|part| (part.id.clone(), part.number)));
    Ok((parts.len() as u64, records, file.bytes))
}

/// Writes parts of a segment with the records that are wanted. Returns the numbers of parts, records and bytes.
fn keep_some(
    segment: &Arc<Segment>,
    parts: &[&PartInfo],
    folder: &Folder,
) -> Result<(u64, u64, u64), Failure> {
    let unwritten = |e: &dyn std::error::Error| failed(&folder.path, "written", e);
    let writer = SegmentWriter::new(&folder.path, folder.number(), segment.sealed());
    let mut writer = writer.map_err(|e| unwritten(&e))?;
    let (mut reader, mut kept, mut sum) = (PartReader::default(), Vec::new(), (0, 0));
    let is_wanted = |kind| folder.wanted.has_kind(kind);
    for part in parts {
        let records = reader.read(segment, part, &is_wanted).map_err(|e| unwritten(&e))?;
        if records.is_empty() {
            continue;
        }
        sum.0 += records.len() as u64;
        sum.1 += records.iter().map(|record| record.as_bytes().len() as u64).sum::<u64>();
        // Marks tell that all records of a producer are there.
        let marks = if folder.wanted.is_all() { part.marks.clone() } else { Vec::new() };
        let (id, number) = (part.id.clone(), part.number);
        let part = JobPart { id: id.clone(), number, records, marks };
        writer.push(&part).map_err(|e| unwritten(&e))?;
        kept.push((id, number));
    }
    let written = match kept.is_empty() {
        true => writer.abandon(),
        false => writer.finish().map(drop),
    };
    written.map_err(|e| unwritten(&e))?;
    let count = kept.len() as u64;
    folder.add(kept);
    Ok((count, sum.0, sum.1))
}

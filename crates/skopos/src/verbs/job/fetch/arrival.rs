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
    let not_valid = |why: &str| not_whole(&file.name, why);
    // The name comes from a hub and becomes a path, unless it is refused.
    let path = folder.arriving().join(&file.name);
    let arriving = ArrivingSegment::new(&folder.arriving(), &file.name, file.bytes);
    let mut arriving = arriving.map_err(|e| match &e {
        Error::Refused { why, .. } => not_valid(why),
        e => local(&path, "written", e),
    })?;
    let mut write = |piece: &[u8]| arriving.write(piece).map_err(|e| failed(&path, "written", &e));
    let got = hub.get_file(&task.endpoint.ticket, file.bytes, &mut write);
    let checked = got.and_then(|()| {
        let segment = arriving.finish().map_err(|e| match &e {
            Error::Io { .. } => local(&path, "written", &e),
            e => not_valid(&e.to_string()),
        })?;
        let sent = segment.parts().iter().map(|part| (part.id.clone(), part.number));
        match task.parts().into_iter().eq(sent) {
            true => Ok(segment),
            false => Err(not_valid("it has the parts of other jobs")),
        }
    });
    let kept = checked.and_then(|segment| keep(&Arc::new(segment), (&path, file), folder));
    if kept.is_err() {
        // The next call empties the folder, too.
        let _ = fs::remove_file(&path);
    }
    kept
}

/// Returns the failure of a segment. Another location, or its parts one by one, may be whole.
fn not_whole(name: &str, why: &str) -> FetchError {
    let text = format!("the segment {name:?} that a hub sent is not whole: {why}");
    FetchError::Failed(Failure::new(text))
}

fn local(path: &Path, what: &str, e: &dyn std::error::Error) -> FetchError {
    FetchError::Local(failed(path, what, e))
}

/// Puts a segment among the others, or else its parts that are not there yet, with the records that are wanted.
fn keep(
    segment: &Arc<Segment>,
    (path, file): (&Path, &FileMetadata),
    folder: &Folder,
) -> Result<(u64, u64, u64), FetchError> {
    let is_new = |part: &&PartInfo| !folder.has(&part.id, part.number);
    let parts: Vec<&PartInfo> = segment.parts().iter().filter(is_new).collect();
    if parts.len() < segment.parts().len() || !folder.wanted.is_all() {
        let kept = keep_some(segment, &parts, folder)?;
        fs::remove_file(path).map_err(|e| local(path, "removed", &e))?;
        return Ok(kept);
    }
    let to = folder.path.join(&file.name);
    fs::rename(path, &to).map_err(|e| local(&to, "renamed", &e))?;
    let synced = File::open(&folder.path).and_then(|folder| folder.sync_all());
    synced.map_err(|e| local(&folder.path, "synced", &e))?;
    let records = parts.iter().map(|part| part.rows.end - part.rows.start).sum();
    folder.add(parts.iter().map(|part| (part.id.clone(), part.number)));
    Ok((parts.len() as u64, records, file.bytes))
}

/// Writes parts of a segment with the records that are wanted. Returns the numbers of parts, records and bytes.
fn keep_some(
    segment: &Arc<Segment>,
    parts: &[&PartInfo],
    folder: &Folder,
) -> Result<(u64, u64, u64), FetchError> {
    let unwritten = |e: Error| local(&folder.path, "written", &e);
    let writer = SegmentWriter::new(&folder.path, folder.number(), segment.sealed());
    let mut writer = writer.map_err(unwritten)?;
    let (mut reader, mut kept, mut sum) = (PartReader::default(), 0, (0, 0));
    let is_wanted = |kind| folder.wanted.has_kind(kind);
    for part in parts {
        let mut records = match reader.read(segment, part, &is_wanted) {
            Ok(records) => records,
            Err(e) => {
                // The next call removes unfinished files, too.
                let _ = writer.abandon();
                return Err(match &e {
                    Error::Io { .. } => local(&folder.path, "read", &e),
                    e => not_whole(segment.name(), &e.to_string()),
                });
            }
        };
        // The kinds alone are left out so far, and a hub may send a file in spite of further conditions.
        records.retain(|record| record.get().is_some_and(|record| folder.wanted.has(&record)));
        if records.is_empty() {
            continue;
        }
        sum.0 += records.len() as u64;
        sum.1 += records.iter().map(|record| record.as_bytes().len() as u64).sum::<u64>();
        // Marks tell that all records of a producer are there.
        let marks = if folder.wanted.is_all() { part.marks.clone() } else { Vec::new() };
        let part = JobPart { id: part.id.clone(), number: part.number, records, marks };
        writer.push(&part).map_err(unwritten)?;
        kept += 1;
    }
    let written = match kept {
        0 => writer.abandon(),
        _ => writer.finish().map(drop),
    };
    written.map_err(unwritten)?;
    // A part without a wanted record is not asked for again, either.
    folder.add(parts.iter().map(|part| (part.id.clone(), part.number)));
    Ok((kept, sum.0, sum.1))
}

#[cfg(test)]
mod tests {
    use skopos_hub::jobs::Wanted;
    use skopos_model::Timestamp;
    use skopos_model::job::{JobId, JobRecord, Kind};
    use skopos_store::jobs::StoredRecord;

    use super::*;

    /// Returns a part of a job with a start and a measurement of each of two schemas.
    fn part(job: &str) -> JobPart {
        let contents = [
            (Kind::Start, b"{}".to_vec()),
            (Kind::Sample, JobRecord::sample_content("node", &[1.0])),
            (Kind::Sample, JobRecord::sample_content("gpu", &[2.0])),
        ];
        let record = |(at, (kind, content)): (i64, (Kind, Vec<u8>))| {
            let (time, node, content) = (Timestamp::from_nanos(at), "n01", content.as_slice());
            StoredRecord::of(&JobRecord { kind, job, generation: 0, node, time, content })
        };
        let records = (0..).zip(contents).map(record).collect();
        let id = JobId::new(job, 0).expect("an id");
        JobPart { id, number: 0, records, marks: Vec::new() }
    }

    /// Returns the folder of a download of some records, and a segment of two jobs that has arrived in it.
    fn arrived(out: &Path, wanted: &Wanted) -> (Folder, Arc<Segment>) {
        let folder = Folder::open(out, "s", wanted).expect("a folder");
        let writer = SegmentWriter::new(&folder.arriving(), 0, Timestamp::from_nanos(1));
        let mut writer = writer.expect("a file");
        for job in ["1", "2"] {
            writer.push(&part(job)).expect("taken");
        }
        let name = writer.finish().expect("written").name;
        let segment = Segment::open(&folder.arriving().join(name)).expect("a segment");
        (folder, Arc::new(segment))
    }

    #[test]
    fn a_segment_whose_rows_contradict_its_list_does_not_end_the_download() {
        let out = tempfile::tempdir().expect("a folder");
        let (folder, segment) = arrived(out.path(), &Wanted::default());
        let (first, mut other) = (&segment.parts()[0], segment.parts()[1].clone());
        other.sum ^= 1;
        let error = keep_some(&segment, &[first, &other], &folder).expect_err("it is damaged");
        assert!(matches!(error, FetchError::Failed(_)), "{error:?}");
        assert!(!folder.has(&first.id, first.number));
        let is_file = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|of| of.is_file());
        let listed = fs::read_dir(&folder.path).expect("a folder").flatten();
        assert_eq!(listed.filter(is_file).count(), 0, "the unfinished segment is removed");
    }

    #[test]
    fn of_a_file_the_wanted_records_are_kept_and_no_part_of_it_is_asked_for_again() {
        let (kinds, schemas) = (["end".to_owned()].into(), ["gpu".to_owned()].into());
        for (wanted, parts, records) in [
            // The start says what the measurements mean.
            (Wanted { schemas, ..Wanted::default() }, 2, 4),
            (Wanted { kinds, ..Wanted::default() }, 0, 0),
        ] {
            let out = tempfile::tempdir().expect("a folder");
            let (folder, segment) = arrived(out.path(), &wanted);
            let all: Vec<&PartInfo> = segment.parts().iter().collect();
            let kept = keep_some(&segment, &all, &folder).expect("kept");
            assert_eq!((kept.0, kept.1), (parts, records), "{wanted:?}");
            assert!(all.iter().all(|part| folder.has(&part.id, part.number)), "{wanted:?}");
        }
    }
}

//! Reads segments that another process writes, in a folder or a bucket that both have.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use skopos_model::job::JobId;
use skopos_model::unpoisoned;

use crate::jobs::part::StoredRecord;
use crate::jobs::segment::{Segment, SegmentName};
use crate::log::{Disk, Error, OsDisk};

/// The most segments whose metadata stay in memory, some 300 kB each.
const MAX_OPEN: usize = 64;

/// The segments of a folder that another process writes. Nothing is changed there.
#[derive(Debug)]
pub struct SegmentFiles {
    disk: Arc<dyn Disk>,
    folder: PathBuf,
    /// Segments that were read, the last one at the end.
    open: Mutex<Vec<Arc<Segment>>>,
}

impl SegmentFiles {
    /// Returns the segments of a folder, which need not be there yet.
    pub fn new(folder: &Path) -> Self {
        Self::on(Arc::new(OsDisk), folder)
    }

    /// Returns the segments of a folder on another disk than the operating system's.
    pub fn on(disk: Arc<dyn Disk>, folder: &Path) -> Self {
        Self { disk, folder: folder.to_path_buf(), open: Mutex::default() }
    }

    /// Reads the records of a part in the segment `name`; `None` if the segment does not have it. Every byte is checked.
    ///
    /// # Errors
    /// The name is not one of a segment, or the segment is gone, damaged or cannot be read.
    pub fn read(
        &self,
        name: &str,
        id: &JobId,
        number: u32,
    ) -> Result<Option<Vec<StoredRecord>>, Error> {
        let segment = self.segment(name)?;
        let read = segment.part(id, number).map(|part| segment.read_part(part));
        Ok(read.transpose()?.map(|part| part.records))
    }

    fn segment(&self, name: &str) -> Result<Arc<Segment>, Error> {
        let is_open = |segment: &Arc<Segment>| segment.name() == name;
        if let Some(open) = unpoisoned(self.open.lock()).iter().rev().find(|it| is_open(it)) {
            return Ok(open.clone());
        }
        // The name comes from another hub: only one that a segment can have becomes part of a path.
        let parsed = SegmentName::parse(name).filter(|parsed| parsed.file_name() == name);
        if parsed.is_none() {
            return Err(Error::refused(&self.folder, &"a name is not that of a segment"));
        }
        let segment = Arc::new(Segment::open_on(&*self.disk, &self.folder.join(name))?);
        let mut open = unpoisoned(self.open.lock());
        if open.len() >= MAX_OPEN {
            open.remove(0);
        }
        open.push(segment.clone());
        Ok(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_not_one_of_a_segment_is_never_a_path() {
        let folder = tempfile::tempdir().expect("a folder");
        let files = SegmentFiles::new(folder.path());
        let id = JobId::new("7", 0).expect("an id");
        let good = "segment-00000001-1-2-a-0000000b.parquet";
        for name in [
            "",
            "/etc/passwd",
            "../lts/x.parquet",
            "lock",
            &format!("../{good}"),
            "segment-+1-1-2-a-b.parquet",
        ] {
            let error = files.read(name, &id, 0).expect_err("refused").to_string();
            assert!(error.contains("a name is not that of a segment"), "{name}: {error}");
        }
        let error = files.read(good, &id, 0).expect_err("there is none");
        assert!(error.is_gone(), "{error}");
    }
}

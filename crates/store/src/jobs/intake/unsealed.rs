//! Records that are not sealed, which are read without the intake.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use skopos_model::job::JobId;

use super::jobs::Place;
use crate::jobs::part::{JobPart, Mark, StoredRecord};
use crate::log::{DiskFile, Error, io_at};

/// The unsealed records of a job that a commit has written. Their logs stay open, so they can be read while the intake
/// takes other records, and after they are sealed.
#[derive(Debug, Default)]
pub struct Unsealed {
    pub(super) places: Vec<Place>,
    pub(super) logs: BTreeMap<u64, (PathBuf, Arc<dyn DiskFile>)>,
}

impl Unsealed {
    /// Reads the records, in their order.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn read(&self) -> Result<Vec<StoredRecord>, Error> {
        let mut bytes = Vec::new();
        let mut records = Vec::with_capacity(self.places.len());
        for place in &self.places {
            let Some((path, log)) = self.logs.get(&place.generation) else { continue };
            bytes.resize(place.length as usize, 0);
            log.read_at(&mut bytes, place.at).map_err(io_at(path, "it cannot be read"))?;
            let record = StoredRecord::read(&bytes);
            records.push(record.ok_or_else(|| Error::damaged(path, &"a record is not whole"))?);
        }
        Ok(records)
    }
}

/// A part whose records are not read yet.
#[derive(Debug)]
pub struct UnreadPart {
    pub(super) id: JobId,
    pub(super) number: u32,
    pub(super) marks: Vec<Mark>,
    pub(super) unsealed: Unsealed,
}

impl UnreadPart {
    /// Returns the job.
    pub fn id(&self) -> &JobId {
        &self.id
    }

    /// Reads the records.
    ///
    /// # Errors
    /// A log cannot be read.
    pub fn read(self) -> Result<JobPart, Error> {
        let records = self.unsealed.read()?;
        Ok(JobPart { id: self.id, number: self.number, records, marks: self.marks })
    }
}

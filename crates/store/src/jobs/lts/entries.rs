//! Entries of the catalogue, made again from the segments.

use std::collections::{BTreeMap, BTreeSet};

use skopos_model::job::JobId;
use skopos_model::unpoisoned;

use super::folder::{Lts, Placed};
use super::index::Slot;
use crate::jobs::entry::JobEntry;
use crate::log::Error;

/// Parts of jobs: the number of each and the name of its segment, by number.
pub type PartsOfJobs = BTreeMap<JobId, Vec<(u32, String)>>;

impl Lts {
    /// Passes the entry of every job to `each`, in the order of the jobs' ids. Two folders with the same segments give the
    /// same entries. The ids of all jobs are in memory meanwhile.
    ///
    /// # Errors
    /// A segment is damaged or cannot be read, or `each` failed.
    pub fn entries(
        &self,
        site: &str,
        mut each: impl FnMut(JobEntry) -> Result<(), Error>,
    ) -> Result<(), Error> {
        for id in self.ids()? {
            each(self.entry(site, &id)?)?;
        }
        Ok(())
    }

    /// Returns the entry of a job.
    ///
    /// # Errors
    /// A part is damaged, or it cannot be read.
    pub fn entry(&self, site: &str, id: &JobId) -> Result<JobEntry, Error> {
        let mut entry = JobEntry::new(site, id.clone());
        for (segment, part) in self.find_in_segments(id)? {
            let Some(read) = self.read_part(id, part.number)? else { continue };
            read.records.iter().filter_map(|record| record.get()).for_each(|r| entry.add(&r));
            entry.parts.push(Placed::new(segment.name(), &part).part);
        }
        Ok(entry)
    }

    /// Returns the names of the segments that are not in `known`, and the jobs that have parts there.
    ///
    /// # Errors
    /// A segment is damaged or cannot be read.
    pub fn unknown(
        &self,
        known: &BTreeSet<String>,
    ) -> Result<(Vec<String>, BTreeSet<JobId>), Error> {
        // No compaction removes a segment meanwhile.
        let _writing = unpoisoned(self.writing.lock());
        let all: Vec<(Slot, String)> = {
            let state = self.state();
            let names = state.segments.iter().map(|(slot, known)| (*slot, known.name.file_name()));
            names.filter(|(_, name)| !known.contains(name)).collect()
        };
        let (mut names, mut ids) = (Vec::new(), BTreeSet::new());
        for (slot, name) in all {
            if let Some(segment) = self.segment(slot)? {
                ids.extend(segment.parts().iter().map(|part| part.id.clone()));
                names.push(name);
            }
        }
        Ok((names, ids))
    }

    /// Returns the parts of all jobs that `is_wanted`, with the names of their segments. Of jobs that have no record in
    /// `times`, none is returned. Of a part that a crash left in two segments, the later one counts. Fails with more than
    /// `most` parts. Segments whose list of parts is damaged are left out; their errors are returned, too.
    ///
    /// # Errors
    /// There are too many, or a segment cannot be read.
    pub fn parts(
        &self,
        times: Option<(i64, i64)>,
        most: usize,
        is_wanted: &dyn Fn(&JobId) -> bool,
    ) -> Result<(PartsOfJobs, Vec<Error>), Error> {
        // No compaction removes a segment meanwhile.
        let _writing = unpoisoned(self.writing.lock());
        let slots: Vec<Slot> = self.state().segments.keys().copied().collect();
        let (mut found, mut count) = (BTreeMap::<JobId, BTreeMap<u32, String>>::new(), 0_usize);
        let (mut in_time, mut damaged) = (BTreeSet::new(), Vec::new());
        for slot in slots {
            let segment = match self.segment(slot) {
                Err(e) if e.is_damage() => {
                    damaged.push(e);
                    continue;
                }
                segment => segment?,
            };
            let Some(segment) = segment else { continue };
            for part in segment.parts().iter().filter(|part| is_wanted(&part.id)) {
                if times.is_some_and(|(from, to)| part.times.0 <= to && part.times.1 >= from) {
                    in_time.insert(part.id.clone());
                }
                let parts = found.entry(part.id.clone()).or_default();
                count +=
                    usize::from(parts.insert(part.number, segment.name().to_owned()).is_none());
                if count > most {
                    let why = format!("the statement would read more than {most} parts of jobs");
                    return Err(Error::refused(&self.folder, &why));
                }
            }
        }
        let found = found.into_iter().filter(|(id, _)| times.is_none() || in_time.contains(id));
        Ok((found.map(|(id, parts)| (id, parts.into_iter().collect())).collect(), damaged))
    }

    /// Returns all jobs.
    ///
    /// # Errors
    /// A segment is damaged or cannot be read.
    pub fn ids(&self) -> Result<BTreeSet<JobId>, Error> {
        // No compaction removes a segment meanwhile.
        let _writing = unpoisoned(self.writing.lock());
        let slots: Vec<Slot> = self.state().segments.keys().copied().collect();
        let mut ids = BTreeSet::new();
        for slot in slots {
            if let Some(segment) = self.segment(slot)? {
                ids.extend(segment.parts().iter().map(|part| part.id.clone()));
            }
        }
        Ok(ids)
    }
}

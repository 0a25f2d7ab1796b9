//! The work on a catalogue while no hub runs: making it again from the segments, and comparing it with them.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use skopos_model::job::JobId;
use skopos_store::history::Error as LogError;
use skopos_store::jobs::catalogue::{self, MAX_CHANGE, Sort};
use skopos_store::jobs::{
    Catalogue, Change, Filter, Intake, IntakeLimits, JobEntry, JobKey, Lts, Order, PageRequest,
    Visibility,
};
use thiserror::Error;

use super::sealed::OfSite;
use super::segments::{SegmentsError, SegmentsPlace};
use super::shared::now;
use crate::catalogue::CataloguePlace;

/// Jobs of a change: as many as a segment has.
const CHANGE_JOBS: usize = 500;

/// The segments of a folder of jobs, and the records that are not sealed. No hub uses the folder until this is dropped.
pub struct Mds {
    site: String,
    lts: Lts,
    intake: Intake,
}

/// The reason why the work cannot be done.
#[derive(Debug, Error)]
pub enum MdsError {
    /// There are no jobs.
    #[error("there are no jobs in {0}")]
    NoJobs(PathBuf),
    /// A hub uses the folder.
    #[error("a hub uses the jobs in {0}")]
    Busy(PathBuf),
    /// A file of the jobs cannot be read or written.
    #[error("the jobs cannot be read")]
    Jobs(#[source] LogError),
    /// The segments cannot be opened.
    #[error("the segments cannot be opened")]
    Segments(#[source] SegmentsError),
    /// A file cannot be read or removed.
    #[error("{path} cannot be used")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// The catalogue cannot be read or written.
    #[error("the catalogue cannot be used")]
    Catalogue(#[from] catalogue::Error),
}

/// The content of a catalogue that was made again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Number of jobs.
    pub jobs: usize,
    /// Number of segments.
    pub segments: usize,
    /// Jobs that are not complete in the catalogue, because a part of them cannot be read, each with the reason.
    pub unreadable: Vec<(JobId, String)>,
}

/// The extent of a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Number of jobs.
    pub jobs: usize,
    /// Number of segments.
    pub segments: usize,
    /// Number of differences.
    pub differences: usize,
}

/// A difference between a catalogue and the segments, or damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// A file is damaged.
    Damaged {
        /// The file.
        file: String,
        /// The damage.
        why: String,
        /// Parts that cannot be read.
        lost: usize,
    },
    /// The catalogue does not know a segment.
    UnknownSegment(String),
    /// The catalogue has a segment that does not exist.
    MissingSegment(String),
    /// The catalogue does not know a job.
    UnknownJob(JobId),
    /// The catalogue has a job of which there is no record.
    MissingJob(JobId),
    /// The catalogue has other values than the segments.
    OtherJob(JobId),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged { file, why, lost: 0 } => write!(f, "{file} is damaged: {why}"),
            Self::Damaged { file, why, lost } => {
                write!(f, "{file} is damaged, and {lost} of its parts cannot be read: {why}")
            }
            Self::UnknownSegment(name) => write!(f, "the catalogue does not have {name}"),
            Self::MissingSegment(name) => write!(f, "{name}, which the catalogue has, is missing"),
            Self::UnknownJob(id) => write!(f, "the catalogue does not have the job {id}"),
            Self::MissingJob(id) => {
                write!(f, "the catalogue has the job {id}, of which there is no record")
            }
            Self::OtherJob(id) => write!(f, "the job {id} differs from its segments"),
        }
    }
}

/// The jobs of a site in a catalogue, and the segments that they name.
#[derive(Default)]
struct Known {
    jobs: BTreeSet<JobId>,
    segments: BTreeSet<String>,
}

impl Mds {
    /// Takes the jobs of a folder.
    ///
    /// # Errors
    /// A hub uses them, there are no jobs, or a file cannot be read.
    pub fn open(folder: &Path, segments: &SegmentsPlace) -> Result<Self, MdsError> {
        let path = folder.join("site");
        let site = match std::fs::read_to_string(&path) {
            Ok(site) => site.trim_end().to_owned(),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                return Err(MdsError::NoJobs(folder.to_path_buf()));
            }
            Err(source) => return Err(MdsError::File { path, source }),
        };
        let failed = |e| match e {
            LogError::Busy(_) => MdsError::Busy(folder.to_path_buf()),
            e => MdsError::Jobs(e),
        };
        let lts = segments.open().map_err(|e| match e {
            SegmentsError::Log(e) => failed(e),
            e => MdsError::Segments(e),
        })?;
        let of_site = OfSite { site: &site, lts: &lts };
        let limits = IntakeLimits::default();
        let intake = Intake::open(&folder.join("sts"), limits, &of_site, now()).map_err(failed)?;
        Ok(Self { site, lts, intake })
    }

    /// Makes the catalogue again. In a database, the jobs of other sites stay, and those of this one can be found
    /// meanwhile.
    ///
    /// A hub that starts after this was interrupted adds what is missing.
    ///
    /// # Errors
    /// The catalogue cannot be written, or the segments cannot be read.
    pub fn rebuild(&self, place: &CataloguePlace) -> Result<Rebuilt, MdsError> {
        let (segments, ids) = self.content()?;
        place.remove_file().map_err(|source| {
            let path = PathBuf::from(place.to_string());
            MdsError::File { path, source }
        })?;
        let catalogue = &*place.open()?;
        let known = self.known(catalogue, |_| Ok(()))?;
        let old = self.segments_of_site(catalogue, &known)?;
        // First, so that a catalogue that is made half knows no segment, and a hub adds its jobs.
        for removed_segments in Vec::from_iter(old).chunks(MAX_CHANGE) {
            catalogue.apply(&Change { removed_segments, ..Change::default() })?;
        }
        let mut rebuilt =
            Rebuilt { segments: segments.len(), jobs: ids.len(), unreadable: Vec::new() };
        for ids in Vec::from_iter(&ids).chunks(CHANGE_JOBS) {
            let mut entries = Vec::with_capacity(ids.len());
            for id in ids {
                match self.entry(id) {
                    Ok(entry) => entries.push(entry),
                    Err(e) if e.is_damage() => {
                        rebuilt.unreadable.push(((*id).clone(), e.to_string()))
                    }
                    Err(e) => return Err(MdsError::Jobs(e)),
                }
            }
            let removed: Vec<JobKey> = entries.iter().map(|entry| self.key(&entry.id)).collect();
            catalogue.apply(&Change {
                removed: &removed,
                entries: &entries,
                ..Change::default()
            })?;
        }
        let gone: Vec<JobKey> = known.jobs.difference(&ids).map(|id| self.key(id)).collect();
        for gone in gone.chunks(MAX_CHANGE) {
            catalogue.remove(gone)?;
        }
        for segments in segments.chunks(MAX_CHANGE) {
            catalogue.apply(&Change { segments, ..Change::default() })?;
        }
        rebuilt.jobs -= rebuilt.unreadable.len();
        Ok(rebuilt)
    }

    /// Reads every byte of the segments, compares the catalogue with them, and passes each difference to `each`. The
    /// unsealed records of a job may have reached the catalogue or not, so of such a job the parts alone are compared.
    ///
    /// # Errors
    /// The catalogue or the segments cannot be read.
    pub fn verify(
        &self,
        place: &CataloguePlace,
        each: &mut dyn FnMut(Difference),
    ) -> Result<Verified, MdsError> {
        let catalogue = &*place.open()?;
        let (segments, ids) = self.content()?;
        let mut verified = Verified { jobs: ids.len(), segments: segments.len(), differences: 0 };
        let mut each = |difference| {
            verified.differences += 1;
            each(difference);
        };
        let mut damaged = BTreeSet::new();
        for found in self.lts.verify().map_err(MdsError::Jobs)? {
            damaged.insert(found.damage.file.clone());
            let (file, why) = (found.damage.file, found.damage.why);
            each(Difference::Damaged { file, why, lost: found.lost.len() });
        }
        for found in self.lts.damaged() {
            if damaged.insert(found.file.clone()) {
                each(Difference::Damaged { file: found.file, why: found.why, lost: 0 });
            }
        }
        let known = self.known(catalogue, |entry| {
            match self.matches(&entry) {
                Ok(true) => {}
                Ok(false) if ids.contains(&entry.id) => each(Difference::OtherJob(entry.id)),
                Ok(false) => each(Difference::MissingJob(entry.id)),
                // The damaged file is named already.
                Err(e) if e.is_damage() => {}
                Err(e) => return Err(MdsError::Jobs(e)),
            }
            Ok(())
        })?;
        for id in ids.difference(&known.jobs) {
            // The catalogue is told about a running job some time after its first record.
            if !self.lts.find(id).map_err(MdsError::Jobs)?.is_empty() {
                each(Difference::UnknownJob(id.clone()));
            }
        }
        let here: BTreeSet<String> = segments.into_iter().collect();
        let all = names(catalogue)?;
        here.difference(&all).cloned().map(Difference::UnknownSegment).for_each(&mut each);
        let of_site = self.segments_of_site(catalogue, &known)?;
        let missing = of_site.intersection(&all).filter(|name| !here.contains(*name));
        missing.cloned().map(Difference::MissingSegment).for_each(&mut each);
        Ok(verified)
    }

    /// Returns the segments, and the jobs that have sealed or unsealed records.
    fn content(&self) -> Result<(Vec<String>, BTreeSet<JobId>), MdsError> {
        let all = self.lts.unknown(&BTreeSet::new());
        let (segments, mut ids) = all.map_err(MdsError::Jobs)?;
        ids.extend(self.intake.jobs().map(|(id, _)| id.clone()));
        Ok((segments, ids))
    }

    /// Returns the entry of a job: that of all its records.
    fn entry(&self, id: &JobId) -> Result<JobEntry, LogError> {
        let sealed = self.lts.entry(&self.site, id)?;
        let open = self.intake.job(id).filter(|open| open.unsealed() > 0);
        Ok(open.map_or(sealed, |open| open.entry().clone()))
    }

    /// Returns true if an entry is that of its records.
    fn matches(&self, entry: &JobEntry) -> Result<bool, LogError> {
        let open = self.intake.job(&entry.id);
        if open.is_some_and(|open| open.unsealed() > 0) {
            return Ok(entry.parts == self.lts.find(&entry.id)?);
        }
        Ok(*entry == self.entry(&entry.id)?)
    }

    /// Passes the entries of this site to `each`, and returns the jobs and the segments that they name.
    fn known(
        &self,
        catalogue: &dyn Catalogue,
        mut each: impl FnMut(JobEntry) -> Result<(), MdsError>,
    ) -> Result<Known, MdsError> {
        let mut known = Known::default();
        let order = Order { sort: Sort::Started, is_descending: false };
        let mut request = PageRequest { order, ..PageRequest::default() };
        loop {
            let page = catalogue.entries(&self.filter(), &request)?;
            for entry in page.items {
                known.jobs.insert(entry.id.clone());
                known.segments.extend(entry.parts.iter().map(|part| part.segment.clone()));
                each(entry)?;
            }
            match page.next {
                Some(next) => request.after = Some(next),
                None => return Ok(known),
            }
        }
    }

    /// Returns the segments of this site that the catalogue may have. Where it has jobs of other sites, too, the names alone
    /// do not tell whose they are.
    fn segments_of_site(
        &self,
        catalogue: &dyn Catalogue,
        known: &Known,
    ) -> Result<BTreeSet<String>, MdsError> {
        let all = catalogue.count(&Filter::new(Visibility::Everything))?;
        match all == catalogue.count(&self.filter())? {
            true => names(catalogue),
            false => Ok(known.segments.clone()),
        }
    }

    fn filter(&self) -> Filter {
        Filter { site: Some(self.site.clone()), ..Filter::new(Visibility::Everything) }
    }

    fn key(&self, id: &JobId) -> JobKey {
        JobKey { site: self.site.clone(), id: id.clone() }
    }
}

/// Returns the names of the segments of a catalogue.
fn names(catalogue: &dyn Catalogue) -> Result<BTreeSet<String>, MdsError> {
    let (mut names, mut after) = (BTreeSet::new(), String::new());
    loop {
        let page = catalogue.segments(&after)?;
        let Some(last) = page.last() else { return Ok(names) };
        after.clone_from(last);
        names.extend(page);
    }
}

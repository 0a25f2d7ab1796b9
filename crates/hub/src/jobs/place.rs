//! The folder of jobs, which is opened when it is needed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use skopos_model::job::JobId;
use skopos_model::schema::Metric;
use skopos_model::unpoisoned;
use skopos_store::history::Error as LogError;
use skopos_store::jobs::StoredRecord;
use thiserror::Error;

use super::copies::{Copies, ShownCopies};
use super::helped::HelpedSegments;
use super::replicating::{Replicating, known_storage};
use super::segments::{SegmentsError, SegmentsPlace};
use super::shared::described;
use super::store::{Jobs, JobsLimits};
use crate::bucket::BucketConfig;
use crate::catalogue::{CataloguePlace, PostgresUrl};

/// The place of a site's jobs. It is opened for the first record, or for the first question if the folder exists, so a hub
/// without jobs makes no file and has no thread for them.
#[derive(Debug)]
pub struct JobsPlace {
    /// The folder; `None` if the environment does not determine one.
    folder: Option<PathBuf>,
    site: String,
    settings: JobsSettings,
    /// URL of the bucket of the segments; `None` if they are in the folder.
    bucket: Option<String>,
    /// URLs at which the jobs are downloaded, and those of other sites.
    locations: Vec<String>,
    sites: BTreeMap<String, String>,
    /// True if this program answers without a hub. Jobs are then not opened: a hub that starts meanwhile would find them
    /// taken.
    is_without_hub: bool,
    /// The segments of another hub, which this one reads for it.
    helped: Option<HelpedSegments>,
    opened: Mutex<Option<Arc<Jobs>>>,
    /// The copies of other hubs' jobs.
    copies: Copies,
    /// URL of the replica's listener for Flight, if these jobs have one.
    replica: OnceLock<String>,
}

/// The places of what is not in the folder, and the limits.
#[derive(Clone, Debug, Default)]
pub struct JobsSettings {
    /// The database of the catalogue, if it is not a file in the folder.
    pub database: Option<PostgresUrl>,
    /// The bucket of the segments, if they are not in the folder.
    pub bucket: Option<BucketConfig>,
    /// The limits.
    pub limits: JobsLimits,
}

/// The reason why jobs cannot be stored or read.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PlaceError {
    /// The environment does not determine a folder.
    #[error("the place of jobs is not known: neither SKOPOS_STATE nor HOME is set")]
    Unknown,
    /// There is no hub.
    #[error("jobs are kept and read by a hub; start one with `skopos up` or `skopos hub`")]
    NeedsHub,
    /// Another process uses the folder.
    #[error(
        "another process uses the jobs in {folder}; each hub has a folder of state for itself, \
         which SKOPOS_STATE names"
    )]
    InUse {
        /// The folder.
        folder: String,
    },
    /// The folder cannot be opened.
    #[error("the jobs in {folder} cannot be opened: {why}")]
    Failed {
        /// The folder.
        folder: String,
        /// The causes.
        why: String,
    },
}

impl JobsPlace {
    /// Returns the place of a site's jobs in a folder.
    pub fn new(folder: Option<PathBuf>, site: &str, settings: JobsSettings) -> Self {
        let (site, opened) = (site.to_owned(), Mutex::default());
        let bucket = settings.bucket.as_ref().map(BucketConfig::url);
        let copies = Copies::new(folder.as_deref(), &site, &settings.limits);
        Self {
            folder,
            site,
            settings,
            bucket,
            locations: Vec::new(),
            sites: BTreeMap::new(),
            helped: None,
            is_without_hub: false,
            opened,
            copies,
            replica: OnceLock::new(),
        }
    }

    /// Sets the URLs at which the jobs are downloaded, and those of other sites.
    #[must_use]
    pub fn with_urls(self, locations: Vec<String>, sites: BTreeMap<String, String>) -> Self {
        Self { locations, sites, ..self }
    }

    /// Sets the segments of another hub, which this one reads for it.
    #[must_use]
    pub(crate) fn helping_with(self, helped: Option<HelpedSegments>) -> Self {
        Self { helped, ..self }
    }

    /// Returns the URLs at which the jobs are downloaded; none for the address at which a client asked.
    pub fn locations(&self) -> &[String] {
        &self.locations
    }

    /// Returns the URLs of other sites.
    pub fn sites(&self) -> &BTreeMap<String, String> {
        &self.sites
    }

    /// Returns the name of the site.
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Returns the place of jobs in a folder, for a program that answers without a hub.
    pub fn without_hub(folder: Option<PathBuf>) -> Self {
        Self { is_without_hub: true, ..Self::new(folder, "", JobsSettings::default()) }
    }

    /// Returns the numbers of the jobs with their metrics, always in the same order; zeros unless they are open.
    pub fn numbers(&self) -> [(&'static Metric, u64); 18] {
        // While they are opened, a database may let this wait.
        let opened = self.opened.try_lock().ok();
        Jobs::numbers(opened.as_deref().and_then(Option::as_deref))
    }

    /// Returns true if this program answers without a hub, and has no jobs therefore.
    pub fn is_without_hub(&self) -> bool {
        self.is_without_hub
    }

    /// Returns the folder; `None` if the environment does not determine one.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// Returns the copies of other hubs' jobs.
    pub fn copies(&self) -> &Copies {
        &self.copies
    }

    /// Returns the place of jobs that are open.
    pub(crate) fn of(jobs: Arc<Jobs>) -> Self {
        let place = Self::new(None, jobs.site(), JobsSettings::default());
        Self { opened: Mutex::new(Some(jobs)), ..place }
    }

    /// Returns the copies of other hubs' jobs that this hub shows: those of hubs that are away. With a database for several hubs
    /// the list is empty, since the database has the jobs of all.
    ///
    /// # Errors
    /// This hub's own jobs cannot be opened.
    pub fn shown_copies(&self) -> Result<ShownCopies, PlaceError> {
        if self.is_without_hub || self.settings.database.is_some() {
            return Ok(ShownCopies::default());
        }
        let own = self.get()?;
        Ok(self.copies.shown(own.as_ref().map(|own| &own.shared)))
    }

    /// Returns the number of the storage, if a replica keeps a copy of it.
    pub fn storage(&self) -> Option<u64> {
        known_storage(self.folder.as_ref()?).ok().flatten()
    }

    /// Returns the jobs of a storage: of this hub, or a copy of another one.
    ///
    /// # Errors
    /// The jobs cannot be opened.
    pub fn of_storage(
        &self,
        storage: Option<u64>,
    ) -> Result<Option<Arc<Jobs>>, Box<dyn std::error::Error + Send + Sync>> {
        match storage.filter(|storage| self.storage() != Some(*storage)) {
            None => Ok(self.get()?),
            Some(other) => self.copies.of_storage(other),
        }
    }

    /// Returns a copy of another hub's jobs; `None` if there is none.
    ///
    /// # Errors
    /// Its log of reads cannot be opened.
    pub fn any_copy(&self) -> Result<Option<Arc<Jobs>>, Box<dyn std::error::Error + Send + Sync>> {
        self.copies.any()
    }

    /// Notes that these jobs have a replica, whose listener for Flight has this URL.
    pub fn expect_replica(&self, url: String) {
        let _ = self.replica.set(url);
    }

    /// Returns the URL of the replica's listener for Flight, if these jobs have a replica. It may be away.
    pub fn replica(&self) -> Option<&str> {
        self.replica.get().map(String::as_str)
    }

    /// Prepares the replication of jobs that this place has opened.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn replicate(
        &self,
        jobs: &Jobs,
    ) -> Result<Replicating, Box<dyn std::error::Error + Send + Sync>> {
        jobs.replicate(self.folder.as_ref().ok_or(PlaceError::Unknown)?)
    }

    /// Returns true if this hub reads segments for another one.
    pub fn helps(&self) -> bool {
        self.helped.is_some()
    }

    /// Returns the URL of the bucket of the segments; `None` if they are in a folder.
    pub(crate) fn bucket(&self) -> Option<&str> {
        self.bucket.as_deref()
    }

    /// Reads a sealed part for a statement whose hub has asked the policy, and has its segments in this bucket, or in a
    /// folder. This hub's own segments move when they are compacted, so their parts are found by the job. A hub that helps
    /// another one has that one's segments, too: there the name of the segment decides.
    ///
    /// # Errors
    /// The bucket is not one of this hub's configuration. The part is not there, or cannot be read: an answer never lacks it
    /// silently.
    pub(crate) fn read_sealed(
        &self,
        (bucket, segment): (Option<&str>, &str),
        id: &JobId,
        number: u32,
    ) -> Result<Vec<StoredRecord>, Box<dyn std::error::Error + Send + Sync>> {
        let helped = self.helped.as_ref().filter(|helped| helped.bucket() == bucket);
        let is_own = bucket == self.bucket();
        if helped.is_none() && !is_own {
            return Err(self.elsewhere(bucket).into());
        }
        let own = if is_own { self.get()? } else { None };
        let only = self.helped.as_ref().map(|_| segment);
        let own = own.map(|jobs| jobs.read_sealed(id, number, only)).transpose()?.flatten();
        let records = match (own, helped) {
            // The hub that asked gets the text of an error, and not its causes.
            (None, Some(files)) => files.read(segment, id, number).map_err(|e| described(&e))?,
            (own, _) => own,
        };
        let missing = || format!("this hub does not have part {number} of the job {id}");
        Ok(records.ok_or_else(missing)?)
    }

    /// Returns the reason why segments in a bucket, or in a folder, are not read here.
    fn elsewhere(&self, bucket: Option<&str>) -> String {
        let known = self.helped.as_ref().map_or(self.bucket(), HelpedSegments::bucket);
        let [wanted, known] = [bucket, known].map(|bucket| bucket.unwrap_or("a folder"));
        format!(
            "the segments are in {wanted}, and this hub reads for others those in {known}; \
             `helps_with` of [hub.jobs] names them"
        )
    }

    /// Returns the jobs; `None` if none was ever stored. Blocks while the folder is opened.
    ///
    /// # Errors
    /// The folder exists and cannot be opened. The next call tries again.
    pub fn get(&self) -> Result<Option<Arc<Jobs>>, PlaceError> {
        match &self.folder {
            Some(folder) if folder.exists() => self.open().map(Some),
            _ => Ok(unpoisoned(self.opened.lock()).clone()),
        }
    }

    /// Returns the jobs, and makes the folder if it does not exist. Blocks while the folder is opened.
    ///
    /// # Errors
    /// The folder cannot be opened. The next call tries again.
    pub fn open(&self) -> Result<Arc<Jobs>, PlaceError> {
        if self.is_without_hub {
            return Err(PlaceError::NeedsHub);
        }
        let mut opened = unpoisoned(self.opened.lock());
        if let Some(jobs) = &*opened {
            return Ok(jobs.clone());
        }
        let folder = self.folder.as_ref().ok_or(PlaceError::Unknown)?;
        let JobsSettings { database, bucket, limits, .. } = &self.settings;
        let segments = SegmentsPlace::new(folder, bucket.as_ref());
        let catalogue = CataloguePlace::new(folder, database.as_ref());
        let jobs = Jobs::open(folder, &self.site, *limits, (&segments, &catalogue));
        let failed = |e: Box<dyn std::error::Error + Send + Sync>| {
            let folder = folder.display().to_string();
            match is_in_use(&*e) {
                true => PlaceError::InUse { folder },
                false => PlaceError::Failed { folder, why: described(&*e) },
            }
        };
        Ok(opened.insert(Arc::new(jobs.map_err(failed)?)).clone())
    }
}

/// Returns true if jobs cannot be opened because another process uses them.
fn is_in_use(e: &(dyn std::error::Error + 'static)) -> bool {
    let of_log = match e.downcast_ref() {
        Some(SegmentsError::Log(e)) => Some(e),
        _ => e.downcast_ref(),
    };
    matches!(of_log, Some(LogError::Busy(_)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::HelpedPlace;

    #[test]
    fn a_hub_reads_for_others_no_bucket_but_the_configured_one() {
        let config = BucketConfig {
            bucket: "jobs".to_owned(),
            prefix: "hub1".to_owned(),
            endpoint: None,
            region: None,
        };
        let helped = HelpedSegments::open(&HelpedPlace::Bucket(config)).expect("a client");
        let place =
            JobsPlace::new(None, "site", JobsSettings::default()).helping_with(Some(helped));
        let id = JobId::new("7", 0).expect("an id");
        let read = |bucket, segment| {
            let read = place.read_sealed((bucket, segment), &id, 0);
            read.expect_err("refused").to_string()
        };
        let segment = "segment-00000001-1-2-a-0000000b.parquet";
        for other in ["s3://jobs/hub2", "s3://jobs", "s3://jobs/hub1/lts", ""] {
            let error = read(Some(other), segment);
            assert!(error.contains("reads for others those in s3://jobs/hub1"), "{error}");
        }
        // In its own bucket, a name is no path either.
        let error = read(Some("s3://jobs/hub1"), "../writer");
        assert!(error.contains("a name is not that of a segment"), "{error}");
        // It has no segments in a folder.
        let error = read(None, segment);
        assert!(error.contains("does not have part 0 of the job"), "{error}");
    }

    #[test]
    fn the_jobs_of_another_hub_are_refused_with_the_way_out() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = || {
            let folder = Some(folder.path().join("jobs"));
            JobsPlace::new(folder, "site", JobsSettings::default())
        };
        let first = place();
        first.open().expect("opened");
        let error = place().open().expect_err("in use").to_string();
        assert!(error.starts_with("another process uses the jobs in"), "{error}");
        assert!(error.contains("SKOPOS_STATE"), "{error}");
    }

    #[test]
    fn the_hub_that_asked_gets_the_cause_of_a_failed_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let helped = HelpedPlace::Folder(folder.path().to_path_buf());
        let helped = HelpedSegments::open(&helped).expect("a folder needs no client");
        let place =
            JobsPlace::new(None, "site", JobsSettings::default()).helping_with(Some(helped));
        let id = JobId::new("7", 0).expect("an id");
        let missing = (None, "segment-00000001-1-2-a-0000000b.parquet");
        let error = place.read_sealed(missing, &id, 0).expect_err("it is not there").to_string();
        assert!(error.contains("No such file"), "{error}");
    }
}

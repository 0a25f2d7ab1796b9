//! The place of a site's segments.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use skopos_store::history::Error as LogError;
use skopos_store::jobs::Lts;
use skopos_store::{Disk as _, OsDisk};
use thiserror::Error;

use crate::bucket::{Bucket, BucketConfig, BucketError};

/// The folder of segments, on a disk or below the prefix of a bucket.
pub(super) const FOLDER: &str = "lts";

/// The file that names the bucket that has the segments.
const MARKER: &str = "bucket";

/// The folder of unfinished files of a bucket.
const SCRATCH: &str = "upload";

/// The place of segments: a folder of this machine, or a bucket.
#[derive(Clone, Debug)]
pub struct SegmentsPlace {
    /// The folder of jobs.
    folder: PathBuf,
    bucket: Option<BucketConfig>,
}

/// The reason why segments cannot be opened.
#[derive(Debug, Error)]
pub enum SegmentsError {
    /// The folder cannot be opened.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The bucket cannot be used.
    #[error("[hub.jobs.s3]")]
    Bucket(#[from] BucketError),
    /// Another place has the segments.
    #[error(
        "the segments are in {known}, and the configuration names {configured}; configure [hub.jobs.s3] as before, \
         or copy the segments and then remove {}", marker.display()
    )]
    Elsewhere {
        /// The place that has them.
        known: String,
        /// The configured place.
        configured: String,
        /// The file that says so.
        marker: PathBuf,
    },
    /// Segments of this machine cannot be moved to the bucket.
    #[error("{what}: {source}")]
    Move {
        /// The operation.
        what: String,
        /// The cause.
        source: io::Error,
    },
}

impl SegmentsPlace {
    /// Returns the place of the segments of a folder of jobs.
    pub fn new(folder: &Path, bucket: Option<&BucketConfig>) -> Self {
        Self { folder: folder.to_path_buf(), bucket: bucket.cloned() }
    }

    /// Opens the segments. Those of this machine are moved to the bucket first.
    ///
    /// # Errors
    /// Another process or hub uses them, or they cannot be read or written.
    pub fn open(&self) -> Result<Lts, SegmentsError> {
        let marker = self.folder.join(MARKER);
        let known = match fs::read_to_string(&marker) {
            // A process that was killed while it wrote the marker had not begun to use the bucket.
            Ok(known) if known.trim_end().is_empty() => None,
            Ok(known) => Some(known.trim_end().to_owned()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(moved(&marker, "cannot be read")(e)),
        };
        let configured = self.bucket.as_ref().map(BucketConfig::url);
        if let Some(known) = &known
            && Some(known) != configured.as_ref()
        {
            let (known, configured) = (known.clone(), configured.unwrap_or("a folder".to_owned()));
            return Err(SegmentsError::Elsewhere { known, configured, marker });
        }
        let local = self.folder.join(FOLDER);
        let (Some(config), Some(url)) = (&self.bucket, configured) else {
            return Ok(Lts::open(&local)?);
        };
        let bucket = config.open(&self.folder.join(SCRATCH))?;
        if known.is_none() {
            self.mark(&marker, &url)?;
        }
        move_to(&bucket, &local)?;
        Ok(Lts::on(Arc::new(bucket), &Bucket::root().join(FOLDER))?)
    }

    fn mark(&self, marker: &Path, url: &str) -> Result<(), SegmentsError> {
        let mark = || {
            let temporary = marker.with_extension("tmp");
            match OsDisk.remove(&temporary) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
            let file = OsDisk.create(&temporary)?;
            file.write_at(url.as_bytes(), 0)?;
            file.sync()?;
            OsDisk.rename(&temporary, marker)?;
            OsDisk.sync_folder(&self.folder)
        };
        mark().map_err(moved(marker, "cannot be written"))
    }
}

/// Uploads the segments of a folder, and removes each once the bucket has it.
fn move_to(bucket: &Bucket, local: &Path) -> Result<(), SegmentsError> {
    let failed = moved(local, "cannot be moved to the bucket");
    let files = OsDisk.list(local).map_err(&failed)?;
    let files: Vec<_> = files.into_iter().filter(|file| file.name.ends_with(".parquet")).collect();
    if files.is_empty() {
        return Ok(());
    }
    let lock = OsDisk.lock(&local.join("lock")).map_err(&failed)?;
    let _lock = lock.ok_or_else(|| LogError::Busy(local.to_path_buf()))?;
    bucket.begin().map_err(&failed)?;
    for file in files {
        let (from, to) = (local.join(&file.name), Bucket::root().join(FOLDER).join(&file.name));
        bucket.take(&from, &to).map_err(moved(&from, "cannot be moved to the bucket"))?;
        fs::remove_file(&from).map_err(moved(&from, "cannot be removed"))?;
    }
    Ok(())
}

fn moved(path: &Path, what: &str) -> impl Fn(io::Error) -> SegmentsError {
    let what = format!("{} {what}", path.display());
    move |source| SegmentsError::Move { what: what.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_that_a_killed_process_left_empty_names_no_bucket() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = SegmentsPlace::new(folder.path(), None);
        fs::write(folder.path().join(MARKER), "").expect("written");
        drop(place.open().expect("a folder of segments"));
        fs::write(folder.path().join(MARKER), "s3://jobs\n").expect("written");
        let error = place.open().expect_err("another place has them").to_string();
        assert!(error.contains("the segments are in s3://jobs"), "{error}");
    }
}

//! The folder of a download. It has a folder for each site with segments of jobs, as the storage of a hub has them, and in
//! `running` the records of jobs that were not sealed, which the next call fetches again.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use skopos_hub::jobs::Wanted;
use skopos_model::job::JobId;
use skopos_model::unpoisoned;
use skopos_serve::fetch::FoundEndpoint;
use skopos_store::jobs::Segment;
use skopos_term::Failure;

use super::task::{OfSite, Task, parts};

/// The file that tells which records the files of the folder have.
const CONDITIONS: &str = "fetch.json";

/// The ending of a file that was found damaged.
const DAMAGED: &str = "damaged";

/// The files of one site.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    /// The records that its parts have.
    pub(super) wanted: Wanted,
    /// The parts that are whole.
    present: Mutex<BTreeSet<(JobId, u32)>>,
    next: AtomicU64,
}

pub(super) fn failed(path: &Path, what: &str, e: &dyn std::error::Error) -> Failure {
    Failure::new(format!("{} cannot be {what}", path.display())).because(e)
}

fn make(path: &Path) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| failed(path, "made", &e))
}

/// Makes the folder, and refuses one whose files have other records of the jobs.
pub(super) fn check_conditions(out: &Path, wanted: &Wanted) -> Result<(), Failure> {
    make(out)?;
    let path = out.join(CONDITIONS);
    match fs::read(&path) {
        Ok(bytes) if serde_json::from_slice::<Wanted>(&bytes).is_ok_and(|it| it == *wanted) => {
            Ok(())
        }
        Ok(_) => Err(Failure::new(format!("the files in {} are of other records", out.display()))
            .hint("choose another folder, or the same `--kind` and `--schema` as before")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let text = serde_json::to_vec(wanted).map_err(|e| failed(&path, "written", &e))?;
            fs::write(&path, text).map_err(|e| failed(&path, "written", &e))
        }
        Err(e) => Err(failed(&path, "read", &e)),
    }
}

/// The folder of records that are not sealed.
const RUNNING: &str = "running";

/// The folder of files that are on their way.
const ARRIVING: &str = "arriving";

impl Folder {
    /// Opens the files of a site, and verifies each byte of them. Unfinished files, and those of running jobs, are removed.
    pub(super) fn open(out: &Path, site: &str, wanted: &Wanted) -> Result<Self, Failure> {
        // The name comes from a hub and becomes a path.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if site.is_empty() || site.starts_with('.') || !site.chars().all(is_plain) {
            return Err(Failure::new(format!("{site:?} is not the name of a site")));
        }
        let path = out.join(site);
        let (mut present, mut last) = (BTreeSet::new(), 0);
        empty(&path.join(RUNNING))?;
        empty(&path.join(ARRIVING))?;
        for name in names(&path)? {
            let file = path.join(&name);
            if name.ends_with(".tmp") {
                remove(&file)?;
            } else if let Some(number) = number_of(&name) {
                last = last.max(number + 1);
                match Segment::open(&file).and_then(|it| it.verify().map(|()| it)) {
                    Ok(segment) => {
                        let parts = segment.parts().iter();
                        present.extend(parts.map(|part| (part.id.clone(), part.number)));
                    }
                    Err(e) if e.is_damage() => {
                        let aside = path.join(format!("{name}.{DAMAGED}"));
                        fs::rename(&file, &aside).map_err(|e| failed(&file, "moved", &e))?;
                    }
                    Err(e) => return Err(failed(&file, "read", &e)),
                }
            }
        }
        let (present, next) = (Mutex::new(present), AtomicU64::new(last));
        Ok(Self { path, wanted: wanted.clone(), present, next })
    }

    /// Removes the records that were not sealed when they were fetched. They are fetched again, and some may be sealed now.
    pub(super) fn forget_running(&self) -> Result<(), Failure> {
        empty(&self.path.join(RUNNING))
    }

    /// Returns the folder of records that are sealed, or not.
    pub(super) fn of(&self, is_sealed: bool) -> PathBuf {
        if is_sealed { self.path.clone() } else { self.path.join(RUNNING) }
    }

    /// Returns the folder of files that are not checked yet.
    pub(super) fn arriving(&self) -> PathBuf {
        self.path.join(ARRIVING)
    }

    /// Returns the number of the next file.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns true if a part is there.
    pub(super) fn has(&self, id: &JobId, part: u32) -> bool {
        unpoisoned(self.present.lock()).contains(&(id.clone(), part))
    }

    /// Notes parts that are there now.
    pub(super) fn add(&self, parts: impl IntoIterator<Item = (JobId, u32)>) {
        unpoisoned(self.present.lock()).extend(parts);
    }

    /// Returns the number of parts of endpoints that are there.
    pub(super) fn kept(&self, endpoints: &[FoundEndpoint]) -> u64 {
        let parts = endpoints.iter().flat_map(|endpoint| &endpoint.metadata.jobs).flat_map(parts);
        parts.filter(|(id, part)| self.has(id, *part)).count() as u64
    }

    /// Returns what is to be downloaded: endpoints with a part that is not there.
    pub(super) fn tasks(&self, found: OfSite) -> Vec<Task> {
        let OfSite { site, hubs, endpoints } = found;
        let is_wanted = |endpoint: &FoundEndpoint| {
            let mut all = endpoint.metadata.jobs.iter().flat_map(parts);
            !endpoint.metadata.sealed || all.any(|(id, part)| !self.has(&id, part))
        };
        let wanted = endpoints.into_iter().filter(is_wanted);
        let task = |endpoint| Task { site: site.clone(), hubs: hubs.clone(), endpoint };
        wanted.map(task).collect()
    }
}

/// Makes a folder, or removes its files.
fn empty(folder: &Path) -> Result<(), Failure> {
    make(folder)?;
    names(folder)?.into_iter().try_for_each(|name| remove(&folder.join(name)))
}

fn number_of(name: &str) -> Option<u64> {
    let number = name.strip_prefix("segment-")?.strip_suffix(".parquet")?;
    number.split('-').next()?.parse().ok()
}

fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let listed = fs::read_dir(folder).map_err(|e| failed(folder, "listed", &e))?;
    let mut names = Vec::new();
    for entry in listed {
        let entry = entry.map_err(|e| failed(folder, "listed", &e))?;
        if entry.file_type().is_ok_and(|of| of.is_file()) {
            names.extend(entry.file_name().into_string());
        }
    }
    Ok(names)
}

fn remove(path: &Path) -> Result<(), Failure> {
    fs::remove_file(path).map_err(|e| failed(path, "removed", &e))
}

//! The copies of other hubs' jobs, for which this hub is the replica.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

use skopos_access::{Action, Caller, Denied, is_segment, may};
use skopos_model::unpoisoned;
use skopos_store::jobs::replica::{Keeper, Keeping, Message, Reply, TakeError};
use skopos_store::jobs::{Intake, IntakeLimits, Lts, Retention, SqliteCatalogue};
use skopos_term::tell;
use thiserror::Error;

use super::copy_of::{CopyOf, List};
use super::reads::Reads;
use super::replication::random;
use super::shared::{AnyError, Shared, described, now};
use super::store::{Jobs, JobsLimits};
use crate::catalogue::CataloguePlace;

/// The folder of copies, beside that of jobs.
const FOLDER: &str = "replicas";

/// The most hubs whose jobs are copied here: each has logs of some gigabytes.
const MAX_COPIES: usize = 8;

/// The folder of the lists of a copy's jobs, in that of the copy.
const LISTS: &str = "lists";

/// A copy removes what its primary removes, and nothing else.
const NO_RETENTION: Retention = Retention { max_age: Duration::MAX, max_bytes: u64::MAX };

/// The copies in a folder. Each is opened when its hub connects.
#[derive(Debug)]
pub struct Copies {
    folder: Option<PathBuf>,
    site: String,
    limits: IntakeLimits,
    open: Mutex<BTreeMap<String, Arc<OpenCopy>>>,
    /// Done once the copies of an earlier process are open.
    opened: Once,
}

#[derive(Debug)]
struct OpenCopy {
    hub: String,
    storage: u64,
    folder: PathBuf,
    content: (Arc<Mutex<Intake>>, Arc<Lts>),
    keeper: Mutex<Keeper>,
    /// Number of the latest stream. An earlier one ends.
    stream: AtomicU64,
    /// Number of the latest stream that has ended.
    ended: AtomicU64,
    reading: Mutex<ReadCopy>,
}

/// The state of a copy that is read.
#[derive(Debug, Default)]
struct ReadCopy {
    /// The log of who has read it.
    reads: Option<Arc<Reads>>,
    /// The list of its jobs, while its hub is away.
    list: Option<Arc<List>>,
    /// Number of the latest list.
    number: u64,
    /// The last warning, which is not printed again as long as it is the same.
    trouble: Option<String>,
}

/// The copy of a hub's jobs, for one stream of that hub.
#[derive(Clone, Debug)]
pub struct Copy {
    following: Arc<Following>,
}

/// A stream of a hub, until it is dropped.
#[derive(Debug)]
struct Following {
    open: Arc<OpenCopy>,
    stream: u64,
}

impl Drop for Following {
    fn drop(&mut self) {
        self.open.ended.fetch_max(self.stream, Ordering::Relaxed);
    }
}

/// The reason why a copy is not kept.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The policy refuses.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The name, the site or the message is not valid.
    #[error("{0}")]
    Invalid(String),
    /// The copy cannot be opened or written, or another stream has begun.
    #[error("{0}")]
    Failed(String),
}

impl Copies {
    /// Returns the copies beside a folder of jobs.
    pub(super) fn new(jobs: Option<&Path>, site: &str, limits: &JobsLimits) -> Self {
        let folder = jobs.map(|jobs| jobs.with_file_name(FOLDER));
        // The replica forgets a silent producer before its primary does. If the producer comes back with an earlier epoch,
        // the primary takes its records as new ones, and so must the replica.
        let forget_after = limits.intake.forget_after / 2;
        let limits = IntakeLimits { forget_after, ..limits.intake };
        Self { folder, site: site.to_owned(), limits, open: Mutex::default(), opened: Once::new() }
    }

    /// Begins a stream of a hub of a site, and returns the first answer. An earlier stream of the hub ends. Blocks.
    ///
    /// # Errors
    /// The policy refuses, the site is another one, or the copy cannot be opened.
    pub fn begin(
        &self,
        caller: &Caller,
        (hub, site): (&str, &str),
        storage: u64,
    ) -> Result<(Copy, Reply), CopyError> {
        may(caller, Action::Replicate { hub })?;
        if !is_segment(hub) || hub.starts_with('.') {
            return Err(CopyError::Invalid("the name of the hub is not one of a hub".to_owned()));
        }
        if site != self.site {
            let own = &self.site;
            let why = format!("the hub is one of the site `{site}`, and this one of `{own}`");
            return Err(CopyError::Invalid(why));
        }
        self.open_all();
        let mut all = unpoisoned(self.open.lock());
        if all.get(hub).is_some_and(|open| open.storage != storage) {
            // It must be compared with the files.
            all.remove(hub);
        }
        if all.len() >= MAX_COPIES && !all.contains_key(hub) {
            // A hub that sends comes before one that is away.
            let away = all.iter().find(|(_, open)| !open.is_followed()).map(|(hub, _)| hub.clone());
            away.map(|hub| all.remove(&hub));
        }
        let open = match all.get(hub) {
            Some(open) => open.clone(),
            None if all.len() >= MAX_COPIES => {
                let why = format!("this hub keeps the copies of {MAX_COPIES} hubs already");
                return Err(CopyError::Failed(why));
            }
            None => {
                let folder = self.folder.as_ref();
                let unknown = || CopyError::Failed("the place of copies is not known".to_owned());
                let folder = folder.ok_or_else(unknown)?.join(hub);
                let failed = |e: &dyn std::error::Error| CopyError::Failed(described(e));
                let id = random().map_err(|e| failed(&e))?;
                let keeping = Keeping { site, storage, id };
                let open = OpenCopy::open(hub, &folder, keeping, self.limits);
                let open = Arc::new(open.map_err(|e| failed(&*e))?);
                all.insert(hub.to_owned(), open.clone());
                open
            }
        };
        drop(all);
        let mut keeper = unpoisoned(open.keeper.lock());
        let stream = open.stream.fetch_add(1, Ordering::Relaxed) + 1;
        let welcome = keeper.begin();
        drop(keeper);
        // The list is one of the time before this stream.
        unpoisoned(open.reading.lock()).list = None;
        Ok((Copy { following: Arc::new(Following { open, stream }) }, welcome))
    }

    /// Opens the copies that an earlier process has kept.
    fn open_all(&self) {
        let Some(folder) = &self.folder else { return };
        self.opened.call_once(|| {
            let names = fs::read_dir(folder).into_iter().flatten().flatten();
            let names = names.filter_map(|file| file.file_name().into_string().ok());
            let mut all = unpoisoned(self.open.lock());
            for hub in names.filter(|name| is_segment(name) && !name.starts_with('.')) {
                if all.len() >= MAX_COPIES {
                    tell(format!(
                        "warning: of more than {MAX_COPIES} copies of jobs, some are not read"
                    ));
                    break;
                }
                match self.kept(&hub, &folder.join(&hub)) {
                    Ok(open) => all.extend(open.map(|open| (hub, Arc::new(open)))),
                    Err(e) => {
                        let why = described(&*e);
                        tell(format!(
                            "warning: the copy of the jobs of {hub} cannot be read: {why}"
                        ));
                    }
                }
            }
        });
    }

    /// Opens the copy in a folder; `None` if there is none of this site.
    fn kept(&self, hub: &str, folder: &Path) -> Result<Option<OpenCopy>, AnyError> {
        let known = Keeper::kept_in(folder)?.filter(|(site, _)| *site == self.site);
        let Some((site, storage)) = known else { return Ok(None) };
        let keeping = Keeping { site: &site, storage, id: 0 };
        OpenCopy::open(hub, folder, keeping, self.limits).map(Some)
    }

    /// Returns the copies of the hubs that are away, without the jobs that this hub has itself.
    pub(super) fn shown(&self, own: Option<&Arc<Shared>>) -> Vec<Arc<Jobs>> {
        self.open_all();
        let all: Vec<Arc<OpenCopy>> = unpoisoned(self.open.lock()).values().cloned().collect();
        all.into_iter().filter_map(|open| open.shown(&self.site, own)).collect()
    }

    /// Returns a copy, in which jobs are found by their ids.
    ///
    /// # Errors
    /// Its log of reads cannot be opened.
    pub(super) fn any(&self) -> Result<Option<Arc<Jobs>>, AnyError> {
        self.open_all();
        let first = unpoisoned(self.open.lock()).values().next().cloned();
        first.map(|open| open.by_id(&self.site)).transpose()
    }

    /// Returns the copy of a storage, in which jobs are found by their ids.
    ///
    /// # Errors
    /// Its log of reads cannot be opened.
    pub(super) fn of_storage(&self, storage: u64) -> Result<Option<Arc<Jobs>>, AnyError> {
        self.open_all();
        let found = unpoisoned(self.open.lock()).values().find(|it| it.storage == storage).cloned();
        found.map(|open| open.by_id(&self.site)).transpose()
    }
}

impl OpenCopy {
    fn open(
        hub: &str,
        folder: &Path,
        keeping: Keeping<'_>,
        limits: IntakeLimits,
    ) -> Result<Self, AnyError> {
        let keeper = Keeper::open(folder, keeping, limits, now())?;
        match fs::remove_dir_all(folder.join(LISTS)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e.into()),
            _ => {}
        }
        Ok(Self {
            hub: hub.to_owned(),
            storage: keeping.storage,
            folder: folder.to_path_buf(),
            content: keeper.content(),
            keeper: Mutex::new(keeper),
            stream: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            reading: Mutex::default(),
        })
    }

    /// Returns true while the hub sends: then it answers for its jobs itself.
    fn is_followed(&self) -> bool {
        self.stream.load(Ordering::Relaxed) > self.ended.load(Ordering::Relaxed)
    }

    /// Returns the copy with the list of its jobs; `None` if its hub is there or, after a warning, if the list cannot be made.
    fn shown(&self, site: &str, own: Option<&Arc<Shared>>) -> Option<Arc<Jobs>> {
        if self.is_followed() {
            return None;
        }
        let mut reading = unpoisoned(self.reading.lock());
        // A stream that begins drops the list after this lock was released.
        if self.is_followed() {
            return None;
        }
        let listed = self.listed(&mut reading, site);
        let trouble = listed.as_ref().err().map(|e| described(&**e));
        if trouble != reading.trouble {
            let of = &self.hub;
            let warn =
                |why| tell(format!("warning: the copy of the jobs of {of} is not shown: {why}"));
            trouble.iter().for_each(warn);
            reading.trouble = trouble;
        }
        let (list, reads) = listed.ok()?;
        let (hub, storage) = (self.hub.clone(), self.storage);
        let copy = CopyOf { hub, storage, own: own.cloned(), list: Some(list.clone()) };
        Some(Arc::new(Jobs::of_copy(list.shared.clone(), reads, copy)))
    }

    fn listed(
        &self,
        reading: &mut ReadCopy,
        site: &str,
    ) -> Result<(Arc<List>, Arc<Reads>), AnyError> {
        let reads = self.reads(reading)?;
        if let Some(list) = &reading.list {
            return Ok((list.clone(), reads));
        }
        reading.number += 1;
        let folder = self.folder.join(LISTS).join(reading.number.to_string());
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        let catalogue = CataloguePlace::new(&folder, None).open()?;
        let shared = Arc::new(Shared::new(site, self.content.clone(), catalogue, NO_RETENTION));
        let list = Arc::new(List { shared, folder });
        list.shared.list_copy()?;
        reading.list = Some(list.clone());
        Ok((list, reads))
    }

    /// Returns the copy, in which jobs are found by their ids.
    fn by_id(&self, site: &str) -> Result<Arc<Jobs>, AnyError> {
        let mut reading = unpoisoned(self.reading.lock());
        let reads = self.reads(&mut reading)?;
        drop(reading);
        let catalogue = Box::new(SqliteCatalogue::in_memory()?);
        let shared = Arc::new(Shared::new(site, self.content.clone(), catalogue, NO_RETENTION));
        let (hub, storage) = (self.hub.clone(), self.storage);
        let copy = CopyOf { hub, storage, own: None, list: None };
        Ok(Arc::new(Jobs::of_copy(shared, reads, copy)))
    }

    fn reads(&self, reading: &mut ReadCopy) -> Result<Arc<Reads>, AnyError> {
        if reading.reads.is_none() {
            reading.reads = Some(Arc::new(Reads::open(&self.folder.join("reads"))?));
        }
        reading.reads.clone().ok_or_else(|| "the log of reads is not open".into())
    }
}

impl Copy {
    /// Takes messages, and makes their records durable. Blocks.
    ///
    /// # Errors
    /// The stream must end.
    pub fn take(&self, messages: &[Message]) -> Result<Vec<Reply>, CopyError> {
        let failed = |e: &dyn std::error::Error| CopyError::Failed(described(e));
        let Following { open, stream } = &*self.following;
        let mut keeper = unpoisoned(open.keeper.lock());
        if open.stream.load(Ordering::Relaxed) != *stream {
            return Err(CopyError::Failed("another stream of this hub has begun".to_owned()));
        }
        let mut replies = Vec::new();
        for message in messages {
            match keeper.take(message, now()) {
                Ok(answers) => replies.extend(answers),
                Err(TakeError::Invalid(why)) => return Err(CopyError::Invalid(why.to_owned())),
                Err(TakeError::Storage(e)) => return Err(failed(&e)),
            }
        }
        replies.extend(keeper.commit(now()).map_err(|e| failed(&e))?);
        Ok(replies)
    }
}

/// The reason why a copy is not taken over.
#[derive(Debug, Error)]
pub enum TakeOverError {
    /// There is no copy.
    #[error("there is no copy of the jobs of {hub} in {folder}")]
    Missing {
        /// Name of the hub.
        hub: String,
        /// The folder of copies.
        folder: String,
    },
    /// The hub that takes over has jobs of its own.
    #[error("{0} exists; the jobs of two hubs are not merged")]
    Taken(String),
    /// The copy is in use, or cannot be moved.
    #[error("{0}")]
    Failed(String),
}

/// Moves the copy of a hub's jobs, beside the folder `jobs`, to the folder `to`, where a hub opens it as its own.
///
/// # Errors
/// There is no copy, `to` exists, or the copy is in use or cannot be moved. Then nothing changes.
pub fn take_over(jobs: &Path, hub: &str, to: &Path) -> Result<(), TakeOverError> {
    let failed = |e: &dyn std::error::Error| TakeOverError::Failed(described(e));
    let folder = jobs.with_file_name(FOLDER);
    let copy = folder.join(hub);
    if !is_segment(hub) || hub.starts_with('.') || !copy.join("replica").exists() {
        let folder = folder.display().to_string();
        return Err(TakeOverError::Missing { hub: hub.to_owned(), folder });
    }
    if to.exists() {
        return Err(TakeOverError::Taken(to.display().to_string()));
    }
    // The locks show that no hub uses it.
    Keeper::settle(&copy).map_err(|e| failed(&e))?;
    let parent = to.parent().unwrap_or(Path::new("."));
    let moved = DirBuilder::new().recursive(true).mode(0o700).create(parent);
    let moved = moved.and_then(|()| fs::rename(&copy, to));
    let synced = moved.and_then(|()| {
        // It is the storage of another hub from now on.
        let _ = fs::remove_file(to.join("replica"));
        let _ = fs::remove_dir_all(to.join(LISTS));
        fs::File::open(to)?.sync_all()?;
        fs::File::open(&folder)?.sync_all()?;
        fs::File::open(parent)?.sync_all()
    });
    synced.map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use skopos_access::{Invitation, Names, Role, User};

    use super::*;

    fn node(name: &str, is_hub: bool) -> Caller {
        Caller::Node(Names { site: "s".to_owned(), node: name.to_owned(), is_hub })
    }

    fn begin(
        copies: &Copies,
        caller: &Caller,
        (hub, site): (&str, &str),
        storage: u64,
    ) -> Result<Copy, String> {
        let begun = copies.begin(caller, (hub, site), storage);
        begun.map(|(copy, _)| copy).map_err(|e| e.to_string())
    }

    #[test]
    fn a_hub_keeps_its_own_copy_and_nobody_else_does() {
        let folder = tempfile::tempdir().expect("a folder");
        let copies = Copies::new(Some(&folder.path().join("jobs")), "s", &JobsLimits::default());
        let admin = User { name: "ida".to_owned(), role: Role::Admin, leads: BTreeSet::new() };
        for caller in [
            node("hub1", false),
            node("hub2", true),
            Caller::User(admin),
            Caller::Anybody,
            Caller::Stranger,
            Caller::Invited(Invitation::default()),
        ] {
            let why = begin(&copies, &caller, ("hub1", "s"), 7).expect_err("refused");
            assert!(why.contains("may not keep a copy of the jobs of the hub hub1"), "{why}");
        }
        let own = node("hub1", true);
        for (name, caller) in [("hub1", &own), ("..", &Caller::Owner), ("a/b", &Caller::Owner)] {
            begin(&copies, caller, (name, "other"), 7).expect_err(name);
        }
        for name in ["..", ".hidden", "a/b", "", "*"] {
            begin(&copies, &Caller::Owner, (name, "s"), 7).expect_err(name);
        }
        assert!(!folder.path().join("replicas").exists(), "a refused caller makes no file");
        begin(&copies, &own, ("hub1", "s"), 7).expect("its own");
        begin(&copies, &Caller::Owner, ("hub1", "s"), 7).expect("the owner may do all");
        let other = begin(&copies, &own, ("hub1", "s"), 8).expect_err("another storage");
        assert!(other.contains("another storage") || other.contains("another process"), "{other}");
    }

    #[test]
    fn the_latest_stream_of_a_hub_counts() {
        let folder = tempfile::tempdir().expect("a folder");
        let copies = Copies::new(Some(&folder.path().join("jobs")), "s", &JobsLimits::default());
        let own = node("hub1", true);
        let first = begin(&copies, &own, ("hub1", "s"), 7).expect("begun");
        let list = || vec![Message::List { names: Vec::new(), is_last: true }];
        assert_eq!(first.take(&list()).expect("taken").len(), 1);
        let second = begin(&copies, &own, ("hub1", "s"), 7).expect("begun");
        let why = first.take(&list()).expect_err("it has ended").to_string();
        assert!(why.contains("another stream"), "{why}");
        assert_eq!(second.take(&list()).expect("taken").len(), 1);
        let wrong = Message::Fetch { name: "../site".to_owned(), at: 0 };
        let replies = second.take(&[wrong]).expect("taken");
        assert!(matches!(&replies[..], [Reply::NoCopy { .. }]), "{replies:?}");
        let listed = Message::List { names: vec!["../site".to_owned()], is_last: true };
        second.take(&[listed]).expect_err("not the name of a segment");
    }
}

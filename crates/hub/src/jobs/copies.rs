//! The copies of other hubs' jobs, for which this hub is the replica.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Once};

use skopos_access::{Action, Caller, Denied, is_segment, may};
use skopos_model::unpoisoned;
use skopos_store::jobs::IntakeLimits;
use skopos_store::jobs::replica::{Keeper, Keeping, Message, Reply, TakeError};
use skopos_term::tell;
use thiserror::Error;

use super::open_copy::{LISTS, OpenCopy};
use super::replication::random;
use super::shared::{AnyError, Shared, described, now};
use super::store::{Jobs, JobsLimits};

/// The folder of copies, beside that of jobs.
const FOLDER: &str = "replicas";

/// The most hubs whose jobs are copied here: each has logs of some gigabytes.
const MAX_COPIES: usize = 8;

/// The copies in a folder. Each is opened when its hub connects, or for the first question.
#[derive(Debug)]
pub struct Copies(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    folder: Option<PathBuf>,
    site: String,
    limits: IntakeLimits,
    /// Locked for short times. No file is read meanwhile.
    open: Mutex<BTreeMap<String, Arc<OpenCopy>>>,
    /// Locked while a copy is opened: that may read gigabytes.
    opening: Mutex<()>,
    /// Done once the copies of an earlier process are open.
    opened: Once,
    /// Names of the hubs of which an earlier process has kept a copy that is not open.
    unread: Mutex<BTreeSet<String>>,
    /// True while a thread opens copies and lists their jobs.
    is_preparing: AtomicBool,
}

/// The copies that a hub shows: those of hubs that are away.
#[derive(Debug, Default)]
pub struct ShownCopies {
    /// The copies.
    pub jobs: Vec<Arc<Jobs>>,
    /// Names of hubs of which the copy is still being read.
    pub being_read: Vec<String>,
    /// Names of hubs of which the copy cannot be read. A warning said why.
    pub failed: Vec<String>,
}

impl ShownCopies {
    /// Returns a text for each copy that is not shown, for people.
    pub fn missing(&self) -> Vec<String> {
        let read = |hub| format!("the copy of the jobs of {hub}, which is still being read");
        let failed = |hub| format!("the copy of the jobs of {hub}, which cannot be read");
        self.being_read.iter().map(read).chain(self.failed.iter().map(failed)).collect()
    }
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
        self.open.end(self.stream);
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
        Self(Arc::new(Kept {
            folder,
            site: site.to_owned(),
            limits,
            open: Mutex::default(),
            opening: Mutex::default(),
            opened: Once::new(),
            unread: Mutex::default(),
            is_preparing: AtomicBool::new(false),
        }))
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
        if site != self.0.site {
            let own = &self.0.site;
            let why = format!("the hub is one of the site `{site}`, and this one of `{own}`");
            return Err(CopyError::Invalid(why));
        }
        let open = self.0.followed(hub, storage)?;
        let mut keeper = unpoisoned(open.keeper.lock());
        let stream = open.begin();
        let welcome = keeper.begin();
        drop(keeper);
        open.forget_list();
        Ok((Copy { following: Arc::new(Following { open, stream }) }, welcome))
    }

    /// Returns the copies of the hubs that are away, without the jobs that this hub has itself. A copy that was not read yet is
    /// read on another thread meanwhile.
    pub(super) fn shown(&self, own: Option<&Arc<Shared>>) -> ShownCopies {
        let mut shown = ShownCopies::default();
        if self.0.opened.is_completed() {
            shown.failed.extend(unpoisoned(self.0.unread.lock()).iter().cloned());
            for open in self.0.all().into_iter().filter(|open| !open.is_followed()) {
                match open.shown(own) {
                    Some(copy) => shown.jobs.push(copy),
                    None if open.has_failed() => shown.failed.push(open.hub.clone()),
                    None => shown.being_read.push(open.hub.clone()),
                }
            }
        } else {
            shown.being_read = self.0.names();
        }
        if !shown.being_read.is_empty() && !self.0.prepare() {
            shown.failed.append(&mut shown.being_read);
        }
        shown
    }

    /// Returns a copy, in which jobs are found by their ids. Blocks while copies are opened.
    ///
    /// # Errors
    /// Its log of reads cannot be opened.
    pub(super) fn any(&self) -> Result<Option<Arc<Jobs>>, AnyError> {
        self.0.open_all();
        let first = self.0.all().into_iter().next();
        first.map(|open| open.by_id(&self.0.site)).transpose()
    }

    /// Returns the copy of a storage, in which jobs are found by their ids. Blocks while copies are opened.
    ///
    /// # Errors
    /// Its log of reads cannot be opened.
    pub(super) fn of_storage(&self, storage: u64) -> Result<Option<Arc<Jobs>>, AnyError> {
        self.0.open_all();
        let found = self.0.all().into_iter().find(|open| open.storage == storage);
        found.map(|open| open.by_id(&self.0.site)).transpose()
    }

    /// Returns the names of the hubs of which this hub keeps a copy.
    pub(super) fn hubs(&self) -> Vec<String> {
        self.0.names()
    }
}

impl Kept {
    fn all(&self) -> Vec<Arc<OpenCopy>> {
        unpoisoned(self.open.lock()).values().cloned().collect()
    }

    /// Returns the names of the hubs that have a folder of this site's copies.
    fn names(&self) -> Vec<String> {
        let files = self.folder.as_ref().and_then(|folder| fs::read_dir(folder).ok());
        let files = files.into_iter().flatten().flatten();
        let is_kept = |file: &fs::DirEntry| match Keeper::kept_in(&file.path()) {
            Ok(known) => known.is_some_and(|(site, _)| site == self.site),
            // The thread that opens it says why it cannot be read.
            Err(_) => true,
        };
        let names = files.filter(is_kept).filter_map(|file| file.file_name().into_string().ok());
        names.filter(|name| is_segment(name) && !name.starts_with('.')).collect()
    }

    /// Returns the copy of a hub that sends, which is opened if it is not. A copy of another storage stays as it is: it may be
    /// the only one of its jobs.
    fn followed(&self, hub: &str, storage: u64) -> Result<Arc<OpenCopy>, CopyError> {
        self.open_all();
        let _opening = unpoisoned(self.opening.lock());
        let open = unpoisoned(self.open.lock()).get(hub).cloned();
        if let Some(open) = open.filter(|open| open.storage == storage) {
            return Ok(open);
        }
        // A person has removed these, or promoted them. A file system that hangs here must not stop questions.
        let is_gone = |open: &Arc<OpenCopy>| (!open.folder.exists()).then(|| open.hub.clone());
        let gone: BTreeSet<String> = self.all().iter().filter_map(is_gone).collect();
        let mut all = unpoisoned(self.open.lock());
        all.retain(|hub, open| open.is_followed() || !gone.contains(hub));
        if all.len() >= MAX_COPIES && !all.contains_key(hub) {
            let why = format!(
                "this hub keeps the copies of {MAX_COPIES} hubs already; promote or remove one of them"
            );
            return Err(CopyError::Failed(why));
        }
        drop(all);
        let unknown = || CopyError::Failed("the place of copies is not known".to_owned());
        let folder = self.folder.as_ref().ok_or_else(unknown)?.join(hub);
        let failed = |e: &dyn std::error::Error| CopyError::Failed(described(e));
        let id = random().map_err(|e| failed(&e))?;
        let keeping = Keeping { site: &self.site, storage, id };
        let open = OpenCopy::open(hub, &folder, keeping, self.limits);
        let open = Arc::new(open.map_err(|e| failed(&*e))?);
        unpoisoned(self.unread.lock()).remove(hub);
        unpoisoned(self.open.lock()).insert(hub.to_owned(), open.clone());
        Ok(open)
    }

    /// Opens the copies that an earlier process has kept. Blocks. If the opening panics, the next call continues it.
    fn open_all(&self) {
        self.opened.call_once_force(|_| {
            let mut names = self.names();
            let further = names.split_off(names.len().min(MAX_COPIES));
            if !further.is_empty() {
                let hubs = further.join(", ");
                tell(format!(
                    "warning: a hub reads {MAX_COPIES} copies of jobs, and not those of {hubs}"
                ));
            }
            unpoisoned(self.unread.lock()).extend(further);
            for hub in names {
                let _opening = unpoisoned(self.opening.lock());
                if unpoisoned(self.open.lock()).contains_key(&hub) {
                    continue;
                }
                match self.kept(&hub) {
                    Ok(open) => {
                        let open = open.map(|open| (hub, Arc::new(open)));
                        unpoisoned(self.open.lock()).extend(open);
                    }
                    Err(e) => {
                        let why = described(&*e);
                        tell(format!(
                            "warning: the copy of the jobs of {hub} cannot be read: {why}"
                        ));
                        unpoisoned(self.unread.lock()).insert(hub);
                    }
                }
            }
        });
    }

    /// Opens the copy of a hub; `None` if there is none of this site.
    fn kept(&self, hub: &str) -> Result<Option<OpenCopy>, AnyError> {
        let Some(folder) = self.folder.as_ref().map(|folder| folder.join(hub)) else {
            return Ok(None);
        };
        let known = Keeper::kept_in(&folder)?.filter(|(site, _)| *site == self.site);
        let Some((site, storage)) = known else { return Ok(None) };
        let keeping = Keeping { site: &site, storage, id: 0 };
        OpenCopy::open(hub, &folder, keeping, self.limits).map(Some)
    }

    /// Has a thread open the copies and list the jobs of those that are not followed, unless one does so already. Returns false
    /// if no thread can be started.
    fn prepare(self: &Arc<Self>) -> bool {
        if self.is_preparing.swap(true, Ordering::Relaxed) {
            return true;
        }
        let kept = self.clone();
        let prepare = move || {
            // Also if it panics, so that the next question starts another one.
            let _done = Done(&kept.is_preparing);
            kept.open_all();
            for open in kept.all() {
                open.list(&kept.site);
            }
        };
        let thread = std::thread::Builder::new().name("job-copies".to_owned()).spawn(prepare);
        if thread.is_err() {
            self.is_preparing.store(false, Ordering::Relaxed);
        }
        thread.is_ok()
    }
}

/// Notes the end of a thread when it is dropped.
struct Done<'d>(&'d AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
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
        if !open.is_latest(*stream) {
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
    use skopos_access::{Invitation, Names, Role, User};

    use super::*;
    use crate::jobs::tests::eventually;

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
        assert!(other.contains("copy of another storage"), "{other}");
        eventually("the copy is shown all the same", || copies.shown(None).jobs.len() == 1);
        assert_eq!(copies.shown(None).missing(), [""; 0]);
        // A person removes the copy, so that there is room for the new one.
        std::fs::remove_dir_all(folder.path().join("replicas/hub1")).expect("removed");
        begin(&copies, &own, ("hub1", "s"), 8).expect("the new storage");
    }

    #[test]
    fn a_list_is_made_on_another_thread_and_a_copy_without_one_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let copies = Copies::new(Some(&folder.path().join("jobs")), "s", &JobsLimits::default());
        assert_eq!(copies.shown(None).missing(), [""; 0], "there is no copy");
        let own = node("hub1", true);
        let followed = begin(&copies, &own, ("hub1", "s"), 7).expect("begun");
        assert_eq!(copies.shown(None).missing(), [""; 0], "its hub answers");
        drop(followed);
        let lists = folder.path().join("replicas/hub1").join(LISTS);
        std::fs::write(&lists, "").expect("written");
        assert_eq!(copies.shown(None).being_read, ["hub1"], "no question waits");
        eventually("the failure is named", || copies.shown(None).failed == ["hub1"]);
        std::fs::remove_file(&lists).expect("removed");
        // Another stream begins and ends.
        drop(begin(&copies, &own, ("hub1", "s"), 7).expect("begun"));
        eventually("the copy is shown", || copies.shown(None).jobs.len() == 1);
        eventually("the thread has ended", || Arc::strong_count(&copies.0) == 1);
        drop(copies);
        let copies = Copies::new(Some(&folder.path().join("jobs")), "s", &JobsLimits::default());
        let shown = || copies.shown(None);
        assert_eq!((shown().jobs.len(), shown().failed), (0, vec![]), "no question waits");
        eventually("an earlier process has kept it", || shown().jobs.len() == 1);
    }

    #[test]
    fn an_opening_that_panicked_is_done_by_the_next_question() {
        let folder = tempfile::tempdir().expect("a folder");
        let jobs = folder.path().join("jobs");
        let copies = || Copies::new(Some(&jobs), "s", &JobsLimits::default());
        let earlier = copies();
        for hub in ["hub1", "hub2"] {
            drop(begin(&earlier, &node(hub, true), (hub, "s"), 7).expect("begun"));
        }
        drop(earlier);
        let copies = copies();
        let kept = copies.0.clone();
        // The first of the copies is open when the thread panics.
        let open = move || {
            kept.opened.call_once(|| {
                let open = kept.kept("hub1").expect("opened").map(Arc::new);
                unpoisoned(kept.open.lock()).extend(open.map(|open| ("hub1".to_owned(), open)));
                panic!("the opening fails");
            });
        };
        std::thread::spawn(open).join().expect_err("a panic");
        eventually("both are shown", || copies.shown(None).jobs.len() == 2);
        assert_eq!(copies.shown(None).missing(), [""; 0]);
        begin(&copies, &node("hub2", true), ("hub2", "s"), 7).expect("begun");
    }

    #[test]
    fn a_hub_without_room_is_refused_and_no_copy_is_hidden_for_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let copies = Copies::new(Some(&folder.path().join("jobs")), "s", &JobsLimits::default());
        let begin_of = |at: usize| {
            let hub = format!("hub{at}");
            begin(&copies, &node(&hub, true), (&hub, "s"), 7).map(drop)
        };
        (0..MAX_COPIES).for_each(|at| begin_of(at).expect("begun"));
        let why = begin_of(MAX_COPIES).expect_err("refused");
        assert!(why.contains("promote or remove"), "{why}");
        eventually("all are shown", || copies.shown(None).jobs.len() == MAX_COPIES);
        std::fs::remove_dir_all(folder.path().join("replicas/hub0")).expect("removed");
        begin_of(MAX_COPIES).expect("there is room");
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
